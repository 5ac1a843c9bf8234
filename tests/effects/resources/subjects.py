"""What the conformance suite is run on: one world, any number of nodes that reach into it."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.handlers import Permanent
from fencepost.raft.effects.modes import FenceMode
from fencepost.raft.effects.resources.audit import read_ledger
from fencepost.raft.effects.resources.ledger import Ledger
from fencepost.raft.effects.resources.memory import FakeResource, MemoryStore
from fencepost.raft.effects.resources.sqlite import SqliteEffect, SqliteResource
from fencepost.raft.effects.resources.sqlite_guard import SCHEMA as GUARD_TABLES
from fencepost.raft.effects.resources.sqlite_guard import Guard
from fencepost.raft.effects.resources.sqlite_tables import SCHEMA as TABLES
from fencepost.raft.ports import Attempt, Resource

SCHEMA = """CREATE TABLE IF NOT EXISTS entries (
    place INTEGER PRIMARY KEY, ledger TEXT NOT NULL, operation TEXT NOT NULL, cents INTEGER NOT NULL CHECK (cents >= 0)
)"""
CREDIT = "INSERT INTO entries (ledger, operation, cents) VALUES ('ledger', :operation_id, :cents) RETURNING place"
MAIL = "INSERT INTO entries (ledger, operation, cents) VALUES ('mail', :operation_id, :cents) RETURNING place"


def token(term: int, incarnation: int = 1) -> FencingToken:
    return FencingToken(incarnation, term)


def attempt(
    operation_id: str, index: int = 1, *, cents: int = 1, lane: str = "", number: int = 1, effect: str = "credit"
) -> Attempt:
    return attempt_of({"cents": cents}, operation_id, index, lane=lane, number=number, effect=effect)


def attempt_of(
    payload: Any, operation_id: str = "a", index: int = 1, *, lane: str = "", number: int = 1, effect: str = "credit"
) -> Attempt:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    digest = hashlib.blake2b(data + lane.encode(), digest_size=16).digest()
    return Attempt(operation_id, index, 1, effect, lane, data, digest, number)


class Subject(Protocol):
    def node(self, name: str = "ledger", cluster_id: str = "cluster") -> Resource:
        """Another node's resource over the same world; not opened."""

    def world(self, name: str = "ledger") -> list[str]:
        """Operation ids in the order in which their effects took place, one an effect."""

    def ledger(self) -> Ledger: ...


class MemorySubject:
    def __init__(self) -> None:
        self.store = MemoryStore()

    def node(self, name: str = "ledger", cluster_id: str = "cluster") -> Resource:
        return FakeResource(name, {"credit": self._credit}, store=self.store, cluster_id=cluster_id)

    def _credit(self, attempt: Attempt) -> bytes:
        if json.loads(attempt.payload)["cents"] < 0:
            raise Permanent("cents must not be negative")
        return b'{"place":%d}' % (len(self.store.effects) + 1)

    def world(self, name: str = "ledger") -> list[str]:
        return [operation_id for resource, operation_id in self.store.effects if resource == name]

    def ledger(self) -> Ledger:
        return self.store.ledger()


class SqliteSubject:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.db"

    def node(self, name: str = "ledger", cluster_id: str = "cluster") -> SqliteResource:
        effects = {"credit": SqliteEffect(MAIL if name == "mail" else CREDIT)}
        return SqliteResource(name, self.path, effects, cluster_id=cluster_id, schema=SCHEMA)

    def guarded(self, mode: FenceMode) -> SqliteSubject:
        """The same, where writes without a token are looked for from the start."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            for statement in (SCHEMA, *TABLES, *GUARD_TABLES):
                connection.execute(statement)
            connection.execute("INSERT INTO fencepost_format VALUES (1)")
            guard = Guard("ledger")
            guard.set(connection, mode, 1)
            guard.stand(connection, frozenset({"entries"}))
        return self

    def world(self, name: str = "ledger") -> list[str]:
        with closing(sqlite3.connect(self.path)) as connection:
            rows = connection.execute("SELECT operation FROM entries WHERE ledger = ? ORDER BY place", (name,))
            return [operation for (operation,) in rows]

    def ledger(self) -> Ledger:
        return read_ledger(self.path)
