"""Small files that are replaced as a whole: checksummed, and either old or new after any crash.

Layout, big-endian: magic ``fencepst``, version u16, body length u32, body (msgpack), CRC-32C u32.
The checksum also covers the file's kind, so that one state file cannot pass for another. The version
is that of the kind: each goes its own way.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Any

import google_crc32c
import msgpack

from .disk import Disk, File, write_fully
from .failures import corrupt_file, disk_failure, format_unknown

MAGIC = b"fencepst"
VERSION = 1
TEMPORARY = ".tmp"

_HEADER = Struct(">8sHI")
_CHECK = Struct(">I")


def encode_state(kind: str, body: dict[str, Any], version: int = VERSION) -> bytes:
    packed: bytes = msgpack.packb(body)
    start = _HEADER.pack(MAGIC, version, len(packed)) + packed
    return start + _CHECK.pack(google_crc32c.value(kind.encode() + start))


def decode_state(path: Path, kind: str, data: bytes, newest: int = VERSION) -> dict[str, Any]:
    """The body of a state file of this kind. ``newest``: the highest version of it that is known.

    Raises StorageFormatUnknown for a newer version, StorageCorrupt for anything else that is wrong.
    """
    if len(data) < _HEADER.size + _CHECK.size:
        raise corrupt_file(path, f"{len(data)} bytes are too few")
    magic, version, length = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise corrupt_file(path, "it does not begin like a file of fencepost")
    # Before the checksum: a newer version may have another layout behind these two fields.
    if version > newest:
        raise format_unknown(path, f"it has format {version} and this program reads up to {newest}")
    if version == 0 or len(data) != _HEADER.size + length + _CHECK.size:
        raise corrupt_file(path, "its length or version is wrong")
    (check,) = _CHECK.unpack_from(data, len(data) - _CHECK.size)
    if google_crc32c.value(kind.encode() + data[: -_CHECK.size]) != check:
        raise corrupt_file(path, "its checksum is wrong")
    body = msgpack.unpackb(data[_HEADER.size : -_CHECK.size], use_list=False, strict_map_key=True)
    if not isinstance(body, dict):
        raise corrupt_file(path, "its body is not a table")
    return body


def read_state(disk: Disk, path: Path, kind: str, newest: int = VERSION) -> dict[str, Any]:
    """Read and check a state file. FileNotFoundError is left to the caller, who knows what it means."""
    try:
        data = disk.read(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise disk_failure(error, "reading", path) from error
    return decode_state(path, kind, data, newest)


def write_state(disk: Disk, path: Path, kind: str, body: dict[str, Any], version: int = VERSION) -> None:
    """Replace a state file; durable when this returns, and never half (S04, S14).

    The order is the whole point: content synced, then the name moved, then the directory synced.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        write_new_file(disk, temporary, encode_state(kind, body, version))
        disk.rename(temporary, path)
        disk.sync_directory(path.parent)
    except OSError as error:
        raise disk_failure(error, "writing", path) from error


def write_new_file(disk: Disk, path: Path, content: bytes) -> None:
    """Make a file with this content and sync it. A leftover of the same name is replaced."""
    file = create_anew(disk, path)
    try:
        write_fully(file, 0, [content])
        file.sync()
    finally:
        file.close()


def create_anew(disk: Disk, path: Path) -> File:
    """An empty file, open for writing, in the place of a leftover of the same name."""
    try:
        return disk.open(path, create=True)
    except FileExistsError:
        disk.unlink(path)
        return disk.open(path, create=True)
