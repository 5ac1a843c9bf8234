"""Saved snapshots and what is made of them: whole or refused, and cut short nowhere for good (S04, S14, S55, S57)."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import HardState
from fencepost.raft.core.errors import (
    ConfigurationError,
    DirectoryOccupied,
    DirectoryUnfinished,
    NotFound,
    SnapshotDamaged,
    SnapshotExists,
    SnapshotForeign,
    StorageError,
    StorageFormatUnknown,
    StorageFull,
)
from fencepost.storage.backup_files import BackupDraft, backup_contents, read_backup
from fencepost.storage.disk import Disk
from fencepost.storage.restoring import restore_directory, restored_configuration

from ..damage import flipped
from .crashes import crash_at_every_step
from .faulty_disk import FaultyDisk
from .saved import CONTENTS, FILE, backup_label, restore, save, saved, start, with_folder
from .world import ROOT, VOTERS, entries, label, opened

# -- the file ---------------------------------------------------------------------------------------


def read_all(disk: Disk) -> bytes:
    return b"".join(backup_contents(disk, read_backup(disk, FILE)))


@pytest.mark.parametrize("size", [0, 1, 512, 3 << 20])
def test_what_was_saved_is_read(size: int) -> None:
    contents = bytes(range(256)) * (size // 256) + bytes(size % 256)
    disk = saved(contents)
    file = read_backup(disk, FILE)
    assert read_all(disk) == contents
    assert file.label._replace(snapshot=label(7, 3)) == backup_label()
    assert (file.label.snapshot.last_index, file.label.snapshot.size_bytes) == (7, size)
    assert file.label.snapshot.configuration == VOTERS


def test_a_file_that_is_there_is_not_replaced_unasked() -> None:
    disk = saved()
    with pytest.raises(SnapshotExists, match="exists; nothing was written"):
        save(disk, b"other")
    assert read_all(disk) == CONTENTS
    save(disk, b"other", overwrite=True)
    assert read_all(disk) == b"other"


def test_a_file_that_came_while_another_was_written_is_not_replaced() -> None:
    disk = with_folder(FaultyDisk())
    draft = BackupDraft(disk, FILE, backup_label())
    disk.open(FILE, create=True).close()
    with pytest.raises(SnapshotExists):
        draft.publish()


def test_s14_saving_may_be_cut_anywhere_and_leaves_nothing_or_all_of_it() -> None:
    disk = with_folder(FaultyDisk())

    def act(acknowledge: Callable[[], None]) -> None:
        save(disk)
        acknowledge()

    seen = set()
    for left, acknowledged, what in crash_at_every_step(disk, act):
        try:
            assert read_all(left) == CONTENTS, what
            seen.add("whole")
        except NotFound:
            assert not acknowledged, what
            seen.add("none")
            save(left)
            assert read_all(left) == CONTENTS, what
    assert seen == {"whole", "none"}


def test_every_bit_flip_of_a_saved_snapshot_is_refused() -> None:
    disk = saved(CONTENTS[:300])
    whole = disk.read(FILE)
    for position in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << bit
            disk.poke(FILE, bytes(flipped))
            with pytest.raises((SnapshotDamaged, SnapshotForeign, StorageFormatUnknown), match="monday"):
                read_all(disk)


def test_every_truncation_of_a_saved_snapshot_is_refused() -> None:
    disk = saved(CONTENTS[:300])
    whole = disk.read(FILE)
    for change in (*(whole[:size] for size in range(len(whole))), whole + b"\0"):
        disk.poke(FILE, change)
        with pytest.raises((SnapshotDamaged, SnapshotForeign), match="monday"):
            read_all(disk)


def test_s55_a_saved_snapshot_of_a_newer_format_is_refused() -> None:
    disk = saved()
    whole = disk.read(FILE)
    disk.poke(FILE, whole[:8] + b"\0\2 laid out otherwise")
    with pytest.raises(StorageFormatUnknown, match="format 2 and this program reads up to 1"):
        read_backup(disk, FILE)


def test_s11_a_snapshot_that_does_not_fit_leaves_nothing() -> None:
    disk = with_folder(FaultyDisk())
    draft = BackupDraft(disk, FILE, backup_label())
    disk.fail("write", 1, errno.ENOSPC)
    with pytest.raises(StorageFull):
        draft.append(CONTENTS)
    draft.discard()
    assert disk.list_directory(FILE.parent) == []


def names_in_root(disk: FaultyDisk) -> list[str]:
    try:
        return disk.list_directory(ROOT)
    except FileNotFoundError:
        return []


# -- restoring --------------------------------------------------------------------------------------


def test_a_restored_directory_is_one_of_a_new_incarnation_with_no_vote() -> None:
    disk = saved()
    made = restore(disk)
    directory, newest, recovered = start(disk)
    assert (directory.incarnation, directory.node_id, directory.cluster_id) == (2, "n1", "c1")
    assert directory.voters == VOTERS.voters
    assert newest == made.snapshot
    assert (recovered.hard_state, recovered.last_index) == (HardState(0, ""), 0)
    assert directory.known_instances() == {}


def test_every_node_has_an_instance_of_its_own_and_all_else_alike() -> None:
    made = []
    for node, salt in (("n1", b"a"), ("n2", b"b")):
        disk = saved()
        file = read_backup(disk, FILE)
        made.append(
            restore_directory(
                ROOT,
                file,
                node_id=node,
                configuration=VOTERS,
                incarnation=2,
                read_state=lambda contents: b"".join(contents),
                disk=disk,
                entropy=lambda size, salt=salt: salt * size,  # type: ignore[misc]
            )
        )
    one, two = made
    assert one.snapshot == two.snapshot
    assert one.identity.instance_id != two.identity.instance_id
    assert one.identity._replace(node_id="n2", instance_id=two.identity.instance_id) == two.identity


def test_the_members_may_be_others() -> None:
    disk = saved()
    configuration = restored_configuration(VOTERS, {"n1": "h:1", "n9": "h:9"})
    restore(disk, configuration)
    directory, newest, _ = start(disk)
    assert newest is not None
    assert newest.configuration == Configuration(("n1", "n9"), addresses=(("n1", "h:1"), ("n9", "h:9")))
    assert directory.voters == ("n1", "n9")


def test_which_members_a_restored_cluster_has() -> None:
    joint = Configuration(("n1", "n2", "n4"), outgoing=("n1", "n2", "n3"), learners_next=("n3",), retired=("n0",))
    assert restored_configuration(joint, None) == Configuration(("n1", "n2", "n4"), learners=("n3",), retired=("n0",))
    assert restored_configuration(VOTERS, None) == VOTERS
    with pytest.raises(ConfigurationError, match="n0 was removed from the cluster for good"):
        restored_configuration(joint, {"n0": "h:1"})
    with pytest.raises(ConfigurationError, match="n9 is none of the nodes"):
        restore(saved(), node_id="n9")


@pytest.mark.parametrize("there", ["used", "formatted", "foreign"])
def test_s57_a_restore_over_something_is_refused_and_touches_nothing(there: str) -> None:
    disk = saved()
    if there == "foreign":
        disk.make_directory(ROOT.parent)
        disk.make_directory(ROOT)
        disk.open(ROOT / "thesis.tex", create=True).close()
    else:
        with opened(disk) as log:
            log.wait(log.write(entries(1, 2), hard_state=HardState(1, "")))
    if there == "formatted":
        # Interrupted while it was being formatted: a node will make it its own.
        disk.rename(ROOT / "identity", ROOT / "identity.new")
    before = sorted(disk.list_directory(ROOT))
    with pytest.raises(DirectoryOccupied, match="nothing was changed"):
        restore(disk)
    assert sorted(disk.list_directory(ROOT)) == before


def test_s14_s56_a_restore_may_be_cut_anywhere_and_is_completed_by_another() -> None:
    """No node starts on half of it; what a node starts on is all of it."""
    disk = saved()

    def act(acknowledge: Callable[[], None]) -> None:
        restore(disk)
        acknowledge()

    aftermaths = crash_at_every_step(disk, act)
    assert len(aftermaths) > 25
    seen = set()
    for left, acknowledged, what in aftermaths:
        names = names_in_root(left)
        if "identity" in names:
            seen.add("done")
        else:
            assert not acknowledged, what
            if "identity.restoring" in names:
                seen.add("unfinished")
                with pytest.raises(DirectoryUnfinished, match="was cut short"):
                    start(left)
            restore(left)
        directory, newest, _ = start(left)
        assert (directory.incarnation, directory.boot) == (2, 1), what
        assert newest is not None, what
        start(left.after_power_loss())
    assert seen == {"done", "unfinished"}


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_directory", "make_directory", "create"])
def test_s12_a_restore_that_failed_is_completed_by_another(operation: str) -> None:
    nth = 1
    while True:
        disk = saved()
        disk.fail(operation, nth)
        try:
            restore(disk)
            break
        except StorageError:
            pass
        if "identity" not in names_in_root(disk):
            restore(disk)
        start(disk)
        nth += 1
    assert nth > 1


def test_a_restore_from_a_damaged_file_gives_no_directory() -> None:
    disk = saved()
    whole = disk.read(FILE)
    disk.poke(FILE, flipped(whole, -1))
    with pytest.raises(SnapshotDamaged):
        restore(disk)
    with pytest.raises(DirectoryUnfinished):
        start(disk)
    disk.poke(FILE, whole)
    restore(disk)
    start(disk)


def test_contents_that_are_no_state_give_no_directory() -> None:
    disk = saved(b"sealed, and no state")
    with pytest.raises(AssertionError):
        restore(disk)
    with pytest.raises(DirectoryUnfinished):
        start(disk)


def test_a_restore_that_was_given_up_leaves_nothing_to_another_from_an_older_file() -> None:
    """Its snapshot has its name already, and would be the newest."""
    disk = saved(b"sealed, and no state")
    with pytest.raises(AssertionError):
        restore(disk)
    save(disk, overwrite=True, last_index=5)
    restore(disk)
    _, newest, _ = start(disk)
    assert newest is not None
    assert newest.last_index == 5


def test_s14_two_that_save_under_one_name_do_not_name_what_is_half_written() -> None:
    disk = saved(b"of last week")
    first = BackupDraft(disk, FILE, backup_label(label(7, 3)), overwrite=True)
    first.append(CONTENTS)
    second = BackupDraft(disk, FILE, backup_label(label(9, 3)), overwrite=True)
    second.append(CONTENTS[:100])
    with pytest.raises(SnapshotExists, match="saved by another"):
        first.publish()
    first.discard()
    assert read_all(disk) == b"of last week"
    second.append(CONTENTS[100:])
    second.publish()
    assert read_all(disk) == CONTENTS
