"""``member config``: a new node's file, made from one that is there and from what the cluster knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.cli.commands.member_file import shared_tables
from fencepost.cli.config_file import load
from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.errors import ConfigurationError

from .fake_cluster import FakeCluster
from .running import run, run_json
from .test_config import GOOD, LEDGER

SHARED = (
    "# how patient we are\n[raft]\nheartbeat = '50ms'  # a comment\n\n" + LEDGER + "\n# [resources.later]\n# kind = 1\n"
)


def like(tmp_path: Path, text: str = GOOD + SHARED) -> Path:
    path = tmp_path / "n1.toml"
    path.write_text(text)
    return path


def config(cluster: FakeCluster, tmp_path: Path, *more: str, node: str = "n4") -> tuple[str, ...]:
    words = ("member", "config", node, "127.0.0.1:7004", "--like", str(tmp_path / "n1.toml"))
    out = () if "--out" in more else ("--out", str(tmp_path / f"{node}.toml"))
    return (*words, *out, *more, "--endpoints", cluster.endpoints)


def test_the_file_is_that_of_the_other_node_but_for_what_is_its_own(cluster: FakeCluster, tmp_path: Path) -> None:
    other = load(like(tmp_path))
    result = run(*config(cluster, tmp_path))
    assert result.exit_code == 0, result.stderr
    path = tmp_path / "n4.toml"
    assert result.stdout.splitlines() == [
        f"wrote {path}. Start the node, then add it:",
        f"  fencepost node start --config {path}",
        "  fencepost member add n4 127.0.0.1:7004",
    ]
    assert result.stderr == ""
    found = load(path)
    assert (found.cluster.id, found.cluster.join, found.voters) == ("c1", True, ())
    assert (
        "voters              none: it waits to be added to its cluster" in run("node", "check-config", str(path)).stdout
    )
    assert (found.node.id, found.node.peer, found.node.client) == ("n4", "127.0.0.1:7004", "127.0.0.1:7104")
    assert found.node.data_dir == tmp_path / "n4"
    assert (found.raft, found.resources) == (other.raft, other.resources)
    assert path.read_text().endswith("\n" + SHARED), "as it stands, comments included"


def test_the_peers_are_those_of_the_cluster_and_not_of_the_file_s57(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.members.configuration = Configuration(("n1", "n2", "n5"), addresses=(("n5", "10.0.0.5:7001"),))
    like(tmp_path)
    _, body = run_json(*config(cluster, tmp_path, "--client", "127.0.0.1:8000"))
    assert (body["kind"], body["node"], body["file"]) == ("MemberConfig", "n4", str(tmp_path / "n4.toml"))
    found = load(tmp_path / "n4.toml")
    assert found.peers == {"n1": "127.0.0.1:7001", "n2": "127.0.0.1:7002", "n5": "10.0.0.5:7001"}
    assert found.node.client == "127.0.0.1:8000"


def test_nothing_is_overwritten_and_nobody_gets_a_file_twice(cluster: FakeCluster, tmp_path: Path) -> None:
    like(tmp_path)
    (tmp_path / "n4.toml").write_text("mine")
    result = run(*config(cluster, tmp_path))
    assert (result.exit_code, "exists; nothing was written" in result.stderr) == (2, True)
    assert (tmp_path / "n4.toml").read_text() == "mine"
    result = run(*config(cluster, tmp_path, node="n3"))
    assert (result.exit_code, "n3 is a member already; nothing was written" in result.stderr) == (2, True)
    for address in ("127.0.0.1:7002", "127.0.0.1:7004"):
        result = run(*config(cluster, tmp_path, "--client", address, "--out", str(tmp_path / "n6.toml"), node="n6"))
        assert (result.exit_code, address in result.stderr) == (2, True)
    assert not (tmp_path / "n6.toml").exists()


def test_a_path_that_leads_elsewhere_is_said(cluster: FakeCluster, tmp_path: Path) -> None:
    """Every node has to reach the same database; a relative path counts from the file."""
    like(tmp_path)
    result = run(*config(cluster, tmp_path, "--out", str(tmp_path / "elsewhere" / "n4.toml")))
    assert result.exit_code == 0
    assert f"warning: resource ledger of the new node is at {tmp_path}/elsewhere/ledger.db" in result.stderr
    assert f"that of the others at {tmp_path}/ledger.db" in result.stderr


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        (GOOD, ""),
        ("[raft]\nheartbeat = '50ms'\n" + GOOD, "\n[raft]\nheartbeat = '50ms'\n"),
        (GOOD + "\n[ resources . ledger ]\npath = 'x'\n", "\n[ resources . ledger ]\npath = 'x'\n"),
        (GOOD + "[resources.x]\nsql = '''\n[peers]\n'''\n", None),
        (GOOD.replace("[peers]", "x = {}\n[peers]"), ""),
        ("limits = {}\n" + GOOD, None),
    ],
)
def test_what_is_taken_over(tmp_path: Path, text: str, shared: str | None) -> None:
    path = like(tmp_path, text)
    if shared is None:
        with pytest.raises(ConfigurationError, match="cannot tell the tables of this node from the others"):
            shared_tables(path)
    else:
        assert shared_tables(path) == shared
