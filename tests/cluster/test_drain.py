"""A planned stop hands leadership over instead of letting it be missed (S08, S58)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from fencepost.cli.local_cluster import LocalCluster, until

from .support import LEDGER, Load, audit, endless, endpoints, fencepost

pytestmark = pytest.mark.servers

PATIENT = """
[raft]
election_timeout = "1500ms"
heartbeat = "100ms"
"""
"""A second and a half and more pass before a leader is missed; each time it happens, the logs have it."""
ELECTION_TIMEOUT_S = 1.5
GAP_MAX_S = 3.0
"""Two election timeouts."""


def elections(cluster: LocalCluster) -> list[tuple[int, str]]:
    """(term, node) of every leadership, by the nodes' own logs."""
    return sorted(
        (line["term"], node)
        for node in cluster.nodes
        if cluster.log_path(node).exists()
        for line in cluster.log_lines(node)
        if line.get("event") == "role changed" and line["role"] == "leader"
    )


def missed(cluster: LocalCluster) -> list[dict[str, Any]]:
    """Log lines of followers that had heard no leader for an election timeout."""
    lines = [line for node in cluster.nodes for line in cluster.log_lines(node)]
    return [line for line in lines if line.get("event") == "role changed" and line["role"] == "pre-candidate"]


async def leaderless_s(cluster: LocalCluster, node: str, term: int) -> float:
    """How long nobody led before ``node`` did, seconds, by the record that its election left in the log."""

    async def look() -> dict[str, Any] | None:
        status = await cluster.status(node)
        record = None if status is None else status["last_election"]
        return record if record is not None and record["token"]["term"] == str(term) else None

    record = await until(look, within_s=20, what=f"the record of the election of term {term}")
    return sum(float(row["seconds"]) for row in record["stages"] if row["stage"] in ("detect", "elect"))


class Watched(NamedTuple):
    """A cluster under load, and who led it when it was last looked at."""

    cluster: LocalCluster
    load: Load
    leader: str
    term: int

    async def after_stopping(self, node: str) -> Watched:
        """SIGTERM one node, start it again, and look at everything that may and may not have changed."""
        cluster, load = self.cluster, self.load
        load.longest_gap_s = 0.0
        assert await cluster.stop(node) == {node: 0}
        now = await cluster.ready(besides=[node])
        # One change for a leader that was stopped, none for a follower.
        assert now["term"] - self.term == (1 if node == self.leader else 0), elections(cluster)
        if node == self.leader:
            assert await leaderless_s(cluster, now["node_id"], now["term"]) < ELECTION_TIMEOUT_S / 2
        await load.answered(len(load.answers) + 20)
        assert load.longest_gap_s < GAP_MAX_S, f"{node}: {load.longest_gap_s:.2f} s without an answer"
        cluster.start(node)
        await cluster.caught_up(int(now["commit_index"]), node)
        await load.answered(len(load.answers) + 20)
        # Coming back changes nothing.
        last = await cluster.ready()
        assert (last["node_id"], last["term"]) == (now["node_id"], now["term"])
        return self._replace(leader=now["node_id"], term=now["term"])


@pytest.mark.endure
async def test_handed_over_by_command_and_by_a_rolling_restart_under_load_s08_s58(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(definitions=PATIENT + LEDGER)
    cluster.start()
    async with cluster.client(timeout_s=60) as client:
        first = await cluster.ready()
        before = len(missed(cluster))
        async with Load(client, endless()) as load:
            await load.answered(50)
            target = next(node for node in cluster.nodes if node != first["node_id"])
            ran = await fencepost("cluster", "transfer-leader", target, "-o", "json", "--endpoints", endpoints(cluster))
            assert ran.code == 0, ran.stderr
            body = ran.document()
            assert (body["leader"], body["previous_leader"]) == (target, first["node_id"])
            assert (body["term"], body["drained"]) == (first["term"] + 1, True)
            assert (await cluster.ready())["node_id"] == target
            assert await leaderless_s(cluster, target, body["term"]) < ELECTION_TIMEOUT_S / 2
            await load.answered(len(load.answers) + 50)
            assert load.longest_gap_s < GAP_MAX_S
            watched = Watched(cluster, load, target, body["term"])
            for node in ("n1", "n2", "n3"):
                watched = await watched.after_stopping(node)
    assert load.errors == {}
    drained = watched.term - body["term"]
    assert drained >= 1, "one of them has led when it was stopped"
    assert len(elections(cluster)) == 2 + drained
    assert len(missed(cluster)) == before, "nobody has waited for a leader that did not come"
    await cluster.stop()
    found = audit(cluster, load.answers)
    assert found.problems == []
