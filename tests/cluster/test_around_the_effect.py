"""The leader freezes or dies around the external call (S47, S50)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.local_cluster import LocalCluster, node_command, until
from fencepost.raft.core.errors import FencepostError
from fencepost.raft.effects.resources.audit import read_ledger

from .support import audit, credit, unfinished

pytestmark = pytest.mark.servers

STOP_ONCE = """
import os, pathlib, time
from fencepost.raft.effects.resources import sqlite
resource = sqlite.SqliteResource
marker = pathlib.Path({marker!r})
def stop_once(attempts):
    # The first process to come here with the victim stays here until it is killed.
    if any(attempt.operation_id == "victim" for attempt in attempts) and not marker.exists():
        marker.write_text(str(os.getpid()))
        time.sleep(600)
{patch}
"""

BEFORE = """
execute = resource._execute
def before(self, token, holder, attempts):
    stop_once(attempts)
    return execute(self, token, holder, attempts)
resource._execute = before
"""

INSIDE = """
record = resource._record
def inside(self, connection, token, holder, batch):
    record(self, connection, token, holder, batch)
    stop_once(batch.attempts)
resource._record = inside
"""

AFTER = """
execute = resource._execute
def after(self, token, holder, attempts):
    outcomes = execute(self, token, holder, attempts)
    stop_once(attempts)
    return outcomes
resource._execute = after
"""


async def _state(cluster: LocalCluster, node: str, name: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = await cluster.call(node, "command.get", {"id": name})
    except FencepostError:
        return {}
    return found


@pytest.mark.parametrize(
    ("patch", "effects_before"),
    [(BEFORE, 0), (INSIDE, 0), (AFTER, 1)],
    ids=["before the call", "inside the transaction", "after the call"],
)
async def test_killed_around_the_external_call_s50(
    make_cluster: Callable[..., LocalCluster], tmp_path: Path, patch: str, effects_before: int
) -> None:
    """Before: it was never called. Inside: the database rolls back. After: it is done, and no log knows."""
    marker = tmp_path / "reached"
    cluster = make_cluster(command=node_command(STOP_ONCE.format(marker=str(marker), patch=patch)))
    cluster.start()
    leader = (await cluster.ready())["node_id"]
    async with cluster.client() as client:
        # Lane-mates behind it must wait for it, whoever executes it (S52).
        names = ["victim", "second", "third"]
        answers = [asyncio.ensure_future(client.submit(credit(name, lane="lane"))) for name in names]

        async def reached() -> bool:
            return marker.exists()

        await until(reached, within_s=20, what="the moment of the kill")
        cluster.kill(leader)
        accepted = [row.operation_id for row in read_ledger(cluster.folder / "ledger.db").operations]
        assert accepted.count("victim") == effects_before
        cluster.start(leader)
        for answer in await asyncio.gather(*answers):
            assert answer.state == "succeeded"
    successor = await cluster.ready()
    await cluster.caught_up(int(successor["commit_index"]))
    await cluster.stop()

    found = audit(cluster, names)
    assert found.problems == []
    assert [row[0] for row in found.entries] == names
    victim = found.machine.operations["victim"]
    assert victim.attempt == 2
    assert victim.lost == 1
    assert victim.failures == 0, "an executor that died is no failure of the command"


async def test_a_frozen_leaders_late_write_is_refused_s47(make_cluster: Callable[..., LocalCluster]) -> None:
    cluster = make_cluster()
    cluster.start()
    leader = await cluster.ready()
    node = leader["node_id"]
    async with cluster.client() as client:
        answer = asyncio.ensure_future(client.submit(credit("victim", "slow")))

        async def dispatched() -> bool:
            return (await _state(cluster, node, "victim")).get("state") == "dispatched"

        await until(dispatched, within_s=20, what="the effect under way")
        cluster.freeze(node)
        assert [row.operation_id for row in read_ledger(cluster.folder / "ledger.db").operations] == []
        successor = await cluster.ready(besides=[node])
        assert (await answer).state == "succeeded"
        more = await client.submit(credit("more"))
        assert more.term == successor["term"]
        cluster.thaw(node)

        async def refused() -> bool:
            return bool(read_ledger(cluster.folder / "ledger.db").refusals)

        await until(refused, within_s=20, what="the refusal of the late write")

        async def follows() -> dict[str, Any] | None:
            status = await cluster.status(node)
            return status if status is not None and status["leader"] == successor["node_id"] else None

        status = await until(follows, within_s=20, what="the old leader as a follower")
        assert status["role"] == "follower"
        assert status["resources"]["ledger"]["activation"] == "follower"
        await cluster.caught_up(int((await cluster.ready())["commit_index"]))
    await cluster.stop()

    found = audit(cluster, ["victim", "more"])
    assert found.problems == []
    assert unfinished(found.machine) == []
    assert [row[0] for row in found.entries] == ["victim", "more"]
    (refusal,) = read_ledger(cluster.folder / "ledger.db").refusals
    assert refusal.operations == ["victim"]
    assert refusal.reason == "STALE_LEADER"
    assert (refusal.token.term, refusal.stored.term) == (leader["term"], successor["term"])
    # What the old leader had to say about the command came too late to count: no failure, no third attempt.
    assert found.machine.operations["victim"].failures == 0
    assert found.machine.operations["victim"].attempt == 2
