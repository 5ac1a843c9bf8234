"""A bound on the real time of a piece of work: what never ends must not keep the rest from being run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_S = 1.0


class Overdue(BaseException):
    """It took too long. Not an Exception: what is under test catches those, and goes on."""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raise :class:`Overdue` in the block when it has taken so long, and again every second if it is not heeded.

    Only in the main thread of a process.
    """

    def ring(number: int, frame: FrameType | None) -> None:
        raise Overdue(f"not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
