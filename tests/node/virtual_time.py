"""An event loop whose clock jumps to the next timer when there is nothing left to do.

No test waits: an hour of simulated time costs as much as what happens in it.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable
from typing import Any


class NothingLeft(AssertionError):
    """The loop would wait for ever: no timer is set and nothing from outside can come."""


class _JumpingSelector(selectors.DefaultSelector):
    """Never blocks. Where a real one would wait, the clock of its loop moves on."""

    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        if timeout is None:
            raise NothingLeft("no timer is set")
        self.loop.now_ns += math.ceil(timeout * 1e9)
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Not for use with threads: what another thread does takes no virtual time."""

    def __init__(self) -> None:
        selector = _JumpingSelector()
        selector.loop = self
        self.now_ns = 1_000_000_000_000
        super().__init__(selector)

    def time(self) -> float:
        return self.now_ns / 1e9

    def advance(self, seconds: float) -> None:
        """Run everything that happens within ``seconds`` of virtual time."""
        timer = self.call_later(seconds, self.stop)
        try:
            self.run_forever()
        finally:
            timer.cancel()

    def advance_until(self, holds: Callable[[], Any], *, within_s: float, what: str = "it") -> None:
        """Run until ``holds()`` is true, looked at after every millisecond of virtual time."""
        deadline = self.now_ns + int(within_s * 1e9)
        while not holds():
            assert self.now_ns < deadline, f"{what} did not come to hold within {within_s} virtual seconds"
            self.advance(0.001)
