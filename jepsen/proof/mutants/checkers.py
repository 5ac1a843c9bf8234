"""The checkers of histories: each fault makes one pass a history that is wrong, or refuse one that is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....raft.core.token import FencingToken
from ...checkers import (
    Append,
    ApplyValue,
    CasValue,
    Contradiction,
    Fenced,
    FenceProperty,
    Model,
    Operation,
    Register,
    Status,
    Verdict,
    check,
    contradictions,
    fence_properties,
    settle,
    settling,
    violations,
)
from ...checkers.search import _Search
from .mutant import Mutant


def _write(value: int, invoke: int, end: int | None, *, who: int = 1, status: Status = Status.OK) -> Operation:
    return Operation(who, "write", "x", value, None, invoke, end, status)


def _read(value: int, invoke: int, end: int, *, who: int = 2) -> Operation:
    return Operation(who, "read", "x", None, value, invoke, end)


def _apply(term: int, idem: str, answer: str, invoke: int) -> Operation:
    return Operation(f"{term}", "apply", "r", ApplyValue(FencingToken(1, term), idem), answer, invoke, invoke + 1)


def _judged(history: list[Operation], model: Model, verdict: Verdict) -> None:
    found = check(history, model).verdict
    if found is not verdict:
        raise AssertionError(f"{len(history)} operations of a {model.name} are called {found}, and are {verdict}")


def registers() -> None:
    """A stale read, a cas that cannot have held, and what is concurrent and right."""
    stale = [_write(1, 1, 2), _write(2, 3, 4), _read(1, 5, 6)]
    _judged(stale, Register(), Verdict.ILLEGAL)
    failed = Operation(2, "cas", "x", CasValue(7, 8), True, 3, 4)
    _judged([_write(1, 1, 2), failed], Register(), Verdict.ILLEGAL)
    concurrent = [_write(1, 1, 9), _write(2, 2, 8, who=3), _read(2, 3, 4), _read(1, 5, 6)]
    _judged(concurrent, Register(), Verdict.OK)
    # The order that is tried first leads nowhere.
    back = [_write(1, 1, 10), _write(2, 1, 10, who=3), _write(3, 1, 10, who=4), _read(2, 11, 12), _read(2, 13, 14)]
    _judged(back, Register(), Verdict.OK)
    other_key = [_write(1, 1, 2), Operation(2, "read", "y", None, 5, 3, 4)]
    _judged(other_key, Register(), Verdict.ILLEGAL)


def lists() -> None:
    """A list that has lost what was appended, and one that has it in another order than time."""

    def append(value: int, invoke: int) -> Operation:
        return Operation(1, "append", "l", value, None, invoke, invoke + 1)

    lost = [append(1, 1), append(2, 3), Operation(2, "read", "l", None, (1,), 5, 6)]
    _judged(lost, Append(list), Verdict.ILLEGAL)
    turned = [append(1, 1), append(2, 3), Operation(2, "read", "l", None, (2, 1), 5, 6)]
    _judged(turned, Append(list), Verdict.ILLEGAL)
    _judged([append(1, 1), append(2, 3), Operation(2, "read", "l", None, (1, 2), 5, 6)], Append(list), Verdict.OK)


def fences() -> None:
    """A fence that lets a lower token in after a higher one, twice the same, and one that does as it should."""
    _judged([_apply(2, "a", "accepted", 1), _apply(1, "b", "accepted", 3)], Fenced(), Verdict.ILLEGAL)
    _judged([_apply(2, "a", "accepted", 1), _apply(2, "a", "accepted", 3)], Fenced(), Verdict.ILLEGAL)
    right = [_apply(2, "a", "accepted", 1), _apply(1, "b", "stale", 3), _apply(3, "a", "duplicate", 5)]
    _judged(right, Fenced(), Verdict.OK)


def fence_rules() -> None:
    """The same without any search, and a refusal for nothing."""
    wrong = {
        FenceProperty.LOWER_AFTER_HIGHER: [_apply(2, "a", "accepted", 1), _apply(1, "b", "accepted", 3)],
        FenceProperty.ACCEPTED_TWICE: [_apply(2, "a", "accepted", 1), _apply(2, "a", "accepted", 3)],
        FenceProperty.DUPLICATE_OF_NOTHING: [_apply(2, "a", "duplicate", 1)],
        FenceProperty.STALE_FOR_NOTHING: [_apply(2, "a", "accepted", 1), _apply(3, "b", "stale", 3)],
    }
    for broken, history in wrong.items():
        if [each.broken for each in violations(history)] != [broken]:
            raise AssertionError(f"{broken.value}: not seen")


def settled() -> None:
    """An unknown outcome excuses nothing once the log has spoken, and the log is held against what was said."""
    unknown = _write(1, 1, None, status=Status.INFO)
    history = [unknown, _write(2, 2, 3, who=2), _read(1, 4, 5, who=3)]
    _judged(settle(history, {(1, "x", 1): 7, (2, "x", 2): 8}), Register(), Verdict.ILLEGAL)
    _judged(settle(history, {(1, "x", 1): None, (2, "x", 2): 8}), Register(), Verdict.ILLEGAL)
    _judged(settle(history, {(1, "x", 1): 8, (2, "x", 2): 7}), Register(), Verdict.OK)
    wrong: dict[Contradiction, tuple[list[Operation], dict[Any, int | None]]] = {
        Contradiction.LOST: ([_write(1, 1, 2)], {(1, "x", 1): None}),
        Contradiction.DENIED: ([_write(1, 1, 2, status=Status.FAIL)], {(1, "x", 1): 5}),
        Contradiction.DISORDER: ([_write(1, 1, 2), _write(2, 3, 4, who=2)], {(1, "x", 1): 9, (2, "x", 3): 8}),
    }
    for about, (said, log) in wrong.items():
        if [each.about for each in contradictions(said, log)] != [about]:
            raise AssertionError(f"{about.value}: not seen")


def _mutant(name: str, function: Callable[..., Any], line: str, fault: str, sees: Callable[[], None]) -> Mutant:
    return Mutant(name, "checkers", function, line, fault, sees)


MUTANTS = (
    _mutant(
        "any value may be read of a register",
        Register.step,
        "return IMPOSSIBLE if answered and operation.out != state else state",
        "return state",
        registers,
    ),
    _mutant(
        "a cas may hold or not",
        Register.step,
        "if answered and operation.out is not (Truth.TRUE if holds else Truth.FALSE):",
        "if False:",
        registers,
    ),
    _mutant(
        "time does not count",
        _Search._link,
        "inf if operation.return_ is None else operation.return_",
        "inf",
        registers,
    ),
    _mutant(
        "a choice is never taken back",
        _Search._take_back,
        "if not forced:",
        "if False:",
        registers,
    ),
    _mutant(
        "what leads elsewhere is taken for what was met",
        _Search._was_met,
        "if any(not before & ~used for before in met):",
        "if len(self._met) > 3:",
        registers,
    ),
    _mutant(
        "any list may be read",
        Append.step,
        "return state if possible else IMPOSSIBLE",
        "return state",
        lists,
    ),
    _mutant("the fence is not in the model", Fenced.step, "if token < state.token:", "if False:", fences),
    _mutant(
        "a lower token after a higher one is overlooked",
        fence_properties._lower_after_higher,
        "if highest is not None and each.rank < highest.rank:",
        "if False:",
        fence_rules,
    ),
    _mutant(
        "an id that was accepted twice is overlooked",
        fence_properties._repeated,
        "if each.idem in accepted:",
        "if False:",
        fence_rules,
    ),
    _mutant(
        "what the log denies may have happened all the same",
        settling.settle,
        "if operation.status is Status.INFO and name in committed and committed[name] is None:",
        "if False:",
        settled,
    ),
    _mutant(
        "the places in the log are not kept",
        settling.settle,
        "operation = history[place]._replace(position=position)",
        "operation = history[place]",
        settled,
    ),
    _mutant(
        "what was acknowledged and is not in the log is overlooked",
        settling.contradictions,
        "if operation.status is Status.OK and committed[name] is None:",
        "if False:",
        settled,
    ),
    _mutant(
        "what was refused and is in the log is overlooked",
        settling.contradictions,
        "elif operation.status is Status.FAIL and committed[name] is not None:",
        "elif False:",
        settled,
    ),
)
