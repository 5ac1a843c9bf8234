"""The segments as a chain: the manifest that counts them, the roll that lengthens it, the trim that shortens it.

The manifest names the first segment that the log is read from and the highest one in use, so that a
lost segment is seen at either end: without it, a log that was trimmed and a log that lost its first
segment would look the same.

Both ends move by the same rule, that a crash between two steps leaves the old chain or the new one
(S14). A new segment is made durable, then named in the manifest, then used. Old ones are struck from
the manifest, and only when that is durable deleted or recycled; what a crash leaves of them is deleted later.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .disk import Disk
from .failures import corrupt_file, disk_failure
from .room import Room
from .segments import (
    HEADER_BYTES,
    ActiveSegment,
    SegmentHeader,
    create_segment,
    open_segment,
    segment_name,
    segment_number,
)
from .spare import Spare
from .standing import LogState
from .statefiles import read_state, write_state

MANIFEST = "manifest"
VERSION = 2
"""Version 1 had no ``first_segment``: its log begins with segment 1."""


class Manifest(NamedTuple):
    first: int
    """The segment that the log is read from. What is before it is no part of the log any more."""
    last: int
    """The highest segment number that has been in use."""


def read_manifest(disk: Disk, directory: Path, instance: bytes) -> Manifest:
    """Raises StorageCorrupt, StorageFormatUnknown, StorageError."""
    path = directory / MANIFEST
    try:
        body = read_state(disk, path, MANIFEST, VERSION)
    except FileNotFoundError as error:
        raise corrupt_file(path, "it is missing") from error
    first, last = body.get("first_segment", 1), body.get("last_segment")
    if body.get("instance") != instance or type(first) is not int or type(last) is not int:
        raise corrupt_file(path, "it belongs to another directory")
    if not 1 <= first <= last:
        raise corrupt_file(path, f"it counts segments from {first} to {last}")
    return Manifest(first, last)


def write_manifest(disk: Disk, directory: Path, instance: bytes, manifest: Manifest) -> None:
    body = {"instance": instance, "first_segment": manifest.first, "last_segment": manifest.last}
    write_state(disk, directory / MANIFEST, MANIFEST, body, VERSION)


def last_segment(disk: Disk, directory: Path) -> int:
    """The highest segment number there is; 0 for none."""
    return max(_numbers(disk, directory), default=0)


def roll(
    disk: Disk,
    active: ActiveSegment,
    spare: Spare,
    entropy: Callable[[int], bytes],
    state: LogState,
    first: int,
    room: Room,
) -> ActiveSegment:
    """Finish a segment and go on in a new one: new file, its name, the manifest, then use.

    The new file is the spare one, where there is one.
    """
    active.finish()
    directory = active.path.parent
    number = active.header.number + 1
    header = SegmentHeader(number, active.end, spare.draw_salt(entropy), active.header.instance, state)
    following = room.spend(lambda: _begin(disk, directory, header, spare))
    room.spend(lambda: write_manifest(disk, directory, header.instance, Manifest(first, header.number)))
    active.close()
    return following


def _begin(disk: Disk, directory: Path, header: SegmentHeader, spare: Spare) -> ActiveSegment:
    if spare.size:
        return spare.become(header)
    return open_segment(disk, create_segment(disk, directory, header), header, HEADER_BYTES)


def trim(disk: Disk, directory: Path, instance: bytes, manifest: Manifest, spare: Spare, room: Room) -> None:
    """Let the log begin at ``manifest.first``, and delete or recycle what is before it."""
    room.spend(lambda: write_manifest(disk, directory, instance, manifest))
    remove_before(disk, directory, manifest.first, spare)


def remove_before(disk: Disk, directory: Path, first: int, spare: Spare | None = None) -> None:
    """Delete the segments that the manifest no longer counts, oldest first, or keep one as the spare."""
    numbers = sorted(number for number in _numbers(disk, directory) if number < first)
    try:
        for number in numbers:
            path = directory / segment_name(number)
            if spare is None or not spare.recycle(path):
                disk.unlink(path)
        if numbers:
            disk.sync_directory(directory)
    except OSError as error:
        raise disk_failure(error, "trimming", directory) from error


def _numbers(disk: Disk, directory: Path) -> list[int]:
    try:
        names = disk.list_directory(directory)
    except FileNotFoundError as error:
        raise corrupt_file(directory, "the log's directory is missing") from error
    except OSError as error:
        raise disk_failure(error, "listing", directory) from error
    return [number for number in map(segment_number, names) if number is not None]
