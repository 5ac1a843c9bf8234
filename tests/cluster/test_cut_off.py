"""A leader that is cut off: its followers are frozen, and it does not know (S30, S31, S44)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.cli.local_cluster import LocalCluster
from fencepost.raft.core.errors import FencepostError, Outcome
from fencepost.raft.outbox.codec import Command
from fencepost.raft.ports import Wait
from fencepost.transport.client import Client

from .support import audit, credit

pytestmark = pytest.mark.servers

CALL_S = 2.0
"""How long each caller is ready to wait."""
SLACK_S = 2.0
"""How much later than that an answer may come on a machine that is busy with something else."""


class Caller:
    """Questions and changes of one client, each with how it ended, and when."""

    def __init__(self, cluster: LocalCluster, node: str) -> None:
        self._cluster = cluster
        self._endpoint = cluster.endpoints[node]
        self.began = time.monotonic()
        self.ended: dict[str, tuple[Any, float]] = {}

    async def ask(self, name: str, method: str, parameters: dict[str, Any]) -> None:
        async with self._cluster.client() as client:
            try:
                result = await client.call(
                    method, parameters, endpoint=self._endpoint, timeout_s=CALL_S + SLACK_S, idempotent=False
                )
            except FencepostError as error:
                result = error
        self.ended[name] = (result, time.monotonic() - self.began)

    async def submit(self, client: Client, command: Command) -> None:
        try:
            result: Any = await client.submit(command, wait=Wait.COMMITTED, timeout_s=CALL_S)
        except FencepostError as error:
            result = error
        self.ended[command.operation_id] = (result, time.monotonic() - self.began)


async def test_a_leader_without_followers_answers_no_read_and_leaves_nobody_waiting_s30_s31_s44(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster()
    cluster.start()
    first = await cluster.ready()
    node = first["node_id"]
    others = [other for other in cluster.nodes if other != node]
    async with cluster.client() as connected, asyncio.TaskGroup() as group:
        await connected.submit(credit("x"))
        # Everybody knows x, and what was asked now would be answered at once.
        cluster.freeze(*others)
        caller = Caller(cluster, node)
        for number in range(5):  # On a connection that there is: they are in the log before it knows.
            group.create_task(caller.submit(connected, credit(f"pending-{number}")))
        for name, consistency in (("default", {}), ("asked", {"consistency": "linearizable"})):
            group.create_task(caller.ask(name, "command.get", {"id": "x", **consistency}))
        group.create_task(caller.ask("list", "member.list", {}))
        change = {"node": "n9", "address": "127.0.0.1:9", "timeout_s": CALL_S}
        group.create_task(caller.ask("add", "member.add", change))
        group.create_task(caller.ask("transfer", "cluster.transfer_leader", {"timeout_s": CALL_S}))
        group.create_task(caller.ask("stale", "command.get", {"id": "x", "consistency": "stale"}))
    # What is here is told to whoever asks for it by name, and says of itself how old it may be.
    stale, stale_s = caller.ended.pop("stale")
    assert stale["state"] == "succeeded"
    assert stale["read"]["consistency"] == "stale"
    assert stale_s < CALL_S
    for name in ("default", "asked", "list"):
        error, _ = caller.ended[name]
        assert isinstance(error, FencepostError), f"{name} was answered: {error}"
        assert (error.code, error.outcome) == ("NOT_LEADER", Outcome.RETRY), f"{name}: {error}"
    for name, (result, seconds) in caller.ended.items():
        assert isinstance(result, FencepostError), f"{name} was done: {result}"
        assert seconds < CALL_S + SLACK_S, f"{name} has waited for {seconds:.1f} s"
    assert caller.ended["add"][0].outcome in (Outcome.UNKNOWN, Outcome.RETRY)
    # They are in its log, and the others may commit them yet: nobody may say that they were not.
    unknown = [caller.ended[f"pending-{number}"][0] for number in range(5)]
    assert [(error.code, error.outcome) for error in unknown] == [("OUTCOME_UNKNOWN", Outcome.UNKNOWN)] * 5
    # It has found out by itself, and does not say that it leads.
    alone = await cluster.status(node)
    assert alone is not None
    assert (alone["role"] == "leader", alone["confirmed"]) == (False, False)
    # The others wake. Whatever became of what was asked: it is the same everywhere, and happened once.
    cluster.thaw(*others)
    await cluster.ready()
    async with cluster.client() as client:
        for name in ("x", *(f"pending-{number}" for number in range(5))):
            assert (await client.submit(credit(name))).state == "succeeded"
        listed = await client.call("member.list", {}, leader=True)
        assert listed["configuration"]["learners"] in ([], ["n9"])
    await cluster.caught_up(int((await cluster.ready())["commit_index"]))
    await cluster.stop()
    found = audit(cluster, ["x", *(f"pending-{number}" for number in range(5))])
    assert found.problems == []
