"""``snapshot save|inspect|restore``: what they write, what they say, and what they refuse."""

from __future__ import annotations

import shlex
from pathlib import Path

import google_crc32c
import pytest

from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.outbox.codec import Command, encode
from fencepost.storage.backup_files import backup_contents, encode_backup_header, read_backup
from fencepost.storage.checking import check_directory
from fencepost.storage.disk import RealDisk

from ..damage import flipped
from .directories import COMMITTED, START_NS, contents_of_entries, make_backup, make_directory, outbox_entries
from .fake_cluster import CLUSTER, FakeCluster
from .running import error_of, run, run_json


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def backup(folder: Path) -> Path:
    return make_backup(folder / "b.snapshot", make_directory(folder / "n1")).path


def contents(path: Path) -> bytes:
    return b"".join(backup_contents(RealDisk(), read_backup(RealDisk(), path)))


# -- save -------------------------------------------------------------------------------------------


def test_the_leader_is_asked_and_all_parts_are_taken(folder: Path, cluster: FakeCluster) -> None:
    code, body = run_json("snapshot", "save", "a.snapshot", "--endpoints", cluster.endpoints)
    assert code == 0
    assert (body["cluster_id"], body["incarnation"], body["node"], body["index"]) == (CLUSTER, 1, "n2", COMMITTED)
    assert body["configuration"]["voters"] == ["n1", "n2", "n3"]
    assert contents(folder / "a.snapshot") == b"".join(contents_of_entries())
    assert cluster.sessions_ended == ["of-n2"]
    assert sorted(path.name for path in folder.iterdir()) == ["a.snapshot"]


def test_another_node_may_be_asked(folder: Path, cluster: FakeCluster) -> None:
    source = cluster.addresses["n3"]
    code, body = run_json("snapshot", "save", "a.snapshot", "--endpoints", cluster.endpoints, "--from", source)
    assert (code, body["node"]) == (0, "n3")


def test_a_file_that_is_there_is_replaced_only_by_force(folder: Path, cluster: FakeCluster) -> None:
    (folder / "a.snapshot").write_text("mine")
    save = ("snapshot", "save", "a.snapshot", "--endpoints", cluster.endpoints)
    result = run(*save)
    assert (result.exit_code, "SNAPSHOT_EXISTS" in result.stderr) == (6, True)
    assert (folder / "a.snapshot").read_text() == "mine"
    assert run(*save, "--force").exit_code == 0
    assert contents(folder / "a.snapshot") == b"".join(contents_of_entries())


