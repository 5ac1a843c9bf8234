"""The life of an operation as a table (concepts: The life of a command).

Every arrow of the state diagram stands here once, and an arrow that does not stand here does not
happen: the machine looks the next state up, and a missing pair means that the log entry is a no-op
for this operation. Conditions on token and attempt are the machine's, because they are comparisons
and not states.

    submit > COMMITTED > DISPATCHED > SUCCEEDED
                 ^            |-----> RETRY_WAIT > DISPATCHED
                 |            |-----> FAILED | DEAD
                 '------------|-----> IN_DOUBT > SUCCEEDED | RETRY_WAIT | DEAD

    COMMITTED, RETRY_WAIT > CANCELLED        somebody does not want it any more
    COMMITTED, RETRY_WAIT > DEAD             its deadline has passed
    DEAD > COMMITTED | FAILED | SUCCEEDED    redriven, or discarded, or it was applied after all

Two rules can be read off it. *Success is a fact*: it is possible from every state that is not
final, also from COMMITTED, because a fenced effect runs beside its dispatch entry and may be
done before it, and from DEAD, because somebody may have been mistaken. *Failure is an opinion*:
it is possible from DISPATCHED alone.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from .operation import FINAL, OperationState


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
    UNANSWERED = 6
    """Counts as a failure and is tried again at ``next_try_ns`` like RETRY, but may have been applied."""
    UNHEARD = 7
    """Counts nothing, like NOT_ATTEMPTED, but may have been applied: the resource recognises it if it was."""


class Finding(IntEnum):
    """What became of a command in doubt. Stored in the log: numbers are never reused."""

    DONE = 0
    NOT_DONE = 1
    """It was not, and it is given up: a dead letter, which may be redriven."""
    ABSENT = 2
    """The resource, whose fence this leader holds, says that it was not: it may be tried again."""


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
    CANCEL = "cancel"
    WISH = "wish"
    """It shall be cancelled, and an attempt is under way: as soon as that is known not to have applied."""
    CANCEL_UNSURE = "cancel-unsure"
    """It shall be cancelled, and an attempt of it may have been applied: no other is made."""
    DROP = "drop"
    """An attempt of what shall be cancelled has ended, and was not applied."""
    EXPIRE = "expire"
    GIVE_UP = "give-up"
    """An operator says of one in doubt that it was not applied."""
    ABSENT = "absent"
    """Its resource says so."""
    REDRIVE = "redrive"
    DISCARD = "discard"


_COMMITTED = OperationState.COMMITTED
_DISPATCHED = OperationState.DISPATCHED
_RETRY_WAIT = OperationState.RETRY_WAIT
_IN_DOUBT = OperationState.IN_DOUBT
_SUCCEEDED = OperationState.SUCCEEDED
_CANCELLED = OperationState.CANCELLED
_DEAD = OperationState.DEAD

TRANSITIONS: dict[Trigger, dict[OperationState, OperationState]] = {
    Trigger.DISPATCH: {_COMMITTED: _DISPATCHED, _RETRY_WAIT: _DISPATCHED},
    Trigger.SUCCESS: {
        _COMMITTED: _SUCCEEDED,
        _DISPATCHED: _SUCCEEDED,
        _RETRY_WAIT: _SUCCEEDED,
        _IN_DOUBT: _SUCCEEDED,
        _DEAD: _SUCCEEDED,
    },
    Trigger.FAILURE: {_DISPATCHED: OperationState.FAILED},
    Trigger.DEATH: {_DISPATCHED: OperationState.DEAD},
    Trigger.RETRY: {_DISPATCHED: _RETRY_WAIT},
    Trigger.RELEASE: {_DISPATCHED: _COMMITTED},
    Trigger.POSTPONE: {_DISPATCHED: _RETRY_WAIT},
    Trigger.DOUBT: {_DISPATCHED: _IN_DOUBT},
    Trigger.TAKE_OVER: {_DISPATCHED: _COMMITTED},
    Trigger.TAKE_OVER_NAKED: {_DISPATCHED: _IN_DOUBT},
    Trigger.CANCEL: {_COMMITTED: _CANCELLED, _RETRY_WAIT: _CANCELLED},
    Trigger.WISH: {_COMMITTED: _COMMITTED, _DISPATCHED: _DISPATCHED, _RETRY_WAIT: _RETRY_WAIT},
    Trigger.CANCEL_UNSURE: {_COMMITTED: _IN_DOUBT, _RETRY_WAIT: _IN_DOUBT},
    Trigger.DROP: {_DISPATCHED: _CANCELLED, _IN_DOUBT: _CANCELLED},
    Trigger.EXPIRE: {_COMMITTED: _DEAD, _RETRY_WAIT: _DEAD},
    Trigger.GIVE_UP: {_IN_DOUBT: _DEAD},
    Trigger.ABSENT: {_IN_DOUBT: _RETRY_WAIT},
    Trigger.REDRIVE: {_DEAD: _COMMITTED},
    Trigger.DISCARD: {_DEAD: OperationState.FAILED},
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

if any(before in FINAL for arrows in TRANSITIONS.values() for before in arrows):
    raise AssertionError("a final state has an arrow out of it")
