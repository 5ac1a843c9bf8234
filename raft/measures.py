"""Plain numbers that a node keeps about itself, for whoever scrapes them. No library, no lock, no I/O: each
object belongs to one loop, and a reader on that loop sees whole values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

LAG_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
EFFECT_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LEADERSHIP_BOUNDS_S = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0, 604_800.0)


class Seconds:
    """How often something took how long: a histogram with fixed upper bounds, in seconds."""

    __slots__ = ("bounds", "counts", "sum_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """By upper bound, not added up; the last one is of what exceeds them all."""
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_s += seconds