def test_a_cluster_without_a_leader_gives_nothing(folder: Path) -> None:
    with FakeCluster(leader="") as cluster:
        result = run("snapshot", "save", "a.snapshot", "--endpoints", cluster.endpoints, "--timeout", "300ms")
    assert (result.exit_code, "NO_LEADER" in result.stderr) == (4, True)
    assert list(folder.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(folder: Path, cluster: FakeCluster) -> None:
    result = run("snapshot", "save", "away/a.snapshot", "--endpoints", cluster.endpoints)
    assert (result.exit_code, f"{folder}/away" in result.stderr) == (1, True)


def test_a_stopped_node_is_read_up_to_what_it_knew_to_be_committed(folder: Path) -> None:
    make_directory(folder / "n1")
    before = {path: path.read_bytes() for path in (folder / "n1").rglob("*") if path.is_file()}
    result = run("snapshot", "save", "a.snapshot", "--data-dir", "n1")
    assert result.exit_code == 0
    assert "goes on to index 6; what is behind index 5 was not known to be committed" in result.stderr
    assert contents(folder / "a.snapshot") == b"".join(contents_of_entries())
    assert {path: path.read_bytes() for path in (folder / "n1").rglob("*") if path.is_file()} == before


def test_what_can_be_no_source_is_refused(folder: Path) -> None:
    result = run("snapshot", "save", "a.snapshot", "--data-dir", ".")
    assert (result.exit_code, "DIRECTORY_MISMATCH" in result.stderr) == (2, True)
    make_directory(folder / "n1", commit_index=0)
    result = run("snapshot", "save", "a.snapshot", "--data-dir", "n1")
    assert (result.exit_code, "nothing is known to be committed" in result.stderr) == (7, True)
    result = run("snapshot", "save", "a.snapshot", "--data-dir", "n1", "--from", "127.0.0.1:1")
    assert (result.exit_code, "two ways" in result.stderr) == (2, True)
    assert not (folder / "a.snapshot").exists()


# -- inspect ----------------------------------------------------------------------------------------


def test_inspect_shows_whose_it_is_and_what_is_in_it(backup: Path) -> None:
    code, body = run_json("snapshot", "inspect", str(backup))
    assert code == 0
    assert body["commands"] == {"ledger": {"succeeded": 1}}
    assert (body["verified"], body["cluster_id"], body["index"], body["term"]) == (True, "c1", COMMITTED, 3)
    assert (body["time_ns"], body["size_bytes"]) == (START_NS + COMMITTED, len(b"".join(contents_of_entries())))
    table = run("snapshot", "inspect", str(backup)).stdout
    assert "commands of ledger  1 succeeded" in table
    assert "members             n1 n2 n3" in table


def test_a_snapshot_without_commands_says_so(folder: Path) -> None:
    make_backup(folder / "b.snapshot", make_directory(folder / "n1", outbox_entries()[:1], commit_index=1))
    assert "no commands are in it" in run("snapshot", "inspect", "b.snapshot").stdout


@pytest.mark.parametrize(
    ("change", "code", "exit_code"),
    [
        (lambda data: flipped(data, -1), "SNAPSHOT_DAMAGED", 8),
        (lambda data: data[:-1], "SNAPSHOT_DAMAGED", 8),
        (lambda data: flipped(data, 40), "SNAPSHOT_DAMAGED", 8),
        (lambda data: b"SQLite format 3\0" + data, "SNAPSHOT_FOREIGN", 2),
        (lambda data: b"", "SNAPSHOT_FOREIGN", 2),
        (lambda data: data[:8] + b"\0\7" + data[10:], "STORAGE_FORMAT_UNKNOWN", 2),
    ],
)
@pytest.mark.parametrize("command", ["inspect", "restore"])
def test_a_file_that_is_not_sound_is_refused(
    backup: Path, folder: Path, command: str, change: object, code: str, exit_code: int
) -> None:
    assert callable(change)
    backup.write_bytes(change(backup.read_bytes()))
    more = ("new", "--node", "n1") if command == "restore" else ()
    result = run("snapshot", command, "b.snapshot", *more, "-o", "json")
    assert (result.exit_code, error_of(result)["code"]) == (exit_code, code)
    assert not (folder / "new" / "identity").exists()


def test_a_file_that_is_not_there(folder: Path) -> None:
    result = run("snapshot", "inspect", "b.snapshot")
    assert (result.exit_code, "NOT_FOUND" in result.stderr) == (7, True)


def test_contents_that_are_whole_and_no_state_are_refused(backup: Path) -> None:
    """What the checksum cannot see: a sealed file whose contents nobody can read."""
    label = read_backup(RealDisk(), backup).label
    snapshot = label.snapshot._replace(size_bytes=5, checksum=google_crc32c.value(b"12345"))
    backup.write_bytes(encode_backup_header(label._replace(snapshot=snapshot)) + b"12345")
    result = run("snapshot", "inspect", str(backup), "-o", "json")
    assert (result.exit_code, error_of(result)["code"]) == (8, "STORAGE_CORRUPT")


# -- restore ----------------------------------------------------------------------------------------


def test_every_node_of_a_restored_cluster_ends_alike(backup: Path, folder: Path) -> None:
    nodes = "n1=127.0.0.1:7001,n9=127.0.0.1:7009"
    code, body = run_json("snapshot", "restore", "b.snapshot", "one", "--node", "n1", "--nodes", nodes)
    assert code == 0
    assert body["incarnation"] == 2
    following = shlex.split(body["next"][0].replace("DIR-of-n9", "nine"))
    assert following[0] == "fencepost"
    assert run(*following[1:]).exit_code == 0
    one, nine = check_directory(folder / "one"), check_directory(folder / "nine")
    assert one.snapshot == nine.snapshot is not None
    expected = Configuration(("n1", "n9"), addresses=(("n1", "127.0.0.1:7001"), ("n9", "127.0.0.1:7009")))
    assert one.snapshot is not None
    assert one.snapshot.configuration == expected
    for made, node in ((one, "n1"), (nine, "n9")):
        assert (made.identity.incarnation, made.identity.node_id) == (2, node)
        assert (made.identity.cluster_id, made.identity.voters) == ("c1", ("n1", "n9"))


def test_a_restore_over_something_is_refused(backup: Path, folder: Path) -> None:
    for where in ("n1", "."):
        result = run("snapshot", "restore", "b.snapshot", where, "--node", "n1", "-o", "json")
        assert (result.exit_code, error_of(result)["code"]) == (2, "DIRECTORY_OCCUPIED")
    assert check_directory(folder / "n1").identity.incarnation == 1


def test_the_incarnation_may_be_given_and_never_falls(backup: Path, folder: Path) -> None:
    assert run("snapshot", "restore", "b.snapshot", "a", "--node", "n1", "--incarnation", "5").exit_code == 0
    assert check_directory(folder / "a").identity.incarnation == 5
    assert run("snapshot", "save", "again.snapshot", "--data-dir", "a").exit_code == 0
    result = run("snapshot", "restore", "again.snapshot", "b", "--node", "n1", "--incarnation", "5")
    assert (result.exit_code, "is not above that of the file, 5" in result.stderr) == (2, True)
    code, body = run_json("snapshot", "restore", "again.snapshot", "c", "--node", "n1")
    assert (code, body["incarnation"]) == (0, 6)


def test_a_node_that_is_no_member_is_refused(backup: Path, folder: Path) -> None:
    result = run("snapshot", "restore", "b.snapshot", "new", "--node", "n7")
    assert (result.exit_code, "n7 is none of the nodes of the restored cluster, n1, n2, n3" in result.stderr) == (
        2,
        True,
    )
    assert not (folder / "new").exists()


def test_a_snapshot_of_an_entry_that_this_version_cannot_apply_is_not_saved(folder: Path) -> None:
    """S55: the state without it would be another state."""
    rows = [*outbox_entries()[:2], Entry(3, 3, int(EntryKind.OUTBOX), START_NS + 3, b"\x09\x09")]
    make_directory(folder / "n1", rows, commit_index=3)
    result = run("snapshot", "save", "a.snapshot", "--data-dir", "n1", "-o", "json")
    assert error_of(result)["code"] == "UNKNOWN_ENTRY"
    assert not (folder / "a.snapshot").exists()


def test_a_configuration_in_the_log_is_the_one_of_the_snapshot(folder: Path) -> None:
    rows = [
        *outbox_entries()[:2],
        Entry(3, 3, int(EntryKind.CONFIGURATION), START_NS + 3, b"voters n1 n2"),
        Entry(4, 3, int(EntryKind.OUTBOX), START_NS + 4, encode(Command("o", "ledger", "credit", "", b"{}"))),
        Entry(5, 3, int(EntryKind.CONFIGURATION), START_NS + 5, b"voters n1"),
    ]
    make_directory(folder / "n1", rows, commit_index=4)
    code, body = run_json("snapshot", "save", "a.snapshot", "--data-dir", "n1")
    assert (code, body["configuration"]["voters"], body["configuration_index"]) == (0, ["n1", "n2"], 3)
