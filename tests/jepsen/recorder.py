"""Seeded recordings of clients at a real object: legal by making, whatever a checker thinks of them."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from fencepost.jepsen.checkers import ApplyValue, CasValue, Operation, Status, identity_of

from .objects import KINDS, Thing

Log = dict[tuple[int | str, int | str, int], int | None]


class Recording(NamedTuple):
    history: list[Operation]
    committed: Log
    """The position of each operation that took effect, None for each that never will."""


class _Call:
    """One operation under way."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.performed = False
        self.lost = False
        """Nobody waits for its answer any more."""
        self.answer: Any = None


def record(
    seed: int,
    kind: str,
    *,
    clients: int = 5,
    operations: int = 60,
    keys: int = 1,
    unknown: float = 0.0,
    failed: float = 0.0,
) -> Recording:
    """``clients`` at ``keys`` objects. Of all operations the share ``unknown`` loses its answer: some of these took
    effect before, some do later, some never. ``failed`` are refused and never take effect."""
    chance = Random(f"{seed} {kind}")
    things: dict[str, Thing] = {f"k{number}": KINDS[kind][0]() for number in range(keys)}
    history: list[Operation] = []
    committed: Log = {}
    waiting: list[_Call | None] = [None] * clients
    at_large: list[_Call] = []
    clock = position = begun = 0
    while begun < operations or any(waiting):
        clock += 1
        slot = chance.randrange(clients)
        call = waiting[slot]
        if at_large and chance.random() < 0.1:
            call = at_large.pop(chance.randrange(len(at_large)))
        if call is None:
            if begun < operations:
                operation = _ask(chance, kind, slot, chance.choice(sorted(things)), begun, clock)
                waiting[slot] = _Call(operation)
                begun += 1
            continue
        operation = call.operation
        if not call.lost and chance.random() < (failed if not call.performed else 0):
            history.append(operation._replace(return_=clock, status=Status.FAIL))
            committed[identity_of(operation)] = None
            waiting[slot] = None
        elif not call.performed and (call.lost or chance.random() >= unknown / 2):
            position += 1
            call.answer = things[str(operation.key)].perform(operation)
            call.performed = True
            committed[identity_of(operation)] = position
        elif not call.performed or chance.random() < unknown / 2:
            history.append(operation._replace(status=Status.INFO))
            committed.setdefault(identity_of(operation), None)
            waiting[slot] = None
            if not call.performed and chance.random() < 0.5:
                call.lost = True
                at_large.append(call)
        else:
            history.append(operation._replace(out=call.answer, return_=clock))
            waiting[slot] = None
    return Recording(history, committed)


def _ask(chance: Random, kind: str, process: int, key: str, number: int, clock: int) -> Operation:
    roll = chance.random()
    op: str
    value: object = None
    if kind == "fenced":
        # Tokens rise with time, and late ones come from leaders that were replaced.
        token = max(0, number // 6 - chance.choice((0, 0, 0, 1, 2)))
        op, value = "apply", ApplyValue(token, f"c{number - chance.choice((0, 0, 0, 1, 4))}")
    elif roll < 0.4:
        op = "read"
    elif kind == "register":
        op, value = ("write", number) if roll < 0.75 else ("cas", CasValue(number - chance.randrange(1, 6), number))
    elif kind == "string":
        op, value = "sappend", f"{number},"
    else:
        op, value = "append", number
    return Operation(process, op, key, value, None, clock, None)
