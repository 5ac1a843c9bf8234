"""The first failed write or sync is final, and a full disk leaves nothing half-written (S11, S12, S18, S42)."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from fencepost.raft.core.entry import HardState
from fencepost.raft.core.errors import Outcome, StorageError, StorageFull
from fencepost.storage import segments
from fencepost.storage.disk import RealDisk
from fencepost.storage.log_store import FileLogStore
from fencepost.storage.reader import read_log

from .faulty_disk import FaultyDisk, FaultyFile
from .world import FIRST, ROOT, Log, entries, open_directory, open_log, opened, recover


@pytest.fixture
def nothing_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """No space written in advance: it would let a record fit where a test wants the disk full."""
    monkeypatch.setattr(segments.ActiveSegment, "write_ahead", lambda self, limit: None)


def write_three(log: Log) -> None:
    for index in range(1, 4):
        log.wait(log.write(entries(index, index)))


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("operation", ["write", "sync_data"])
@pytest.mark.usefixtures("nothing_ahead")
def test_s12_the_first_failure_is_final(operation: str, code: int) -> None:
    """The third sync fails and the fourth would succeed: nothing from there on is acknowledged, ever."""
    disk = FaultyDisk()
    log = open_log(disk)
    write_three(log)
    disk.fail(operation, 1, code)
    failing = log.write(entries(4, 4))
    error = log.wait_failed()
    assert isinstance(error, StorageFull if code == errno.ENOSPC else StorageError)
    assert error.outcome is Outcome.UNKNOWN
    assert FIRST in error.message
    assert error.tried
    assert error.next_step
    calls = disk.calls["write"]
    for index in range(5, 8):
        log.write(entries(index, index))
    log.close()
    assert log.acknowledged[-1] < failing
    assert len(log.failures) == 1
    assert disk.calls["write"] == calls
    assert log.store.status().failure is error
    recovered = recover(disk.after_power_loss())
    assert recovered.entries[:3] == entries(1, 3)
    assert len(recovered.entries) <= 4


def test_s12_after_a_failed_sync_the_disk_says_what_exists_and_not_the_cache() -> None:
    """The process restarts on the same running system, whose cache calls the lost pages clean."""
    disk = FaultyDisk()
    log = open_log(disk)
    write_three(log)
    disk.fail("sync_data", 1)
    log.write(entries(4, 4))
    log.wait_failed()
    log.close()
    assert b"4:1:" in disk.read(ROOT / FIRST)
    with opened(disk) as again:
        held = again.recovered.entries
        again.wait(again.write(entries(len(held) + 1, len(held) + 1, term=2)))
        left = disk.after_power_loss()
    assert recover(left).entries == [*held, *entries(len(held) + 1, len(held) + 1, term=2)]


def test_s12_that_test_catches_a_store_that_trusts_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FaultyFile, "drop_cache", lambda self: None)
    with pytest.raises((AssertionError, StorageError)):
        test_s12_after_a_failed_sync_the_disk_says_what_exists_and_not_the_cache()


@pytest.mark.parametrize("operation", ["sync", "create", "rename", "sync_directory", "truncate", "write"])
@pytest.mark.usefixtures("nothing_ahead")
def test_s12_a_failure_at_any_step_of_a_roll_is_final(operation: str) -> None:
    disk = FaultyDisk()
    log = open_log(disk, segment_bytes=1100)
    log.wait(log.write(entries(1, 1, size=100)))
    with disk.mutex:
        # The next of its kind after the record itself, which is a write and a sync of data.
        disk.fail(operation, 2 if operation == "write" else 1)
        log.write(entries(2, 2, size=600))
    log.wait_failed()
    log.write(entries(3, 3))
    log.close()
    assert len(log.failures) == 1
    assert log.acknowledged[-1] == 2
    for left in (disk, disk.after_power_loss()):
        recovered = recover(left)
        assert [entry.index for entry in recovered.entries] == [1, 2]


@pytest.mark.parametrize("operation", ["write", "sync_data"])
def test_s12_a_failure_while_writing_zeros_ahead_is_final_too(operation: str) -> None:
    """A sync that failed may have lost anything in the file, whoever asked for it."""
    disk = FaultyDisk()
    log = open_log(disk)
    disk.fail(operation, 2)
    log.wait(log.write(entries(1, 1)))
    log.wait_failed()
    log.write(entries(2, 2))
    log.close()
    assert log.acknowledged == [1]
    assert recover(disk.after_power_loss()).entries == entries(1, 1)


def test_s12_no_room_at_a_sync_of_zeros_ahead_is_final_as_well() -> None:
    """Where blocks are given out late, a sync is what finds the disk full; and what it lost is not known."""
    disk = FaultyDisk()
    log = open_log(disk)
    disk.fail("sync_data", 2, errno.ENOSPC)
    log.wait(log.write(entries(1, 1)))
    assert isinstance(log.wait_failed(), StorageFull)
    log.write(entries(2, 2))
    log.close()
    assert log.acknowledged == [1]
    assert recover(disk.after_power_loss()).entries == entries(1, 1)


@pytest.mark.usefixtures("nothing_ahead")
def test_s11_a_full_disk_leaves_no_half_record_and_space_alone_mends_it() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    for index in range(1, 12):
        log.wait(log.write(entries(index, index)))
    whole = disk.read(ROOT / FIRST)
    for room in (1, 23, 24, 25, 60):
        full = disk.after_kill()
        broken = open_log(full)
        before = full.read(ROOT / FIRST)
        full.capacity = full.used() + room
        broken.write(entries(12, 12, size=500))
        assert isinstance(broken.wait_failed(), StorageFull)
        assert full.read(ROOT / FIRST) == before
        assert before.startswith(whole)
        assert full.after_power_loss().read(ROOT / FIRST) == before
        broken.close()
        full.capacity = 1 << 60
        with opened(full) as again:
            assert again.recovered.entries == entries(1, 11)
            again.wait(again.write(entries(12, 12, size=500)))
        assert recover(full).entries[11:] == entries(12, 12, size=500)
    log.close()


def test_s11_the_half_record_would_be_cut_at_the_next_open_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """If even the cut fails, recovery makes it."""
    disk = FaultyDisk()
    monkeypatch.setattr(segments.ActiveSegment, "write_ahead", lambda self, limit: None)
    log = open_log(disk)
    write_three(log)
    disk.capacity = disk.used() + 30
    disk.fail("truncate", 1)
    log.write(entries(4, 4))
    log.wait_failed()
    log.close()
    disk.capacity = 1 << 60
    assert read_log(ROOT, disk).torn_bytes > 0
    recovered = recover(disk)
    assert recovered.entries == entries(1, 3)
    assert recovered.torn_bytes > 0
    assert recover(disk).torn_bytes == 0


def test_s11_no_space_for_space_in_advance_is_no_failure() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    disk.capacity = disk.used() + 8000
    for index in range(1, 11):
        log.wait(log.write(entries(index, index)))
    log.close()
    assert log.failures == []
    assert recover(disk.after_power_loss()).entries == entries(1, 10)


def test_s11_a_start_without_a_free_byte_says_so() -> None:
    disk = FaultyDisk()
    with opened(disk) as log:
        write_three(log)
    disk.capacity = disk.used()
    with pytest.raises(StorageFull, match="no space left") as refusal:
        open_directory(disk)
    assert "free space" in refusal.value.next_step
    assert read_log(ROOT, disk).entries == entries(1, 3)
    disk.capacity = 1 << 60
    assert recover(disk).entries == entries(1, 3)


def test_s11_close_on_a_full_disk_is_no_failure() -> None:
    """Everything acknowledged is durable; only the seal is missing."""
    disk = FaultyDisk()
    log = open_log(disk)
    write_three(log)
    disk.fail("write", 1, errno.ENOSPC)
    log.close()
    assert log.failures == []
    assert recover(disk).entries == entries(1, 3)


def test_s18_a_completion_says_nothing_about_a_later_write() -> None:
    """1..3 of term 1 and their replacement are two writes; each is covered by its own sync only."""
    disk = FaultyDisk()
    held: list[tuple[int, list[int]]] = []
    log = open_log(disk)
    at_sync = threading.Event()
    go_on = threading.Event()

    def hold(operation: str) -> None:
        if operation == "sync_data" and not at_sync.is_set():
            at_sync.set()
            assert go_on.wait(60)

    disk.after_step = hold
    log.at_durable = lambda sequence: held.append(
        (sequence, [entry.term for entry in read_log(ROOT, disk.after_power_loss()).entries])
    )
    log.write(entries(1, 3, term=1))
    assert at_sync.wait(60)
    # The old write is on its way to the disk; what replaces it is queued behind it.
    log.write(entries(1, 3, term=2), truncate_from=1, hard_state=HardState(2, ""))
    go_on.set()
    log.wait(2)
    log.close()
    assert held == [(1, [1, 1, 1]), (2, [2, 2, 2])]


def test_s42_writes_happen_though_nobody_waits_for_them() -> None:
    """What the caller stops waiting for is written all the same, in order, and close waits for it."""
    disk = FaultyDisk()
    log = open_log(disk)
    stuck = threading.Event()
    go_on = threading.Event()

    def hold(operation: str) -> None:
        if operation == "write" and not stuck.is_set():
            stuck.set()
            assert go_on.wait(60)

    disk.after_step = hold
    log.write(entries(1, 1))
    assert stuck.wait(60)
    for index in range(2, 11):
        log.write(entries(index, index))
    closing = threading.Thread(target=log.close)
    closing.start()
    assert log.acknowledged == []
    go_on.set()
    closing.join(60)
    assert not closing.is_alive()
    assert log.acknowledged[-1] == 10
    assert recover(disk.after_power_loss()).entries == entries(1, 10)


def test_s13_queued_writes_share_one_sync() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    at_sync = threading.Event()
    go_on = threading.Event()

    def hold(operation: str) -> None:
        if operation == "sync_data" and not at_sync.is_set():
            at_sync.set()
            assert go_on.wait(60)

    disk.after_step = hold
    log.write(entries(1, 1))
    assert at_sync.wait(60)
    for index in range(2, 102):
        log.write(entries(index, index))
    go_on.set()
    log.wait(101)
    assert log.acknowledged == [1, 101]
    assert log.store.status().syncs == 2
    log.close()


def test_s41_a_listener_that_raises_ends_the_store_loudly() -> None:
    disk = FaultyDisk()
    directory = open_directory(disk)
    store, _ = FileLogStore.open(directory)
    log = Log(directory, store, recovered=read_log(ROOT, disk))

    def refuse(sequence: int) -> None:
        raise RuntimeError("the loop is closed")

    store.start(refuse, log.failed)
    log.write(entries(1, 1))
    error = log.wait_failed()
    assert "the loop is closed" in error.message
    log.close()


def test_s41_close_survives_a_listener_of_failures_that_raises() -> None:
    disk = FaultyDisk()
    directory = open_directory(disk)
    store, _ = FileLogStore.open(directory)

    def refuse(value: object) -> None:
        raise RuntimeError("the loop is closed")

    store.start(refuse, refuse)
    log = Log(directory, store, recovered=read_log(ROOT, disk))
    log.write(entries(1, 1))
    log.close()
    assert store.status().failure is not None


def test_a_store_that_was_never_started_writes_at_close() -> None:
    disk = FaultyDisk()
    directory = open_directory(disk)
    store, recovered = FileLogStore.open(directory)
    Log(directory, store, recovered).write(entries(1, 3))
    store.close()
    store.close()
    directory.close()
    assert recover(disk).entries == entries(1, 3)


def test_s17_writes_that_do_not_fit_the_log_are_refused_at_once() -> None:
    """Bugs of the caller, stopped before they reach the disk."""
    disk = FaultyDisk()
    log = open_log(disk)
    log.wait(log.write(entries(1, 5, term=2), hard_state=HardState(2, "n1"), commit_index=3))
    calls = disk.calls["write"]
    with pytest.raises(AssertionError, match="truncation from 3; committed up to 3"):
        log.write(truncate_from=3)
    with pytest.raises(AssertionError, match="truncation from 7"):
        log.write(truncate_from=7)
    with pytest.raises(AssertionError, match="do not follow index 5"):
        log.write(entries(7, 7))
    with pytest.raises(AssertionError, match="do not follow index 5"):
        log.write([*entries(6, 6), *entries(8, 8)])
    with pytest.raises(AssertionError, match="commit index 6"):
        log.write(commit_index=6)
    with pytest.raises(AssertionError, match="hard state"):
        log.write(hard_state=HardState(1, ""))
    with pytest.raises(AssertionError, match="hard state"):
        log.write(hard_state=HardState(2, "n2"))
    log.sequence = 0
    with pytest.raises(AssertionError, match="write 1 after write 1"):
        log.write()
    assert disk.calls["write"] == calls
    log.close()
    with pytest.raises(AssertionError, match="append after close"):
        log.write()
    with pytest.raises(AssertionError, match="started before"):
        log.store.start(log.durable, log.failed)


def test_s43_the_writer_is_a_thread_of_its_own_and_ends_with_close(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    log = open_log(RealDisk(), tmp_path / "n1")
    (writer,) = set(threading.enumerate()) - before
    threads = set()
    log.at_durable = lambda sequence: threads.add(threading.current_thread())
    log.wait(log.write(entries(1, 1)))
    log.close()
    assert threads == {writer}
    assert not writer.is_alive()
