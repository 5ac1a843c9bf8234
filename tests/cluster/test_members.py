"""Members come and go while clients write: real processes, the command line, files on disk (S28, S57)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.cli.local_cluster import LocalCluster, until
from fencepost.raft.core.errors import FencepostError, Outcome
from fencepost.raft.outbox.codec import Command
from fencepost.transport.client import Client

from .support import FAST, LEDGER, Load, Ran, audit, credit, endless, endpoints, fencepost, unfinished

pytestmark = pytest.mark.servers

SMALL = """
[snapshots]
entries = 150
retained = 20
chunk = "4KiB"
[storage]
segment = "64KiB"
"""
"""Snapshots soon and often, and a log that is soon too short for a new node."""


async def command(cluster: LocalCluster, *words: str) -> Ran:
    return await fencepost(*words, "-o", "json", "--endpoints", endpoints(cluster))


async def submitted(client: Client, commands: list[Command]) -> list[str]:
    async with Load(client, commands, window=32) as load:
        await load.finished()
    assert load.errors == {}
    return list(load.answers)


def logged(cluster: LocalCluster, node: str, event: str) -> list[dict[str, Any]]:
    return [line for line in cluster.log_lines(node) if line.get("event") == event]


@pytest.mark.endure
async def test_members_come_and_go_under_load_s28_s57(make_cluster: Callable[..., LocalCluster]) -> None:
    cluster = make_cluster(definitions=FAST + SMALL + LEDGER)
    cluster.start()
    first = await cluster.ready()
    async with cluster.client(timeout_s=60) as client:
        done = await submitted(client, [credit(f"early-{number}") for number in range(400)])
        await _all_compacted(cluster)

        # S28: a node that never starts costs nobody anything, and is made no voter.
        ran = await command(cluster, "member", "add", "ghost", "127.0.0.1:9", "--timeout", "4s")
        assert (ran.code, ran.error()["code"]) == (4, "NOT_CAUGHT_UP")
        assert "last seen never" in ran.error()["message"]
        listed = await client.call("member.list", {}, leader=True)
        ghost = next(row for row in listed["members"] if row["node"] == "ghost")
        assert (ghost["part"], ghost["match_index"], ghost["last_contact_s"]) == ("learner", 0, None)
        done += await submitted(client, [credit(f"beside-a-ghost-{number}") for number in range(20)])
        ran = await command(cluster, "member", "remove", "ghost", "--yes")
        assert ran.code == 0, ran.stderr

        async with Load(client, endless("beside")) as load:
            # A real one becomes a voter, and needs a snapshot for it: what it lacks is in no log.
            address = cluster.prepare("n4")
            cluster.start("n4")
            ran = await command(cluster, "member", "add", "n4", address)
            assert ran.code == 0, ran.stderr
            assert ran.document()["configuration"]["voters"] == ["n1", "n2", "n3", "n4"]
            assert logged(cluster, "n4", "state restored")
            await load.answered(len(load.answers) + 20)

            # S57: a node that is started with the file of before knows what the cluster has become.
            leader = (await cluster.ready())["node_id"]
            follower = next(node for node in first["voters"] if node != leader)
            await cluster.stop(follower)
            cluster.start(follower)
            await cluster.caught_up(int((await cluster.ready())["commit_index"]), follower)
            again = await cluster.status(follower)
            assert again is not None
            assert again["voters"] == ["n1", "n2", "n3", "n4"]
            (warning,) = logged(cluster, follower, OTHER_PEERS)
            assert warning["cluster"] == sorted({"n1", "n2", "n3", "n4"} - {follower})

            # The leader goes, for good; it hands over first.
            leader = (await cluster.ready())["node_id"]
            ran = await command(cluster, "member", "remove", leader, "--yes")
            assert ran.code == 0, ran.stderr
            left = ran.document()["configuration"]["voters"]
            assert left == sorted({"n1", "n2", "n3", "n4"} - {leader})
            await cluster.stop(leader)
            assert (await cluster.ready())["node_id"] in left
            await load.answered(len(load.answers) + 50)
        assert load.errors == {}
        done += load.answers
        # It stays out, whatever it believes.
        cluster.start(leader)
        ran = await command(cluster, "member", "add", leader, cluster.peers[leader])
        assert (ran.code, ran.error()["code"]) == (6, "CHANGE_REFUSED")
        assert "ids are not used again" in ran.error()["message"]
        now = await cluster.ready(besides=[leader])
        done += await submitted(client, [credit("last")])
        assert (await cluster.ready(besides=[leader]))["term"] == now["term"]
    await cluster.caught_up(int((await cluster.ready(besides=[leader]))["commit_index"]), *left)
    await cluster.stop()
    found = audit(cluster, done, voters=left)
    assert found.problems == []


OTHER_PEERS = "the file names other peers than the cluster has; the cluster counts"


async def _all_compacted(cluster: LocalCluster) -> None:
    async def look() -> bool:
        found = await cluster.statuses()
        return len(found) == len(cluster.nodes) and all(status["first_index"] > 1 for status in found.values())

    await until(look, within_s=20, what="a log that begins behind a snapshot, everywhere")


@pytest.mark.endure
async def test_a_wiped_node_is_refused_under_its_old_name_and_replaced_under_a_new_one_s21_s56(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster()
    cluster.start()
    first = await cluster.ready()
    leader = first["node_id"]
    wiped, other = (node for node in cluster.nodes if node != leader)
    async with cluster.client(timeout_s=60) as client:
        done = await submitted(client, [credit(f"early-{number}") for number in range(50)])
        await cluster.caught_up(int((await cluster.ready())["commit_index"]))
        cluster.kill(wiped)
        shutil.rmtree(cluster.data_path(wiped))
        cluster.start(wiped)

        async def refused() -> bool:
            return any("wiped or replaced" in line["reason"] for line in logged(cluster, wiped, "peer_not_reached"))

        await until(refused, within_s=20, what="the reason in the log of the wiped node")
        assert (await cluster.ready())["term"] == first["term"]
        # It makes no majority with anybody: what it has forgotten may be what it is asked to vouch for.
        cluster.kill(other)
        with pytest.raises(FencepostError) as error:
            await client.submit(credit("undecided"), timeout_s=3)
        assert error.value.outcome is not Outcome.REFUSED
        cluster.start(other)
        await cluster.ready()
        # Another node takes its place, and then it may go.
        address = cluster.prepare("n4")
        cluster.start("n4")
        for words in (("add", "n4", address), ("remove", wiped, "--yes")):
            ran = await command(cluster, "member", *words)
            assert ran.code == 0, ran.stderr
        voters = ran.document()["configuration"]["voters"]
        assert voters == sorted({leader, other, "n4"})
        await cluster.stop(wiped)
        done += await submitted(client, [credit("undecided"), credit("last")])
    await cluster.caught_up(int((await cluster.ready())["commit_index"]), *voters)
    await cluster.stop()
    found = audit(cluster, done, voters=voters)
    assert (found.problems, unfinished(found.machine)) == ([], [])
