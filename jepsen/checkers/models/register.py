"""A register: read, write, and compare and set."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum

from ..operation import CasValue, Operation, Status
from ..values import Truth, thawed
from .model import IMPOSSIBLE, Model


class Unseen(Enum):
    """The type of :data:`UNSEEN`."""

    UNSEEN = "unseen"


UNSEEN = Unseen.UNSEEN
"""Stands for every value that was written and that no answer depends on."""


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

    def narrowed(self, operations: Sequence[Operation]) -> tuple[Model, Sequence[Operation]]:
        """Values that nobody read and no cas compared with are one to everybody."""
        seen = {operation.out for operation in operations if operation.op == "read"}
        seen |= {operation.value.from_ for operation in operations if isinstance(operation.value, CasValue)}

        def smaller(operation: Operation) -> Operation:
            if isinstance(operation.value, CasValue):
                to = operation.value.to
                return operation._replace(value=CasValue(operation.value.from_, to if to in seen else UNSEEN))
            unseen = operation.op == "write" and operation.value not in seen
            return operation._replace(value=UNSEEN) if unseen else operation

        return self, [smaller(operation) for operation in operations]

    def shown(self, state: Hashable) -> object:
        return thawed(state)

    def remarks(self, operations: Sequence[Operation]) -> list[str]:
        return []
