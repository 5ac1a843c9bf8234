"""Recordings of real objects are legal; with one answer changed for one that nobody can have given, they are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import NamedTuple

import pytest

from fencepost.jepsen.checkers import ApplyValue, Operation, Status, Verdict, check, settle, violations

from .building import apply, read, write
from .objects import KINDS
from .oracle import explains
from .recorder import Recording, record

SEEDS = 12
PROVE_SEEDS = 200

History = list[Operation]


def recordings(kind: str, first: int, count: int) -> list[Recording]:
    return [
        record(
            seed, kind, clients=2 + seed % 7, operations=150, keys=1 + seed % 3, unknown=seed % 4 * 0.03, failed=0.03
        )
        for seed in range(first, first + count)
    ]


def all_are_legal(kind: str, first: int, count: int) -> None:
    make, model = KINDS[kind]
    for recording in recordings(kind, first, count):
        for history in (recording.history, settle(recording.history, recording.committed)):
            judgement = check(history, model)
            assert judgement.verdict is Verdict.OK, judgement.explanations
            for key, order in judgement.orders.items():
                of_key = [operation if operation.key == key else _never(operation) for operation in history]
                assert explains(order, of_key, make)
            assert violations(history) == []


def _never(operation: Operation) -> Operation:
    return operation._replace(status=Status.FAIL)


@pytest.mark.parametrize("kind", KINDS)
def test_recordings_are_legal(kind: str) -> None:
    all_are_legal(kind, 0, SEEDS)


@pytest.mark.endure
@pytest.mark.parametrize("kind", KINDS)
def test_many_recordings_are_legal(kind: str) -> None:
    all_are_legal(kind, SEEDS, PROVE_SEEDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_recording_is_worth_judging(kind: str) -> None:
    """Concurrent, with every status in it, and every answer."""
    histories = [recording.history for recording in recordings(kind, 0, SEEDS)]
    statuses = Counter(operation.status for history in histories for operation in history)
    assert min(statuses[status] for status in (Status.OK, Status.INFO, Status.FAIL)) > SEEDS
    answers = Counter(str(operation.out) for history in histories for operation in history if operation.op == "apply")
    assert kind != "fenced" or min(answers[answer] for answer in ("accepted", "duplicate", "stale")) > 3 * SEEDS
    for history in histories:
        beside = [
            (one, other) for one, other in pairwise(history) if one.return_ is not None and other.invoke < one.return_
        ]
        assert len(beside) > len(history) / 10


def test_the_same_seed_is_the_same_recording() -> None:
    assert record(3, "register", unknown=0.1) == record(3, "register", unknown=0.1)
    assert record(3, "register") != record(4, "register")


# -- one answer that nobody can have given ------------------------------------------------------------


class Mutation(NamedTuple):
    name: str
    kinds: tuple[str, ...]
    change: Callable[[History, Random], History]
    settled: bool = False
    """Whether it is certain to be illegal only where nothing is unknown."""


def end(history: History) -> int:
    return max(max(operation.invoke, operation.return_ or 0) for operation in history)


def any_of(history: History, chance: Random, *ops: str) -> tuple[int, Operation]:
    """One answered operation of ``ops``, and its place."""
    places = [place for place, each in enumerate(history) if each.op in ops and each.status is Status.OK]
    place = chance.choice(places)
    return place, history[place]


def out_of_nowhere(history: History, chance: Random) -> History:
    place, found = any_of(history, chance, "read")
    never: object = -1
    if found.op == "read" and isinstance(found.out, str):
        never = found.out + "!"
    elif isinstance(found.out, list):
        never = [*found.out, -1]
    return [*history[:place], found._replace(out=never), *history[place + 1 :]]


def stale_register(history: History, chance: Random) -> History:
    now = end(history)
    _, found = any_of(history, chance, "write")
    key = str(found.key)
    return [*history, write("w", -1, now + 1, now + 2, key), read("r", found.value, now + 3, now + 4, key)]


def lost_append(history: History, chance: Random) -> History:
    """Whoever reads last sees all but one."""
    now = end(history)
    _, found = any_of(history, chance, "append", "sappend")
    longest = _longest(history, str(found.key))
    gone = _without(longest, found.value)
    return [*history, read("r", gone, now + 1, now + 2, str(found.key))]


def doubled_append(history: History, chance: Random) -> History:
    now = end(history)
    _, found = any_of(history, chance, "append", "sappend")
    key = str(found.key)
    longest = _longest(history, key)
    twice = f"{longest}{found.value}{found.value}" if isinstance(longest, str) else [*longest, *[found.value] * 2]
    return [*history, read("r", twice, now + 1, now + 2, key)]


def _longest(history: History, key: str) -> str | list[object]:
    outs = [each.out for each in history if each.key == key and each.op == "read" and each.status is Status.OK]
    wholes = [out for out in outs if isinstance(out, (str, list))]
    return max(wholes, key=len)


def _without(value: str | list[object], part: object) -> str | list[object]:
    if isinstance(value, str):
        return value.replace(str(part), "")
    return [item for item in value if item != part]


def accepted_again(history: History, chance: Random) -> History:
    now = end(history)
    accepted = [each for each in history if each.out == "accepted"]
    found = chance.choice(accepted)
    assert isinstance(found.value, ApplyValue)
    value = ApplyValue(1000, found.value.idem)
    return [*history, found._replace(process="a", value=value, invoke=now + 1, return_=now + 2, position=None)]


def lower_token(history: History, chance: Random) -> History:
    now = end(history)
    _, found = any_of(history, chance, "apply")
    key = str(found.key)
    return [
        *history,
        apply("a", 1000, "new", "accepted", now + 1, now + 2, key),
        apply("b", 999, "old", "accepted", now + 3, now + 4, key),
    ]


MUTATIONS = (
    Mutation("a value out of nowhere", ("register", "string", "list"), out_of_nowhere),
    Mutation("a stale read", ("register",), stale_register, settled=True),
    Mutation("a lost append", ("string", "list"), lost_append),
    Mutation("a doubled append", ("string", "list"), doubled_append),
    Mutation("accepted again", ("fenced",), accepted_again),
    Mutation("a lower token", ("fenced",), lower_token),
)


@pytest.mark.parametrize(
    ("mutation", "kind"),
    [pytest.param(mutation, kind, id=f"{mutation.name}-{kind}") for mutation in MUTATIONS for kind in mutation.kinds],
)
def test_a_wrong_answer_is_found(mutation: Mutation, kind: str) -> None:
    _, model = KINDS[kind]
    for seed, recording in enumerate(recordings(kind, 0, SEEDS)):
        settled = settle(recording.history, recording.committed)
        for history in [settled] if mutation.settled else [settled, recording.history]:
            changed = mutation.change(history, Random(f"{seed} {mutation.name}"))
            judgement = check(changed, model)
            assert judgement.verdict is Verdict.ILLEGAL, f"seed {seed}"
            assert judgement.explanations[0].blocked is not None


def test_what_is_unknown_hides_a_stale_read_and_the_log_shows_it() -> None:
    hidden = 0
    for seed in range(20):
        recording = record(seed, "register", operations=200, unknown=0.1)
        unheard = [each for each in recording.history if each.op == "write" and each.status is Status.INFO]
        now = end(recording.history)
        stale = [write("w", -1, now + 1, now + 2, "k0"), read("r", unheard[0].value, now + 3, now + 4, "k0")]
        _, model = KINDS["register"]
        hidden += check([*recording.history, *stale], model).verdict is Verdict.OK
        judgement = check([*settle(recording.history, recording.committed), *stale], model)
        assert judgement.verdict is Verdict.ILLEGAL
        assert judgement.explanations[0].blocked == len(recording.history) + 1
    assert hidden > 10
