"""Segments that are ready before they are needed: recycled ones, and ones of zeros."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from fencepost.raft.core.entry import HardState
from fencepost.raft.core.errors import StorageCorrupt
from fencepost.storage import segments
from fencepost.storage.reader import read_log
from fencepost.storage.records import header_after, record_at, salt_seed
from fencepost.storage.segments import HEADER_BYTES, decode_segment_header, segment_name
from fencepost.storage.spare import SPARE, Spare

from .crashes import crash_at_every_step
from .faulty_disk import FaultyDisk
from .world import ROOT, Log, entries, open_log, opened, recover

SPARE_PATH = ROOT / "log" / SPARE
SEGMENT_BYTES = 16 * 512


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a spare of zeros takes several."""
    monkeypatch.setattr(segments, "AHEAD_BYTES", 1024)
    monkeypatch.setattr(segments, "_ZEROS", bytes(1024))


def open_stepped(disk: FaultyDisk) -> Log:
    return open_log(disk, segment_bytes=SEGMENT_BYTES, stepped=True)


def write_each(log: Log, first: int, last: int, *, size: int = 900) -> None:
    """A record each, with what is before it committed."""
    for index in range(first, last + 1):
        log.wait(log.write(entries(index, index, size=size), commit_index=index - 1))


def has_spare(disk: FaultyDisk) -> bool:
    return SPARE in disk.list_directory(ROOT / "log")


def write_into_a_recycled_segment(disk: FaultyDisk) -> Log:
    """A log whose segment in use is a recycled one, with a record of its own in front of older ones."""
    log = open_stepped(disk)
    log.write(hard_state=HardState(1, "n1"))
    write_each(log, 1, 7)
    log.wait(log.write(compact_to=4, commit_index=7))
    write_each(log, 8, 14)
    # The segment behind which the log goes on now is rolled away, and the next one is the one before.
    log.wait(log.write(compact_to=12, commit_index=14))
    assert old_seeds(disk, log), "no old record lies behind the new ones"
    return log


def active(disk: FaultyDisk, log: Log) -> tuple[bytes, int, int]:
    """The content of the segment in use, its seed, and where its last record ends."""
    status = log.store.status()
    path = ROOT / "log" / segment_name(status.segment)
    data = disk.after_kill().read(path)
    return data, decode_segment_header(path, data, 1).seed, status.segment_bytes


def old_seeds(disk: FaultyDisk, log: Log) -> bool:
    data, _, end = active(disk, log)
    return any(data[end:])


def test_a_segment_that_was_given_up_is_the_next_one() -> None:
    disk = FaultyDisk()
    log = open_stepped(disk)
    write_each(log, 1, 7)
    first = disk.node(ROOT / "log" / segment_name(1))
    log.wait(log.write(compact_to=5, commit_index=6))
    write_each(log, 8, 14)
    before = disk.calls["create"]
    log.wait(log.write(compact_to=12, commit_index=13))
    second_life = disk.node(ROOT / "log" / segment_name(log.store.status().segment))
    assert log.store.status().segment >= 3
    # No file was made for it but the manifest's.
    assert disk.calls["create"] - before <= 2
    assert second_life is first or has_spare(disk)
    log.close()
    assert not has_spare(disk)
    assert recover(disk).entries[-1:] == entries(14, 14, size=900)


def test_old_records_are_none_of_the_new_segment_and_no_torn_write() -> None:
    disk = FaultyDisk()
    log = write_into_a_recycled_segment(disk)
    data, seed, end = active(disk, log)
    assert record_at(data, seed, end) is None
    assert header_after(data, seed, end) is None
    for left in (disk.after_kill(), disk.after_power_loss()):
        found = read_log(ROOT, left)
        assert found.torn_bytes == 0
        assert found.last_index == 14
        again = recover(left)
        assert (again.torn_bytes, again.last_index) == (0, 14)
        # What is old is cut away at the start, and is not met again.
        assert not any(left.read(ROOT / "log" / segment_name(log.store.status().segment))[end + 512 :])
    log.close()


