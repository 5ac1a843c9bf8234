"""Who a data directory belongs to, how often it was opened, and the lock that keeps others out.

::

    DIR/lock         locked by the operating system while the directory is open
    DIR/identity     cluster id, incarnation, node id, instance id, voters; written once
    DIR/boot         how often the directory was opened
    DIR/instances    the instance ids under which peers have been met
    DIR/log/         the log
    DIR/reserve      room that is given up when the disk is full
    DIR/snapshots/   what took the place of entries that the log gave up

The **instance id** is random and made with the directory: a node that comes back with a wiped disk
has another one, and its peers remember (S21). ``identity`` gets its name last, so a kill in the
middle of formatting leaves a directory that is formatted again, and an ``identity`` that is there
proves that everything else was.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..raft.core.errors import (
    DirectoryLocked,
    DirectoryMismatch,
    DirectoryOccupied,
    DirectoryOfOtherCluster,
    DirectoryOfOtherNode,
)
from .disk import Disk, Lock, RealDisk
from .failures import corrupt_file, disk_failure
from .formatting import (
    BOOT,
    FORMATTING,
    IDENTITY,
    INSTANCES,
    LOCK,
    LOG,
    RECOVERING,
    RESTORING,
    SNAPSHOTS,
    Identity,
    decode_identity,
    format_directory,
    is_directory,
    names_in,
    refuse_orphaned,
    refuse_unfinished,
)
from .reserve import RESERVE, RESERVE_BYTES, Reserve
from .segments import clear_temporaries
from .statefiles import TEMPORARY, read_state, write_state

_OURS = frozenset({LOCK, IDENTITY, FORMATTING, RESTORING, RECOVERING, BOOT, INSTANCES, LOG, SNAPSHOTS, RESERVE})
_FOREIGN_ALLOWED = frozenset({"lost+found"})
"""A fresh file system mounted as the data directory is as good as an empty directory."""


class DataDirectory:
    """An open and locked data directory. Made by :meth:`open`; use from one thread."""

    def __init__(
        self,
        path: Path,
        identity: Identity,
        *,
        boot: int,
        created: bool,
        instances: dict[str, str],
        disk: Disk,
        lock: Lock,
        entropy: Callable[[int], bytes],
        reserve: Reserve,
    ) -> None:
        self.path = path
        self.cluster_id = identity.cluster_id
        self.incarnation = identity.incarnation
        self.node_id = identity.node_id
        self.instance_id = identity.instance_id
        self.voters = identity.voters
        self.boot = boot
        """1 at the first open; raised durably by every one since."""
        self.created = created
        """This open formatted the directory."""
        self.disk = disk
        self.entropy = entropy
        self.reserve = reserve
        self.log_path = path / LOG
        self.snapshots_path = path / SNAPSHOTS
        self._instances = instances
        self._lock = lock

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        cluster_id: str,
        node_id: str,
        voters: Sequence[str],
        incarnation: int = 1,
        disk: Disk | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
        recovering: bool = False,
        reserve_bytes: int = RESERVE_BYTES,
    ) -> DataDirectory:
        """Lock the directory and make sure that it is this node's; format it if it is empty or missing.

        ``voters`` and ``incarnation`` are those that an empty one begins with; one that is there keeps its own.
        ``recovering``: it may be in the middle of a forced recovery. ``reserve_bytes`` are held for the day
        when the disk is full; 0 for none.
        Raises DirectoryLocked, DirectoryOfOtherNode, DirectoryOfOtherCluster, DirectoryOccupied (foreign
        files), DirectoryUnfinished, StorageFormatUnknown (a newer version's; nothing was touched),
        StorageCorrupt, IdentityMissing among it, StorageFull, StorageError.
        """
        root = Path(path).absolute()
        disk = RealDisk() if disk is None else disk
        make_root(disk, root)
        _refuse_foreign(disk, root)
        lock = take_lock(disk, root)
        try:
            if not recovering:
                refuse_unfinished(disk, root)
            identity = _find_identity(disk, root)
            created = identity is None
            if identity is None:
                identity = Identity(cluster_id, incarnation, node_id, entropy(16).hex(), tuple(voters))
                format_directory(disk, root, identity, entropy)
            else:
                _refuse_other(root, identity, cluster_id, node_id)
            instances = _read_instances(disk, root)
            reserve = Reserve(disk, root, reserve_bytes)
            boot = reserve.spend(lambda: _raise_boot(disk, root))
            reserve.make(_free_bytes(disk, root))
            return cls(
                root,
                identity,
                boot=boot,
                created=created,
                instances=instances,
                disk=disk,
                lock=lock,
                entropy=entropy,
                reserve=reserve,
            )
        except BaseException:
            lock.release()
            raise

    def known_instances(self) -> dict[str, str]:
        """Instance id by node id, of every peer that was ever met. A copy."""
        return dict(self._instances)

    def remember_instance(self, node_id: str, instance_id: str) -> None:
        """Remember under which instance a peer was met; durable when this returns (S21).

        The first one stays: a node id with another instance is a different disk under an old name,
        and raises DirectoryMismatch. Raises StorageFull or StorageError if it cannot be written.
        """
        known = self._instances.get(node_id)
        if known == instance_id:
            return
        if known is not None:
            raise DirectoryMismatch(
                f"node {node_id} has been known as instance {known} and now comes as {instance_id}: "
                "its data directory was wiped or replaced",
                next_step=f"put back the data directory that {node_id} had; "
                "docs/operations.md, 'When something is lost'",
            )
        instances = {**self._instances, node_id: instance_id}
        self.reserve.spend(lambda: write_state(self.disk, self.path / INSTANCES, INSTANCES, instances))
        self._instances = instances

    def close(self) -> None:
        """Release the lock. The log store has to be closed before. May be called again."""
        self._lock.release()


def read_identity(disk: Disk, root: Path) -> Identity:
    """The identity of a directory, without opening it.

    Raises StorageCorrupt, StorageFormatUnknown; DirectoryMismatch if there is none.
    """
    return decode_identity(root / IDENTITY, _read_optional(disk, root / IDENTITY))


# -- checks before anything is touched --------------------------------------------------------------


def make_root(disk: Disk, root: Path) -> None:
    """Make the directory and what is missing above it, each name durable before the next (S14)."""
    missing: list[Path] = []
    place = root
    try:
        while not is_directory(disk, place):
            missing.append(place)
            place = place.parent
        for directory in reversed(missing):
            disk.make_directory(directory)
            disk.sync_directory(directory.parent)
        if not missing:
            # It may have been made by a process that was killed before it synced the name. Where the
            # folder above may not be read, an administrator made it, and not just now.
            with contextlib.suppress(PermissionError):
                disk.sync_directory(root.parent)
    except OSError as error:
        raise disk_failure(error, "making", root) from error


def _refuse_foreign(disk: Disk, root: Path) -> None:
    names = names_in(disk, root)
    foreign = sorted(
        name for name in names - _FOREIGN_ALLOWED if name not in _OURS and name.removesuffix(TEMPORARY) not in _OURS
    )
    if foreign and IDENTITY not in names:
        raise DirectoryOccupied(
            f"{root} is not empty and no data directory of fencepost: it holds {', '.join(foreign[:5])}",
            next_step="name an empty or missing directory as data_dir",
        )


def _refuse_other(root: Path, identity: Identity, cluster_id: str, node_id: str) -> None:
    """Refuse a directory of another node or cluster, naming both (S57)."""
    if identity.node_id != node_id:
        raise DirectoryOfOtherNode(
            f"{root} belongs to node {identity.node_id} and was opened as node {node_id}",
            next_step="start the node with the data directory that is its own",
        )
    if identity.cluster_id != cluster_id:
        raise DirectoryOfOtherCluster(
            f"{root} belongs to cluster {identity.cluster_id} and was opened for cluster {cluster_id}",
            next_step="start the node with the configuration that its cluster was made with",
        )


def take_lock(disk: Disk, root: Path) -> Lock:
    """Raises DirectoryLocked, naming who holds it, or StorageError."""
    path = root / LOCK
    try:
        return disk.lock(path, f"process {os.getpid()}\n")
    except BlockingIOError as error:
        raise DirectoryLocked(
            f"{root} is open in another process{_holder(disk, path)}",
            next_step="stop that process, or start this node with a data directory of its own",
        ) from error
    except OSError as error:
        raise disk_failure(error, "locking", path) from error


def _holder(disk: Disk, path: Path) -> str:
    try:
        note = disk.read(path).decode("ascii", "replace").strip()
    except OSError:
        return ""
    return f" ({note[:80]})" if note else ""


# -- what is there ----------------------------------------------------------------------------------


def _read_optional(disk: Disk, path: Path) -> bytes | None:
    try:
        return disk.read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_failure(error, "reading", path) from error


def _find_identity(disk: Disk, root: Path) -> Identity | None:
    """The identity, or None where there is none yet and formatting may begin."""
    data = _read_optional(disk, root / IDENTITY)
    if data is None:
        refuse_orphaned(disk, root)
        return None
    return decode_identity(root / IDENTITY, data)


def _read_instances(disk: Disk, root: Path) -> dict[str, str]:
    path = root / INSTANCES
    try:
        body = read_state(disk, path, INSTANCES)
    except FileNotFoundError as error:
        raise corrupt_file(path, "it is missing") from error
    try:
        return {_text(node): _text(instance) for node, instance in body.items()}
    except TypeError as error:
        raise corrupt_file(path, str(error)) from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is no count")
    return value


def _free_bytes(disk: Disk, root: Path) -> int:
    """0 where the file system does not tell."""
    try:
        return disk.free_bytes(root)
    except OSError:
        return 0


def _raise_boot(disk: Disk, root: Path) -> int:
    path = root / BOOT
    clear_temporaries(disk, root)
    try:
        boot = _count(read_state(disk, path, BOOT)["boot"]) + 1
    except FileNotFoundError as error:
        raise corrupt_file(path, "it is missing") from error
    except (KeyError, TypeError) as error:
        raise corrupt_file(path, f"its count is missing ({error})") from error
    write_state(disk, path, BOOT, {"boot": boot})
    return boot
