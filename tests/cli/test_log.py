"""``log verify|tail|get``: entries by content, damage by place, and nothing changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import Entry, EntryKind, HardState, Snapshot
from fencepost.raft.core.events import Persist
from fencepost.raft.core.token import FencingToken
from fencepost.raft.outbox.codec import Election, StageSeconds, encode
from fencepost.storage.identity import DataDirectory
from fencepost.storage.log_store import FileLogStore
from fencepost.storage.snapshots import FileSnapshotStore

from ..damage import flipped
from .directories import COMMITTED, START_NS, make_directory
from .fake_cluster import FakeCluster
from .running import error_of, run, run_json, start

FIRST = "log/0000000000000001.log"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_directory(tmp_path / "n1")
    return tmp_path


# -- verify -----------------------------------------------------------------------------------------


def test_a_sound_directory_is_described(folder: Path) -> None:
    before = {path: path.read_bytes() for path in (folder / "n1").rglob("*") if path.is_file()}
    code, body = run_json("log", "verify", "n1")
    assert code == 0
    assert (body["verified"], body["cluster_id"], body["node"], body["incarnation"]) == (True, "c1", "n1", 1)
    assert (body["first_index"], body["last_index"], body["last_term"], body["commit_index"]) == (1, 6, 3, COMMITTED)
    assert (body["term"], body["voted_for"], body["boot"], body["torn_bytes"]) == (3, "n1", 1, 0)
    assert {path: path.read_bytes() for path in (folder / "n1").rglob("*") if path.is_file()} == before


def test_damage_is_named_by_file_offset_and_index(folder: Path) -> None:
    path = folder / "n1" / FIRST
    data = bytearray(path.read_bytes())
    data[600] ^= 1  # In the record of the entries, with a seal behind it.
    path.write_bytes(bytes(data))
    result = run("log", "verify", "n1", "-o", "json")
    error = error_of(result)
    assert (result.exit_code, error["code"]) == (8, "STORAGE_CORRUPT")
    assert f"{path} is damaged at offset 512, log index 1" in error["message"]


@pytest.mark.parametrize("name", ["identity", "boot", "instances", "log/manifest"])
def test_damage_of_a_small_file_is_found_too(folder: Path, name: str) -> None:
    path = folder / "n1" / name
    path.write_bytes(flipped(path.read_bytes(), -1))
    result = run("log", "verify", "n1", "-o", "json")
    assert (result.exit_code, str(path) in error_of(result)["message"]) == (8, True)


def test_a_directory_that_is_none_and_one_that_is_halfway(folder: Path) -> None:
    assert "DIRECTORY_MISMATCH" in run("log", "verify", ".").stderr
    (folder / "n1" / "recovering").write_bytes(b"")
    assert "DIRECTORY_UNFINISHED" in run("log", "verify", "n1").stderr


def test_the_directory_may_be_in_use(folder: Path) -> None:
    directory = DataDirectory.open(folder / "n1", cluster_id="c1", node_id="n1", voters=("n1",))
    try:
        assert run("log", "verify", "n1").exit_code == 0
        assert run("log", "tail", "--data-dir", "n1").exit_code == 0
        assert run("log", "get", "1", "--data-dir", "n1").exit_code == 0
    finally:
        directory.close()


# -- tail and get -----------------------------------------------------------------------------------


def test_entries_are_shown_by_content(folder: Path) -> None:
    lines = [
        line.split(None, 3) for line in run("log", "tail", "--data-dir", "n1", "--time", "iso").stdout.splitlines()
    ]
    assert [line[0] for line in lines] == ["INDEX", "1", "2", "3", "4", "5", "6?"]
    assert [line[3].split(None, 2)[-1] for line in lines[1:]] == [
        "no-op: a leader begins its term",
        "activation ledger 1.3 by n1/a/1",
        "command order-1: ledger credit lane alice",
        "dispatch ledger 1.3: 3/1",
        "outcome ledger 1.3: 3/1 succeeded",
        "command order-2: ledger credit",
    ]
    assert {line[2] for line in lines[1:]} == {"2025-10-09T08:53:20.000Z"}


def test_the_last_ones_are_shown(folder: Path) -> None:
    code, body = run_json("log", "tail", "-n", "2", "--data-dir", "n1")
    assert code == 0
    assert [(row["index"], row["committed"]) for row in body["items"]] == [(5, True), (6, None)]
    assert run_json("log", "tail", "-n", "0", "--data-dir", "n1")[1]["items"] == []


def test_a_node_is_asked_for_what_is_committed(cluster: FakeCluster) -> None:
    """It gives pages of two."""
    code, body = run_json("log", "tail", "-n", "4", "--endpoints", cluster.endpoints)
    assert code == 0
    assert [(row["index"], row["committed"]) for row in body["items"]] == [(index, True) for index in (2, 3, 4, 5)]


def test_one_entry_with_all_that_is_in_it(folder: Path, cluster: FakeCluster) -> None:
    for where in (("--data-dir", "n1"), ("--endpoints", cluster.endpoints)):
        code, body = run_json("log", "get", "3", *where)
        assert code == 0
        assert (body["kind"], body["entry_kind"], body["term"], body["time_ns"]) == ("Entry", "outbox", 3, START_NS + 3)
        assert body["content"] == {
            "type": "command", "id": "order-1", "resource": "ledger", "effect": "credit", "lane": "alice",
            "payload": {"cents": 5},
        }  # fmt: skip
        result = run("log", "get", "3", *where)
        assert 'payload    {"cents": 5}' in result.stdout
        assert run("log", "get", "9", *where).exit_code == 7


def test_an_entry_that_is_not_known_to_be_committed_says_so(folder: Path) -> None:
    assert "committed  not known" in run("log", "get", "6", "--data-dir", "n1").stdout


@pytest.mark.parametrize(
    ("kind", "data", "content"),
    [
        (EntryKind.CONFIGURATION, b"voters n1 n2\nlearners n3", "configuration: voters n1 n2, learners n3"),
        (EntryKind.EMBEDDED, b"\xff\xfe", "embedded, 2 bytes"),
        (
            EntryKind.OUTBOX,
            encode(Election("n1", FencingToken(1, 3), [StageSeconds("elect", 0.25), StageSeconds("fence", 0.5)])),
            "election of n1 1.3, 0.750 s",
        ),
        (EntryKind.OUTBOX, b"\x07\x01", "unknown: outbox entry of format 7 and type 1, which this version does not"),
        (EntryKind.CONFIGURATION, b"witnesses n9", "unknown: a configuration in the log that this version cannot"),
        (77, b"", "unknown: entries of kind 77 are of a newer version"),
    ],
)
def test_every_kind_of_entry_is_shown_and_unknown_ones_are_no_error(
    tmp_path: Path, kind: int, data: bytes, content: str
) -> None:
    make_directory(tmp_path / "n2", [Entry(1, 1, int(kind), START_NS, data)], node_id="n2", commit_index=1)
    result = run("log", "tail", "--data-dir", str(tmp_path / "n2"))
    assert (result.exit_code, content in result.stdout) == (0, True), result.stdout


def test_what_was_given_up_is_said(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path / "n1", cluster_id="c1", node_id="n1", voters=("n1",))
    store, _ = FileLogStore.open(directory)
    store.start_stepped(lambda sequence: None, lambda error: None)
    snapshots = FileSnapshotStore.open(directory)
    label = snapshots.write(Snapshot(40, 2, START_NS, Configuration(("n1",)), 0), [b"state"])
    store.append(Persist(1, HardState(2, ""), 0, [], 0, label))
    store.step()
    store.close()
    directory.close()
    result = run("log", "get", "7", "--data-dir", str(tmp_path / "n1"))
    assert (result.exit_code, "a snapshot holds what it did; the first one that is left is 41" in result.stderr) == (
        7, True,
    )  # fmt: skip
    assert "none, it goes on behind 40" in run("log", "verify", str(tmp_path / "n1")).stdout


def test_following_shows_what_comes(folder: Path) -> None:
    process = start("log", "tail", "--data-dir", "n1", "-n", "1", "--follow", "-o", "jsonl", cwd=folder)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["index"] == 6
        directory = DataDirectory.open(folder / "n1", cluster_id="c1", node_id="n1", voters=("n1",))
        store, _ = FileLogStore.open(directory)
        store.start_stepped(lambda sequence: None, lambda error: None)
        store.append(Persist(1, HardState(4, ""), 6, [Entry(6, 4, 0, START_NS + 9, b"")], 0))
        store.step()
        store.close()
        directory.close()
        row = json.loads(process.stdout.readline())
        assert (row["index"], row["term"], row["entry_kind"]) == (6, 4, "no-op")
    finally:
        process.terminate()
        process.communicate(timeout=20)
    assert process.returncode == 143
