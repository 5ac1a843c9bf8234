"""Members are changed, and in the middle of each change the leader is killed (S24, S25)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.cli.local_cluster import LocalCluster, until
from fencepost.raft.core.errors import FencepostError
from fencepost.transport.client import Client

from .support import FAST, LEDGER, Load, audit, endless
from .test_members import SMALL

pytestmark = pytest.mark.servers

ROUNDS = 4


async def members(client: Client) -> dict[str, str]:
    """What each member is, by a leader that a majority has confirmed."""
    listed = await client.call("member.list", {}, leader=True, timeout_s=30)
    assert not listed["configuration"]["joint"]
    return {row["node"]: row["part"] for row in listed["members"]}


async def killed_meanwhile(cluster: LocalCluster, client: Client, load: Load, answers: int, *change: Any) -> None:
    """Ask for a change, kill the leader ``answers`` answers to other commands later, and start it again."""
    leader = (await cluster.ready())["node_id"]
    method, parameters = change
    asked = asyncio.ensure_future(
        client.call(method, {**parameters, "timeout_s": 10.0}, leader=True, timeout_s=12.0, idempotent=False)
    )
    await load.answered(len(load.answers) + answers)
    cluster.kill(leader)
    # Done, refused or unknown: it has an end, and what became of it is asked of the cluster.
    await asyncio.gather(asked, return_exceptions=True)
    assert asked.exception() is None or isinstance(asked.exception(), FencepostError), asked.exception()
    cluster.start(leader)
    await cluster.ready()


async def finish(client: Client, part: str | None, method: str, node: str) -> None:
    """Ask for what is left of a change until ``node`` is ``part`` of the cluster."""

    async def look() -> bool:
        if (await members(client)).get(node) == part:
            return True
        try:
            await client.call(method, {"node": node, "timeout_s": 5.0}, leader=True, timeout_s=6.0, idempotent=False)
        except FencepostError:
            return False
        return (await members(client)).get(node) == part

    await until(look, within_s=60, what=f"{method} {node}")


@pytest.mark.endure
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_change_comes_to_an_end_whoever_is_killed_meanwhile_s24_s25(
    make_cluster: Callable[..., LocalCluster], seed: int
) -> None:
    chance = random.Random(seed)
    cluster = make_cluster(definitions=FAST + SMALL + LEDGER)
    first = cluster.nodes
    # All at once, so that the client is told of them all: in the end none of the first is left.
    addresses = {f"m{number}": cluster.prepare(f"m{number}") for number in range(ROUNDS)}
    cluster.start(*first)
    await cluster.ready()
    async with cluster.client(timeout_s=60) as client:
        async with Load(client, endless()) as load:
            await load.answered(200)
            for new, address in addresses.items():
                cluster.start(new)
                add = {"node": new, "address": address}
                await killed_meanwhile(cluster, client, load, chance.randrange(30), "member.add", add)
                if new not in await members(client):
                    await client.call("member.add", add, leader=True, timeout_s=40, idempotent=False)
                await finish(client, "voter", "member.promote", new)
                leader = (await cluster.ready())["node_id"]
                gone = chance.choice([node for node in sorted(await members(client)) if node != leader])
                await killed_meanwhile(cluster, client, load, chance.randrange(4), "member.remove", {"node": gone})
                await finish(client, None, "member.remove", gone)
                await cluster.stop(gone)
                await load.answered(len(load.answers) + 20)
            voters = sorted(await members(client))
        errors = {name: error for name, error in load.errors.items() if error.code != "OUTCOME_UNKNOWN"}
    assert len(voters) == 3
    await cluster.caught_up(int((await cluster.ready())["commit_index"]), *voters)
    for node, status in (await cluster.statuses()).items():
        assert sorted(status["voters"]) == voters, f"{node} knows other voters"
        assert not status["joint"]
    await cluster.stop()
    found = audit(cluster, load.answers, voters=voters)
    assert (found.problems, errors) == ([], {})
