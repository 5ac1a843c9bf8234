"""What a log says of operations whose clients never heard the end of them.

An unknown outcome excuses too much: a read of the value that such a write *might* have left is legal
for ever after, so a few of them at one busy key hide a lost or a stale value. Whoever recorded the
history often has the committed log as well, and the log knows.

``committed`` says of operations, by their identity, at which position of the log each stands; None
says that it stands nowhere and never will (the log is complete to the end of the history). An
identity that is not in it at all (reads, as a rule) is not spoken of.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from .operation import Operation, Status, describe, identity_of

Committed = Mapping[Any, int | None]
"""By identity, which may be anything that has a hash."""
IdentityOf = Callable[[Operation], Hashable]


def settle(
    history: Sequence[Operation],
    committed: Committed,
    identity: IdentityOf = identity_of,
) -> list[Operation]:
    """``history``, in its order, with each INFO that ``committed`` speaks of as FAIL or DONE, and with the
    positions of all that stand in the log.

    A log takes effect in the order of its positions, over all keys. So a DONE has times as well: not before
    any operation of a lower position was invoked, and not after any of a higher one had returned. (Where the
    log and the clients' times contradict each other, it keeps its own; :func:`contradictions` tells.)

    ``identity`` gives the key in ``committed`` for an operation; unless it is given, that is
    ``(process, key, invoke)``. Raises ValueError if two operations share a position.
    """
    order = _order(history, committed, identity)
    starts = list(accumulate((history[place].invoke for _, place in order), max))
    known_ends = [_end(history[place]) for _, place in order]
    ends = list(accumulate(reversed(known_ends), _sooner))[::-1]
    settled = list(history)
    for place, operation in enumerate(history):
        name = identity(operation)
        if operation.status is Status.INFO and name in committed and committed[name] is None:
            settled[place] = operation._replace(status=Status.FAIL, return_=None)
    for at, (position, place) in enumerate(order):
        operation = history[place]._replace(position=position)
        if operation.status is Status.INFO:
            start, end = starts[at], ends[at]
            if end is not None and end < start:
                start, end = operation.invoke, None
            operation = operation._replace(status=Status.DONE, invoke=start, return_=end)
        settled[place] = operation
    return settled


class Contradiction(StrEnum):
    """In what a history and the log can contradict each other."""

    LOST = "acknowledged, and not in the log"
    DENIED = "refused for certain, and in the log"
    DISORDER = "before the other in time, and after it in the log"


class Disagreement(NamedTuple):
    """One operation of which client and log say different things: a fault, whatever a checker says."""

    about: Contradiction
    operation: Operation
    other: Operation | None
    """With DISORDER: the one that began after ``operation`` had returned, and has a lower position."""

    def __str__(self) -> str:
        beside = f"; {describe(self.other)}" if self.other is not None else ""
        return f"{self.about.value}: {describe(self.operation)}{beside}"


def contradictions(
    history: Sequence[Operation],
    committed: Committed,
    identity: IdentityOf = identity_of,
) -> list[Disagreement]:
    """Where ``history``, as it was recorded, and ``committed`` cannot both be true; of each operation at most
    one DISORDER. Arguments and errors as with :func:`settle`."""
    found = []
    for operation in history:
        name = identity(operation)
        if name in committed:
            if operation.status is Status.OK and committed[name] is None:
                found.append(Disagreement(Contradiction.LOST, operation, None))
            elif operation.status is Status.FAIL and committed[name] is not None:
                found.append(Disagreement(Contradiction.DENIED, operation, None))
    latest: Operation | None = None
    for _, place in _order(history, committed, identity):
        operation = history[place]
        end = _end(operation)
        if latest is not None and end is not None and end < latest.invoke:
            found.append(Disagreement(Contradiction.DISORDER, operation, latest))
        if latest is None or operation.invoke > latest.invoke:
            latest = operation
    return found


def _order(history: Sequence[Operation], committed: Committed, identity: IdentityOf) -> list[tuple[int, int]]:
    """Position and place in the history of all that stands in the log, by position."""
    order = []
    for place, operation in enumerate(history):
        position = committed.get(identity(operation))
        if position is not None:
            order.append((position, place))
    order.sort()
    for (position, one), (next_position, other) in pairwise(order):
        if position == next_position:
            raise ValueError(f"position {position} has {describe(history[one])} and {describe(history[other])}")
    return order


def _end(operation: Operation) -> int | None:
    """When it had certainly taken effect, as far as its client knows."""
    return operation.return_ if operation.status in (Status.OK, Status.DONE) else None


def _sooner(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
