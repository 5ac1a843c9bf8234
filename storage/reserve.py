"""A file that is there to be given up: room for a few writes more when the disk is full.

What mends a full disk needs room itself: a restart counts itself, a cut and a compaction rewrite the
manifest, an end seals the log. So a few mebibytes are held from the first start on, and deleted when the first
write finds no room. Made again when there is room for it several times over.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TypeVar

import structlog

from ..raft.core.errors import StorageFull
from .disk import Disk, write_fully
from .failures import disk_failure, is_full
from .segments import zeros_ahead
from .statefiles import create_anew

_log = structlog.get_logger("fencepost.storage")
_T = TypeVar("_T")

RESERVE = "reserve"
RESERVE_BYTES = 4 << 20
PLENTY = 4
"""The reserve is made when so many times its size is free: the last room is not for it."""


class Reserve:
    """The file ``reserve`` of a data directory. Used by any thread."""

    def __init__(self, disk: Disk, root: Path, size: int) -> None:
        """``size`` in bytes; 0 for none. Writes nothing."""
        self._disk = disk
        self._path = root / RESERVE
        self._size = size
        self._lock = Lock()
        try:
            self._held = size > 0 and disk.size(self._path) >= size
        except FileNotFoundError:
            self._held = False
        except OSError as error:
            raise disk_failure(error, "looking at", self._path) from error

    @property
    def held(self) -> bool:
        return self._held

    def make(self, free_bytes: int) -> bool:
        """Make the file if it is not there and so much is free; whether it was made now.

        Raises StorageError, but not StorageFull.
        """
        with self._lock:
            if self._held or not self._size or free_bytes < PLENTY * self._size:
                return False
            try:
                self._write()
            except OSError as error:
                if is_full(error):
                    with contextlib.suppress(OSError):
                        self._disk.unlink(self._path)
                    return False
                raise disk_failure(error, "reserving", self._path) from error
            self._held = True
            return True

    def _write(self) -> None:
        file = create_anew(self._disk, self._path)
        try:
            written = 0
            while written < self._size:
                written += write_fully(file, written, [zeros_ahead(self._size - written)])
            file.sync()
        finally:
            file.close()
        self._disk.sync_directory(self._path.parent)

    def give_up(self) -> bool:
        """Delete the file, because the disk is full; whether there was one."""
        with self._lock:
            if not self._held:
                return False
            self._held = False
            try:
                self._disk.unlink(self._path)
                self._disk.sync_directory(self._path.parent)
            except OSError:
                return False
        _log.error(
            "reserve_given_up",
            file=os.fspath(self._path),
            bytes=self._size,
            next_step="free space at once: with the next bytes the node ends (STORAGE_FULL)",
        )
        return True

    def spend(self, act: Callable[[], _T]) -> _T:
        """``act()``; if it raises StorageFull, once more after the reserve was given up.

        ``act`` must leave nothing behind that its second time could not replace.
        """
        try:
            return act()
        except StorageFull:
            if not self.give_up():
                raise
        return act()
