"""What the composition root promises that no part alone can show: one node, composed and running."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fencepost.cli.compose import ComposedNode
from fencepost.cli.config import NodeConfiguration
from fencepost.cli.config_file import load
from fencepost.cli.local_cluster import free_peer_addresses
from fencepost.raft.core.errors import NoLeader
from fencepost.raft.core.events import Role
from fencepost.raft.outbox.codec import Command
from fencepost.transport.client import Client

from ..waiting import eventually_async

LEDGER = """
[resources.ledger]
kind = "sqlite"
path = "ledger.db"
schema = "CREATE TABLE IF NOT EXISTS entries(account, cents)"
effects.credit.sql = "INSERT INTO entries VALUES (:account, :cents)"
"""


def configured(folder: Path, data_dir: str = "n1") -> NodeConfiguration:
    """A cluster of one: it leads as soon as it has waited for an election timeout."""
    peer = free_peer_addresses(["n1"])["n1"]
    host, _, port = peer.rpartition(":")
    path = folder / f"{data_dir}.toml"
    path.write_text(
        f'[cluster]\nid = "alone"\n[node]\nid = "n1"\ndata_dir = "{data_dir}"\npeer = "{peer}"\n'
        f'client = "{host}:{int(port) + 100}"\n[raft]\nheartbeat = "20ms"\nelection_timeout = "100ms"\n[peers]\n'
        + LEDGER
    )
    return load(path)


def credit(operation_id: str) -> Command:
    return Command(operation_id, "ledger", "credit", "", b'{"account":"a","cents":1}')


async def test_a_draining_leader_takes_nothing_in_and_answers_what_is_known_s49(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    node = ComposedNode(configuration)
    try:
        await node.start()
        async with Client([configuration.node.client]) as client:
            assert not (await client.submit(credit("before"))).replayed
            await node.drain()
            with pytest.raises(NoLeader):
                await client.submit(credit("after"), timeout_s=0.5)
            assert (await client.submit(credit("before"))).replayed
    finally:
        await node.close()


async def test_two_processes_over_copies_of_one_directory_are_two_holders(tmp_path: Path) -> None:
    """They have the same node id, instance and boot count; a resource must tell them apart all the same."""
    ComposedNode(configured(tmp_path)).directory.close()
    shutil.copytree(tmp_path / "n1", tmp_path / "copy")
    nodes = [ComposedNode(configured(tmp_path, data_dir)) for data_dir in ("n1", "copy")]
    try:
        assert nodes[0].directory.instance_id == nodes[1].directory.instance_id
        assert nodes[0].directory.boot == nodes[1].directory.boot
        assert nodes[0].effects.holder != nodes[1].effects.holder
    finally:
        for node in nodes:
            await node.close()


# -- several nodes in one process ---------------------------------------------------------------------


class Composed:
    """Nodes of one cluster, each composed from a file of its own."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.peers = free_peer_addresses(names)
        self.nodes: dict[str, ComposedNode] = {}

    def write(self, name: str, peers: Iterable[str], *, join: bool = False) -> None:
        host, _, port = self.peers[name].rpartition(":")
        others = "".join(f'{peer} = "{self.peers[peer]}"\n' for peer in peers if peer != name)
        (self.folder / f"{name}.toml").write_text(
            f'[cluster]\nid = "several"\njoin = {str(join).lower()}\n'
            f'[node]\nid = "{name}"\ndata_dir = "{name}"\npeer = "{self.peers[name]}"\n'
            f'client = "{host}:{int(port) + 100}"\n[raft]\nheartbeat = "50ms"\nelection_timeout = "400ms"\n'
            f'[snapshots]\nentries = 50\nretained = 10\nchunk = "1KiB"\n[storage]\nsegment = "64KiB"\n'
            f"[peers]\n{others}" + LEDGER
        )

    async def start(self, *names: str) -> None:
        for name in names:
            node = self.nodes[name] = ComposedNode(load(self.folder / f"{name}.toml"))
            await node.start()

    async def stop(self, *names: str) -> None:
        for name in names:
            node = self.nodes.pop(name)
            await node.drain()
            await node.close()

    def client(self) -> Client:
        return Client([node.configuration.node.client for node in self.nodes.values()], timeout_s=20)

    def leader(self) -> ComposedNode | None:
        return next((node for node in self.nodes.values() if node.loop.holds_lease()), None)

    async def until(self, holds: Callable[[], object]) -> None:
        async def look() -> object:
            return holds()

        await eventually_async(look, within_s=20, what="it")

    async def __aenter__(self) -> Composed:
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            await node.close()


def applied(node: ComposedNode) -> int:
    return node.loop.applier.last_applied


def says(node: ComposedNode, peer: str, why: str) -> bool:
    return why in node.transport.links()[peer].last_error


