"""What a resource that keeps a ledger answers for one attempt, in the same words whichever store it is."""

from __future__ import annotations

from typing import NamedTuple

from ...ports import Attempt, AttemptOutcome, AttemptStatus

RESULT_BYTES_MAX = 64 * 1024
"""A result is replicated and kept in every node's log and memory."""

BEHIND = AttemptOutcome(AttemptStatus.NOT_ATTEMPTED, b"", "", False)
"""For an attempt whose lane has one before it that did not succeed (S52). Without a reason, unlike
:func:`waits`: nothing is wrong with this one, and nothing has to be put right before its turn."""


class Known(NamedTuple):
    """What the ledger holds of an operation that it has applied."""

    digest: bytes
    result: bytes


def succeeded(result: bytes) -> AttemptOutcome:
    return AttemptOutcome(AttemptStatus.SUCCEEDED, result, "", False)


def failed(error: Exception | str, *, replayed: bool = False) -> AttemptOutcome:
    """``replayed``: it is what the first attempt ended with, and not said of this one alone."""
    return AttemptOutcome(AttemptStatus.FAILED, b"", str(error), replayed)


def again(error: Exception | str) -> AttemptOutcome:
    """Not applied this time, for a reason that passes: it met another writer, or ran out of time."""
    return AttemptOutcome(AttemptStatus.RETRY, b"", str(error), False)


def waits(why: str) -> AttemptOutcome:
    return AttemptOutcome(AttemptStatus.NOT_ATTEMPTED, b"", why, False)


def unknown_effect(attempt: Attempt) -> AttemptOutcome:
    return waits(f"this node knows no effect {attempt.effect!r} of this resource")


def replay(attempt: Attempt, known: Known) -> AttemptOutcome:
    if known.digest != attempt.digest:
        return failed(f"OPERATION_ID_REUSED: {attempt.operation_id!r} was applied with another payload, effect or lane")
    return AttemptOutcome(AttemptStatus.SUCCEEDED, known.result, "", True)


def superseded(attempt: Attempt, index: int) -> AttemptOutcome:
    """A lane never goes back: this attempt hung while its lane was let go on without it."""
    return failed(f"LANE_SUPERSEDED: lane {attempt.lane!r} has moved on to index {index}, past {attempt.index}")


def duplicate_or_superseded(attempt: Attempt, index: int) -> AttemptOutcome:
    """The lane has moved on so far that its record no longer tells which of the two this is, whoever asks."""
    return AttemptOutcome(
        AttemptStatus.DOUBT,
        b"",
        f"LANE_FORGOTTEN: lane {attempt.lane!r} has moved on to index {index}, and what it holds no longer reaches "
        f"back to {attempt.index}: it was applied, or it was passed over",
        False,
    )
