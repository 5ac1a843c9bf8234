"""A PostgreSQL database as a fenced resource: fence, dedupe and effect in one transaction.

What it promises: each operation takes effect exactly once, as long as the database keeps its fence, whatever
leaders die or sleep. The order within one transaction is cluster, fence, dedupe, lane, effect. An old and a
new leader meet at the row lock of the fence, and whoever comes second sees what the first one left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, ClassVar

import structlog

from ...core.errors import ConfigurationError, FenceError, Outcome, ResourceUnavailable
from ...core.token import FencingToken
from ...ports import Answered, Attempt, AttemptOutcome, AttemptStatus, Fence, Guarantee
from ..modes import FenceMode, ModeReport
from .asking import UNTOLD, answer, still_holds
from .ledger import StoredFence, check_fence, check_kept
from .outcomes import BEHIND, Known, failed, waits
from .postgres_batch import Again, Batch, LaneMark
from .postgres_connection import CommitRefused, PostgresBounds, PostgresConnection
from .postgres_effect import PostgresEffect, Statement
from .postgres_errors import Cause, cause_of
from .postgres_guard import Guard
from .postgres_tables import (
    DELETE_OPERATIONS,
    FIRST_FENCE,
    FORGET_LANES,
    FORGET_REFUSALS,
    LOCK_FENCE,
    LOCK_FIRST_FENCE,
    QUERY,
    RAISE_FENCE,
    READ_FENCE,
    READ_KNOWN,
    READ_NEWEST,
    READ_OLDEST,
    READ_OPERATIONS,
    WRITE_CLAIM,
    WRITE_OPERATIONS,
    WRITE_OPERATIONS_AND_LANES,
    WRITE_REFUSAL,
    Dedupe,
)
from .pruning import Row, Sifted, sift

__all__ = ["Dedupe", "PostgresBounds", "PostgresEffect", "PostgresResource"]

_log = structlog.get_logger(__name__)


LANES_COUNTED_MAX = 10_000


def stored_fence(resource: str, row: Any) -> StoredFence:
    return StoredFence(resource, row["cluster"], FencingToken(row["incarnation"], row["term"]), row["holder"])


class PostgresResource:
    """A resource of kind ``postgres`` (``raft.ports.Resource``).

    ``url`` is ``postgresql://user:password@host:port/database``. ``schema`` is SQL run at every connection, so it
    must be idempotent. With ``dedupe = ordered-lane`` each lane keeps its latest ``lane_results`` operations.
    ``time_ns`` is the wall clock for stamps; tests pass their own.

    ``ResourceUnavailable`` from here has outcome ``retry`` where certainly nothing was applied, and ``unknown``
    only where the answer to COMMIT was lost; either way the same attempts may be sent again, because the ledger
    knows what it has done.
    """

    kind: ClassVar[str] = "postgres"
    refusal_tells: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        url: str,
        effects: Mapping[str, PostgresEffect],
        *,
        cluster_id: str,
        schema: str = "",
        dedupe: Dedupe = Dedupe.TABLE,
        lane_results: int = 256,
        batch_limit: int = 256,
        bounds: PostgresBounds | None = None,
        time_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        if not cluster_id:
            raise ConfigurationError(f"resource {name!r} has no cluster id to fence by")
        self.name = name
        self.effects = frozenset(effects)
        self.batch_limit = batch_limit
        self.concurrency = 1  # All of them meet at the row of the fence; side by side they would only wait for it.
        self.dedupe = dedupe
        self._lane_results = lane_results
        self._cluster_id = cluster_id
        self._statements = {effect: Statement(name, effect, definition.sql) for effect, definition in effects.items()}
        self._connection = PostgresConnection(
            name,
            url,
            schema=schema,
            lanes_ordered=dedupe is Dedupe.ORDERED_LANE,
            bounds=bounds or PostgresBounds(),
        )
        self._time_ns = time_ns
        self._claimed: FencingToken | None = None
        self._holder = ""
        """Who has claimed it."""
        self._pruned = 0
        """Up to where, in the order of acceptance, nothing is left that may go; since the last claim."""
        self._grown: dict[str, int] = {}
        """By lane, what it has done here since it was last made to forget."""
        self._guard = Guard(name)
        self._lock = asyncio.Lock()
        self._checked = 0

    @property
    def guarantee(self) -> Guarantee:
        """``fenced``, or ``keyed`` on a server that may forget what it has said: with it goes the fence."""
        return Guarantee.KEYED if self._connection.shortfall else Guarantee.FENCED

    @property
    def guarantee_reason(self) -> str:
        """Why it is not ``fenced``; empty if it is."""
        return self._connection.shortfall

    @property
    def absence_is_final(self) -> bool:
        """With the fence goes what a claim has barred."""
        return self.guarantee is Guarantee.FENCED

    @property
    def dedupes_by_place(self) -> bool:
        return self.dedupe is Dedupe.ORDERED_LANE

    # -- the port ------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, make the tables, run the schema, let the server check every statement.

        Raises :class:`ConfigurationError` (a statement or the schema is wrong, the password, the database) or
        :class:`ResourceUnavailable` (out of reach, starting, a standby).
        """
        async with self._lock:
            connection = await self._connection.open()
            if self._checked == self._connection.opened:
                return
            for statement in self._statements.values():
                await self._check(connection, statement)
            # Preparing leaves the implicit transaction open until the next request, with its locks.
            await self._connection.settle()
            self._checked = self._connection.opened

    async def _check(self, connection: Any, statement: Statement) -> None:
        try:
            await statement.prepare(connection, self._connection.opened)
        except Exception as error:
            cause = cause_of(error)
            if cause is Cause.MISSING:
                _log.warning(
                    "effect waits for its table", resource=self.name, effect=statement.effect, reason=str(error)
                )
            elif cause in (Cause.STATEMENT, Cause.ATTEMPT):
                raise statement.error(error) from error
            else:
                self._connection.drop()
                raise self._connection.unavailable(error, "cannot be prepared") from error

    async def claim(self, token: FencingToken, holder: str) -> Fence | None:
        async with self._lock, self._refusable() as refusal, self._connection.transaction() as connection:
            stored = await self._locked_fence(connection)
            try:
                await self._pass_fence(connection, stored, token, holder)
            except FenceError as error:
                refusal.append(error)
                await self._record_refusal(connection, error, token, holder, stored, [])
            else:
                await self._guard.claimed(connection, self._connection.opened, self._statements.values())
        self._claimed, self._holder = token, holder
        self._pruned = 0
        return None if stored is None else Fence(stored.token, stored.holder)

    async def execute(self, token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
        if len(attempts) > self.batch_limit:
            raise AssertionError(f"{len(attempts)} attempts for a batch limit of {self.batch_limit}")
        async with self._lock:
            try:
                return await self._transact(token, holder, Batch(attempts, self._statements, careful=False))
            except Again as again:
                contended = again.contended
            except CommitRefused:
                return await self._execute_singly(token, holder, attempts)
            try:
                batch = Batch(attempts, self._statements, careful=True, alone=contended)
                return await self._transact(token, holder, batch)
            except CommitRefused:
                return await self._execute_singly(token, holder, attempts)

    async def query(self, attempt: Attempt) -> Answered:
        row = await self._look(QUERY, self.name, attempt.operation_id, attempt.lane)
        fence = None if row is None else stored_fence(self.name, row)
        claimed = self._claimed
        if claimed is None or not still_holds(self.name, fence, self._cluster_id, claimed, self._holder):
            return UNTOLD
        known = None if row["digest"] is None else Known(row["digest"], row["result"])
        return answer(attempt, known, claimed, (row["forgotten_incarnation"], row["forgotten_index"]))

    async def forget(self, token: FencingToken, holder: str, below: int, limit: int) -> bool:
        """Of ordered lanes it keeps what :meth:`_forget` leaves: a lane's mark says what it holds no longer."""
        sifted = Sifted([], self._pruned, False)
        async with self._lock, self._refusable() as refusal, self._connection.transaction() as connection:
            stored = await self._locked_fence(connection)
            check_kept(self.name, stored, self._claimed)
            try:
                await self._pass_fence(connection, stored, token, holder)
            except FenceError as error:
                refusal.append(error)
                await self._record_refusal(connection, error, token, holder, stored, [])
            else:
                in_lanes = self.dedupe is Dedupe.TABLE
                newest = await connection.fetchval(READ_NEWEST, self.name)
                found = await connection.fetch(READ_OLDEST, self.name, token.incarnation, self._pruned, limit, in_lanes)
                rows = [Row(*row) for row in found]
                sifted = sift(rows, below=below, newest=newest, begin=self._pruned, limit=limit)
                await connection.execute(DELETE_OPERATIONS, self.name, sifted.gone)
        self._pruned = sifted.begin
        return sifted.more

    async def fence(self) -> Fence | None:
        row = await self._look(READ_FENCE, self.name)
        return None if row is None else Fence(FencingToken(row["incarnation"], row["term"]), row["holder"])

    async def _look(self, statement: str, *parameters: Any) -> Any:
        async with self._lock:
            connection = await self._connection.open()
            try:
                return await connection.fetchrow(statement, *parameters)
            except Exception as error:
                self._connection.drop()
                raise self._connection.unavailable(error, "cannot be read") from error
            except BaseException:
                self._connection.drop()
                raise

    # -- modes (``effects.modes.ModalResource``) -----------------------------------------------------

    @property
    def mode_seen(self) -> ModeReport:
        return self._guard.seen

    async def mode(self) -> ModeReport:
        async with self._lock:
            connection = await self._connection.open()
            try:
                return await self._guard.read(connection)
            except Exception as error:
                self._connection.drop()
                raise self._connection.unavailable(error, "cannot be read") from error
            except BaseException:
                self._connection.drop()
                raise

    async def set_mode(self, token: FencingToken, holder: str, mode: FenceMode, quiet_ns: int) -> ModeReport:
        async with self._lock:
            self._guard.forget()
            async with self._refusable() as refusal, self._connection.transaction() as connection:
                stored = await self._locked_fence(connection)
                check_kept(self.name, stored, self._claimed)
                try:
                    await self._pass_fence(connection, stored, token, holder)
                except FenceError as error:
                    refusal.append(error)
                    await self._record_refusal(connection, error, token, holder, stored, [])
                else:
                    statements, opened = self._statements.values(), self._connection.opened
                    await self._guard.step(connection, opened, statements, mode, quiet_ns, self._time_ns)
        report = await self.mode()
        _log.info("fence mode", resource=self.name, mode=report.mode.value, guarded=report.guarded)
        return report

    async def close(self) -> None:
        """Let what is under way end, then hang up. Safe to call twice."""
        async with self._lock:
            await self._connection.close()

    # -- one transaction ---------------------------------------------------------------------------

    async def _transact(self, token: FencingToken, holder: str, batch: Batch) -> list[AttemptOutcome]:
        """One transaction over the batch. Raises :class:`Again` if it must be run once more."""
        try:
            return await self._transact_once(token, holder, batch)
        except BaseException:
            self._guard.forget()
            raise

    async def _transact_once(self, token: FencingToken, holder: str, batch: Batch) -> list[AttemptOutcome]:
        async with self._refusable() as refusal, self._connection.transaction() as connection:
            stored = await self._locked_fence(connection)
            check_kept(self.name, stored, self._claimed)
            try:
                await self._pass_fence(connection, stored, token, holder)
            except FenceError as error:
                # Nothing was written so far: what commits now is the record of the refusal alone.
                refusal.append(error)
                operations = [attempt.operation_id for attempt in batch.attempts]
                await self._record_refusal(connection, error, token, holder, stored, operations)
            else:
                known, marks = await self._known(connection, batch.attempts)
                await batch.run(connection, self._connection.opened, token, known, marks)
                await self._guard.batch_done(connection)
                await self._record(connection, token, holder, batch)
        return batch.outcomes

    async def _execute_singly(
        self, token: FencingToken, holder: str, attempts: Sequence[Attempt]
    ) -> list[AttemptOutcome]:
        """A transaction each: a deferred constraint speaks up only at COMMIT, and does not say for whom."""
        outcomes: list[AttemptOutcome] = []
        blocked: set[str] = set()
        for position, attempt in enumerate(attempts):
            if attempt.lane and attempt.lane in blocked:
                outcomes.append(BEHIND)
                continue
            try:
                (outcome,) = await self._transact(token, holder, Batch([attempt], self._statements, careful=True))
            except CommitRefused as error:
                outcome = failed(error)
            except (FenceError, ResourceUnavailable) as error:
                if not position:
                    raise
                # Earlier ones are decided and must be told of; the next batch will hear the error.
                # One whose commit was not answered may be in: UNKNOWN until the ledger is asked again.
                unknown = error.outcome is Outcome.UNKNOWN
                status = AttemptStatus.UNKNOWN if unknown else AttemptStatus.NOT_ATTEMPTED
                outcomes.append(AttemptOutcome(status, b"", error.message, False))
                return outcomes + [waits(error.message)] * (len(attempts) - position - 1)
            outcomes.append(outcome)
            if outcome.status is not AttemptStatus.SUCCEEDED:
                blocked.add(attempt.lane)
        return outcomes

    @staticmethod
    @contextlib.asynccontextmanager
    async def _refusable() -> AsyncIterator[list[FenceError]]:
        """Raises the refusal put into the list, once its record is committed, or cannot be."""
        refusal: list[FenceError] = []
        try:
            yield refusal
        except (ResourceUnavailable, CommitRefused):
            if not refusal:
                raise
        if refusal:
            raise refusal[0]

    # -- the parts of the transaction --------------------------------------------------------------

    async def _locked_fence(self, connection: Any) -> StoredFence | None:
        """The fence, its row locked until the transaction ends: nobody passes it meanwhile."""
        row = await connection.fetchrow(LOCK_FENCE, self.name)
        if row is None:
            # No row to lock yet: two leaders that come for the first time must still meet.
            await connection.execute(LOCK_FIRST_FENCE, self.name)
            row = await connection.fetchrow(LOCK_FENCE, self.name)
        return None if row is None else stored_fence(self.name, row)

    async def _pass_fence(self, connection: Any, stored: StoredFence | None, token: FencingToken, holder: str) -> None:
        rises = check_fence(self.name, stored, self._cluster_id, token, holder)
        if not rises:
            return
        if stored is not None:
            await connection.execute(RAISE_FENCE, self.name, *token, holder)
        else:
            await connection.execute(FIRST_FENCE, self.name, self._cluster_id, *token, holder)
        await connection.execute(WRITE_CLAIM, self.name, *token, holder, self._time_ns())

    async def _known(
        self, connection: Any, attempts: Sequence[Attempt]
    ) -> tuple[dict[str, Known], dict[str, LaneMark]]:
        """What is applied already, and how far the lanes have come, of all attempts at once."""
        known: dict[str, Known] = {}
        marks: dict[str, LaneMark] = {}
        operation_ids = [attempt.operation_id for attempt in attempts]
        lanes = list(dict.fromkeys(attempt.lane for attempt in attempts if attempt.lane))
        seqscan = self._connection.seqscan
        if not lanes:
            for row in await connection.fetch(READ_OPERATIONS, operation_ids, self.name, seqscan):
                known[row[0]] = Known(row[1], row[2])
            return known, marks
        for row in await connection.fetch(READ_KNOWN, operation_ids, self.name, seqscan, lanes):
            operation_id, digest, result, lane, *places = row
            if lane is None:
                known[operation_id] = Known(digest, result)
            else:
                marks[lane] = LaneMark((places[0], places[1]), (places[2], places[3]))
        return known, marks

    async def _record(self, connection: Any, token: FencingToken, holder: str, batch: Batch) -> None:
        if not batch.applied:
            return
        columns = zip(
            *(
                (each.operation_id, each.digest, each.effect, each.lane, each.index, each.number, result)
                for each, result in batch.applied
            ),
            strict=True,
        )
        row = (self.name, *token, holder, self._time_ns(), *map(list, columns))
        if not batch.lanes:
            await connection.execute(WRITE_OPERATIONS, *row)
            return
        await connection.execute(WRITE_OPERATIONS_AND_LANES, *row, list(batch.lanes), list(batch.lanes.values()))
        if self.dedupe is Dedupe.ORDERED_LANE:
            await self._forget(connection, batch)

    async def _forget(self, connection: Any, batch: Batch) -> None:
        """Give up what lanes hold beyond their latest results: not at every step, which would cost as much as the
        step, but when a lane has gone on by half of them."""
        grown = self._grown
        for attempt, _ in batch.applied:
            if attempt.lane:
                grown[attempt.lane] = grown.get(attempt.lane, 0) + 1
        due = [lane for lane in batch.lanes if grown[lane] * 2 >= self._lane_results]
        if len(grown) > LANES_COUNTED_MAX:
            due = list(grown)
        if due:
            await connection.execute(FORGET_LANES, self.name, due, self._lane_results)
            for lane in due:
                del grown[lane]

    async def _record_refusal(
        self,
        connection: Any,
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
        await connection.execute(
            WRITE_REFUSAL,
            self.name,
            self._time_ns(),
            *token,
            holder,
            *stored.token,
            stored.holder,
            json.dumps(operations),
            error.code,
        )
        await connection.execute(FORGET_REFUSALS)
