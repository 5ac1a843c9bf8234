"""Why a history is illegal: the first answer that no order explains, and an order of all before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .models.model import Model
from .operation import Operation, Status, as_text, describe
from .search import Verdict, search

ORDER_SHOWN = 12
"""How many operations of an order are told to people: the last ones."""


class Explanation(NamedTuple):
    """About one key that is not ok. Operations are named by their place in the history."""

    key: int | str
    verdict: Verdict
    order: tuple[int, ...]
    """With ILLEGAL: an order that explains all that had been answered before ``blocked`` was."""
    state: object
    """The object after ``order``, as a JSON value."""
    blocked: int | None
    """With ILLEGAL: the operation whose answer fits nowhere. All before it in time can be explained
    without it, and nothing can with it. None if the bound on the work did not allow to find it."""
    remarks: tuple[str, ...]
    """What the model itself finds wrong, in words. Each is a proof of its own."""
    steps: int
    """The work done at this key."""


def explain(
    places: Sequence[int], operations: Sequence[Operation], model: Model, steps_max: int
) -> tuple[tuple[int, ...], object, int | None]:
    """For an illegal history of one key: order, state and blocked operation, as in :class:`Explanation`.

    ``operations`` are frozen and ``places`` say where each stands in the whole history. Whether the
    history up to a return is illegal can only change from no to yes, so the return is found by halving.
    """
    returns = sorted(
        (i for i, operation in enumerate(operations) if operation.status in (Status.OK, Status.DONE)),
        key=lambda i: (operations[i].return_ is None, operations[i].return_, i),
    )
    legal, illegal = 0, len(returns)
    order: tuple[int, ...] = ()
    while illegal - legal > 1:
        middle = (legal + illegal) // 2
        found = search(until(operations, returns, middle), model, steps_max)
        if found.verdict is Verdict.UNKNOWN:
            return (), model.shown(model.initial), None
        if found.verdict is Verdict.OK:
            legal, order = middle, found.order
        else:
            illegal = middle
    state = model.initial
    seen = until(operations, returns, legal)
    for i in order:
        state = model.step(state, seen[i])
    return tuple(places[i] for i in order), model.shown(state), places[returns[illegal - 1]]


def until(operations: Sequence[Operation], returns: Sequence[int], count: int) -> list[Operation]:
    """The history as it was after the first ``count`` of ``returns``: what had not yet returned is unknown,
    and what had not been invoked is left out (as failed, so that places stay)."""
    returned = frozenset(returns[:count])
    last = operations[returns[count - 1]].return_ if count else None
    seen = []
    for i, operation in enumerate(operations):
        if i in returned:
            seen.append(operation)
        elif count and (last is None or operation.invoke <= last):
            seen.append(operation if operation.status is Status.FAIL else operation._replace(status=Status.INFO))
        else:
            seen.append(operation._replace(status=Status.FAIL))
    return seen


def lines(explanation: Explanation, history: Sequence[Operation], numbers: Sequence[int]) -> Iterator[str]:
    """The explanation for people. ``numbers`` are the lines of the file on which the operations stand."""

    def told(place: int) -> str:
        return f"line {numbers[place]}: {describe(history[place])}"

    yield f"key {as_text(explanation.key)}: {explanation.verdict.value} after {explanation.steps:,} steps"
    if explanation.verdict is Verdict.UNKNOWN:
        return
    if explanation.blocked is not None:
        if explanation.order:
            yield "  what was answered before can have happened in this order:"
            hidden = len(explanation.order) - ORDER_SHOWN
            if hidden > 0:
                yield f"    ... {hidden} operations, then"
            yield from (f"    {told(place)}" for place in explanation.order[-ORDER_SHOWN:])
        yield f"  which leaves {as_text(explanation.state)}; neither this order nor any other has a place for"
        yield f"    {told(explanation.blocked)}"
    yield from (f"  {remark}" for remark in explanation.remarks)
