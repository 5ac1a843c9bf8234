"""Entries read back from the files, on every store that there is, beside its writer, and from a disk that fails."""

from __future__ import annotations

import errno
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from fencepost.jepsen.cores.disk import Disk as CoreDisk
from fencepost.raft.core.configuration import Configuration, encode_configuration
from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.errors import NotFound, StorageCorrupt, StorageError
from fencepost.raft.core.events import Persist
from fencepost.raft.core.log import OlderEntries
from fencepost.storage import entry_reader
from fencepost.storage.disk import Disk
from fencepost.storage.entry_reader import EntryIndex
from fencepost.storage.log_store import FileLogStore
from fencepost.storage.recovery import Recovered, Window

from .faulty_disk import FaultyDisk
from .reading_contract import CHECKS, EVERYTHING, Check
from .world import ROOT, Log, RealWorld, entries, label, open_directory, open_log

SEGMENT_BYTES = 32 << 10


class FileSubject:
    """A store of small files, so that segments roll and marks lie apart."""

    def __init__(self, disk: Disk, root: Path = ROOT) -> None:
        self._disk = disk
        self._root = root
        self.log = self._open()

    def _open(self) -> Log:
        return open_log(self._disk, self._root, segment_bytes=SEGMENT_BYTES, stepped=True)

    def write(
        self,
        entries: list[Entry],
        *,
        truncate_from: int = 0,
        commit_index: int = 0,
        reset_to: int = 0,
        compact: int = 0,
    ) -> None:
        log = self.log
        reset = label(reset_to) if reset_to else None
        made = log.write(
            entries, truncate_from=truncate_from, commit_index=commit_index, reset=reset, compact_to=compact
        )
        log.wait(made)

    def read(self, start: int, end: int, bytes_max: int) -> list[Entry]:
        return self.log.store.read(start, end, bytes_max)

    def reopen(self) -> None:
        self.log.close()
        self.log = self._open()


class FakeSubject:
    """The disk of the simulated cores."""

    def __init__(self) -> None:
        self._disk = CoreDisk()
        self._sequence = 0

    def write(
        self,
        entries: list[Entry],
        *,
        truncate_from: int = 0,
        commit_index: int = 0,
        reset_to: int = 0,
        compact: int = 0,
    ) -> None:
        self._sequence += 1
        reset = label(reset_to) if reset_to else None
        self._disk.ask(Persist(self._sequence, None, truncate_from, entries, commit_index, reset, compact))
        self._disk.complete()
        self._disk.compact()

    def read(self, start: int, end: int, bytes_max: int) -> list[Entry]:
        return self._disk.read(start, end, bytes_max)

    def reopen(self) -> None:
        pass


each_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


