"""What becomes of an attempt that did not succeed: the leader's judgement, written into the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    """Attempts whose executor went away after which a command is dead: it may be what kills them."""
    by_effect: Mapping[str, RetryPolicy] = field(default_factory=dict)
    """Of the effects that have a policy of their own."""

    def of(self, effect: str) -> RetryPolicy:
        return self.by_effect.get(effect, self)

    def pause_ns(self, failures: int, randomness: Randomness) -> int:
        ceiling = min(self.backoff_ns << min(failures, 40), self.backoff_max_ns)
        return randomness.between(0, ceiling)


@dataclass(frozen=True, slots=True)
class ActivationPolicy:
    """What the absence of a resource means for the leader."""

    required: bool = True
    """Without it the leader is not ready, and hands leadership on in case another node can reach it."""
    timeout_ns: int = 30_000_000_000
    """How long it may stay away before that, nanoseconds."""


def began_ns(operation: Operation) -> int:
    """Cluster time at which the first attempt of ``operation`` began, or an earlier one."""
    # A long history has lost its middle. The first dispatch is in it or is not; a later one does not stand for it.
    begun = (row.time_ns for row in operation.history if row.state == OperationState.DISPATCHED and row.attempt == 1)
    return min(begun, default=operation.submitted_ns)


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
) -> OutcomeRow:
    """The outcome row for one attempt (concepts: The life of a command).

    ``suspended``: nothing starts there before the resource is claimed anew, so no pause is needed.
    """
    status, result, error, _, pause_ns = outcome
    if status == AttemptStatus.SUCCEEDED:
        return OutcomeRow(operation.index, attempt, Verdict.SUCCEEDED, result, "", 0)
    error = error[:ERROR_CHARACTERS_MAX]
    verdict = Verdict.RETRY
    if status == AttemptStatus.NOT_ATTEMPTED:
        verdict = Verdict.NOT_ATTEMPTED
    elif status == AttemptStatus.FAILED and operation.lost >= policy.lost_max:
        verdict = Verdict.DEAD  # Given up on rather than refused: it may have been applied.
    elif status == AttemptStatus.FAILED:
        verdict = Verdict.FAILED
    elif status == AttemptStatus.DOUBT:
        verdict = Verdict.IN_DOUBT
    elif status == AttemptStatus.UNKNOWN and guarantee is Guarantee.NAKED:
        # Neither refused nor recognised by the other side: repeating it may do it twice.
        verdict = Verdict.IN_DOUBT
    elif operation.failures + 1 >= policy.max_attempts:
        # No answer is no failure, however often: the last attempt, too, may have been applied, and who
        # is told that the command failed does it again under another id.
        verdict = Verdict.IN_DOUBT if status == AttemptStatus.UNKNOWN else Verdict.DEAD
        error = f"{error} (attempt {attempt}, the limit is {policy.max_attempts} failed attempts)"
    next_try_ns = 0
    if verdict is Verdict.RETRY:
        next_try_ns = cluster_time_ns + max(pause_ns, policy.pause_ns(operation.failures, randomness))
    elif verdict is Verdict.NOT_ATTEMPTED and error and not suspended:
        # The resource was not ready for it: no failure of the command, but no reason to ask again at
        # once either (S53). Without an error it only stood behind the head of its lane.
        next_try_ns = cluster_time_ns + policy.pause_ns(attempt - 1, randomness)
    return OutcomeRow(operation.index, attempt, verdict, b"", error, next_try_ns)
