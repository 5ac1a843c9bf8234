"""The real clock and real chance, for running nodes. Everything else takes them as arguments."""

from __future__ import annotations

import random
import time

_BOOT_TIME = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """``ports.Clock`` from the operating system.

    Intervals include the time that the machine was suspended, where the system can tell: a lease
    must not outlive a closed lid (scenario S46).
    """

    def monotonic_ns(self) -> int:
        return time.monotonic_ns() if _BOOT_TIME is None else time.clock_gettime_ns(_BOOT_TIME)

    def time_ns(self) -> int:
        return time.time_ns()


class SystemRandomness:
    """``ports.Randomness`` seeded by the operating system."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def between(self, low: int, high: int) -> int:
        return self._random.randint(low, high)
