"""What a node counts of its effects, resource by resource, since it was started."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..measures import EFFECT_BOUNDS_S, Seconds
from ..ports import Attempt, AttemptOutcome, AttemptStatus
from .activation import ActivationState


class ResourceMeasures:
    """Belongs to the node's loop. ``monotonic_ns`` is the node's clock."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self.attempts = 0
        self.retries = 0
        """Attempts that were not their command's first."""
        self.outcomes = dict.fromkeys(AttemptStatus, 0)
        self.replayed = 0
        """Attempts that the resource had applied already: duplicates that it kept from taking effect twice."""
        self.seconds = Seconds(EFFECT_BOUNDS_S)
        """One observation for each call of the resource, which may carry many attempts."""
        self.stage_seconds: dict[ActivationState, float] = {}
        """What this node's last activation has spent in each state."""
        self._state = ActivationState.FOLLOWER
        self._entered_ns = 0

    # -- calls ----------------------------------------------------------------------------------------

    def begun(self, attempts: Sequence[Attempt]) -> int:
        """The resource is called. The time to hand to :meth:`ended`."""
        self.attempts += len(attempts)
        self.retries += sum(1 for attempt in attempts if attempt.number > 1)
        return self._monotonic_ns()

    def ended(self, begun_ns: int) -> None:
        self.seconds.observe((self._monotonic_ns() - begun_ns) / 1e9)

    def judged(self, outcomes: Sequence[AttemptOutcome]) -> None:
        for outcome in outcomes:
            self.outcomes[AttemptStatus(outcome.status)] += 1
            if outcome.replayed:
                self.replayed += 1

    # -- activation -----------------------------------------------------------------------------------

    def entered(self, state: ActivationState) -> None:
        """The resource's activation came into ``state``; into ELECTED, a new one begins."""
        now = self._monotonic_ns()
        if state is ActivationState.ELECTED:
            self.stage_seconds = {}
        elif self._state in _ON_THE_WAY:
            spent = self.stage_seconds.get(self._state, 0.0)
            self.stage_seconds[self._state] = spent + (now - self._entered_ns) / 1e9
        self._state, self._entered_ns = state, now


_ON_THE_WAY = frozenset(
    {ActivationState.ELECTED, ActivationState.RECOVERING, ActivationState.FENCING, ActivationState.RECONCILING}
)
