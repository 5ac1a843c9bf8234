"""The files a log is made of.

``log/`` holds segments named by number, ``0000000000000001.log`` and on, and a manifest that names the
highest one in use, so that a lost last segment is seen. A segment begins with a sector of its own of
512 bytes, big-endian::

    magic "fenceplg" | version u16 | header bytes u16 | number u64 | previous end u64 |
    salt 16 bytes | instance id 16 bytes | zeros | CRC-32C u32 of all before it

"Previous end" is where the segment before it ends: a segment that lost its tail is seen even if the
loss falls between two records. Space behind the last record is written in advance with zeros, which
are never a record: a sync that does not change the size of a file costs about half.

A segment gets its name only when its header is synced, and is used only when its name and then the
manifest are (S14). So a named segment without an intact header is damage, whatever its place.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import google_crc32c

from .disk import Disk, File, write_fully
from .failures import corrupt, corrupt_file, disk_failure, format_unknown, is_full
from .records import SECTOR_BYTES, encode_record, salt_seed
from .statefiles import TEMPORARY, read_state, write_new_file, write_state

MAGIC = b"fenceplg"
VERSION = 1
SUFFIX = ".log"
MANIFEST = "manifest"

DEFAULT_SEGMENT_BYTES = 64 << 20
AHEAD_BYTES = 1 << 20
"""How much is written in advance at a time; again when less than a quarter of it is left."""

_HEADER = Struct(">8sHHQQ16s16s")
_CHECK = Struct(">I")
HEADER_BYTES = SECTOR_BYTES
_CHECKED_BYTES = HEADER_BYTES - _CHECK.size
_ZEROS = bytes(AHEAD_BYTES)


class SegmentHeader(NamedTuple):
    number: int
    previous_end: int
    """Bytes of the segment before this one; 0 for the first."""
    salt: bytes
    instance: bytes
    """The directory's instance id: a segment of another node is not taken for ours."""

    @property
    def seed(self) -> int:
        return salt_seed(self.salt)


def segment_name(number: int) -> str:
    return f"{number:016d}{SUFFIX}"


def segment_number(name: str) -> int | None:
    """The number in a segment's name; None if it is not one."""
    stem = name.removesuffix(SUFFIX)
    if stem == name or len(stem) != 16 or not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem)


def encode_segment_header(header: SegmentHeader) -> bytes:
    start = _HEADER.pack(MAGIC, VERSION, HEADER_BYTES, header.number, header.previous_end, header.salt, header.instance)
    start = start.ljust(_CHECKED_BYTES, b"\0")
    return start + _CHECK.pack(google_crc32c.value(start))


def decode_segment_header(path: Path, data: bytes, index: int) -> SegmentHeader:
    """The header of the segment with this content.

    ``index`` is the next log index, for the error. Raises StorageCorrupt, StorageFormatUnknown.
    """
    if not data.startswith(MAGIC):
        raise corrupt(path, 0, index, "it does not begin like a segment of a log")
    # Before length and checksum: a newer version may have another layout behind these two fields.
    version = int.from_bytes(data[8:10], "big")
    if version > VERSION:
        raise format_unknown(path, f"it has format {version} and this program reads up to {VERSION}")
    if len(data) < HEADER_BYTES:
        raise corrupt(path, 0, index, "it is shorter than the header of a segment")
    _, _, _, number, previous_end, salt, instance = _HEADER.unpack_from(data)
    (check,) = _CHECK.unpack_from(data, _CHECKED_BYTES)
    if version != VERSION or google_crc32c.value(data[:_CHECKED_BYTES]) != check:
        raise corrupt(path, 0, index, "the header's checksum is wrong")
    return SegmentHeader(number, previous_end, salt, instance)


def create_segment(disk: Disk, directory: Path, header: SegmentHeader) -> Path:
    """Make a segment and its name durable. Its path."""
    path = directory / segment_name(header.number)
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        write_new_file(disk, temporary, encode_segment_header(header))
        disk.rename(temporary, path)
        disk.sync_directory(directory)
    except OSError as error:
        raise disk_failure(error, "creating", path) from error
    return path


