"""Each way in which a directory can be the wrong one has a code of its own, and leaves it as it was (S21, S56, S57)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.raft.core.entry import HardState
from fencepost.raft.core.errors import StorageError
from fencepost.storage.formatting import RECOVERING, RESTORING
from fencepost.storage.identity import DataDirectory

from .crashes import contents
from .faulty_disk import FaultyDisk
from .saved import FILE, restore, save, with_folder
from .world import ROOT, entries, open_directory, opened


def used() -> FaultyDisk:
    disk = with_folder(FaultyDisk())
    with opened(disk) as log:
        log.wait(log.write(entries(1, 2), hard_state=HardState(1, "")))
    save(disk)
    return disk


def as_another_node(disk: FaultyDisk) -> None:
    open_directory(disk, node_id="n2")


def as_another_cluster(disk: FaultyDisk) -> None:
    open_directory(disk, cluster_id="c2")


def twice(disk: FaultyDisk) -> None:
    directory = open_directory(disk)
    try:
        open_directory(disk)
    finally:
        directory.close()


def without_its_identity(disk: FaultyDisk) -> None:
    disk.unlink(ROOT / "identity")
    open_directory(disk)


def over_foreign_files(disk: FaultyDisk) -> None:
    disk.open(FILE.parent / "thesis.tex", create=True).close()
    DataDirectory.open(FILE.parent, cluster_id="c1", node_id="n1", voters=("n1",), disk=disk)


def restored_over_data(disk: FaultyDisk) -> None:
    restore(disk)


def in_the_middle_of_a_restore(disk: FaultyDisk) -> None:
    disk.rename(ROOT / "identity", ROOT / RESTORING)
    open_directory(disk)


def in_the_middle_of_a_recovery(disk: FaultyDisk) -> None:
    disk.open(ROOT / RECOVERING, create=True).close()
    open_directory(disk)


def of_a_peer_that_came_back_as_another(disk: FaultyDisk) -> None:
    directory = open_directory(disk)
    try:
        directory.remember_instance("n2", "aa")
        directory.remember_instance("n2", "bb")
    finally:
        directory.close()


@pytest.mark.parametrize(
    ("act", "code", "exit_code"),
    [
        (as_another_node, "DIRECTORY_OTHER_NODE", 2),
        (as_another_cluster, "DIRECTORY_OTHER_CLUSTER", 2),
        (twice, "DIRECTORY_LOCKED", 2),
        (without_its_identity, "IDENTITY_MISSING", 8),
        (over_foreign_files, "DIRECTORY_OCCUPIED", 2),
        (restored_over_data, "DIRECTORY_OCCUPIED", 2),
        (in_the_middle_of_a_restore, "DIRECTORY_UNFINISHED", 2),
        (in_the_middle_of_a_recovery, "DIRECTORY_UNFINISHED", 2),
        (of_a_peer_that_came_back_as_another, "DIRECTORY_MISMATCH", 2),
    ],
)
def test_the_code_says_what_is_wrong(act: Callable[[FaultyDisk], None], code: str, exit_code: int) -> None:
    disk = used()
    with pytest.raises(StorageError) as caught:
        act(disk)
    assert (caught.value.code, caught.value.exit_code) == (code, exit_code)
    assert caught.value.next_step


@pytest.mark.parametrize("act", [as_another_node, as_another_cluster, restored_over_data])
def test_what_is_refused_is_left_as_it_was(act: Callable[[FaultyDisk], None]) -> None:
    disk = used()
    before = contents(disk.node(ROOT))
    with pytest.raises(StorageError):
        act(disk)
    assert contents(disk.node(ROOT)) == before
