"""Forced recovery: one node of a cluster that has lost its majority goes on alone, in a new incarnation.

What only the lost nodes had is lost, and what this node has becomes the truth, even where it was not
known to be committed. Nobody but a person can decide that. What makes it safe for everything outside is
the incarnation: whatever of the old cluster comes back is refused by this node and its successors, and
its tokens by the resources.

In this order, each step durable before the next; run again after a crash, every step that is done is
passed over:

1. ``recovering`` says what is being done. From here on no node starts on the directory.
2. The log gets an entry with the new configuration, in a term that nobody has used.
3. Whom this node has met is forgotten: nodes of the old incarnation are refused by that alone, and their
   ids may be used again, with empty directories.
4. ``identity`` gets the new incarnation.
5. ``recovering`` is removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from ..raft.core.configuration import Configuration, decode_configuration, encode_configuration
from ..raft.core.entry import Entry, EntryKind, HardState, Snapshot
from ..raft.core.errors import ConfigurationError, StorageError
from ..raft.core.events import Persist
from .disk import Disk, RealDisk
from .failures import corrupt_file, disk_failure
from .formatting import IDENTITY, INSTANCES, RECOVERING, Identity
from .identity import DataDirectory, read_identity
from .log_store import FileLogStore
from .reader import read_log, read_snapshot
from .recovery import Recovered
from .snapshots import FileSnapshotStore, check_log_follows
from .statefiles import read_state, write_state

_log = structlog.get_logger("fencepost.storage")


class Prospect(NamedTuple):
    """What a forced recovery of a directory would go on with, and how."""

    identity: Identity
    """As it is."""
    incarnation: int
    """The new one."""
    hard_state: HardState
    commit_index: int
    """The last index that this node knew to be committed."""
    last_index: int
    last_term: int
    last_time_ns: int
    configuration: Configuration
    """The one in force until now."""
    resumed: bool
    """An earlier run was cut short; this one completes it."""


class Recovering(NamedTuple):
    """What ``recovering`` holds."""

    incarnation: int
    entry: Entry
    """The configuration, in the log's next place."""

    def body(self) -> dict[str, Any]:
        return {"incarnation": self.incarnation, "entry": list(self.entry)}

    @classmethod
    def read(cls, disk: Disk, root: Path) -> Recovering | None:
        path = root / RECOVERING
        try:
            body = read_state(disk, path, RECOVERING)
        except FileNotFoundError:
            return None
        try:
            entry = Entry(*body["entry"])
            decode_configuration(entry.data)
            return cls(int(body["incarnation"]), entry)
        except (KeyError, TypeError, ValueError) as error:
            raise corrupt_file(path, f"a field is missing or of the wrong kind ({error})") from error


def recovered_configuration(node_id: str, learners: Mapping[str, str], retired: tuple[str, ...]) -> Configuration:
    """``node_id`` alone decides; ``learners``, peer address by node id, get the log from it."""
    others = {node: address for node, address in learners.items() if node != node_id}
    addresses = tuple(sorted((node, address) for node, address in learners.items() if address))
    kept = tuple(node for node in retired if node not in learners and node != node_id)
    return Configuration((node_id,), learners=tuple(sorted(others)), retired=kept, addresses=addresses)


def look(path: str | os.PathLike[str], disk: Disk | None = None, *, incarnation: int = 0) -> Prospect:
    """What :func:`force_recovery` would go on with. Reads only, takes no lock.

    Raises ConfigurationError for an ``incarnation`` that is not higher, DirectoryMismatch, StorageCorrupt,
    StorageFormatUnknown, StorageError.
    """
    root = Path(path).absolute()
    disk = RealDisk() if disk is None else disk
    identity = read_identity(disk, root)
    underway = Recovering.read(disk, root)
    log, snapshot = read_log(root, disk), read_snapshot(root, disk)
    superseded = snapshot is not None and _superseded(log, snapshot)
    configuration = _configuration(identity, log, snapshot, superseded)
    if superseded and snapshot is not None:
        last = (snapshot.last_index, snapshot.last_term, snapshot.last_time_ns)
    else:
        newest_ns = log.entries[-1].time_ns if log.entries else snapshot.last_time_ns if snapshot else 0
        last = (log.last_index, log.last_term, newest_ns)
    commit_index = max(log.commit_index, snapshot.last_index if snapshot else 0)
    raised = underway.incarnation if underway else incarnation or identity.incarnation + 1
    if underway is None and raised <= identity.incarnation:
        raise ConfigurationError(f"incarnation {raised} is not above that of the directory, {identity.incarnation}")
    return Prospect(identity, raised, log.hard_state, commit_index, *last, configuration, resumed=underway is not None)


