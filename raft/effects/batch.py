"""Attempts under way together, and the parts of the log's answers that concern them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from ..core.entry import Entry
from ..core.errors import FencepostError
from ..core.errors import Outcome as OutcomeOf
from ..outbox.codec import TIME_NS_MAX, OutcomeRow
from ..outbox.operation import Operation
from ..ports import Answered, Attempt, AttemptOutcome, AttemptStatus, Found, Guarantee, Resource

if TYPE_CHECKING:
    from .dispatcher import Dispatcher

OUTCOME_BYTES_MAX = 1 << 20
"""Results and errors in one outcome entry; one larger row goes alone. A batch may bring back more than
fits into a frame, and an entry that no follower can be sent ends every leader that makes it."""


RESULT_BYTES_MAX = 1 << 20
"""One result. Larger than any of our own resources gives, and far smaller than an entry may be."""

_STATUSES = frozenset(AttemptStatus)
_LOG = structlog.get_logger("fencepost.effects")


class Batch:
    """Attempts under way together."""

    __slots__ = ("attempts", "beside", "operations", "outcomes", "released", "unheard")

    def __init__(self, operations: list[Operation], attempts: list[Attempt]) -> None:
        self.operations = operations
        self.attempts = attempts
        self.outcomes: list[AttemptOutcome] = []
        self.beside = False
        """It was executed beside its dispatch entry, and not after it. A resource may learn between the two
        what it can promise."""
        self.released = False
        """Its lanes went on before its outcomes were on record."""
        self.unheard = False
        """The resource has not answered, and recognises what it may have applied."""


def in_parts(rows: list[OutcomeRow]) -> Iterator[list[OutcomeRow]]:
    """The rows in order, in runs of bounded bytes: at least one run, none of them empty but of no rows."""
    part: list[OutcomeRow] = []
    size = 0
    for row in rows:
        size += len(row.result) + len(row.error)
        if part and size > OUTCOME_BYTES_MAX:
            yield part
            part, size = [], len(row.result) + len(row.error)
        part.append(row)
    yield part


def checked(resource: str, outcomes: object, count: int) -> list[AttemptOutcome]:
    """What a resource gave for ``count`` attempts, if that can go into an entry: a resource may be anybody's code.

    Raises :class:`TypeError`. A result that is too large is left out: the effect is done, and stays done.
    """
    if not isinstance(outcomes, list | tuple) or len(outcomes) != count:
        raise TypeError(f"resource {resource!r} gave {outcomes!r:.200} for {count} attempts")
    fitting: list[AttemptOutcome] = []
    for outcome in outcomes:
        if not _fits(outcome):
            raise TypeError(f"resource {resource!r} gave {outcome!r:.200} for an attempt")
        if len(outcome.result) > RESULT_BYTES_MAX:
            _LOG.warning("result too large, not kept", resource=resource, bytes=len(outcome.result))
            outcome = outcome._replace(result=b"null")
        fitting.append(outcome)
    return fitting


def _fits(outcome: Any) -> bool:
    if not isinstance(outcome, AttemptOutcome):
        return False
    fields: tuple[Any, ...] = tuple(outcome)
    status, result, error, _, pause_ns = fields
    types = type(result) is bytes and isinstance(error, str) and isinstance(pause_ns, int)
    return types and status in _STATUSES and 0 <= pause_ns < TIME_NS_MAX


def checked_answer(resource: str, answer: object) -> Answered:
    """What a resource said of an operation, if that can go into an entry. Raises :class:`TypeError`."""
    fields: tuple[Any, ...] = tuple(answer) if isinstance(answer, Answered) else (None, None)
    found, result = fields
    if not isinstance(answer, Answered) or not isinstance(found, Found) or type(result) is not bytes:
        raise TypeError(f"resource {resource!r} answers a question with {answer!r:.200}")
    return answer if len(answer.result) <= RESULT_BYTES_MAX else answer._replace(result=b"null")


def status_of(error: BaseException, resource: Resource) -> AttemptStatus:
    """What a batch that raised may have done. A resource that knows says so in the error."""
    if resource.guarantee is Guarantee.FENCED:
        # A repeat is recognised there, so nothing need be spent by an outage.
        return AttemptStatus.NOT_ATTEMPTED
    return AttemptStatus.NOT_ATTEMPTED if is_definite(error) else AttemptStatus.UNKNOWN


def is_definite(error: BaseException) -> bool:
    """Whether nothing was applied for certain."""
    return isinstance(error, FencepostError) and error.outcome is not OutcomeOf.UNKNOWN


def text_of(error: BaseException) -> str:
    return str(error) or type(error).__name__


class DispatchSink:
    """Hears of dispatch entries; each key is a batch."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def accepted(self, keys: Sequence[Batch], first_index: int, term: int) -> None:
        pass

    def refused(self, keys: Sequence[Batch], code: str, leader: str) -> None:
        for batch in keys:
            self._dispatcher.not_proposed(batch, executing=batch.beside)

    def applied(self, keys: Sequence[Batch], entries: Sequence[Entry], results: Sequence[Any]) -> None:
        for batch in keys:
            self._dispatcher.dispatched(batch)

    def lost(self, keys: Sequence[Batch]) -> None:
        self.refused(keys, "LEADERSHIP_LOST", "")

    def unknown(self, keys: Sequence[Batch]) -> None:
        self.refused(keys, "OUTCOME_UNKNOWN", "")


class OutcomeSink:
    """Hears of outcome entries; the key of a batch's last one is the batch, of those before it None."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def accepted(self, keys: Sequence[Batch | None], first_index: int, term: int) -> None:
        pass

    def refused(self, keys: Sequence[Batch | None], code: str, leader: str) -> None:
        for batch in filter(None, keys):
            self._dispatcher.in_flight -= len(batch.operations)
            self._dispatcher.late(batch)

    def applied(self, keys: Sequence[Batch | None], entries: Sequence[Entry], results: Sequence[Any]) -> None:
        for batch in filter(None, keys):
            self._dispatcher.finished(batch)

    def lost(self, keys: Sequence[Batch | None]) -> None:
        self.refused(keys, "LEADERSHIP_LOST", "")

    def unknown(self, keys: Sequence[Batch | None]) -> None:
        self.refused(keys, "OUTCOME_UNKNOWN", "")
