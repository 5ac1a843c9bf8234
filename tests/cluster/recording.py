"""A small recording of what a run leaves: a log made by hand, a real SQLite file that was written to, calls of an API.

Two leaders. n1 leads term 1 and is replaced in the middle: b took effect at the file under 1.1 and only its successor
recorded it, k1 was sent twice to the API, and n1's late write was refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fencepost.jepsen.cluster.evidence import Evidence, FenceSample, KeyedCall, ResourceRecord, read_effects
from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.errors import StaleLeader
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.resources.audit import read_ledger
from fencepost.raft.effects.resources.sqlite import SqliteEffect, SqliteResource
from fencepost.raft.outbox.codec import (
    Activation,
    Command,
    Dispatch,
    DispatchRow,
    Outcome,
    OutcomeRow,
    digest,
    encode,
)
from fencepost.raft.outbox.machine import OutboxMachine
from fencepost.raft.outbox.transitions import Verdict
from fencepost.raft.ports import Attempt, Guarantee

FIRST, SECOND = FencingToken(1, 1), FencingToken(1, 2)
HOLDERS = {FIRST: "n1/a1b2/1/77", SECOND: "n2/c3d4/1/78"}
COMMANDS = [
    Command("a", "file", "credit", "lane", b'{"cents":1}'),
    Command("b", "file", "credit", "lane", b'{"cents":2}'),
    Command("c", "file", "credit", "lane", b'{"cents":3}'),
    Command("d", "file", "credit", "", b'{"cents":4}'),
    Command("k1", "api", "credit", "lane", b'{"cents":5}'),
    Command("k2", "api", "credit", "lane", b'{"cents":6}'),
]
INDEXES = {command.operation_id: index for index, command in enumerate(COMMANDS, 4)}
"""Behind the no-op and two activations."""
ROWS = b'{"rows":1}'
SCHEMA = "CREATE TABLE IF NOT EXISTS entries(operation TEXT, lane TEXT, place INTEGER, payload TEXT)"
INSERT = "INSERT INTO entries VALUES (:operation_id, :lane, :log_index, :payload)"


def _answer(place: int) -> bytes:
    return b'{"body":{"place":%d},"status":201}' % place


def _made() -> Iterator[tuple[int, int, Any]]:
    """Term, kind, and what is in it, of every entry."""
    yield 1, EntryKind.NO_OP, None
    for name, guarantee in (("file", "fenced"), ("api", "keyed")):
        yield 1, EntryKind.OUTBOX, Activation(name, FIRST, HOLDERS[FIRST], guarantee)
    for command in COMMANDS:
        yield 1, EntryKind.OUTBOX, command
    yield 1, EntryKind.OUTBOX, _dispatch("file", FIRST, 1, "a", "b")
    yield 1, EntryKind.OUTBOX, _dispatch("api", FIRST, 1, "k1")
    yield 1, EntryKind.OUTBOX, _outcome("file", FIRST, 1, ROWS, "a")
    yield 2, EntryKind.NO_OP, None
    for name, guarantee in (("file", "fenced"), ("api", "keyed")):
        yield 2, EntryKind.OUTBOX, Activation(name, SECOND, HOLDERS[SECOND], guarantee)
    yield 2, EntryKind.OUTBOX, _dispatch("file", SECOND, 2, "b")
    yield 2, EntryKind.OUTBOX, _outcome("file", SECOND, 2, ROWS, "b")
    yield 2, EntryKind.OUTBOX, _dispatch("file", SECOND, 1, "c", "d")
    yield 2, EntryKind.OUTBOX, _outcome("file", SECOND, 1, ROWS, "c", "d")
    yield 2, EntryKind.OUTBOX, _dispatch("api", SECOND, 2, "k1")
    yield 2, EntryKind.OUTBOX, _outcome("api", SECOND, 2, _answer(1), "k1")
    yield 2, EntryKind.OUTBOX, _dispatch("api", SECOND, 1, "k2")
    yield 2, EntryKind.OUTBOX, _outcome("api", SECOND, 1, _answer(3), "k2")


def _dispatch(resource: str, token: FencingToken, attempt: int, *names: str) -> Dispatch:
    return Dispatch(resource, token, [DispatchRow(INDEXES[name], attempt) for name in names])


def _outcome(resource: str, token: FencingToken, attempt: int, result: bytes, *names: str) -> Outcome:
    rows = [OutcomeRow(INDEXES[name], attempt, Verdict.SUCCEEDED, result, "", 0) for name in names]
    return Outcome(resource, token, rows)


def made_entries() -> list[Entry]:
    return [
        Entry(index, term, kind, 1_000 + index, b"" if made is None else encode(made))
        for index, (term, kind, made) in enumerate(_made(), 1)
    ]


def attempt_of(name: str, number: int = 1) -> Attempt:
    command = next(each for each in COMMANDS if each.operation_id == name)
    return Attempt(name, INDEXES[name], 1, command.effect, command.lane, command.payload, digest(command), number)


async def write_file(path: Path) -> None:
    """What both leaders did to the file, by the resource itself."""
    nodes = [
        SqliteResource("file", path, {"credit": SqliteEffect(INSERT)}, cluster_id="cluster", schema=SCHEMA)
        for _ in HOLDERS
    ]
    (old, new), (first, second) = nodes, HOLDERS.items()
    for node in nodes:
        await node.open()
    await old.claim(*first)
    await old.execute(*first, [attempt_of("a"), attempt_of("b")])
    await new.claim(*second)
    await new.execute(*second, [attempt_of("b", 2)])
    try:
        await old.execute(*first, [attempt_of("c")])
    except StaleLeader:
        await new.execute(*second, [attempt_of("c"), attempt_of("d")])
    for node in nodes:
        await node.close()


def keyed_call(name: str, token: FencingToken, place: int, *, replayed: bool = False) -> KeyedCall:
    attempt = attempt_of(name)
    return KeyedCall(
        place,
        name,
        "credit",
        attempt.lane,
        attempt.index,
        attempt.payload,
        token,
        HOLDERS[token],
        replayed,
        _answer(place),
    )


async def record(folder: Path) -> Evidence:
    """What a run with this log leaves, without a fault."""
    path = folder / "file.db"
    await write_file(path)
    entries = made_entries()
    machine = OutboxMachine()
    for entry in entries:
        if entry.kind == EntryKind.OUTBOX:
            machine.apply(entry)
    calls = [
        keyed_call("k1", FIRST, 1),
        keyed_call("k1", SECOND, 1, replayed=True),
        keyed_call("k2", SECOND, 3),
    ]
    return Evidence(
        commands={command.operation_id: command for command in COMMANDS},
        answers={name: (each.state.value, each.result) for name, each in machine.operations.items()},
        entries=entries,
        disagreements=[],
        leaders={1: ["n1"], 2: ["n2"]},
        incarnations={"n1": 1, "n2": 1, "n3": 1},
        resources={
            "file": ResourceRecord("file", Guarantee.FENCED, read_effects(path), read_ledger(path)),
            "api": ResourceRecord("api", Guarantee.KEYED, calls=calls),
        },
        samples=[FenceSample("file", FIRST, FIRST), FenceSample("file", SECOND, SECOND)],
    )
