"""One part of a node breaks or hangs: it must end loudly or lose its authority, never go on as if well.

The faults are planted into the node's process when a file appears beside its configuration.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from fencepost.cli.local_cluster import LocalCluster, Status, node_command, until
from fencepost.raft.core.errors import FencepostError
from fencepost.raft.outbox.codec import Command

from .support import Load, audit, credit, unfinished

pytestmark = pytest.mark.servers

PLANTED = """
import sys, time
MARKER = sys.argv[-1] + ".fault"
def planted(name):
    try:
        with open(MARKER) as file:
            return file.read() == name
    except OSError:
        return False
def before(owner, method, act):
    original = getattr(owner, method)
    def patched(*arguments, **named):
        act()
        return original(*arguments, **named)
    setattr(owner, method, patched)
def raises(owner, method, name):
    def act():
        if planted(name):
            raise RuntimeError("planted into " + name)
    before(owner, method, act)
"""

RAISING = """
from fencepost.raft.effects.dispatcher import Dispatcher
from fencepost.raft.node.applier import Applier
from fencepost.raft.node.service import ClientService
from fencepost.storage.log_store import FileLogStore
from fencepost.transport.peer_link import PeerLink
raises(Applier, "apply", "apply")
raises(FileLogStore, "_collect", "log writer")
raises(Dispatcher, "pump", "dispatcher")
raises(Dispatcher, "_executed", "completion of an effect")
raises(PeerLink, "_dial", "peer sender")
raises(ClientService, "submit", "client port")
"""

HANGING_DISK = """
from fencepost.storage.disk import RealFile
def hang():
    while planted("disk"):
        time.sleep(0.02)
before(RealFile, "sync_data", hang)
"""

BLOCKED_LOOP = """
from fencepost.raft.node.queries import NodeQueries
methods = NodeQueries.methods
def with_a_blocking_one(self):
    def block(parameters):
        time.sleep(parameters["seconds"])
        return {}
    return {**methods(self), "test.block": block}
NodeQueries.methods = with_a_blocking_one
"""


def plant(cluster: LocalCluster, node: str, fault: str) -> None:
    marker = cluster.folder / f"{node}.toml.fault"
    if fault:
        marker.write_text(fault)
    else:
        marker.unlink(missing_ok=True)


async def test_a_part_that_raises_takes_the_node_down_s41(make_cluster: Callable[..., LocalCluster]) -> None:
    cluster = make_cluster(nodes=["n1"], command=node_command(PLANTED + RAISING))
    cluster.start()
    parts = ["apply", "log writer", "dispatcher", "completion of an effect"]
    async with cluster.client() as client:
        for part in parts:
            await cluster.ready()
            plant(cluster, "n1", part)
            answer = asyncio.ensure_future(client.submit(credit(part), timeout_s=60))
            assert await cluster.exit_code("n1", within_s=10) == 1, part
            failed = [line for line in cluster.log_lines("n1") if line["event"] == "node failed"]
            assert f"planted into {part}" in failed[-1]["error"]
            # The file decides what exists: with the fault gone the command is executed, once.
            plant(cluster, "n1", "")
            cluster.start()
            assert (await answer).state == "succeeded", part
    await cluster.stop()
    found = audit(cluster, parts)
    assert found.problems == []
    assert unfinished(found.machine) == []


async def test_a_peer_sender_that_raises_takes_the_node_down_s41(make_cluster: Callable[..., LocalCluster]) -> None:
    cluster = make_cluster(command=node_command(PLANTED + RAISING))
    cluster.start()
    leader = (await cluster.ready())["node_id"]
    broken, other = (node for node in cluster.nodes if node != leader)
    plant(cluster, broken, "peer sender")
    cluster.kill(other)  # So that the sender to it has to dial again.
    assert await cluster.exit_code(broken, within_s=10) == 1
    lines = cluster.log_lines(broken)
    assert [line for line in lines if line["event"] == "node failed" and "planted into peer sender" in line["error"]]


async def test_a_request_that_raises_is_not_swallowed_s41(make_cluster: Callable[..., LocalCluster]) -> None:
    """The node ends, or that connection alone does; the client hears of it within its deadline either way."""
    cluster = make_cluster(nodes=["n1"], command=node_command(PLANTED + RAISING))
    cluster.start()
    await cluster.ready()
    async with cluster.client() as client:
        plant(cluster, "n1", "client port")
        with pytest.raises(FencepostError):
            await client.submit(credit("during"), timeout_s=2)
        assert any("planted into client port" in str(line) for line in cluster.log_lines("n1"))
        plant(cluster, "n1", "")
        if not cluster.running():
            cluster.start()
        await cluster.ready()
        assert (await client.submit(credit("during"))).state == "succeeded"


async def test_a_hung_disk_costs_the_leadership_and_holds_no_stop_s07_s45(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(command=node_command(PLANTED + HANGING_DISK))
    cluster.start()
    leader = (await cluster.ready())["node_id"]
    async with cluster.client(timeout_s=60) as client:
        async with Load(client, [credit(f"op-{n}", "paced") for n in range(300)]) as load:
            await load.answered(50)
            plant(cluster, leader, "disk")
            # It is connected and answers, and still it must not lead any longer.
            successor = await cluster.ready(besides=[leader], within_s=20)
            status = await cluster.status(leader)
            assert status is not None
            assert status["role"] != "leader"
            assert status["resources"]["ledger"]["in_flight"] == 0
            await load.finished()
        assert not load.errors
    # A thread that hangs at the disk holds up neither the stop nor, once it works again, the next start.
    await cluster.stop(leader, within_s=15)
    plant(cluster, leader, "")
    cluster.start(leader)
    await cluster.caught_up(int(successor["commit_index"]))
    await cluster.stop()
    found = audit(cluster, load.answers)
    assert found.problems == []
    assert unfinished(found.machine) == []


async def test_a_blocked_loop_costs_the_leadership_and_acts_no_more_s40(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(command=node_command(PLANTED + BLOCKED_LOOP))
    cluster.start()
    leader = await cluster.ready()
    node = leader["node_id"]
    blocked_s = 2.5
    async with cluster.client(timeout_s=60) as client, Load(client, _paced(400)) as load:
        await load.answered(50)
        began = time.monotonic()
        block = asyncio.ensure_future(
            client.call("test.block", {"seconds": blocked_s}, endpoint=cluster.endpoints[node], timeout_s=30)
        )
        successor = await cluster.ready(besides=[node])
        assert int(successor["term"]) > int(leader["term"])
        # It wakes, and has to confirm its authority before anything else: it has none.
        await asyncio.gather(block, return_exceptions=True)

        async def awake() -> Status | None:
            status = await cluster.status(node)
            return status if status is not None and status["role"] == "follower" and status["leader"] else None

        status = await until(awake, within_s=20, what="the blocked node as a follower")
        assert time.monotonic() - began >= blocked_s, "it was to be replaced while it was blocked"
        assert status["longest_loop_lag_ms"] > blocked_s * 900
        await load.finished()
        assert not load.errors
    await cluster.caught_up(int((await cluster.ready())["commit_index"]))
    await cluster.stop()
    found = audit(cluster, load.answers)
    assert found.problems == []
    assert unfinished(found.machine) == []


def _paced(count: int) -> list[Command]:
    return [credit(f"op-{n}", "paced") for n in range(count)]
