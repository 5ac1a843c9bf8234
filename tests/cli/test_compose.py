"""What the composition root promises that no part alone can show: one node, composed and running."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fencepost.cli.compose import ComposedNode
from fencepost.cli.config import NodeConfiguration
from fencepost.cli.config_file import load
from fencepost.cli.local_cluster import free_peer_addresses
from fencepost.raft.core.errors import NoLeader
from fencepost.raft.outbox.codec import Command
from fencepost.transport.client import Client

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
