"""A node needs a large snapshot: nobody misses the leader meanwhile (S36)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from fencepost.cli.local_cluster import LocalCluster, until
from fencepost.raft.outbox.codec import Command
from fencepost.raft.ports import Wait

from .support import LEDGER, Load, audit, endless
from .test_drain import elections, missed

pytestmark = pytest.mark.servers

HEARTBEAT_S = 0.2
LARGE = """
[raft]
election_timeout = "2s"
heartbeat = "200ms"
[snapshots]
payload = "32MiB"
retained = 10
"""
STATE_BYTES = 128 << 20
PAYLOAD_BYTES = 200_000


def heavy(number: int) -> Command:
    payload = json.dumps({"cents": 1, "weight": "x" * PAYLOAD_BYTES}).encode()
    return Command(f"heavy-{number}", "ledger", "credit", "", payload)


class Heartbeats:
    """How old the newest answer of each follower gets, seconds, as its leader knows it."""

    def __init__(self, cluster: LocalCluster, leader: str) -> None:
        self.oldest: dict[str, float] = {}
        self.sent: dict[str, int] = {}
        """Bytes of a snapshot that a follower was seen to have, at the most."""
        self._cluster = cluster
        self._leader = leader

    async def look(self) -> None:
        status = await self._cluster.call(self._leader, "status")
        away = set()
        for peer, link in status["peers"].items():
            if link.get("snapshot"):
                self.sent[peer] = max(self.sent.get(peer, 0), link["snapshot"]["received_bytes"])
            if not link["replicating"] and not self.sent.get(peer):
                away.add(peer)  # It was stopped, and has not answered since.
        listed = await self._cluster.call(self._leader, "member.list", {"consistency": "stale"})
        for row in listed["members"]:
            if row["last_contact_s"] is not None and row["node"] not in away:
                self.oldest[row["node"]] = max(self.oldest.get(row["node"], 0.0), row["last_contact_s"])

    async def watch(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(HEARTBEAT_S / 10)


@pytest.mark.endure
async def test_a_large_snapshot_costs_no_heartbeat_s36(make_cluster: Callable[..., LocalCluster]) -> None:
    cluster = make_cluster(definitions=LARGE + LEDGER)
    cluster.start()
    first = await cluster.ready()
    leader, before = first["node_id"], len(missed(cluster))
    late, steady = sorted(node for node in cluster.nodes if node != leader)
    await cluster.stop(late)
    async with cluster.client(timeout_s=120) as client:
        async with Load(client, map(heavy, range(STATE_BYTES // PAYLOAD_BYTES)), wait=Wait.DONE, window=16) as load:
            await load.finished(within_s=300)
        assert load.errors == {}

        async def compacted() -> bool:
            status = await cluster.status(leader)
            return status is not None and status["first_index"] > 200

        await until(compacted, within_s=60, what="a log that begins behind a large snapshot")
        heartbeats = Heartbeats(cluster, leader)
        watching = asyncio.create_task(heartbeats.watch())
        async with Load(client, endless("beside"), window=4) as beside:
            cluster.start(late)
            await cluster.caught_up(int((await cluster.ready())["commit_index"]), late, within_s=120)
            await beside.answered(len(beside.answers) + 20)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        last = await cluster.ready()
    lag_s = {node: status["longest_loop_lag_ms"] / 1e3 for node, status in (await cluster.statuses()).items()}
    print(f"oldest answers {heartbeats.oldest}, snapshot {heartbeats.sent}; loops late by {lag_s} s at the most")
    assert heartbeats.sent.get(late, 0) > STATE_BYTES // 4, heartbeats.sent
    assert (last["node_id"], last["term"]) == (leader, first["term"]), elections(cluster)
    assert len(missed(cluster)) == before
    assert heartbeats.oldest[steady] < 2 * HEARTBEAT_S, heartbeats.oldest
    # It catches up with large entries besides, and answers in their order; but it never stands still.
    assert heartbeats.oldest[late] < 5 * HEARTBEAT_S, heartbeats.oldest
    await cluster.caught_up(int(last["commit_index"]))
    await cluster.stop()
    assert beside.errors == {}
    found = audit(cluster, [*load.answers, *beside.answers])
    assert found.problems == []
