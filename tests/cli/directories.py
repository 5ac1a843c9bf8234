"""A data directory and a saved snapshot with commands in them, made without a node."""

from __future__ import annotations

from pathlib import Path

from fencepost.cli.offline import committed_state, machines
from fencepost.raft.core.entry import Entry, EntryKind, HardState
from fencepost.raft.core.errors import StorageError
from fencepost.raft.core.events import Persist
from fencepost.raft.core.token import FencingToken
from fencepost.raft.outbox.codec import Activation, Command, Dispatch, DispatchRow, Outcome, OutcomeRow, encode
from fencepost.raft.outbox.transitions import Verdict
from fencepost.storage.backup_files import BackupDraft, BackupFile, BackupLabel
from fencepost.storage.disk import RealDisk
from fencepost.storage.identity import DataDirectory
from fencepost.storage.log_store import FileLogStore

START_NS = 1_760_000_000_000_000_000
TOKEN = FencingToken(1, 3)
COMMITTED = 5
"""Of :func:`outbox_entries`; the last one is not known to be committed."""


def outbox_entries() -> list[Entry]:
    """A leader begins, claims the ledger, and carries out one of two commands."""
    rows = [
        (EntryKind.NO_OP, b""),
        (EntryKind.OUTBOX, encode(Activation("ledger", TOKEN, "n1/a/1", "fenced"))),
        (EntryKind.OUTBOX, encode(Command("order-1", "ledger", "credit", "alice", b'{"cents":5}'))),
        (EntryKind.OUTBOX, encode(Dispatch("ledger", TOKEN, [DispatchRow(3, 1)]))),
        (
            EntryKind.OUTBOX,
            encode(Outcome("ledger", TOKEN, [OutcomeRow(3, 1, int(Verdict.SUCCEEDED), b'{"rows":1}', "", 0)])),
        ),
        (EntryKind.OUTBOX, encode(Command("order-2", "ledger", "credit", "", b'{"cents":7}'))),
    ]
    return [Entry(index, 3, int(kind), START_NS + index, data) for index, (kind, data) in enumerate(rows, 1)]


def make_directory(
    path: Path,
    entries: list[Entry] | None = None,
    *,
    cluster_id: str = "c1",
    node_id: str = "n1",
    commit_index: int = COMMITTED,
) -> Path:
    """The data directory of a stopped node."""
    rows = outbox_entries() if entries is None else entries
    directory = DataDirectory.open(path, cluster_id=cluster_id, node_id=node_id, voters=("n1", "n2", "n3"))
    store, _ = FileLogStore.open(directory)
    failures: list[StorageError] = []
    store.start_stepped(lambda sequence: None, failures.append)
    store.append(Persist(1, HardState(3, "n1"), 0, rows, commit_index))
    assert store.step()
    store.close()
    directory.close()
    assert not failures
    return path


def make_backup(path: Path, data_dir: Path) -> BackupFile:
    """What ``snapshot save --data-dir`` would write."""
    identity, state = committed_state(data_dir)
    label = BackupLabel(identity.cluster_id, identity.incarnation, identity.node_id, "0.1.0", START_NS, state.label)
    draft = BackupDraft(RealDisk(), path.absolute(), label)
    for chunk in state.contents:
        draft.append(chunk)
    return draft.publish()


def contents_of_entries() -> list[bytes]:
    """The contents of a snapshot of the committed entries."""
    _, applier = machines()
    applier.apply(outbox_entries()[:COMMITTED])
    return list(applier.capture())
