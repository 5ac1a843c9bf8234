"""What a replay accepts: contiguous entries, terms that never fall, votes that never change (S03, S10, S17)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import pytest
import structlog

from fencepost.raft.core.entry import Entry, HardState
from fencepost.raft.core.errors import StorageCorrupt
from fencepost.storage import progress, recovery
from fencepost.storage.chain import Manifest
from fencepost.storage.reader import read_log
from fencepost.storage.records import Record, RecordType
from fencepost.storage.recovery import Replay
from fencepost.storage.segments import segment_number
from fencepost.storage.standing import LogState

from .faulty_disk import FaultyDisk
from .world import ROOT, entries, open_directory, opened, recover

PATH = Path("/x.log")

Write = tuple[Any, ...]


def write(
    rows: list[Entry] | None = None,
    *,
    hard_state: tuple[int, str] | None = None,
    truncate_from: int = 0,
    commit_index: int = 0,
    reset: tuple[Any, ...] | None = None,
    compact_to: int = 0,
) -> Write:
    return (1, hard_state, truncate_from, rows or [], commit_index, reset, compact_to)


def replay(*bodies: object, kind: RecordType = RecordType.WRITES) -> Replay:
    made = Replay()
    for offset, body in enumerate(bodies):
        made.apply(PATH, Record(offset, kind, msgpack.packb(body), offset + 1))
    return made


def test_a_replay_keeps_what_was_written_in_order() -> None:
    found = replay(
        [write(entries(1, 3), hard_state=(1, "n1"))],
        [
            write(entries(2, 2, term=2), hard_state=(2, ""), truncate_from=2),
            write(hard_state=(2, "n3"), commit_index=1),
        ],
    )
    assert found.entries == [*entries(1, 1), *entries(2, 2, term=2)]
    assert found.standing.hard_state == HardState(2, "n3")
    assert found.standing.commit_index == 1


@pytest.mark.parametrize(
    ("writes", "complaint"),
    [
        ([write(entries(2, 2))], "entry 2 stands where 1 belongs"),
        ([write(entries(1, 3)), write(entries(3, 4))], "entry 3 stands where 4 belongs"),
        ([write(entries(1, 1, term=2)), write(entries(2, 2, term=1))], "the term of entry 2 is 1, below 2"),
        ([write(entries(1, 3), commit_index=4)], "index 4 was known to be committed and the log ends at 3"),
        ([write(entries(1, 3), commit_index=2), write(truncate_from=2)], r"deletes from index 2, which is committed"),
        ([write(entries(1, 3)), write(truncate_from=5)], "deletes from index 5 and the log ends at 3"),
        ([write(hard_state=(2, "")), write(hard_state=(1, ""))], "the term goes back from 2 to 1"),
        ([write(hard_state=(2, "n1")), write(hard_state=(2, "n2"))], "the vote of term 2 changes from 'n1' to 'n2'"),
        ([write(hard_state=(2, "n1")), write(hard_state=(2, ""))], "the vote of term 2 changes from 'n1' to ''"),
        ([write(hard_state=(-1, ""))], "unknown shape"),
        ([write(hard_state=(1, b"n1"))], "a vote that is not text"),  # type: ignore[arg-type]
        ([write([Entry(1, 1, 2, 3, "text")])], "an entry of unknown shape"),  # type: ignore[arg-type]
        ([write([Entry(1, 1.0, 2, 3, b"")])], "an entry of unknown shape"),  # type: ignore[arg-type]
        ([write([(1, 1)])], "unknown shape"),  # type: ignore[list-item]
        ([write([7])], "unknown shape"),  # type: ignore[list-item]
        ([(1, 2)], "unknown shape"),
        ([(1, None, 0, [], 0, None)], "unknown shape"),
        ([(1, None, 0, [], 0, None, 0, 0)], "unknown shape"),
        ([write(entries(1, 3), commit_index=2), write(reset=(1, 1))], "goes on behind index 1, and committed up to 2"),
        ([write(reset=(5, 1)), write(truncate_from=5)], "deletes from index 5, which is committed"),
        ([write(reset=(5, 1)), write(entries(5, 5))], "entry 5 stands where 6 belongs"),
        ([write(reset=(5, 2)), write(entries(6, 6))], "the term of entry 6 is 1, below 2"),
        ([write(reset=(5, -1))], "unknown shape"),
        ([write(reset=(5,))], "unknown shape"),
        ([write(reset=())], "unknown shape"),
        ([write(entries(1, 3), commit_index=2, compact_to=3)], "up to 3 were given up, and committed up to 2"),
        ([write(compact_to=-1)], "unknown shape"),
        ([write(commit_index=True)], "unknown shape"),
        ([{"a": 1}], "unknown shape"),
        ([None], "unknown shape"),
    ],
)
def test_what_does_not_fit_is_refused_naming_the_place(writes: list[object], complaint: str) -> None:
    with pytest.raises(
        StorageCorrupt, match=rf"/x\.log is damaged at offset {len(writes) - 1}, log index \d+: .*{complaint}"
    ):
        replay(*([one] for one in writes))


def test_writes_of_version_1_end_before_reset_and_compaction() -> None:
    found = replay([write(entries(1, 3), hard_state=(1, "n1"))[:5], write(commit_index=2)[:5]])
    assert found.entries == entries(1, 3)
    assert found.standing.commit_index == 2


def test_a_replay_that_begins_behind_other_entries_counts_from_there() -> None:
    found = Replay(LogState(HardState(3, "n2"), 10, 2, 8), number=4)
    assert found.next_index == 11
    rows = [write(entries(11, 13, term=3), commit_index=11), write(entries(13, 13, term=4), truncate_from=13)]
    found.apply(PATH, Record(0, RecordType.WRITES, msgpack.packb(rows), 1))
    assert found.entries == [*entries(11, 12, term=3), *entries(13, 13, term=4)]
    assert (found.standing.previous_index, found.standing.previous_term) == (10, 2)
    assert found.start_state() == HardState(5, "")
    behind = Replay(LogState(HardState(3, "n2"), 10, 2, 8), number=4)
    body = msgpack.packb([write(truncate_from=10)])
    with pytest.raises(StorageCorrupt, match="deletes from index 10 and the log begins behind 10"):
        behind.apply(PATH, Record(0, RecordType.WRITES, body, 1))


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\x91", b"\x90\x90", b"\x81\x01\x02", b"\xc7\x01\x05x", b"\xdd\xff\xff\xff\xff"]
)
def test_a_body_that_is_no_list_of_writes_is_refused(body: bytes) -> None:
    """Including lengths that claim more than there is."""
    with pytest.raises(StorageCorrupt, match="unknown shape"):
        Replay().apply(PATH, Record(0, RecordType.WRITES, body, 1))


def test_a_seal_that_does_not_describe_the_log_is_refused() -> None:
    made = replay([write(entries(1, 3), hard_state=(1, "n1"), commit_index=2)])
    made.apply(PATH, Record(1, RecordType.SEAL, msgpack.packb((1, "n1", 3, 2)), 2))
    assert made.sealed
    for seal in ((1, "n1", 4, 2), (2, "n1", 3, 2), (1, "", 3, 2), (1, "n1", 3, 3), (1, "n1", 3)):
        with pytest.raises(StorageCorrupt):
            made.apply(PATH, Record(1, RecordType.SEAL, msgpack.packb(seal), 2))


@pytest.mark.parametrize(
    ("hard_state", "start"),
    [
        ((5, "n1"), HardState(5, "n1")),
        ((7, "n1"), HardState(7, "n1")),
        ((4, "n1"), HardState(6, "")),
        (None, HardState(6, "")),
    ],
)
def test_s03_the_first_term_is_never_below_the_last_entrys(
    hard_state: tuple[int, str] | None, start: HardState
) -> None:
    """With the vote of the last entry's term unknown, only the term after it is certainly free of one."""
    found = replay([write(entries(1, 3, term=5), hard_state=hard_state)])
    assert found.start_state() == start


