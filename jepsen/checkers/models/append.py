"""A string or a list that grows at its end: append, read, and write (replace the whole)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum

from ..operation import Operation, Status
from ..values import thawed
from .model import IMPOSSIBLE, Model


class Beyond(Enum):
    """The type of :data:`BEYOND`."""

    BEYOND = "beyond"


BEYOND = Beyond.BEYOND
"""Longer than all that was ever read: however it goes on, no read can tell the orders apart any more."""


class Append:
    """Empty at first; null and empty are the same to it. ``append`` and ``sappend`` both append.

    ``longest`` is what :meth:`narrowed` found out: where nothing is ever replaced, each state is the
    beginning of every later one, so it is also a beginning of the longest value read, or longer than it.
    Without that, concurrent appends would be tried in each of their orders before a read is asked.
    """

    operations = frozenset({"read", "write", "append", "sappend"})

    def __init__(self, kind: type[str] | type[list[object]], longest: str | tuple[Hashable, ...] | None = None) -> None:
        self.name = "string" if kind is str else "list"
        self._kind = kind
        self._empty: str | tuple[Hashable, ...] = "" if kind is str else ()
        self._longest = longest
        self.initial: Hashable = self._bounded(self._empty)

    def step(self, state: Hashable, operation: Operation) -> Hashable:
        if operation.op == "read":
            possible = operation.status is not Status.OK or self._whole(operation.out) == state
            return state if possible else IMPOSSIBLE
        if operation.op == "write":
            return self._bounded(self._whole(operation.value))
        if state is BEYOND:
            return BEYOND
        if isinstance(state, str):
            assert isinstance(operation.value, str)
            return self._bounded(state + operation.value)
        assert isinstance(state, tuple)
        return self._bounded((*state, operation.value))

    def observes(self, operation: Operation) -> bool:
        return operation.op == "read"

    def complaint(self, operation: Operation) -> str:
        if operation.op == "read":
            if operation.status is not Status.OK or operation.out is None or self._fits(operation.out):
                return ""
            return f"`out` is no {self.name}, and other operations say that this is one"
        if operation.op == "write":
            if operation.value is None or self._fits(operation.value):
                return ""
            return f"`value` is no {self.name}, and other operations say that this is one"
        if self._kind is str and not isinstance(operation.value, str):
            return "`value` appended to a string is no string"
        return ""

    def narrowed(self, operations: Sequence[Operation]) -> tuple[Model, Sequence[Operation]]:
        possible = [operation for operation in operations if operation.status is not Status.FAIL]
        replaced = [operation for operation in possible if operation.op == "write"]
        others = [operation for operation in possible if operation.op != "write"]
        if replaced and not _first(replaced, others):
            return self, operations
        read = [
            self._whole(operation.out)
            for operation in others
            if operation.op == "read" and operation.status is Status.OK
        ]
        return Append(self._kind, max(read, key=len, default=self._empty)), operations

    def shown(self, state: Hashable) -> object:
        return thawed(state)

    def remarks(self, operations: Sequence[Operation]) -> list[str]:
        return []

    def _fits(self, value: object) -> bool:
        return isinstance(value, str) if self._kind is str else isinstance(value, (list, tuple))

    def _whole(self, value: object) -> str | tuple[Hashable, ...]:
        if value is None:
            return self._empty
        assert isinstance(value, (str, tuple))
        return value

    def _bounded(self, state: str | tuple[Hashable, ...]) -> Hashable:
        """The state as narrowing sees it: as it is, BEYOND, or a way that leads nowhere."""
        longest = self._longest
        if longest is None:
            return state
        if len(state) > len(longest):
            return BEYOND
        return state if longest[: len(state)] == state else IMPOSSIBLE


def _first(replaced: Sequence[Operation], others: Sequence[Operation]) -> bool:
    """Whether there is one replacement, certain, and before all else: how a recording may begin."""
    if len(replaced) != 1 or replaced[0].status is not Status.OK or replaced[0].return_ is None:
        return False
    end = replaced[0].return_
    return all(end < operation.invoke for operation in others)
