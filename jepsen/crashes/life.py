"""Living a plan: the real stores on a disk, and one acknowledgement for each thing that is durable."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from random import Random

from ...raft.core.errors import StorageError
from ...raft.core.events import Persist
from ...raft.effects.resources.sqlite import SqliteEffect, SqliteResource
from ...raft.effects.resources.sqlite_connection import SqliteConnection
from ...raft.ports import AttemptStatus
from ...storage import segments
from ...storage.disk import Disk
from ...storage.identity import DataDirectory
from ...storage.log_store import FileLogStore
from ...storage.snapshots import FileSnapshotStore
from .plan import (
    CHUNK_BYTES,
    CLUSTER_ID,
    EFFECT,
    NODE_ID,
    RESOURCE,
    VOTERS,
    BreakOff,
    Claim,
    Close,
    Execute,
    Open,
    Plan,
    Receive,
    Remember,
    Seal,
    Step,
    Take,
    Writes,
    contents,
)

SEGMENT_BYTES = 2500
"""Three or four records: a life of a few steps rolls."""

NEVER_S = 1e6

AHEAD_BYTES = 1024
"""So much is written in advance, and not a mebibyte: every state of the disk is a copy of it."""

RESERVE_BYTES = 1024


@contextmanager
def little_in_advance() -> Iterator[None]:
    """While it lasts, segments are written :data:`AHEAD_BYTES` in advance."""
    before = segments.AHEAD_BYTES, segments._ZEROS
    segments.AHEAD_BYTES, segments._ZEROS = AHEAD_BYTES, bytes(AHEAD_BYTES)
    try:
        yield
    finally:
        segments.AHEAD_BYTES, segments._ZEROS = before


Acknowledge = Callable[[int, str], None]
"""Takes how many things have been acknowledged, and what the last one is."""


class Life:
    """One run of a plan. ``resource`` is None where there is no place for a real file.

    ``threaded``: the log is written by its own thread, as in a node; otherwise it is driven by steps,
    and the whole life is one thread's and always the same.
    """

    def __init__(
        self,
        plan: Plan,
        disk: Disk,
        root: Path,
        acknowledge: Acknowledge,
        *,
        resource: Resource | None = None,
        threaded: bool = False,
    ) -> None:
        self._plan = plan
        self._disk = disk
        self._root = root
        self._acknowledge = acknowledge
        self._resource = resource
        self._threaded = threaded
        self._entropy = Random(f"entropy {plan.seed}").randbytes
        self._done = 0

    def run(self) -> None:
        for step in self._plan.steps:
            self._do(step)

    def _durable(self, what: str) -> None:
        self._done += 1
        self._acknowledge(self._done, what)

    def _do(self, step: Step) -> None:
        match step:
            case Open():
                self._open()
            case Close():
                self._store.close()
                self._directory.close()
            case Seal():
                if not self._threaded:
                    self._store.seal()
            case Writes():
                self._write(step)
            case Take(label):
                held = contents(label)
                self._snapshots.write(label, [held[:CHUNK_BYTES], held[CHUNK_BYTES:]])
                self._durable(f"snapshot {label.last_index} {label.last_term}")
            case Receive(label):
                held = contents(label)
                for offset in range(0, len(held), CHUNK_BYTES):
                    self._snapshots.store_chunk(label, offset, held[offset : offset + CHUNK_BYTES])
                if not self._snapshots.finish(label):
                    raise AssertionError(f"the snapshot of index {label.last_index} is not taken")
                self._durable(f"received {label.last_index} {label.last_term}")
            case BreakOff(label):
                self._snapshots.store_chunk(label, 0, contents(label)[:CHUNK_BYTES])
            case Remember(node_id, instance_id):
                self._directory.remember_instance(node_id, instance_id)
                self._durable(f"instance {node_id} {instance_id}")
            case Claim():
                if self._resource is not None:
                    self._resource.claim(step)
                self._durable(f"claim {step.token.incarnation}.{step.token.term}")
            case Execute():
                if self._resource is not None:
                    self._resource.execute(step)
                self._durable(f"executed {' '.join(each.operation_id for each in step.attempts)}")

    def _open(self) -> None:
        self._directory = open_directory(self._disk, self._root, self._entropy)
        self._store, _ = FileLogStore.open(self._directory, segment_bytes=SEGMENT_BYTES, seal_after_s=NEVER_S)
        self._snapshots = FileSnapshotStore.open(self._directory)
        self._sequence = 0
        self._first = 0
        self._ended: SimpleQueue[int | StorageError] = SimpleQueue()
        begin = self._store.start if self._threaded else self._store.start_stepped
        begin(self._on_durable, self._ended.put)
        self._durable(f"open boot {self._directory.boot} instance {self._directory.instance_id}")

    def _on_durable(self, sequence: int) -> None:
        while self._acknowledged < sequence:
            self._acknowledged += 1
            self._durable(f"write {self._acknowledged}")
        self._ended.put(sequence)

    def _write(self, step: Writes) -> None:
        self._acknowledged = self._sequence
        for write in step.writes:
            self._sequence += 1
            entries = list(write.entries)
            self._store.append(
                Persist(
                    self._sequence,
                    write.hard_state,
                    write.truncate_from,
                    entries,
                    write.commit_index,
                    write.reset,
                    write.compact_to,
                )
            )
        while True:
            if not self._threaded:
                self._store.step()
            reached = self._ended.get()
            if isinstance(reached, StorageError):
                raise reached
            if reached == self._sequence:
                return


def open_directory(disk: Disk, root: Path, entropy: Callable[[int], bytes]) -> DataDirectory:
    return DataDirectory.open(
        root,
        cluster_id=CLUSTER_ID,
        node_id=NODE_ID,
        voters=VOTERS,
        disk=disk,
        entropy=entropy,
        reserve_bytes=RESERVE_BYTES,
    )


# -- the resource -----------------------------------------------------------------------------------


class _Alone(SqliteConnection):
    """Keeps the index of its write-ahead log in its own memory and not in a mapped file.

    The index is not part of what a crash leaves: SQLite makes it anew from the log. Everything else
    is written and synced as always.
    """

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        super()._prepare(connection)


SCHEMA = "CREATE TABLE IF NOT EXISTS entries(operation TEXT)"


class Resource:
    """A real :class:`SqliteResource`, called from code that has no loop. A context manager."""

    def __init__(self, path: Path) -> None:
        effects = {EFFECT: SqliteEffect("INSERT INTO entries VALUES (:operation_id)")}
        self._runner = asyncio.Runner()
        self._resource = SqliteResource(
            RESOURCE, path, effects, cluster_id=CLUSTER_ID, schema=SCHEMA, time_ns=lambda: 0
        )
        self._resource._connection = _Alone(RESOURCE, path, schema=SCHEMA, busy_timeout_ms=0)

    def __enter__(self) -> Resource:
        self._runner.run(self._resource.open())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._resource.close())
        self._runner.close()

    def claim(self, step: Claim) -> None:
        self._runner.run(self._resource.claim(step.token, NODE_ID))

    def execute(self, step: Execute) -> None:
        outcomes = self._runner.run(self._resource.execute(step.token, NODE_ID, step.attempts))
        if any(outcome.status is not AttemptStatus.SUCCEEDED for outcome in outcomes):
            raise AssertionError(f"not all of {step.attempts} succeeded: {outcomes}")
