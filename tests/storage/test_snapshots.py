"""Snapshots on disk: failures, damage, formats, and the log that has to reach back to them (S10 to S14, S55)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fencepost.raft.core import configuration as configurations
from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import Snapshot
from fencepost.raft.core.errors import (
    NotFound,
    StorageCorrupt,
    StorageError,
    StorageFormatUnknown,
    StorageFull,
)
from fencepost.storage import snapshot_files
from fencepost.storage.identity import DataDirectory
from fencepost.storage.reader import read_snapshot
from fencepost.storage.snapshot_files import Owner, encode_header, snapshot_name, snapshot_place
from fencepost.storage.snapshots import FileSnapshotStore, check_log_follows

from .crashes import crash_at_every_step
from .faulty_disk import FaultyDisk
from .test_compaction import TrimmedMeanwhile, format_1
from .world import ROOT, label, label_of, open_directory, opened, recover

FOLDER = ROOT / "snapshots"
CONTENTS = b"contents of a snapshot, " * 60


def open_store(disk: FaultyDisk) -> FileSnapshotStore:
    directory = open_directory(disk)
    try:
        return FileSnapshotStore.open(directory)
    finally:
        directory.close()


def with_snapshots(*indexes: int) -> FaultyDisk:
    disk = FaultyDisk()
    store = open_store(disk)
    for index in indexes:
        store.write(label(index), [CONTENTS])
    return disk


def names(disk: FaultyDisk) -> list[str]:
    return sorted(disk.list_directory(FOLDER))


def newest_of(disk: FaultyDisk) -> Snapshot | None:
    return open_store(disk).newest()


# -- failures -----------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[FileSnapshotStore], object]] = {
    "written": lambda store: store.write(label(20), [CONTENTS]),
    "received": lambda store: receive(store, label_of(CONTENTS, 20)),
}


def receive(store: FileSnapshotStore, snapshot: Snapshot) -> None:
    store.store_chunk(snapshot, 0, CONTENTS[:100])
    store.store_chunk(snapshot, 100, CONTENTS[100:])
    assert store.finish(snapshot)


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_directory"])
def test_s12_a_failure_is_final_and_names_the_file(operation: str, how: str) -> None:
    disk = with_snapshots(10)
    store = open_store(disk)
    disk.fail(operation, 1)
    with pytest.raises(StorageError, match="snapshots/") as failure:
        WRITES[how](store)
    assert not isinstance(failure.value, StorageFull)
    calls = dict(disk.calls)
    later: list[Callable[[], object]] = [
        lambda: store.write(label(30), [CONTENTS]),
        lambda: store.store_chunk(label_of(b"x", 30), 0, b"x"),
    ]
    for act in later:
        with pytest.raises(StorageError) as again:
            act()
        assert again.value is failure.value
    assert dict(disk.calls) == calls
    # What was there is there, and can be read as long as the process lasts.
    assert store.newest() == label_of(CONTENTS, 10)
    assert b"".join(store.contents(label_of(CONTENTS, 10))) == CONTENTS
    for left in (disk, disk.after_power_loss()):
        assert newest_of(left) in (label_of(CONTENTS, 10), label_of(CONTENTS, 20))


def test_s12_a_failed_deletion_is_final_too() -> None:
    disk = with_snapshots(10, 20)
    store = open_store(disk)
    disk.fail("unlink", 1)
    with pytest.raises(StorageError, match="tidying"):
        store.write(label(30), [CONTENTS])
    assert newest_of(disk.after_power_loss()) == label_of(CONTENTS, 30)


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("room", [0, 1, 511, 512, 900, len(CONTENTS) - 1])
def test_s11_a_full_disk_leaves_nothing_and_space_alone_mends_it(room: int, how: str) -> None:
    disk = with_snapshots(10)
    store = open_store(disk)
    used = disk.used()
    disk.capacity = used + room
    with pytest.raises(StorageFull, match="no space left"):
        WRITES[how](store)
    assert names(disk) == [snapshot_name(label(10))]
    assert disk.used() == used
    assert store.newest() == label_of(CONTENTS, 10)
    disk.capacity = 1 << 60
    WRITES[how](store)
    assert newest_of(disk.after_power_loss()) == label_of(CONTENTS, 20)


def test_s11_what_was_received_before_the_disk_was_full_is_forgotten() -> None:
    disk = with_snapshots(10)
    store = open_store(disk)
    snapshot = label_of(CONTENTS, 20)
    store.store_chunk(snapshot, 0, CONTENTS[:100])
    disk.capacity = disk.used()
    with pytest.raises(StorageFull):
        store.store_chunk(snapshot, 100, CONTENTS[100:])
    disk.capacity = 1 << 60
    assert store.store_chunk(snapshot, 100, CONTENTS[100:]) == 0
    assert not store.finish(snapshot)


def test_an_error_of_whoever_makes_the_contents_is_not_the_disks() -> None:
    """Even one of the disk's own kind: it came from elsewhere, and the next snapshot may be written."""
    disk = FaultyDisk()
    store = open_store(disk)

    def broken() -> Iterator[bytes]:
        yield CONTENTS
        raise StorageError("of another disk")

    with pytest.raises(StorageError, match="of another disk"):
        store.write(label(10), broken())
    assert names(disk) == []
    store.write(label(10), [CONTENTS])


