"""The file operations that storage uses, as a Protocol, and the real ones.

Nothing else in storage opens, writes, syncs or names a file, so that a simulated disk that loses
what was not synced can take the place of the real one. The set is narrow on purpose: every
operation in it has to be given a meaning under power loss.

Every method raises :class:`OSError` as the operating system gave it. None retries: after a failed
sync the kernel may call the lost pages clean, and a second sync would succeed over a hole (S12).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Sequence
from errno import EIO
from pathlib import Path
from typing import Protocol

Buffer = bytes | memoryview


class File(Protocol):
    """An open regular file. Offsets and sizes are bytes."""

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> int:
        """Write the buffers one after another; how many bytes were taken, which may be fewer."""

    def sync_data(self) -> None:
        """Make the bytes durable, and the size if it grew (``fdatasync``)."""

    def sync(self) -> None:
        """Make bytes and all metadata durable, a cut included (``fsync``)."""

    def truncate(self, size: int) -> None: ...

    def drop_cache(self) -> None:
        """Forget clean cached pages, so that the next read comes from the medium. A hint."""

    def close(self) -> None: ...


class Lock(Protocol):
    """An exclusive lock, held until released or until the process ends."""

    def release(self) -> None: ...


class Disk(Protocol):
    def list_directory(self, path: Path) -> list[str]:
        """Names in a directory, in no order. FileNotFoundError if there is no such directory."""

    def make_directory(self, path: Path) -> None:
        """Make one directory. Its name is durable only after a sync of its parent."""

    def sync_directory(self, path: Path) -> None:
        """Make created, renamed and removed names in ``path`` durable (S14)."""

    def read(self, path: Path) -> bytes: ...

    def read_at(self, path: Path, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset`` on; fewer only where the file ends."""

    def size(self, path: Path) -> int:
        """Bytes of a file."""

    def free_bytes(self, path: Path) -> int:
        """How many bytes can still be written to the file system that ``path`` is on, as far as it knows."""

    def open(self, path: Path, *, create: bool) -> File:
        """Open for writing. With ``create`` the file must not exist, without it it must."""

    def rename(self, source: Path, target: Path) -> None:
        """Atomically replace ``target`` by ``source``."""

    def unlink(self, path: Path) -> None: ...

    def lock(self, path: Path, note: str) -> Lock:
        """Lock the file, made if missing, and leave ``note`` in it. BlockingIOError if it is held."""


def write_fully(file: File, offset: int, buffers: Sequence[Buffer]) -> int:
    """Write all of the buffers, through short writes; how many bytes that were (S13).

    A write that takes nothing and reports no error is an error, not a reason to loop.
    """
    total = sum(map(len, buffers))
    written = file.write_at(offset, buffers)
    while written < total:
        step = file.write_at(offset + written, _behind(buffers, written))
        if step <= 0:
            raise OSError(EIO, "a write took no bytes")
        written += step
    return written


def _behind(buffers: Sequence[Buffer], written: int) -> list[Buffer]:
    """What is left of the buffers when so many bytes of them are written. Copies nothing."""
    for number, buffer in enumerate(buffers):
        if written < len(buffer):
            return [memoryview(buffer)[written:], *buffers[number + 1 :]]
        written -= len(buffer)
    return []


class RealFile:
    """:class:`File` over a descriptor. Python's own buffers are nowhere on the way (S13)."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> int:
        return os.pwritev(self._descriptor, buffers, offset)

    def sync_data(self) -> None:
        os.fdatasync(self._descriptor)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def drop_cache(self) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        os.close(self._descriptor)


class RealLock:
    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        # The file stays: were it removed, a second opener could lock the removed one and a third
        # a new one, side by side.
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RealDisk:
    """:class:`Disk` of the operating system."""

    def list_directory(self, path: Path) -> list[str]:
        return os.listdir(path)

    def make_directory(self, path: Path) -> None:
        os.mkdir(path, 0o750)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def read_at(self, path: Path, offset: int, length: int) -> bytes:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            data = os.pread(descriptor, length, offset)
            while len(data) < length and (more := os.pread(descriptor, length - len(data), offset + len(data))):
                data += more
            return data
        finally:
            os.close(descriptor)

    def size(self, path: Path) -> int:
        return os.stat(path).st_size

    def free_bytes(self, path: Path) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def open(self, path: Path, *, create: bool) -> File:
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        return RealFile(os.open(path, flags, 0o640))

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def lock(self, path: Path, note: str) -> Lock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            # flock and not fcntl's record locks: those vanish when any descriptor of the file is
            # closed anywhere in the process, and do not keep out a second open of one process.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The note is for people: a disk without room for it keeps nobody out.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, note.encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        return RealLock(descriptor)
