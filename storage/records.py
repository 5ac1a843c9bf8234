"""How one record is framed, and how damage is told from a torn tail.

A record is a 24-byte header, a body, and zeros up to the next multiple of 512 bytes. Numbers are
big-endian::

    magic "fpR1" | version u8 | type u8 | flags u16 | group u32 | length u32 | body crc u32 | header crc u32

``length`` is the body's; the body's checksum covers the zeros too. Because records begin and end with
a sector, a write that is not synced yet shares no sector with anything that is: however it is torn,
and if its sectors come back as zeros, the records before it are whole (S09).

The **header checksum** covers the segment's random salt, the record's offset in the file and the rest
of the header, the body's checksum among it. So bytes that look like a header count only in the one
place of the one file they were written for: a payload cannot pass for a record, not even a payload
that is a copy of a log (a chance of one in 2**32 a candidate remains). All-zero is never a record.

**One record is one sync.** The log store puts everything it makes durable together into one record
and begins the next only after the sync. So a header that is whole at some offset proves that
everything before it *had been synced*: damage before it is damage, and never a torn write, even if
the body behind that header is itself gone. Without such a header the damage can only be in the last
record, and counts as a torn write of it (S09, S10).

The limit of that rule: damage to the very last record of a log cannot be told from a torn write of
it. Recovery narrows it in two ways: a recorded commit index that the log no longer reaches is
damage, and every open, every clean close and every quiet second seals the log with a small record of
its own, after which the last record holds no entries.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

import google_crc32c

MAGIC = b"fpR1"
VERSION = 1
GROUP = 0
"""Many Raft groups may share a log one day; there is one now."""

MAX_BODY_BYTES = 1 << 30
"""A longer body is refused when it is written. Reading is bounded by the file's size anyway."""

SECTOR_BYTES = 512

_ZEROS = bytes(SECTOR_BYTES)
_HEADER = Struct(">4sBBHIIII")
_UNCHECKED = Struct(">4sBBHIII")
_CHECK = Struct(">I")
_OFFSET = Struct(">Q")
HEADER_BYTES = _HEADER.size


class RecordType(IntEnum):
    WRITES = 1
    """What one sync makes durable: a list of writes (``Persist``), in order."""
    SEAL = 2
    """Where the log stood at an open or a clean close."""


class Header(NamedTuple):
    version: int
    type: int
    flags: int
    group: int
    length: int
    body_check: int


class Record(NamedTuple):
    """A record as it was read. ``offset`` and ``end``, the padding included, are bytes in the file."""

    offset: int
    type: int
    body: bytes
    end: int


class UnknownRecord(Exception):
    """An intact record of a version, type or group that this program does not know."""


def salt_seed(salt: bytes) -> int:
    """The state from which every header checksum of a segment starts."""
    return int(google_crc32c.value(salt))


def encode_record(seed: int, offset: int, kind: int, *body: bytes) -> list[bytes]:
    """Header, body and padding of a record at ``offset`` of the segment with this seed.

    The body is in any number of pieces, which are neither copied nor joined.
    """
    length = sum(map(len, body))
    if length > MAX_BODY_BYTES:
        raise ValueError(f"a record of {length} bytes is over the limit of {MAX_BODY_BYTES}")
    padding = _ZEROS[: -(offset + HEADER_BYTES + length) % SECTOR_BYTES]
    body_check = 0
    for piece in (*body, padding):
        body_check = google_crc32c.extend(body_check, piece)
    start = _UNCHECKED.pack(MAGIC, VERSION, kind, 0, GROUP, length, body_check)
    check = google_crc32c.extend(seed, _OFFSET.pack(offset) + start)
    return [start + _CHECK.pack(check), *body, padding]


def header_at(data: bytes, seed: int, offset: int, base: int = 0) -> Header | None:
    """The header at ``offset`` if it is intact and was written for this place. ``data`` is the file from
    ``base`` on."""
    head = data[offset - base : offset - base + HEADER_BYTES]
    if len(head) < HEADER_BYTES or not head.startswith(MAGIC):
        return None
    _, version, kind, flags, group, length, body_check, check = _HEADER.unpack(head)
    if google_crc32c.extend(seed, _OFFSET.pack(offset) + head[:-4]) != check:
        return None
    return Header(version, kind, flags, group, length, body_check)


def record_at(data: bytes, seed: int, offset: int, base: int = 0) -> Record | None:
    """The record at ``offset``, or None if there is no intact one. ``data`` is the file from ``base`` on.

    Raises :class:`UnknownRecord` for an intact record of a newer version: that is not damage.
    """
    header = header_at(data, seed, offset, base)
    if header is None:
        return None
    if header.version != VERSION or header.group != GROUP or header.flags or header.type not in _TYPES:
        raise UnknownRecord(
            f"a record of version {header.version}, type {header.type}, group {header.group}, flags {header.flags}"
        )
    start = offset + HEADER_BYTES
    end = start + header.length
    end += -end % SECTOR_BYTES
    padded = data[start - base : end - base]
    if len(padded) != end - start or google_crc32c.value(padded) != header.body_check:
        return None
    return Record(offset, header.type, padded[: header.length], end)


def header_after(data: bytes, seed: int, offset: int) -> int | None:
    """Where the first intact header begins that is at or behind ``offset``.

    Only multiples of a sector are looked at. No other place can hold one: a checksum covers the
    offset it was made for, and that was a multiple. So the search is bounded, whatever the payloads
    imitate, and does not trust the length in a header that may be damaged.
    """
    for position in range(offset + -offset % SECTOR_BYTES, len(data), SECTOR_BYTES):
        if data.startswith(MAGIC, position) and header_at(data, seed, position) is not None:
            return position
    return None


def is_zero_from(data: bytes, offset: int) -> bool:
    """Whether only zeros are left: space written in advance, or size without content (S09)."""
    return data.count(0, offset) == len(data) - offset


def torn_bytes(data: bytes, seed: int, offset: int) -> int:
    """How much of a record there is at ``offset``. What follows may be older: the file had been used before."""
    if not any(data[offset : offset + SECTOR_BYTES]):
        return 0
    header = header_at(data, seed, offset)
    end = len(data) if header is None else offset + HEADER_BYTES + header.length
    return len(data[offset:end].rstrip(b"\0"))


_TYPES = frozenset(RecordType)
