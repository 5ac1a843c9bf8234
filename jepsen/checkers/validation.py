"""What a history must be before it can be judged. A recorder that writes nonsense is no finding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .models.model import Model
from .operation import Operation, Status, as_text, describe, own_order
from .values import freeze


class Problem(NamedTuple):
    """One operation that cannot be, by its place in the history."""

    place: int
    text: str


def problems(history: Sequence[Operation], model: Model) -> list[Problem]:
    """All that is wrong with ``history`` as one of ``model``, in its order."""
    found = []
    for place, operation in enumerate(history):
        text = _problem(operation, model)
        if text:
            found.append(Problem(place, text))
    return found or [*_overlaps(history), *_crowded(history)]


def _problem(operation: Operation, model: Model) -> str:
    if operation.op not in model.operations:
        return f"{operation.op!r} is no operation of a {model.name}, which has {', '.join(sorted(model.operations))}"
    if operation.return_ is None:
        if operation.status is Status.OK:
            return "is ok and does not return"
    elif operation.return_ < operation.invoke and operation.status is not Status.INFO:
        return f"returns at {operation.return_}, before it is invoked at {operation.invoke}"
    try:
        freeze(operation)
    except TypeError as error:
        return str(error)
    return model.complaint(operation)


def _crowded(history: Sequence[Operation]) -> Iterator[Problem]:
    """A position of a log holds one operation."""
    held: dict[int, int] = {}
    for place, operation in enumerate(history):
        if operation.position is not None and held.setdefault(operation.position, place) != place:
            other = describe(history[held[operation.position]])
            yield Problem(place, f"position {operation.position} holds another one: {other}")


def _overlaps(history: Sequence[Operation]) -> Iterator[Problem]:
    """A process does one thing after the other, at one key. After an unknown outcome it may go on: that
    operation is then concurrent with its own later ones, because it may still take effect."""
    recorded = [place for place, operation in enumerate(history) if operation.status is not Status.DONE]
    order = sorted(recorded, key=lambda place: own_order(history[place]))
    latest: dict[tuple[int | str, int | str], Operation] = {}
    found = []
    for place in order:
        operation = history[place]
        whose = (operation.process, operation.key)
        before = latest.get(whose)
        if before is not None and before.return_ is not None and operation.invoke < before.return_:
            found.append(
                Problem(
                    place,
                    f"process {as_text(operation.process)} is invoked at {operation.invoke}, while its operation "
                    f"at the same key is under way from {before.invoke} to {before.return_}",
                )
            )
        if operation.status in (Status.OK, Status.FAIL):
            latest[whose] = operation
    yield from sorted(found)
