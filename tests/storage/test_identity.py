"""Whose directory it is: locks, mismatches, damage and amnesia (S04, S21, S55, S56, S57)."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.raft.core.errors import (
    DirectoryLocked,
    DirectoryMismatch,
    StorageCorrupt,
    StorageError,
    StorageFormatUnknown,
    StorageFull,
)
from fencepost.storage import statefiles
from fencepost.storage.disk import RealDisk
from fencepost.storage.identity import DataDirectory
from fencepost.storage.reader import load_identity, read_log

from .faulty_disk import FaultyDisk
from .world import FIRST, ROOT, entries, open_directory, opened, recover

STATE_FILES = ("identity", "boot", "instances", "log/manifest")


def used_directory() -> FaultyDisk:
    disk = FaultyDisk()
    with opened(disk) as log:
        log.write(entries(1, 2))
        log.directory.remember_instance("n2", "aa")
    return disk


def test_a_new_directory_knows_who_it_is() -> None:
    disk = FaultyDisk()
    directory = open_directory(disk)
    assert (directory.cluster_id, directory.incarnation, directory.node_id) == ("c1", 1, "n1")
    assert directory.voters == ("n1", "n2", "n3")
    assert len(bytes.fromhex(directory.instance_id)) == 16
    directory.close()
    directory.close()


def test_two_directories_are_two_instances(tmp_path: Path) -> None:
    """S21: a wiped disk comes back as somebody else."""
    instances = set()
    for name in ("a", "b"):
        directory = DataDirectory.open(tmp_path / name, cluster_id="c1", node_id="n1", voters=("n1",))
        instances.add(directory.instance_id)
        directory.close()
    assert len(instances) == 2


def test_s57_another_nodes_directory_is_refused_naming_both() -> None:
    disk = used_directory()
    before = {name: disk.read(ROOT / name) for name in STATE_FILES}
    with pytest.raises(DirectoryMismatch, match="belongs to node n1 and was opened as node n2"):
        open_directory(disk, node_id="n2")
    with pytest.raises(DirectoryMismatch, match="belongs to cluster c1 and was opened for cluster c2"):
        open_directory(disk, cluster_id="c2")
    assert {name: disk.read(ROOT / name) for name in STATE_FILES} == before
    open_directory(disk).close()


def test_s57_the_voters_of_formatting_stay() -> None:
    disk = used_directory()
    directory = DataDirectory.open(ROOT, cluster_id="c1", node_id="n1", voters=("n1", "n9"), disk=disk)
    assert directory.voters == ("n1", "n2", "n3")
    directory.close()


def test_s56_a_directory_with_foreign_files_is_refused_and_left_alone() -> None:
    disk = FaultyDisk()
    disk.make_directory(ROOT.parent)
    disk.make_directory(ROOT)
    disk.open(ROOT / "thesis.tex", create=True).close()
    with pytest.raises(DirectoryMismatch, match=r"it holds thesis\.tex"):
        open_directory(disk)
    assert disk.list_directory(ROOT) == ["thesis.tex"]


def test_a_fresh_file_system_counts_as_empty() -> None:
    disk = FaultyDisk()
    disk.make_directory(ROOT.parent)
    disk.make_directory(ROOT)
    disk.make_directory(ROOT / "lost+found")
    open_directory(disk).close()


@pytest.mark.parametrize("name", STATE_FILES)
def test_s04_a_missing_state_file_over_data_is_refused(name: str) -> None:
    disk = used_directory()
    disk.unlink(ROOT / name)
    with pytest.raises(StorageCorrupt, match="missing"):
        recover(disk)
    assert disk.read(ROOT / FIRST)


def test_s04_a_missing_log_is_refused() -> None:
    disk = used_directory()
    disk.unlink(ROOT / "log")
    with pytest.raises(StorageCorrupt, match="missing"):
        recover(disk)


@pytest.mark.parametrize("name", STATE_FILES)
def test_every_bit_flip_of_a_state_file_is_refused(name: str) -> None:
    disk = used_directory()
    whole = disk.read(ROOT / name)
    for position in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << bit
            image = disk.after_kill()
            image.poke(ROOT / name, bytes(flipped))
            with pytest.raises((StorageCorrupt, StorageFormatUnknown), match=name):
                recover(image)


@pytest.mark.parametrize("name", STATE_FILES)
def test_every_truncation_of_a_state_file_is_refused(name: str) -> None:
    disk = used_directory()
    whole = disk.read(ROOT / name)
    for change in (*(whole[:size] for size in range(len(whole))), whole + b"\0"):
        image = disk.after_kill()
        image.poke(ROOT / name, change)
        with pytest.raises(StorageCorrupt, match=name):
            recover(image)


def test_a_state_file_under_another_name_is_refused() -> None:
    disk = used_directory()
    disk.poke(ROOT / "boot", disk.read(ROOT / "instances"))
    with pytest.raises(StorageCorrupt, match="boot"):
        open_directory(disk)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"cluster_id": 1, "incarnation": 1, "node_id": "n1", "instance_id": "00" * 16, "voters": ["n1"]},
        {"cluster_id": "c1", "incarnation": 1, "node_id": "n1", "instance_id": "zz", "voters": ["n1"]},
        {"cluster_id": "c1", "incarnation": 1, "node_id": "n1", "instance_id": "00", "voters": ["n1"]},
        {"cluster_id": "c1", "incarnation": "x", "node_id": "n1", "instance_id": "00" * 16, "voters": ["n1"]},
        {"cluster_id": "c1", "incarnation": 1, "node_id": "n1", "instance_id": "00" * 16, "voters": 7},
    ],
)
def test_an_identity_of_another_shape_is_refused(body: dict[str, object]) -> None:
    disk = used_directory()
    disk.poke(ROOT / "identity", statefiles.encode_state("identity", body))
    with pytest.raises(StorageCorrupt, match="identity"):
        open_directory(disk)


@pytest.mark.parametrize(("name", "body"), [("boot", {"boot": -1}), ("boot", {}), ("instances", {"n2": 7})])
def test_other_state_of_another_shape_is_refused(name: str, body: dict[str, object]) -> None:
    disk = used_directory()
    disk.poke(ROOT / name, statefiles.encode_state(name, body))
    with pytest.raises(StorageCorrupt, match=name):
        open_directory(disk)


@pytest.mark.parametrize("name", [*STATE_FILES, FIRST])
def test_s55_a_newer_format_is_refused_before_anything_is_touched(name: str) -> None:
    disk = used_directory()
    data = disk.read(ROOT / name)
    known = int.from_bytes(data[8:10], "big")
    disk.poke(ROOT / name, data[:8] + (known + 1).to_bytes(2, "big") + b"laid out otherwise")
    before = disk.read(ROOT / FIRST)
    with pytest.raises(StorageFormatUnknown, match=f"format {known + 1} and this program reads up to {known}"):
        recover(disk)
    assert disk.read(ROOT / FIRST) == before


def test_s21_a_peer_with_another_instance_is_refused() -> None:
    disk = used_directory()
    directory = open_directory(disk)
    directory.remember_instance("n2", "aa")
    with pytest.raises(DirectoryMismatch, match="node n2 has been known as instance aa and now comes as bb"):
        directory.remember_instance("n2", "bb")
    assert directory.known_instances() == {"n2": "aa"}
    directory.known_instances()["n2"] = "cc"
    assert directory.known_instances() == {"n2": "aa"}
    directory.close()


def test_s21_an_instance_that_could_not_be_saved_is_not_remembered() -> None:
    disk = used_directory()
    directory = open_directory(disk)
    disk.fail("write", 1, errno.ENOSPC)
    with pytest.raises(StorageFull):
        directory.remember_instance("n3", "bb")
    assert directory.known_instances() == {"n2": "aa"}
    directory.close()


def test_another_process_is_kept_out_and_named(tmp_path: Path) -> None:
    """flock, held by a process that a kill -9 frees it from."""
    root = tmp_path / "n1"
    program = (
        "import sys\n"
        "from fencepost.storage.identity import DataDirectory\n"
        f"directory = DataDirectory.open({str(root)!r}, cluster_id='c1', node_id='n1', voters=('n1',))\n"
        "sys.stderr.write('open\\n'); sys.stderr.flush(); sys.stdin.read()\n"
    )
    source = Path(__file__).parents[2] / "src"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    ) as holder:
        try:
            assert holder.stderr is not None
            assert holder.stderr.readline() == "open\n"
            with pytest.raises(DirectoryLocked, match=rf"\(process {holder.pid}\)") as refusal:
                open_directory(RealDisk(), root)
            assert refusal.value.next_step
        finally:
            holder.kill()
    open_directory(RealDisk(), root).close()


def test_a_refused_directory_is_not_left_locked() -> None:
    disk = used_directory()
    with pytest.raises(DirectoryMismatch):
        open_directory(disk, node_id="n2")
    assert not disk.locked


def test_a_folder_above_that_may_not_be_read_is_no_hindrance() -> None:
    disk = used_directory()
    disk.fail("sync_directory", 1, errno.EACCES)
    open_directory(disk).close()


def test_a_file_in_the_place_of_the_directory_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "n1").write_text("")
    with pytest.raises(StorageError, match="n1"):
        open_directory(RealDisk(), tmp_path / "n1")


def test_reading_a_folder_that_is_none_of_ours(tmp_path: Path) -> None:
    with pytest.raises(DirectoryMismatch, match="no data directory"):
        read_log(tmp_path)


async def test_identity_for_a_coroutine(tmp_path: Path) -> None:
    directory = open_directory(RealDisk(), tmp_path / "n1")
    identity = await load_identity(tmp_path / "n1")
    assert identity.instance_id == directory.instance_id
    assert identity.voters == ("n1", "n2", "n3")
    directory.close()
    with pytest.raises(DirectoryMismatch):
        await load_identity(tmp_path)