def _superseded(log: Recovered, snapshot: Snapshot) -> bool:
    """The snapshot was received and published, and the log was not told any more (S15)."""
    if snapshot.last_index <= log.previous_index:
        return False
    if snapshot.last_index > log.last_index:
        return True
    return log.entries[snapshot.last_index - log.previous_index - 1].term != snapshot.last_term


def _configuration(identity: Identity, log: Recovered, snapshot: Snapshot | None, superseded: bool) -> Configuration:
    """The newest in the log is in force, whether it is committed or not (thesis section 4.1)."""
    if not superseded:
        for entry in reversed(log.entries):
            if entry.kind == EntryKind.CONFIGURATION:
                return decode_configuration(entry.data)
    return Configuration(tuple(sorted(identity.voters))) if snapshot is None else snapshot.configuration


def force_recovery(
    path: str | os.PathLike[str],
    configure: Callable[[Prospect], Configuration],
    *,
    now_ns: int,
    incarnation: int = 0,
    disk: Disk | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
) -> Prospect:
    """Let the node of this stopped directory go on alone, and say from where it does.

    ``configure(prospect)`` gives the new configuration; it is not asked where an earlier run is completed.
    ``now_ns`` is the wall clock, for the time of the entry.
    ``incarnation`` is the new one, 0 for the next. Raises DirectoryLocked, StorageFull and what :func:`look`
    raises; after any of it, it may be run again.
    """
    root = Path(path).absolute()
    disk = RealDisk() if disk is None else disk
    identity = read_identity(disk, root)
    directory = DataDirectory.open(
        root,
        cluster_id=identity.cluster_id,
        node_id=identity.node_id,
        voters=identity.voters,
        disk=disk,
        entropy=entropy,
        recovering=True,
        reserve_bytes=0,  # The node makes one at its next start.
    )
    try:
        prospect = look(root, disk, incarnation=incarnation)
        underway = Recovering.read(disk, root)
        if underway is None:
            underway = _begin(directory, prospect, configure(prospect), now_ns)
        if identity.incarnation < underway.incarnation:
            _append(directory, underway.entry)
            write_state(disk, root / INSTANCES, INSTANCES, {})
            voters = decode_configuration(underway.entry.data).voters
            raised = identity._replace(incarnation=underway.incarnation, voters=voters)
            write_state(disk, root / IDENTITY, IDENTITY, raised._asdict())
        _finish(disk, root)
    finally:
        directory.close()
    _log.info("recovery_forced", path=os.fspath(root), node=identity.node_id, incarnation=underway.incarnation)
    return prospect


def _begin(directory: DataDirectory, prospect: Prospect, configuration: Configuration, now_ns: int) -> Recovering:
    term = max(prospect.hard_state.term, prospect.last_term) + 1
    time_ns = max(now_ns, prospect.last_time_ns)
    data = encode_configuration(configuration)
    entry = Entry(prospect.last_index + 1, term, int(EntryKind.CONFIGURATION), time_ns, data)
    underway = Recovering(prospect.incarnation, entry)
    write_state(directory.disk, directory.path / RECOVERING, RECOVERING, underway.body())
    return underway


def _append(directory: DataDirectory, entry: Entry) -> None:
    """The entry at the end of the log, unless it is there already."""
    newest = FileSnapshotStore.open(directory).newest()
    store, recovered = FileLogStore.open(directory)
    failures: list[StorageError] = []
    store.start_stepped(lambda sequence: None, failures.append)
    try:
        check_log_follows(directory.snapshots_path, newest, recovered)
        if (recovered.last_index, recovered.last_term) == (entry.index, entry.term):
            return
        reset = newest if newest is not None and _superseded(recovered, newest) else None
        state = HardState(entry.term, "")
        store.append(Persist(1, state, 0, [entry], recovered.commit_index, reset))
        store.step()
    finally:
        store.close()
        if failures:
            raise failures[0]


def _finish(disk: Disk, root: Path) -> None:
    try:
        disk.unlink(root / RECOVERING)
        disk.sync_directory(root)
    except OSError as error:
        raise disk_failure(error, "finishing", root / RECOVERING) from error
