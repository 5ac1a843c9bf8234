"""What is left when every process has ended, as values: the cluster's log, and what each resource wrote down itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...cli.demo.evidence import committed_entries
from ...cli.local_cluster import LocalCluster
from ...raft.core.entry import Entry
from ...raft.core.token import FencingToken
from ...raft.effects.resources import postgres_audit
from ...raft.effects.resources.audit import read_ledger
from ...raft.effects.resources.ledger import Ledger
from ...raft.outbox.codec import Command, canonical_json
from ...raft.ports import Guarantee
from ...storage.disk import RealDisk
from ...storage.identity import read_identity
from ...storage.reader import read_log
from .keyed_api import read_calls
from .workload import DATABASE, FILE


class EffectRow(NamedTuple):
    """A row of an application's own table, which has no unique key: what really took effect."""

    operation_id: str
    lane: str
    place: int
    """The log index that came with the effect."""
    payload: bytes


class KeyedCall(NamedTuple):
    """A call that an API has answered, as it wrote it down."""

    time_ns: int
    operation_id: str
    effect: str
    lane: str
    place: int
    payload: bytes
    token: FencingToken
    holder: str
    replayed: bool
    result: bytes
    """As an outcome of the log would have it."""


@dataclass(frozen=True, slots=True)
class ResourceRecord:
    """One resource. Of a fenced one ``effects`` and ``ledger``, of a keyed one ``calls``; each in its own order."""

    name: str
    guarantee: Guarantee
    effects: list[EffectRow] = field(default_factory=list)
    ledger: Ledger = field(default_factory=lambda: Ledger([], [], [], []))
    calls: list[KeyedCall] = field(default_factory=list)


class FenceSample(NamedTuple):
    """The fence of a resource as it was read while the run went on."""

    resource: str
    token: FencingToken
    at_least: FencingToken
    """What a leader had said, before it was read, to be active with there."""


@dataclass(frozen=True, slots=True)
class Evidence:
    commands: dict[str, Command]
    """By operation id: everything that was submitted."""
    answers: dict[str, tuple[str, bytes]]
    """By operation id: state and result, as the client was told."""
    entries: list[Entry]
    """Committed, from the first on."""
    disagreements: list[str]
    """Of the nodes' logs about them."""
    leaders: dict[int, list[str]]
    """By term: the nodes that wrote down that they lead it."""
    incarnations: dict[str, int]
    """By node."""
    resources: dict[str, ResourceRecord]
    samples: list[FenceSample] = field(default_factory=list)


async def gather(
    cluster: LocalCluster,
    *,
    commands: Mapping[str, Command],
    answers: Mapping[str, tuple[str, bytes]],
    samples: list[FenceSample],
    database_url: str,
    calls: Path,
) -> Evidence:
    """Read everything of a cluster whose processes have ended. Nothing is written."""
    entries, disagreements = committed_entries({node: read_log(cluster.data_path(node)) for node in cluster.nodes})
    file = cluster.folder / f"{FILE}.db"
    records = [
        ResourceRecord(FILE, Guarantee.FENCED, read_effects(file), read_ledger(file)),
        ResourceRecord(
            DATABASE,
            Guarantee.FENCED,
            await _database_effects(database_url),
            await postgres_audit.read_ledger(database_url),
        ),
        ResourceRecord("api", Guarantee.KEYED, calls=[keyed_call(row) for row in read_calls(calls)]),
    ]
    return Evidence(
        commands=dict(commands),
        answers=dict(answers),
        entries=entries,
        disagreements=disagreements,
        leaders=_leaders(cluster),
        incarnations={node: read_identity(RealDisk(), cluster.data_path(node)).incarnation for node in cluster.nodes},
        resources={record.name: record for record in records},
        samples=samples,
    )


def _leaders(cluster: LocalCluster) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for node in cluster.nodes:
        for line in cluster.log_lines(node):
            if line.get("event") == "role changed" and line.get("role") == "leader":
                found.setdefault(int(line["term"]), []).append(node)
    return found


def read_effects(path: Path) -> list[EffectRow]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT operation, lane, place, payload FROM entries ORDER BY rowid").fetchall()
    return [_effect(row) for row in rows]


async def _database_effects(url: str) -> list[EffectRow]:
    import asyncpg

    connection = await asyncpg.connect(url, timeout=10, command_timeout=120)
    try:
        rows = await connection.fetch("SELECT operation, lane, place, payload FROM entries ORDER BY id")
    finally:
        await connection.close()
    return [_effect(row) for row in rows]


def file_fence(path: Path) -> FencingToken:
    """The fence as it stands in the file now; 0.0 for none. The whole ledger is read in the end only: it grows."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        row = connection.execute("SELECT incarnation, term FROM fencepost_fence WHERE resource = ?", (FILE,)).fetchone()
    return FencingToken(*(row or (0, 0)))


async def database_fence(url: str) -> FencingToken:
    """The same in the database."""
    import asyncpg

    connection = await asyncpg.connect(url, timeout=10, command_timeout=60)
    try:
        row = await connection.fetchrow("SELECT incarnation, term FROM fencepost.fence WHERE resource = $1", DATABASE)
    finally:
        await connection.close()
    return FencingToken(*(row or (0, 0)))


def _effect(row: Any) -> EffectRow:
    operation, lane, place, payload = row
    return EffectRow(operation, lane, place, payload.encode() if isinstance(payload, str) else bytes(payload))


def keyed_call(row: Mapping[str, Any]) -> KeyedCall:
    incarnation, _, term = row["token"].partition(".")
    return KeyedCall(
        row["time_ns"],
        row["key"],
        row["effect"],
        row["lane"],
        row["place"],
        row["payload"].encode(),
        FencingToken(int(incarnation), int(term)),
        row["holder"],
        row["replayed"],
        canonical_json({"status": 201, "body": row["result"]}),
    )


def same_result(one: bytes, other: bytes) -> bool:
    """Whether two results say the same: JSON by value, for its spaces say nothing."""
    if one == other:
        return True
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except msgspec.DecodeError:
        return False
