"""What a fenced resource must never do, asked of a history directly, without a search.

Each property follows from the model of ``models/fenced.py``, so a history that breaks one is illegal.
The reverse does not hold: together they are weaker than the search. They cost n log n, so they serve
histories that are too long to search, and they say in words what is wrong. Unknown outcomes count
as whatever excuses the resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from .operation import Answer, ApplyValue, Operation, Status, describe


class FenceProperty(StrEnum):
    """The properties, by what they forbid."""

    LOWER_AFTER_HIGHER = "a lower token was accepted after a higher one"
    ACCEPTED_TWICE = "one operation id was accepted twice"
    ACCEPTED_AFTER_DUPLICATE = "an operation id was accepted after it had been called a duplicate"
    DUPLICATE_OF_NOTHING = "a duplicate was reported of what nobody had applied"
    STALE_FOR_NOTHING = "a token was called stale and nobody had a higher one"


class Violation(NamedTuple):
    """One place where a property does not hold."""

    broken: FenceProperty
    operation: Operation
    """Whose answer is wrong, if the others are right."""
    other: Operation | None
    """The operation that it contradicts, where it is one."""

    def __str__(self) -> str:
        beside = f"; before: {describe(self.other)}" if self.other is not None else ""
        return f"{self.broken.value}: {describe(self.operation)}{beside}"


class _Apply(NamedTuple):
    operation: Operation
    rank: tuple[int, int]
    idem: str | int

    @property
    def answer(self) -> object:
        """What was answered; None where that is not known."""
        return self.operation.out if self.operation.status is Status.OK else None

    @property
    def end(self) -> int:
        assert self.operation.return_ is not None
        return self.operation.return_


def violations(history: Sequence[Operation]) -> list[Violation]:
    """Every broken property of the ``apply`` operations of a history, key by key, in the order of answers."""
    keys: dict[int | str, list[_Apply]] = {}
    for operation in history:
        if operation.op == "apply" and operation.status is not Status.FAIL:
            assert isinstance(operation.value, ApplyValue)
            keys.setdefault(operation.key, []).append(_Apply(operation, operation.value.rank, operation.value.idem))
    return [violation for applies in keys.values() for violation in _violations(applies)]


def _violations(applies: list[_Apply]) -> Iterator[Violation]:
    answered = sorted((each for each in applies if each.answer is not None), key=lambda each: each.end)
    yield from _lower_after_higher(answered)
    yield from _repeated(answered)
    yield from _without_reason(applies, answered)


def _lower_after_higher(answered: list[_Apply]) -> Iterator[Violation]:
    """Requirement 125. A duplicate has passed the fence like one that was accepted."""
    passed = [each for each in answered if each.answer != Answer.STALE]
    highest: _Apply | None = None
    returned = 0
    for each in sorted(passed, key=lambda each: each.operation.invoke):
        while returned < len(passed) and passed[returned].end < each.operation.invoke:
            if highest is None or passed[returned].rank > highest.rank:
                highest = passed[returned]
            returned += 1
        if highest is not None and each.rank < highest.rank:
            yield Violation(FenceProperty.LOWER_AFTER_HIGHER, each.operation, highest.operation)


def _repeated(answered: list[_Apply]) -> Iterator[Violation]:
    accepted: dict[str | int, _Apply] = {}
    duplicates: dict[str | int, _Apply] = {}
    for each in answered:
        if each.answer == Answer.DUPLICATE:
            duplicates.setdefault(each.idem, each)
        elif each.answer == Answer.ACCEPTED:
            if each.idem in accepted:
                yield Violation(FenceProperty.ACCEPTED_TWICE, each.operation, accepted[each.idem].operation)
            accepted.setdefault(each.idem, each)
            known = duplicates.get(each.idem)
            if known is not None and known.end < each.operation.invoke:
                yield Violation(FenceProperty.ACCEPTED_AFTER_DUPLICATE, each.operation, known.operation)


def _without_reason(applies: list[_Apply], answered: list[_Apply]) -> Iterator[Violation]:
    """Answers that need an earlier operation which nobody made in time."""
    first_use: dict[str | int, int] = {}
    for each in applies:
        if each.answer in (None, Answer.ACCEPTED):
            first_use[each.idem] = min(each.operation.invoke, first_use.get(each.idem, each.operation.invoke))
    may_pass = sorted((each for each in applies if each.answer != Answer.STALE), key=lambda each: each.operation.invoke)
    highest = (-1, -1)
    begun = 0
    for each in answered:
        while begun < len(may_pass) and may_pass[begun].operation.invoke <= each.end:
            highest = max(highest, may_pass[begun].rank)
            begun += 1
        if each.answer == Answer.DUPLICATE and first_use.get(each.idem, each.end + 1) > each.end:
            yield Violation(FenceProperty.DUPLICATE_OF_NOTHING, each.operation, None)
        elif each.answer == Answer.STALE and highest <= each.rank:
            yield Violation(FenceProperty.STALE_FOR_NOTHING, each.operation, None)
