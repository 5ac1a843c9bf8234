"""Stopping between two lines: at each of them, and never so that an end passes over an ``__exit__``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from fencepost.jepsen.contracts.steps import Ended, Files, Stepper

Work = Callable[[threading.Lock], object]


def leaves_at_its_end(lock: threading.Lock) -> None:
    with lock:
        sum([1, 2])


def leaves_by_return(lock: threading.Lock) -> int:
    with lock:
        return sum([1, 2])


def leaves_two(lock: threading.Lock) -> int:
    with nullcontext(None) as nothing, lock:
        for number in (1, 2):
            if number == 2:
                return number
    return len(nothing or "")


def stop_before(step: int, work: Work, lock: threading.Lock, error: type[BaseException] | None) -> Stepper:
    """Stop ``work`` there and let it go on, or give it ``error`` where that can be; the thread has ended."""
    stepper = Stepper(Files([]))

    def live() -> None:
        sys.settrace(stepper.trace)
        try:
            work(lock)
        except Ended:
            return
        finally:
            stepper.halted.set()

    stepper.arm(step)
    thread = threading.Thread(target=live)
    thread.start()
    assert stepper.halted.wait(10)
    stepper.wake(error if stepper.may_end else None)
    thread.join(10)
    assert not thread.is_alive()
    return stepper


@pytest.mark.parametrize("work", [leaves_at_its_end, leaves_by_return, leaves_two])
@pytest.mark.parametrize("error", [None, Ended])
def test_a_lock_is_free_wherever_its_holder_was_ended(work: Work, error: type[BaseException] | None) -> None:
    lock = threading.Lock()
    stopped = ended = 0
    for step in range(1, 20):
        stepper = stop_before(step, work, lock, error)
        stopped += stepper.stopped
        ended += stepper.stopped and stepper.may_end
        assert not lock.locked(), f"after step {step}, {stepper.place}"
        if not stepper.stopped:
            break
    assert 2 <= ended < stopped


def test_lines_of_the_library_are_no_steps_and_those_that_are_named_are() -> None:
    own, library, ours = __file__, threading.__file__, sys.modules[Stepper.__module__].__file__
    assert ours is not None
    assert [Files([]).hold(each) for each in (own, library, ours, "<string>")] == [True, False, False, False]
    assert Files([Path(library)]).hold(library)
    assert Files([Path(library).parent]).hold(library)