def test_a_read_that_fails_is_an_error_of_the_disk_and_not_final() -> None:
    disk = with_snapshots(10)
    store = open_store(disk)
    disk.fail("read", 1)
    with pytest.raises(StorageError, match="reading"):
        store.read(label_of(CONTENTS, 10), 0, 10)
    assert store.read(label_of(CONTENTS, 10), 0, 10) == CONTENTS[:10]


def test_a_snapshot_that_was_deleted_by_hand_is_not_kept() -> None:
    disk = with_snapshots(10)
    store = open_store(disk)
    disk.unlink(FOLDER / snapshot_name(label(10)))
    with pytest.raises(NotFound):
        store.read(label_of(CONTENTS, 10), 5, 10)
    with pytest.raises(NotFound):
        list(store.contents(label_of(CONTENTS, 10)))


# -- crashes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", WRITES)
def test_s14_the_newest_is_the_old_one_or_the_new_one(how: str) -> None:
    disk = with_snapshots(5, 10)
    store = open_store(disk)

    def act(acknowledge: Callable[[], None]) -> None:
        WRITES[how](store)
        acknowledge()

    seen = set()
    for left, acknowledged, what in crash_at_every_step(disk, act):
        reopened = open_store(left)
        newest = reopened.newest()
        assert newest is not None, what
        assert newest in (label_of(CONTENTS, 10), label_of(CONTENTS, 20)), what
        assert newest == label_of(CONTENTS, 20) or not acknowledged, what
        assert b"".join(reopened.contents(newest)) == CONTENTS, what
        assert all(snapshot_place(name) for name in names(left)), what
        seen.add(newest)
    assert len(seen) == 2
    assert names(disk) == [snapshot_name(label(10)), snapshot_name(label(20))]


def test_what_a_crash_left_half_made_is_deleted_at_the_next_open() -> None:
    disk = FaultyDisk()
    store = open_store(disk)
    store.store_chunk(label_of(CONTENTS, 20), 0, CONTENTS)
    assert names(disk) == ["receiving.tmp"]
    assert newest_of(disk) is None
    assert names(disk) == []


# -- damage -------------------------------------------------------------------------------------------


def test_s10_every_bit_of_the_newest_counts() -> None:
    """Refused, naming the file; never an older one instead, behind which the log may be gone."""
    disk = with_snapshots(5, 10)
    name = snapshot_name(label(10))
    whole = disk.read(FOLDER / name)
    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << position % 8
        disk.poke(FOLDER / name, bytes(flipped))
        with pytest.raises((StorageCorrupt, StorageFormatUnknown), match=name):
            open_store(disk)
        assert disk.read(FOLDER / name) == bytes(flipped)


def test_s10_a_newest_that_is_too_short_or_too_long_is_refused() -> None:
    disk = with_snapshots(5, 10)
    name = snapshot_name(label(10))
    whole = disk.read(FOLDER / name)
    for content in (*(whole[:size] for size in range(0, len(whole), 37)), whole[:-1], whole + b"\0"):
        disk.poke(FOLDER / name, content)
        with pytest.raises(StorageCorrupt, match=name):
            open_store(disk)


