"""The files a log is made of.

``log/`` holds segments named by number, ``0000000000000001.log`` and on. A segment begins with a sector
of its own of 512 bytes, big-endian::

    magic "fenceplg" | version u16 | header bytes u16 | number u64 | previous end u64 |
    salt 16 bytes | instance id 16 bytes |
    term u64 | last index u64 | last term u64 | commit index u64 | vote length u8, vote |
    zeros | CRC-32C u32 of all before it

"Previous end" is where the segment before it ends: a segment that lost its tail is seen even if the
loss falls between two records. The line with term and vote is the log as the segments before this one
leave it: a check on them while they are there, and what takes their place when they were deleted.
Version 1 has zeros there. Space behind the last record is written in advance with zeros, which
are never a record: a sync that does not change the size of a file costs about half. Or a segment is made
of an old one (``spare``) and has old records there, which are none under its salt. Then a sector of zeros,
the *end mark*, is written behind each record and is overwritten by the next.

A segment gets its name only when its header is synced, and is used only when its name and then the
manifest are (``chain``, S14). So a named segment without an intact header is damage, whatever its place.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import google_crc32c

from ..raft.core.entry import HardState
from .disk import Disk, File, write_fully
from .failures import corrupt, disk_failure, format_unknown, is_full
from .records import SECTOR_BYTES, encode_record, salt_seed
from .standing import LogState
from .statefiles import TEMPORARY, write_new_file

MAGIC = b"fenceplg"
VERSION = 2
SUFFIX = ".log"

DEFAULT_SEGMENT_BYTES = 64 << 20
AHEAD_BYTES = 1 << 20
"""How much is written in advance at a time; again when less than a quarter of it is left."""

VOTE_BYTES_MAX = 255

_HEADER = Struct(">8sHHQQ16s16s")
_STATE = Struct(">QQQQB")
_CHECK = Struct(">I")
HEADER_BYTES = SECTOR_BYTES
_CHECKED_BYTES = HEADER_BYTES - _CHECK.size
_ZEROS = bytes(AHEAD_BYTES)
_END_MARK = bytes(SECTOR_BYTES)


class SegmentHeader(NamedTuple):
    number: int
    previous_end: int
    """Bytes of the segment before this one; 0 for the first."""
    salt: bytes
    instance: bytes
    """The directory's instance id: a segment of another node is not taken for ours."""
    state: LogState | None
    """The log where this segment begins; None in one of version 1, which does not say."""

    @property
    def seed(self) -> int:
        return salt_seed(self.salt)


def zeros_ahead(most: int) -> bytes:
    """The next zeros to write in advance, at most so many."""
    return _ZEROS[:most]


def end_mark(end: int, size: int) -> bytes:
    """What goes behind a record that ends at ``end`` of a file of ``size`` bytes of old records."""
    return _END_MARK if end < size else b""


def segment_name(number: int) -> str:
    return f"{number:016d}{SUFFIX}"


def segment_number(name: str) -> int | None:
    """The number in a segment's name; None if it is not one."""
    stem = name.removesuffix(SUFFIX)
    if stem == name or len(stem) != 16 or not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem)


def encode_segment_header(header: SegmentHeader) -> bytes:
    version = 1 if header.state is None else VERSION
    start = _HEADER.pack(MAGIC, version, HEADER_BYTES, header.number, header.previous_end, header.salt, header.instance)
    if header.state is not None:
        (term, voted_for), last_index, last_term, commit_index = header.state
        vote = voted_for.encode()
        if len(vote) > VOTE_BYTES_MAX:
            raise ValueError(f"a node id of {len(vote)} bytes is over the limit of {VOTE_BYTES_MAX}")
        start += _STATE.pack(term, last_index, last_term, commit_index, len(vote)) + vote
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
    if version == 0 or google_crc32c.value(data[:_CHECKED_BYTES]) != check:
        raise corrupt(path, 0, index, "the header's checksum is wrong")
    return SegmentHeader(number, previous_end, salt, instance, _decode_state(data) if version > 1 else None)


def _decode_state(data: bytes) -> LogState:
    term, last_index, last_term, commit_index, length = _STATE.unpack_from(data, _HEADER.size)
    start = _HEADER.size + _STATE.size
    return LogState(HardState(term, data[start : start + length].decode()), last_index, last_term, commit_index)


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


class ActiveSegment:
    """The last segment, open for appending. Used by one thread at a time.

    ``end`` is where the next record goes; everything before it is synced.
    """

    def __init__(
        self,
        file: File,
        path: Path,
        header: SegmentHeader,
        end: int,
        *,
        allocated: int = 0,
        recycled: bool = False,
    ) -> None:
        """``allocated``: how long the file is already; ``recycled``: with old records, and not with zeros."""
        self._file = file
        self.path = path
        self.header = header
        self.end = end
        self._seed = header.seed
        self._allocated = max(end, allocated)
        self._old_bytes = allocated if recycled else 0
        self._ahead = True
        self.refused = False
        """The last record found no room and nothing of it is left: it may be tried again."""

    def append(self, kind: int, *body: bytes) -> None:
        """Write one record, whose body may be in pieces, and sync it: durable when this returns.

        Raises StorageError, for good; only where ``refused`` says so may it be tried again.
        """
        end = self.end
        record = encode_record(self._seed, end, kind, *body)
        mark = end_mark(end + sum(map(len, record)), self._old_bytes)
        record.append(mark)
        doing = "writing"
        try:
            written = write_fully(self._file, end, record)
            doing = "syncing"
            self._file.sync_data()
        except OSError as error:
            # Half a record must not stay where another could be put behind it (S11). After a failed
            # *sync* the whole record may be on disk, and what is there is for recovery to say (S12).
            if doing == "writing" or is_full(error):
                self.refused = self._cut() and doing == "writing" and is_full(error)
            raise disk_failure(error, doing, self.path) from error
        self.refused = False
        self.end = end + written - len(mark)
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
            # A sync that failed has lost something of this file, even for want of space, and a later one
            # would succeed over the hole (S12). Only a write that found no room has left everything as it was.
            if doing == "syncing" or not is_full(error):
                raise disk_failure(error, doing, self.path) from error
            self._ahead = False
            self._cut()
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

    def _cut(self) -> bool:
        """Nothing is left behind the last record; whether that is certain. If not, the next recovery cuts."""
        try:
            self._file.truncate(self.end)
            self._file.sync()
        except OSError:
            return False
        self._allocated, self._old_bytes = self.end, 0
        return True


def open_segment(disk: Disk, path: Path, header: SegmentHeader, end: int) -> ActiveSegment:
    try:
        return ActiveSegment(disk.open(path, create=False), path, header, end)
    except OSError as error:
        raise disk_failure(error, "opening", path) from error


def clear_temporaries(disk: Disk, directory: Path) -> None:
    """Remove what a crash left half made. Nothing with such a name has ever been used."""
    try:
        leftovers = [name for name in disk.list_directory(directory) if name.endswith(TEMPORARY)]
        for name in leftovers:
            disk.unlink(directory / name)
    except OSError as error:
        raise disk_failure(error, "tidying", directory) from error
