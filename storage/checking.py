"""Reading all of a data directory and checking it, without a lock and without a write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from ..raft.core.entry import Snapshot
from ..raft.core.errors import StorageCorrupt
from .disk import Disk, RealDisk
from .failures import corrupt_file
from .formatting import BOOT, INSTANCES, SNAPSHOTS, Identity, is_directory, refuse_unfinished
from .identity import read_identity
from .reader import ATTEMPTS, read_log
from .recovery import Recovered
from .snapshot_files import Owner
from .snapshots import check_log_follows, find_newest, verify
from .statefiles import read_state


class Checked(NamedTuple):
    """A data directory in which nothing is wrong."""

    identity: Identity
    boot: int
    """How often it was opened."""
    log: Recovered
    snapshot: Snapshot | None
    """The newest, with its contents verified."""


def check_directory(path: str | os.PathLike[str], disk: Disk | None = None) -> Checked:
    """Read identity, state files, the whole log and the newest snapshot of the data directory ``path``.

    It may be in use; then this is how it was at some moment. Raises StorageCorrupt naming file, offset and
    index, DirectoryMismatch if it is no data directory, DirectoryUnfinished, StorageFormatUnknown, StorageError.
    """
    root = Path(path).absolute()
    disk = RealDisk() if disk is None else disk
    identity = read_identity(disk, root)
    refuse_unfinished(disk, root)
    boot = _state(disk, root / BOOT, BOOT).get("boot")
    if type(boot) is not int:
        raise corrupt_file(root / BOOT, "its count is missing")
    _state(disk, root / INSTANCES, INSTANCES)
    log = read_log(root, disk)
    for _ in range(ATTEMPTS - 1):
        try:
            return Checked(identity, boot, log, _snapshot(disk, root, identity, log))
        except StorageCorrupt:
            # The node may have published a newer one and deleted this one meanwhile. Damage stays.
            log = read_log(root, disk)
    return Checked(identity, boot, log, _snapshot(disk, root, identity, log))


def _snapshot(disk: Disk, root: Path, identity: Identity, log: Recovered) -> Snapshot | None:
    file = None
    if is_directory(disk, root / SNAPSHOTS):
        file = find_newest(disk, root / SNAPSHOTS, Owner(bytes.fromhex(identity.instance_id), identity.incarnation))
    check_log_follows(root / SNAPSHOTS, None if file is None else file.label, log)
    if file is None:
        return None
    try:
        verify(disk, file)
    except StorageCorrupt:
        raise
    except Exception as error:
        raise corrupt_file(file.path, f"it cannot be read ({error})") from error
    return file.label


def _state(disk: Disk, path: Path, kind: str) -> dict[str, object]:
    try:
        return read_state(disk, path, kind)
    except FileNotFoundError as error:
        raise corrupt_file(path, "it is missing") from error
