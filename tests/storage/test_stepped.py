"""A store without a thread: the same turns, in the caller's hand, and the same twice."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

import pytest

from fencepost.raft.core.entry import HardState
from fencepost.raft.core.errors import StorageError, StorageFull
from fencepost.storage.identity import read_identity
from fencepost.storage.recovery import load_log

from .faulty_disk import FaultyDisk
from .world import ROOT, Log, entries, open_log, recover


def open_stepped(disk: FaultyDisk, *, segment_bytes: int = 1 << 20) -> Log:
    return open_log(disk, segment_bytes=segment_bytes, stepped=True)


def is_sealed(disk: FaultyDisk) -> bool:
    left = disk.after_power_loss()
    return load_log(left, ROOT / "log", bytes.fromhex(read_identity(left, ROOT).instance_id)).sealed


def test_nothing_happens_between_two_steps() -> None:
    disk = FaultyDisk()
    before = threading.active_count()
    log = open_stepped(disk)
    calls = dict(disk.calls)
    log.write(entries(1, 1))
    log.write(entries(2, 2))
    assert threading.active_count() == before
    assert dict(disk.calls) == calls
    assert log.acknowledged == []
    assert log.store.step()
    assert log.acknowledged == [2]
    assert recover(disk.after_power_loss()).entries == entries(1, 2)
    calls = dict(disk.calls)
    assert not log.store.step()
    assert dict(disk.calls) == calls
    log.close()


def test_a_seal_is_written_when_asked_for_and_only_where_it_says_something() -> None:
    disk = FaultyDisk()
    log = open_stepped(disk)
    assert not log.store.seal()
    log.write(entries(1, 1))
    assert not log.store.seal()
    log.store.step()
    assert not is_sealed(disk)
    assert log.store.seal()
    assert is_sealed(disk)
    assert not log.store.seal()
    log.write(entries(2, 2))
    log.store.step()
    assert not is_sealed(disk)
    log.close()
    assert is_sealed(disk)
    assert recover(disk).entries == entries(1, 2)


@pytest.mark.parametrize(("code", "kind"), [(errno.EIO, StorageError), (errno.ENOSPC, StorageFull)])
@pytest.mark.parametrize("operation", ["write", "sync_data"])
def test_s12_the_first_failure_of_a_step_is_final(operation: str, code: int, kind: type[StorageError]) -> None:
    disk = FaultyDisk()
    log = open_stepped(disk)
    log.wait(log.write(entries(1, 1)))
    disk.fail(operation, 1, code)
    log.write(entries(2, 2))
    assert log.store.step()
    assert [type(failure) for failure in log.failures] == [kind]
    assert log.store.status().failure is log.failures[0]
    calls = dict(disk.calls)
    log.write(entries(3, 3))
    assert not log.store.step()
    assert not log.store.seal()
    log.close()
    assert dict(disk.calls) == calls
    assert log.acknowledged == [1]
    assert len(log.failures) == 1


def test_s12_a_seal_that_fails_is_final_too() -> None:
    disk = FaultyDisk()
    log = open_stepped(disk)
    log.wait(log.write(entries(1, 1)))
    disk.fail("sync_data", 1)
    assert log.store.seal()
    assert len(log.failures) == 1
    log.write(entries(2, 2))
    assert not log.store.step()
    log.close()
    assert log.acknowledged == [1]


def test_s41_a_listener_that_raises_ends_the_store_loudly() -> None:
    disk = FaultyDisk()
    log = open_stepped(disk)

    def refuse(sequence: int) -> None:
        raise RuntimeError("the loop is closed")

    log.at_durable = refuse
    log.write(entries(1, 1))
    assert log.store.step()
    assert "the loop is closed" in log.failures[0].message
    log.close()


def test_s42_close_does_the_steps_that_were_not_made() -> None:
    disk = FaultyDisk()
    log = open_stepped(disk)
    for index in range(1, 6):
        log.write(entries(index, index))
    log.close()
    assert log.acknowledged == [5]
    assert recover(disk.after_power_loss()).entries == entries(1, 5)


def steps_of_a_life(stepped: bool) -> list[str]:
    """What a store does to its disk, operation by operation, and at which bytes."""
    disk = FaultyDisk()
    seen: list[str] = []
    disk.after_step = lambda operation: seen.append(f"{operation} {disk.used()}")
    log = open_log(disk, segment_bytes=1100, stepped=stepped)
    for index in range(1, 11):
        sequence = log.write(
            entries(index, index, size=300), hard_state=HardState(index, "n1"), commit_index=max(0, index - 2)
        )
        log.wait(sequence)
    log.close()
    return seen


def test_a_stepped_life_is_the_same_every_time_and_the_same_as_the_threads() -> None:
    first = steps_of_a_life(stepped=True)
    assert len(first) > 60
    assert steps_of_a_life(stepped=True) == first
    assert steps_of_a_life(stepped=False) == first


def closed(log: Log) -> None:
    log.close()
    log.store.step()


@pytest.mark.parametrize(
    "misuse",
    [
        lambda log: log.store.start(log.durable, log.failed),
        lambda log: log.store.start_stepped(log.durable, log.failed),
        closed,
    ],
)
def test_a_drive_is_chosen_once(misuse: Callable[[Log], None]) -> None:
    log = open_stepped(FaultyDisk())
    with pytest.raises(AssertionError):
        misuse(log)
    log.close()


def test_a_store_with_a_thread_is_not_stepped() -> None:
    log = open_log(FaultyDisk())
    for drive in (log.store.step, log.store.seal):
        with pytest.raises(AssertionError, match="without a thread"):
            drive()
    log.close()
