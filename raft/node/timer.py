"""The one timer of a node's loop, which notices when it comes late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..measures import LAG_BOUNDS_S, Seconds
from ..ports import Clock


class LoopTimer:
    """Calls ``due(late)`` at the earliest of the times it was armed for; ``late`` is in nanoseconds.

    A timer must not beat messages that have already arrived: after a stall, or a SIGSTOP, a node would
    campaign against a leader whose heartbeats wait in its sockets. So a timer that is later than
    ``patience_ns`` lets the sockets be read once more before it counts.
    """

    __slots__ = ("_at", "_clock", "_due", "_handle", "_loop", "_patience_ns", "lag", "longest_lag_ns")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, due: Callable[[int], None], *, patience_ns: int
    ) -> None:
        self.longest_lag_ns = 0
        self.lag = Seconds(LAG_BOUNDS_S)
        """How late it came, each time."""
        self._loop = loop
        self._clock = clock
        self._due = due
        self._patience_ns = patience_ns
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0

    def arm(self, at: int) -> None:
        """Be due at ``at``, monotonic nanoseconds, or earlier: waking for nothing is cheaper than arming anew
        each turn, so an earlier time is kept."""
        if self._handle is not None:
            if self._at <= at:
                return
            self._handle.cancel()
        self._at = at
        self._handle = self._loop.call_later(max(at - self._clock.monotonic_ns(), 0) / 1e9, self._fired)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _fired(self) -> None:
        late = self._clock.monotonic_ns() - self._at
        self.lag.observe(late / 1e9)
        if late > self.longest_lag_ns:
            self.longest_lag_ns = late
        if late > self._patience_ns:
            self._handle = self._loop.call_later(0.001, self._counts, late)
        else:
            self._counts(late)

    def _counts(self, late: int) -> None:
        self._handle = None
        self._due(late)
