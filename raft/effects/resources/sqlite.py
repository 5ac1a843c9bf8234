"""A SQLite database as a fenced resource: fence, dedupe and effect in one transaction.

What it promises: each operation takes effect exactly once, as long as the
file keeps its fence, whatever leaders die or sleep. The order within one ``BEGIN IMMEDIATE`` is
cluster, fence, dedupe, lane, effect. An old and a new leader in two processes meet at SQLite's
write lock, and whoever comes second sees what the first one left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar, TypeVar

import structlog

from ...core.errors import ConfigurationError, FenceError, Outcome, ResourceUnavailable
from ...core.token import FencingToken
from ...ports import Answered, Attempt, AttemptOutcome, AttemptStatus, Fence, Guarantee
from ..modes import FenceMode, ModeReport, check_step
from .asking import UNTOLD, answer, still_holds
from .ledger import StoredFence, check_fence, check_kept
from .outcomes import BEHIND, Known
from .pruning import Sifted
from .sqlite_batch import Again, Batch
from .sqlite_connection import CommitRefused, SqliteConnection
from .sqlite_effect import SqliteEffect, Statement, check_all
from .sqlite_guard import Guard
from .sqlite_records import delete_operations, write_operations, write_refusal
from .sqlite_tables import (
    READ_FENCE,
    READ_LANES,
    READ_OPERATION,
    READ_OPERATIONS,
    WRITE_CLAIM,
    WRITE_FENCE,
    WRITE_LANE,
)

__all__ = ["SqliteEffect", "SqliteResource"]

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class SqliteResource:
    """A resource of kind ``sqlite`` (``raft.ports.Resource``).

    ``schema`` is SQL run at every open, so it must be idempotent (``CREATE TABLE IF NOT EXISTS``).
    ``busy_timeout_ms`` bounds every wait for another process's lock. ``pause`` and ``time_ns`` are
    the thread's sleep (seconds) and the wall clock for stamps; tests pass their own.

    One limit is SQLite's own: a process that is frozen *inside* a transaction keeps the write lock
    until it wakes or dies. Nothing is applied twice for it, but nobody else can claim meanwhile.

    ``ResourceUnavailable`` from here has outcome ``retry`` where certainly nothing was applied, and
    ``unknown`` only where a commit failed half-way; either way the same attempts may be sent again,
    because the ledger knows what it has done.
    """

    kind: ClassVar[str] = "sqlite"
    absence_is_final: ClassVar[bool] = True
    dedupes_by_place: ClassVar[bool] = False
    refusal_tells: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        path: Path | str,
        effects: Mapping[str, SqliteEffect],
        *,
        cluster_id: str,
        schema: str = "",
        batch_limit: int = 512,
        busy_timeout_ms: int = 2_000,
        pause: Callable[[float], None] = time.sleep,
        time_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        if not cluster_id:
            raise ConfigurationError(f"resource {name!r} has no cluster id to fence by")
        self.name = name
        self.guarantee = Guarantee.FENCED
        self.effects = frozenset(effects)
        self.batch_limit = batch_limit
        self.concurrency = 1  # SQLite has one writer; side by side they would only wait for it.
        self._cluster_id = cluster_id
        self._effects = dict(effects)
        self._statements = {effect: Statement(name, effect, definition.sql) for effect, definition in effects.items()}
        self._connection = SqliteConnection(name, Path(path).absolute(), schema=schema, busy_timeout_ms=busy_timeout_ms)
        self._pause = pause
        self._time_ns = time_ns
        self._claimed_generation = 0
        self._claimed: FencingToken | None = None
        self._holder = ""
        """Who has claimed it."""
        self._pruned = 0
        """Up to where, in the order of acceptance, nothing is left that may go; since the last claim."""
        self._guard = Guard(name)
        # One thread of its own: sqlite3 blocks, and must block neither a loop nor the default pool.
        self._thread: ThreadPoolExecutor | None = None

    # -- the port: a thin asyncio shell ---------------------------------------------------------------

    async def open(self) -> None:
        """Open or create the file, run the schema, check every statement.

        Raises :class:`ConfigurationError` (a statement or the schema is wrong, the directory is
        missing, the file is no database) or :class:`ResourceUnavailable` (locked, disk trouble).
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"resource-{self.name}")
        missing = await self._call(self._open)
        for effect, why in missing.items():
            _log.warning("effect waits for its table", resource=self.name, effect=effect, reason=why)

    async def claim(self, token: FencingToken, holder: str) -> Fence | None:
        return await self._call(lambda: self._claim(token, holder))

    async def execute(self, token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
        if len(attempts) > self.batch_limit:
            raise AssertionError(f"{len(attempts)} attempts for a batch limit of {self.batch_limit}")
        return await self._call(lambda: self._execute(token, holder, attempts))

    async def fence(self) -> Fence | None:
        return await self._call(self._read_fence)

    async def query(self, attempt: Attempt) -> Answered:
        return await self._call(lambda: self._query(attempt))

    async def forget(self, token: FencingToken, holder: str, below: int, limit: int) -> bool:
        return await self._call(lambda: self._forget(token, holder, below, limit))

    # -- modes (``effects.modes.ModalResource``) -----------------------------------------------------

    @property
    def mode_seen(self) -> ModeReport:
        return self._guard.seen

    async def mode(self) -> ModeReport:
        return await self._call(self._read_mode)

    async def set_mode(self, token: FencingToken, holder: str, mode: FenceMode, quiet_ns: int) -> ModeReport:
        return await self._call(lambda: self._set_mode(token, holder, mode, quiet_ns))

    async def close(self) -> None:
        """Let what is under way end, then release the file. Safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        await asyncio.get_running_loop().run_in_executor(thread, self._connection.drop)
        thread.shutdown(wait=False)

    async def _call(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            raise ResourceUnavailable(f"resource {self.name!r} is not open", outcome=Outcome.RETRY)
        # Cancelling the wait does not stop the thread: the effect under way ends, and the next call
        # queues behind it. Nothing of one resource ever runs side by side.
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # -- on the thread -----------------------------------------------------------------------------

    def _open(self) -> dict[str, str]:
        connection = self._connection.open(create=self._connection.generation == 0)
        return check_all(connection, self._statements.values())

    def _read_fence(self) -> Fence | None:
        with self._connection.snapshot() as connection:
            stored = self._stored_fence(connection)
        return None if stored is None else Fence(stored.token, stored.holder)

    def _query(self, attempt: Attempt) -> Answered:
        with self._connection.snapshot() as connection:
            self._check_claimed()
            stored = self._stored_fence(connection)
            known = self._known(connection, [attempt]).get(attempt.operation_id)
        claimed = self._claimed
        if claimed is None or not still_holds(self.name, stored, self._cluster_id, claimed, self._holder):
            return UNTOLD
        return answer(attempt, known, claimed)

    def _forget(self, token: FencingToken, holder: str, below: int, limit: int) -> bool:
        sifted = Sifted([], self._pruned, False)
        with self._refusable() as refusal, self._connection.transaction() as connection:
            self._check_claimed()
            stored = self._stored_fence(connection)
            check_kept(self.name, stored, self._claimed)
            try:
                self._pass_fence(connection, stored, token, holder)
            except FenceError as error:
                refusal.append(error)
                self._record_refusal(connection, error, token, holder, stored, [])
            else:
                sifted = delete_operations(
                    connection, self.name, token.incarnation, below=below, begin=self._pruned, limit=limit
                )
        self._pruned = sifted.begin
        return sifted.more

    def _tables(self) -> frozenset[str]:
        """What the effects write to, as far as their statements could be checked so far."""
        return frozenset().union(*(statement.tables for statement in self._statements.values()))

    def _read_mode(self) -> ModeReport:
        with self._connection.snapshot() as connection:
            return self._guard.report(connection, self._tables())

    def _set_mode(self, token: FencingToken, holder: str, mode: FenceMode, quiet_ns: int) -> ModeReport:
        with self._refusable() as refusal, self._connection.transaction() as connection:
            self._check_claimed()
            stored = self._stored_fence(connection)
            try:
                self._pass_fence(connection, stored, token, holder)
            except FenceError as error:
                refusal.append(error)
                self._record_refusal(connection, error, token, holder, stored, [])
            else:
                now_ns = self._time_ns()
                if check_step(self.name, self._guard.read(connection), mode, quiet_ns, now_ns):
                    self._guard.set(connection, mode, now_ns)
                    self._guard.stand(connection, self._tables())
        report = self._read_mode()
        _log.info("fence mode", resource=self.name, mode=report.mode.value, guarded=report.guarded)
        return report

    def _stored_fence(self, connection: sqlite3.Connection) -> StoredFence | None:
        row = connection.execute(READ_FENCE, (self.name,)).fetchone()
        if row is None:
            return None
        cluster, incarnation, term, holder = row
        return StoredFence(self.name, cluster, FencingToken(incarnation, term), holder)

    def _claim(self, token: FencingToken, holder: str) -> Fence | None:
        with self._refusable() as refusal, self._connection.transaction() as connection:
            stored = self._stored_fence(connection)
            try:
                self._pass_fence(connection, stored, token, holder)
            except FenceError as error:
                refusal.append(error)
                self._record_refusal(connection, error, token, holder, stored, [])
            else:
                # Whoever has made a table anew has lost its guards with it.
                self._guard.forget()
                if self._guard.enter(connection, self._tables()):
                    self._guard.leave(connection)
        self._claimed_generation = self._connection.generation
        self._claimed, self._holder = token, holder
        self._pruned = 0
        return None if stored is None else Fence(stored.token, stored.holder)

    def _execute(self, token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
        self._think(attempts)
        try:
            return self._transact(token, holder, Batch(attempts, self._statements, careful=False))
        except Again:
            pass
        except CommitRefused:
            return self._execute_singly(token, holder, attempts)
        try:
            return self._settle(token, holder, Batch(attempts, self._statements, careful=True))
        except CommitRefused:
            return self._execute_singly(token, holder, attempts)

    def _think(self, attempts: Sequence[Attempt]) -> None:
        """The declared pause, before the transaction: a frozen holder must not hold the write lock."""
        known = self._effects
        pause_ns = max((known[attempt.effect].think_ns for attempt in attempts if attempt.effect in known), default=0)
        if pause_ns:
            self._pause(pause_ns / 1e9)

    def _settle(self, token: FencingToken, holder: str, batch: Batch) -> list[AttemptOutcome]:
        """Rounds until one commits. Each that does not has decided at least one attempt for good."""
        while True:
            try:
                return self._transact(token, holder, batch)
            except Again:
                continue

    def _execute_singly(self, token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
        """A transaction each: a deferred constraint speaks up only at COMMIT, and does not say for whom."""
        outcomes: list[AttemptOutcome] = []
        blocked: set[str] = set()
        for position, attempt in enumerate(attempts):
            if attempt.lane and attempt.lane in blocked:
                outcomes.append(BEHIND)
                continue
            try:
                (outcome,) = self._settle(token, holder, Batch([attempt], self._statements, careful=True))
            except CommitRefused as error:
                outcome = AttemptOutcome(AttemptStatus.FAILED, b"", str(error), False)
            except (FenceError, ResourceUnavailable) as error:
                if not position:
                    raise
                # Earlier ones are decided and must be told of; the next batch will hear the error.
                # One whose commit failed half-way may be in: UNKNOWN until the ledger is asked again.
                unknown = error.outcome is Outcome.UNKNOWN
                status = AttemptStatus.UNKNOWN if unknown else AttemptStatus.NOT_ATTEMPTED
                outcomes.append(AttemptOutcome(status, b"", error.message, False))
                rest = AttemptOutcome(AttemptStatus.NOT_ATTEMPTED, b"", error.message, False)
                return outcomes + [rest] * (len(attempts) - position - 1)
            outcomes.append(outcome)
            if outcome.status is not AttemptStatus.SUCCEEDED:
                blocked.add(attempt.lane)
        return outcomes

    def _transact(self, token: FencingToken, holder: str, batch: Batch) -> list[AttemptOutcome]:
        """One transaction over the batch. Raises :class:`Again` if it must be run once more."""
        try:
            return self._transact_once(token, holder, batch)
        except BaseException:
            self._guard.forget()
            raise

    def _transact_once(self, token: FencingToken, holder: str, batch: Batch) -> list[AttemptOutcome]:
        with self._refusable() as refusal, self._connection.transaction() as connection:
            self._check_claimed()
            stored = self._stored_fence(connection)
            # The file may be the same and hold an old copy: a restore writes into the one that is there.
            check_kept(self.name, stored, self._claimed)
            try:
                self._pass_fence(connection, stored, token, holder)
            except FenceError as error:
                # Nothing was written so far: what commits now is the record of the refusal alone.
                refusal.append(error)
                operations = [attempt.operation_id for attempt in batch.attempts]
                self._record_refusal(connection, error, token, holder, stored, operations)
            else:
                known = self._known(connection, batch.attempts)
                passes = self._guard.enter(connection, self._tables())
                batch.run(connection, token, known, self._lane_marks(connection, batch.attempts))
                if passes:
                    self._guard.leave(connection)
                self._record(connection, token, holder, batch)
        return batch.outcomes

    @staticmethod
    @contextlib.contextmanager
    def _refusable() -> Iterator[list[FenceError]]:
        """Raises the refusal put into the list, once its record is committed, or cannot be."""
        refusal: list[FenceError] = []
        try:
            yield refusal
        except (ResourceUnavailable, CommitRefused):
            if not refusal:
                raise
        if refusal:
            raise refusal[0]

    def _check_claimed(self) -> None:
        """A file that took the place of the one in use must be claimed again first (rule 5)."""
        if self._connection.generation > max(self._claimed_generation, 1):
            raise ResourceUnavailable(
                f"resource {self.name!r}: its file was replaced, and has not been claimed since",
                next_step="nothing: it is claimed again before it is used",
                outcome=Outcome.RETRY,
            )

    # -- the parts of the transaction --------------------------------------------------------------

    def _pass_fence(
        self, connection: sqlite3.Connection, stored: StoredFence | None, token: FencingToken, holder: str
    ) -> None:
        if check_fence(self.name, stored, self._cluster_id, token, holder):
            connection.execute(WRITE_FENCE, (self.name, self._cluster_id, *token, holder))
            connection.execute(WRITE_CLAIM, (self.name, *token, holder, self._time_ns()))

    def _known(self, connection: sqlite3.Connection, attempts: Sequence[Attempt]) -> dict[str, Known]:
        """What is applied already, of all attempts at once."""
        if len(attempts) == 1:
            rows = connection.execute(READ_OPERATION, (attempts[0].operation_id, self.name))
        else:
            ids = json.dumps([attempt.operation_id for attempt in attempts])
            rows = connection.execute(READ_OPERATIONS, (ids, self.name))
        return {operation_id: Known(digest, result) for operation_id, digest, result in rows}

    def _lane_marks(self, connection: sqlite3.Connection, attempts: Sequence[Attempt]) -> dict[str, tuple[int, int]]:
        lanes = {attempt.lane for attempt in attempts if attempt.lane}
        if not lanes:
            return {}
        rows = connection.execute(READ_LANES, (self.name, json.dumps(list(lanes))))
        return {lane: (incarnation, log_index) for lane, incarnation, log_index in rows}

    def _record(self, connection: sqlite3.Connection, token: FencingToken, holder: str, batch: Batch) -> None:
        write_operations(connection, self.name, token, holder, batch.applied, self._time_ns())
        connection.executemany(WRITE_LANE, [(self.name, lane, *place) for lane, place in batch.lanes.items()])

    def _record_refusal(
        self,
        connection: sqlite3.Connection,
        error: FenceError,
        token: FencingToken,
        holder: str,
        stored: StoredFence | None,
        operations: list[str],
    ) -> None:
        """Keep the proof where the fence is. The refusal stands even if this cannot be written."""
        _log.warning(
            "refused at the fence", resource=self.name, code=error.code, token=str(token), operations=len(operations)
        )
        if stored is None or stored.cluster != self._cluster_id:
            return  # Another cluster's ledger is not ours to write into.
        write_refusal(connection, stored, token, holder, operations, error.code, self._time_ns())
