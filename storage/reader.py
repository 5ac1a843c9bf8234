"""Reading a data directory that is not ours to open: no lock, no write, no repair.

For checks and for ``log`` commands. The directory may be in use: what is read is then the log as it
was at some moment, and its end may not have been synced yet.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiofiles

from ..raft.core.entry import Snapshot
from ..raft.core.errors import StorageCorrupt
from .disk import Disk, RealDisk
from .formatting import IDENTITY, LOG, SNAPSHOTS, Identity, decode_identity, is_directory
from .identity import read_identity
from .recovery import Recovered, load_log
from .snapshot_files import Owner, SnapshotFile
from .snapshots import find_newest

ATTEMPTS = 3
"""A file that is read while it is written may show a later record and not yet the one before it.
Damage is still there the next time."""


def read_log(path: str | os.PathLike[str], disk: Disk | None = None) -> Recovered:
    """The log in the data directory ``path``. ``torn_bytes`` were found and left where they are.

    Raises StorageCorrupt naming file, offset and index; StorageFormatUnknown; DirectoryMismatch if
    it is no data directory.
    """
    root = Path(path).absolute()
    disk = RealDisk() if disk is None else disk
    instance = bytes.fromhex(read_identity(disk, root).instance_id)
    for _ in range(ATTEMPTS - 1):
        try:
            return load_log(disk, root / LOG, instance).recovered
        except StorageCorrupt:
            continue
    return load_log(disk, root / LOG, instance).recovered


def read_snapshot(path: str | os.PathLike[str], disk: Disk | None = None) -> Snapshot | None:
    """The label of the newest snapshot in the data directory ``path``; its contents are not looked at.

    Raises as :func:`read_log`.
    """
    root = Path(path).absolute()
    disk = RealDisk() if disk is None else disk
    identity = read_identity(disk, root)
    owner = Owner(bytes.fromhex(identity.instance_id), identity.incarnation)
    if not is_directory(disk, root / SNAPSHOTS):
        return None
    for _ in range(ATTEMPTS - 1):
        try:
            return _label(find_newest(disk, root / SNAPSHOTS, owner))
        except StorageCorrupt:
            # It may have been deleted between its name and its content, for a newer one.
            continue
    return _label(find_newest(disk, root / SNAPSHOTS, owner))


def _label(file: SnapshotFile | None) -> Snapshot | None:
    return None if file is None else file.label


async def load_identity(path: str | os.PathLike[str]) -> Identity:
    """The identity of a data directory, for a coroutine. Raises as :func:`read_log`.

    The thread is its own: the loop's default pool belongs to whoever fills it (S43).
    """
    target = Path(path) / IDENTITY
    with ThreadPoolExecutor(1, thread_name_prefix="fencepost-read") as executor:
        try:
            async with aiofiles.open(target, "rb", executor=executor) as file:
                data = await file.read()
        except FileNotFoundError:
            data = None
    return decode_identity(target, data)
