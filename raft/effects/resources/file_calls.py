"""What a file resource asks of the operating system, one call a method, so that tests can stop it between any two."""

from __future__ import annotations

import fcntl
import os

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Calls:
    """All raise OSError. ``at`` is a folder's descriptor that a path is relative to."""

    def mkdir(self, path: str, at: int | None = None) -> None:
        os.mkdir(path, 0o777, dir_fd=at)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rename(self, old: str, new: str, at: int | None = None) -> None:
        """``at`` is where ``new`` is; ``old`` is relative to nothing."""
        os.rename(old, new, dst_dir_fd=at)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write(self, path: str, data: bytes) -> None:
        """Make or replace a file of our own, and sync it."""
        with open(path, "wb", buffering=0) as file:
            _write_all(file.fileno(), data, 0)
            os.fsync(file.fileno())

    def append(self, path: str, data: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)

    def write_at(self, name: str, offset: int, data: bytes, at: int) -> None:
        """Put ``data`` at ``offset`` of a file, made if need be, and sync it. Raises OSError where it is too short."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o666, dir_fd=at)
        try:
            size = os.fstat(descriptor).st_size
            if size < offset:
                raise OSError(f"it holds {size} bytes and should hold {offset}")
            _write_all(descriptor, data, offset)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_folder(self, path: str) -> None:
        descriptor = self.open_folder(path)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def open_folder(self, path: str, at: int | None = None) -> int:
        """Follows no link."""
        return os.open(path, DIRECTORY, dir_fd=at)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def lock(self, path: str) -> int:
        """Take an advisory lock, without waiting, until the descriptor is closed. Raises BlockingIOError."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written
