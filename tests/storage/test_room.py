"""A disk that gets full: who is told before, what is given up, what is left, and what heals by itself (S11)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from fencepost.raft.core.entry import HardState
from fencepost.raft.core.errors import StorageFull
from fencepost.storage.disk import RealDisk
from fencepost.storage.identity import DataDirectory
from fencepost.storage.log_store import FileLogStore
from fencepost.storage.reader import read_log
from fencepost.storage.reserve import PLENTY, RESERVE
from fencepost.storage.room import LOOK_EVERY_BYTES
from fencepost.storage.spare import SPARE

from .crashes import crash_at_every_step
from .faulty_disk import FaultyDisk
from .world import ROOT, Log, entries, open_directory, opened, recover

RESERVE_BYTES = 8192
NO_LIMIT = 1 << 60


def open_with_reserve(disk: FaultyDisk, *, low_bytes: int = 0, segment_bytes: int = 1 << 20) -> Log:
    directory = open_directory(disk, reserve_bytes=RESERVE_BYTES)
    try:
        store, recovered = FileLogStore.open(directory, segment_bytes=segment_bytes, low_bytes=low_bytes)
    except BaseException:
        directory.close()
        raise
    log = Log(directory, store, recovered, stepped=True)
    store.start_stepped(log.durable, log.failed)
    return log


def has_reserve(disk: FaultyDisk) -> bool:
    return RESERVE in disk.list_directory(ROOT) and disk.size(ROOT / RESERVE) == RESERVE_BYTES


def fill(disk: FaultyDisk) -> None:
    """Somebody else takes what is left."""
    disk.capacity = disk.used()


def write_until_it_fails(log: Log, size: int = 500) -> int:
    """How many writes were made durable."""
    index = log.store._admission.last_index
    while not log.failures:
        index += 1
        log.write(entries(index, index, size=size))
        log.store.step()
    return index - 1


def test_the_reserve_is_made_once_and_is_the_directorys_own() -> None:
    disk = FaultyDisk()
    for _ in range(2):
        log = open_with_reserve(disk)
        assert log.store.status().reserve_held
        log.close()
        assert has_reserve(disk.after_power_loss())
    assert disk.read(ROOT / RESERVE) == bytes(RESERVE_BYTES)


def test_the_last_room_is_not_taken_for_a_reserve() -> None:
    disk = FaultyDisk()
    recover(disk)
    disk.capacity = disk.used() + PLENTY * RESERVE_BYTES - 1
    log = open_with_reserve(disk)
    assert not log.store.status().reserve_held
    log.close()


def test_nobody_waits_for_a_write_until_the_room_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk()
    seen: list[str] = []
    with opened(disk, segment_bytes=8 << 20, stepped=True) as log:
        look = disk.free_bytes

        def free_bytes(path: Path) -> int:
            seen.append("looked")
            return look(path)

        monkeypatch.setattr(disk, "free_bytes", free_bytes)
        log.at_durable = lambda sequence: seen.append("durable")
        log.write(entries(1, 1, size=LOOK_EVERY_BYTES))
        log.store.step()
    assert seen[:2] == ["durable", "looked"]


def test_s11_a_full_disk_costs_the_reserve_first_and_then_the_node() -> None:
    disk = FaultyDisk()
    log = open_with_reserve(disk)
    log.wait(log.write(entries(1, 1), hard_state=HardState(1, "n1")))
    fill(disk)
    with structlog.testing.capture_logs() as lines:
        held = write_until_it_fails(log)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["reserve_given_up", "log_failed"]
    assert held > RESERVE_BYTES // 1024
    assert not has_reserve(disk)
    assert not log.store.status().reserve_held
    assert isinstance(log.failures[0], StorageFull)
    assert "free space" in log.failures[0].next_step
    log.close()
    for left in (disk.after_kill(), disk.after_power_loss()):
        # Nothing half-written stays, and what was acknowledged is there.
        assert read_log(ROOT, left).torn_bytes == 0
        assert read_log(ROOT, left).last_index == held
        left.capacity = NO_LIMIT
        again = open_with_reserve(left)
        assert again.recovered.last_index == held
        assert has_reserve(left)
        again.wait(again.write(entries(held + 1, held + 1)))
        again.close()


def test_s11_a_record_that_found_no_room_may_be_cut_anywhere_and_tried_again() -> None:
    """Half of it is written, cut away, the reserve deleted, and all of it written: every boundary."""
    disk = FaultyDisk()
    log = open_with_reserve(disk)
    log.wait(log.write(entries(1, 3), hard_state=HardState(1, "n1")))
    disk.capacity = disk.used() + 700
    # Into what is there in zeros first, then over its end.
    whole = [*entries(1, 3), *entries(4, 4, size=6000)]

    def act(acknowledge: Callable[[], None]) -> None:
        log.at_durable = lambda sequence: acknowledge()
        log.wait(log.write(entries(4, 4, size=6000)))

    aftermaths = crash_at_every_step(disk, act)
    assert not has_reserve(disk)
    assert len(aftermaths) > 8
    for left, acknowledged, what in aftermaths:
        found = recover(left, stepped=True).entries
        assert found in (whole[:3], whole), what
        assert found == whole or not acknowledged, what
    log.close()


def test_s11_what_compaction_frees_is_room_again_and_makes_the_reserve_again() -> None:
    disk = FaultyDisk()
    log = open_with_reserve(disk, segment_bytes=16 * 512)
    for index in range(1, 41):
        log.wait(log.write(entries(index, index, size=900), commit_index=index - 1))
    fill(disk)
    index = 40
    while has_reserve(disk):
        index += 1
        log.wait(log.write(entries(index, index, size=900), commit_index=index - 1))
    log.wait(log.write(compact_to=index - 1, commit_index=index))
    log.wait(log.write(entries(index + 1, index + 1)))
    assert log.failures == []
    assert log.store.seal()
    assert has_reserve(disk)
    assert log.store.status().reserve_held
    log.close()


@pytest.mark.parametrize("segment_bytes", [1 << 20, 16 * 512])
def test_s11_a_start_without_a_free_byte_lives_from_the_reserve(segment_bytes: int) -> None:
    disk = FaultyDisk()
    log = open_with_reserve(disk, segment_bytes=segment_bytes)
    for index in range(1, 12):
        log.wait(log.write(entries(index, index, size=900)))
    left = disk.after_kill()
    log.close()
    fill(left)
    again = open_with_reserve(left, segment_bytes=segment_bytes)
    assert again.recovered.last_index == 11
    assert again.directory.boot == 2
    assert not has_reserve(left)
    again.close()


def test_s11_a_start_without_a_free_byte_or_a_reserve_says_so_and_harms_nothing() -> None:
    disk = FaultyDisk()
    with opened(disk, stepped=True) as log:
        log.wait(log.write(entries(1, 3)))
    fill(disk)
    before = {name: disk.read(ROOT / "log" / name) for name in disk.list_directory(ROOT / "log")}
    for _ in range(3):
        with pytest.raises(StorageFull, match="no space left while writing /data/n1/boot") as refusal:
            open_with_reserve(disk)
        assert "free space on the file system of /data/n1, then start the node again" in refusal.value.next_step
    assert {name: disk.read(ROOT / "log" / name) for name in disk.list_directory(ROOT / "log")} == before
    disk.capacity = NO_LIMIT
    log = open_with_reserve(disk)
    assert log.recovered.entries == entries(1, 3)
    log.close()


def test_s11_s21_an_instance_is_remembered_on_a_full_disk() -> None:
    disk = FaultyDisk()
    directory = open_directory(disk, reserve_bytes=RESERVE_BYTES)
    fill(disk)
    directory.remember_instance("n2", "aa")
    assert not has_reserve(disk)
    assert directory.known_instances() == {"n2": "aa"}
    directory.close()


def test_s12_a_sync_that_finds_no_room_is_final_whatever_could_be_given_up() -> None:
    disk = FaultyDisk()
    log = open_with_reserve(disk)
    log.wait(log.write(entries(1, 1)))
    disk.fail("sync_data", 1, 28)
    log.write(entries(2, 2))
    log.store.step()
    assert isinstance(log.failures[0], StorageFull)
    assert has_reserve(disk)
    log.close()


def test_s11_a_spare_segment_is_given_up_before_the_reserve() -> None:
    disk = FaultyDisk()
    log = open_with_reserve(disk, segment_bytes=16 * 512)
    index = 0
    while SPARE not in disk.list_directory(ROOT / "log"):
        index += 1
        log.wait(log.write(entries(index, index, size=900)))
    fill(disk)
    while SPARE in disk.list_directory(ROOT / "log"):
        assert has_reserve(disk)
        index += 1
        log.wait(log.write(entries(index, index, size=1900)))
    assert log.failures == []
    log.close()
    assert recover(disk.after_power_loss(), stepped=True).last_index == index


def events(lines: list[Any]) -> list[str]:
    return [line["event"] for line in lines if line["event"].startswith("disk_")]


def test_a_warning_comes_before_the_disk_is_full_and_once() -> None:
    disk = FaultyDisk()
    log = open_with_reserve(disk, low_bytes=100_000)
    with structlog.testing.capture_logs() as lines:
        disk.capacity = disk.used() + 200_000
        log.wait(log.write(entries(1, 1)))
        log.store.seal()
        assert events(lines) == []
        assert not log.store.status().low
        for room in (99_000, 50_000, 110_000):
            disk.capacity = disk.used() + room
            log.wait(log.write(entries(log.sequence + 1, log.sequence + 1)))
            log.store.seal()
            assert log.store.status().low
            assert log.store.status().free_bytes <= room
        # A disk that stands at the mark does not fill the journal.
        assert events(lines) == ["disk_low"]
        disk.capacity = disk.used() + 200_000
        log.wait(log.write(entries(log.sequence + 1, log.sequence + 1)))
        log.store.seal()
    assert events(lines) == ["disk_low", "disk_ample"]
    (warning,) = (line for line in lines if line["event"] == "disk_low")
    assert warning["log_level"] == "warning"
    assert warning["low_bytes"] == 100_000
    assert not log.store.status().low
    log.close()


def test_a_disk_that_is_low_at_the_start_is_told_at_the_start() -> None:
    disk = FaultyDisk()
    recover(disk)
    disk.capacity = disk.used() + 50_000
    with structlog.testing.capture_logs() as lines:
        log = open_with_reserve(disk, low_bytes=100_000)
    assert events(lines) == ["disk_low"]
    log.close()


def test_under_the_mark_nothing_is_kept_for_later() -> None:
    disk = FaultyDisk()
    log = open_with_reserve(disk, low_bytes=1 << 40, segment_bytes=16 * 512)
    disk.capacity = disk.used() + (1 << 20)
    for index in range(1, 30):
        compact_to = index - 2 if index % 9 == 0 else 0
        log.wait(log.write(entries(index, index, size=900), commit_index=index - 1, compact_to=compact_to))
        log.store.seal()
        assert SPARE not in disk.list_directory(ROOT / "log")
    assert log.store.status().segment > 2
    log.close()


# -- a real file system -----------------------------------------------------------------------------


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    """A memory file system of 3 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", os.fspath(place)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"a file system of 3 MiB cannot be mounted here (it takes root): {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", os.fspath(place)], check=True)


def open_real(place: Path) -> Log:
    directory = DataDirectory.open(
        place / "n1", cluster_id="c1", node_id="n1", voters=("n1",), disk=RealDisk(), reserve_bytes=256 << 10
    )
    try:
        store, recovered = FileLogStore.open(directory, segment_bytes=256 << 10, low_bytes=1 << 20)
    except BaseException:
        directory.close()
        raise
    log = Log(directory, store, recovered, stepped=True)
    store.start_stepped(log.durable, log.failed)
    return log


def fill_up(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(512))


def test_s11_a_file_system_that_is_really_full(small_file_system: Path) -> None:
    """Warned, reserve given up, ended; started on no free byte; healed by space alone."""
    log = open_real(small_file_system)
    with structlog.testing.capture_logs() as lines:
        held = write_until_it_fails(log, size=30_000)
    told = [line["event"] for line in lines if line["event"] in ("disk_low", "reserve_given_up", "log_failed")]
    assert told == ["disk_low", "reserve_given_up", "log_failed"]
    log.close()
    assert not (small_file_system / "n1" / RESERVE).exists()
    assert read_log(small_file_system / "n1").last_index == held
    ballast = small_file_system / "ballast"
    with pytest.raises(OSError, match="No space left"):
        fill_up(ballast)
    assert os.statvfs(small_file_system).f_bavail == 0
    with pytest.raises(StorageFull, match="no space left") as refusal:
        open_real(small_file_system)
    assert "free space on the file system of" in refusal.value.next_step
    assert read_log(small_file_system / "n1").last_index == held
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=8m", os.fspath(small_file_system)], check=True)
    again = open_real(small_file_system)
    assert again.recovered.last_index == held
    assert again.store.status().reserve_held
    again.wait(again.write(entries(held + 1, held + 1)))
    again.close()
