"""Making an empty directory ours, and the identity that says so.

``identity`` gets its name last: before that the directory holds ``identity.new``, which allows
formatting to start over after a kill (S56), and which never stands next to a log in use. While a
saved snapshot is restored it is ``identity.restoring``, which no node starts on (``restoring``).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from ..raft.core.errors import DirectoryMismatch, DirectoryUnfinished, IdentityMissing
from .chain import MANIFEST, Manifest, last_segment, write_manifest
from .disk import Disk
from .failures import corrupt_file, disk_failure
from .segments import (
    HEADER_BYTES,
    SegmentHeader,
    clear_temporaries,
    create_segment,
    segment_name,
    segment_number,
)
from .standing import EMPTY
from .statefiles import decode_state, write_state

_log = structlog.get_logger("fencepost.storage")

LOCK = "lock"
IDENTITY = "identity"
FORMATTING = "identity.new"
RESTORING = "identity.restoring"
"""What :mod:`.restoring` has begun and not finished."""
RECOVERING = "recovering"
"""What :mod:`.forcing` has begun and not finished."""
BOOT = "boot"
INSTANCES = "instances"
LOG = "log"
SNAPSHOTS = "snapshots"


class Identity(NamedTuple):
    cluster_id: str
    incarnation: int
    node_id: str
    instance_id: str
    """32 hexadecimal digits."""
    voters: tuple[str, ...]
    """The voters at formatting. What the log says since then is newer (S57)."""


def decode_identity(path: Path, data: bytes | None) -> Identity:
    """The identity in the content of its file; None for no file.

    Raises StorageCorrupt, StorageFormatUnknown; DirectoryMismatch if there is no file.
    """
    if data is None:
        raise DirectoryMismatch(
            f"{path.parent} is no data directory of fencepost: it has no file named {path.name}",
            next_step="check the path",
        )
    body = decode_state(path, IDENTITY, data)
    try:
        instance_id = _text(body["instance_id"])
        if len(bytes.fromhex(instance_id)) != 16:
            raise ValueError("an instance id has 32 hexadecimal digits")
        return Identity(
            cluster_id=_text(body["cluster_id"]),
            incarnation=int(body["incarnation"]),
            node_id=_text(body["node_id"]),
            instance_id=instance_id,
            voters=tuple(map(_text, body["voters"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise corrupt_file(path, f"a field is missing or of the wrong kind ({error})") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def is_directory(disk: Disk, path: Path) -> bool:
    try:
        disk.list_directory(path)
    except FileNotFoundError:
        return False
    return True


def names_in(disk: Disk, directory: Path) -> frozenset[str]:
    try:
        return frozenset(disk.list_directory(directory))
    except OSError as error:
        raise disk_failure(error, "listing", directory) from error


def refuse_unfinished(disk: Disk, root: Path) -> None:
    """Raise DirectoryUnfinished if the directory is halfway between what it was and what it is to be."""
    names = names_in(disk, root)
    if RECOVERING in names:
        raise DirectoryUnfinished(
            f"a forced recovery of {root} was cut short",
            next_step=f"run it again, it goes on:  fencepost cluster recover --unsafe --data-dir {root}",
        )
    if RESTORING in names and IDENTITY not in names:
        raise DirectoryUnfinished(
            f"a restore into {root} was cut short",
            next_step=f"run it again, it starts over:  fencepost snapshot restore FILE {root} --node ID",
        )


def refuse_orphaned(disk: Disk, root: Path) -> None:
    """Raise IdentityMissing if a directory without an identity has been in use.

    Without its identity nobody knows whose votes and entries these are, and starting over would
    give them up under an old name (S21).
    """
    names = names_in(disk, root)
    if FORMATTING not in names:
        orphans = sorted(names & {BOOT, INSTANCES, LOG, SNAPSHOTS})
        if orphans:
            raise _without_identity(root, ", ".join(orphans))
        return
    if SNAPSHOTS in names:
        kept = sorted(names_in(disk, root / SNAPSHOTS))
        if kept:
            raise _without_identity(root, f"{SNAPSHOTS}/{kept[0]}")
    if LOG not in names:
        return
    for name in names_in(disk, root / LOG):
        number = segment_number(name)
        if number is None:
            continue
        # Formatting leaves a first segment without records. Anything else was in use.
        try:
            used = number != 1 or any(disk.read(root / LOG / name)[HEADER_BYTES:])
        except OSError as error:
            raise disk_failure(error, "reading", root / LOG / name) from error
        if used:
            raise _without_identity(root, f"{LOG}/{name}")


def _without_identity(root: Path, found: str) -> IdentityMissing:
    error = corrupt_file(root / IDENTITY, f"it is missing, but there is {found}")
    return IdentityMissing(error.message, next_step=error.next_step)


def format_directory(
    disk: Disk,
    root: Path,
    identity: Identity,
    entropy: Callable[[int], bytes],
    *,
    marker: str = FORMATTING,
    fill: Callable[[], None] = lambda: None,
) -> None:
    """Make an empty directory ours. Every step is durable before the next; the identity's name is last.

    ``marker`` is the name that the identity has until then. ``fill()`` is called before it gets its own.
    """
    instance = bytes.fromhex(identity.instance_id)
    log_path = root / LOG
    write_state(disk, root / marker, IDENTITY, identity._asdict())
    try:
        _clear_log(disk, log_path)
        if not is_directory(disk, root / SNAPSHOTS):
            disk.make_directory(root / SNAPSHOTS)
        disk.sync_directory(root)
    except OSError as error:
        raise disk_failure(error, "formatting", root) from error
    create_segment(disk, log_path, SegmentHeader(1, 0, entropy(16), instance, EMPTY))
    write_manifest(disk, log_path, instance, Manifest(1, 1))
    write_state(disk, root / BOOT, BOOT, {"boot": 0})
    write_state(disk, root / INSTANCES, INSTANCES, {})
    fill()
    try:
        disk.rename(root / marker, root / IDENTITY)
        disk.sync_directory(root)
    except OSError as error:
        raise disk_failure(error, "formatting", root) from error
    _log.info("directory_formatted", path=os.fspath(root), node=identity.node_id, instance=identity.instance_id)


def _clear_log(disk: Disk, log_path: Path) -> None:
    """An empty log directory, whatever an interrupted formatting left (S56). Only after `_refuse_orphaned`."""
    if not is_directory(disk, log_path):
        disk.make_directory(log_path)
        return
    clear_temporaries(disk, log_path)
    if last_segment(disk, log_path):
        disk.unlink(log_path / segment_name(1))
    if MANIFEST in disk.list_directory(log_path):
        disk.unlink(log_path / MANIFEST)
