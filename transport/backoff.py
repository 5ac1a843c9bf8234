"""Waiting before the next try: exponential, with full jitter, bounded.

Full jitter because nodes that lost one another at the same moment must not come back in step.
"""

from __future__ import annotations

import random

from ..raft.ports import Randomness


class SystemRandomness:
    """The :class:`Randomness` of a running program."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)

    def between(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


class Backoff:
    """Waits in seconds: each drawn from ``[first_s, ceiling]``, the ceiling doubling up to ``most_s``."""

    def __init__(self, randomness: Randomness, *, first_s: float = 0.05, most_s: float = 1.0) -> None:
        self._randomness = randomness
        self._first_s = first_s
        self._most_s = most_s
        self._ceiling_s = first_s * 2

    def next_s(self) -> float:
        ceiling_s = min(self._ceiling_s, self._most_s)
        self._ceiling_s = min(self._ceiling_s * 2, self._most_s)
        return jittered_s(self._randomness, self._first_s, max(ceiling_s, self._first_s))

    def reset(self) -> None:
        self._ceiling_s = self._first_s * 2


def jittered_s(randomness: Randomness, low_s: float, high_s: float) -> float:
    """A number of seconds in ``[low_s, high_s]``, drawn in microseconds."""
    return randomness.between(int(low_s * 1e6), int(high_s * 1e6)) / 1e6
