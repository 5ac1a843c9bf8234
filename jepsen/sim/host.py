"""One machine: its disk and clocks outlive the processes that run on it, one at a time."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from .agenda import Agenda
from .clock import SimClock
from .disk import SimDisk
from .settings import DiskSettings

if TYPE_CHECKING:
    from .node import SimNode

HANGS = -1


class Host:
    """The machine of one node. ``voters`` is what its configuration names as the first members."""

    def __init__(
        self, name: str, number: int, voters: tuple[str, ...], agenda: Agenda, chance: Random, settings: DiskSettings
    ) -> None:
        """``chance`` decides about this machine and its processes alone."""
        self.name = name
        self.number = number
        self.voters = voters
        self.disk = SimDisk()
        self.settings = settings
        self.node: SimNode | None = None
        """The process that runs, if one does."""
        self.starting = 0
        """Counts starts; a start that was overtaken does not take place."""
        self.ends: list[tuple[int, str]] = []
        """(nanoseconds, why) of every process that ended here, and of every start that was refused."""
        self.refused: BaseException | None = None
        """Why the last start was refused; None if it was not."""
        self.syncs_hang = False
        self.sync_extra_ns = 0
        """Every sync takes so much longer."""
        self.rate_ppm = 0
        self.skew_ns = 0
        self._agenda = agenda
        self.chance = chance

    def clock(self) -> SimClock:
        """The clocks as a process that starts now sees them: monotonic time begins anywhere."""
        offset_ns = self.chance.randint(0, 1 << 40)
        return SimClock(self._agenda, offset_ns=offset_ns, rate_ppm=self.rate_ppm, skew_ns=self.skew_ns)

    def between(self, low: int, high: int) -> int:
        """``ports.Randomness``. Not quite even over ranges above 2**53, which nobody can tell."""
        return low + int(self.chance.random() * (high - low + 1))

    def sync_ns(self) -> int:
        """``SyncTimes``."""
        if self.syncs_hang:
            return HANGS
        settings = self.settings
        drawn = self.chance.random()
        if drawn < settings.tail:
            return int(self.chance.random() * settings.tail_max_ns) + self.sync_extra_ns
        return settings.sync_min_ns + int(drawn * settings.sync_spread_ns) + self.sync_extra_ns

    def set_rate(self, rate_ppm: int) -> None:
        """The machine's oscillator: clocks run so much faster than true time, parts per million."""
        self.rate_ppm = rate_ppm
        if self.node is not None:
            self.node.clock.set_rate(rate_ppm)

    def jump(self, by_ns: int) -> None:
        """Somebody sets the wall clock."""
        self.skew_ns += by_ns
        if self.node is not None:
            self.node.clock.jump(by_ns)
