"""Making a new data directory from a saved snapshot, for a cluster that begins again with it.

Every node of the restored cluster is made from the same file, by itself: same state, same configuration,
same incarnation, and an instance id of its own. The incarnation is higher than that of the file, so
whoever is left of the old cluster is refused by the new nodes, and its tokens by the resources.

Crash-safe as formatting is: the identity gets its name last, when the snapshot has been written and
read back. Until then the directory holds ``identity.restoring``: no node starts on it, and the next
restore into it starts over.

The log of the new directory is empty and goes on behind the snapshot. Its term is therefore that of the
snapshot, with no vote: in the new incarnation nobody has voted yet, and the first leader's is higher.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import structlog

from ..raft.core.configuration import (
    Configuration,
    ConfigurationInvalid,
    check_configuration,
    leave_joint,
)
from ..raft.core.entry import Snapshot
from ..raft.core.errors import ConfigurationError, DirectoryOccupied
from .backup_files import BackupFile, backup_contents, damaged
from .disk import Disk, RealDisk
from .failures import disk_failure
from .formatting import (
    BOOT,
    FORMATTING,
    IDENTITY,
    INSTANCES,
    LOCK,
    LOG,
    RESTORING,
    SNAPSHOTS,
    Identity,
    format_directory,
    is_directory,
    names_in,
)
from .identity import make_root, take_lock
from .snapshot_files import Draft, Owner
from .snapshots import verified, verify
from .statefiles import TEMPORARY

_log = structlog.get_logger("fencepost.storage")

_EMPTY = frozenset({LOCK, "lost+found"})
_UNFINISHED = frozenset({RESTORING, LOG, SNAPSHOTS, BOOT, INSTANCES})
"""What a restore that was cut short may have left, with :data:`RESTORING` among it."""

WRITING = "restoring" + TEMPORARY


class Restored(NamedTuple):
    """A data directory that was made from a saved snapshot."""

    path: Path
    identity: Identity
    snapshot: Snapshot
    """With the configuration of the new cluster."""


def restored_configuration(before: Configuration, members: Mapping[str, str] | None) -> Configuration:
    """The configuration that a cluster restored from a snapshot with ``before`` begins with.

    ``members`` are the voters, peer address by node id; None for the members of the snapshot, a change that
    was under way taken to its end. Raises ConfigurationError.
    """
    if members is None:
        return leave_joint(before) if before.is_joint else before
    again = sorted(set(members) & set(before.retired))
    if again:
        raise ConfigurationError(
            f"{', '.join(again)} {'was' if len(again) == 1 else 'were'} removed from the cluster for good; "
            "ids are not used again",
            next_step="give the node another id",
        )
    addresses = tuple(sorted((node, address) for node, address in members.items() if address))
    made = Configuration(tuple(sorted(members)), retired=before.retired, addresses=addresses)
    try:
        check_configuration(made)
    except ConfigurationInvalid as error:
        raise ConfigurationError(str(error), next_step="name the nodes of the restored cluster") from error
    return made


def restore_directory(
    path: str | os.PathLike[str],
    file: BackupFile,
    *,
    node_id: str,
    configuration: Configuration,
    incarnation: int,
    read_state: Callable[[Iterator[bytes]], object],
    disk: Disk | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
) -> Restored:
    """Make the data directory of ``node_id``, a member of ``configuration``, from a saved snapshot.

    ``read_state(contents)`` is given what has been written, and raises if it is not a state that this
    version reads. Raises DirectoryOccupied where there is anything already, DirectoryLocked,
    SnapshotDamaged, StorageFormatUnknown, StorageFull, StorageError, and what ``read_state`` raises.
    """
    root = Path(path).absolute()
    disk = RealDisk() if disk is None else disk
    if node_id not in configuration.members:
        raise ConfigurationError(
            f"{node_id} is none of the nodes of the restored cluster, {', '.join(configuration.members)}",
            next_step="name one of them, or all of them anew: --nodes n1=HOST:PORT,…",
        )
    if incarnation <= file.label.incarnation:
        raise ConfigurationError(f"incarnation {incarnation} is not above that of the file, {file.label.incarnation}")
    _refuse_occupied(disk, root)
    make_root(disk, root)
    lock = take_lock(disk, root)
    try:
        _refuse_occupied(disk, root)
        identity = Identity(file.label.cluster_id, incarnation, node_id, entropy(16).hex(), configuration.voters)
        snapshot = file.label.snapshot._replace(configuration=configuration)

        def fill() -> None:
            _write_snapshot(disk, root, file, identity, snapshot, read_state)

        _clear(disk, root)
        format_directory(disk, root, identity, entropy, marker=RESTORING, fill=fill)
    finally:
        lock.release()
    _log.info("directory_restored", path=os.fspath(root), node=node_id, index=snapshot.last_index)
    return Restored(root, identity, snapshot)


def _refuse_occupied(disk: Disk, root: Path) -> None:
    """Before anything is touched: only nothing, or what a restore left that was cut short, may be there."""
    if not is_directory(disk, root):
        return
    names = {name.removesuffix(TEMPORARY) for name in names_in(disk, root)} - _EMPTY
    allowed = _UNFINISHED if RESTORING in names else frozenset[str]()
    if names <= allowed:
        return
    found = "a data directory" if IDENTITY in names or FORMATTING in names else ", ".join(sorted(names)[:5])
    raise DirectoryOccupied(
        f"{root} holds {found}; nothing was changed",
        next_step="name an empty or missing directory; what is there is not overwritten",
    )


def _clear(disk: Disk, root: Path) -> None:
    """Away with what an interrupted restore left. Nothing of it has ever been used."""
    try:
        for folder in (LOG, SNAPSHOTS):
            if is_directory(disk, root / folder):
                for name in sorted(disk.list_directory(root / folder)):
                    disk.unlink(root / folder / name)
                disk.sync_directory(root / folder)
    except OSError as error:
        raise disk_failure(error, "clearing", root) from error


def _write_snapshot(
    disk: Disk,
    root: Path,
    file: BackupFile,
    identity: Identity,
    snapshot: Snapshot,
    read_state: Callable[[Iterator[bytes]], object],
) -> None:
    owner = Owner(bytes.fromhex(identity.instance_id), identity.incarnation)
    draft = Draft(disk, root / SNAPSHOTS / WRITING, snapshot, owner)
    for part in backup_contents(disk, file):
        draft.append(part)
    written = draft.publish()
    if written.label != snapshot:
        raise damaged(file.path, "its contents are not what its header says")
    # What was written, and not what was read: the disk may have made something else of it.
    verify(disk, written)
    read_state(verified(disk, written))
