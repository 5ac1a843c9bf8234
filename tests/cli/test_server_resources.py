"""A node with resources that are servers: composed from its file, submitted to, asked for its status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.compose import ComposedNode
from fencepost.cli.config import NodeConfiguration
from fencepost.cli.config_file import load
from fencepost.cli.local_cluster import free_peer_addresses
from fencepost.raft.outbox.codec import Command
from fencepost.transport.client import Client

from ..servers.postgres import PostgresServer, postgres, postgres_server
from ..servers.redis import RedisServer, redis, redis_server
from ..waiting import eventually_async

__all__ = ["postgres", "postgres_server", "redis", "redis_server"]

pytestmark = pytest.mark.servers


def configured(folder: Path, resource: str) -> NodeConfiguration:
    peer = free_peer_addresses(["n1"])["n1"]
    host, _, port = peer.rpartition(":")
    path = folder / "n1.toml"
    path.write_text(
        f'[cluster]\nid = "alone"\n[node]\nid = "n1"\ndata_dir = "n1"\npeer = "{peer}"\n'
        f'client = "{host}:{int(port) + 100}"\n[raft]\nheartbeat = "20ms"\nelection_timeout = "200ms"\n[peers]\n'
        + resource
    )
    return load(path)


async def submit_all(configuration: NodeConfiguration) -> dict[str, Any]:
    """Submit a hundred commands in ten lanes, and the status of the resource afterwards."""
    node = ComposedNode(configuration)
    try:
        await node.start()
        async with Client([configuration.node.client]) as client:
            commands = [
                Command(f"op{index}", "ledger", "credit", f"lane{index % 10}", b'{"account":"a","cents":1}')
                for index in range(100)
            ]
            for answer in [await client.submit(command, timeout_s=10) for command in commands]:
                assert answer.state == "succeeded"

            async def active() -> dict[str, Any] | None:
                status: dict[str, Any] = node.effects.status()["ledger"]
                return status if status["activation"] == "active" else None

            return await eventually_async(active, within_s=5, what="the resource is active")
    finally:
        await node.drain()
        await node.close()


@pytest.mark.parametrize("dedupe", ["table", "ordered-lane"])
async def test_a_node_with_a_postgres_resource(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, dedupe: str
) -> None:
    monkeypatch.setenv("LEDGER_URL", postgres.url)
    status = await submit_all(
        configured(
            tmp_path,
            f"""[resources.ledger]
kind = "postgres"
url_env = "LEDGER_URL"
dedupe = "{dedupe}"
schema = "CREATE TABLE IF NOT EXISTS entries (account text, cents int)"
effects.credit.sql = "INSERT INTO entries VALUES (:account, :cents)"
""",
        )
    )
    assert (status["kind"], status["guarantee"], status["guarantee_reason"]) == ("postgres", "fenced", "")
    assert postgres.query("SELECT count(*) AS n, sum(cents) AS cents FROM entries")[0] == (100, 100)


@pytest.mark.parametrize(("sync", "guarantee"), [("always", "fenced"), ("everysec", "keyed")])
async def test_a_node_with_a_redis_resource(tmp_path: Path, redis: RedisServer, sync: str, guarantee: str) -> None:
    redis.call("CONFIG", "SET", "appendfsync", sync)
    try:
        status = await submit_all(
            configured(
                tmp_path,
                f"""[resources.ledger]
kind = "redis"
url = "{redis.url}"
effects.credit.commands = [["HINCRBY", "account:{{account}}", "cents", "{{cents}}"], ["INCR", "count"]]
""",
            )
        )
    finally:
        redis.call("CONFIG", "SET", "appendfsync", "always")
    assert (status["kind"], status["guarantee"]) == ("redis", guarantee)
    assert ("appendfsync is everysec" in status["guarantee_reason"]) is (guarantee == "keyed")
    assert (redis.call("HGET", "account:a", "cents"), redis.call("GET", "count")) == ("100", "100")
