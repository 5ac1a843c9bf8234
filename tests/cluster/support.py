"""What the tests with real processes share: resources, a client under load, and an audit of the files."""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.cli.demo.evidence import committed_entries, replay
from fencepost.cli.local_cluster import LocalCluster, node_command
from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.errors import FencepostError
from fencepost.raft.effects.resources.audit import check_ledger, read_ledger
from fencepost.raft.node.applier import Applier
from fencepost.raft.node.plainlog import PlainLog
from fencepost.raft.outbox.codec import Command
from fencepost.raft.outbox.machine import OutboxMachine
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.ports import Answer, Wait
from fencepost.storage.disk import RealDisk
from fencepost.storage.identity import DataDirectory, read_identity
from fencepost.storage.reader import read_log
from fencepost.storage.snapshots import FileSnapshotStore
from fencepost.transport.client import Client

from ..cli.running import environment

NODES = ("n1", "n2", "n3")

LEDGER = """
[resources.ledger]
kind = "sqlite"
path = "ledger.db"
# No unique key: the table itself keeps nothing from standing in it twice.
schema = "CREATE TABLE IF NOT EXISTS entries(operation TEXT, lane TEXT, cents INTEGER)"
[resources.ledger.effects.credit]
sql = "INSERT INTO entries VALUES (:operation_id, :lane, :cents)"
[resources.ledger.effects.paced]
sql = "INSERT INTO entries VALUES (:operation_id, :lane, :cents)"
think = "5ms"
[resources.ledger.effects.slow]
sql = "INSERT INTO entries VALUES (:operation_id, :lane, :cents)"
think = "1200ms"
[resources.ledger.effects.endless]
sql = "INSERT INTO entries VALUES (:operation_id, :lane, :cents)"
think = "10m"
"""

FAST = """
[raft]
election_timeout = "500ms"
heartbeat = "50ms"
"""
"""For tests that measure no time: elections take half as long."""


def credit(name: str, effect: str = "credit", lane: str = "", cents: int = 1) -> Command:
    return Command(name, "ledger", effect, lane, json.dumps({"cents": cents}).encode())


def endless(prefix: str = "op") -> Iterator[Command]:
    """Commands without end, none of them instant, so that there are thousands in a minute and not millions."""
    return (credit(f"{prefix}-{number}", "paced") for number in itertools.count())


Commands = Iterable[Command] | AsyncIterable[Command]


class Load:
    """Commands submitted through one client, a few at a time; what each was answered, and when.

    An async context manager: leaving it ends the submitting.
    """

    def __init__(self, client: Client, commands: Commands, *, wait: Wait = Wait.DONE, window: int = 8) -> None:
        self.answers: dict[str, Answer] = {}
        self.errors: dict[str, FencepostError] = {}
        self.longest_gap_s = 0.0
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(client, commands, wait, window))

    async def __aenter__(self) -> Load:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, client: Client, commands: Commands, wait: Wait, window: int) -> None:
        before = time.monotonic()
        async for command, result in client.submit_many(commands, wait=wait, window=window):
            now = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now - before)
            before = now
            if isinstance(result, Answer):
                self.answers[command.operation_id] = result
            else:
                self.errors[command.operation_id] = result
            self._changed.set()

    async def answered(self, count: int, *, within_s: float = 60.0) -> None:
        """Wait until ``count`` commands have been answered, or the load has ended."""
        async with asyncio.timeout(within_s):
            while len(self.answers) + len(self.errors) < count and not self._task.done():
                self._changed.clear()
                await self._changed.wait()

    async def finished(self, *, within_s: float = 120.0) -> None:
        async with asyncio.timeout(within_s):
            await self._task


# -- after the fact -----------------------------------------------------------------------------------


class Found(NamedTuple):
    """What is on disk when every process has ended."""

    machine: OutboxMachine
    entries: list[tuple[str, str, int]]
    """The application's own table: operation, lane, cents, in the order of the effects."""
    problems: list[str]
    """Everything that may never be, one sentence each."""


