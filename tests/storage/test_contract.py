"""The conformance suite on a real folder and on the faulty disk, and proof that it can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest

from fencepost.raft.core.errors import FencepostError
from fencepost.raft.core.events import Persist
from fencepost.storage import disk as disk_module
from fencepost.storage import log_store, recovery, segments, statefiles
from fencepost.storage.disk import Buffer, File

from . import contract
from .contract import CHECKS, Check
from .faulty_disk import FaultyDisk, FaultyFile
from .world import FakeWorld, RealWorld

each_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
both_drives = pytest.mark.parametrize("stepped", [False, True], ids=["thread", "stepped"])


@each_check
@both_drives
def test_on_a_real_folder(check: Check, tmp_path: Path, stepped: bool) -> None:
    check(RealWorld(tmp_path, stepped=stepped))


@each_check
@both_drives
def test_on_the_faulty_disk(check: Check, stepped: bool) -> None:
    check(FakeWorld(stepped=stepped))


@each_check
def test_on_a_disk_of_short_writes(check: Check) -> None:
    """S13: a write may take fewer bytes than it was given."""
    disk = FaultyDisk()
    disk.most_per_write = 1000
    check(FakeWorld(disk))


# -- planted faults: each must be caught ------------------------------------------------------------


def no_data_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledges what is only in the page cache (S13)."""
    monkeypatch.setattr(FaultyFile, "sync_data", lambda self: None)


def no_directory_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """New segments and state files without durable names (S14)."""
    monkeypatch.setattr(FaultyDisk, "sync_directory", lambda self, path: None)


def no_directory_sync_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = FaultyDisk.sync_directory

    def skip(self: FaultyDisk, path: Path) -> None:
        if path.name != "log":
            genuine(self, path)

    monkeypatch.setattr(FaultyDisk, "sync_directory", skip)


def no_content_sync_of_state_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renames a file into place that is not on the disk yet."""
    monkeypatch.setattr(FaultyFile, "sync", lambda self: None)


def no_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes whatever the disk returns (S10)."""
    monkeypatch.setattr(google_crc32c, "value", lambda data: 0)
    monkeypatch.setattr(google_crc32c, "extend", lambda check, data: 0)


def short_writes_left_short(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(file: File, offset: int, buffers: list[Buffer]) -> int:
        file.write_at(offset, buffers)
        return sum(map(len, buffers))

    monkeypatch.setattr(FaultyDisk, "__init__", _short_disk(FaultyDisk.__init__))
    for module in (disk_module, segments, statefiles):
        monkeypatch.setattr(module, "write_fully", once)


def _short_disk(genuine: Callable[[FaultyDisk], None]) -> Callable[[FaultyDisk], None]:
    def make(self: FaultyDisk) -> None:
        genuine(self)
        self.most_per_write = 1000

    return make


def damage_is_always_a_torn_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts the log at any damage (S10)."""
    monkeypatch.setattr(recovery, "header_after", lambda data, seed, offset: None)


def acknowledged_before_the_write(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = log_store.FileLogStore._collect

    def early(self: log_store.FileLogStore, write: Persist) -> tuple[list[bytes], int, bool]:
        body, sequence, closing = genuine(self, write)
        tell = self._on_durable

        def once(late: int) -> None:
            self._on_durable = tell

        tell(sequence)
        self._on_durable = once
        return body, sequence, closing

    monkeypatch.setattr(log_store.FileLogStore, "_collect", early)


def close_forgets_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends the thread at the next record, whatever is queued (S42)."""
    genuine = log_store.FileLogStore._collect

    def hasty(self: log_store.FileLogStore, write: Persist) -> tuple[list[bytes], int, bool]:
        body, sequence, closing = genuine(self, write)
        return body, sequence, closing or self._closed

    monkeypatch.setattr(log_store, "DRAIN_BYTES", 1)
    monkeypatch.setattr(log_store.FileLogStore, "_collect", hasty)


def truncations_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """S17"""
    monkeypatch.setattr(recovery.Replay, "_truncate", lambda self, truncate_from: None)


def the_lock_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.storage.identity.take_lock", lambda disk, root: _NoLock())


class _NoLock:
    def release(self) -> None:
        pass


FAULTS: dict[Callable[[pytest.MonkeyPatch], None], Check] = {
    no_data_sync: contract.what_was_acknowledged_survives_a_crash,
    no_directory_sync: contract.every_open_raises_the_boot_count,
    no_directory_sync_in_the_log: contract.segments_roll_and_all_of_them_survive_a_crash,
    no_content_sync_of_state_files: contract.a_peers_instance_is_remembered_after_a_crash,
    no_checksum: contract.damage_in_the_middle_is_refused,
    short_writes_left_short: contract.a_large_write_survives,
    damage_is_always_a_torn_tail: contract.damage_in_the_middle_is_refused,
    acknowledged_before_the_write: contract.what_is_acknowledged_is_on_the_disk_at_that_moment,
    close_forgets_the_queue: contract.close_finishes_what_was_queued,
    truncations_are_forgotten: contract.a_bare_truncation_survives_a_crash,
    the_lock_is_not_taken: contract.an_open_directory_is_locked,
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_suite_catches(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises((AssertionError, FencepostError, pytest.fail.Exception)):
        FAULTS[fault](FakeWorld())
