"""The definition of linearizability, tried out: every order there is. For a handful of operations only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from fencepost.jepsen.checkers import Operation, Status

from .objects import Thing, same


def linearizable(history: Sequence[Operation], make: Callable[[], Thing]) -> bool:
    """Whether some order of all that happened, and of any of what may have, explains the answers."""
    possible = [place for place, operation in enumerate(history) if operation.status is not Status.FAIL]
    return _extends([], possible, history, make)


def explains(order: Sequence[int], history: Sequence[Operation], make: Callable[[], Thing]) -> bool:
    """Whether this very order is one: complete, true to time and log, and with the answers that were heard."""
    due = [place for place, operation in enumerate(history) if operation.status in (Status.OK, Status.DONE)]
    shows = [place for place in due if history[place].status is Status.OK or history[place].op != "read"]
    if len(set(order)) != len(order) or not set(shows) <= set(order):
        return False
    left = list(order)
    for at, place in enumerate(order):
        if history[place].status is Status.FAIL or not _may_be_next(place, left, history):
            return False
        left.remove(place)
        if not _answers(order[: at + 1], history, make):
            return False
    return True


def _extends(order: list[int], left: list[int], history: Sequence[Operation], make: Callable[[], Thing]) -> bool:
    if all(history[place].status is Status.INFO for place in left):
        return True
    for place in left:
        if _may_be_next(place, left, history) and _answers([*order, place], history, make):
            rest = [other for other in left if other != place]
            if _extends([*order, place], rest, history, make):
                return True
    return False


def _may_be_next(place: int, left: Sequence[int], history: Sequence[Operation]) -> bool:
    return not any(_precedes(other, place, history) for other in left if other != place)


def _precedes(one: int, other: int, history: Sequence[Operation]) -> bool:
    first, second = history[one], history[other]
    if first.status is Status.INFO:
        return False
    if first.position is not None and second.position is not None and second.status is not Status.INFO:
        unseen = [each for each in (first, second) if each.status is Status.DONE and each.op == "read"]
        if not unseen and first.position < second.position:
            return True
    if first.return_ is None:
        return False
    if first.return_ < second.invoke:
        return True
    # One process does one thing after the other, even where the clock stands still.
    mine = first.process == second.process and first.status is Status.OK
    if not mine or first.return_ != second.invoke or second.status is Status.DONE:
        return False
    end = second.return_ if second.status is Status.OK and second.return_ is not None else -inf
    return (first.invoke, first.return_, one) < (second.invoke, end, other)


def _answers(order: Sequence[int], history: Sequence[Operation], make: Callable[[], Thing]) -> bool:
    """Whether the last of ``order`` hears from the object, after the others, what it has heard."""
    thing = make()
    answer = None
    for place in order:
        answer = thing.perform(history[place])
    last = history[order[-1]]
    if last.status is not Status.OK or last.op in ("write", "append", "sappend"):
        return True
    return same(answer, last.out)
