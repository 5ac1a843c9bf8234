"""A fenced resource: ``apply(token, idem)`` answers accepted, duplicate or stale."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from ..fence_properties import violations
from ..operation import Answer, ApplyValue, Operation, Status
from .model import IMPOSSIBLE, Model


class FenceState(NamedTuple):
    """The highest token that passed, as a pair, and the operation ids that took effect."""

    token: tuple[int, int]
    applied: frozenset[str | int]


class Fenced:
    """The fence is asked before the memory of ids: a stale leader hears *stale* about its own finished
    operation too. Equal tokens pass, a higher one is stored whether or not the id is new
    (concepts: The fencing token)."""

    name = "fenced"
    operations = frozenset({"apply"})
    initial: Hashable = FenceState((-1, -1), frozenset())

    def step(self, state: Hashable, operation: Operation) -> Hashable:
        assert isinstance(state, FenceState)
        assert isinstance(operation.value, ApplyValue)
        token, idem = operation.value.rank, operation.value.idem
        if token < state.token:
            answer, after = Answer.STALE, state
        elif idem in state.applied:
            answer, after = Answer.DUPLICATE, FenceState(token, state.applied)
        else:
            answer, after = Answer.ACCEPTED, FenceState(token, state.applied | {idem})
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

    def narrowed(self, operations: Sequence[Operation]) -> Model:
        return self

    def shown(self, state: Hashable) -> object:
        assert isinstance(state, FenceState)
        if state.token < (0, 0):
            return {"token": None, "applied": []}
        incarnation, term = state.token
        token = f"{incarnation}.{term}" if incarnation else term
        return {"token": token, "applied": sorted(state.applied, key=str)}

    def remarks(self, operations: Sequence[Operation]) -> list[str]:
        return [str(violation) for violation in violations(operations)]