@pytest.fixture(autouse=True)
def near_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many marks, and readings of a file, as large logs have."""
    monkeypatch.setattr(entry_reader, "STRIDE_BYTES", 2048)
    monkeypatch.setattr(entry_reader, "READ_BYTES", 4096)


@each_check
def test_on_a_real_folder(check: Check, tmp_path: Path) -> None:
    world = RealWorld(tmp_path)
    check(FileSubject(world.disk, world.root))


@each_check
def test_on_the_faulty_disk(check: Check) -> None:
    check(FileSubject(FaultyDisk()))


@each_check
def test_on_the_simulated_disk_of_a_core(check: Check) -> None:
    check(FakeSubject())


def forgets_truncations(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = EntryIndex.note
    monkeypatch.setattr(
        EntryIndex, "note", lambda self, mark, truncate_from, reset_to: genuine(self, mark, 0, reset_to)
    )


def forgets_resets(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = EntryIndex.note
    monkeypatch.setattr(EntryIndex, "note", lambda self, mark, truncate_from, _: genuine(self, mark, truncate_from, 0))


def counts_a_record_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = EntryIndex.note
    monkeypatch.setattr(
        EntryIndex,
        "note",
        lambda self, mark, truncate_from, reset_to: genuine(self, mark._replace(skip=0), truncate_from, reset_to),
    )


def keeps_what_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EntryIndex, "drop_before", lambda self, segment: None)


@pytest.mark.parametrize("fault", [forgets_truncations, forgets_resets, keeps_what_is_dropped])
def test_the_suite_catches(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    def check_all() -> None:
        for check in CHECKS:
            check(FileSubject(FaultyDisk()))

    fault(monkeypatch)
    with pytest.raises((AssertionError, StorageError, pytest.fail.Exception)):
        check_all()


def a_truncation_in_the_record_of_what_it_deletes(log: Log) -> None:
    log.write(entries(1, 3))
    log.write(entries(2, 3, term=2), truncate_from=2)
    log.wait(log.sequence)
    assert log.store.status().syncs == 1
    assert log.store.read(1, 3, EVERYTHING) == [*entries(1, 1), *entries(2, 3, term=2)]


def test_a_truncation_in_the_record_of_what_it_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    a_truncation_in_the_record_of_what_it_deletes(FileSubject(FaultyDisk()).log)
    counts_a_record_as_a_whole(monkeypatch)
    with pytest.raises(AssertionError):
        a_truncation_in_the_record_of_what_it_deletes(FileSubject(FaultyDisk()).log)


def test_beside_the_writers_thread(tmp_path: Path) -> None:
    """While segments roll and go, a reading finds what it asks for or that it is compacted, and nothing else."""
    world = RealWorld(tmp_path)
    log = open_log(world.disk, world.root, segment_bytes=SEGMENT_BYTES)
    wrong: list[BaseException] = []
    done = False
    missed = found = 0

    def read() -> None:
        nonlocal missed, found
        turn = 0
        while not done:
            turn += 1
            end = log.acknowledged[-1] if log.acknowledged else 0
            start = max(1, end - (1, 30, 150, 400)[turn % 4])
            try:
                if end:
                    assert log.store.read(start, end, EVERYTHING) == entries(start, end, size=400)
                    found += 1
            except NotFound:
                missed += 1
            except BaseException as error:
                wrong.append(error)
                return

    reader = Thread(target=read)
    reader.start()
    for index in range(1, 1501):
        log.write(entries(index, index, size=400), commit_index=index - 1, compact_to=max(0, index - 200))
        if index % 20 == 0:
            log.wait(log.sequence)
    done = True
    reader.join()
    log.close()
    assert wrong == []
    assert found > 10
    assert log.store.status().first_segment > 3


# -- a disk that fails ----------------------------------------------------------------------------


@contextmanager
def written(disk: FaultyDisk, last: int = 60) -> Iterator[FileLogStore]:
    subject = FileSubject(disk)
    for index in range(1, last + 1):
        subject.write(entries(index, index, size=1000))
    yield subject.log.store
    subject.log.close()


def test_a_flipped_bit_is_seen_whatever_it_hits() -> None:
    disk = FaultyDisk()
    with written(disk) as store:
        path = ROOT / "log" / "0000000000000001.log"
        intact = disk.read(path)
        place = intact.index(b"5:1:x")
        for at in (place, place - place % 512):
            disk.poke(path, intact[:at] + bytes([intact[at] ^ 1]) + intact[at + 1 :])
            with pytest.raises(StorageCorrupt, match=r"0000000000000001\.log is damaged at offset \d+, log index 5:"):
                store.read(5, 5, EVERYTHING)
            disk.poke(path, intact)
        assert store.read(5, 5, EVERYTHING) == entries(5, 5, size=1000)


def test_a_segment_that_is_gone_is_damage() -> None:
    disk = FaultyDisk()
    with written(disk) as store:
        disk.unlink(ROOT / "log" / "0000000000000001.log")
        with pytest.raises(StorageCorrupt, match="missing"):
            store.read(1, 5, EVERYTHING)


def test_an_error_of_the_disk_is_told_as_one() -> None:
    disk = FaultyDisk()
    with written(disk) as store:
        disk.fail("read", 1, errno.EIO)
        with pytest.raises(StorageError, match=r"reading .*0000000000000001\.log failed"):
            store.read(1, 5, EVERYTHING)


# -- what a start keeps in memory -----------------------------------------------------------------


def test_a_start_keeps_the_newest_entries_and_knows_the_others() -> None:
    disk = FaultyDisk()
    subject = FileSubject(disk)
    configuration = Entry(3, 1, EntryKind.CONFIGURATION, 0, encode_configuration(Configuration(("n1",))))
    held = [*entries(1, 2), configuration, *entries(4, 50), *entries(51, 90, term=4)]
    for entry in held:
        subject.write([entry], commit_index=entry.index - 1)
    subject.write(entries(91, 95, term=4))
    subject.log.close()
    found = recovered(disk, Window(entries=16))
    older = found.older
    assert older is not None
    assert 16 <= len(found.entries) <= 24
    assert found.entries == [*held, *entries(91, 95, term=4)][older.last_index :]
    assert (found.last_index, found.last_term, found.previous_index) == (95, 4, 0)
    assert (older.terms, older.configurations) == ([(1, 1), (51, 4)], [configuration])
    assert older.last_time_ns == held[older.last_index - 1].time_ns
    assert older.bytes_after(0) == sum(len(entry.data) for entry in held[: older.last_index])


def test_a_start_keeps_whatever_is_not_known_to_be_committed() -> None:
    disk = FaultyDisk()
    subject = FileSubject(disk)
    subject.write(entries(1, 20), commit_index=5)
    subject.write(entries(21, 60))
    subject.log.close()
    found = recovered(disk, Window(entries=2))
    assert found.older is not None
    assert (found.older.last_index, found.entries) == (5, [*entries(6, 20), *entries(21, 60)])


def test_a_reset_is_the_end_of_what_is_known_before_it() -> None:
    disk = FaultyDisk()
    subject = FileSubject(disk)
    subject.write(entries(1, 40), commit_index=40)
    subject.write(entries(101, 103, term=2), reset_to=100)
    subject.log.close()
    found = recovered(disk, Window(entries=4))
    assert (found.older, found.previous_index, found.entries) == (None, 100, entries(101, 103, term=2))


def recovered(disk: Disk, window: Window) -> Recovered:
    directory = open_directory(disk)
    store, found = FileLogStore.open(directory, segment_bytes=SEGMENT_BYTES, window=window)
    if found.older is not None:
        assert isinstance(found.older, OlderEntries)
        before = found.older.last_index
        read = store.read(found.previous_index + 1, before, EVERYTHING)
        assert [entry.index for entry in read] == list(range(found.previous_index + 1, before + 1))
    store.close()
    directory.close()
    return found


def test_what_a_start_holds_does_not_grow_with_the_log() -> None:
    held = {}
    for last in (10_000, 40_000):
        disk = FaultyDisk()
        log = open_log(disk, segment_bytes=1 << 20, stepped=True)
        for first in range(1, last, 500):
            log.wait(log.write(entries(first, first + 499, size=60), commit_index=first - 1))
        log.close()
        directory = open_directory(disk)
        tracemalloc.start()
        store, found = FileLogStore.open(directory, segment_bytes=1 << 20, window=Window(entries=2000))
        gc.collect()
        held[last], _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found.last_index == last
        store.close()
        directory.close()
    # Each of the thirty thousand entries more would take more than two hundred bytes.
    assert held[40_000] < held[10_000] + 30_000 * 50
    assert held[10_000] < 10_000 * 300
