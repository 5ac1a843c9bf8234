"""A register, by hand: what is legal, and what must not be."""

from __future__ import annotations

import pytest

from fencepost.jepsen.checkers import Operation, Register, Verdict

from .building import cas, done, fail, info, judge, read, write

LEGAL = {
    "nothing happened": (),
    "null at first": (read(1, None, 1, 2),),
    "one after the other": (write(1, 1, 1, 2), read(1, 1, 3, 4), write(2, 2, 5, 6), read(1, 2, 7, 8)),
    "null written": (write(1, 1, 1, 2), write(1, None, 3, 4), read(2, None, 5, 6)),
    "a read beside a write may see the old": (write(1, 1, 1, 9), read(2, None, 2, 3)),
    "a read beside a write may see the new": (write(1, 1, 1, 9), read(2, 1, 2, 3), read(2, 1, 4, 5)),
    "concurrent writes in either order": (write(1, 1, 1, 9), write(2, 2, 1, 9), read(3, 1, 10, 11), read(3, 1, 12, 13)),
    "the earlier of two concurrent writes stays": (write(1, 1, 1, 5), write(2, 2, 4, 9), read(3, 1, 10, 11)),
    "a cas that holds": (write(1, 1, 1, 2), cas(2, 1, 2, True, 3, 4), read(1, 2, 5, 6)),
    "a cas that does not": (write(1, 1, 1, 2), cas(2, 3, 2, False, 3, 4), read(1, 1, 5, 6)),
    "a cas from null": (cas(1, None, 1, True, 1, 2), read(1, 1, 3, 4)),
    "of two like cas one holds": (write(1, 1, 1, 2), cas(2, 1, 2, True, 3, 6), cas(3, 1, 3, False, 4, 5)),
    "an unknown write that took effect": (info(write(1, 1, 1, 2)), read(2, 1, 3, 4)),
    "an unknown write that never did": (info(write(1, 1, 1, None)), read(2, None, 3, 4)),
    "an unknown write that did late": (info(write(1, 1, 1, 2)), read(2, None, 3, 4), read(2, 1, 5, 6)),
    "an unknown write between two others": (write(2, 2, 3, 4), info(write(1, 1, 1, 2)), read(2, 1, 5, 6)),
    "an unknown write that is wanted later than it could have been": (
        *(info(write(1, 1, 1, None)), write(2, 2, 2, 5), read(3, 2, 6, 7), read(3, 1, 8, 9)),
    ),
    "an unknown cas that held": (write(1, 1, 1, 2), info(cas(2, 1, 2, True, 3, None)), read(1, 2, 5, 6)),
    "an unknown cas that could not hold": (write(1, 1, 1, 2), info(cas(2, 5, 2, True, 3, None)), read(1, 1, 5, 6)),
    "an unknown read": (info(read(1, None, 1, None)), write(2, 1, 3, 4)),
    "a process that goes on after an unknown write": (info(write(1, 1, 1, None)), write(1, 2, 3, 4), read(1, 1, 5, 6)),
    "two unknown writes of one value, both needed": (
        *(info(write(1, 1, 1, None)), info(write(2, 1, 1, None)), read(3, 1, 3, 4)),
        *(write(3, 2, 5, 6), read(3, 1, 7, 8)),
    ),
    "a failed write is not seen": (fail(write(1, 1, 1, 2)), read(2, None, 3, 4)),
    "a failed operation needs no return": (fail(write(1, 1, 1, None)), read(2, None, 3, 4)),
    "a settled write is done before the end": (done(write(1, 1, 1, None)), read(2, None, 3, 4)),
    "touching times are concurrent": (write(1, 1, 1, 5), read(2, None, 5, 6)),
    "an operation in no time": (write(1, 1, 3, 3), read(2, 1, 4, 4)),
    "keys are independent": (write(1, 1, 1, 2, "x"), read(1, None, 3, 4, "y"), read(1, 1, 5, 6, "x")),
    "a process at two keys at once": (write(1, 1, 1, 9, "x"), write(1, 2, 1, 9, "y"), read(2, 2, 10, 11, "y")),
    "values of every kind": (
        *(write(1, [1, {"a": True}], 1, 2), read(1, [1, {"a": True}], 3, 4)),
        *(cas(1, [1, {"a": True}], False, True, 5, 6), read(1, False, 7, 8)),
    ),
}

