"""What happened to one node lately, for whoever asks: ``events``. Kept in memory and gone with the process; what
the cluster has agreed on, elections and activations, is in its log instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from ..core.configuration import Configuration
from ..core.events import Role, RoleChange, TransferBegun, TransferEnded
from .observers import Onlooker

HAPPENINGS_KEPT = 256


class Happenings(Onlooker):
    """Implements ``raft.node.observers.LoopObserver``."""

    def __init__(self, node_id: str, time_ns: Callable[[], int], stale_refusals: Mapping[str, int]) -> None:
        """``time_ns()`` is the wall clock: it is shown and compared with nothing. ``stale_refusals`` counts, by
        resource, how often this node's token was refused."""
        self._node_id = node_id
        self._time_ns = time_ns
        self._stale_refusals = stale_refusals
        self._refusals_seen = dict(stale_refusals)
        self._happened: deque[dict[str, Any]] = deque(maxlen=HAPPENINGS_KEPT)
        self._number = 0
        self._term = 0
        self._role = Role.FOLLOWER
        self._leader = ""

    def since(self, number: int) -> list[dict[str, Any]]:
        """What happened after the one of that number, the oldest first."""
        return [each for each in self._happened if each["number"] > number]

    def _happen(self, event: str, *, resource: str = "", **more: Any) -> None:
        self._number += 1
        row = {"number": self._number, "time_ns": self._time_ns(), "event": event, "node": self._node_id}
        self._happened.append({**row, "term": self._term, "resource": resource or None, **more})

    def role_changed(self, change: RoleChange) -> None:
        if self._role is Role.LEADER and change.role is not Role.LEADER:
            self._happen("stopped-leading", reason=change.reason)
        self._term = change.term
        if change.role is Role.LEADER:
            self._happen("leads", reason=change.reason)
        elif change.role is Role.CANDIDATE:
            self._happen("campaigns", reason=change.reason)
        elif change.leader and change.leader != self._leader:
            self._happen("follows", leader=change.leader)
        self._role = change.role
        self._leader = change.leader

    def configuration_changed(self, configuration: Configuration) -> None:
        self._happen(
            "members",
            voters=list(configuration.voters),
            outgoing=list(configuration.outgoing),
            learners=list(configuration.learners),
        )

    def transfer_begun(self, transfer: TransferBegun) -> None:
        self._happen("hands-over", target=transfer.target)

    def transfer_ended(self, transfer: TransferEnded) -> None:
        self._happen("keeps-leading", target=transfer.target, reason=transfer.reason)

    def before_turn_ends(self, now: int) -> None:
        if self._refusals_seen != self._stale_refusals:
            for resource, count in self._stale_refusals.items():
                before = self._refusals_seen.get(resource, 0)
                if count > before:
                    self._happen("stale-refused", resource=resource, times=count - before)
            self._refusals_seen = dict(self._stale_refusals)
