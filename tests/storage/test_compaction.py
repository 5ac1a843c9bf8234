"""A log that is trimmed or reset: what is deleted, what is kept, and what is refused (S10, S11, S12, S14)."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from fencepost.raft.core.entry import HardState
from fencepost.raft.core.errors import StorageCorrupt, StorageError, StorageFormatUnknown, StorageFull
from fencepost.storage import segments
from fencepost.storage.chain import Manifest, read_manifest
from fencepost.storage.reader import read_log
from fencepost.storage.segments import HEADER_BYTES, decode_segment_header, segment_name
from fencepost.storage.standing import LogState

from .crashes import crash_at_every_step
from .faulty_disk import FaultyDisk
from .world import ROOT, Log, entries, label, open_log, opened, recover

LOG = ROOT / "log"
SEGMENT_BYTES = 1100
FORMAT_1 = Path(__file__).parent / "format_1"
"""A data directory as version 1 of segments and manifest wrote it: three segments, 9 entries."""


def segment_files(disk: FaultyDisk) -> list[str]:
    return sorted(name for name in disk.list_directory(LOG) if name.endswith(".log"))


def open_stepped(disk: FaultyDisk, segment_bytes: int = SEGMENT_BYTES) -> Log:
    return open_log(disk, segment_bytes=segment_bytes, stepped=True)


def write_each(log: Log, first: int, last: int, term: int = 1) -> None:
    for index in range(first, last + 1):
        log.wait(log.write(entries(index, index, term=term, size=300), commit_index=index))


def trimmed() -> FaultyDisk:
    """A log of entries 1..20 whose first segments are gone; closed."""
    disk = FaultyDisk()
    log = open_stepped(disk)
    log.wait(log.write(hard_state=HardState(1, "n2")))
    write_each(log, 1, 20)
    log.wait(log.write(compact_to=12))
    log.close()
    assert log.store.status().first_segment > 4
    return disk


# -- what is deleted ----------------------------------------------------------------------------------


def test_s14_the_order_is_write_sync_manifest_unlink_or_recycle() -> None:
    disk = FaultyDisk()
    log = open_stepped(disk)
    write_each(log, 1, 20)
    steps: list[str] = []
    disk.after_step = lambda operation: steps.append(operation)
    log.at_durable = lambda sequence: steps.append("acknowledged")
    log.wait(log.write(compact_to=12))
    deleted = steps.count("unlink")
    assert deleted > 3
    state_file = ["create", "write", "sync", "rename", "sync_directory"]
    in_order = ["write", "sync_data", "acknowledged", *state_file, "rename", *["unlink"] * deleted, "sync_directory"]
    assert steps[: len(in_order)] == in_order
    log.close()


def test_a_small_log_keeps_its_entries() -> None:
    """A segment is not ended for a compaction before it is an eighth of its full size."""
    disk = FaultyDisk()
    log = open_stepped(disk, segment_bytes=8 * 4096)
    write_each(log, 1, 3)
    log.wait(log.write(compact_to=3))
    assert (log.store.status().segment, log.store.status().first_segment) == (1, 1)
    write_each(log, 4, 6)
    log.wait(log.write(compact_to=6))
    assert (log.store.status().segment, log.store.status().first_segment) == (2, 2)
    # Nothing in the new segment is compacted: it is not ended for saying so again.
    write_each(log, 7, 14)
    log.wait(log.write(compact_to=6))
    assert log.store.status().segment == 2
    log.close()
    found = recover(disk)
    assert (found.previous_index, found.previous_term, len(found.entries)) == (6, 1, 8)


def test_a_log_that_is_compacted_as_it_grows_stays_small() -> None:
    disk = FaultyDisk()
    log = open_stepped(disk, segment_bytes=1 << 16)
    most = 0
    for index in range(1, 1001):
        log.wait(log.write(entries(index, index, size=400), commit_index=index))
        if index % 50 == 0:
            log.wait(log.write(compact_to=index - 10))
            most = max(most, len(segment_files(disk)))
    log.close()
    assert most <= 3
    found = recover(disk)
    assert found.entries == entries(found.previous_index + 1, 1000, size=400)
    assert found.previous_index >= 890


def test_a_segment_whose_beginning_was_truncated_is_no_place_to_begin() -> None:
    """Read from there, the log would delete entries that it lacks."""
    disk = FaultyDisk()
    log = open_stepped(disk)
    write_each(log, 1, 2)
    for index in range(3, 9):
        log.wait(log.write(entries(index, index, size=300)))
    crossed = log.store.status().segment
    log.wait(log.write(entries(3, 6, term=2), truncate_from=3, hard_state=HardState(2, "")))
    assert log.store.status().segment == crossed
    log.wait(log.write(commit_index=5, compact_to=5))
    # Entry 5 was in segment 3 once, and segment 4 begins behind it. But then it was replaced: the log has
    # to be read from segment 2, where entry 2 is the last before it.
    assert log.store.status().first_segment == 2
    log.wait(log.write(entries(7, 9, term=2, size=300), commit_index=9))
    log.wait(log.write(compact_to=9))
    assert log.store.status().first_segment > crossed
    log.close()
    found = recover(disk)
    assert (found.previous_index, found.previous_term, found.entries) == (9, 2, [])


def test_the_term_behind_a_bare_truncation_is_known() -> None:
    """A segment that begins behind it says so in its header."""
    disk = FaultyDisk()
    log = open_stepped(disk)
    log.wait(log.write(entries(1, 2, term=1), hard_state=HardState(3, "")))
    log.wait(log.write(entries(3, 4, term=3), commit_index=2))
    log.wait(log.write([*entries(5, 5, term=3), *entries(6, 9, term=5, size=200)], hard_state=HardState(5, "")))
    log.wait(log.write(truncate_from=6, commit_index=5))
    log.wait(log.write(compact_to=5))
    log.wait(log.write(truncate_from=6))
    log.close()
    found = recover(disk)
    assert (found.previous_index, found.previous_term, found.entries) == (5, 3, [])


def test_after_a_reset_everything_before_it_goes() -> None:
    disk = FaultyDisk()
    log = open_stepped(disk)
    for index in range(1, 21):
        log.wait(log.write(entries(index, index, size=300)))
    log.wait(log.write(reset=label(5, 2), hard_state=HardState(2, "")))
    log.wait(log.write(entries(6, 6, term=2)))
    assert len(segment_files(disk)) == 1
    log.close()
    assert recover(disk) == (HardState(2, ""), entries(6, 6, term=2), 5, 0, 5, 2, None)


def test_what_a_crash_left_of_deleted_segments_is_deleted_at_the_next_open() -> None:
    disk = FaultyDisk()
    log = open_stepped(disk)
    write_each(log, 1, 20)
    left: list[FaultyDisk] = []

    def keep(operation: str) -> None:
        if operation == "unlink" and not left:
            left.append(disk.after_power_loss())

    disk.after_step = keep
    log.wait(log.write(compact_to=12))
    first = log.store.status().first_segment
    log.close()
    assert segment_name(1) in segment_files(left[0])
    recover(left[0])
    again = left[0].after_power_loss()
    assert segment_files(again)[0] == segment_name(first)


def test_s11_what_is_given_up_makes_room_before_a_new_segment_needs_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments.ActiveSegment, "write_ahead", lambda self, limit: None)
    disk = FaultyDisk()
    log = open_stepped(disk)
    write_each(log, 1, 20)
    # Room for the record and the manifest, not for a segment.
    disk.capacity = disk.used() + 512 + 100
    log.wait(log.write(compact_to=20))
    assert log.failures == []
    assert len(segment_files(disk)) == 1
    log.close()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_directory", "unlink"])
def test_s12_a_failure_at_any_step_of_a_trim_is_final(operation: str, code: int) -> None:
    disk = FaultyDisk()
    log = open_stepped(disk)
    write_each(log, 1, 20)
    disk.fail(operation, 2 if operation == "write" else 1, code)
    log.wait(log.write(compact_to=12))
    assert [type(failure) for failure in log.failures] == [StorageFull if code == errno.ENOSPC else StorageError]
    log.write(entries(21, 21))
    assert not log.store.step()
    log.close()
    for left in (disk, disk.after_power_loss()):
        found = recover(left)
        assert found.previous_index <= 12
        assert found.entries == entries(found.previous_index + 1, 20, size=300)


# -- what is refused ----------------------------------------------------------------------------------


def test_a_trimmed_log_reads_the_same_for_a_reader_and_in_the_next_life() -> None:
    disk = trimmed()
    found = read_log(ROOT, disk)
    assert found == recover(disk) == read_log(ROOT, disk)
    assert found.hard_state == HardState(1, "n2")
    assert found.entries == entries(found.previous_index + 1, 20, size=300)
    assert (found.commit_index, found.previous_term) == (20, 1)


def test_s10_every_bit_of_the_header_that_a_trimmed_log_begins_with_counts() -> None:
    """Vote, term, index: nothing else says them any more."""
    disk = trimmed()
    path = LOG / segment_files(disk)[0]
    whole = disk.read(path)
    for position in range(HEADER_BYTES):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << bit
            disk.poke(path, bytes(flipped))
            with pytest.raises((StorageCorrupt, StorageFormatUnknown), match=path.name):
                read_log(ROOT, disk)


class TrimmedMeanwhile(FaultyDisk):
    """A disk on which another process goes on, once, between looking for a file and reading it."""

    def __init__(self, before: FaultyDisk, after: FaultyDisk, at: str) -> None:
        super().__init__()
        self.top = before.top
        self.after = after
        self.at = at

    def read(self, path: Path) -> bytes:
        if path.name == self.at:
            self.top = self.after.top
        return super().read(path)


def test_a_reader_beside_a_log_that_is_trimmed_is_not_misled() -> None:
    disk = FaultyDisk()
    log = open_stepped(disk)
    write_each(log, 1, 20)
    before = disk.after_kill()
    log.wait(log.write(compact_to=12))
    log.close()
    found = read_log(ROOT, TrimmedMeanwhile(before, disk, segment_name(1)))
    assert found == read_log(ROOT, disk)
    assert found.previous_index > 0


@pytest.mark.parametrize("which", [0, 1, -1])
def test_s10_a_segment_that_is_missing_from_a_trimmed_log_is_refused(which: int) -> None:
    disk = trimmed()
    name = segment_files(disk)[which]
    disk.unlink(LOG / name)
    with pytest.raises(StorageCorrupt, match=name):
        recover(disk)


def test_s10_a_header_that_tells_of_another_log_than_the_one_before_it_is_refused() -> None:
    """A segment whose content was replaced as a whole, checksums and length included."""
    disk = FaultyDisk()
    with opened(disk, segment_bytes=SEGMENT_BYTES) as log:
        write_each(log, 1, 8)
    path = LOG / segment_name(2)
    data = disk.read(path)
    header = decode_segment_header(path, data, 1)
    assert header.state is not None
    for state in (
        header.state._replace(last_index=header.state.last_index + 1),
        header.state._replace(hard_state=HardState(9, "n9")),
        header.state._replace(last_term=0),
        header.state._replace(commit_index=0),
    ):
        disk.poke(path, segments.encode_segment_header(header._replace(state=state)) + data[HEADER_BYTES:])
        with pytest.raises(StorageCorrupt, match=r"0000000000000002\.log is damaged at offset 0, .*it was begun when"):
            read_log(ROOT, disk)


def test_s10_a_trimmed_log_that_does_not_know_why_is_refused() -> None:
    """The record that gave the entries up was durable before they went. Without it something is missing."""
    disk = FaultyDisk()
    log = open_stepped(disk)
    for index in range(1, 9):
        log.wait(log.write(entries(index, index, size=300)))
    log.wait(log.write(commit_index=8, compact_to=8))
    log.write(commit_index=8)
    log.close()
    path = LOG / segment_files(disk)[0]
    data = disk.read(path)
    header = decode_segment_header(path, data, 1)
    assert header.state is not None
    state = header.state._replace(commit_index=3)
    disk.poke(path, segments.encode_segment_header(header._replace(state=state)))
    with pytest.raises(StorageCorrupt, match="it begins behind index 8, with 3 the last known committed"):
        read_log(ROOT, disk)


def test_a_vote_for_a_name_too_long_for_a_header_is_refused_before_it_is_written() -> None:
    with opened(FaultyDisk()) as log:
        log.wait(log.write(hard_state=HardState(1, "n" * 255)))
        with pytest.raises(AssertionError, match="over 255 bytes"):
            log.write(hard_state=HardState(2, "n" * 256))


def test_writes_that_reset_or_compact_too_much_are_refused_at_once() -> None:
    with opened(FaultyDisk()) as log:
        log.wait(log.write(entries(1, 9), commit_index=6))
        with pytest.raises(AssertionError, match="reset to index 5; committed up to 6"):
            log.write(reset=label(5))
        with pytest.raises(AssertionError, match="compaction up to 7; committed up to 6"):
            log.write(compact_to=7)
        with pytest.raises(AssertionError, match=r"entries 10\.\.10 do not follow index 20"):
            log.write(entries(10, 10), reset=label(20))
        with pytest.raises(AssertionError, match="commit index 21"):
            log.write(reset=label(20), commit_index=21)
        log.wait(log.write(entries(21, 22), reset=label(20), commit_index=21, compact_to=21))
        with pytest.raises(AssertionError, match="truncation from 20; committed up to 21"):
            log.write(truncate_from=20)


# -- the version before -------------------------------------------------------------------------------


def format_1() -> FaultyDisk:
    disk = FaultyDisk()
    disk.make_directory(ROOT.parent)
    disk.make_directory(ROOT)
    disk.make_directory(LOG)
    for path in sorted(FORMAT_1.rglob("*")):
        if path.is_file():
            target = ROOT / path.relative_to(FORMAT_1)
            disk.open(target, create=True).close()
            disk.poke(target, path.read_bytes())
    for directory in (ROOT.parent.parent, ROOT.parent, ROOT, LOG):
        disk.sync_directory(directory)
    return disk


HELD = [*entries(1, 3, size=100), *entries(4, 6, term=2, size=100), *entries(7, 8, term=2, size=300)]
HELD += entries(9, 9, term=2, size=40)


def assert_as_version_1_left_it(disk: FaultyDisk) -> None:
    assert read_log(ROOT, disk) == (HardState(2, ""), HELD, 8, 0, 0, 0, None)


def test_s55_a_log_of_version_1_is_read_and_goes_on() -> None:
    disk = format_1()
    assert_as_version_1_left_it(disk)
    written = {name: disk.read(LOG / name) for name in segment_files(disk)}
    assert recover(disk) == (HardState(2, ""), HELD, 8, 0, 0, 0, None)
    # What version 1 wrote stays; what it could not read is in a segment that it refuses by its version.
    assert {name: disk.read(LOG / name) for name in written} == written
    instance = decode_segment_header(LOG / segment_name(4), disk.read(LOG / segment_name(4)), 10).instance
    assert read_manifest(disk, LOG, instance) == Manifest(1, 4)
    assert disk.read(LOG / segment_name(4))[8:10] == b"\0\2"
    assert recover(disk) == (HardState(2, ""), HELD, 8, 0, 0, 0, None)
    assert len(segment_files(disk)) == 4
    log = open_stepped(disk)
    write_each(log, 10, 12, term=2)
    log.wait(log.write(compact_to=9))
    log.close()
    assert segment_files(disk)[0] == segment_name(4)
    found = recover(disk)
    assert found == (HardState(2, ""), entries(10, 12, term=2, size=300), 12, 0, 9, 2, None)


def test_s55_a_segment_of_version_1_is_no_place_to_begin() -> None:
    """Its header does not say what was before it."""
    disk = format_1()
    log = open_stepped(disk)
    log.wait(log.write(compact_to=8))
    assert log.store.status().first_segment == 1
    log.close()
    assert len(recover(disk).entries) == 9


def test_s14_the_step_from_version_1_may_be_cut_anywhere() -> None:
    disk = format_1()
    aftermaths = crash_at_every_step(disk, lambda acknowledge: _go_on(disk))
    assert len(aftermaths) >= 10
    for left, _, what in aftermaths:
        found = recover(left)
        assert found.entries == HELD, what
        assert (found.hard_state, found.commit_index) == (HardState(2, ""), 8), what


def _go_on(disk: FaultyDisk) -> None:
    recover(disk, stepped=True)


def test_a_header_says_what_it_was_given() -> None:
    state = LogState(HardState(7, "nœud-1"), 2**40, 6, 2**40 - 1)
    header = segments.SegmentHeader(9, 4096, b"s" * 16, b"i" * 16, state)
    for one in (header, header._replace(state=None)):
        assert decode_segment_header(LOG / segment_name(9), segments.encode_segment_header(one), 1) == one
    with pytest.raises(ValueError, match="a node id of 256 bytes"):
        segments.encode_segment_header(header._replace(state=state._replace(hard_state=HardState(1, "n" * 256))))
