"""A timer for the earliest of many moments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

NEVER = 1 << 63
_S = 1_000_000_000


class Alarm:
    """Calls back once, at the earliest moment that was asked for since it last did.

    There is never more than one timer, whoever asks and whenever: also from within the callback.
    """

    __slots__ = ("_callback", "_now", "_timer", "at_ns")

    def __init__(self, now_ns: Callable[[], int], callback: Callable[[], None]) -> None:
        self._now = now_ns
        self._callback = callback
        self._timer: asyncio.TimerHandle | None = None
        self.at_ns = NEVER
        """When it will call back."""

    def set(self, at_ns: int) -> None:
        """Call back at ``at_ns``, unless that is to happen earlier anyway."""
        if at_ns >= self.at_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.at_ns = at_ns
        delay_s = max(0, at_ns - self._now()) / _S
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def close(self) -> None:
        """Never call back again, whoever still asks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.at_ns = -1

    def _fire(self) -> None:
        self._timer = None
        self.at_ns = NEVER
        self._callback()
