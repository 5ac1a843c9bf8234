"""The disk: what a kill, a loss of power and each kind of failure leave of what was written."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from fencepost.jepsen.sim.agenda import ProcessEnded
from fencepost.jepsen.sim.disk import SimDisk, SimFile

FILE = Path("/a")
SECTOR = 512


def written(disk: SimDisk, content: bytes, *, synced: bool, path: Path = FILE) -> SimFile:
    file = disk.open(path, create=True)
    file.write_at(0, [content])
    if synced:
        file.sync()
        disk.sync_directory(path.parent)
    return file


def test_a_kill_keeps_what_was_written_and_a_loss_of_power_only_what_was_synced() -> None:
    disk = SimDisk()
    file = written(disk, b"synced", synced=True)
    file.write_at(6, [b" and ", b"not"])
    written(disk, b"nameless", synced=False, path=Path("/b"))
    disk.kill()
    assert disk.read(FILE) == b"synced and not"
    assert disk.read(Path("/b")) == b"nameless"
    disk.lose_power(None)
    assert disk.read(FILE) == b"synced"
    assert disk.list_directory(Path("/")) == ["a"]
    assert disk.used_bytes == 6


def test_a_name_without_a_sync_of_its_directory_is_lost_with_the_power_and_so_is_a_rename() -> None:
    disk = SimDisk()
    written(disk, b"old", synced=True)
    new = written(disk, b"new", synced=False, path=Path("/b"))
    new.sync()
    disk.rename(Path("/b"), FILE)
    assert disk.read(FILE) == b"new"
    disk.lose_power(None)
    assert disk.read(FILE) == b"old"


def test_fdatasync_covers_writes_and_no_cut() -> None:
    disk = SimDisk()
    file = written(disk, b"0123456789", synced=True)
    file.truncate(4)
    file.write_at(4, [b"x"])
    file.sync_data()
    assert disk.read(FILE) == b"0123x"
    disk.lose_power(None)
    assert disk.read(FILE) == b"0123x56789"


def test_a_torn_write_leaves_some_sectors_and_every_mixture_occurs() -> None:
    seen = set()
    for seed in range(200):
        disk = SimDisk()
        file = written(disk, b"-" * 3 * SECTOR, synced=True)
        file.write_at(0, [b"+" * 3 * SECTOR])
        disk.lose_power(Random(seed))
        content = disk.read(FILE)
        sectors = [content[at : at + SECTOR] for at in range(0, 3 * SECTOR, SECTOR)]
        assert all(sector in (b"-" * SECTOR, b"+" * SECTOR) for sector in sectors)
        seen.add("".join(chr(sector[0]) for sector in sectors))
    assert len(seen) == 8


def test_a_torn_write_at_the_end_leaves_a_hole_of_zeros() -> None:
    for seed in range(50):
        disk = SimDisk()
        file = written(disk, b"", synced=True)
        file.write_at(0, [b"1" * SECTOR + b"2" * SECTOR])
        disk.lose_power(Random(seed))
        if disk.read(FILE) == bytes(SECTOR) + b"2" * SECTOR:
            return
    raise AssertionError("the second sector never came without the first")


def test_a_failed_sync_loses_the_bytes_and_the_next_one_says_that_all_is_well() -> None:
    disk = SimDisk()
    file = written(disk, b"first ", synced=True)
    file.write_at(6, [b"second"])
    disk.fail("sync_data")
    with pytest.raises(OSError, match="Input/output"):
        file.sync_data()
    file.sync_data()
    file.sync()
    assert disk.read(FILE) == b"first second", "the cache still shows it"
    file.drop_cache()
    assert disk.read(FILE) == b"first "
    disk.lose_power(None)
    assert disk.read(FILE) == b"first "


def test_the_nth_call_of_an_operation_fails_and_a_broken_one_always() -> None:
    disk = SimDisk()
    file = written(disk, b"", synced=True)
    disk.fail("write_at", 2, errno.EIO)
    file.write_at(0, [b"a"])
    with pytest.raises(OSError, match="Input/output") as raised:
        file.write_at(1, [b"b"])
    assert raised.value.errno == errno.EIO
    file.write_at(1, [b"b"])
    assert disk.read(FILE) == b"ab"
    disk.broken["read"] = errno.EROFS
    for _ in range(2):
        with pytest.raises(OSError, match="Read-only"):
            disk.read(FILE)


def test_a_full_disk_takes_what_fits_and_has_room_again_after_something_is_removed() -> None:
    disk = SimDisk()
    written(disk, b"x" * 60, synced=True)
    disk.capacity_bytes = 100
    other = disk.open(Path("/b"), create=True)
    assert other.write_at(0, [b"y" * 50]) == 40
    with pytest.raises(OSError, match="No space") as raised:
        other.write_at(40, [b"y" * 10])
    assert raised.value.errno == errno.ENOSPC
    assert other.write_at(10, [b"z" * 10]) == 10, "what is there may be written over"
    disk.unlink(FILE)
    assert disk.used_bytes == 40
    assert other.write_at(40, [b"y" * 10]) == 10


def test_short_writes_take_as_much_as_they_are_told() -> None:
    disk = SimDisk()
    disk.write_bytes_max = 4
    file = disk.open(FILE, create=True)
    assert file.write_at(0, [b"abc", b"def"]) == 4
    assert disk.read(FILE) == b"abcd"


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_the_process_ends_before_the_nth_operation_does_anything(nth: int) -> None:
    disk = SimDisk()
    file = written(disk, b"", synced=True)
    ended: list[str] = []
    disk.end_at(nth, lambda: ended.append("ended"))
    for number in range(nth - 1):
        file.write_at(number, [b"x"])
    with pytest.raises(ProcessEnded):
        file.write_at(nth, [b"x"])
    assert ended == ["ended"]
    disk.kill()
    assert disk.read(FILE) == b"x" * (nth - 1)
    with pytest.raises(AssertionError, match="has ended"):
        file.write_at(0, [b"y"])


def test_a_lock_is_held_by_one_and_ends_with_its_process() -> None:
    disk = SimDisk()
    lock = disk.lock(Path("/lock"), "somebody")
    with pytest.raises(BlockingIOError):
        disk.lock(Path("/lock"), "another")
    disk.kill()
    later = disk.lock(Path("/lock"), "another")
    lock.release()  # Of a process that is gone: it releases nothing of the next one's.
    with pytest.raises(BlockingIOError):
        disk.lock(Path("/lock"), "third")
    later.release()
    disk.lock(Path("/lock"), "third")


def test_rot_a_wiped_disk_and_an_old_copy() -> None:
    disk = SimDisk()
    file = written(disk, b"abc", synced=True)
    backup = disk.copy()
    disk.rot(FILE, 1, 0x01)
    file.drop_cache()
    assert disk.read(FILE) == b"acc"
    file.write_at(0, [b"xyz"])
    file.sync()
    disk.restore(backup)
    assert disk.read(FILE) == b"abc"
    disk.open(FILE, create=False).write_at(0, [b"new"])
    assert backup.read(FILE) == b"abc", "the copy is one"
    disk.wipe()
    assert disk.list_directory(Path("/")) == []
    assert disk.used_bytes == 0


def test_a_part_of_a_file_is_read_and_files_are_listed_in_the_order_of_their_names() -> None:
    disk = SimDisk()
    written(disk, b"0123456789", synced=True)
    disk.make_directory(Path("/d"))
    written(disk, b"", synced=True, path=Path("/d/z"))
    written(disk, b"", synced=True, path=Path("/c"))
    assert disk.read_at(FILE, 3, 4) == b"3456"
    assert disk.read_at(FILE, 8, 4) == b"89"
    assert disk.files() == [FILE, Path("/c"), Path("/d/z")]
