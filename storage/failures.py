"""Operating-system errors and damage, as errors of the house's tree.

Every text names the file, so that an operator does not have to guess which of several disks it is.
"""

from __future__ import annotations

from errno import EDQUOT, EIO, ENOSPC, EROFS
from pathlib import Path

from ..raft.core.errors import StorageCorrupt, StorageError, StorageFormatUnknown, StorageFull

_FULL = frozenset({ENOSPC, EDQUOT})

_NEXT_STEP = {
    EIO: "the device reports errors: check it (dmesg, smartctl) before this node is started again",
    EROFS: "the file system is mounted read-only: check why (dmesg), then remount it and start the node",
}


def is_full(error: OSError) -> bool:
    """No space or no quota left: the one failure that an operator mends without a new disk."""
    return error.errno in _FULL


def disk_failure(error: OSError, doing: str, path: Path) -> StorageError:
    """The :class:`StorageError` for an operation that the system refused. Outcome: unknown."""
    tried = (f"{doing} {path}: {error.strerror or error}",)
    if is_full(error):
        return StorageFull(
            f"no space left while {doing} {path}",
            tried=tried,
            next_step=f"free space on the file system of {path.parent}, then start the node again",
        )
    return StorageError(
        f"{doing} {path} failed: {error.strerror or error}",
        tried=tried,
        next_step=_NEXT_STEP.get(error.errno or 0, f"check the permissions and the device of {path.parent}"),
    )


LOST_NODE = (
    "edit and delete nothing; put the intact directory back if there is one. Otherwise this node is lost: "
    "the others go on while a majority of them is up; docs/operations.md, 'When something is lost'"
)
"""Not to be mended by hand: a wiped member must not vote under its old name (S21)."""


def corrupt(path: Path, offset: int, index: int, what: str) -> StorageCorrupt:
    """Damage in the log. ``offset`` in bytes; ``index`` is the one that would have come next."""
    return StorageCorrupt(
        f"{path} is damaged at offset {offset}, log index {index}: {what}",
        next_step=LOST_NODE,
    )


def corrupt_file(path: Path, what: str) -> StorageCorrupt:
    """Damage of a file that holds no log entries."""
    return StorageCorrupt(
        f"{path} is damaged at offset 0: {what}",
        next_step=LOST_NODE,
    )


def format_unknown(path: Path, what: str) -> StorageFormatUnknown:
    return StorageFormatUnknown(
        f"{path}: {what}; nothing was changed",
        next_step="start the version of fencepost that wrote this directory, or a newer one",
    )
