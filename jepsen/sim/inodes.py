"""Files and directories of a simulated disk: what the cache shows, what is on the medium, and what lies between.

A file's bytes and a directory's names are kept twice. Between the two lie the writes, cuts and names
that no sync has covered, in order; a loss of power may leave any of them, and of a write any sectors.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

SECTOR_BYTES = 512


def patch(content: bytearray, offset: int, data: bytes | None) -> None:
    """Write ``data`` at ``offset``, over a hole if need be; None cuts the content there, or fills it up to there."""
    size = len(content)
    if data is None:
        if offset < size:
            del content[offset:]
        else:
            content.extend(bytes(offset - size))
    elif offset == size:
        content += data
    else:
        if offset > size:
            content.extend(bytes(offset - size))
        content[offset : offset + len(data)] = data


class Inode:
    """One file."""

    __slots__ = ("cache", "medium", "pending")

    def __init__(self) -> None:
        self.cache = bytearray()
        self.medium = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []
        """(offset, data) of writes and (size, None) of cuts that no sync has covered."""

    def write(self, offset: int, data: bytes) -> None:
        patch(self.cache, offset, data)
        self.pending.append((offset, data))

    def cut(self, size: int) -> None:
        patch(self.cache, size, None)
        self.pending.append((size, None))

    def settle(self, *, cuts: bool) -> None:
        """A sync: what is pending is on the medium; without ``cuts`` only the writes."""
        medium = self.medium
        for offset, data in self.pending:
            if cuts or data is not None:
                patch(medium, offset, data)
        self.lose_pending(cuts=cuts)

    def lose_pending(self, *, cuts: bool) -> None:
        """What a failed sync was to cover counts as clean from now on, and is nowhere but in the cache."""
        if self.pending:
            self.pending = [] if cuts else [change for change in self.pending if change[1] is None]

    def reread(self) -> None:
        """Forget clean pages of the cache: what is read next is what the medium has, and what is still to be synced."""
        content = bytearray(self.medium)
        for offset, data in self.pending:
            patch(content, offset, data)
        self.cache = content

    def after_power_loss(self, chance: Random | None) -> Inode:
        left = Inode()
        content = left.medium = bytearray(self.medium)
        if chance is not None:
            for offset, data in self.pending:
                if data is None:
                    if chance.random() < 0.5:
                        patch(content, offset, None)
                else:
                    _tear(content, offset, data, chance)
        left.cache = bytearray(content)
        return left

    def copy(self) -> Inode:
        copied = Inode()
        copied.medium = bytearray(self.cache)
        copied.cache = bytearray(self.cache)
        return copied


def _tear(content: bytearray, offset: int, data: bytes, chance: Random) -> None:
    """Of one write: nothing, everything, or some of its sectors."""
    fate = chance.random()
    if fate < 0.25:
        return
    if fate < 0.5:
        patch(content, offset, data)
        return
    for start in range(0, len(data), SECTOR_BYTES):
        if chance.random() < 0.5:
            patch(content, offset + start, data[start : start + SECTOR_BYTES])


class NameChange(NamedTuple):
    """``name`` now leads to ``node`` (None: nowhere), and ``gone`` nowhere, in one atomic step."""

    name: str
    node: Inode | Directory | None
    gone: str = ""


class Directory:
    """One directory."""

    __slots__ = ("pending", "seen", "synced")

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


def image_of(top: Directory, chance: Random | None) -> Directory:
    """The tree after a loss of power. A file under two names, as a rename may leave it, stays one file."""
    known: dict[int, Inode] = {}

    def left(node: Inode | Directory) -> Inode | Directory:
        if isinstance(node, Inode):
            found = known.get(id(node))
            if found is None:
                found = known[id(node)] = node.after_power_loss(chance)
            return found
        names = dict(node.synced)
        if chance is not None:
            for change in node.pending:
                if chance.random() < 0.5:
                    _rename(names, change)
        return _directory({name: left(child) for name, child in names.items()})

    image = left(top)
    assert isinstance(image, Directory)
    return image


def copy_tree(top: Directory) -> Directory:
    """The tree as it is seen now, all of it synced."""

    def copied(node: Inode | Directory) -> Inode | Directory:
        if isinstance(node, Inode):
            return node.copy()
        return _directory({name: copied(child) for name, child in node.seen.items()})

    image = copied(top)
    assert isinstance(image, Directory)
    return image


def _directory(names: dict[str, Inode | Directory]) -> Directory:
    made = Directory()
    made.seen = names
    made.synced = dict(names)
    return made
