"""What a world is made of: processes, and how its network, its disks and its clocks behave."""

from __future__ import annotations

from typing import NamedTuple

from ...raft.core.configuration import Configuration
from ...raft.core.events import Send
from ...raft.core.options import MILLISECOND
from ...raft.core.step import Raft
from .disk import Disk
from .machine import Machine
from .snapshot_disk import SnapshotDisk

PPM = 1_000_000


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


class SnapshotTimes(NamedTuple):
    """How long it takes to read or store a part of a snapshot, or to write one; and what goes wrong."""

    least: int = 1 * MILLISECOND
    most: int = 5 * MILLISECOND
    failed: float = 0.0
    """The chance that one's own cannot be taken."""
    damaged: float = 0.0
    """The chance that one that was received turns out to be damaged."""


class Node:
    """One process: a core while it is up, and the disks that outlive it."""

    def __init__(self, name: str, configuration: Configuration) -> None:
        self.name = name
        self.configuration = configuration
        """The one it was set up with; empty for a node that is to join."""
        self.disk = Disk()
        self.snapshots = SnapshotDisk()
        self.raft: Raft | None = None
        self.machine = Machine()
        self.boot = 0
        """Counts starts; what was meant for an earlier process is dropped."""
        self.clock_offset = 0
        """Monotonic clocks start anywhere, on each node and at each boot."""
        self.clock_ppm = 0
        """By how much this clock is fast, parts of a million."""
        self.held: list[Send] = []
        self.wake_at = -1
        self.paused_until = 0
        """A stopped process: nothing that happens reaches it before this, then everything does."""

    @property
    def applied_to(self) -> int:
        return self.machine.last_index

    def clock(self, now: int) -> int:
        """What its clock shows at a simulated time, nanoseconds."""
        return self.clock_offset + now + now * self.clock_ppm // PPM

    def time_of(self, clock: int) -> int:
        """The first simulated time at which its clock shows ``clock``."""
        time = (clock - self.clock_offset) * PPM // (PPM + self.clock_ppm)
        while self.clock(time) < clock:
            time += 1
        return time

    def holds(self, index: int, term: int) -> bool:
        """Whether the entry of ``term`` at ``index`` is safe here from a crash."""
        return index <= self.snapshots.last_index or self.disk.term_at(index) == term
