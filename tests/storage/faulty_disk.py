"""A disk in memory that keeps only what was synced, and fails where it is told to.

A file has what the page cache shows and what is on the medium; between them lie writes and cuts that
no sync has covered. A directory likewise has names as seen, names as synced, and operations between.
From any moment three kinds of aftermath can be made, each a new disk:

* :meth:`FaultyDisk.after_kill`: the process died, the cache lived on;
* :meth:`FaultyDisk.after_power_loss`: only what was synced is there;
* :meth:`FaultyDisk.after_torn_power_loss`: of what was not synced, some sectors and names are there.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from threading import RLock
from typing import NamedTuple

from fencepost.storage.disk import Buffer

SECTOR = 512


class Change(NamedTuple):
    """One write (``data``) or cut (None) that no sync has covered."""

    offset: int
    data: bytes | None


def _patched(content: bytes, change: Change) -> bytes:
    offset, data = change
    if data is None:
        return content[:offset] + bytes(max(0, offset - len(content)))
    content += bytes(max(0, offset - len(content)))
    return content[:offset] + data + content[offset + len(data) :]


class Inode:
    def __init__(self, content: bytes = b"") -> None:
        self.cache = content
        self.medium = content
        self.pending: list[Change] = []


class NameChange(NamedTuple):
    """``name`` now leads to ``node`` (None: nowhere), and ``gone`` nowhere, in one atomic step."""

    name: str
    node: Inode | Directory | None
    gone: str = ""


class Directory:
    def __init__(self) -> None:
        self.seen: dict[str, Inode | Directory] = {}
        self.synced: dict[str, Inode | Directory] = {}
        self.pending: list[NameChange] = []

    def change(self, change: NameChange) -> None:
        _rename(self.seen, change)
        self.pending.append(change)


def _rename(names: dict[str, Inode | Directory], change: NameChange) -> None:
    if change.gone:
        names.pop(change.gone, None)
    if change.node is None:
        names.pop(change.name, None)
    else:
        names[change.name] = change.node


class FaultyDisk:
    """:class:`fencepost.storage.disk.Disk`. ``after_step`` is called behind every operation that changes anything."""

    def __init__(self) -> None:
        self.top = Directory()
        self.locked: set[Path] = set()
        self.calls: Counter[str] = Counter()
        self.after_step: Callable[[str], None] = lambda operation: None
        self.most_per_write = 1 << 60
        """A write takes at most this many bytes at a time (S13)."""
        self.capacity = 1 << 60
        """Bytes of all files together; a write takes what still fits (S11)."""
        self._faults: dict[tuple[str, int], int] = {}
        self.mutex = RLock()

    # -- what a test does to it ---------------------------------------------------------------------

    def fail(self, operation: str, nth: int, code: int = errno.EIO) -> None:
        """Let the nth call from now on (1: the next) of this operation fail with an errno.

        A sync that fails calls its pages clean all the same: the next one succeeds over the hole (S12).
        """
        self._faults[operation, self.calls[operation] + nth] = code

    def node(self, path: Path) -> Inode | Directory:
        node: Inode | Directory = self.top
        for part in path.parts[1:]:
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
            if part not in node.seen:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            node = node.seen[part]
        return node

    def poke(self, path: Path, content: bytes) -> None:
        """Replace a file's content, on the medium too: damage, not a write."""
        inode = self.node(path)
        assert isinstance(inode, Inode)
        inode.cache = inode.medium = content
        inode.pending.clear()

    def after_kill(self) -> FaultyDisk:
        return self._image(lambda inode: inode.cache, lambda directory: directory.seen)

    def after_power_loss(self) -> FaultyDisk:
        return self._image(lambda inode: inode.medium, lambda directory: directory.synced)

    def after_torn_power_loss(self, chance: Random) -> FaultyDisk:
        def torn(inode: Inode) -> bytes:
            content = inode.medium
            for offset, data in inode.pending:
                if data is None:
                    if chance.random() < 0.5:
                        content = _patched(content, Change(offset, None))
                    continue
                for start in range(0, len(data), SECTOR):
                    if chance.random() < 0.5:
                        content = _patched(content, Change(offset + start, data[start : start + SECTOR]))
            return content

        def names(directory: Directory) -> dict[str, Inode | Directory]:
            kept = dict(directory.synced)
            for change in directory.pending:
                if chance.random() < 0.5:
                    _rename(kept, change)
            return kept

        return self._image(torn, names)

    def _image(
        self, content: Callable[[Inode], bytes], names: Callable[[Directory], dict[str, Inode | Directory]]
    ) -> FaultyDisk:
        known: dict[int, Inode] = {}

        def copy(node: Inode | Directory) -> Inode | Directory:
            if isinstance(node, Inode):
                return known.setdefault(id(node), Inode(content(node)))
            made = Directory()
            made.seen = {name: copy(child) for name, child in names(node).items()}
            made.synced = dict(made.seen)
            return made

        with self.mutex:
            disk = FaultyDisk()
            top = copy(self.top)
            assert isinstance(top, Directory)
            disk.top = top
            return disk

    # -- steps --------------------------------------------------------------------------------------

    def begin(self, operation: str) -> None:
        self.calls[operation] += 1
        code = self._faults.pop((operation, self.calls[operation]), 0)
        if code:
            raise OSError(code, os.strerror(code))

    def used(self) -> int:
        def size(node: Inode | Directory) -> int:
            return len(node.cache) if isinstance(node, Inode) else sum(map(size, node.seen.values()))

        return size(self.top)

    def _directory(self, path: Path) -> Directory:
        node = self.node(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
        return node

    # -- the Disk protocol --------------------------------------------------------------------------

    def list_directory(self, path: Path) -> list[str]:
        with self.mutex:
            return list(self._directory(path).seen)

    def make_directory(self, path: Path) -> None:
        with self.mutex:
            self.begin("make_directory")
            parent = self._directory(path.parent)
            if path.name in parent.seen:
                raise FileExistsError(errno.EEXIST, "exists", str(path))
            parent.change(NameChange(path.name, Directory()))
            self.after_step("make_directory")

    def sync_directory(self, path: Path) -> None:
        with self.mutex:
            directory = self._directory(path)
            try:
                self.begin("sync_directory")
            except OSError:
                directory.pending.clear()
                raise
            directory.synced = dict(directory.seen)
            directory.pending.clear()
            self.after_step("sync_directory")

    def read(self, path: Path) -> bytes:
        with self.mutex:
            self.begin("read")
            node = self.node(path)
            if not isinstance(node, Inode):
                raise IsADirectoryError(errno.EISDIR, "a directory", str(path))
            return node.cache

    def read_at(self, path: Path, offset: int, length: int) -> bytes:
        return self.read(path)[offset : offset + length]

    def size(self, path: Path) -> int:
        with self.mutex:
            node = self.node(path)
            assert isinstance(node, Inode)
            return len(node.cache)

    def free_bytes(self, path: Path) -> int:
        with self.mutex:
            return max(0, self.capacity - self.used())

    def open(self, path: Path, *, create: bool) -> FaultyFile:
        with self.mutex:
            if not create:
                node = self.node(path)
                assert isinstance(node, Inode)
                return FaultyFile(self, node)
            self.begin("create")
            parent = self._directory(path.parent)
            if path.name in parent.seen:
                raise FileExistsError(errno.EEXIST, "exists", str(path))
            inode = Inode()
            parent.change(NameChange(path.name, inode))
            self.after_step("create")
            return FaultyFile(self, inode)

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "only renames within one directory are modelled"
        with self.mutex:
            self.begin("rename")
            parent = self._directory(source.parent)
            if source.name not in parent.seen:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(source))
            parent.change(NameChange(target.name, parent.seen[source.name], gone=source.name))
            self.after_step("rename")

    def unlink(self, path: Path) -> None:
        with self.mutex:
            self.begin("unlink")
            parent = self._directory(path.parent)
            if path.name not in parent.seen:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            parent.change(NameChange(path.name, None))
            self.after_step("unlink")

    def lock(self, path: Path, note: str) -> FaultyLock:
        with self.mutex:
            if path in self.locked:
                raise BlockingIOError(errno.EWOULDBLOCK, "locked", str(path))
            parent = self._directory(path.parent)
            inode = parent.seen.get(path.name)
            if inode is None:
                inode = Inode()
                parent.change(NameChange(path.name, inode))
            assert isinstance(inode, Inode)
            inode.cache = note.encode()
            self.locked.add(path)
            self.after_step("lock")
            return FaultyLock(self, path)


