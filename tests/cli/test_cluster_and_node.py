"""``cluster init``, ``node check-config`` and ``node start``."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest

import fencepost.cli.process
from fencepost.cli.client_settings import resolve
from fencepost.cli.config import NodeConfiguration
from fencepost.raft.core.errors import StorageFull
from fencepost.storage.identity import DataDirectory

from .running import run, run_json
from .test_config import GOOD, LEDGER


def test_node_start_runs_the_node_and_takes_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "n1.toml").write_text(GOOD)
    started: list[NodeConfiguration] = []

    async def run_node(configuration: NodeConfiguration) -> int:
        started.append(configuration)
        if configuration.node.log_level == "error":
            raise StorageFull("no room")
        return 8

    monkeypatch.setattr(fencepost.cli.process, "run_node", run_node)
    config = ("node", "start", "--config", f"{tmp_path}/n1.toml")
    assert run(*config, "--set", "raft.heartbeat=20ms").exit_code == 8
    assert started[0].raft.heartbeat_ns == 20_000_000
    result = run(*config, "--set", "node.log_level=error")
    assert (result.exit_code, "error STORAGE_FULL: no room" in result.stderr) == (1, True)
    assert run("node", "start", FENCEPOST_CONFIG=f"{tmp_path}/n1.toml").exit_code == 8


def test_check_config(tmp_path: Path) -> None:
    path = tmp_path / "n1.toml"
    path.write_text(GOOD + LEDGER)
    result = run("node", "check-config", str(path))
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, f"{path}: ok")
    assert "credit.sql: not checked, because no schema is declared (no such table: entries)" in result.stderr
    schema = 'schema = "CREATE TABLE entries(account, cents)"\npath ='
    path.write_text(GOOD + LEDGER.replace("path =", schema))
    result = run("node", "check-config", str(path))
    assert result.exit_code == 2
    assert "resources.ledger.schema: table entries already exists (it is run at every start" in result.stderr
    path.write_text(GOOD + LEDGER.replace("path =", schema.replace("TABLE", "TABLE IF NOT EXISTS")))
    code, body = run_json("node", "check-config", str(path))
    assert (code, body["voters"], body["resources"]["ledger"]["effects"]) == (0, ["n1", "n2", "n3"], ["credit"])
    path.write_text(path.read_text().replace("INSERT INTO entries", "INSERT INTO entry"))
    assert "credit.sql: no such table: entry" in run("node", "check-config", str(path)).stderr
    assert "n1.toml:11: x: unknown section" in _check(path, GOOD + "[x]\n")


def _check(path: Path, text: str) -> str:
    path.write_text(text)
    return run("node", "check-config", str(path)).stderr


def test_cluster_init_writes_what_node_start_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = "n1=127.0.0.1:7001,n2=127.0.0.1:7002,n3.eu=[::1]:7003"
    result = run("cluster", "init", "--nodes", nodes, "--out", "my cluster")
    assert result.exit_code == 0
    starts = [line.strip() for line in result.stdout.splitlines() if "node start" in line]
    assert starts[0] == "fencepost node start --config 'my cluster/n1.toml'"
    ids = set()
    for line in starts:
        code, body = run_json("node", "check-config", shlex.split(line)[-1])
        assert (code, body["voters"]) == (0, ["n1", "n2", "n3.eu"])
        ids.add(body["cluster"])
    assert len(ids) == 1
    found = resolve({}, {}, tmp_path / "my cluster")
    assert (found.endpoints, {found.cluster_id}) == (("127.0.0.1:7101", "127.0.0.1:7102", "[::1]:7103"), ids)
    before = {path: path.read_bytes() for path in (tmp_path / "my cluster").iterdir()}
    result = run("cluster", "init", "--nodes", nodes, "--out", "my cluster")
    assert (result.exit_code, "exist; nothing was written" in result.stderr) == (2, True)
    assert {path: path.read_bytes() for path in (tmp_path / "my cluster").iterdir()} == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD, "holds 'cluster', 'node', 'peers' beside 'resources'"),
        ("path = 'x.db'\n", "holds 'path' beside 'resources'"),
        ("[resources.x\n", "is not TOML"),
    ],
)
def test_cluster_init_takes_resources_and_nothing_else(tmp_path: Path, text: str, says: str) -> None:
    """A node's own file was taken and made files that no node could read."""
    (tmp_path / "resources.toml").write_text(text)
    init = ("cluster", "init", "--nodes", "n1=127.0.0.1:7001", "--out", str(tmp_path / "out"))
    result = run(*init, "--resources", str(tmp_path / "resources.toml"))
    assert result.exit_code == 2
    assert says in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_cluster_init_refuses_an_address_that_nobody_can_dial(tmp_path: Path, host: str) -> None:
    result = run("cluster", "init", "--nodes", f"n1={host}:7001", "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert f"n1={host}:7001: the other nodes cannot dial that" in result.stderr


def test_cluster_init_names_each_bad_node(tmp_path: Path) -> None:
    nodes = "n1=127.0.0.1:7001,n1=127.0.0.1:1,n2=127.0.0.1:7101,n3=x,,n4=h:65500,fencepost=h:1"
    result = run("cluster", "init", "--nodes", nodes, "--out", f"{tmp_path}/c")
    assert result.exit_code == 2
    assert [line.strip() for line in result.stderr.splitlines()[1:]] == [
        "n1=127.0.0.1:1: the id is taken",
        "n2=127.0.0.1:7101: 127.0.0.1:7101 is already an address of n1",
        'n3=x: "x" is not an address such as "127.0.0.1:7001" or "[::1]:7001"',
        "(empty): write ID=HOST:PORT",
        "n4=h:65500: port '65600' of \"h:65600\" is not a number from 1 to 65535",
        "fencepost=h:1: the id would name the client file",
    ]
    assert not (tmp_path / "c").exists()


def test_check_config_knows_whose_directory_it_is_s57(tmp_path: Path) -> None:
    """S57: the file names a directory that another node has made. Said before anything is started."""
    path = tmp_path / "n1.toml"
    path.write_text(GOOD)
    mine = tomllib.loads(GOOD)
    directory = tmp_path / mine["node"]["data_dir"]
    cluster_id, node_id = mine["cluster"]["id"], mine["node"]["id"]
    DataDirectory.open(directory, cluster_id=cluster_id, node_id=node_id, voters=("n1", "n2", "n3")).close()
    assert run("node", "check-config", str(path)).exit_code == 0
    result = run("node", "check-config", str(path), "--set", "cluster.id=other")
    assert result.exit_code == 2
    assert f"belongs to node {node_id} of cluster {cluster_id}" in result.stderr
    assert f"this file is of node {node_id} of cluster other" in result.stderr
    (directory / "identity").write_bytes(b"nothing of ours")
    assert "node.data_dir: " in run("node", "check-config", str(path)).stderr
