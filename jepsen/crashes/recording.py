"""A disk in memory that knows what of it is synced, and calls back between any two operations.

Contents are immutable, so an image of the disk costs as much as the list of its files.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ...storage.disk import Buffer

FREE_BYTES = 1 << 40
"""What the disk says is free, whatever is on it: so much that nothing is done for want of room."""


class Change(NamedTuple):
    """A write of ``data`` at ``offset``, or a cut to the size ``offset`` (None), that no sync has covered."""

    offset: int
    data: bytes | None


def patched(content: bytes, change: Change) -> bytes:
    offset, data = change
    if offset > len(content):
        content += bytes(offset - len(content))
    return content[:offset] if data is None else content[:offset] + data + content[offset + len(data) :]


class Inode:
    """A file: as the cache has it, as the medium has it, and what lies between."""

    __slots__ = ("cache", "medium", "pending")

    def __init__(self, content: bytes = b"") -> None:
        self.cache = content
        self.medium = content
        self.pending: list[Change] = []

    def change(self, change: Change) -> None:
        self.cache = patched(self.cache, change)
        self.pending.append(change)

    def sync(self, *, cuts: bool) -> None:
        """Without ``cuts`` a cut stays pending: that ``fdatasync`` makes one durable is promised nowhere."""
        if cuts or all(change.data is not None for change in self.pending):
            self.medium = self.cache
            self.pending = []
            return
        for change in self.pending:
            if change.data is not None:
                self.medium = patched(self.medium, change)
        # The cut cannot come so late that it takes what was written and synced behind it.
        self.pending = [Change(len(self.cache), None)]

    def reread(self) -> None:
        content = self.medium
        for change in self.pending:
            content = patched(content, change)
        self.cache = content


class NameChange(NamedTuple):
    """``name`` now leads to ``node`` (None: nowhere), and ``gone`` nowhere, in one atomic step."""

    name: str
    node: Inode | Directory | None
    gone: str = ""


class Directory:
    """A directory: its names as seen, as synced, and what lies between."""

    __slots__ = ("pending", "seen", "synced")

    def __init__(self, names: dict[str, Inode | Directory] | None = None) -> None:
        self.seen = names or {}
        self.synced = dict(self.seen)
        self.pending: list[NameChange] = []

    def change(self, change: NameChange) -> None:
        renamed(self.seen, change)
        self.pending.append(change)


def renamed(names: dict[str, Inode | Directory], change: NameChange) -> None:
    if change.gone:
        names.pop(change.gone, None)
    if change.node is None:
        names.pop(change.name, None)
    else:
        names[change.name] = change.node


class LastWrite(NamedTuple):
    """The write that was the last operation, for those who tear it."""

    inode: Inode
    before: bytes
    change: Change


Image = dict[str, bytes | None]
"""A whole disk, by path: the content of every file, None for a directory. The lock's content is left out."""


class RecordingDisk:
    """:class:`fencepost.storage.disk.Disk`. ``between`` is called behind every operation that changes anything."""

    def __init__(self, image: Image | None = None) -> None:
        self.top = Directory()
        self.between: Callable[[str], None] = lambda operation: None
        self.last_write: LastWrite | None = None
        self._locked: dict[Path, None] = {}
        # Directories come before what is in them: an image is made from the top.
        for path, content in (image or {}).items():
            above, _, name = path.rpartition("/")
            parent = self.directory(Path(above or "/"))
            parent.seen[name] = parent.synced[name] = Directory() if content is None else Inode(content)

    def node(self, path: Path) -> Inode | Directory:
        node: Inode | Directory = self.top
        for part in path.parts[1:]:
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
            if part not in node.seen:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            node = node.seen[part]
        return node

    def directory(self, path: Path) -> Directory:
        node = self.node(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
        return node

    def inode(self, path: Path) -> Inode:
        node = self.node(path)
        if not isinstance(node, Inode):
            raise IsADirectoryError(errno.EISDIR, "a directory", str(path))
        return node

    def done(self, operation: str, last_write: LastWrite | None = None) -> None:
        self.last_write = last_write
        self.between(operation)

    # -- the Disk protocol --------------------------------------------------------------------------

    def list_directory(self, path: Path) -> list[str]:
        return list(self.directory(path).seen)

    def make_directory(self, path: Path) -> None:
        parent = self.directory(path.parent)
        if path.name in parent.seen:
            raise FileExistsError(errno.EEXIST, "exists", str(path))
        parent.change(NameChange(path.name, Directory()))
        self.done("make_directory")

    def sync_directory(self, path: Path) -> None:
        directory = self.directory(path)
        directory.synced = dict(directory.seen)
        directory.pending.clear()
        self.done("sync_directory")

    def read(self, path: Path) -> bytes:
        return self.inode(path).cache

    def read_at(self, path: Path, offset: int, length: int) -> bytes:
        return self.inode(path).cache[offset : offset + length]

    def size(self, path: Path) -> int:
        return len(self.inode(path).cache)

    def free_bytes(self, path: Path) -> int:
        self.directory(path)
        return FREE_BYTES

    def open(self, path: Path, *, create: bool) -> RecordingFile:
        if not create:
            return RecordingFile(self, self.inode(path))
        parent = self.directory(path.parent)
        if path.name in parent.seen:
            raise FileExistsError(errno.EEXIST, "exists", str(path))
        inode = Inode()
        parent.change(NameChange(path.name, inode))
        self.done("create")
        return RecordingFile(self, inode)

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "only renames within one directory are modelled"
        parent = self.directory(source.parent)
        node = self.node(source)
        parent.change(NameChange(target.name, node, gone=source.name))
        self.done("rename")

    def unlink(self, path: Path) -> None:
        self.inode(path)
        self.directory(path.parent).change(NameChange(path.name, None))
        self.done("unlink")

    def lock(self, path: Path, note: str) -> RecordingLock:
        if path in self._locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", str(path))
        parent = self.directory(path.parent)
        if path.name not in parent.seen:
            parent.change(NameChange(path.name, Inode()))
        self._locked[path] = None
        self.done("lock")
        return RecordingLock(self, path)

    def release(self, path: Path) -> None:
        self._locked.pop(path, None)


class RecordingFile:
    """:class:`fencepost.storage.disk.File`."""

    __slots__ = ("_disk", "_inode")

    def __init__(self, disk: RecordingDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> int:
        inode, change = self._inode, Change(offset, b"".join(buffers))
        before = inode.cache
        inode.change(change)
        self._disk.done("write", LastWrite(inode, before, change))
        return len(change.data or b"")

    def truncate(self, size: int) -> None:
        self._inode.change(Change(size, None))
        self._disk.done("truncate")

    def sync_data(self) -> None:
        self._inode.sync(cuts=False)
        self._disk.done("sync_data")

    def sync(self) -> None:
        self._inode.sync(cuts=True)
        self._disk.done("sync")

    def drop_cache(self) -> None:
        self._inode.reread()

    def close(self) -> None:
        pass


class RecordingLock:
    __slots__ = ("_disk", "_path")

    def __init__(self, disk: RecordingDisk, path: Path) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.release(self._path)
