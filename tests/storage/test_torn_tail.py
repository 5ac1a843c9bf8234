"""Torn writes are repaired, damage is refused, and nothing is ever silently different (S09, S10)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

import pytest

from fencepost.raft.core.entry import HardState
from fencepost.raft.core.errors import StorageCorrupt, StorageFormatUnknown
from fencepost.storage import records, segments
from fencepost.storage.identity import read_identity
from fencepost.storage.reader import read_log
from fencepost.storage.recovery import load_log
from fencepost.storage.segments import HEADER_BYTES, decode_segment_header

from .faulty_disk import FaultyDisk
from .world import FIRST, ROOT, entries, open_log, opened, recover

Damage = Callable[[bytes], bytes]
SYNCED = 4
STRIDES = pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.endure)])
"""Every seventh place in every run, all of them in the long one."""


@pytest.fixture(scope="module")
def running() -> tuple[FaultyDisk, bytes, list[int]]:
    """A killed node's disk: one segment of single-entry records, and where each of them begins.

    The last offset is the end of the last record; the zeros written in advance are left out.
    """
    disk = FaultyDisk()
    with opened(disk) as log:
        for index in range(1, SYNCED + 2):
            # Long enough to have sectors inside, the last one most of all.
            size = 1800 if index > SYNCED else 40
            hard_state = HardState(1, "n1") if index == 1 else None
            log.wait(log.write(entries(index, index, size=size), hard_state=hard_state))
        left = disk.after_kill()
    data = left.read(ROOT / FIRST)
    seed = decode_segment_header(ROOT / FIRST, data, 1).seed
    starts = [HEADER_BYTES]
    while (record := records.record_at(data, seed, starts[-1])) is not None:
        starts.append(record.end)
    assert len(starts) == SYNCED + 2
    return left, data[: starts[-1]], starts


def damaged(disk: FaultyDisk, data: bytes) -> FaultyDisk:
    copy = disk.after_kill()
    copy.poke(ROOT / FIRST, data)
    return copy


def assert_repaired(disk: FaultyDisk, kept: int, size: int) -> None:
    """Exactly ``kept`` entries; the cut is durable at once; writing goes on behind it."""
    log = open_log(disk)
    assert [entry.index for entry in log.recovered.entries] == list(range(1, kept + 1))
    assert log.recovered.entries[:SYNCED] == entries(1, min(kept, SYNCED), size=40)
    if kept:
        assert log.recovered.hard_state == HardState(1, "n1")
    assert len(disk.after_power_loss().read(ROOT / FIRST)) <= size
    log.wait(log.write(entries(kept + 1, kept + 1, size=41)))
    after = disk.after_power_loss()
    log.close()
    again = recover(after)
    assert again.entries == [*log.recovered.entries, *entries(kept + 1, kept + 1, size=41)]
    assert again.torn_bytes == 0


@STRIDES
def test_s09_every_cut_offset_of_the_last_record(running: tuple[FaultyDisk, bytes, list[int]], stride: int) -> None:
    disk, data, starts = running
    start, end = starts[-2], starts[-1]
    for cut in range(start, end, stride):
        torn = damaged(disk, data[:cut])
        assert read_log(ROOT, torn).torn_bytes == len(data[start:cut].rstrip(b"\0"))
        assert_repaired(torn, SYNCED, end)


def test_s09_every_sector_of_the_last_record_zeroed(running: tuple[FaultyDisk, bytes, list[int]]) -> None:
    disk, data, starts = running
    start, end = starts[-2], starts[-1]
    assert start % 512 == 0
    assert end - start > 3 * 512
    for sector in range(start, end, 512):
        torn = damaged(disk, data[:sector] + bytes(512) + data[sector + 512 :])
        assert_repaired(torn, SYNCED, end)


def test_s09_a_zero_tail_of_four_mebibytes(running: tuple[FaultyDisk, bytes, list[int]]) -> None:
    disk, data, starts = running
    assert_repaired(damaged(disk, data + bytes(4 << 20)), SYNCED + 1, starts[-1] + 4096)
    assert_repaired(damaged(disk, data[: starts[-2]] + bytes(4 << 20)), SYNCED, starts[-1])
    torn = damaged(disk, data[: starts[-2] + 100] + bytes(4 << 20))
    assert read_log(ROOT, torn).torn_bytes == 100
    assert_repaired(torn, SYNCED, starts[-1])


def test_s09_every_way_the_sectors_of_an_unsynced_record_may_land() -> None:
    """Out of order and with gaps, also where space had been written in advance."""
    disk = FaultyDisk()
    images: list[FaultyDisk] = []
    with opened(disk) as log:
        log.wait(log.write(entries(1, 2)))

        def after(step: str) -> None:
            if step == "write":
                images.extend(disk.after_torn_power_loss(Random(seed)) for seed in range(60))

        disk.after_step = after
        log.wait(log.write(entries(3, 3, size=6000)))
        disk.after_step = lambda step: None
    assert len(images) >= 60
    for image in images:
        with opened(image) as again:
            assert again.recovered.entries in (entries(1, 2), [*entries(1, 2), *entries(3, 3, size=6000)])


@STRIDES
def test_s10_every_bit_flip_is_repaired_as_promised_or_refused(
    running: tuple[FaultyDisk, bytes, list[int]], stride: int
) -> None:
    """In the last record: as a torn write, the documented limit. Anywhere before: refused, naming the place."""
    disk, data, starts = running
    whole = read_log(ROOT, damaged(disk, data)).entries
    for position in range(len(data)):
        # Every bit of headers and small records, one bit a byte of the long one.
        bits = range(8) if position < starts[-2] + 64 else (position % 8,)
        for bit in bits:
            if (8 * position + bit) % stride:
                continue
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            image = damaged(disk, bytes(flipped))
            if position >= starts[-2]:
                assert read_log(ROOT, image).entries == whole[:SYNCED]
                continue
            with pytest.raises((StorageCorrupt, StorageFormatUnknown)) as refusal:
                read_log(ROOT, image)
            assert "0000000000000001.log" in refusal.value.message
            if position >= HEADER_BYTES:
                index = sum(start <= position for start in starts)
                start = starts[index - 1]
                assert f"offset {start}, log index {index}:" in refusal.value.message


def test_every_truncation_of_a_log_is_a_prefix(running: tuple[FaultyDisk, bytes, list[int]]) -> None:
    """Bytes missing at the end of the last segment cannot be told from a torn write; a header cut is refused."""
    disk, data, starts = running
    whole = read_log(ROOT, damaged(disk, data)).entries
    for size in range(len(data)):
        image = damaged(disk, data[:size])
        if size < HEADER_BYTES:
            with pytest.raises(StorageCorrupt):
                read_log(ROOT, image)
        else:
            complete = sum(end <= size for end in starts[1:])
            assert read_log(ROOT, image).entries == whole[:complete]


def test_s10_after_a_clean_close_every_bit_flip_of_an_entry_is_refused() -> None:
    """The seal is a record behind the last entry: the limit of the last record does not reach it."""
    disk = FaultyDisk()
    with opened(disk) as log:
        log.write(entries(1, 1))
    data = disk.read(ROOT / FIRST)
    place = data.index(b"1:1:")
    for bit in range(8 * 20):
        flipped = bytearray(data)
        flipped[place + bit // 8] ^= 1 << bit % 8
        with pytest.raises(StorageCorrupt, match="log index 1:"):
            read_log(ROOT, damaged(disk, bytes(flipped)))


def test_s10_a_quiet_log_is_sealed_while_it_is_open() -> None:
    """An idle node that is killed: what it wrote last is told from a torn write all the same."""
    disk = FaultyDisk()
    sealed = threading.Event()
    log = open_log(disk, seal_after_s=0.001)
    try:
        log.wait(log.write(entries(1, 2), hard_state=HardState(1, "n1"), commit_index=1))
        log.wait(log.write(entries(2, 2, term=2), truncate_from=2, hard_state=HardState(2, "")))

        def look(operation: str) -> None:
            if operation == "sync_data" and _is_sealed(disk):
                sealed.set()

        disk.after_step = look
        look("sync_data")
        assert sealed.wait(60)
        left = disk.after_power_loss()
        log.wait(log.write(entries(3, 3, term=2)))
    finally:
        log.close()
    assert read_log(ROOT, disk).entries == [*entries(1, 1), *entries(2, 3, term=2)]
    left.poke(ROOT / FIRST, left.read(ROOT / FIRST).replace(b"2:2:x", b"2:2:y"))
    with pytest.raises(StorageCorrupt, match="is damaged at offset"):
        recover(left)


def _is_sealed(disk: FaultyDisk) -> bool:
    left = disk.after_power_loss()
    instance = bytes.fromhex(read_identity(left, ROOT).instance_id)
    return load_log(left, ROOT / "log", instance).sealed


def test_s10_a_torn_tail_below_a_recorded_commit_index_is_damage() -> None:
    """The limit of the last record is narrowed by what later records know."""
    disk = FaultyDisk()
    with opened(disk) as log:
        log.wait(log.write(entries(1, 3)))
        log.wait(log.write(commit_index=3))
        data = disk.after_kill().read(ROOT / FIRST)
        seed = log.store._tail.segment.header.seed
    first = records.record_at(data, seed, HEADER_BYTES)
    assert first is not None
    second = records.record_at(data, seed, first.end)
    assert second is not None
    # The record that holds the entries vanishes, and the one that counts on them takes its place.
    moved = b"".join(records.encode_record(seed, HEADER_BYTES, second.type, second.body))
    image = damaged(disk, data[:HEADER_BYTES] + moved)
    with pytest.raises(StorageCorrupt, match="index 3 was known to be committed and the log ends at 0"):
        read_log(ROOT, image)


def test_s10_a_damaged_length_does_not_hide_the_records_behind_it(
    running: tuple[FaultyDisk, bytes, list[int]],
) -> None:
    disk, data, starts = running
    length_at = starts[1] + 12
    for length in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF):
        image = damaged(disk, data[:length_at] + length.to_bytes(4, "big") + data[length_at + 4 :])
        with pytest.raises(StorageCorrupt, match="log index 2:"):
            read_log(ROOT, image)


def test_s10_a_header_alone_proves_damage_before_it(running: tuple[FaultyDisk, bytes, list[int]]) -> None:
    """Two damaged records at the end: the second was begun only after the first had been synced."""
    disk, data, starts = running
    broken = bytearray(data)
    broken[starts[-3] + 30] ^= 1
    broken[-1] ^= 1
    with pytest.raises(StorageCorrupt, match=f"log index {SYNCED}:"):
        read_log(ROOT, damaged(disk, bytes(broken)))


def test_s10_a_payload_cannot_pass_for_a_record(running: tuple[FaultyDisk, bytes, list[int]]) -> None:
    """An entry that carries the bytes of a whole log, this one's own included, is torn like any other."""
    disk, data, _starts = running
    again = damaged(disk, data)
    with opened(again) as log:
        parcel = entries(SYNCED + 2, SYNCED + 2)[0]._replace(data=data + records.MAGIC * 1000 + data)
        log.wait(log.write([parcel]))
        left = again.after_kill()
    content = left.read(ROOT / FIRST).rstrip(b"\0")
    image = damaged(left, content[:-1])
    assert read_log(ROOT, image).torn_bytes > 2 * len(data)
    assert len(recover(image).entries) == SYNCED + 1