async def test_a_node_joins_by_a_snapshot_and_the_cluster_is_what_it_says_and_not_what_a_file_says_s57(
    tmp_path: Path,
) -> None:
    first = ("n1", "n2", "n3")
    with capture_logs() as logs:
        async with Composed(tmp_path, *first, "n4") as cluster:
            for name in first:
                cluster.write(name, first)
            cluster.write("n4", first, join=True)
            await cluster.start(*first)
            async with cluster.client() as client:
                async for _, answer in client.submit_many([credit(f"op{number}") for number in range(120)]):
                    assert not isinstance(answer, Exception)
                await cluster.until(lambda: all(node.loop.raft.log.first_index > 1 for node in cluster.nodes.values()))
                await cluster.start("n4")
                assert cluster.nodes["n4"].loop.raft.configuration.members == ()
                added = await client.call(
                    "member.add", {"node": "n4", "address": cluster.peers["n4"]}, leader=True, idempotent=False
                )
                assert added["configuration"]["voters"] == ["n1", "n2", "n3", "n4"]
                new = cluster.nodes["n4"]
                await cluster.until(lambda: applied(new) >= added["index"])
                assert [line for line in logs if line["event"] == "state restored"]
                assert (await client.submit(credit("op7"))).replayed
                # A restart with the file of before: the cluster still has four members.
                leader = cluster.leader()
                assert leader is not None
                follower = next(name for name in first if cluster.nodes[name] is not leader)
                await cluster.stop(follower, "n4")
                logs.clear()
                await cluster.start(follower, "n4")
                for name in (follower, "n4"):
                    again = cluster.nodes[name]
                    assert again.loop.raft.configuration.voters == ("n1", "n2", "n3", "n4")
                (warning,) = [line for line in logs if "other peers" in line["event"]]
                assert warning["cluster"] == sorted({*first, "n4"} - {follower})
                assert not (await client.submit(credit("after"))).replayed
                await cluster.until(lambda: len({applied(node) for node in cluster.nodes.values()}) == 1)
                assert len({node.machine.state_hash() for node in cluster.nodes.values()}) == 1
                # And one that goes is not let in again.
                await client.call("member.remove", {"node": "n4"}, leader=True, idempotent=False)
                await cluster.until(lambda: all("n4" not in cluster.nodes[name].transport.links() for name in first))
                rafts = [cluster.nodes[name].loop.raft for name in first]
                await cluster.until(lambda: {raft.committed_configuration().retired for raft in rafts} == {("n4",)})
                assert not (await client.submit(credit("without"))).replayed


async def test_a_leader_that_is_stopped_has_handed_over_before_it_goes_s58(tmp_path: Path) -> None:
    names = ("n1", "n2", "n3")
    async with Composed(tmp_path, *names) as cluster:
        for name in names:
            cluster.write(name, names)
        await cluster.start(*names)
        await cluster.until(cluster.leader)
        leader = cluster.leader()
        assert leader is not None
        name, term = leader.directory.node_id, leader.loop.raft.current_term
        async with cluster.client() as client:
            assert not (await client.submit(credit("before"))).replayed
            await leader.drain()
            assert leader.loop.raft.role is Role.FOLLOWER
            assert leader.loop.raft.leader not in ("", name)
            await cluster.stop(name)
            assert not (await client.submit(credit("after"))).replayed
        assert {node.loop.raft.current_term for node in cluster.nodes.values()} == {term + 1}


async def test_a_node_first_started_with_other_voters_is_kept_out_until_it_is_made_anew(tmp_path: Path) -> None:
    """What the runbook says of BOOTSTRAP_MISMATCH: its file is corrected, its directory removed, its id kept."""
    names = ("n1", "n2", "n3")
    async with Composed(tmp_path, *names, "n4") as cluster:
        cluster.write("n1", names)
        cluster.write("n3", names)
        cluster.write("n2", ("n2", "n3", "n4"))
        await cluster.start(*names)
        await cluster.until(cluster.leader)
        two = cluster.nodes["n2"]
        for name in ("n1", "n3"):
            await cluster.until(partial(says, cluster.nodes[name], "n2", f"n2, n3, n4, and node {name} with others"))
            assert "n2" not in cluster.nodes[name].directory.known_instances()
        await cluster.until(lambda: says(two, "n3", "n1, n2, n3, and node n2 with others"))
        async with cluster.client() as client:
            assert not (await client.submit(credit("before"))).replayed
            assert two.loop.raft.log.last_index == 0
            # A corrected file alone changes nothing.
            await cluster.stop("n2")
            cluster.write("n2", names)
            await cluster.start("n2")
            two = cluster.nodes["n2"]
            await cluster.until(lambda: says(two, "n3", "and node n2 with others"))
            await cluster.stop("n2")
            shutil.rmtree(tmp_path / "n2")
            await cluster.start("n2")
            await cluster.until(lambda: len({applied(node) for node in cluster.nodes.values()}) == 1)
            assert not (await client.submit(credit("after"))).replayed
