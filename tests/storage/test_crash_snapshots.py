"""Lives of a log and its snapshots together, cut at any operation: nothing known to be committed is lost (S14).

A life here is that of a follower: entries come and are committed, some are replaced before they are;
the state is written as a snapshot and the log given up behind it; snapshots that are ahead are received
and the log is reset to them. What is committed is the same for every node of a cluster, so it is a
function of the index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from fencepost.raft.core.entry import Entry, HardState, Snapshot
from fencepost.raft.core.errors import StorageCorrupt
from fencepost.storage import snapshot_files, snapshots, statefiles
from fencepost.storage.log_store import FileLogStore
from fencepost.storage.recovery import Recovered
from fencepost.storage.snapshots import FileSnapshotStore, check_log_follows

from .crashes import Aftermath, crash_at_every_step
from .faulty_disk import FaultyDisk
from .world import ROOT, Log, entries, label, label_of, open_directory, open_log

SEEDS = (1, 2, 3)
ACTS = 90
SEGMENT_BYTES = 2500


def term_of(index: int) -> int:
    return index // 7 + 1


def committed(first: int, last: int) -> list[Entry]:
    return [entries(index, index, term_of(index), size=60)[0] for index in range(first, last + 1)]


def state(index: int) -> bytes:
    """The state after ``index``, as the contents of a snapshot: longer than a sector, and of no one else."""
    digest = b""
    for entry in committed(1, index):
        digest = hashlib.sha256(digest + entry.data).digest()
    return b"%d:" % index + digest * 40


class Follower:
    def __init__(self, disk: FaultyDisk, chance: Random, known: Callable[[int], None]) -> None:
        """``known(index)`` is called when it is durable that everything up to an index is committed."""
        self.chance = chance
        self.known = known
        self.log: Log = open_log(disk, segment_bytes=SEGMENT_BYTES, stepped=True)
        self.store = FileSnapshotStore.open(self.log.directory)
        found = self.log.recovered
        check_log_follows(self.log.directory.snapshots_path, self.store.newest(), found)
        self.term = found.hard_state.term
        self.last_index = found.last_index
        self.commit_index = found.commit_index
        self.matching = found.commit_index
        """Up to here its entries are those that will be committed."""

    def write(self, rows: list[Entry], **what: object) -> None:
        """Append and make durable."""
        told = self.commit_index
        self.term = max(self.term, term_of(self.last_index))
        hard_state = HardState(self.term, "")
        self.log.wait(self.log.write(rows, hard_state=hard_state, commit_index=told, **what))  # type: ignore[arg-type]
        self.known(told)

    def act(self) -> None:
        acts = (self.follow, self.stray, self.take, self.receive, self.break_off)
        self.chance.choices(acts, weights=(10, 2, 3, 1, 1))[0]()

    def follow(self) -> None:
        truncate_from = self.matching + 1 if self.matching < self.last_index else 0
        count = self.chance.randint(1, 3)
        rows = committed(self.matching + 1, self.matching + count)
        self.matching = self.last_index = self.matching + count
        self.commit_index = self.chance.randint(self.commit_index, self.matching)
        self.write(rows, truncate_from=truncate_from)

    def stray(self) -> None:
        """Entries of a leader that will not get them through."""
        if self.matching == self.last_index:
            self.last_index += 2
            self.write(entries(self.matching + 1, self.last_index, term_of(self.matching), size=30))

    def take(self) -> None:
        newest = self.store.newest()
        if self.commit_index > (0 if newest is None else newest.last_index):
            index = self.commit_index
            made = self.store.write(label(index, term_of(index)), [state(index)[:900], state(index)[900:]])
            assert made == label_of(state(index), index, term_of(index))
            self.known(index)
            self.write([], compact_to=max(0, index - self.chance.randint(0, 3)))

    def receive(self) -> None:
        snapshot, contents = self._begin_receiving()
        for offset in range(0, len(contents), 700):
            self.store.store_chunk(snapshot, offset, contents[offset : offset + 700])
        assert self.store.finish(snapshot)
        index = snapshot.last_index
        self.known(index)
        self.commit_index = max(self.commit_index, index)
        if index <= self.matching:
            self.write([], compact_to=index)
        else:
            self.matching = self.last_index = index
            self.write([], reset=snapshot)

    def break_off(self) -> None:
        snapshot, contents = self._begin_receiving()
        self.store.store_chunk(snapshot, 0, contents[:700])

    def _begin_receiving(self) -> tuple[Snapshot, bytes]:
        index = self.commit_index + self.chance.randint(1, 9)
        return label_of(state(index), index, term_of(index)), state(index)


def aftermaths_of_a_life(seed: int, acts: int) -> list[Aftermath]:
    disk = FaultyDisk()
    chance = Random(seed)

    def act(acknowledge: Callable[[], None]) -> None:
        acknowledged = done = 0

        def known(index: int) -> None:
            nonlocal acknowledged
            while acknowledged < index:
                acknowledged += 1
                acknowledge()

        while done < acts:
            follower = Follower(disk, chance, known)
            for _ in range(chance.randint(10, 25)):
                follower.act()
                done += 1
            follower.log.close()
            assert follower.log.failures == []

    return crash_at_every_step(disk, act, torn_per_step=3)


def assert_nothing_is_lost(left: FaultyDisk, acknowledged: int, what: str) -> None:
    """Open it as a node would: the state from the newest snapshot, and the entries behind it."""
    directory = open_directory(left)
    log, found = FileLogStore.open(directory, segment_bytes=SEGMENT_BYTES)
    store = FileSnapshotStore.open(directory)
    newest = store.newest()
    check_log_follows(directory.snapshots_path, newest, found)
    reached = 0
    if newest is not None:
        reached = newest.last_index
        assert newest == label_of(state(reached), reached, term_of(reached)), what
        assert b"".join(store.contents(newest)) == state(reached), what
    if newest is not None and not holds(found, newest):
        # Received, and the log not reset to it yet: then it is ahead of all that the log knew.
        assert found.commit_index <= reached, what
    else:
        last = found.commit_index - found.previous_index
        assert found.entries[:last] == committed(found.previous_index + 1, found.commit_index), what
        reached = max(reached, found.commit_index)
    assert reached >= acknowledged, what
    assert not [name for name in left.list_directory(ROOT / "snapshots") if name.endswith(".tmp")], what
    log.close()
    directory.close()


def holds(log: Recovered, snapshot: Snapshot) -> bool:
    """Whether the log goes through the snapshot's last entry."""
    place = snapshot.last_index - log.previous_index
    if not 0 <= place <= len(log.entries):
        return False
    return snapshot.last_term == (log.entries[place - 1].term if place else log.previous_term)


