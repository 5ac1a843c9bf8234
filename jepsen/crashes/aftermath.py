"""Every disk that a crash can leave, between one operation and the next.

* *kill*: everything that was written is there; the cache outlives the process.
* *power*: only what was synced is there: bytes by a sync of their file, names by one of their directory.
* *torn*: as kill, and of the last write only the first 0 bytes, 1, half, the last multiple of a sector, all
  but one; what is missing is not there, or is there as zeros.
* *torn power*: the same, but nothing else that was not synced is there.
* *drop*: as kill, and one write or cut that was not synced is missing, though later ones are there.
* *names*: as kill, and one name that was not synced is as it was: made, moved or removed for nothing.
* *mixed*: of everything that was not synced, sectors, cuts and names, what chance leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from .recording import Change, Directory, Image, Inode, NameChange, RecordingDisk, patched, renamed

SECTOR_BYTES = 512
MIXED = 2
"""How many disks chance makes at each place."""

LOCK = "lock"

Contents = Callable[[Inode], bytes]
Names = Callable[[Directory], "dict[str, Inode | Directory]"]


def aftermaths(disk: RecordingDisk, place: str) -> Iterator[tuple[str, Image]]:
    """What may be left if everything stops now: how it came about, and the disk. ``place`` seeds chance."""
    yield "kill", kill(disk)
    yield "power", power(disk)
    yield from _torn(disk)
    yield from _dropped(disk)
    yield from _names(disk)
    for number in range(MIXED):
        yield f"mixed {number}", mixed(disk, Random(f"{place} {number}"))


def kill(disk: RecordingDisk) -> Image:
    return image(disk, _cache, _seen)


def power(disk: RecordingDisk) -> Image:
    return image(disk, lambda inode: inode.medium, lambda directory: directory.synced)


def image(disk: RecordingDisk, contents: Contents, names: Names) -> Image:
    found: Image = {}

    def walk(above: str, directory: Directory) -> None:
        for name, node in names(directory).items():
            path = f"{above}/{name}"
            if isinstance(node, Directory):
                found[path] = None
                walk(path, node)
            else:
                found[path] = b"" if name == LOCK else contents(node)

    walk("", disk.top)
    return found


def _cache(inode: Inode) -> bytes:
    return inode.cache


def _seen(directory: Directory) -> dict[str, Inode | Directory]:
    return directory.seen


# -- the last write ---------------------------------------------------------------------------------


def _torn(disk: RecordingDisk) -> Iterator[tuple[str, Image]]:
    if disk.last_write is None:
        return
    written, before, (offset, data) = disk.last_write
    assert data is not None
    size = len(data)
    for cut in sorted({0, 1, size // 2, size // SECTOR_BYTES * SECTOR_BYTES, size - 1} & set(range(size))):
        for zeros in (b"", bytes(size - cut)):
            kind = f"torn {cut} of {size}{' and zeros' if zeros else ''}"
            yield kind, _with(disk, written, patched(before, Change(offset, data[:cut] + zeros)))
            left = patched(written.medium, Change(offset, data[:cut] + zeros))
            yield f"{kind}, power", _with_power(disk, written, left)


def _with(disk: RecordingDisk, changed: Inode, content: bytes) -> Image:
    return image(disk, lambda inode: content if inode is changed else inode.cache, _seen)


def _with_power(disk: RecordingDisk, changed: Inode, content: bytes) -> Image:
    return image(disk, lambda inode: content if inode is changed else inode.medium, lambda directory: directory.synced)


# -- one thing missing ------------------------------------------------------------------------------


def _dropped(disk: RecordingDisk) -> Iterator[tuple[str, Image]]:
    for inode in _files(disk.top):
        for missing in range(len(inode.pending)):
            content = inode.medium
            for place, change in enumerate(inode.pending):
                if place != missing:
                    content = patched(content, change)
            yield f"drop {missing + 1} of {len(inode.pending)}", _with(disk, inode, content)


def _names(disk: RecordingDisk) -> Iterator[tuple[str, Image]]:
    for changed in _directories(disk.top):
        for missing in range(len(changed.pending)):
            names = _without(changed, missing)
            if names is not None:
                kind = f"name {missing + 1} of {len(changed.pending)} undone"
                yield kind, image(disk, _cache, _replacing(changed, names))


def _replacing(changed: Directory, names: dict[str, Inode | Directory]) -> Names:
    return lambda directory: names if directory is changed else directory.seen


def _without(directory: Directory, missing: int) -> dict[str, Inode | Directory] | None:
    """The names without one of the changes; None where a later one cannot be without it."""
    names = dict(directory.synced)
    for place, change in enumerate(directory.pending):
        if place == missing:
            continue
        needed = change.gone or (change.name if change.node is None else "")
        if needed and needed not in names:
            return None
        renamed(names, change)
    return names


# -- by chance --------------------------------------------------------------------------------------


def mixed(disk: RecordingDisk, chance: Random) -> Image:
    """A loss of power that leaves of what was not synced some sectors, cuts and names."""
    left: dict[int, bytes] = {}

    def contents(inode: Inode) -> bytes:
        if id(inode) not in left:
            left[id(inode)] = _some(inode, chance)
        return left[id(inode)]

    def names(directory: Directory) -> dict[str, Inode | Directory]:
        kept = dict(directory.synced)
        change: NameChange
        for change in directory.pending:
            if chance.random() < 0.5:
                renamed(kept, change)
        return kept

    return image(disk, contents, names)


def _some(inode: Inode, chance: Random) -> bytes:
    content = inode.medium
    for offset, data in inode.pending:
        if data is None:
            if chance.random() < 0.5:
                content = patched(content, Change(offset, None))
            continue
        for start in range(0, len(data), SECTOR_BYTES):
            if chance.random() < 0.5:
                content = patched(content, Change(offset + start, data[start : start + SECTOR_BYTES]))
    return content


# -- walking ----------------------------------------------------------------------------------------


def _files(top: Directory) -> list[Inode]:
    found: list[Inode] = []
    for directory in _directories(top):
        found += [node for node in directory.seen.values() if isinstance(node, Inode)]
    return found


def _directories(top: Directory) -> list[Directory]:
    found = [top]
    for node in top.seen.values():
        if isinstance(node, Directory):
            found += _directories(node)
    return found