ILLEGAL = {
    "a stale read": (write(1, 1, 1, 2), write(1, 2, 3, 4), read(2, 1, 5, 6)),
    "a lost write": (write(1, 1, 1, 2), read(2, None, 3, 4)),
    "a value out of nowhere": (write(1, 1, 1, 2), read(2, 7, 3, 4)),
    "a read from the future": (read(2, 1, 1, 2), write(1, 1, 3, 4)),
    "new, then old, beside one write": (write(1, 1, 1, 9), read(2, 1, 2, 3), read(3, None, 4, 5)),
    "two readers that disagree on the order": (
        *(write(1, 1, 1, 9), write(2, 2, 1, 9)),
        *(read(3, 1, 10, 11), read(4, 2, 12, 13), read(3, 1, 14, 15)),
    ),
    "a cas that held on another value": (write(1, 1, 1, 2), cas(2, 3, 2, True, 3, 4)),
    "a cas that did not hold and should have": (write(1, 1, 1, 2), cas(2, 1, 2, False, 3, 4)),
    "a cas that held without effect": (write(1, 1, 1, 2), cas(2, 1, 2, True, 3, 4), read(1, 1, 5, 6)),
    "two like cas that both held": (write(1, 1, 1, 2), cas(2, 1, 2, True, 3, 6), cas(3, 1, 3, True, 4, 5)),
    "an unknown write seen before it was made": (read(2, 1, 1, 2), info(write(1, 1, 3, 4))),
    "an unknown write that took effect twice": (
        *(info(write(1, 1, 1, None)), read(2, 1, 2, 3), write(2, 2, 4, 5), read(2, 2, 6, 7), read(2, 1, 8, 9)),
    ),
    "an unknown write seen, then gone": (info(write(1, 1, 1, None)), read(2, 1, 3, 4), read(2, None, 5, 6)),
    "an unknown cas that could not hold, seen": (
        write(1, 1, 1, 2),
        info(cas(2, 5, 2, True, 3, None)),
        read(1, 2, 5, 6),
    ),
    "a failed write that is seen": (fail(write(1, 1, 1, 2)), read(2, 1, 3, 4)),
    "a failed cas that is seen": (write(1, 1, 1, 2), fail(cas(2, 1, 2, True, 3, 4)), read(1, 2, 5, 6)),
    "a settled write is done": (done(write(1, 1, 1, 2)), read(2, None, 3, 4)),
    "touching times of one process are in order": (write(1, 1, 1, 5), read(1, None, 5, 6)),
    "operations in no time of one process are in order": (write(1, 1, 3, 3), write(1, 2, 3, 3), read(2, 1, 4, 5)),
    "one of two keys": (write(1, 1, 1, 2, "x"), read(1, None, 3, 4, "x"), read(1, None, 5, 6, "y")),
    "true is not 1": (write(1, 1, 1, 2), read(2, True, 3, 4)),
    "0 is not false": (write(1, False, 1, 2), read(2, 0, 3, 4)),
    "null is not 0": (read(1, 0, 1, 2),),
    "an empty list is no empty object": (write(1, [], 1, 2), read(2, {}, 3, 4)),
}


@pytest.mark.parametrize("history", LEGAL.values(), ids=LEGAL)
def test_legal(history: tuple[Operation, ...]) -> None:
    assert judge(Register(), *history).verdict is Verdict.OK


@pytest.mark.parametrize("history", ILLEGAL.values(), ids=ILLEGAL)
def test_illegal(history: tuple[Operation, ...]) -> None:
    assert judge(Register(), *history).verdict is Verdict.ILLEGAL


def test_the_order_of_the_lines_says_nothing() -> None:
    for history in (*LEGAL.values(), *ILLEGAL.values()):
        times = [operation.invoke for operation in history]
        if len(set(times)) == len(times):
            assert judge(Register(), *history[::-1]).verdict is judge(Register(), *history).verdict


def test_the_log_orders_what_time_does_not() -> None:
    beside = (write(1, 1, 1, 9), write(2, 2, 1, 9), read(3, 1, 10, 11))
    assert judge(Register(), *beside).verdict is Verdict.OK
    logged = (beside[0]._replace(position=4), beside[1]._replace(position=5), beside[2])
    assert judge(Register(), *logged).verdict is Verdict.ILLEGAL
    swapped = (beside[0]._replace(position=5), beside[1]._replace(position=4), beside[2])
    assert judge(Register(), *swapped).verdict is Verdict.OK
