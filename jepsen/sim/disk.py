"""A disk in memory that keeps only what was synced, and fails where it is told to.

The same interface as the real one (:mod:`fencepost.storage.disk`), so the real stores run on it. It is
changed in place: by :meth:`SimDisk.kill` (the process died, the cache lives on) and by
:meth:`SimDisk.lose_power` (only what was synced is left, and of the rest what chance leaves).

Every operation that changes something is counted. At the one that :meth:`SimDisk.end_at` names the
process ends in the middle of what it does, which is how it is cut off within a write or a start.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from ...storage.disk import Buffer
from .agenda import ProcessEnded
from .inodes import Directory, Inode, NameChange, copy_tree, image_of

NO_LIMIT = 1 << 60


class SimDisk:
    """:class:`fencepost.storage.disk.Disk` of one node; it outlives the node's processes."""

    def __init__(self) -> None:
        self.operations = 0
        """Operations so far that change or read anything."""
        self.capacity_bytes = NO_LIMIT
        """Of all files together; a write takes what still fits (S11)."""
        self.write_bytes_max = NO_LIMIT
        """A write takes at most this many bytes at a time (S13)."""
        self.broken: dict[str, int] = {}
        """Operations that always fail, with their errno."""
        self._top = Directory()
        self._used_bytes = 0
        self._locked: dict[Path, None] = {}
        self._generation = 0
        """Raised with every end of a process: what that process had open is of no use any more."""
        self._calls: dict[str, int] = {}
        self._faults: dict[tuple[str, int], int] = {}
        self._end_at = 0
        self._on_end: Callable[[], None] = lambda: None

    # -- what the world does to it ------------------------------------------------------------------

    def fail(self, operation: str, nth: int = 1, code: int = errno.EIO) -> None:
        """Let the nth call from now on (1: the next) of ``operation``, a method's name, fail with an errno.

        A sync that fails calls its pages clean all the same: the next one succeeds over the hole (S12).
        """
        self._faults[operation, self._calls.get(operation, 0) + nth] = code

    def end_at(self, nth: int, on_end: Callable[[], None]) -> None:
        """End the process at the nth operation from now on (1: before the next one does anything).

        ``on_end`` is called first; then :class:`ProcessEnded` is raised out of the operation.
        """
        self._end_at = self.operations + nth
        self._on_end = on_end

    def never_mind_the_end(self) -> None:
        """Take back :meth:`end_at`."""
        self._end_at = 0

    def kill(self) -> None:
        """The process is gone, and with it its locks. What it wrote stays in the cache of the system."""
        self._generation += 1
        self._locked.clear()
        self._end_at = 0

    def lose_power(self, chance: Random | None) -> None:
        """Only what was synced is left. With ``chance``, of what was not synced some sectors, cuts and names."""
        self.kill()
        self._top = image_of(self._top, chance)
        self._used_bytes = self._count_bytes()

    def copy(self) -> SimDisk:
        """A backup of all files as they are now, as another disk."""
        disk = SimDisk()
        disk._top = copy_tree(self._top)
        disk._used_bytes = self._used_bytes
        return disk

    def restore(self, backup: SimDisk) -> None:
        """Put back what a backup holds, in place of everything."""
        self.kill()
        self._top = copy_tree(backup._top)
        self._used_bytes = backup._used_bytes

    def wipe(self) -> None:
        """A new, empty disk."""
        self.kill()
        self._top = Directory()
        self._used_bytes = 0

    def files(self) -> list[Path]:
        """Every file, in the order of their names."""

        def walk(path: Path, directory: Directory) -> list[Path]:
            found: list[Path] = []
            for name, child in sorted(directory.seen.items()):
                found += walk(path / name, child) if isinstance(child, Directory) else [path / name]
            return found

        return walk(Path("/"), self._top)

    def rot(self, path: Path, offset: int, mask: int = 0x40) -> None:
        """Flip bits of one byte, on the medium and in the cache: damage, not a write."""
        inode = self._inode(path)
        for content in (inode.cache, inode.medium):
            if offset < len(content):
                content[offset] ^= mask

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def capacity_left(self) -> int:
        return self.capacity_bytes - self._used_bytes

    # -- steps --------------------------------------------------------------------------------------

    def begin(self, operation: str) -> None:
        self.operations += 1
        if self.operations == self._end_at:
            self._on_end()
            raise ProcessEnded
        calls = self._calls
        calls[operation] = number = calls.get(operation, 0) + 1
        if self._faults or self.broken:
            code = self._faults.pop((operation, number), 0) or self.broken.get(operation, 0)
            if code:
                raise OSError(code, os.strerror(code))

    def grow(self, by: int) -> None:
        self._used_bytes += by

    def _count_bytes(self) -> int:
        return sum(len(self._inode(path).cache) for path in self.files())

    def _node(self, path: Path) -> Inode | Directory:
        node: Inode | Directory = self._top
        for part in path.parts[1:]:
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
            found = node.seen.get(part)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            node = found
        return node

    def _directory(self, path: Path) -> Directory:
        node = self._node(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
        return node

    def _inode(self, path: Path) -> Inode:
        node = self._node(path)
        if not isinstance(node, Inode):
            raise IsADirectoryError(errno.EISDIR, "a directory", str(path))
        return node

    # -- the Disk protocol --------------------------------------------------------------------------

    def list_directory(self, path: Path) -> list[str]:
        return list(self._directory(path).seen)

    def make_directory(self, path: Path) -> None:
        self.begin("make_directory")
        parent = self._directory(path.parent)
        if path.name in parent.seen:
            raise FileExistsError(errno.EEXIST, "exists", str(path))
        parent.change(NameChange(path.name, Directory()))

    def sync_directory(self, path: Path) -> None:
        directory = self._directory(path)
        try:
            self.begin("sync_directory")
        except OSError:
            directory.pending.clear()
            raise
        directory.synced = dict(directory.seen)
        directory.pending.clear()

    def read(self, path: Path) -> bytes:
        self.begin("read")
        return bytes(self._inode(path).cache)

    def read_at(self, path: Path, offset: int, length: int) -> bytes:
        self.begin("read_at")
        return bytes(self._inode(path).cache[offset : offset + length])

    def size(self, path: Path) -> int:
        return len(self._inode(path).cache)

    def free_bytes(self, path: Path) -> int:
        return max(0, self.capacity_left)

    def open(self, path: Path, *, create: bool) -> SimFile:
        if not create:
            return SimFile(self, self._inode(path), self._generation)
        self.begin("create")
        parent = self._directory(path.parent)
        if path.name in parent.seen:
            raise FileExistsError(errno.EEXIST, "exists", str(path))
        inode = Inode()
        parent.change(NameChange(path.name, inode))
        return SimFile(self, inode, self._generation)

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "only renames within one directory are modelled"
        self.begin("rename")
        parent = self._directory(source.parent)
        if source.name not in parent.seen:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(source))
        self._forget(parent.seen.get(target.name))
        parent.change(NameChange(target.name, parent.seen[source.name], gone=source.name))

    def unlink(self, path: Path) -> None:
        self.begin("unlink")
        parent = self._directory(path.parent)
        if path.name not in parent.seen:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        self._forget(parent.seen[path.name])
        parent.change(NameChange(path.name, None))

    def _forget(self, node: Inode | Directory | None) -> None:
        if isinstance(node, Inode):
            self._used_bytes -= len(node.cache)

    def lock(self, path: Path, note: str) -> SimLock:
        """The note is not kept: it names a process of the machine that the simulation runs on."""
        if path in self._locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", str(path))
        parent = self._directory(path.parent)
        if path.name not in parent.seen:
            parent.change(NameChange(path.name, Inode()))
        self._locked[path] = None
        return SimLock(self, path, self._generation)

    def release(self, path: Path, generation: int) -> None:
        if generation == self._generation:
            self._locked.pop(path, None)

    def check_alive(self, generation: int) -> None:
        if generation != self._generation:
            raise AssertionError("a process that has ended uses the disk")


