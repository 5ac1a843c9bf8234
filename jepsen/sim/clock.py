"""The clocks of one node: a monotonic one that starts anywhere and may run fast or slow, and one on the wall."""

from __future__ import annotations

from .agenda import Agenda

WALL_CLOCK_NS = 1_700_000_000_000_000_000
"""What a wall clock without skew showed when the world began, nanoseconds since the Unix epoch."""

_MILLION = 1_000_000


class SimClock:
    """``ports.Clock``. ``skew_ns`` is how far the wall clock is off; it may be set at any time.

    ``rate_ppm``: how much faster than true time this node's clocks run, parts per million.
    """

    def __init__(self, agenda: Agenda, *, offset_ns: int = 0, rate_ppm: int = 0, skew_ns: int = 0) -> None:
        self._agenda = agenda
        self._offset_ns = offset_ns
        """Of the monotonic clock, at the moment ``_since_ns``."""
        self._since_ns = agenda.now_ns
        self.rate_ppm = rate_ppm
        self.skew_ns = skew_ns
        self._drift_ns = 0
        """How far the rate has carried both clocks away, up to ``_since_ns``."""

    def monotonic_ns(self) -> int:
        now_ns = self._agenda.now_ns
        if self.rate_ppm:
            return now_ns + self._offset_ns + (now_ns - self._since_ns) * self.rate_ppm // _MILLION
        return now_ns + self._offset_ns

    def time_ns(self) -> int:
        now_ns = self._agenda.now_ns
        drift_ns = self._drift_ns + (now_ns - self._since_ns) * self.rate_ppm // _MILLION
        return WALL_CLOCK_NS + now_ns + drift_ns + self.skew_ns

    def true_ns(self, interval_ns: int) -> int:
        """How long it truly takes until this clock has gone on by ``interval_ns``."""
        if interval_ns <= 0:
            return 0
        if not self.rate_ppm:
            return interval_ns
        # Rounded up: a timer that fires a nanosecond early finds nothing to do and is set again.
        return interval_ns * _MILLION // (_MILLION + self.rate_ppm) + 1

    def set_rate(self, rate_ppm: int) -> None:
        """Run at another rate from now on. The monotonic clock neither jumps nor goes back."""
        now_ns = self._agenda.now_ns
        gained_ns = (now_ns - self._since_ns) * self.rate_ppm // _MILLION
        self._offset_ns += gained_ns
        self._drift_ns += gained_ns
        self._since_ns = now_ns
        self.rate_ppm = rate_ppm

    def jump(self, by_ns: int) -> None:
        """Somebody sets the wall clock. The monotonic one knows nothing of it."""
        self.skew_ns += by_ns