def test_s10_damage_at_the_end_of_an_earlier_segment_is_refused() -> None:
    """Not a torn tail: the segment behind it was begun after everything here had been synced."""
    disk = FaultyDisk()
    with opened(disk, segment_bytes=1100) as log:
        for index in range(1, 9):
            log.wait(log.write(entries(index, index, size=200)))
    name = ROOT / FIRST
    data = disk.read(name)
    for change in (data[:-1], data[:-1] + bytes([data[-1] ^ 1]), data[:HEADER_BYTES], data + b"\0", data + b"x"):
        image = disk.after_kill()
        image.poke(name, change)
        if change == data + b"\0":
            # Zeros are no content, whoever put them there.
            assert read_log(ROOT, image).entries == entries(1, 8, size=200)
            continue
        with pytest.raises(StorageCorrupt, match=r"0000000000000001\.log is damaged at offset \d+, log index"):
            read_log(ROOT, image)


def test_s10_a_segment_that_lost_whole_records_is_refused() -> None:
    """Cut exactly between two records, there is no damaged byte to see."""
    disk = FaultyDisk()
    with opened(disk, segment_bytes=1100) as log:
        for index in range(1, 9):
            log.wait(log.write(entries(index, index, size=200)))
    data = disk.read(ROOT / FIRST)
    seed = decode_segment_header(ROOT / FIRST, data, 1).seed
    record = records.record_at(data, seed, HEADER_BYTES)
    assert record is not None
    disk.poke(ROOT / FIRST, data[: record.end])
    with pytest.raises(StorageCorrupt, match="ended at"):
        read_log(ROOT, disk)


