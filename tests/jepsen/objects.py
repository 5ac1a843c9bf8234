"""The objects themselves, as plainly as can be: what a recording comes from, and what the oracle asks.

They share nothing with the models of the checker, which they are there to contradict.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from fencepost.jepsen.checkers import Append, ApplyValue, CasValue, Fenced, Model, Operation, Register


class Thing(Protocol):
    def perform(self, operation: Operation) -> Any:
        """Do it, and answer as a client would hear it."""
        ...


class Cell:
    def __init__(self) -> None:
        self.value: Any = None

    def perform(self, operation: Operation) -> Any:
        if operation.op == "read":
            return self.value
        if operation.op == "write":
            self.value = operation.value
            return None
        assert isinstance(operation.value, CasValue)
        if same(self.value, operation.value.from_):
            self.value = operation.value.to
            return True
        return False


class Text:
    def __init__(self) -> None:
        self.text = ""

    def perform(self, operation: Operation) -> Any:
        if operation.op == "read":
            return self.text
        assert isinstance(operation.value, str)
        self.text = operation.value if operation.op == "write" else self.text + operation.value
        return None


class Row:
    def __init__(self) -> None:
        self.items: list[Any] = []

    def perform(self, operation: Operation) -> Any:
        if operation.op == "read":
            return list(self.items)
        if operation.op == "write":
            assert isinstance(operation.value, list)
            self.items = list(operation.value)
        else:
            self.items.append(operation.value)
        return None


class Ledger:
    def __init__(self) -> None:
        self.token = -1
        self.ids: list[Any] = []

    def perform(self, operation: Operation) -> Any:
        assert isinstance(operation.value, ApplyValue)
        token, idem = operation.value
        assert isinstance(token, int)
        if token < self.token:
            return "stale"
        self.token = token
        if idem in self.ids:
            return "duplicate"
        self.ids.append(idem)
        return "accepted"


KINDS: dict[str, tuple[Callable[[], Thing], Model]] = {
    "register": (Cell, Register()),
    "string": (Text, Append(str)),
    "list": (Row, Append(list)),
    "fenced": (Ledger, Fenced()),
}


def same(one: Any, other: Any) -> bool:
    """Whether two answers are the same JSON."""
    return json.dumps(one) == json.dumps(other)
