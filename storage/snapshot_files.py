"""How one snapshot lies on disk: its name, its header, and a file that has no name yet.

A snapshot is named by what it is of, ``0000000000000042-0000000000000003.snapshot``: last index and
last term. Its file is a header and the contents as they are. The header, big-endian, is padded with
zeros to a multiple of 512 bytes::

    magic "fencesnp" | version u16 | group u32 | header bytes u32 | incarnation u64 | instance id 16 bytes |
    last index u64 | last term u64 | last time ns u64 | configuration index u64 |
    size u64 | CRC-32C of the contents u32 | length u32, configuration |
    zeros | CRC-32C u32 of all before it

Size and checksum are known only behind the last of the contents, so the header is written last. Until
then its place holds zeros, which are no header; and the file gets its name when all of it is synced.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import google_crc32c

from ..raft.core.configuration import decode_configuration, encode_configuration
from ..raft.core.entry import Snapshot
from ..raft.core.errors import UnknownEntry
from .disk import Disk, write_fully
from .failures import corrupt_file, disk_failure, format_unknown
from .records import GROUP, SECTOR_BYTES
from .statefiles import create_anew

MAGIC = b"fencesnp"
VERSION = 1
SUFFIX = ".snapshot"

HEADER_BYTES_MAX = 1 << 24
"""Far above any configuration; a longer one is damage, and not read into memory."""

_HEADER = Struct(">8sHIIQ16sQQQQQII")
_CHECK = Struct(">I")


class Owner(NamedTuple):
    """Whose directory a snapshot file lies in."""

    instance: bytes
    """The directory's instance id: a file of another directory is not taken for ours."""
    incarnation: int


class SnapshotFile(NamedTuple):
    """A snapshot on disk. ``contents_at`` is where its contents begin, bytes."""

    path: Path
    label: Snapshot
    contents_at: int


# -- names ------------------------------------------------------------------------------------------


def snapshot_name(label: Snapshot) -> str:
    return f"{label.last_index:016d}-{label.last_term:016d}{SUFFIX}"


def snapshot_place(name: str) -> tuple[int, int] | None:
    """Last index and last term in a snapshot's name; None if it is not one."""
    index, dash, term = name.removesuffix(SUFFIX).partition("-")
    if not (name.endswith(SUFFIX) and dash and len(index) >= 16 and len(term) >= 16):
        return None
    if not all(part.isascii() and part.isdigit() for part in (index, term)):
        return None
    return int(index), int(term)


# -- header -----------------------------------------------------------------------------------------


def header_bytes(label: Snapshot) -> int:
    """How long the header of a snapshot with this label is. Size and checksum do not matter."""
    needed = _HEADER.size + len(encode_configuration(label.configuration)) + _CHECK.size
    return needed + -needed % SECTOR_BYTES


def encode_header(label: Snapshot, owner: Owner) -> bytes:
    configuration = encode_configuration(label.configuration)
    length = header_bytes(label)
    start = _HEADER.pack(
        MAGIC,
        VERSION,
        GROUP,
        length,
        owner.incarnation,
        owner.instance,
        label.last_index,
        label.last_term,
        label.last_time_ns,
        label.configuration_index,
        label.size_bytes,
        label.checksum,
        len(configuration),
    )
    start = (start + configuration).ljust(length - _CHECK.size, b"\0")
    return start + _CHECK.pack(google_crc32c.value(start))


def read_header(disk: Disk, path: Path, owner: Owner) -> SnapshotFile:
    """The snapshot in the file at ``path``, without a look at its contents.

    Raises StorageCorrupt, StorageFormatUnknown, StorageError; FileNotFoundError is left to the caller.
    """
    data = read_part(disk, path, 0, SECTOR_BYTES)
    if not data.startswith(MAGIC):
        raise corrupt_file(path, "it does not begin like a snapshot")
    # Before length and checksum: a newer version may have another layout behind these two fields.
    version = int.from_bytes(data[8:10], "big")
    if version > VERSION:
        raise format_unknown(path, f"it has format {version} and this program reads up to {VERSION}")
    if len(data) < SECTOR_BYTES:
        raise corrupt_file(path, "it is shorter than the header of a snapshot")
    length = int(_HEADER.unpack_from(data)[3])
    if version == 0 or not SECTOR_BYTES <= length <= HEADER_BYTES_MAX:
        raise corrupt_file(path, "the header's version or length is wrong")
    if length > len(data):
        data = read_part(disk, path, 0, length)
    return _decode_header(path, data, length, owner)


def _decode_header(path: Path, data: bytes, length: int, owner: Owner) -> SnapshotFile:
    (check,) = _CHECK.unpack_from(data.ljust(length, b"\0"), length - _CHECK.size)
    if len(data) != length or google_crc32c.value(data[: -_CHECK.size]) != check:
        raise corrupt_file(path, "the header's checksum is wrong")
    _, _, group, _, incarnation, instance, index, term, time_ns, configured_at, size, checksum, configuration_length = (
        _HEADER.unpack_from(data)
    )
    if group != GROUP:
        raise format_unknown(path, f"it is of group {group}")
    if instance != owner.instance or incarnation > owner.incarnation:
        raise corrupt_file(path, "it belongs to another data directory")
    try:
        configuration = decode_configuration(data[_HEADER.size : _HEADER.size + configuration_length])
    except UnknownEntry as error:
        raise format_unknown(path, error.message) from error
    label = Snapshot(index, term, time_ns, configuration, configured_at, size, checksum)
    if snapshot_place(path.name) != (index, term):
        raise corrupt_file(path, f"it is of index {index}, term {term} under the name of another")
    return SnapshotFile(path, label, length)


def read_part(disk: Disk, path: Path, offset: int, length: int) -> bytes:
    try:
        return disk.read_at(path, offset, length)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise disk_failure(error, "reading", path) from error


# -- writing ----------------------------------------------------------------------------------------


class Draft:
    """A snapshot that is being written, under a name that is none. Used by one thread at a time.

    Every method raises StorageError as the system gave it.
    """

    def __init__(self, disk: Disk, path: Path, label: Snapshot, owner: Owner) -> None:
        self.label = label
        self.size_bytes = 0
        """Of the contents, so far."""
        self.checksum = 0
        self._disk = disk
        self._path = path
        self._owner = owner
        self._contents_at = header_bytes(label)
        try:
            self._file = create_anew(disk, path)
        except OSError as error:
            raise disk_failure(error, "creating", path) from error

    def append(self, data: bytes) -> None:
        try:
            write_fully(self._file, self._contents_at + self.size_bytes, [data])
        except OSError as error:
            raise disk_failure(error, "writing", self._path) from error
        self.size_bytes += len(data)
        self.checksum = int(google_crc32c.extend(self.checksum, data))

    def publish(self) -> SnapshotFile:
        """Give it its name, in this order: contents and header, sync, name, sync of the directory (S14)."""
        label = self.label._replace(size_bytes=self.size_bytes, checksum=self.checksum)
        path = self._path.with_name(snapshot_name(label))
        doing, place = "writing", self._path
        try:
            write_fully(self._file, 0, [encode_header(label, self._owner)])
            doing = "syncing"
            self._file.sync()
            self._file.close()
            doing, place = "naming", path
            self._disk.rename(self._path, path)
            self._disk.sync_directory(path.parent)
        except OSError as error:
            raise disk_failure(error, doing, place) from error
        return SnapshotFile(path, label, self._contents_at)

    def discard(self) -> None:
        """Leave nothing of it. Best effort: what stays has no name that counts, and goes at the next open."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._disk.unlink(self._path)
