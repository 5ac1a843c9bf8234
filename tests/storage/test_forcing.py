"""A forced recovery: what it goes on with, and that it may be cut short anywhere (S04, S14, S27)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.raft.core.configuration import Configuration, encode_configuration
from fencepost.raft.core.entry import Entry, EntryKind, HardState
from fencepost.raft.core.errors import (
    DirectoryLocked,
    DirectoryMismatch,
    DirectoryUnfinished,
    StorageError,
)
from fencepost.storage.forcing import Prospect, force_recovery, look, recovered_configuration
from fencepost.storage.reader import read_log
from fencepost.storage.snapshots import FileSnapshotStore

from .crashes import crash_at_every_step
from .faulty_disk import FaultyDisk
from .world import FIRST_TIME_NS, ROOT, entries, entropy, label, open_directory, opened, recover

NOW_NS = FIRST_TIME_NS + 1_000_000


def used() -> FaultyDisk:
    """Of a node that has met n2, knows index 4 to be committed, and has two entries more."""
    disk = FaultyDisk()
    with opened(disk) as log:
        log.directory.remember_instance("n2", "aa")
        log.wait(log.write(entries(1, 6, term=3), hard_state=HardState(3, "n2"), commit_index=4))
        log.wait(log.write(hard_state=HardState(5, "n1")))
    return disk


def alone(prospect: Prospect) -> Configuration:
    return recovered_configuration(prospect.identity.node_id, {"n1": "h:1"}, ())


def force(disk: FaultyDisk) -> Prospect:
    return force_recovery(ROOT, alone, now_ns=NOW_NS, disk=disk, entropy=entropy())


def check_recovered(disk: FaultyDisk, what: str = "") -> None:
    """Old entries, one new one, a new incarnation, and nothing remembered of the old one."""
    recovered = recover(disk)
    data = encode_configuration(Configuration(("n1",), addresses=(("n1", "h:1"),)))
    added = Entry(7, 6, int(EntryKind.CONFIGURATION), NOW_NS, data)
    assert recovered.entries == [*entries(1, 6, term=3), added], what
    assert recovered.hard_state == HardState(6, ""), what
    directory = open_directory(disk)
    assert (directory.incarnation, directory.voters, directory.known_instances()) == (2, ("n1",), {}), what
    directory.close()


def test_the_node_goes_on_alone_in_a_new_incarnation() -> None:
    disk = used()
    instance = look(ROOT, disk).identity.instance_id
    prospect = force(disk)
    assert (prospect.incarnation, prospect.commit_index, prospect.last_index, prospect.last_term) == (2, 4, 6, 3)
    assert prospect.configuration == Configuration(("n1", "n2", "n3"))
    assert prospect.hard_state == HardState(5, "n1")
    check_recovered(disk)
    after = look(ROOT, disk)
    assert (after.incarnation, after.identity.instance_id) == (3, instance)
    assert after.configuration.voters == ("n1",)


def test_looking_changes_nothing_and_takes_no_lock() -> None:
    disk = used()
    with opened(disk):
        steps: list[str] = []
        disk.after_step = steps.append
        assert look(ROOT, disk).last_index == 6
        assert steps == []
        disk.after_step = lambda operation: None


def test_a_directory_in_use_is_refused() -> None:
    disk = used()
    with opened(disk), pytest.raises(DirectoryLocked):
        force(disk)


def test_what_is_no_directory_is_refused() -> None:
    with pytest.raises(DirectoryMismatch):
        force(FaultyDisk())


def test_the_others_may_stay_as_learners() -> None:
    made = recovered_configuration("n1", {"n1": "h:1", "n2": "h:2"}, ("n0", "n2"))
    assert made == Configuration(("n1",), learners=("n2",), retired=("n0",), addresses=(("n1", "h:1"), ("n2", "h:2")))


def test_s27_the_configuration_in_force_is_found_in_log_and_snapshot() -> None:
    disk = FaultyDisk()
    of_snapshot, in_log = Configuration(("n1", "n4")), Configuration(("n1", "n5"))
    with opened(disk) as log:
        log.wait(log.write(entries(1, 3), hard_state=HardState(1, ""), commit_index=3))
        FileSnapshotStore.open(log.directory).write(label(3, 1, of_snapshot), [b"state"])
        log.wait(log.write(compact_to=3))
    assert look(ROOT, disk).configuration == of_snapshot
    with opened(disk) as log:
        entry = Entry(4, 1, int(EntryKind.CONFIGURATION), FIRST_TIME_NS + 4, encode_configuration(in_log))
        log.wait(log.write([entry]))
    assert look(ROOT, disk).configuration == in_log
    force(disk)
    assert look(ROOT, disk).configuration.voters == ("n1",)


def test_s15_a_snapshot_that_the_log_was_not_told_of_is_gone_on_from() -> None:
    disk = used()
    directory = open_directory(disk)
    FileSnapshotStore.open(directory).write(label(20, 5), [b"state"])
    directory.close()
    prospect = force(disk)
    assert (prospect.last_index, prospect.last_term, prospect.commit_index) == (20, 5, 20)
    recovered = recover(disk)
    assert (recovered.previous_index, recovered.previous_term) == (20, 5)
    assert [(entry.index, entry.term) for entry in recovered.entries] == [(21, 6)]


def test_s14_a_forced_recovery_may_be_cut_anywhere_and_a_second_one_completes_it() -> None:
    """The incarnation is raised once, however often it is run; the directory is the old one, the new one, or none."""
    disk = used()

    def act(acknowledge: Callable[[], None]) -> None:
        force(disk)
        acknowledge()

    aftermaths = crash_at_every_step(disk, act)
    assert len(aftermaths) > 15
    seen = set()
    for left, acknowledged, what in aftermaths:
        if "recovering" in left.list_directory(ROOT):
            seen.add("unfinished")
            assert not acknowledged, what
            with pytest.raises(DirectoryUnfinished, match="was cut short"):
                open_directory(left)
            assert look(ROOT, left).resumed
            force(left)
        elif read_log(ROOT, left).last_index == 6:
            seen.add("old")
            assert not acknowledged, what
            directory = open_directory(left)
            assert (directory.incarnation, directory.known_instances()) == (1, {"n2": "aa"}), what
            directory.close()
            force(left)
        else:
            seen.add("new")
        check_recovered(left, what)
        check_recovered(left.after_power_loss(), what)
    assert seen == {"old", "unfinished", "new"}


def test_s14_the_completion_may_itself_be_cut_anywhere() -> None:
    disk = used()
    halves: list[FaultyDisk] = []

    def after_step(operation: str) -> None:
        if "recovering" in disk.list_directory(ROOT):
            halves.append(disk.after_power_loss())

    disk.after_step = after_step
    force(disk)
    disk.after_step = lambda operation: None
    halves = [half for half in halves if "recovering" in half.list_directory(ROOT)]
    assert len(halves) > 5
    for half in halves[::3]:

        def act(acknowledge: Callable[[], None], half: FaultyDisk = half) -> None:
            force(half)
            acknowledge()

        for left, acknowledged, what in crash_at_every_step(half, act, torn_per_step=2):
            if "recovering" in left.list_directory(ROOT):
                assert not acknowledged, what
                force(left)
            check_recovered(left, what)


@pytest.mark.parametrize("operation", ["write", "sync", "sync_data", "rename", "sync_directory", "unlink", "create"])
def test_s12_a_forced_recovery_that_failed_is_completed_by_another(operation: str) -> None:
    nth = 1
    while True:
        disk = used()
        disk.fail(operation, nth)
        try:
            force(disk)
            break
        except StorageError:
            left = disk.after_kill()
        if look(ROOT, left).identity.incarnation == 1 or "recovering" in left.list_directory(ROOT):
            force(left)
        check_recovered(left, f"{operation} {nth}")
        nth += 1
    assert nth > 1
