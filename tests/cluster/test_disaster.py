"""Real processes after a restore and after a forced recovery: what is left of the old cluster is refused, by the
nodes and by what is protected."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable

import pytest

from fencepost.cli.local_cluster import LocalCluster, until
from fencepost.raft.core.errors import FencepostError
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.resources.audit import read_ledger

from .support import FAST, LEDGER, NODES, credit, endpoints, fencepost, read_table

pytestmark = pytest.mark.servers

PATIENT = """
[raft]
election_timeout = "3s"
heartbeat = "50ms"
"""
SHARED = FAST + LEDGER.replace('"ledger.db"', '"../ledger.db"')
"""Two clusters in folders beside each other have one ledger."""


@pytest.mark.parametrize("nodes", [("n1",), pytest.param(NODES, marks=pytest.mark.endure)], ids=len)
async def test_the_old_leader_that_runs_on_after_a_restore_is_refused_at_the_resource(
    make_cluster: Callable[..., LocalCluster], nodes: tuple[str, ...]
) -> None:
    """Nobody has told the old cluster. Its leader has a majority, leads, and takes commands; the ledger refuses it."""
    old = make_cluster(nodes=nodes, definitions=SHARED)
    ledger = old.folder.parent / "ledger.db"
    old.start()
    before = await old.ready()
    async with old.client() as client:
        for number in range(5):
            assert (await client.submit(credit(f"before-{number}", lane="a"))).state == "succeeded"
        saved = await fencepost(
            "snapshot", "save", "saved.snapshot", "--endpoints", endpoints(old), "-o", "json", cwd=ledger.parent
        )
        assert saved.code == 0, saved.stderr
        assert saved.document()["incarnation"] == 1
        # The file does not have it, and the ledger does.
        assert (await client.submit(credit("between", lane="a"))).state == "succeeded"

    new = make_cluster(nodes=["n1"], definitions=SHARED, cluster_id=old.cluster_id)
    restored = await fencepost(
        "snapshot", "restore", "saved.snapshot", str(new.data_path("n1")), "--node", "n1",
        "--nodes", f"n1={new.peers['n1']}", "-o", "json", cwd=ledger.parent,
    )  # fmt: skip
    assert restored.code == 0, restored.stderr
    assert restored.document()["incarnation"] == 2
    new.start()
    leader = await new.ready()
    async with new.client() as client:
        assert (await client.submit(credit("after", lane="a"))).state == "succeeded"
        # Lost from the log, known to the ledger: done once.
        again = await client.submit(credit("between", lane="a"))
        assert again.state == "succeeded"
    still = await old.leader()
    assert (still["node_id"], still["term"], still["incarnation"]) == (before["node_id"], before["term"], 1)

    async with old.client(timeout_s=2.0) as client:
        with pytest.raises(FencepostError):
            await client.submit(credit("late", lane="a"))
    await old.stop()
    await new.stop()

    found = read_ledger(ledger)
    [refused, *_] = [row for row in found.refusals if row.token == FencingToken(1, int(before["term"]))]
    assert refused.holder.startswith(f"{before['node_id']}/")
    assert [fence.token for fence in found.fences] == [FencingToken(2, int(leader["term"]))]
    rows = [row[0] for row in read_table(ledger, "entries")]
    assert rows == [*(f"before-{number}" for number in range(5)), "between", "after"]


async def test_a_node_goes_on_alone_and_others_join_it_again(make_cluster: Callable[..., LocalCluster]) -> None:
    survivor, kept = "n1", "n2"
    cluster = make_cluster(nodes=[survivor, kept])
    cluster.start()
    status = await cluster.ready()
    async with cluster.client() as client:
        for number in range(5):
            assert (await client.submit(credit(f"before-{number}"))).state == "succeeded"
    await cluster.caught_up(int((await cluster.leader())["commit_index"]))
    cluster.kill(survivor, kept)

    done = await fencepost(
        "cluster", "recover", "--unsafe", "--data-dir", survivor, "--yes", "-o", "json", cwd=cluster.folder
    )
    assert done.code == 0, done.stderr
    assert done.document()["incarnation"] == 2
    # The other directory was not lost after all, and somebody starts it. And of two nodes that are to join, the
    # file of the first lacks the incarnation.
    cluster.prepare("n4")
    address = cluster.prepare("n5", incarnation=2)
    cluster.start(survivor, kept, "n4", "n5")
    leader = await cluster.ready()
    assert (leader["node_id"], leader["incarnation"], leader["voters"]) == (survivor, 2, [survivor])
    assert int(leader["term"]) > int(status["term"])

    async def told() -> bool:
        lines = [cluster.log_lines(node) for node in (kept, "n4")]
        return all(any("is of incarnation" in str(line.get("reason")) for line in each) for each in lines)

    await until(told, within_s=20, what="the reason in the logs of the nodes of the old incarnation")
    added = await fencepost(
        "member", "add", "n5", address, "--endpoints", cluster.endpoints[survivor], cwd=cluster.folder
    )
    assert added.code == 0, added.stderr
    async with cluster.client() as client:
        assert (await client.submit(credit("after"))).state == "succeeded"
        repeated = await client.submit(credit("before-3"))
        assert (repeated.state, repeated.replayed) == ("succeeded", True)
    await cluster.stop(survivor, "n5")
    rows = [row[0] for row in read_table(cluster.folder / "ledger.db", "entries")]
    assert rows == [*(f"before-{number}" for number in range(5)), "after"]


async def test_a_second_process_over_a_copy_of_a_directory_is_refused_s57(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    # Patient, for a term that changes shall be due to the copy and not to a busy machine.
    cluster = make_cluster(nodes=["n1", "n2"], definitions=PATIENT + LEDGER)
    cluster.start()
    await cluster.ready()
    await cluster.stop("n2")
    shutil.copytree(cluster.data_path("n2"), cluster.folder / "copy")
    cluster.start("n2")
    await cluster.ready()
    leader = await cluster.leader()
    await cluster.caught_up(int(leader["commit_index"]))

    # The same node once more, on another machine as it were: other addresses, a copy of the directory.
    other = make_cluster(nodes=["n2"])
    text = (cluster.folder / "n2.toml").read_text()
    for mine, theirs in ((cluster.peers["n2"], other.peers["n2"]), (cluster.endpoints["n2"], other.endpoints["n2"])):
        text = text.replace(mine, theirs)
    (other.folder / "n2.toml").write_text(text.replace('data_dir = "n2"', f'data_dir = "{cluster.folder / "copy"}"'))
    other.start("n2")

    async def refused() -> bool:
        told = [str(line.get("reason")) for line in other.log_lines("n2")]
        alarms = cluster.log_lines("n1")
        return any("copies of one data directory" in reason for reason in told) and any(
            line["event"] == "directory_copied" and line["level"] == "error" for line in alarms
        )

    await until(refused, within_s=20, what="an alarm about the copy")
    async with cluster.client() as client:
        assert (await client.submit(credit("on"))).state == "succeeded"
    after = await cluster.leader()
    assert (after["node_id"], after["term"]) == (leader["node_id"], leader["term"])
    await asyncio.gather(other.stop(), cluster.stop())
