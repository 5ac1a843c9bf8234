"""A node, a directory and an address that do not belong together are told apart before anything
is touched (S38, S57)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.cli.local_cluster import LocalCluster, until
from fencepost.storage.reader import read_log

from .support import FAST, LEDGER, credit, endpoints, fencepost

pytestmark = pytest.mark.servers


def _files(folder: Path) -> dict[str, bytes]:
    """What a data directory holds; the note in the lock file may change."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "lock" not in path.name.lower()
    }


async def _refused(cluster: LocalCluster, node: str) -> str:
    """Start a node that must refuse: what it said, after its exit code 2."""
    cluster.log_path(node).unlink(missing_ok=True)
    cluster.start(node)
    assert await cluster.exit_code(node, within_s=15) == 2
    return cluster.log_path(node).read_text()


async def test_another_nodes_directory_is_refused_naming_both_s57(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster()
    cluster.start()
    await cluster.ready()
    await cluster.stop()
    shutil.rmtree(cluster.data_path("n2"))
    shutil.copytree(cluster.data_path("n1"), cluster.data_path("n2"))
    before = _files(cluster.data_path("n2"))

    said = await _refused(cluster, "n2")
    assert "DIRECTORY_OTHER_NODE" in said
    assert "n1" in said
    assert "n2" in said
    assert _files(cluster.data_path("n2")) == before


async def test_another_clusters_directory_is_refused_naming_both_s57(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    ours, theirs = make_cluster(nodes=["n1"]), make_cluster(nodes=["n1"])
    theirs.start()
    await theirs.ready()
    await theirs.stop()
    shutil.copytree(theirs.data_path("n1"), ours.data_path("n1"))
    before = _files(ours.data_path("n1"))

    said = await _refused(ours, "n1")
    assert "DIRECTORY_OTHER_CLUSTER" in said
    assert ours.cluster_id in said
    assert theirs.cluster_id in said
    assert _files(ours.data_path("n1")) == before


async def test_a_directory_with_something_else_in_it_is_left_alone_s56(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(nodes=["n1"])
    cluster.data_path("n1").mkdir()
    (cluster.data_path("n1") / "thesis.tex").write_text("mine")
    said = await _refused(cluster, "n1")
    assert "error" in said
    assert _files(cluster.data_path("n1")) == {"thesis.tex": b"mine"}


async def test_a_second_process_on_one_directory_is_refused_s57(make_cluster: Callable[..., LocalCluster]) -> None:
    cluster = make_cluster(nodes=["n1"])
    cluster.start()
    await cluster.ready()
    second = await fencepost("node", "start", "--config", str(cluster.folder / "n1.toml"))
    assert second.code == 2
    assert "DIRECTORY_LOCKED" in second.stderr
    assert str(cluster.processes["n1"].pid) in second.stderr, "it says who holds it"
    assert cluster.running() == ["n1"]
    async with cluster.client() as client:
        assert (await client.submit(credit("after"))).state == "succeeded"


async def test_another_clusters_node_at_a_peers_address_s38(
    make_cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    """The address of n3 was given to a node of another cluster. Nothing gets across, in either direction."""
    ours = make_cluster()
    theirs = LocalCluster(tmp_path / "theirs", definitions=FAST + LEDGER)
    async with theirs:
        theirs.start()
        leader = await theirs.ready()
        await theirs.caught_up(int(leader["commit_index"]))
        # Our n1 and n2 are told that n3 is where their n3 listens.
        for node in ("n1", "n2"):
            path = ours.folder / f"{node}.toml"
            text = path.read_text()
            assert ours.peers["n3"] in text
            path.write_text(text.replace(ours.peers["n3"], theirs.peers["n3"]))
        ours.start("n1", "n2")
        status = await ours.ready()
        async with ours.client() as client:
            assert (await client.submit(credit("ours"))).state == "succeeded"

        async def told() -> bool:
            current = await ours.status(status["node_id"])
            return current is not None and theirs.cluster_id in current["peers"]["n3"]["last_error"]

        await until(told, within_s=20, what="the reason in the status of our leader")
        after = await theirs.ready()
        assert (after["node_id"], after["term"]) == (leader["node_id"], leader["term"])
        # A client that was told the cluster's id is refused as well.
        refused = await fencepost(
            "submit", "ledger", "credit", '{"cents": 1}', "--endpoints", theirs.endpoints["n3"], "--timeout", "3s",
            cwd=ours.folder,
        )  # fmt: skip
        assert refused.code != 0
        assert "nothing was committed" in refused.stderr
        await theirs.stop()
        await ours.stop()
    for node in theirs.nodes:
        terms = {entry.term for entry in read_log(theirs.data_path(node)).entries}
        assert terms == {int(leader["term"])}
        assert all(b"ours" not in entry.data for entry in read_log(theirs.data_path(node)).entries)


async def test_a_changed_address_is_accepted_s57(make_cluster: Callable[..., LocalCluster]) -> None:
    """Addresses are configuration; identity is the directory's."""
    cluster = make_cluster()
    cluster.start()
    await cluster.ready()
    await cluster.stop()
    other = make_cluster()  # Only for addresses that are free.
    for node in cluster.nodes:
        path = cluster.folder / f"{node}.toml"
        text = path.read_text()
        for name in cluster.nodes:
            text = text.replace(cluster.peers[name], other.peers[name])
            text = text.replace(cluster.endpoints[name], other.endpoints[name])
        path.write_text(text)
    cluster.start()
    ready = await fencepost("wait", "--for", "ready", "--endpoints", endpoints(other), cwd=cluster.folder.parent)
    assert ready.code == 0, ready.stderr


async def test_an_address_that_is_taken_is_named(make_cluster: Callable[..., LocalCluster]) -> None:
    cluster = make_cluster(nodes=["n1"])
    other = make_cluster(nodes=["n1"])
    cluster.start()
    await cluster.ready()
    path = other.folder / "n1.toml"
    path.write_text(path.read_text().replace(other.peers["n1"], cluster.peers["n1"]))
    said = await _refused(other, "n1")
    assert cluster.peers["n1"] in said