def test_s03_a_raised_term_is_durable_and_stays() -> None:
    disk = FaultyDisk()
    with opened(disk) as log:
        log.write(entries(1, 3, term=5))
    for _ in range(3):
        found = recover(disk)
        assert found.hard_state == HardState(6, "")
        assert found.entries == entries(1, 3, term=5)
        disk = disk.after_power_loss()
    assert read_log(ROOT, disk).hard_state == HardState(6, "")


def test_opening_and_closing_does_not_make_the_log_grow() -> None:
    disk = FaultyDisk()
    with opened(disk) as log:
        log.write(entries(1, 3))
    recover(disk)
    size = disk.used()
    for _ in range(3):
        recover(disk)
    assert disk.used() == size


def test_a_reader_beside_a_writer_is_not_misled() -> None:
    """What it reads while a record is written may look like damage; it looks again."""

    class Racing(FaultyDisk):
        """Once, shows a hole where the second of three records is still to come."""

        hole = b"2:1:"

        def read(self, path: Path) -> bytes:
            data = super().read(path)
            if path.name.endswith(".log") and self.hole in data:
                data = data.replace(self.hole, b"\0\0\0\0", 1)
                self.hole = b"never"
            return data

    quiet = FaultyDisk()
    with opened(quiet) as log:
        for index in range(1, 4):
            log.wait(log.write(entries(index, index)))
    racing = Racing()
    racing.top = quiet.top
    assert read_log(ROOT, racing).entries == entries(1, 3)
    assert racing.hole == b"never"


def test_a_manifest_that_grows_while_it_is_read() -> None:
    """A roll between looking at the manifest and at the folder."""
    disk = FaultyDisk()
    directory = open_directory(disk)
    instance = bytes.fromhex(directory.instance_id)
    directory.close()
    grown = iter([Manifest(1, 1), Manifest(1, 2), Manifest(1, 2)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "read_manifest", lambda *arguments: next(grown))
        assert recovery._count_segments(disk, ROOT / "log", instance) == (Manifest(1, 2), 1)


@pytest.mark.parametrize(
    "name", ["1.log", "0000000000000001.log.tmp", "000000000000000x.log", "manifest", "0000000000000001"]
)
def test_what_is_no_segment(name: str) -> None:
    assert segment_number(name) is None


def test_a_long_recovery_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk()
    with opened(disk, segment_bytes=1100) as log:
        for index in range(1, 9):
            log.wait(log.write(entries(index, index, size=200)))
    monkeypatch.setattr(progress, "PROGRESS_EVERY_S", 0.0)
    with structlog.testing.capture_logs() as lines:
        recover(disk)
    told = [line for line in lines if line["event"] == "log_recovering"]
    assert [line["last_index"] for line in told[:8]] == list(range(1, 9))
    percents = [line["percent"] for line in told]
    assert percents == sorted(percents)
    assert 0 < percents[0] < 50
    assert 80 <= percents[-1] <= 100
