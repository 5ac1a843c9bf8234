"""The conformance suite of snapshot stores on every one there is, and proof that it can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest

from fencepost.raft.core.entry import Snapshot
from fencepost.raft.core.errors import FencepostError
from fencepost.raft.ports import SnapshotStore
from fencepost.storage import snapshot_files, snapshots
from fencepost.storage.snapshot_files import SnapshotFile
from fencepost.storage.snapshots import FileSnapshotStore

from . import snapshot_contract as contract
from .faulty_disk import FaultyDisk, FaultyFile
from .memory_snapshots import MemorySnapshotStore
from .snapshot_contract import CHECKS, Check
from .world import FakeWorld, RealWorld, open_directory


class OnFiles:
    """In a data directory of a real folder or of a faulty disk."""

    def __init__(self, world: RealWorld | FakeWorld) -> None:
        self._world = world
        self.store: SnapshotStore = FileSnapshotStore.open(open_directory(world.disk, world.root))

    def crash(self) -> OnFiles:
        return OnFiles(self._world.crash())

    def damage(self, snapshot: Snapshot) -> None:
        name = f"snapshots/{snapshot_files.snapshot_name(snapshot)}"
        self._world.damage(name, lambda data: data[:-1] + bytes([data[-1] ^ 1]))


class InMemory:
    def __init__(self, store: MemorySnapshotStore | None = None) -> None:
        self._memory = store or MemorySnapshotStore()
        self.store: SnapshotStore = self._memory

    def crash(self) -> InMemory:
        return InMemory(MemorySnapshotStore(self._memory.published))

    def damage(self, snapshot: Snapshot) -> None:
        data = self._memory.published[snapshot]
        self._memory.published[snapshot] = data[:-1] + bytes([data[-1] ^ 1])


each_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


@each_check
def test_on_a_real_folder(check: Check, tmp_path: Path) -> None:
    check(OnFiles(RealWorld(tmp_path)))


@each_check
def test_on_the_faulty_disk(check: Check) -> None:
    check(OnFiles(FakeWorld()))


@each_check
def test_in_memory(check: Check) -> None:
    check(InMemory())


def test_on_a_disk_of_short_writes() -> None:
    """S13: a write may take fewer bytes than it was given."""
    disk = FaultyDisk()
    disk.most_per_write = 1000
    contract.what_is_received_is_there_once_it_is_finished(OnFiles(FakeWorld(disk)))


# -- planted faults: each must be caught ------------------------------------------------------------


def not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Named before its contents are on the disk (S14)."""
    monkeypatch.setattr(FaultyFile, "sync", lambda self: None)


def name_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = FaultyDisk.sync_directory

    def skip(self: FaultyDisk, path: Path) -> None:
        if path.name != "snapshots":
            genuine(self, path)

    monkeypatch.setattr(FaultyDisk, "sync_directory", skip)


def never_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSnapshotStore, "_prune", lambda self, published, newest: None)


def older_ones_pruned_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = FileSnapshotStore._prune

    def eager(self: FileSnapshotStore, published: SnapshotFile, newest: SnapshotFile) -> None:
        self._kept = 1
        genuine(self, published, newest)

    monkeypatch.setattr(FileSnapshotStore, "_prune", eager)


def parts_stored_wherever_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: FileSnapshotStore, snapshot: Snapshot, offset: int, data: bytes) -> int:
        if offset == 0 or self._receiving is None:
            self._receiving = self._begin(snapshots.RECEIVING, snapshot)
        self._receiving.append(data)
        return self._receiving.size_bytes

    monkeypatch.setattr(FileSnapshotStore, "store_chunk", careless)


def finished_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishes what was received without a look at size and checksum."""

    def credulous(self: FileSnapshotStore, snapshot: Snapshot) -> bool:
        assert self._receiving is not None
        self._publish(self._receiving)
        return True

    monkeypatch.setattr(FileSnapshotStore, "finish", credulous)


def no_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google_crc32c, "value", lambda data: 0)
    monkeypatch.setattr(google_crc32c, "extend", lambda check, data: 0)


def sent_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives damaged parts to another node, which could only find out at the end."""
    monkeypatch.setattr(snapshots, "verify", lambda disk, file: None)


def a_failed_write_leaves_a_named_file(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = snapshot_files.Draft.discard

    def hasty(self: snapshot_files.Draft) -> None:
        self.publish()
        genuine(self)

    monkeypatch.setattr(snapshot_files.Draft, "discard", hasty)


FAULTS: dict[Callable[[pytest.MonkeyPatch], None], Check] = {
    not_synced: contract.what_was_written_is_the_newest_and_survives_a_crash,
    name_not_synced: contract.what_was_written_is_the_newest_and_survives_a_crash,
    never_pruned: contract.the_two_newest_are_kept,
    older_ones_pruned_too_early: contract.the_two_newest_can_be_read_until_a_newer_one_is_whole,
    parts_stored_wherever_they_come_from: contract.a_part_in_the_wrong_place_changes_nothing,
    finished_unseen: contract.what_is_damaged_on_its_way_is_not_kept,
    no_checksum: contract.damage_is_found_before_the_last_part,
    sent_unseen: contract.damage_is_found_before_the_last_part,
    a_failed_write_leaves_a_named_file: contract.contents_that_cannot_be_drawn_leave_nothing,
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_suite_catches(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises((AssertionError, FencepostError, pytest.fail.Exception)):
        FAULTS[fault](OnFiles(FakeWorld()))
