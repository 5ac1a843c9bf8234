"""From winning an election to acting, at one resource (concepts: From winning an election to acting).

FOLLOWER -> ELECTED -> RECOVERING -> FENCING -> ACTIVE -> DRAINING -> REVOKED
"""

from __future__ import annotations

from enum import StrEnum

from ..outbox.codec import StageSeconds


class ActivationState(StrEnum):
    FOLLOWER = "follower"
    """This node does not lead; it touches nothing."""
    ELECTED = "elected"
    """Leader, and its no-op is not yet committed."""
    RECOVERING = "recovering"
    """The no-op is being applied: only then is everything known that predecessors finished."""
    FENCING = "fencing"
    """Claiming the token at the resource."""
    RECONCILING = "reconciling"
    """The claim stands; taking over what the predecessor left is being committed."""
    ACTIVE = "active"
    DRAINING = "draining"
    """Starting nothing new, finishing what is under way."""
    REVOKED = "revoked"


STAGES = ("detect", "elect", "catch-up", "fence", "reconcile", "first-effect")
"""What a change of leader costs, in order (requirement 84). Seconds of each are recorded."""


class StageClock:
    """Seconds spent in each stage of one change of leader. Times are monotonic nanoseconds."""

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._begun: dict[str, int] = {}
        self._started_at = 0

    def start(self, at: int) -> None:
        """The last moment at which the previous leader was heard, or of the node's start."""
        self._started_at = at
        self._marks.clear()
        self._begun.clear()

    def reached(self, stage: str, at: int) -> None:
        """``stage`` ended at ``at``. The first time counts."""
        self._marks.setdefault(stage, at)

    def begun(self, stage: str, at: int) -> None:
        """``stage`` began only now, and not when the one before it ended: there was nothing to do."""
        self._begun.setdefault(stage, at)

    def has(self, stage: str) -> bool:
        return stage in self._marks

    def seconds(self) -> list[StageSeconds]:
        """Stages reached so far with the seconds each took, in order."""
        result = []
        before = self._started_at
        for stage in STAGES:
            at = self._marks.get(stage)
            if at is None:
                break
            result.append(StageSeconds(stage, max(at - max(before, self._begun.get(stage, 0)), 0) / 1e9))
            before = at
        return result
