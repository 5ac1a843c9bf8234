"""Bit rot on a simulated disk, where it can be told from a torn write."""

from __future__ import annotations

from pathlib import Path

from ...storage.records import MAGIC
from ...storage.segments import HEADER_BYTES
from ..sim.disk import NO_LIMIT, SimDisk

SECTOR_BYTES = 512


def rot_somewhere(disk: SimDisk, place: int, mask: int) -> bool:
    """Flip bits of one byte of some file. False if there is no byte whose loss could be told."""
    files = [(path, size) for path in disk.files() if (size := _rottable_bytes(disk, path)) > 0]
    if not files:
        return False
    # The log's files more often than the others, which are more.
    files += 5 * [(path, size) for path, size in files if path.suffix == ".log"]
    path, size = files[place % len(files)]
    # Zeros are space between records and behind them, which few would miss.
    content = disk.read(path)
    places = [at for at in range(size) if content[at]]
    if not places:
        return False
    disk.rot(path, places[place // len(files) % len(places)], mask)
    return True


def _rottable_bytes(disk: SimDisk, path: Path) -> int:
    """How much of a file from its beginning may rot: of the last segment of the log all but its last record."""
    content = disk.read(path)
    if path.name == "lock":
        return 0
    if path.suffix != ".log" or path != max(each for each in disk.files() if each.suffix == ".log"):
        return len(content)
    last = 0
    for offset in range(HEADER_BYTES, len(content), SECTOR_BYTES):
        if content.startswith(MAGIC, offset):
            last = offset
    return last


def make_sound(disk: SimDisk) -> None:
    """Take back everything that was to go wrong with it. What is on it stays as it is."""
    disk.capacity_bytes = disk.write_bytes_max = NO_LIMIT
    disk.broken.clear()
    disk.never_mind_the_end()
    disk._faults.clear()
