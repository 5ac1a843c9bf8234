"""Saved snapshots under test: writing one to a disk, restoring it, and looking at what came out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import Snapshot
from fencepost.storage.backup_files import BackupDraft, BackupFile, BackupLabel, read_backup
from fencepost.storage.identity import DataDirectory
from fencepost.storage.log_store import FileLogStore
from fencepost.storage.recovery import Recovered
from fencepost.storage.restoring import Restored, restore_directory
from fencepost.storage.snapshots import FileSnapshotStore, check_log_follows

from .faulty_disk import FaultyDisk
from .world import ROOT, entropy, label

FILE = Path("/saved/monday.snapshot")
CONTENTS = b"the state of exactly one index" * 40


def with_folder(disk: FaultyDisk) -> FaultyDisk:
    disk.make_directory(FILE.parent)
    disk.sync_directory(FILE.parent.parent)
    return disk


def backup_label(snapshot: Snapshot | None = None, incarnation: int = 1) -> BackupLabel:
    return BackupLabel("c1", incarnation, "n1", "0.1.0", 1_760_000_000_000_000_000, snapshot or label(7, 3))


def save(disk: FaultyDisk, contents: bytes = CONTENTS, *, overwrite: bool = False, last_index: int = 7) -> BackupFile:
    draft = BackupDraft(disk, FILE, backup_label(label(last_index, 3)), overwrite=overwrite)
    half = len(contents) // 2
    draft.append(contents[:half])
    draft.append(contents[half:])
    return draft.publish()


def saved(contents: bytes = CONTENTS) -> FaultyDisk:
    """A disk with a folder and a saved snapshot in it."""
    disk = with_folder(FaultyDisk())
    save(disk, contents)
    return disk


def take_all(contents: Iterator[bytes]) -> None:
    assert b"".join(contents) == CONTENTS


def restore(disk: FaultyDisk, configuration: Configuration | None = None, node_id: str = "n1") -> Restored:
    file = read_backup(disk, FILE)
    return restore_directory(
        ROOT,
        file,
        node_id=node_id,
        configuration=configuration or file.label.snapshot.configuration,
        incarnation=file.label.incarnation + 1,
        read_state=take_all,
        disk=disk,
        entropy=entropy(),
    )


def start(disk: FaultyDisk) -> tuple[DataDirectory, Snapshot | None, Recovered]:
    """What a node does with its disk at a start; everything but the directory's values is closed again."""
    directory = DataDirectory.open(
        ROOT,
        cluster_id="c1",
        node_id="n1",
        voters=("n1", "n2", "n3"),
        disk=disk,
        entropy=entropy(),
        reserve_bytes=0,
    )
    try:
        store = FileSnapshotStore.open(directory)
        log, recovered = FileLogStore.open(directory)
        log.close()
        newest = store.newest()
        check_log_follows(directory.snapshots_path, newest, recovered)
        if newest is not None:
            assert b"".join(store.contents(newest)) == CONTENTS
    finally:
        directory.close()
    return directory, newest, recovered
