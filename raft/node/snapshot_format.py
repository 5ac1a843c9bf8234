"""The contents of a node's snapshot: the chunks of every state machine, one machine after another.

::

    head     magic, version, how many machines, their entry kinds
    chunk    "M", entry kind, length, bytes of that machine        any number, in the head's order
    tail     "T", how many chunks, digest of everything before it

What is inside a chunk is its machine's own business, with a version of its own. A reader gets the bytes
cut at any place: they have been on a disk and on the wire in between.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from ..core.errors import StorageCorrupt, StorageFormatUnknown

T = TypeVar("T")

FORMAT_VERSION = 1

_MAGIC = b"fencepsn"
_HEAD = struct.Struct(">8sHH")
"""Magic, version, how many machines."""
_KIND = struct.Struct(">I")
_CHUNK = struct.Struct(">cII")
"""Type, entry kind, length."""
_TAIL = struct.Struct(">cQ16s")
"""Type, how many chunks, digest."""
_CHUNK_TYPE = b"M"
_TAIL_TYPE = b"T"
_DIGEST_BYTES = 16


def encode_snapshot(machines: Sequence[tuple[int, Iterable[bytes]]]) -> Iterator[bytes]:
    """The contents, from what the machine of each entry kind gave. Draws nothing before it is drawn itself."""
    hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    head = _HEAD.pack(_MAGIC, FORMAT_VERSION, len(machines)) + b"".join(_KIND.pack(kind) for kind, _ in machines)
    hasher.update(head)
    yield head
    count = 0
    for kind, chunks in machines:
        for chunk in chunks:
            piece = _CHUNK.pack(_CHUNK_TYPE, kind, len(chunk)) + chunk
            hasher.update(piece)
            count += 1
            yield piece
    yield _TAIL.pack(_TAIL_TYPE, count, hasher.digest())


def decode_snapshot(contents: Iterable[bytes], readers: Mapping[int, Callable[[Iterator[bytes]], T]]) -> dict[int, T]:
    """What each reader made of its machine's chunks, by entry kind. Verified as a whole when it returns.

    Raises :class:`StorageCorrupt`, or :class:`StorageFormatUnknown` for a newer version and for machines
    that are not those of ``readers``; and what a reader raises.
    """
    source = _Source(contents)
    kinds = _read_head(source)
    if sorted(kinds) != sorted(readers):
        raise StorageFormatUnknown(
            f"snapshot of the machines for entry kinds {kinds}; this version has those for {sorted(readers)}",
            next_step="install the version that wrote it",
        )
    chunks = _Chunks(source)
    made: dict[int, T] = {}
    for kind in kinds:
        section = chunks.of(kind)
        made[kind] = readers[kind](section)
        if next(section, None) is not None:
            raise _corrupt(f"more chunks for entry kind {kind} than its machine reads")
    chunks.check_tail()
    return made


def _read_head(source: _Source) -> list[int]:
    head = source.take(_HEAD.size)
    magic, version, count = _HEAD.unpack(head)
    if magic != _MAGIC:
        raise _corrupt("it does not start with a head")
    if version != FORMAT_VERSION:
        raise StorageFormatUnknown(
            f"node snapshot of format {version}; this version reads {FORMAT_VERSION}",
            next_step="install the version that wrote it",
        )
    kinds = [int(kind) for (kind,) in _KIND.iter_unpack(source.take(count * _KIND.size))]
    if len(set(kinds)) != count:
        raise _corrupt(f"its head names a machine twice: {kinds}")
    return kinds


class _Chunks:
    """The chunks in order, with the next one looked at before it is given out."""

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._count = 0
        self._next: tuple[int, bytes] | None = self._read()

    def of(self, kind: int) -> Iterator[bytes]:
        while self._next is not None and self._next[0] == kind:
            chunk = self._next[1]
            self._next = self._read()
            yield chunk

    def _read(self) -> tuple[int, bytes] | None:
        """The next chunk; None at the tail, whose type has not been taken then."""
        if self._source.peek() == _TAIL_TYPE:
            return None
        kind_of_piece, kind, length = _CHUNK.unpack(self._source.take(_CHUNK.size))
        if kind_of_piece != _CHUNK_TYPE:
            raise _corrupt(f"a piece of type {kind_of_piece!r}")
        self._count += 1
        return int(kind), self._source.take(length)

    def check_tail(self) -> None:
        if self._next is not None:
            raise _corrupt(f"a chunk for entry kind {self._next[0]} out of its place")
        digest = self._source.digest()
        _, count, expected = _TAIL.unpack(self._source.take(_TAIL.size))
        if digest != expected:
            raise _corrupt("its digest does not match")
        if count != self._count:
            raise _corrupt(f"{self._count} chunks, and its tail says {count}")
        if self._source.peek():
            raise _corrupt("bytes after its tail")


class _Source:
    """Bytes from pieces of any length, digested as they are taken."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._buffer = bytearray()
        self._at = 0
        self._hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES)

    def _fill(self, length: int) -> bool:
        """Whether so many bytes are there to be taken."""
        while len(self._buffer) - self._at < length:
            piece = next(self._pieces, None)
            if piece is None:
                return False
            del self._buffer[: self._at]
            self._at = 0
            self._buffer += piece
        return True

    def peek(self) -> bytes:
        """The next byte; empty at the end."""
        return bytes(self._buffer[self._at : self._at + 1]) if self._fill(1) else b""

    def take(self, length: int) -> bytes:
        if not self._fill(length):
            raise _corrupt("it ends before its tail")
        taken = bytes(memoryview(self._buffer)[self._at : self._at + length])
        self._at += length
        self._hasher.update(taken)
        return taken

    def digest(self) -> bytes:
        """Of everything taken so far."""
        return self._hasher.digest()


def _corrupt(what: str) -> StorageCorrupt:
    return StorageCorrupt(f"node snapshot is damaged: {what}", next_step="take the snapshot of another node")