class SimFile:
    """:class:`fencepost.storage.disk.File`, as one process has it open."""

    __slots__ = ("_disk", "_generation", "_inode")

    def __init__(self, disk: SimDisk, inode: Inode, generation: int) -> None:
        self._disk = disk
        self._inode = inode
        self._generation = generation

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> int:
        disk, inode = self._disk, self._inode
        disk.check_alive(self._generation)
        disk.begin("write_at")
        data = b"".join(buffers)
        size = len(inode.cache)
        growth = offset + len(data) - size
        if len(data) > disk.write_bytes_max or growth > disk.capacity_left:
            fits = max(0, size - offset) + max(0, disk.capacity_left)
            taken = min(len(data), disk.write_bytes_max, fits)
            if not taken:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[:taken]
            growth = offset + taken - size
        inode.write(offset, data)
        if growth > 0:
            disk.grow(growth)
        return len(data)

    def truncate(self, size: int) -> None:
        disk, inode = self._disk, self._inode
        disk.check_alive(self._generation)
        disk.begin("truncate")
        disk.grow(size - len(inode.cache))
        inode.cut(size)

    def sync_data(self) -> None:
        # That fdatasync makes a cut durable is promised nowhere.
        self._sync("sync_data", cuts=False)

    def sync(self) -> None:
        self._sync("sync", cuts=True)

    def _sync(self, operation: str, *, cuts: bool) -> None:
        disk = self._disk
        disk.check_alive(self._generation)
        try:
            disk.begin(operation)
        except OSError:
            self._inode.lose_pending(cuts=cuts)
            raise
        self._inode.settle(cuts=cuts)

    def drop_cache(self) -> None:
        before = len(self._inode.cache)
        self._inode.reread()
        self._disk.grow(len(self._inode.cache) - before)

    def close(self) -> None:
        pass


class SimLock:
    __slots__ = ("_disk", "_generation", "_path")

    def __init__(self, disk: SimDisk, path: Path, generation: int) -> None:
        self._disk = disk
        self._path = path
        self._generation = generation

    def release(self) -> None:
        self._disk.release(self._path, self._generation)
