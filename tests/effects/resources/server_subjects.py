"""The conformance suite's worlds inside servers."""

from __future__ import annotations

from typing import Any

from fencepost.raft.effects.resources import postgres_audit, redis_audit
from fencepost.raft.effects.resources.ledger import Ledger
from fencepost.raft.effects.resources.postgres import Dedupe, PostgresBounds, PostgresEffect, PostgresResource
from fencepost.raft.effects.resources.redis import RedisEffect, RedisResource

from ...servers.postgres import PostgresServer, run_aside
from ...servers.redis import RedisServer

POSTGRES_SCHEMA = """CREATE TABLE IF NOT EXISTS entries (
    place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ledger text NOT NULL, operation text NOT NULL,
    cents bigint NOT NULL CHECK (cents >= 0)
)"""
POSTGRES_CREDIT = (
    "INSERT INTO entries (ledger, operation, cents) VALUES ('{name}', :operation_id, :cents) RETURNING place"
)
MS = 1_000_000


class PostgresSubject:
    def __init__(self, server: PostgresServer, dedupe: Dedupe = Dedupe.TABLE) -> None:
        self.server = server
        self.dedupe = dedupe

    def node(
        self,
        name: str = "ledger",
        cluster_id: str = "cluster",
        effects: dict[str, str] | None = None,
        **options: Any,
    ) -> PostgresResource:
        given = {"credit": POSTGRES_CREDIT.format(name=name)} if effects is None else effects
        return PostgresResource(
            name,
            options.pop("url", self.server.url),
            {effect: PostgresEffect(sql) for effect, sql in given.items()},
            cluster_id=cluster_id,
            **{"schema": POSTGRES_SCHEMA, "dedupe": self.dedupe, "bounds": PostgresBounds(), **options},
        )

    def world(self, name: str = "ledger") -> list[str]:
        rows = self.server.query("SELECT operation FROM entries WHERE ledger = $1 ORDER BY place", name)
        return [row["operation"] for row in rows]

    def ledger(self) -> Ledger:
        found: Ledger = run_aside(postgres_audit.read_ledger(self.server.url))
        return found


class RedisSubject:
    def __init__(self, server: RedisServer) -> None:
        self.server = server

    def node(
        self,
        name: str = "ledger",
        cluster_id: str = "cluster",
        effects: dict[str, list[list[str]]] | None = None,
        **options: Any,
    ) -> RedisResource:
        # A negative offset is refused, after the entry was pushed: the entry must not stay.
        credit = [["RPUSH", f"entries:{name}", "{operation_id}"], ["SETBIT", f"seen:{name}", "{cents}", "1"]]
        given = {"credit": credit} if effects is None else effects
        return RedisResource(
            name,
            options.pop("url", self.server.url),
            {effect: RedisEffect(commands) for effect, commands in given.items()},
            cluster_id=cluster_id,
            **options,
        )

    def world(self, name: str = "ledger") -> list[str]:
        found: list[str] = self.server.call("LRANGE", f"entries:{name}", 0, -1)
        return found

    def ledger(self) -> Ledger:
        parts = [run_aside(redis_audit.read_ledger(self.server.url, name)) for name in ("ledger", "mail")]
        return Ledger(*([row for part in parts for row in part[place]] for place in range(4)))
