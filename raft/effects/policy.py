"""What becomes of an attempt that did not succeed: the leader's judgement, written into the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..outbox.codec import OutcomeRow
from ..outbox.operation import Operation, OperationState
from ..outbox.transitions import Verdict
from ..ports import AttemptOutcome, AttemptStatus, Guarantee, Randomness

ERROR_CHARACTERS_MAX = 1000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Times are nanoseconds. The pause before attempt n+1 is drawn from zero to
    ``backoff_ns * 2**(n-1)``, at most ``backoff_max_ns`` (full jitter)."""

    max_attempts: int = 10
    """Failed attempts after which a command is dead; in doubt if the last one had no answer."""
    backoff_ns: int = 100_000_000
    backoff_max_ns: int = 30_000_000_000
    lost_max: int = 20
    """Attempts whose executor went away after which a command is in doubt: it may be what kills them."""
    by_effect: Mapping[str, RetryPolicy] = field(default_factory=dict)
    """Of the effects that have a policy of their own."""

    def of(self, effect: str) -> RetryPolicy:
        return self.by_effect.get(effect, self)

    def pause_ns(self, failures: int, randomness: Randomness) -> int:
        ceiling = min(self.backoff_ns << min(failures, 40), self.backoff_max_ns)
        return randomness.between(0, ceiling)


class OnDead(StrEnum):
    """What a dead letter means for the lane that it was the head of."""

    CONTINUE = "continue"
    """What comes after it goes on."""
    BLOCK = "block"
    """The lane stands until it is redriven or discarded."""


@dataclass(frozen=True, slots=True)
class DispatchPolicy:
    """How commands are started at one resource."""

    concurrency: int = 0
    """Calls at once, at most; 0 for as many as the resource takes."""
    slow_start: int = 16
    """The largest batch after an activation; doubled by every batch that succeeds, up to the resource's
    limit. A resource that is claimed and yet fails costs few attempts and few rows in the log (S53)."""
    horizon_ns: int = 0
    """So long after its first attempt an operation that may have been applied is not repeated any more, because the
    other side may have forgotten its key: it goes in doubt. Nanoseconds of cluster time; 0 for no end."""
    on_dead: OnDead = OnDead.CONTINUE

    def is_past_horizon(self, operation: Operation, cluster_time_ns: int) -> bool:
        """Whether another attempt could be taken for a new operation."""
        return self.horizon_ns > 0 and age_ns(operation, cluster_time_ns) > self.horizon_ns


@dataclass(frozen=True, slots=True)
class ActivationPolicy:
    """What the absence of a resource means for the leader."""

    required: bool = True
    """Without it the leader is not ready, and hands leadership on in case another node can reach it."""
    timeout_ns: int = 30_000_000_000
    """How long it may stay away before that, nanoseconds."""


def began_ns(operation: Operation) -> int:
    """Cluster time at which the first attempt of ``operation`` began, since it was redriven last, or an earlier one:
    a dead letter was certainly not applied."""
    rows = operation.history
    if operation.place != operation.index:
        rows = [row for row in rows if row.index >= operation.place]
        # A long history has lost its middle, and with it perhaps the first attempts since.
        if not rows or rows[0].index != operation.place:
            return operation.submitted_ns
        begun = (row.time_ns for row in rows if row.state == OperationState.DISPATCHED)
        return min(begun, default=rows[0].time_ns)
    # The same: the first dispatch is there or is not, and a later one does not stand for it.
    begun = (row.time_ns for row in rows if row.state == OperationState.DISPATCHED and row.attempt == 1)
    return min(begun, default=operation.submitted_ns)


def age_ns(operation: Operation, cluster_time_ns: int) -> int:
    """How long ago the other side may have been given its key for the first time; 0 where every attempt so far was
    certainly not applied."""
    if not operation.attempt or not (operation.unsure or operation.lost):
        return 0
    return cluster_time_ns - began_ns(operation)


HAND_ONS_MAX = 2
"""Times in a row that one process hands leadership on because of one resource. After that it is away
for everybody, and a leader that serves the other resources is worth more than ever new elections."""


def judge(
    operation: Operation,
    attempt: int,
    outcome: AttemptOutcome,
    *,
    guarantee: Guarantee,
    policy: RetryPolicy,
    cluster_time_ns: int,
    randomness: Randomness,
    suspended: bool = False,
    unheard: bool = False,
    refusal_tells: bool = True,
) -> OutcomeRow:
    """The outcome row for one attempt (concepts: The life of a command).

    ``suspended``: nothing starts there before the resource is claimed anew, so no pause is needed. ``unheard``:
    what was not attempted, or refused, may have been applied after all; the resource recognises it.
    ``refusal_tells``: of a fenced resource, whether its refusals say that no earlier attempt was applied.
    A failure that is ``replayed`` is what the first attempt ended with.
    """
    status, result, error, replayed, pause_ns = outcome
    if status == AttemptStatus.SUCCEEDED:
        return OutcomeRow(operation.index, attempt, Verdict.SUCCEEDED, result, "", 0)
    # What a handler raises may quote names that are no text (lone surrogates), which no entry can hold.
    error = error[:ERROR_CHARACTERS_MAX].encode(errors="backslashreplace").decode()
    verdict = Verdict.RETRY
    # Where the other side only knows keys, a refusal says nothing about an earlier attempt without an answer.
    tells = replayed or (refusal_tells and guarantee is Guarantee.FENCED)
    doubtful = (operation.unsure or unheard) and not tells
    if status == AttemptStatus.NOT_ATTEMPTED:
        verdict = Verdict.UNHEARD if unheard else Verdict.NOT_ATTEMPTED
    elif status == AttemptStatus.FAILED:
        verdict = Verdict.IN_DOUBT if doubtful else Verdict.FAILED
    elif status == AttemptStatus.DOUBT:
        verdict = Verdict.IN_DOUBT
    elif status == AttemptStatus.UNKNOWN and guarantee is Guarantee.NAKED:
        # Neither refused nor recognised by the other side: repeating it may do it twice.
        verdict = Verdict.IN_DOUBT
    elif operation.failures + 1 >= policy.max_attempts:
        # No answer is no failure, however often: the last attempt, too, may have been applied, and who
        # is told that the command failed does it again under another id.
        verdict = Verdict.IN_DOUBT if status == AttemptStatus.UNKNOWN or doubtful else Verdict.DEAD
        error = f"{error} (attempt {attempt}, the limit is {policy.max_attempts} failed attempts)"
    elif status == AttemptStatus.UNKNOWN or unheard:
        verdict = Verdict.UNANSWERED
    next_try_ns = 0
    if verdict is Verdict.RETRY or verdict is Verdict.UNANSWERED:
        next_try_ns = cluster_time_ns + max(pause_ns, policy.pause_ns(operation.failures, randomness))
    elif status == AttemptStatus.NOT_ATTEMPTED and error and not suspended:
        # The resource was not ready for it: no failure of the command, but no reason to ask again at
        # once either (S53). Without an error it only stood behind the head of its lane.
        next_try_ns = cluster_time_ns + policy.pause_ns(attempt - 1, randomness)
    return OutcomeRow(operation.index, attempt, verdict, b"", error, next_try_ns)
