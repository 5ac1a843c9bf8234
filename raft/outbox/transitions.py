"""The life of an operation as a table (concepts: The life of a command).

Every arrow of the state diagram stands here once, and an arrow that does not stand here does not
happen: the machine looks the next state up, and a missing pair means that the log entry is a no-op
for this operation. Conditions on token and attempt are the machine's, because they are comparisons
and not states.

    submit > COMMITTED > DISPATCHED > SUCCEEDED
                 ^            |-----> RETRY_WAIT > DISPATCHED
                 |            |-----> FAILED | DEAD
                 '------------|-----> IN_DOUBT > SUCCEEDED

Two rules can be read off it. *Success is a fact*: it is possible from every state that is not
terminal, also from COMMITTED, because a fenced effect runs beside its dispatch entry and may be
done before it. *Failure is an opinion*: it is possible from DISPATCHED alone.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from .operation import TERMINAL, OperationState


class Verdict(IntEnum):
    """What an outcome row says of one attempt. Stored in the log: numbers are never reused."""

    SUCCEEDED = 0
    FAILED = 1
    """Definite and permanent."""
    DEAD = 2
    """Definite, retryable, but the resource's policy has no attempt left."""
    RETRY = 3
    """Definite and retryable: counts as a failure, next try at ``next_try_ns``."""
    NOT_ATTEMPTED = 4
    """Definitely not applied, through no fault of its own: counts nothing (S50)."""
    IN_DOUBT = 5
    """May have been applied, and the resource cannot tell."""


class Trigger(StrEnum):
    """What can move an operation."""

    DISPATCH = "dispatch"
    SUCCESS = "success"
    FAILURE = "failure"
    DEATH = "death"
    RETRY = "retry"
    RELEASE = "release"
    """Not attempted, free at once."""
    POSTPONE = "postpone"
    """Not attempted, free from ``next_try_ns`` on."""
    DOUBT = "doubt"
    TAKE_OVER = "take-over"
    """A new leader holds the fence: what its predecessor had under way may be dispatched again."""
    TAKE_OVER_NAKED = "take-over-naked"
    """The same where neither fence nor key protects: never again without a person or a query."""


_COMMITTED = OperationState.COMMITTED
_DISPATCHED = OperationState.DISPATCHED
_RETRY_WAIT = OperationState.RETRY_WAIT
_IN_DOUBT = OperationState.IN_DOUBT
_SUCCEEDED = OperationState.SUCCEEDED

TRANSITIONS: dict[Trigger, dict[OperationState, OperationState]] = {
    Trigger.DISPATCH: {_COMMITTED: _DISPATCHED, _RETRY_WAIT: _DISPATCHED},
    Trigger.SUCCESS: {
        _COMMITTED: _SUCCEEDED,
        _DISPATCHED: _SUCCEEDED,
        _RETRY_WAIT: _SUCCEEDED,
        _IN_DOUBT: _SUCCEEDED,
    },
    Trigger.FAILURE: {_DISPATCHED: OperationState.FAILED},
    Trigger.DEATH: {_DISPATCHED: OperationState.DEAD},
    Trigger.RETRY: {_DISPATCHED: _RETRY_WAIT},
    Trigger.RELEASE: {_DISPATCHED: _COMMITTED},
    Trigger.POSTPONE: {_DISPATCHED: _RETRY_WAIT},
    Trigger.DOUBT: {_DISPATCHED: _IN_DOUBT},
    Trigger.TAKE_OVER: {_DISPATCHED: _COMMITTED},
    Trigger.TAKE_OVER_NAKED: {_DISPATCHED: _IN_DOUBT},
}

ARROWS: frozenset[tuple[str, str]] = frozenset(
    (before.value, after.value) for arrows in TRANSITIONS.values() for before, after in arrows.items()
)
"""Every (state, next state) that one entry may draw."""

TAKE_OVER_BY_GUARANTEE: dict[str, Trigger] = {
    "fenced": Trigger.TAKE_OVER,
    "keyed": Trigger.TAKE_OVER,
    "naked": Trigger.TAKE_OVER_NAKED,
}
"""What a guarantee makes of an attempt without an outcome (concepts: What can be promised depends on the
resource). The keys are the values of ``raft.ports.Guarantee``."""

if any(before in TERMINAL for arrows in TRANSITIONS.values() for before in arrows):
    raise AssertionError("a terminal state has an arrow out of it")
