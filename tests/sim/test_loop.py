"""The loop: asyncio's promises on virtual time, and what hinders a thread of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from fencepost.jepsen.sim import agenda
from fencepost.jepsen.sim.agenda import Agenda
from fencepost.jepsen.sim.clock import SimClock
from fencepost.jepsen.sim.process import Process
from fencepost.jepsen.sim.violation import Violation

MS = 1_000_000
SECOND = 1_000_000_000


class Bench:
    """One process, and what happened in it with its time in milliseconds."""

    def __init__(self, *, rate_ppm: int = 0) -> None:
        self.agenda = Agenda()
        self.clock = SimClock(self.agenda, rate_ppm=rate_ppm)
        self.process = Process(self.agenda, self.clock)
        self.loop = self.process.loop
        self.seen: list[tuple[float, str]] = []

    def see(self, what: str) -> None:
        self.seen.append((self.agenda.now_ns / MS, what))

    def run(self, work: Coroutine[Any, Any, Any], *, within_ms: int = 10_000) -> Any:
        task = self.loop.create_task(work)
        self.agenda.run_to(self.agenda.now_ns + within_ms * MS)
        return task.result()


def test_timers_run_in_the_order_of_their_times_and_equal_ones_as_they_were_set() -> None:
    bench = Bench()
    for delay, what in ((0.02, "second"), (0.01, "first"), (0.02, "third")):
        bench.loop.call_later(delay, bench.see, what)
    bench.loop.call_soon(bench.see, "soon")
    cancelled = bench.loop.call_later(0.015, bench.see, "never")
    cancelled.cancel()
    bench.agenda.run_to(SECOND)
    assert bench.seen == [(0, "soon"), (10, "first"), (20, "second"), (20, "third")]
    assert cancelled.cancelled()
    assert bench.agenda.now_ns == SECOND


def test_time_stands_still_while_callbacks_run_and_stops_where_it_was_told_to() -> None:
    bench = Bench()

    def again(left: int) -> None:
        bench.see(f"{left} left")
        if left:
            bench.loop.call_soon(again, left - 1)

    bench.loop.call_soon(again, 2)
    bench.loop.call_later(0.005, bench.see, "at the end")
    bench.loop.call_later(0.0051, bench.see, "past it")
    bench.agenda.run_to(5 * MS)
    assert bench.seen == [(0, "2 left"), (0, "1 left"), (0, "0 left"), (5, "at the end")]


def test_tasks_futures_events_locks_queues_and_waiting_are_asyncios_own() -> None:
    bench = Bench()

    async def work() -> list[str]:
        done: list[str] = []
        event, lock, queue = asyncio.Event(), asyncio.Lock(), asyncio.Queue[str]()

        async def other(name: str, seconds: float) -> str:
            async with lock:
                await asyncio.sleep(seconds)
            await queue.put(name)
            return name

        loop = asyncio.get_running_loop()
        assert loop is bench.loop
        tasks = [loop.create_task(other("a", 0.2)), loop.create_task(other("b", 0.1))]
        loop.call_later(0.5, event.set)
        done.append(await queue.get())
        done += await asyncio.gather(*tasks)
        await event.wait()
        bench.see("event")
        finished, pending = await asyncio.wait([loop.create_task(other("c", 1.0))], timeout=0.25)
        assert not finished
        assert len(pending) == 1
        bench.see("waited")
        return done

    assert bench.run(work()) == ["a", "a", "b"]
    assert bench.seen == [(500, "event"), (750, "waited")]


def test_a_timeout_ends_what_takes_too_long_and_nothing_else() -> None:
    bench = Bench()

    async def work() -> str:
        async with asyncio.timeout(1.0):
            await asyncio.sleep(0.9)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.sleep(1.1)
        bench.see("timed out")
        return "done"

    assert bench.run(work()) == "done"
    assert bench.seen == [(1900, "timed out")]


def test_what_a_callback_raises_ends_the_run() -> None:
    bench = Bench()

    def broken() -> None:
        raise ZeroDivisionError("planted")

    bench.loop.call_later(1, broken)
    with pytest.raises(ZeroDivisionError, match="planted"):
        bench.agenda.run_to(2 * SECOND)
    assert bench.agenda.now_ns == SECOND


def test_a_task_that_dies_unseen_ends_the_run() -> None:
    bench = Bench()

    async def broken() -> None:
        raise ZeroDivisionError("planted")

    async def others() -> None:
        # Tasks that have ended are forgotten when others are made.
        for _ in range(40):
            await bench.loop.create_task(asyncio.sleep(0))

    bench.loop.create_task(broken())
    bench.loop.create_task(others())
    with pytest.raises(Violation, match="never retrieved"):
        bench.agenda.run_to(SECOND)


def test_a_busy_loop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agenda, "SPINS_MAX", 10_000)
    bench = Bench()

    def again() -> None:
        bench.loop.call_soon(again)

    again()
    with pytest.raises(Violation, match="busy loop"):
        bench.agenda.run_to(1)


# -- signals, and long callbacks ------------------------------------------------------------------------


def test_a_stopped_process_does_nothing_and_catches_up_in_the_order_in_which_things_became_due() -> None:
    bench = Bench()
    bench.loop.call_later(0.1, bench.see, "before")
    bench.loop.call_later(0.3, bench.see, "late timer")
    bench.agenda.run_to(200 * MS)
    bench.process.pause()
    bench.loop.call_soon(bench.see, "arrived first")
    bench.agenda.run_to(1000 * MS)
    assert bench.seen == [(100, "before")]
    bench.process.resume()
    bench.loop.call_later(0.1, bench.see, "after")
    bench.agenda.run_to(2000 * MS)
    assert bench.seen[1:] == [(1000, "arrived first"), (1000, "late timer"), (1100, "after")]


def test_a_signal_meets_all_threads_and_a_long_callback_only_its_own() -> None:
    bench = Bench()
    other = bench.process.thread()
    bench.loop.block(50 * MS)
    for thread, name in ((bench.loop, "node"), (other, "effects")):
        thread.call_later(0.01, bench.see, name)
    bench.agenda.run_to(100 * MS)
    assert bench.seen == [(10, "effects"), (50, "node")]
    bench.process.pause()
    other.call_soon(bench.see, "effects")
    bench.agenda.run_to(200 * MS)
    assert len(bench.seen) == 2


def test_blocks_add_up_and_outlast_a_stop() -> None:
    bench = Bench()
    bench.loop.block(50 * MS)
    bench.loop.block(50 * MS)
    bench.process.pause()
    bench.agenda.run_to(60 * MS)
    bench.process.resume()
    bench.loop.call_soon(bench.see, "free")
    bench.agenda.run_to(SECOND)
    assert bench.seen == [(100, "free")]


def test_a_slow_thread_takes_its_time_for_each_callback_until_it_is_quick_again() -> None:
    bench = Bench()
    bench.loop.slow_down(20 * MS)
    for name in "abc":
        bench.loop.call_soon(bench.see, name)
    bench.agenda.run_to(200 * MS)
    assert bench.seen == [(0, "a"), (20, "b"), (40, "c")]
    bench.loop.slow_down(0)
    for name in "de":
        bench.loop.call_soon(bench.see, name)
    bench.agenda.run_to(300 * MS)
    assert bench.seen[3:] == [(200, "d"), (200, "e")]


def test_of_a_killed_process_nothing_is_heard_again_neither_timers_nor_the_ends_of_tasks() -> None:
    bench = Bench()
    gone: list[str] = []
    bench.process.at_death(lambda: gone.append("sockets closed"))

    async def work() -> None:
        bench.see("begins")
        await asyncio.sleep(0.2)
        bench.see("ends")

    bench.loop.create_task(work())
    bench.loop.call_later(0.2, bench.see, "timer")
    bench.agenda.run_to(100 * MS)
    unbegun = work()
    bench.loop.create_task(unbegun)
    bench.process.kill()
    bench.process.kill()
    bench.loop.call_soon(bench.see, "posthumous")
    bench.process.resume()
    bench.agenda.run_to(SECOND)
    assert bench.seen == [(0, "begins")]
    assert gone == ["sockets closed"]


# -- clocks ---------------------------------------------------------------------------------------------


def test_timers_follow_the_clock_of_their_node() -> None:
    fast, slow = Bench(rate_ppm=500), Bench(rate_ppm=-500)
    for bench in (fast, slow):
        bench.loop.call_later(1000, bench.see, "due")
        bench.agenda.run_to(2000 * SECOND)
    # A clock that runs 500 ppm fast shows 1000 s after 999.5002 true ones.
    assert fast.seen[0][0] == pytest.approx(1000 * 1000 / 1.0005, rel=1e-9)
    assert slow.seen[0][0] == pytest.approx(1000 * 1000 / 0.9995, rel=1e-9)


def test_no_timer_is_early_by_the_clock_of_its_node() -> None:
    for rate_ppm in (-499, -7, 0, 3, 500):
        bench = Bench(rate_ppm=rate_ppm)
        bench.agenda.run_to(123_456_789)
        begun = bench.clock.monotonic_ns()
        late: list[int] = []
        bench.loop.call_later(0.1, lambda: late.append(bench.clock.monotonic_ns() - begun - 100 * MS))  # noqa: B023
        bench.agenda.run_to(SECOND)
        assert 0 <= late[0] <= 2


def test_a_rate_changes_both_clocks_from_now_on_and_a_jump_only_the_wall() -> None:
    time = Agenda()
    clock = SimClock(time, offset_ns=77, skew_ns=-5)
    start = clock.time_ns()
    time.run_to(SECOND)
    clock.set_rate(200)
    assert clock.monotonic_ns() == SECOND + 77
    time.run_to(2 * SECOND)
    assert clock.monotonic_ns() == 2 * SECOND + 77 + 200_000
    assert clock.time_ns() - start == 2 * SECOND + 200_000
    clock.set_rate(0)
    clock.jump(-3600 * SECOND)
    assert clock.monotonic_ns() == 2 * SECOND + 77 + 200_000
    assert clock.time_ns() - start == 2 * SECOND + 200_000 - 3600 * SECOND
