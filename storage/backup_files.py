"""A saved snapshot, outside of every data directory: one file that says whose it is and of which moment.

The file is a header and the contents of a snapshot as they are. The header, big-endian, is padded with
zeros to a multiple of 512 bytes::

    magic "fencebak" | version u16 | header bytes u32 | length u32, body | zeros | CRC-32C u32 of all before it

The body is a msgpack map (:class:`BackupLabel`). Size and checksum of the contents are known only behind
the last of them, so the header is written last; until then its place holds zeros, which are no header.
The file gets its name when all of it is synced, so what has the name is whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import google_crc32c
import msgpack

from ..raft.core.configuration import decode_configuration, encode_configuration
from ..raft.core.entry import Snapshot
from ..raft.core.errors import (
    NotFound,
    SnapshotDamaged,
    SnapshotExists,
    SnapshotForeign,
    StorageFormatUnknown,
    UnknownEntry,
)
from .disk import Disk, write_fully
from .failures import disk_failure
from .records import SECTOR_BYTES
from .statefiles import TEMPORARY, create_anew

MAGIC = b"fencebak"
VERSION = 1
READ_BYTES = 1 << 20
HEADER_BYTES_MAX = 1 << 24
"""Far above any configuration; a longer one is damage, and not read into memory."""

_START = Struct(">8sHII")
_CHECK = Struct(">I")
_LARGEST = (1 << 64) - 1
"""Takes as much room in a body as any number can."""


class BackupLabel(NamedTuple):
    """What a saved snapshot says of itself."""

    cluster_id: str
    incarnation: int
    """Of the cluster it was saved from. Whoever restores it goes on with a higher one."""
    node_id: str
    """The node that gave it."""
    program: str
    """The version of fencepost that saved it."""
    saved_ns: int
    """Wall clock where it was saved, nanoseconds since the Unix epoch; for people."""
    snapshot: Snapshot


class BackupFile(NamedTuple):
    path: Path
    label: BackupLabel
    contents_at: int
    """Where the contents begin, bytes."""


# -- header -----------------------------------------------------------------------------------------


def _body(label: BackupLabel) -> bytes:
    snapshot = label.snapshot
    packed: bytes = msgpack.packb(
        {
            "cluster_id": label.cluster_id,
            "incarnation": label.incarnation,
            "node_id": label.node_id,
            "program": label.program,
            "saved_ns": label.saved_ns,
            "last_index": snapshot.last_index,
            "last_term": snapshot.last_term,
            "last_time_ns": snapshot.last_time_ns,
            "configuration": encode_configuration(snapshot.configuration),
            "configuration_index": snapshot.configuration_index,
            "size_bytes": snapshot.size_bytes,
            "checksum": snapshot.checksum,
        }
    )
    return packed


def _header_bytes(label: BackupLabel) -> int:
    """How long the header is made: enough for whatever size and checksum turn out to be."""
    largest = label._replace(snapshot=label.snapshot._replace(size_bytes=_LARGEST, checksum=_LARGEST))
    needed = _START.size + len(_body(largest)) + _CHECK.size
    return needed + -needed % SECTOR_BYTES


def encode_backup_header(label: BackupLabel) -> bytes:
    body, length = _body(label), _header_bytes(label)
    start = (_START.pack(MAGIC, VERSION, length, len(body)) + body).ljust(length - _CHECK.size, b"\0")
    return start + _CHECK.pack(google_crc32c.value(start))


def read_backup(disk: Disk, path: Path) -> BackupFile:
    """The label of a saved snapshot; its contents are not looked at.

    Raises NotFound, SnapshotForeign, SnapshotDamaged, StorageFormatUnknown, StorageError.
    """
    data = _read(disk, path, 0, SECTOR_BYTES)
    if not data.startswith(MAGIC):
        raise SnapshotForeign(
            f"{path} is no saved snapshot: it does not begin like one",
            next_step="name a file that `fencepost snapshot save` has written",
        )
    # Before length and checksum: a newer version may have another layout behind these two fields.
    version = int.from_bytes(data[8:10], "big")
    if version > VERSION:
        raise StorageFormatUnknown(
            f"{path}: it has format {version} and this program reads up to {VERSION}; nothing was changed",
            next_step="use the version of fencepost that saved it, or a newer one",
        )
    if len(data) < SECTOR_BYTES or version == 0:
        raise damaged(path, "it is shorter than a header, or has no version")
    _, _, length, body_length = _START.unpack_from(data)
    if not SECTOR_BYTES <= length <= HEADER_BYTES_MAX or length % SECTOR_BYTES:
        raise damaged(path, "the length of its header is wrong")
    if length > len(data):
        data = _read(disk, path, 0, length)
    (check,) = _CHECK.unpack_from(data.ljust(length, b"\0"), length - _CHECK.size)
    if len(data) != length or google_crc32c.value(data[: -_CHECK.size]) != check:
        raise damaged(path, "the checksum of its header is wrong")
    return BackupFile(path, _label(path, data[_START.size : _START.size + body_length]), length)


def _label(path: Path, body: bytes) -> BackupLabel:
    try:
        found: dict[str, Any] = msgpack.unpackb(body, use_list=False, strict_map_key=True)
        configuration = decode_configuration(found["configuration"])
        snapshot = Snapshot(
            int(found["last_index"]),
            int(found["last_term"]),
            int(found["last_time_ns"]),
            configuration,
            int(found["configuration_index"]),
            int(found["size_bytes"]),
            int(found["checksum"]),
        )
        texts = [str(found[name]) for name in ("cluster_id", "node_id", "program")]
        return BackupLabel(texts[0], int(found["incarnation"]), texts[1], texts[2], int(found["saved_ns"]), snapshot)
    except UnknownEntry as error:
        raise StorageFormatUnknown(f"{path}: {error.message}", next_step=error.next_step) from error
    except (KeyError, TypeError, ValueError, AttributeError, msgpack.UnpackException) as error:
        raise damaged(path, f"its header cannot be read ({error!r})") from error


# -- contents ---------------------------------------------------------------------------------------


def backup_contents(disk: Disk, file: BackupFile) -> Iterator[bytes]:
    """The contents in parts; the last one only if size and checksum of all of them are right.

    Raises SnapshotDamaged, StorageError, NotFound.
    """
    snapshot = file.label.snapshot
    check = 0
    held: bytes | None = None
    for offset in range(0, snapshot.size_bytes, READ_BYTES):
        wanted = min(READ_BYTES, snapshot.size_bytes - offset)
        data = _read(disk, file.path, file.contents_at + offset, wanted)
        if len(data) != wanted:
            raise damaged(file.path, f"it ends before its {snapshot.size_bytes} bytes of contents")
        check = google_crc32c.extend(check, data)
        if held is not None:
            yield held
        held = data
    if check != snapshot.checksum:
        raise damaged(file.path, "the checksum of its contents is wrong")
    if _read(disk, file.path, file.contents_at + snapshot.size_bytes, 1):
        raise damaged(file.path, f"it is longer than its {snapshot.size_bytes} bytes of contents")
    if held is not None:
        yield held


def _read(disk: Disk, path: Path, offset: int, length: int) -> bytes:
    try:
        return disk.read_at(path, offset, length)
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {path}", next_step="check the path") from error
    except OSError as error:
        raise disk_failure(error, "reading", path) from error


def damaged(path: Path, what: str) -> SnapshotDamaged:
    return SnapshotDamaged(
        f"{path} is damaged: {what}; nothing was changed",
        next_step="use another copy of it, or an older one: fencepost snapshot inspect FILE",
    )


# -- writing ----------------------------------------------------------------------------------------


class BackupDraft:
    """A snapshot that is being saved, under a name beside ``path``. Used by one thread at a time.

    Nothing has the name ``path`` before all of it is durable. Every method raises StorageFull or
    StorageError, :meth:`publish` also SnapshotExists.
    """

    def __init__(self, disk: Disk, path: Path, label: BackupLabel, *, overwrite: bool = False) -> None:
        self._disk = disk
        self._path = path
        self._temporary = path.with_name(path.name + TEMPORARY)
        self._label = label
        self._overwrite = overwrite
        self._contents_at = _header_bytes(label)
        self._size_bytes = 0
        self._checksum = 0
        self._ours = True
        refuse_existing(disk, path, overwrite=overwrite)
        try:
            self._file = create_anew(disk, self._temporary)
        except OSError as error:
            raise disk_failure(error, "creating", self._temporary) from error

    def append(self, data: bytes) -> None:
        try:
            write_fully(self._file, self._contents_at + self._size_bytes, [data])
        except OSError as error:
            raise disk_failure(error, "writing", self._temporary) from error
        self._size_bytes += len(data)
        self._checksum = int(google_crc32c.extend(self._checksum, data))

    def publish(self) -> BackupFile:
        """Header, sync, name, sync of the folder, in this order (S14)."""
        snapshot = self._label.snapshot._replace(size_bytes=self._size_bytes, checksum=self._checksum)
        label = self._label._replace(snapshot=snapshot)
        doing, place = "writing", self._temporary
        try:
            write_fully(self._file, 0, [encode_backup_header(label)])
            doing = "syncing"
            self._file.sync()
            self._file.close()
            # Once more: it may have come while this one was written.
            refuse_existing(self._disk, self._path, overwrite=self._overwrite)
            self._check_ours(label)
            doing, place = "naming", self._path
            self._disk.rename(self._temporary, self._path)
            self._disk.sync_directory(self._path.parent)
        except OSError as error:
            raise disk_failure(error, doing, place) from error
        return BackupFile(self._path, label, self._contents_at)

    def _check_ours(self, label: BackupLabel) -> None:
        """Who saves under this name as well took what was there for a leftover, and its own may be half written."""
        try:
            self._ours = read_backup(self._disk, self._temporary).label == label
        except (NotFound, SnapshotForeign, SnapshotDamaged, StorageFormatUnknown):
            self._ours = False
        if not self._ours:
            raise SnapshotExists(
                f"{self._path} is being saved by another process as well; what this one saved is gone",
                next_step="wait for the other one, or name another file",
            )

    def discard(self) -> None:
        """Leave nothing of it. Best effort: what stays has another name, and goes with the next one."""
        with contextlib.suppress(OSError):
            self._file.close()
        if self._ours:
            with contextlib.suppress(OSError):
                self._disk.unlink(self._temporary)


def refuse_existing(disk: Disk, path: Path, *, overwrite: bool) -> None:
    """Raises SnapshotExists where something has the name and is not to be replaced, StorageError for no folder."""
    try:
        names = disk.list_directory(path.parent)
    except OSError as error:
        raise disk_failure(error, "listing", path.parent) from error
    if path.name in names and not overwrite:
        raise SnapshotExists(f"{path} exists; nothing was written", next_step="name another file, or add --force")
