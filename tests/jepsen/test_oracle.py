"""The checker beside the definition: thousands of small histories, most of them wrong somewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from fencepost.jepsen.checkers import ApplyValue, CasValue, Operation, Status, Verdict, check, settle, violations

from .objects import KINDS
from .oracle import explains, linearizable
from .recorder import record

HISTORIES = 500
PROVE_HISTORIES = 8_000


def small(seed: int, kind: str) -> list[Operation]:
    """A history of up to six operations, times and answers by chance, out of few values."""
    chance = Random(f"{seed} {kind} small")
    history: list[Operation] = []
    clock: dict[int, int] = {}
    logged = chance.random() < 0.3
    positions = chance.sample(range(20), 6)
    unheard = chance.choice((1, 2, 8))
    for number in range(chance.randrange(2, 7)):
        process = chance.choice((number, number, chance.randrange(3)))
        invoke = clock.get(process, 0) + chance.choice((0, 0, 1, 2, 4))
        status = chance.choice((*[Status.OK] * 6, *[Status.INFO] * unheard, Status.FAIL, Status.DONE))
        end = invoke + chance.choice((0, 1, 2, 3, 6))
        clock[process] = end
        op, value, out = _asked(chance, kind)
        return_ = None if status is Status.DONE and chance.random() < 0.5 else end
        position = positions[number] if logged and chance.random() < 0.7 else None
        history.append(Operation(process, op, "k", value, out, invoke, return_, status, position))
    chance.shuffle(history)
    return history


def near(seed: int, kind: str) -> list[Operation]:
    """A short recording of a real object, often with an answer changed for another that the object might give."""
    chance = Random(f"{seed} {kind} near")
    shape = {"clients": chance.randrange(2, 5), "operations": chance.randrange(4, 8)}
    recording = record(seed, kind, **shape, unknown=chance.choice((0.1, 0.5)), failed=0.05)
    history = recording.history if chance.random() < 0.7 else settle(recording.history, recording.committed)
    asked = [each.value for each in history if each.op in ("write", "append", "sappend")]
    places = [at for at, each in enumerate(history) if each.status is Status.OK and each.op in ("read", "cas", "apply")]
    if places and chance.random() < 0.8:
        at = chance.choice(places)
        history[at] = history[at]._replace(out=_other(history[at], asked, chance))
    return [operation._replace(key="k") for operation in history]


def _other(operation: Operation, asked: list[object], chance: Random) -> object:
    out = operation.out
    if operation.op == "apply":
        return chance.choice(("accepted", "duplicate", "stale"))
    if operation.op == "cas":
        return not out
    if isinstance(out, str):
        parts = [f"{part}," for part in out.split(",")[:-1]]
        return "".join(chance.choice((parts[:-1], [*parts, *map(str, asked[:1])], parts[1:])))
    if isinstance(out, list):
        return chance.choice((out[:-1], [*out, *asked[:1]], out[1:]))
    return chance.choice([None, *asked])


def _asked(chance: Random, kind: str) -> tuple[str, object, object]:
    """What is asked, and what is answered, possible or not."""
    if kind == "fenced":
        value = ApplyValue(chance.randrange(3), f"c{chance.randrange(3)}")
        return "apply", value, chance.choice(("accepted", "accepted", "accepted", "duplicate", "stale"))
    if kind == "register":
        op = chance.choice(("read", "read", "write", "cas"))
        if op == "cas":
            return op, CasValue(chance.choice((None, 0, 1)), chance.randrange(2)), chance.random() < 0.5
        return (op, None, chance.choice((None, 0, 1))) if op == "read" else (op, chance.randrange(2), None)
    whole = "".join(chance.choice("ab") for _ in range(chance.randrange(4)))
    op = chance.choice(("read", "read", "append", "append", "append", "write" if chance.random() < 0.3 else "read"))
    if kind == "list":
        return op, None if op == "read" else list(whole) if op == "write" else chance.choice("ab"), list(whole)
    return op, None if op == "read" else whole if op == "write" else chance.choice("ab"), whole


Make = Callable[[int, str], list[Operation]]


def compare(first: int, count: int, kind: str, source: Make) -> Counter[bool]:
    make, model = KINDS[kind]
    seen: Counter[bool] = Counter()
    for seed in range(first, first + count):
        history = source(seed, kind)
        judgement = check(history, model)
        legal = linearizable(history, make)
        assert judgement.verdict is (Verdict.OK if legal else Verdict.ILLEGAL), f"seed {seed}: {history}"
        seen[legal] += 1
        if legal and history:
            assert explains(judgement.orders["k"], history, make), f"seed {seed}: {judgement}, {history}"
            assert violations(history) == [], f"seed {seed}: {history}"
    return seen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", [small, near])
def test_small_histories(source: Make, kind: str) -> None:
    seen = compare(0, HISTORIES, kind, source)
    # A set of which nearly all are right, or nearly none, would compare little.
    assert min(seen[True], seen[False]) > HISTORIES / 10, seen


@pytest.mark.endure
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", [small, near])
def test_many_small_histories(source: Make, kind: str) -> None:
    compare(HISTORIES, PROVE_HISTORIES, kind, source)
