"""kill -9 under load: nothing acknowledged is lost, nothing is executed twice, and it goes on."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable

import pytest

from fencepost.cli.local_cluster import LocalCluster
from fencepost.raft.outbox.codec import Command
from fencepost.raft.ports import Wait

from .support import LEDGER, Load, audit, credit, unfinished

pytestmark = pytest.mark.servers

GOES_ON_WITHIN_S = 3.0
"""The promise, with the default timeouts."""


async def _beside(other: Load, commands: list[Command]) -> AsyncIterator[Command]:
    """Spread commands over the time of another load."""
    for number, command in enumerate(commands):
        await other.answered(4 * number)
        yield command


async def _kill_under_load(cluster: LocalCluster, seed: int, submissions: int, kills: int) -> None:
    """Kill a node at seeded moments, the leader at least every other time, and restart it."""
    randomness = random.Random(seed)
    cluster.start()
    await cluster.ready()
    commands = [credit(f"done-{n}", "paced") for n in range(submissions - submissions // 5)]
    # Acknowledged at commit, before execution: what a dying leader has promised and not yet done.
    promised = [credit(f"committed-{n}", "paced") for n in range(submissions // 5)]
    share = len(commands) // (kills + 1)
    async with (
        cluster.client(timeout_s=60) as client,
        Load(client, commands) as done,
        Load(client, _beside(done, promised), wait=Wait.COMMITTED) as committed,
    ):
        for kill in range(kills):
            await done.answered(share * kill + randomness.randint(share // 10, share))
            leader = (await cluster.ready())["node_id"]
            others = [node for node in cluster.nodes if node != leader]
            victim = leader if kill % 2 == 0 else randomness.choice(others)
            cluster.kill(victim)
            await done.answered(len(done.answers) + 20)
            cluster.start(victim)
            status = await cluster.ready()
            await cluster.caught_up(int(status["commit_index"]))
        await done.finished()
        await committed.finished()
        async with Load(client, promised) as executed:  # The last of them may still have been waiting.
            await executed.finished()
    assert not executed.errors
    await cluster.stop()

    assert not done.errors
    assert not committed.errors
    assert {answer.state for answer in done.answers.values()} == {"succeeded"}
    assert {answer.state for answer in committed.answers.values()} <= {"committed", "dispatched", "succeeded"}
    found = audit(cluster, [*done.answers, *committed.answers])
    assert found.problems == []
    assert unfinished(found.machine) == []
    assert len(found.entries) == submissions
    assert max(done.longest_gap_s, committed.longest_gap_s) < GOES_ON_WITHIN_S


async def test_kill_any_node_during_5000_submissions_s05_s13_s50(make_cluster: Callable[..., LocalCluster]) -> None:
    await _kill_under_load(make_cluster(definitions=LEDGER), seed=1, submissions=5000, kills=3)


@pytest.mark.endure
@pytest.mark.parametrize("seed", range(2, 5))
async def test_kill_nodes_again_and_again(make_cluster: Callable[..., LocalCluster], seed: int) -> None:
    await _kill_under_load(make_cluster(definitions=LEDGER), seed=seed, submissions=20_000, kills=10)


async def _restart_all(cluster: LocalCluster, seed: int, rounds: int) -> None:
    """All nodes die at once in the middle of a load; two come back, then the third."""
    randomness = random.Random(seed)
    acknowledged: list[str] = []
    highest_term = 0
    cluster.start()
    for restart in range(rounds):
        status = await cluster.ready()
        assert int(status["term"]) > highest_term, "terms have restarted"
        commands = [credit(f"{restart}-{n}", "paced", lane=f"lane-{n % 7}") for n in range(20_000)]
        async with cluster.client(timeout_s=60) as client, Load(client, commands) as load:
            await load.answered(randomness.randint(50, 400))
            highest_term = max(int(each["term"]) for each in (await cluster.statuses()).values())
            cluster.kill_all()
            acknowledged += load.answers
            order = randomness.sample(cluster.nodes, 3)
            cluster.start(*order[:2])
            # The load goes on with the two that are back.
            seen = len(load.answers)
            await load.answered(seen + 50)
            status = await cluster.ready()
            assert int(status["term"]) > highest_term, "terms have restarted"
            cluster.start(order[2])
            await cluster.caught_up(int(status["commit_index"]))
            highest_term = max(int(each["term"]) for each in (await cluster.statuses()).values())
            acknowledged += load.answers
            cluster.kill_all()
        cluster.start()
    status = await cluster.ready()
    await cluster.caught_up(int(status["commit_index"]))
    await cluster.stop()
    found = audit(cluster, acknowledged)
    assert found.problems == []
    assert len(acknowledged) > 100


async def test_all_nodes_killed_and_restarted_with_a_late_third_s03(make_cluster: Callable[..., LocalCluster]) -> None:
    await _restart_all(make_cluster(), seed=3, rounds=1)


@pytest.mark.endure
@pytest.mark.parametrize("seed", range(4, 7))
async def test_all_nodes_killed_again_and_again_s03(make_cluster: Callable[..., LocalCluster], seed: int) -> None:
    await _restart_all(make_cluster(), seed=seed, rounds=6)