def test_more_are_kept_where_more_are_asked_for_and_never_less_than_two() -> None:
    disk = FaultyDisk()
    directory = open_directory(disk)
    store = FileSnapshotStore.open(directory, kept=3)
    made = [store.write(label(index), [CONTENTS]) for index in (10, 20, 30, 40)]
    assert names(disk) == [snapshot_name(one) for one in made[1:]]
    assert [store.read(one, 0, 8) for one in made[1:]] == [CONTENTS[:8]] * 3
    FileSnapshotStore.open(directory).write(label(50), [CONTENTS])
    assert names(disk) == [snapshot_name(label(index)) for index in (40, 50)]
    with pytest.raises(ValueError, match="kept"):
        FileSnapshotStore.open(directory, kept=1)
    directory.close()


def test_damage_of_an_older_one_is_no_hindrance() -> None:
    """Nothing depends on it any more."""
    disk = with_snapshots(5, 10)
    disk.poke(FOLDER / snapshot_name(label(5)), b"damage")
    store = open_store(disk)
    assert store.newest() == label_of(CONTENTS, 10)
    with pytest.raises(NotFound):
        store.read(label_of(CONTENTS, 5), 0, 1)
    store.write(label(20), [CONTENTS])
    assert names(disk) == [snapshot_name(label(10)), snapshot_name(label(20))]


def test_a_snapshot_under_another_name_or_in_another_directory_is_refused() -> None:
    disk = with_snapshots(10)
    disk.rename(FOLDER / snapshot_name(label(10)), FOLDER / snapshot_name(label(11)))
    with pytest.raises(StorageCorrupt, match=r"it is of index 10, term 1 under the name of another"):
        open_store(disk)
    for owner, refused in ((Owner(b"x" * 16, 1), True), (Owner(own_instance(disk), 2), True), (own(disk), False)):
        made = label_of(CONTENTS, 11)
        disk.poke(FOLDER / snapshot_name(made), encode_header(made, owner) + CONTENTS)
        if refused:
            with pytest.raises(StorageCorrupt, match="another data directory"):
                open_store(disk)
        else:
            assert newest_of(disk) == made


def own_instance(disk: FaultyDisk) -> bytes:
    directory = open_directory(disk)
    directory.close()
    return bytes.fromhex(directory.instance_id)


def own(disk: FaultyDisk) -> Owner:
    return Owner(own_instance(disk), 1)


# -- versions -----------------------------------------------------------------------------------------


def test_s55_a_newer_format_is_refused_and_left_alone() -> None:
    disk = with_snapshots(10)
    path = FOLDER / snapshot_name(label(10))
    newer = disk.read(path)[:8] + b"\0\2" + b"laid out otherwise"
    disk.poke(path, newer)
    with pytest.raises(StorageFormatUnknown, match="format 2 and this program reads up to 1"):
        open_store(disk)
    assert disk.read(path) == newer


