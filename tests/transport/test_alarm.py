"""The alarm: the earliest moment asked for, once, and one timer whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.transport.alarm import NEVER, Alarm

MS = 1_000_000


class Timers:
    """Stands in for the loop's timers: fires when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        self.pending: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        entry = (delay_s, callback)
        self.pending.append(entry)
        timers = self

        class Handle:
            def cancel(self) -> None:
                timers.pending.remove(entry)

        return Handle()

    def fire(self) -> None:
        [(_, callback)] = self.pending
        self.pending.clear()
        callback()


def test_the_earliest_wins_and_there_is_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = Timers(monkeypatch)
    calls: list[int] = []
    alarm = Alarm(lambda: timers.now_ns, lambda: calls.append(1))
    assert alarm.at_ns == NEVER
    for at in (50 * MS, 80 * MS, 20 * MS, 20 * MS, 30 * MS):
        alarm.set(at)
        assert len(timers.pending) == 1
    assert timers.pending[0][0] == pytest.approx(0.02)
    timers.fire()
    assert calls == [1]
    assert alarm.at_ns == NEVER


def test_what_is_set_from_within_the_callback_is_one_timer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = Timers(monkeypatch)

    def again() -> None:
        alarm.set(100 * MS)
        alarm.set(90 * MS)

    alarm = Alarm(lambda: timers.now_ns, again)
    alarm.set(10 * MS)
    for _ in range(5):
        timers.fire()
        assert [delay for delay, _ in timers.pending] == [pytest.approx(0.09)]


def test_the_past_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = Timers(monkeypatch)
    timers.now_ns = 100 * MS
    alarm = Alarm(lambda: timers.now_ns, lambda: None)
    alarm.set(10 * MS)
    assert timers.pending[0][0] == 0


def test_closed_it_never_calls_again(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = Timers(monkeypatch)
    alarm = Alarm(lambda: timers.now_ns, lambda: None)
    alarm.set(10 * MS)
    alarm.close()
    alarm.set(0)
    assert timers.pending == []
