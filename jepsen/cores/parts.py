"""What a world is made of: processes, and how its network and its disks behave."""

from __future__ import annotations

from typing import NamedTuple

from ...raft.core.events import Send
from ...raft.core.options import MILLISECOND
from ...raft.core.step import Raft
from .disk import Disk


class Violation(AssertionError):
    """An invariant failed. The text has the seed and the events that led to it."""


class Network(NamedTuple):
    """How messages travel. Times are simulated nanoseconds, chances are of 1."""

    delay_min: int = 1 * MILLISECOND
    delay_max: int = 3 * MILLISECOND
    loss: float = 0.0
    duplication: float = 0.0
    late: float = 0.0
    """The chance that a message takes up to ``late_max`` instead: out of a full buffer, after a freeze."""
    late_max: int = 1000 * MILLISECOND


class DiskTimes(NamedTuple):
    """How long one write takes, simulated nanoseconds."""

    least: int = 1 * MILLISECOND
    most: int = 4 * MILLISECOND
    grouped: float = 0.3
    """The chance that a sync covers the next pending write as well."""


class Node:
    """One process: a core while it is up, and the disk that outlives it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.disk = Disk()
        self.raft: Raft | None = None
        self.boot = 0
        """Counts starts; what was meant for an earlier process is dropped."""
        self.clock_offset = 0
        """Monotonic clocks start anywhere, on each node and at each boot."""
        self.held: list[Send] = []
        self.applied_to = 0
        self.wake_at = -1
        self.paused_until = 0
        """A stopped process: nothing that happens reaches it before this, then everything does."""
