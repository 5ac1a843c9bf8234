"""What a set of runs has reached. One that has not met every fault and every beginning has proved less than it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

ZOMBIE_SHARE_MIN = 0.3
MEMBERSHIP_PARTITION_SHARE_MIN = 0.2


@dataclass(slots=True)
class Coverage:
    """Counted over runs."""

    seeds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    """By kind: how often it has *happened*. One that found nothing to act upon is not counted."""
    hard_states: Counter[str] = field(default_factory=Counter)
    zombie_seeds: int = 0
    """Runs in which a call of a superseded leader reached a resource after a newer leader's claim."""
    membership_partition_seeds: int = 0
    """Runs in which a change of members was taken while some link between members was cut."""

    def add(self, faults: Mapping[str, int], hard_state: str, *, zombie: bool, membership_partition: bool) -> None:
        """One run."""
        self.seeds += 1
        self.faults.update(faults)
        if hard_state:
            self.hard_states[hard_state] += 1
        self.zombie_seeds += zombie
        self.membership_partition_seeds += membership_partition

    @property
    def zombie_share(self) -> float:
        return self.zombie_seeds / self.seeds if self.seeds else 0.0

    @property
    def membership_partition_share(self) -> float:
        return self.membership_partition_seeds / self.seeds if self.seeds else 0.0

    def missing(self, kinds: Iterable[str], hard_states: Iterable[str]) -> list[str]:
        """What was to be reached and was not, a line each."""
        lines = [f"no seed had the fault {kind}" for kind in kinds if not self.faults[kind]]
        lines += [f"no seed began with {name}" for name in hard_states if not self.hard_states[name]]
        shares = (
            ("a zombie effect", self.zombie_share, ZOMBIE_SHARE_MIN),
            ("a change of members under a partition", self.membership_partition_share, MEMBERSHIP_PARTITION_SHARE_MIN),
        )
        lines += [
            f"{share:.0%} of the seeds had {what}, at least {least:.0%} must"
            for what, share, least in shares
            if share < least
        ]
        return lines

    def as_json(self) -> dict[str, Any]:
        return {
            "faults": dict(sorted(self.faults.items())),
            "hard_states": dict(sorted(self.hard_states.items())),
            "zombie_share": round(self.zombie_share, 3),
            "membership_partition_share": round(self.membership_partition_share, 3),
        }