def test_damage_in_a_recycled_segment_is_still_told_from_a_torn_write() -> None:
    disk = FaultyDisk()
    log = write_into_a_recycled_segment(disk)
    write_each(log, 15, 17, size=300)
    data, seed, _end = active(disk, log)
    path = ROOT / "log" / segment_name(log.store.status().segment)
    starts = [HEADER_BYTES]
    while (record := record_at(data, seed, starts[-1])) is not None:
        starts.append(record.end)
    assert len(starts) >= 4
    for start in starts[:-2]:
        for position in (start, start + 20, start + 30):
            image = disk.after_kill()
            image.poke(path, data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
            with pytest.raises(StorageCorrupt, match=f"damaged at offset {start},"):
                read_log(ROOT, image)
    image = disk.after_kill()
    last = starts[-2]
    image.poke(path, data[: last + 100] + bytes([data[last + 100] ^ 4]) + data[last + 101 :])
    found = read_log(ROOT, image)
    assert found.last_index == 16
    # Of the record that is cut, and not of the old ones behind it.
    assert 0 < found.torn_bytes <= starts[-1] - last
    log.close()


def test_every_sector_of_a_record_in_a_recycled_segment_may_be_lost() -> None:
    """Then what was there before is there: an old record's sector, or the end mark."""
    disk = FaultyDisk()
    log = write_into_a_recycled_segment(disk)
    before, _, start = active(disk, log)
    log.wait(log.write(entries(15, 15, size=2000)))
    after, _, end = active(disk, log)
    path = ROOT / "log" / segment_name(log.store.status().segment)
    sectors = range(start, end, 512)
    assert len(sectors) >= 4
    for lost in range(1, 1 << len(sectors)):
        mixed = bytearray(after)
        for number, place in enumerate(sectors):
            if lost >> number & 1:
                mixed[place : place + 512] = before[place : place + 512]
        image = disk.after_kill()
        image.poke(path, bytes(mixed))
        assert recover(image, stepped=True).last_index == 14, bin(lost)
    log.close()


def test_a_salt_under_which_an_old_record_would_count_is_not_used() -> None:
    disk = FaultyDisk()
    with opened(disk, segment_bytes=SEGMENT_BYTES, stepped=True) as log:
        write_each(log, 1, 7)
    path = ROOT / "log" / segment_name(1)
    header = decode_segment_header(path, disk.read(path), 1)
    spare = Spare(disk, ROOT / "log", SEGMENT_BYTES)
    assert spare.recycle(path)
    drawn = [header.salt, header.salt, b"another salt of it"[:16]]
    assert spare.draw_salt(lambda size: drawn.pop(0)) == b"another salt of it"[:16]
    assert drawn == []
    assert salt_seed(b"another salt of it"[:16]) != header.seed


def test_a_segment_of_zeros_is_ready_when_the_one_in_use_is_full() -> None:
    disk = FaultyDisk()
    log = open_stepped(disk)
    sizes: list[int] = []
    while log.store.status().segment == 1:
        write_each(log, log.sequence + 1, log.sequence + 1)
        if log.store.status().segment == 1:
            sizes.append(disk.size(SPARE_PATH) if has_spare(disk) else 0)
    assert sizes[0] == 0
    assert sizes == sorted(sizes)
    assert sizes[-1] >= SEGMENT_BYTES // 2
    data, _, end = active(disk, log)
    assert len(data) >= SEGMENT_BYTES // 2
    assert not any(data[end:])
    log.close()


@pytest.mark.parametrize("operation", ["write", "sync_data", "create"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failure_while_preparing(operation: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room is no failure: the segment is made when it is needed. Anything else is final (S12)."""
    disk = FaultyDisk()
    log = open_stepped(disk)
    genuine = Spare.prepare
    failed = False

    def prepare(self: Spare, end: int) -> None:
        nonlocal failed
        if 2 * end >= SEGMENT_BYTES and not failed:
            failed = True
            disk.fail(operation, 1, code)
        genuine(self, end)

    monkeypatch.setattr(Spare, "prepare", prepare)
    for index in range(1, 20):
        log.write(entries(index, index, size=900))
        log.store.step()
    assert failed
    assert len(log.failures) == (0 if code == errno.ENOSPC else 1)
    assert (log.acknowledged[-1] == 19) == (code == errno.ENOSPC)
    left = disk.after_power_loss()
    log.close()
    assert len(recover(left).entries) >= log.acknowledged[-1]


@pytest.mark.parametrize("operation", ["rename", "write", "sync_data", "sync_directory", "sync"])
def test_s12_a_failure_at_any_step_of_a_recycling_is_final(operation: str) -> None:
    disk = FaultyDisk()
    log = open_stepped(disk)
    write_each(log, 1, 7)
    log.wait(log.write(compact_to=4, commit_index=7))
    write_each(log, 8, 14)
    log.write(compact_to=12, commit_index=14)
    # Behind the record's own write and sync.
    disk.fail(operation, 2 if operation in ("write", "sync_data") else 1)
    log.store.step()
    assert len(log.failures) == 1
    log.write(entries(15, 15))
    assert not log.store.step()
    for left in (disk.after_kill(), disk.after_power_loss()):
        assert recover(left, stepped=True).last_index == 14
    log.close()


def test_s14_a_life_that_recycles_may_be_cut_anywhere_and_goes_on() -> None:
    """Give up, rename, new header, new name, manifest, use: every boundary, and what is written after it."""
    disk = FaultyDisk()
    recycled = 0

    def act(acknowledge: Callable[[], None]) -> None:
        nonlocal recycled
        log = open_stepped(disk)
        log.at_durable = lambda sequence: acknowledge()
        log.wait(log.write(hard_state=HardState(1, "n1")))
        for index in range(1, 30):
            compact_to = index - 3 if index % 5 == 0 else 0
            log.wait(log.write(entries(index, index, size=700), commit_index=index - 1, compact_to=compact_to))
            recycled += old_seeds(disk, log)
        log.close()

    aftermaths = crash_at_every_step(disk, act, torn_per_step=4)
    assert recycled > 5
    for left, acknowledged, what in aftermaths:
        with opened(left, segment_bytes=SEGMENT_BYTES, stepped=True) as log:
            found = log.recovered
            # The first write is the term.
            assert found.last_index in (max(0, acknowledged - 1), acknowledged), what
            expected = entries(found.previous_index + 1, found.last_index, size=700)
            assert found.entries == expected, what
            assert not has_spare(left), what
            following = found.last_index + 1
            log.wait(log.write(entries(following, following, term=2, size=50), hard_state=HardState(2, "")))
            again = left.after_power_loss()
        expected += entries(following, following, term=2, size=50)
        last = recover(again, stepped=True)
        assert last.entries == expected[last.previous_index - found.previous_index :], what


def test_a_segment_with_a_damaged_header_is_deleted_and_not_recycled() -> None:
    disk = FaultyDisk()
    log = open_stepped(disk)
    write_each(log, 1, 7)
    path = ROOT / "log" / segment_name(1)
    log.wait(log.write(compact_to=4, commit_index=7))
    data = disk.read(path)
    disk.poke(path, b"?" + data[1:])
    write_each(log, 8, 14)
    log.wait(log.write(compact_to=12, commit_index=14))
    assert log.failures == []
    assert path.name not in disk.list_directory(path.parent)
    log.close()


def test_who_reads_beside_a_writer_that_recycles_reads_the_log() -> None:
    """At every step of it: what a reading meets half made it does not take for damage."""
    disk = FaultyDisk()
    log = open_stepped(disk)
    write_each(log, 1, 7)
    log.wait(log.write(compact_to=4, commit_index=7))
    write_each(log, 8, 14)
    found: list[int] = []

    def look(operation: str) -> None:
        disk.after_step = lambda step: None
        left = disk.after_kill()
        found.append(read_log(ROOT, left).last_index)
        disk.after_step = look

    disk.after_step = look
    log.wait(log.write(compact_to=12, commit_index=14))
    disk.after_step = lambda step: None
    assert len(found) > 10
    assert set(found) == {14}
    log.close()