def test_s55_a_configuration_that_this_version_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An intact file, so it is no damage; and going on without a part of it would lose that part."""
    disk = FaultyDisk()
    store = open_store(disk)
    genuine = configurations.encode_configuration
    with monkeypatch.context() as patch:
        patch.setattr(snapshot_files, "encode_configuration", lambda given: genuine(given) + b"\nwitnesses n9")
        store.write(label(10), [CONTENTS])
    with pytest.raises(StorageFormatUnknown, match="witnesses"):
        open_store(disk)


def test_s55_another_group_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk()
    store = open_store(disk)
    with monkeypatch.context() as patch:
        patch.setattr(snapshot_files, "GROUP", 3)
        store.write(label(10), [CONTENTS])
    with pytest.raises(StorageFormatUnknown, match="of group 3"):
        open_store(disk)


def test_a_directory_of_a_version_without_snapshots_gets_a_place_for_them() -> None:
    disk = format_1()
    for left, _, what in crash_at_every_step(disk, lambda acknowledge: _open(disk)):
        assert newest_of(left) is None, what
        open_store(left).write(label(5), [CONTENTS])
        again = left.after_power_loss()
        assert newest_of(again) == label_of(CONTENTS, 5), what
        assert len(recover(again).entries) == 9, what


def _open(disk: FaultyDisk) -> None:
    open_store(disk)


def test_s21_snapshots_without_an_identity_are_refused() -> None:
    """Whose state is it? Starting over would give it up under an old name."""
    disk = with_snapshots(10)
    disk.unlink(ROOT / "identity")
    for name in ("boot", "instances", "log"):
        disk.unlink(ROOT / name)
    with pytest.raises(StorageCorrupt, match="it is missing, but there is snapshots"):
        open_directory(disk)
    disk.open(ROOT / "identity.new", create=True).close()
    with pytest.raises(StorageCorrupt, match=f"it is missing, but there is snapshots/{snapshot_name(label(10))}"):
        open_directory(disk)


@pytest.mark.parametrize(
    "name",
    [
        "writing.tmp",
        "10-1.snapshot",
        "0000000000000010-0000000000000001.snapshot.tmp",
        "0000000000000010.snapshot",
        "000000000000001x-0000000000000001.snapshot",
        "0000000000000010-0000000000000001",
        "notes.txt",
    ],
)
def test_what_is_no_snapshot(name: str) -> None:
    assert snapshot_place(name) is None


@pytest.mark.parametrize("place", [(1, 1), (0, 0), (10**16, 10**17), (2**64 - 1, 2**64 - 1)])
def test_a_name_says_what_it_is_of(place: tuple[int, int]) -> None:
    assert snapshot_place(snapshot_name(label(*place))) == place


def test_names_are_compared_as_numbers() -> None:
    disk = with_snapshots(9999999999999999, 10**16)
    assert newest_of(disk) == label_of(CONTENTS, 10**16)


# -- the log behind it --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("newest", "begins", "complaint"),
    [
        (None, (0, 0), ""),
        (None, (10, 1), "begins behind index 10, and the newest snapshot ends at 0"),
        (label(9, 1), (10, 1), "begins behind index 10, and the newest snapshot ends at 9"),
        (label(10, 1), (10, 1), ""),
        (label(10, 2), (10, 1), "begins behind index 10, which has term 1 for the log and 2 for the snapshot"),
        (label(12, 2), (10, 1), ""),
        (label(12, 2), (0, 0), ""),
    ],
)
def test_s14_a_log_that_does_not_reach_back_to_the_newest_snapshot_is_refused(
    newest: Snapshot | None, begins: tuple[int, int], complaint: str
) -> None:
    with opened(FaultyDisk()) as log:
        found = log.recovered._replace(previous_index=begins[0], previous_term=begins[1])
    if not complaint:
        check_log_follows(FOLDER, newest, found)
        return
    with pytest.raises(StorageCorrupt, match=complaint) as refusal:
        check_log_follows(FOLDER, newest, found)
    assert "snapshots" in refusal.value.message


def test_a_reader_is_told_the_newest_and_changes_nothing() -> None:
    disk = with_snapshots(5, 10)
    directory: DataDirectory = open_directory(disk)
    calls = {name: disk.calls[name] for name in ("write", "unlink", "rename")}
    assert read_snapshot(ROOT, disk) == label_of(CONTENTS, 10)
    assert {name: disk.calls[name] for name in calls} == calls
    directory.close()
    assert read_snapshot(ROOT, format_1()) is None
    disk.poke(FOLDER / snapshot_name(label(10)), b"damage")
    with pytest.raises(StorageCorrupt):
        read_snapshot(ROOT, disk)


def test_a_reader_beside_a_store_that_goes_on_is_not_misled() -> None:
    disk = with_snapshots(5)
    before = disk.after_kill()
    store = open_store(disk)
    for index in (10, 20):
        store.write(label(index), [CONTENTS])
    racing = TrimmedMeanwhile(before, disk, snapshot_name(label(5)))
    assert read_snapshot(ROOT, racing) == label_of(CONTENTS, 20)


def test_a_configuration_of_any_length_has_room_in_the_header() -> None:
    disk = FaultyDisk()
    store = open_store(disk)
    last = None
    for length in range(300, 520, 3):
        configuration = Configuration(("n" * length,))
        last = store.write(label(length, configuration=configuration), [CONTENTS])
        assert read_snapshot(ROOT, disk) == last
    assert newest_of(disk) == last
