"""SIGTERM ends a node by itself, soon, whatever is connected or under way (S45, S49)."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable

import pytest

from fencepost.cli.local_cluster import LocalCluster, until
from fencepost.raft.core.errors import FencepostError
from fencepost.raft.outbox.operation import OperationState

from .support import FAST, LEDGER, Load, audit, credit, unfinished

pytestmark = pytest.mark.servers

ENDS_WITHIN_S = 5.0
"""The promise."""
HARD_DEADLINE_S = 15.0
"""The sum of the bounds of every stage of a stop, for what cannot be waited for."""


async def test_sigterm_with_idle_peers_and_clients_s45(make_cluster: Callable[..., LocalCluster]) -> None:
    cluster = make_cluster()
    cluster.start()
    await cluster.ready()
    async with cluster.client() as client:
        await client.submit(credit("one"))
        await client.call_all("status", {})
        # A connection that never says anything, and one in the middle of a frame.
        idle = [await asyncio.open_connection("127.0.0.1", port) for port in _ports(cluster) for _ in range(2)]
        for _, writer in idle[::2]:
            writer.write(b"FP")
        for node in cluster.nodes:
            began = time.monotonic()
            assert await cluster.stop(node) == {node: 0}
            assert time.monotonic() - began < ENDS_WITHIN_S
        for _, writer in idle:
            writer.close()


def _ports(cluster: LocalCluster) -> list[int]:
    addresses = [*cluster.endpoints.values(), *cluster.peers.values()]
    return [int(address.rpartition(":")[2]) for address in addresses]


async def test_sigterm_during_start_up_s45(make_cluster: Callable[..., LocalCluster]) -> None:
    """At once, while Python still loads, and as soon as the node has said its first word. Afterwards the
    directory is as good as before."""
    cluster = make_cluster()
    cluster.start("n1")
    await cluster.stop("n1", within_s=ENDS_WITHIN_S)
    for node in ("n1", "n2", "n3"):
        cluster.start(node)

        async def spoke(node: str = node) -> bool:
            return bool(cluster.log_path(node).read_bytes())

        await until(spoke, within_s=20, what=f"the first line of {node}'s log")
        (code,) = (await cluster.stop(node, within_s=ENDS_WITHIN_S)).values()
        # By itself, or by the signal before there was anything to close (143 to a shell).
        assert code in (0, 128 + signal.SIGTERM, -signal.SIGTERM)
    cluster.start()
    await cluster.ready()
    assert set((await cluster.stop()).values()) == {0}


async def test_effects_under_way_end_before_leadership_does_s49(make_cluster: Callable[..., LocalCluster]) -> None:
    cluster = make_cluster()
    cluster.start()
    async with cluster.client(timeout_s=60) as client:
        leader = (await cluster.ready())["node_id"]
        async with Load(client, [credit(f"op-{n}", "paced") for n in range(600)]) as load:
            await load.answered(100)
            # One that takes its time: between two short ones there is a moment with nothing under way.
            slow = asyncio.ensure_future(client.submit(credit("slow", "slow")))

            async def under_way() -> bool:
                try:
                    found = await client.call("command.get", {"id": "slow"}, endpoint=cluster.endpoints[leader])
                except FencepostError:
                    return False
                return bool(found["state"] == OperationState.DISPATCHED)

            await until(under_way, within_s=20, what="the slow effect under way")
            assert await cluster.stop(leader) == {leader: 0}
            await load.finished()
            await slow
    assert not load.errors
    cluster.start(leader)
    await cluster.caught_up(int((await cluster.ready())["commit_index"]))
    await cluster.stop()
    found = audit(cluster, load.answers)
    assert found.problems == []
    assert unfinished(found.machine) == []
    # Nothing was left to be done again: every effect had its outcome committed before the leader went.
    assert {operation.lost for operation in found.machine.operations.values()} == {0}


async def test_an_effect_that_never_ends_does_not_hold_the_stop_s45(make_cluster: Callable[..., LocalCluster]) -> None:
    """Its outcome is the fence's business; the process ends by its hard deadline."""
    cluster = make_cluster(definitions=FAST + LEDGER)
    cluster.start()
    leader = (await cluster.ready())["node_id"]
    async with cluster.client() as client:
        answer = asyncio.ensure_future(client.submit(credit("endless", "endless"), timeout_s=60))

        async def under_way() -> bool:
            status = await cluster.status(leader)
            return status is not None and status["resources"]["ledger"]["in_flight"] == 1

        await until(under_way, within_s=20, what="the effect under way")
        cluster.signal(signal.SIGTERM, leader)
        assert await cluster.exit_code(leader, within_s=HARD_DEADLINE_S) == 0
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)
