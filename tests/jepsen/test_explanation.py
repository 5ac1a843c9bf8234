"""The first answer that fits nowhere: named exactly, with an order of all before it."""

from __future__ import annotations

import pytest

from fencepost.jepsen.checkers import Append, Judgement, Model, Operation, Register, Status, Verdict, check, lines

from .building import append, apply, done, info, judge, read, write
from .objects import KINDS
from .oracle import explains, linearizable
from .test_oracle import small


def test_the_operation_the_order_and_the_state() -> None:
    history = (write(1, 1, 1, 2), write(1, 2, 3, 4), read(2, 1, 5, 6), read(2, 2, 7, 8))
    (explanation,) = judge(Register(), *history).explanations
    assert explanation.key == "x"
    assert explanation.order == (0, 1)
    assert explanation.state == 2
    assert explanation.blocked == 2


def test_as_it_is_told() -> None:
    history = (write(1, {"a": True}, 1, 2), info(write("w", 2, 3, None)), read(2, 7, 5, 6))
    (explanation,) = judge(Register(), *history).explanations
    assert list(lines(explanation, history, [4, 5, 9])) == [
        f'key "x": illegal after {explanation.steps} steps',
        "  what was answered before can have happened in this order:",
        '    line 4: process 1 write({"a": true}) [1, 2]',
        '  which leaves {"a": true}; neither this order nor any other has a place for',
        "    line 9: process 2 read() = 7 [5, 6]",
    ]


def test_a_long_order_is_told_from_its_end() -> None:
    history = [write(1, number, 2 * number, 2 * number + 1) for number in range(30)]
    (explanation,) = judge(Register(), *history, read(1, 3, 100, 101)).explanations
    told = list(lines(explanation, [*history, read(1, 3, 100, 101)], range(1, 32)))
    assert len(explanation.order) == 30
    assert told[2] == "    ... 18 operations, then"
    assert told[3] == "    line 19: process 1 write(18) [36, 37]"


@pytest.mark.parametrize(
    ("model", "history", "blocked"),
    [
        # What is read later must not be held against what was answered before.
        (Append(str), (append(1, "a", 1, 2), append(1, "b", 3, 4), read(1, "bc", 5, 6)), 2),
        (Append(str), (write(1, "x", 1, 2), append(1, "a", 3, 4), read(1, "xa", 5, 6), read(1, "ya", 7, 8)), 3),
        # The one that returns first, not the one that was invoked first.
        (Register(), (read(1, 5, 1, 9), read(2, 6, 2, 8), read(3, 7, 3, 7)), 2),
        # A settled operation may be what has no place.
        (KINDS["fenced"][1], (apply(1, 5, "a", "accepted", 1, 2), done(apply(1, 4, "a", None, 3, 4))), None),
    ],
)
def test_the_first_answer_that_fits_nowhere(model: Model, history: tuple[Operation, ...], blocked: int | None) -> None:
    explanations = judge(model, *history).explanations
    assert [explanation.blocked for explanation in explanations] == ([] if blocked is None else [blocked])


def test_each_illegal_key_is_explained_and_no_other() -> None:
    history = (read(1, 1, 1, 2, "a"), read(1, None, 3, 4, "b"), read(1, 2, 5, 6, "c"))
    judgement = judge(Register(), *history)
    assert [explanation.key for explanation in judgement.explanations] == ["a", "c"]
    assert list(judgement.orders) == ["b"]


@pytest.mark.parametrize("kind", KINDS)
def test_all_before_is_legal_and_with_it_nothing_is(kind: str) -> None:
    """By the definition: cut where the blocked operation returns, and tried out."""
    make, model = KINDS[kind]
    told = 0
    for seed in range(400):
        history = [operation._replace(position=None) for operation in small(seed, kind)]
        for explanation in check(history, model).explanations:
            told += 1
            assert explanation.blocked is not None
            place = explanation.blocked
            before, including = _cut(history, place, until=False), _cut(history, place, until=True)
            assert linearizable(before, make), f"seed {seed}"
            assert explains(explanation.order, before, make), f"seed {seed}"
            assert not linearizable(including, make), f"seed {seed}"
    assert told > 100


def _cut(history: list[Operation], place: int, *, until: bool) -> list[Operation]:
    """What was known when the operation at ``place`` returned: of it too, or just before."""
    end = _end(history, place)
    seen = []
    for at, operation in enumerate(history):
        if operation.status in (Status.INFO, Status.FAIL) or _end(history, at) < end or (until and at == place):
            seen.append(operation)
        else:
            seen.append(operation._replace(status=Status.INFO))
    return [operation._replace(status=Status.FAIL) if operation.invoke > end[0] else operation for operation in seen]


def _end(history: list[Operation], place: int) -> tuple[float, int]:
    return_ = history[place].return_
    return (float("inf") if return_ is None else return_), place


def bounded(history: list[Operation], steps_max: int) -> Judgement:
    return check(history, Register(), steps_max=steps_max)


def test_unknown_at_the_bound_and_never_a_guess() -> None:
    """From no steps to all of them: unknown, then the verdict, and never another one."""
    for illegal, last in ((False, 3), (True, 99)):
        history = [write(number, number, 1, 100) for number in range(6)]
        history += [read(10 + number, number, 101 + 2 * number, 102 + 2 * number) for number in (last,)]
        verdicts = [bounded(history, steps).verdict for steps in range(0, 4000, 10)]
        right = Verdict.ILLEGAL if illegal else Verdict.OK
        assert set(verdicts) == {Verdict.UNKNOWN, right}
        assert verdicts == sorted(verdicts, key=lambda verdict: verdict is not Verdict.UNKNOWN)


def test_unknown_says_which_key_and_after_how_much() -> None:
    history = [write(number, number, 1, 100) for number in range(6)]
    judgement = bounded([*history, read(1, None, 1, 2, "y")], 3)
    (explanation,) = judgement.explanations
    assert (judgement.verdict, explanation.key, explanation.verdict) == (Verdict.UNKNOWN, "x", Verdict.UNKNOWN)
    assert (explanation.order, explanation.blocked, explanation.remarks) == ((), None, ())
    assert list(lines(explanation, history, range(6))) == [f'key "x": unknown after {explanation.steps} steps']


def test_illegal_outweighs_unknown() -> None:
    history = [write(number, number, 1, 100) for number in range(6)]
    judgement = bounded([*history, read(1, 7, 1, 2, "y")], 3)
    assert judgement.verdict is Verdict.ILLEGAL
    assert [explanation.verdict for explanation in judgement.explanations] == [Verdict.UNKNOWN, Verdict.ILLEGAL]
