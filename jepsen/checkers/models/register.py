"""A register: read, write, and compare and set."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..operation import CasValue, Operation, Status
from ..values import Truth, thawed
from .model import IMPOSSIBLE, Model


class Register:
    """Holds one JSON value, null at first. A cas that does not hold is an ordinary answer."""

    name = "register"
    operations = frozenset({"read", "write", "cas"})
    initial: Hashable = None

    def step(self, state: Hashable, operation: Operation) -> Hashable:
        answered = operation.status is Status.OK
        if operation.op == "read":
            return IMPOSSIBLE if answered and operation.out != state else state
        if operation.op == "write":
            return operation.value
        assert isinstance(operation.value, CasValue)
        holds = operation.value.from_ == state
        if answered and operation.out is not (Truth.TRUE if holds else Truth.FALSE):
            return IMPOSSIBLE
        return operation.value.to if holds else state

    def observes(self, operation: Operation) -> bool:
        if operation.op == "cas":
            return operation.status is Status.OK and operation.out is Truth.FALSE
        return operation.op == "read"

    def complaint(self, operation: Operation) -> str:
        if operation.op != "cas":
            return ""
        if not isinstance(operation.value, CasValue):
            return "a cas needs `from` and `to`"
        if operation.status is Status.OK and not isinstance(operation.out, bool):
            return "`out` of a cas is true or false"
        return ""

    def narrowed(self, operations: Sequence[Operation]) -> Model:
        return self

    def shown(self, state: Hashable) -> object:
        return thawed(state)

    def remarks(self, operations: Sequence[Operation]) -> list[str]:
        return []