def read_manifest(disk: Disk, directory: Path, instance: bytes) -> int:
    """The highest segment number that has been in use. Raises StorageCorrupt."""
    path = directory / MANIFEST
    try:
        body = read_state(disk, path, MANIFEST)
    except FileNotFoundError as error:
        raise corrupt_file(path, "it is missing") from error
    if body.get("instance") != instance or not isinstance(body.get("last_segment"), int):
        raise corrupt_file(path, "it belongs to another directory")
    return int(body["last_segment"])


def write_manifest(disk: Disk, directory: Path, instance: bytes, last_segment: int) -> None:
    write_state(disk, directory / MANIFEST, MANIFEST, {"instance": instance, "last_segment": last_segment})


class ActiveSegment:
    """The last segment, open for appending. Used by one thread at a time.

    ``end`` is where the next record goes; everything before it is synced.
    """

    def __init__(self, file: File, path: Path, header: SegmentHeader, end: int) -> None:
        self._file = file
        self.path = path
        self.header = header
        self.end = end
        self._seed = header.seed
        self._allocated = end
        self._ahead = True

    def append(self, kind: int, body: bytes) -> None:
        """Write one record and sync it: durable when this returns. Raises StorageError, for good."""
        end = self.end
        record = encode_record(self._seed, end, kind, body)
        doing = "writing"
        try:
            written = write_fully(self._file, end, record)
            doing = "syncing"
            self._file.sync_data()
        except OSError as error:
            # Half a record must not stay where another could be put behind it (S11). After a failed
            # *sync* the whole record may be on disk, and what is there is for recovery to say (S12).
            if doing == "writing" or is_full(error):
                self._cut()
            raise disk_failure(error, doing, self.path) from error
        self.end = end + written
        self._allocated = max(self._allocated, self.end)

    def write_ahead(self, limit: int) -> None:
        """Put zeros behind the last record if few are left, up to about ``limit`` bytes of file.

        Only a saving: with no space left it is given up, and the next record says whether it fits.
        """
        if not self._ahead or self._allocated - self.end >= AHEAD_BYTES // 4 or self._allocated >= limit:
            return
        doing = "writing"
        try:
            written = write_fully(self._file, self._allocated, [_ZEROS])
            doing = "syncing"
            self._file.sync_data()
        except OSError as error:
            if not is_full(error):
                raise disk_failure(error, doing, self.path) from error
            self._ahead = False
            self._cut()
            self._allocated = self.end
            return
        self._allocated += written

    def finish(self) -> None:
        """Give back the space written in advance: a segment that is followed by another ends exactly."""
        try:
            self._file.truncate(self.end)
            self._file.sync()
        except OSError as error:
            raise disk_failure(error, "finishing", self.path) from error

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()

    def _cut(self) -> None:
        # Best effort: if the cut fails too, the next recovery makes it.
        with contextlib.suppress(OSError):
            self._file.truncate(self.end)
            self._file.sync()


def open_segment(disk: Disk, path: Path, header: SegmentHeader, end: int) -> ActiveSegment:
    try:
        return ActiveSegment(disk.open(path, create=False), path, header, end)
    except OSError as error:
        raise disk_failure(error, "opening", path) from error


def roll(disk: Disk, active: ActiveSegment, salt: bytes) -> ActiveSegment:
    """Finish a segment and go on in a new one (S14): new file, its name, the manifest, then use."""
    active.finish()
    directory = active.path.parent
    header = SegmentHeader(active.header.number + 1, active.end, salt, active.header.instance)
    path = create_segment(disk, directory, header)
    write_manifest(disk, directory, header.instance, header.number)
    following = open_segment(disk, path, header, HEADER_BYTES)
    active.close()
    return following


def clear_temporaries(disk: Disk, directory: Path) -> None:
    """Remove what a crash left half made. Nothing with such a name has ever been used."""
    try:
        leftovers = [name for name in disk.list_directory(directory) if name.endswith(TEMPORARY)]
        for name in leftovers:
            disk.unlink(directory / name)
    except OSError as error:
        raise disk_failure(error, "tidying", directory) from error