def cut(seed: int, acts: int) -> int:
    """How many aftermaths were looked at."""
    aftermaths = aftermaths_of_a_life(seed, acts)
    for left, acknowledged, what in aftermaths:
        assert_nothing_is_lost(left, acknowledged, what)
    return len(aftermaths)


@pytest.mark.parametrize("seed", SEEDS)
def test_s14_a_life_with_snapshots_may_be_cut_anywhere(seed: int) -> None:
    assert cut(seed, ACTS) > 500


def cut_again(seed: int, acts: int, sample: int) -> int:
    """A second crash, while a node opens what the first one left."""
    count = 0
    for left, acknowledged, what in Random(seed).sample(aftermaths_of_a_life(seed, acts), sample):
        for there, _, second in crash_at_every_step(left, opening_of(left, acknowledged, what), torn_per_step=2):
            assert_nothing_is_lost(there, acknowledged, f"{what}, then {second}")
            count += 1
    return count


def opening_of(disk: FaultyDisk, acknowledged: int, what: str) -> Callable[[Callable[[], None]], None]:
    return lambda acknowledge: assert_nothing_is_lost(disk, acknowledged, what)


def test_s14_the_next_opening_may_be_cut_anywhere_too() -> None:
    assert cut_again(SEEDS[0], ACTS, sample=12) > 60


@pytest.mark.endure
@pytest.mark.parametrize("seed", range(200, 240))
def test_s14_many_lives_with_snapshots(seed: int) -> None:
    cut(seed, 150)
    cut_again(seed, 150, sample=20)


# -- planted faults: each must be caught ------------------------------------------------------------


def the_log_is_trimmed_before_the_snapshot_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(self: Follower) -> None:
        index = self.commit_index
        if index > getattr(self.store.newest(), "last_index", 0):
            self.write([], compact_to=index)
            self.store.write(label(index, term_of(index)), [state(index)])

    monkeypatch.setattr(Follower, "take", late)


def the_log_is_reset_before_the_snapshot_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(self: Follower) -> None:
        snapshot, contents = self._begin_receiving()
        self.commit_index = self.matching = self.last_index = snapshot.last_index
        self.write([], reset=snapshot)
        self.store.store_chunk(snapshot, 0, contents)
        self.store.finish(snapshot)

    monkeypatch.setattr(Follower, "receive", early)


def older_ones_go_before_the_newest_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = snapshot_files.Draft.publish

    def hasty(self: snapshot_files.Draft) -> snapshot_files.SnapshotFile:
        folder = self._path.parent
        for name in self._disk.list_directory(folder):
            if snapshot_files.snapshot_place(name):
                self._disk.unlink(folder / name)
        self._disk.sync_directory(folder)
        return genuine(self)

    monkeypatch.setattr(snapshot_files.Draft, "publish", hasty)


def named_before_it_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unsynced:
        def __init__(self, file: object) -> None:
            self._file = file

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

        def sync(self) -> None:
            pass

    make = statefiles.create_anew
    monkeypatch.setattr(snapshot_files, "create_anew", lambda disk, path: Unsynced(make(disk, path)))


def the_name_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = FaultyDisk.sync_directory

    def skip(self: FaultyDisk, path: Path) -> None:
        if path.name != "snapshots":
            genuine(self, path)

    monkeypatch.setattr(FaultyDisk, "sync_directory", skip)


def the_oldest_is_taken_for_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "max", min, raising=False)


FAULTS = (
    the_log_is_trimmed_before_the_snapshot_is_there,
    the_log_is_reset_before_the_snapshot_is_there,
    older_ones_go_before_the_newest_is_there,
    named_before_it_is_synced,
    the_name_is_not_synced,
    the_oldest_is_taken_for_the_newest,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_lives_catch(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises((AssertionError, StorageCorrupt)):
        for_all_seeds()


def for_all_seeds() -> None:
    for seed in SEEDS:
        cut(seed, ACTS)
