"""A fenced resource: ``apply(token, idem)`` answers accepted, duplicate or stale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from ..fence_properties import violations
from ..operation import Answer, ApplyValue, Operation, Status
from .model import IMPOSSIBLE, Model


class FenceState(NamedTuple):
    """The highest token that passed, as a pair, and the operation ids that took effect."""

    token: tuple[int, int]
    applied: frozenset[str | int]


class Alone(NamedTuple):
    """In place of an :class:`ApplyValue` whose operation id no other operation bears: nobody can tell whether
    it was remembered."""

    rank: tuple[int, int]


class Fenced:
    """The fence is asked before the memory of ids: a stale leader hears *stale* about its own finished
    operation too. Equal tokens pass, a higher one is stored whether or not the id is new
    (concepts: The fencing token)."""

    name = "fenced"
    operations = frozenset({"apply"})
    initial: Hashable = FenceState((-1, -1), frozenset())

    def step(self, state: Hashable, operation: Operation) -> Hashable:
        assert isinstance(state, FenceState)
        value = operation.value
        assert isinstance(value, (ApplyValue, Alone))
        token, known, applied = value.rank, False, state.applied
        if isinstance(value, ApplyValue):
            known, applied = value.idem in applied, applied | {value.idem}
        if token < state.token:
            answer, after = Answer.STALE, state
        else:
            answer, after = Answer.DUPLICATE if known else Answer.ACCEPTED, FenceState(token, applied)
        if operation.status is Status.OK and operation.out != answer:
            return IMPOSSIBLE
        return after

    def observes(self, operation: Operation) -> bool:
        return operation.status is Status.OK and operation.out == Answer.STALE

    def complaint(self, operation: Operation) -> str:
        if not isinstance(operation.value, ApplyValue):
            return "an apply needs `token` and `idem`"
        token, idem = operation.value
        if isinstance(token, bool) or min(operation.value.rank) < 0:
            return "`token` is a whole number from 0 on, or incarnation and term"
        if isinstance(idem, bool):
            return "`idem` is a text or a whole number"
        if operation.status is Status.OK and operation.out not in tuple(Answer):
            return f"`out` of an apply is one of {', '.join(Answer)}"
        return ""

    def narrowed(self, operations: Sequence[Operation]) -> tuple[Model, Sequence[Operation]]:
        values = [operation.value for operation in operations]
        borne = Counter(value.idem for value in values if isinstance(value, ApplyValue))
        return self, [
            operation._replace(value=Alone(value.rank))
            if isinstance(value, ApplyValue) and borne[value.idem] == 1
            else operation
            for operation, value in zip(operations, values, strict=True)
        ]

    def shown(self, state: Hashable) -> object:
        assert isinstance(state, FenceState)
        if state.token < (0, 0):
            return {"token": None, "applied": []}
        incarnation, term = state.token
        token = f"{incarnation}.{term}" if incarnation else term
        return {"token": token, "applied": sorted(state.applied, key=str)}

    def remarks(self, operations: Sequence[Operation]) -> list[str]:
        return [str(violation) for violation in violations(operations)]