class FaultyFile:
    def __init__(self, disk: FaultyDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._open = True

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> int:
        disk, inode = self._disk, self._inode
        data = b"".join(buffers)
        with disk.mutex:
            assert self._open
            disk.begin("write")
            overlap = max(0, min(len(inode.cache) - offset, len(data)))
            taken = min(len(data), disk.most_per_write, max(0, disk.capacity - disk.used()) + overlap)
            if data and not taken:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._change(Change(offset, data[:taken]))
            disk.after_step("write")
            return taken

    def truncate(self, size: int) -> None:
        with self._disk.mutex:
            assert self._open
            self._disk.begin("truncate")
            self._change(Change(size, None))
            self._disk.after_step("truncate")

    def _change(self, change: Change) -> None:
        self._inode.cache = _patched(self._inode.cache, change)
        self._inode.pending.append(change)

    def sync_data(self) -> None:
        # That fdatasync makes a cut durable is promised nowhere.
        self._sync("sync_data", cuts=False)

    def sync(self) -> None:
        self._sync("sync", cuts=True)

    def _sync(self, operation: str, *, cuts: bool) -> None:
        disk, inode = self._disk, self._inode
        with disk.mutex:
            assert self._open
            covered = [change for change in inode.pending if cuts or change.data is not None]
            inode.pending = [change for change in inode.pending if change not in covered]
            disk.begin(operation)
            for change in covered:
                inode.medium = _patched(inode.medium, change)
            disk.after_step(operation)

    def drop_cache(self) -> None:
        with self._disk.mutex:
            content = self._inode.medium
            for change in self._inode.pending:
                content = _patched(content, change)
            self._inode.cache = content

    def close(self) -> None:
        self._open = False


class FaultyLock:
    def __init__(self, disk: FaultyDisk, path: Path) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)