def audit(
    cluster: LocalCluster, acknowledged: Iterable[str], *, table: str = "entries", voters: Sequence[str] = ()
) -> Found:
    """Read ledger and logs of a cluster that has ended and look for what may never be:
    an acknowledged command that is not committed or did not take effect, one that took effect twice,
    a lower token after a higher one, a lane out of order, logs that disagree, terms that restart,
    a snapshot that is not the state that the others have come to.

    ``voters`` are those at the end, where they are not all nodes."""
    assert not cluster.running()
    ledger = read_ledger(cluster.folder / "ledger.db")
    logs = {node: read_log(cluster.data_path(node)) for node in voters or cluster.nodes}
    committed, problems = committed_entries(logs)
    machines = {node: _state(cluster, node, committed) for node in logs}
    if len({machine.state_hash() for machine in machines.values()}) != 1:
        problems.append(f"{', '.join(machines)} do not come to the same state")
    machine = next(iter(machines.values()))
    rows = read_table(cluster.folder / "ledger.db", table)
    effects = Counter(row[0] for row in rows)
    accepted = {operation.operation_id: operation for operation in ledger.operations}
    problems = [*problems, *check_ledger(ledger)]
    problems += [f"{name} took effect {count} times" for name, count in effects.items() if count != 1]
    for name in acknowledged:
        if name not in machine.operations:
            problems.append(f"{name} was acknowledged and is not committed")
    for name, operation in machine.operations.items():
        if operation.state is OperationState.SUCCEEDED:
            row = accepted.get(name)
            if effects[name] != 1 or row is None or row.digest != operation.digest:
                problems.append(f"{name} succeeded by the log; the ledger has {effects[name]} effects of it, and {row}")
    problems += [f"{name} took effect and is not committed" for name in effects if name not in machine.operations]
    terms = [entry.term for entry in committed]
    if terms != sorted(terms):
        problems.append(f"terms in the log go back: {terms}")
    return Found(machine, rows, problems)


def _state(cluster: LocalCluster, node: str, committed: list[Entry]) -> OutboxMachine:
    """The state after the last of ``committed``, from this node's newest snapshot on, if it has one."""
    identity = read_identity(RealDisk(), cluster.data_path(node))
    directory = DataDirectory.open(
        cluster.data_path(node), cluster_id=identity.cluster_id, node_id=node, voters=identity.voters
    )
    try:
        store = FileSnapshotStore.open(directory)
        snapshot = store.newest()
        if snapshot is None:
            return replay(committed)
        machine = OutboxMachine()
        applier = Applier({EntryKind.OUTBOX: machine, EntryKind.EMBEDDED: PlainLog()})
        applier.adopt(applier.prepare(store.contents(snapshot)), snapshot.last_index)
        rest = [entry for entry in committed if entry.index > snapshot.last_index]
        assert [entry.index for entry in rest[:1]] in ([], [snapshot.last_index + 1])
        if rest:  # Else the snapshot is of the very last entry.
            applier.apply(rest)
        return machine
    finally:
        directory.close()


def read_table(path: Path, table: str) -> list[tuple[str, str, int]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()


def unfinished(machine: OutboxMachine) -> list[str]:
    succeeded = OperationState.SUCCEEDED
    return [f"{name} is {each.state}" for name, each in machine.operations.items() if each.state is not succeeded]


# -- the command --------------------------------------------------------------------------------------


class Ran(NamedTuple):
    code: int
    stdout: str
    stderr: str

    def document(self) -> dict[str, Any]:
        """The JSON document on stdout."""
        found: dict[str, Any] = json.loads(self.stdout)
        return found

    def error(self) -> dict[str, Any]:
        """The JSON error on stderr."""
        documents = [json.loads(line) for line in self.stderr.splitlines() if line.startswith("{")]
        found: dict[str, Any] = next(document["error"] for document in documents if document["kind"] == "Error")
        return found


async def fencepost(*arguments: str, cwd: Path | None = None, within_s: float = 60.0) -> Ran:
    """The command in a process of its own, as a user types it."""
    process = await start_fencepost(*arguments, cwd=cwd)
    async with asyncio.timeout(within_s):
        stdout, stderr = await process.communicate()
    assert process.returncode is not None
    return Ran(process.returncode, stdout.decode(), stderr.decode())


async def start_fencepost(
    *arguments: str, cwd: Path | None = None, stdin: int = asyncio.subprocess.DEVNULL
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *node_command(),
        *arguments,
        cwd=cwd,
        env=environment(),
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def endpoints(cluster: LocalCluster, nodes: Sequence[str] = ()) -> str:
    return ",".join(cluster.endpoints[node] for node in nodes or cluster.nodes)
