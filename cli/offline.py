"""The state in a data directory or a saved snapshot, read without a node. Writes nothing, takes no lock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..raft.core.configuration import Configuration, decode_configuration
from ..raft.core.entry import Entry, EntryKind, Snapshot
from ..raft.core.errors import NotFound
from ..raft.node.applier import Applier
from ..raft.node.members import configuration_json
from ..raft.node.plainlog import PlainLog
from ..raft.outbox.machine import OutboxMachine
from ..raft.outbox.operation import OperationState
from ..storage.disk import RealDisk
from ..storage.formatting import SNAPSHOTS, Identity, is_directory
from ..storage.identity import read_identity
from ..storage.reader import read_log
from ..storage.snapshot_files import Owner, SnapshotFile
from ..storage.snapshots import check_log_follows, find_newest, verified


class SavedState(NamedTuple):
    """The state of one index, as the contents of a snapshot."""

    label: Snapshot
    """Without size and checksum."""
    contents: Iterator[bytes]
    last_index: int
    """Where the log ends. What is behind the label was not known to be committed."""


def machines() -> tuple[OutboxMachine, Applier]:
    """The state machines of a node that is started from the command line, empty."""
    machine = OutboxMachine()
    return machine, Applier({EntryKind.OUTBOX: machine, EntryKind.EMBEDDED: PlainLog()})


def read_contents(contents: Iterable[bytes], last_index: int) -> OutboxMachine:
    """The outbox in the contents of a snapshot. Raises StorageCorrupt, StorageFormatUnknown."""
    machine, applier = machines()
    applier.adopt(applier.prepare(contents), last_index)
    return machine


def counts_of(machine: OutboxMachine) -> dict[str, dict[str, int]]:
    """How many commands there are, by resource and state; states without any are left out."""
    return {
        resource: {state.value: number for state in OperationState if (number := counts[state])}
        for resource, counts in sorted(machine.counts.items())
    }


def newest_snapshot(root: Path, identity: Identity) -> SnapshotFile | None:
    """Raises StorageCorrupt, StorageFormatUnknown, StorageError."""
    disk = RealDisk()
    if not is_directory(disk, root / SNAPSHOTS):
        return None
    return find_newest(disk, root / SNAPSHOTS, Owner(bytes.fromhex(identity.instance_id), identity.incarnation))


def committed_state(path: Path) -> tuple[Identity, SavedState]:
    """The state after the last index that the node of this directory knew to be committed.

    Raises DirectoryMismatch, StorageCorrupt, StorageFormatUnknown, StorageError; NotFound for a log in which
    nothing is known to be committed.
    """
    root, disk = path.absolute(), RealDisk()
    identity = read_identity(disk, root)
    # The log first: where the node runs, a snapshot that is published in between reaches further, not less.
    log = read_log(root, disk)
    file = newest_snapshot(root, identity)
    check_log_follows(root / SNAPSHOTS, None if file is None else file.label, log)
    if file is not None and log.commit_index <= file.label.last_index:
        return identity, SavedState(file.label, verified(disk, file), max(log.last_index, file.label.last_index))
    if not log.commit_index:
        raise NotFound(
            f"in the log of {path} nothing is known to be committed", next_step="use the directory of another"
        )
    _, applier = machines()
    base = None if file is None else file.label
    if file is not None:
        applier.adopt(applier.prepare(verified(disk, file)), file.label.last_index)
    committed = [entry for entry in log.entries if applier.last_applied < entry.index <= log.commit_index]
    applier.apply(committed)
    return identity, SavedState(_label(identity, base, committed), applier.capture(), log.last_index)


def _label(identity: Identity, base: Snapshot | None, entries: list[Entry]) -> Snapshot:
    last = entries[-1]
    found: tuple[int, Configuration] = (0, Configuration(tuple(sorted(identity.voters))))
    if base is not None:
        found = (base.configuration_index, base.configuration)
    for entry in entries:
        if entry.kind == EntryKind.CONFIGURATION:
            found = (entry.index, decode_configuration(entry.data))
    return Snapshot(last.index, last.term, last.time_ns, found[1], found[0])


# -- shown ------------------------------------------------------------------------------------------


def label_json(label: Snapshot) -> dict[str, Any]:
    return {
        "index": label.last_index,
        "term": label.last_term,
        "time_ns": label.last_time_ns,
        "configuration": configuration_json(label.configuration),
        "configuration_index": label.configuration_index,
        "size_bytes": label.size_bytes,
        "checksum": f"{label.checksum:08x}",
    }


def members_text(configuration: Mapping[str, Any]) -> str:
    """The members as ``n1 n2 n3, learners n4``."""
    learners = " ".join(configuration["learners"])
    return " ".join(configuration["voters"]) + (f", learners {learners}" if learners else "")
