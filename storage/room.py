"""How much room the log's disk has, who is told when it gets short, and what is given up when there is none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import structlog

from ..raft.core.errors import StorageFull
from .disk import Disk
from .reserve import Reserve
from .spare import Spare

_log = structlog.get_logger("fencepost.storage")
_T = TypeVar("_T")

DEFAULT_LOW_BYTES = 512 << 20
LOOK_EVERY_BYTES = 1 << 20
"""Of the log. And when it comes to rest."""


class Room:
    """Used by the writer; what it found last is read by any thread."""

    def __init__(
        self, disk: Disk, directory: Path, reserve: Reserve, spare: Spare, *, low_bytes: int, spare_bytes: int
    ) -> None:
        """``low_bytes``: with less than this free, the room is low. ``spare_bytes``: of one spare."""
        self.free_bytes = 0
        """On the file system of the log, when it was looked at last."""
        self.low = False
        self._disk = disk
        self._directory = directory
        self._reserve = reserve
        self._spare = spare
        self._low_bytes = low_bytes
        self._spare_bytes = spare_bytes
        self._written = 0

    @property
    def reserve_held(self) -> bool:
        return self._reserve.held

    def wrote(self, size: int) -> None:
        """So many bytes have gone to the log since the last call. Raises StorageError, not StorageFull."""
        self._written += size
        if self._written >= LOOK_EVERY_BYTES:
            self.look()

    def look(self) -> None:
        """Look how much is free, say so if that is news, and make the reserve again if there is room.

        Raises StorageError, not StorageFull.
        """
        self._written = 0
        try:
            self.free_bytes = free = self._disk.free_bytes(self._directory)
        except OSError:
            # A file system that does not tell is no reason to stop writing to it.
            return
        # A quarter more before it is over, so that a disk around the mark does not fill the journal.
        low = free < self._low_bytes * (5 if self.low else 4) // 4
        if low != self.low:
            self.low = low
            self._tell(free)
        self._spare.allowed = not low and free >= 2 * self._spare_bytes
        if self._reserve.make(free):
            _log.info("reserve_made", path=os.fspath(self._directory.parent))

    def _tell(self, free: int) -> None:
        place = os.fspath(self._directory)
        if self.low:
            _log.warning(
                "disk_low",
                path=place,
                free_bytes=free,
                low_bytes=self._low_bytes,
                next_step="free space on this file system, or move the data directory to a larger one",
            )
        else:
            _log.info("disk_ample", path=place, free_bytes=free)

    def make(self) -> bool:
        """The disk is full: give something up, the dearest last; whether there was anything."""
        return self._spare.give_up() or self._reserve.give_up()

    def spend(self, act: Callable[[], _T]) -> _T:
        """``act()``, again and again while it raises StorageFull and there is something to give up.

        ``act`` must leave nothing behind that its next time could not replace.
        """
        while True:
            try:
                return act()
            except StorageFull:
                if not self.make():
                    raise
