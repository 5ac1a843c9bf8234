"""A string or a list that grows, by hand."""

from __future__ import annotations

import pytest

from fencepost.jepsen.checkers import Append, Operation, Verdict, check

from .building import append, done, fail, info, judge, read, write

LEGAL = {
    "nothing happened": (),
    "null and empty are one": (read(1, None, 1, 2), read(1, "", 3, 4)),
    "in order": (append(1, "a", 1, 2), append(1, "b", 3, 4), read(1, "ab", 5, 6)),
    "concurrent, in either order": (append(1, "a", 1, 9), append(2, "b", 1, 9), read(3, "ba", 10, 11)),
    "a read between two": (append(1, "a", 1, 9), append(2, "b", 1, 9), read(3, "b", 2, 8), read(3, "ba", 10, 11)),
    "begins with a write": (write(9, "x", -2, -1), append(1, "a", 1, 2), read(1, "xa", 3, 4)),
    "a write in the middle": (append(1, "a", 1, 2), write(1, "x", 3, 4), append(2, "b", 5, 6), read(1, "xb", 7, 8)),
    "a write beside a read": (append(1, "a", 1, 2), write(1, "", 3, 9), read(2, "a", 4, 5), read(2, "", 6, 7)),
    "an unknown append that took effect": (info(append(1, "a", 1, None)), append(2, "b", 3, 4), read(2, "ba", 5, 6)),
    "an unknown append that never did": (info(append(1, "a", 1, None)), append(2, "b", 3, 4), read(2, "b", 5, 6)),
    "the later one of two unknown appends": (
        *(info(append(1, "a", 1, None)), info(append(2, "b", 2, None)), read(3, "b", 3, 4), read(3, "b", 5, 6)),
    ),
    "a failed append": (fail(append(1, "a", 1, 2)), append(2, "b", 3, 4), read(2, "b", 5, 6)),
    "the same appended twice": (append(1, "a", 1, 2), append(1, "a", 3, 4), read(1, "aa", 5, 6)),
    "nobody looks": (append(1, "a", 1, 9), append(2, "b", 1, 9), append(3, "c", 1, 9)),
    "nobody looks any more": (append(1, "a", 1, 2), read(1, "a", 3, 4), append(2, "b", 5, 9), append(3, "c", 5, 9)),
}

ILLEGAL = {
    "a lost append": (append(1, "a", 1, 2), append(1, "b", 3, 4), read(1, "b", 5, 6)),
    "a duplicated append": (append(1, "a", 1, 2), append(1, "b", 3, 4), read(1, "aba", 5, 6)),
    "in the wrong order": (append(1, "a", 1, 2), append(1, "b", 3, 4), read(1, "ba", 5, 6)),
    "a stale read": (append(1, "a", 1, 2), append(1, "b", 3, 4), read(2, "a", 5, 6)),
    "a stale read after a longer one": (
        *(append(1, "a", 1, 2), append(1, "b", 3, 4), read(2, "ab", 5, 6), append(1, "c", 7, 8), read(2, "ab", 9, 10)),
    ),
    "two orders seen": (append(1, "a", 1, 9), append(2, "b", 1, 9), read(3, "a", 2, 8), read(3, "ba", 10, 11)),
    "an unknown append seen twice": (info(append(1, "a", 1, None)), append(2, "b", 3, 4), read(2, "aba", 5, 6)),
    "an unknown append seen before it was made": (read(2, "a", 1, 2), info(append(1, "a", 3, None))),
    "a failed append that is seen": (fail(append(1, "a", 1, 2)), read(2, "a", 3, 4)),
    "a settled append that is missed": (done(append(1, "a", 1, 2)), read(2, "", 3, 4)),
    "what a write had replaced": (
        append(1, "a", 1, 2),
        write(1, "x", 3, 4),
        append(2, "b", 5, 6),
        read(1, "axb", 7, 8),
    ),
    "a first write that is missed": (write(9, "x", -2, -1), append(1, "a", 1, 2), read(1, "a", 3, 4)),
}


KINDS: tuple[type[str] | type[list[object]], ...] = (str, list)


@pytest.mark.parametrize("history", LEGAL.values(), ids=LEGAL)
@pytest.mark.parametrize("kind", KINDS)
def test_legal(kind: type[str] | type[list[object]], history: tuple[Operation, ...]) -> None:
    assert judge(Append(kind), *map(as_kind(kind), history)).verdict is Verdict.OK


@pytest.mark.parametrize("history", ILLEGAL.values(), ids=ILLEGAL)
@pytest.mark.parametrize("kind", KINDS)
def test_illegal(kind: type[str] | type[list[object]], history: tuple[Operation, ...]) -> None:
    assert judge(Append(kind), *map(as_kind(kind), history)).verdict is Verdict.ILLEGAL


class as_kind:
    """The operation as one of a string, or, a letter an element, of a list."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __call__(self, operation: Operation) -> Operation:
        if self._kind is str:
            return operation._replace(op="sappend") if operation.op == "append" else operation
        whole = operation.out if operation.op == "read" else operation.value
        items = list(whole) if isinstance(whole, str) else whole
        if operation.op == "read":
            return operation._replace(out=items)
        return operation._replace(value=items) if operation.op == "write" else operation


def test_elements_of_every_kind() -> None:
    history = [append(1, {"a": [1]}, 1, 2), append(1, True, 3, 4), read(1, [{"a": [1]}, True], 5, 6)]
    assert judge(Append(list), *history).verdict is Verdict.OK
    assert judge(Append(list), *history[:2], read(1, [{"a": [1]}, 1], 5, 6)).verdict is Verdict.ILLEGAL


def test_a_text_appended_to_a_list_is_one_element() -> None:
    history = [append(1, "ab", 1, 2), append(1, "c", 3, 4)]
    assert judge(Append(list), *history, read(1, ["ab", "c"], 5, 6)).verdict is Verdict.OK
    assert judge(Append(list), *history, read(1, ["a", "b", "c"], 5, 6)).verdict is Verdict.ILLEGAL


def test_many_concurrent_appends_are_not_tried_in_every_order() -> None:
    """Thirty factorial orders; which is the right one is read from the end of the history."""
    count = 30
    appends = [append(i, f"{i};", 1, 100) for i in range(count)]
    text = "".join(f"{i};" for i in reversed(range(count)))
    legal = check([*appends, read(99, text, 101, 102)], Append(str))
    assert (legal.verdict, legal.steps < 2000) == (Verdict.OK, True)
    stale = check(
        [*appends, read(99, text, 101, 102), append(99, "z", 103, 104), read(99, text, 105, 106)], Append(str)
    )
    assert (stale.verdict, stale.steps < 2000) == (Verdict.ILLEGAL, True)
