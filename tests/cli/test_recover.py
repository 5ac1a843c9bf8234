"""``cluster recover --unsafe``: what it says, what it asks, and what it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.storage.checking import check_directory
from fencepost.storage.forcing import look
from fencepost.storage.identity import DataDirectory

from .directories import START_NS, make_directory, outbox_entries
from .running import error_of, run, run_json

RECOVER = ("cluster", "recover", "--unsafe", "--data-dir", "n1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_directory(tmp_path / "n1")
    return tmp_path


def files(path: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("cluster", "recover", "--data-dir", "n1", "--yes"), "--unsafe has to be given; nothing was changed"),
        (RECOVER, "this has to be confirmed; nothing was changed"),
        ((*RECOVER, "--nodes", "n2"), "--nodes is wrong"),
    ],
)
def test_nothing_is_done_unasked(folder: Path, arguments: tuple[str, ...], says: str) -> None:
    before = files(folder / "n1")
    result = run(*arguments)
    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr
    assert files(folder / "n1") == before


def test_a_dry_run_says_what_may_be_lost_and_changes_nothing(folder: Path) -> None:
    before = files(folder / "n1")
    code, body = run_json(*RECOVER, "--dry-run")
    assert code == 0
    assert (body["dry_run"], body["previous_incarnation"], body["incarnation"]) == (True, 1, 2)
    assert (body["commit_index"], body["last_index"], body["last_term"]) == (5, 6, 3)
    said = " ".join(body["warnings"])
    assert "what only n2, n3 had, everything behind index 6 is lost, acknowledged commands among it" in said
    assert "entry 6 was not known to be committed on n1 and will be" in said
    assert "nodes of incarnation 1 are refused for good" in said
    assert files(folder / "n1") == before


def test_the_node_goes_on_alone(folder: Path) -> None:
    result = run(*RECOVER, "--yes")
    assert result.exit_code == 0
    assert "acknowledged commands among it" in result.stderr, "it is said, asked or not"
    found = check_directory(folder / "n1")
    assert (found.identity.incarnation, found.identity.voters, found.log.last_index) == (2, ("n1",), 7)
    assert look(folder / "n1").configuration == Configuration(("n1",))


def test_the_cluster_id_has_to_be_typed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.cli.commands.recover._is_terminal", lambda: True)
    wrong = run(*RECOVER, input="c2\n")
    assert (wrong.exit_code, "that is not the cluster's id; nothing was changed" in wrong.stderr) == (2, True)
    assert check_directory(folder / "n1").identity.incarnation == 1
    assert run(*RECOVER, input="c1\n").exit_code == 0
    assert check_directory(folder / "n1").identity.incarnation == 2


def test_others_may_follow_as_learners(folder: Path) -> None:
    nodes = "n1=127.0.0.1:7001,n2=127.0.0.1:7002"
    result = run(*RECOVER, "--yes", "--nodes", nodes)
    assert (result.exit_code, "fencepost member promote n2" in result.stdout) == (0, True)
    assert look(folder / "n1").configuration == Configuration(
        ("n1",), learners=("n2",), addresses=(("n1", "127.0.0.1:7001"), ("n2", "127.0.0.1:7002"))
    )


def test_a_running_node_is_left_alone(folder: Path) -> None:
    directory = DataDirectory.open(folder / "n1", cluster_id="c1", node_id="n1", voters=("n1",))
    try:
        result = run(*RECOVER, "--yes", "-o", "json")
        assert (result.exit_code, error_of(result)["code"]) == (2, "DIRECTORY_LOCKED")
    finally:
        directory.close()
    assert check_directory(folder / "n1").identity.incarnation == 1


def test_the_incarnation_may_be_given_and_never_falls(folder: Path) -> None:
    assert run(*RECOVER, "--yes", "--incarnation", "7").exit_code == 0
    assert check_directory(folder / "n1").identity.incarnation == 7
    result = run(*RECOVER, "--yes", "--incarnation", "7")
    assert (result.exit_code, "is not above that of the directory, 7" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("configuration", "says"),
    [
        (b"voters n1", "n1 is the only voter and needs nobody else"),
        (b"voters n2 n3\nlearners n1", "n1 was no voter: prefer a node that was one"),
    ],
)
def test_it_warns_where_another_way_is_better(folder: Path, configuration: bytes, says: str) -> None:
    rows = [*outbox_entries()[:2], Entry(3, 3, int(EntryKind.CONFIGURATION), START_NS + 3, configuration)]
    make_directory(folder / "other", rows, commit_index=3)
    result = run("cluster", "recover", "--unsafe", "--data-dir", "other", "--dry-run")
    assert (result.exit_code, says in result.stdout) == (0, True), result.stdout