@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_s10_a_missing_segment_is_refused(which: str) -> None:
    disk = FaultyDisk()
    with opened(disk, segment_bytes=1100) as log:
        for index in range(1, 12):
            log.wait(log.write(entries(index, index, size=200)))
    names = sorted(name for name in disk.list_directory(ROOT / "log") if name.endswith(".log"))
    name = {"first": names[0], "middle": names[1], "last": names[-1]}[which]
    disk.unlink(ROOT / "log" / name)
    with pytest.raises(StorageCorrupt, match=name):
        read_log(ROOT, disk)


def test_a_segment_of_another_directory_is_refused() -> None:
    disk, other = FaultyDisk(), FaultyDisk()
    with opened(disk) as log:
        log.write(entries(1, 2))
    with opened(other) as log:
        log.write(entries(1, 2))
    content = other.read(ROOT / FIRST)
    decoded = decode_segment_header(ROOT / FIRST, content, 1)
    foreign = segments.encode_segment_header(decoded._replace(instance=b"y" * 16))
    disk.poke(ROOT / FIRST, foreign + content[HEADER_BYTES:])
    with pytest.raises(StorageCorrupt, match="another data directory"):
        read_log(ROOT, disk)


def test_s55_a_record_of_a_newer_version_is_refused_and_left_alone(
    running: tuple[FaultyDisk, bytes, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, data, _starts = running
    seed = decode_segment_header(ROOT / FIRST, data, 1).seed
    with monkeypatch.context() as patch:
        patch.setattr(records, "VERSION", 2)
        newer = b"".join(records.encode_record(seed, len(data), 1, b"\x90"))
    unknown = b"".join(records.encode_record(seed, len(data), 77, b"\x90"))
    for change in (data + newer, data + unknown):
        image = damaged(disk, change)
        with pytest.raises(StorageFormatUnknown, match="nothing was changed"):
            recover(image)
        assert image.read(ROOT / FIRST) == change
