"""Writes without a token, as a PostgreSQL database can see them: triggers on the tables that effects write to.

Whoever locks the fence's row also says so in a setting that ends with the transaction. A trigger before each statement
that may change a guarded table finds that setting, or counts the statement, or refuses it, whatever program sends it.

A trigger is made under a lock that waits for all who write to its table, and that all who come later wait for. So a
step has a sharp edge: what was written before it has been counted, and what comes after it meets the new trigger.

It is made for programs that were forgotten, not for enemies: whoever owns a table may drop its triggers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from ...core.errors import ConfigurationError
from ..modes import OFF, FenceMode, ModeReport, check_step
from .postgres_effect import Statement
from .postgres_errors import Cause, cause_of, sqlstate
from .postgres_guard_tables import (
    FOLD,
    FORMAT,
    HAS_GUARDS,
    QUOTE,
    READ_COUNTS,
    READ_MODE,
    READ_TABLES,
    READ_WRITTEN,
    SCHEMA,
    WRITE_FORMAT,
    WRITE_MODE,
    WRITE_TABLES,
)
from .postgres_tables import SCHEMA_LOCK

FOLD_AT = 1_000
"""Counted statements that are added up at the next batch; fewer wait for the next claim."""
PATIENCE_MS = 500
"""How long a claim or a batch waits for those who write to a table that has lost its guard. Shorter than the server
takes to look for a deadlock, so no foreign transaction is ended for it."""
_NAME_BYTES_MAX = 63

_log = structlog.get_logger(__name__)


class Guard:
    """The guards of one resource. Its methods are called one at a time, on the resource's connection."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._tables: frozenset[str] = frozenset()
        """What effects write to, as far as it is known, and the parts of it."""
        self._stale = False
        self.seen = OFF

    def forget(self) -> None:
        """A transaction was undone, or may have been: look anew at what stands."""
        self._stale = True

    async def read(self, connection: Any) -> ModeReport:
        """The mode, its counts, and what is guarded."""
        row = await connection.fetchrow(READ_MODE, self._resource) if await connection.fetchval(HAS_GUARDS) else None
        self._stale = False
        if row is None:
            self.seen = OFF
            return OFF
        mode = FenceMode(row["mode"])
        self.seen = ModeReport(mode, row["since_ns"], row["observed_ns"], 0, 0, 0, [], [])
        await self._count(connection)
        await self._look(connection, mode, frozenset(row["tables"]))
        return self.seen

    async def claimed(self, connection: Any, opened: int, statements: Iterable[Statement]) -> None:
        """In a claim's transaction, past the fence: put back the guards that are missing. Whoever has made a table anew
        has lost its guard with it. What cannot be had now is told as unguarded, and holds up no claim."""
        report = await self.read(connection)
        if report.mode is FenceMode.OFF:
            return
        await connection.execute(FOLD, self._resource)
        await connection.execute(f"SET LOCAL lock_timeout = {PATIENCE_MS}")
        await self._stand(connection, report.mode, self._tables | await _planned(connection, opened, statements))

    async def step(
        self,
        connection: Any,
        opened: int,
        statements: Iterable[Statement],
        wanted: FenceMode,
        quiet_ns: int,
        time_ns: Callable[[], int],
    ) -> None:
        """In a transaction past the fence: make the step. Raises :class:`ModeRefused`, and
        :class:`ConfigurationError` where the role may not."""
        try:
            await self._upgrade(connection)
            found = (await self.read(connection)).mode
            # Before anybody is made to wait, and again when all who wrote without a token have committed.
            check_step(self._resource, self.seen, wanted, quiet_ns, time_ns())
            tables = self._tables | await _planned(connection, opened, statements)
            await self._stand(connection, wanted, tables, strictly=True)
            await self._count(connection)
            now_ns = time_ns()
            if check_step(self._resource, self.seen._replace(mode=found), wanted, quiet_ns, now_ns):
                await connection.execute(WRITE_MODE, self._resource, wanted.value, now_ns)
                await connection.execute(WRITE_FORMAT, FORMAT)
            await connection.execute(WRITE_TABLES, self._resource, sorted(self._tables))
            await connection.execute(FOLD, self._resource)
        except Exception as error:
            if sqlstate(error) != "42501":
                raise
            raise ConfigurationError(
                f"resource {self._resource!r}: the database denies what its mode needs: {error}",
                next_step="let the role own the schema fencepost; its tables need the right TRIGGER",
            ) from error

    async def batch_done(self, connection: Any) -> None:
        """In a batch's transaction, after its effects: guard what they were seen to write to, and count."""
        if self._stale:
            await self.read(connection)
        if self.seen.mode is FenceMode.OFF:
            return
        written = {row["name"] for row in await connection.fetch(READ_WRITTEN)}
        if not written <= self._tables:
            await connection.execute(f"SET LOCAL lock_timeout = {PATIENCE_MS}")
            await self._stand(connection, self.seen.mode, self._tables | written)
        if await self._count(connection) >= FOLD_AT:
            await connection.execute(FOLD, self._resource)

    # -- inside ----------------------------------------------------------------------------------------

    async def _upgrade(self, connection: Any) -> None:
        if await connection.fetchval(HAS_GUARDS):
            return
        await connection.execute(f"SELECT pg_advisory_xact_lock({SCHEMA_LOCK})")
        if not await connection.fetchval(HAS_GUARDS):
            await connection.execute(SCHEMA)

    async def _count(self, connection: Any) -> int:
        """Refreshes the counts. How many of them are not added up yet."""
        row = await connection.fetchrow(READ_COUNTS, self._resource)
        self.seen = self.seen._replace(
            unfenced=row["unfenced"], would_reject=row["would_reject"], last_unfenced_ns=row["last_ns"]
        )
        return int(row["fresh"])

    async def _stand(self, connection: Any, mode: FenceMode, tables: frozenset[str], *, strictly: bool = False) -> None:
        """Make the triggers of ``mode`` that are missing. Those of an earlier mode may stay: by name they come later,
        and counts nothing that was refused."""
        name = _trigger_name(self._resource, mode)
        for row in await connection.fetch(READ_TABLES, sorted(tables), name):
            if not row["guardable"] or row["guarded"]:
                continue
            error = await _apart(connection, _trigger(row["name"], name, self._resource, mode))
            if error is None:
                continue
            if strictly and sqlstate(error) != "42501":
                raise error
            _log.warning("table not guarded", resource=self._resource, table=row["name"], reason=str(error))
        before = self._tables
        await self._look(connection, mode, tables)
        if self._tables != before and not strictly:
            await connection.execute(WRITE_TABLES, self._resource, sorted(self._tables))

    async def _look(self, connection: Any, mode: FenceMode, tables: frozenset[str]) -> None:
        rows = await connection.fetch(READ_TABLES, sorted(tables), _trigger_name(self._resource, mode))
        self._tables = tables | {row["name"] for row in rows}
        self.seen = self.seen._replace(
            guarded=[row["name"] for row in rows if row["awake"]],
            unguarded=[row["name"] for row in rows if not row["awake"]],
        )


async def _planned(connection: Any, opened: int, statements: Iterable[Statement]) -> frozenset[str]:
    """The tables that the statements write to themselves. What the server cannot plan yet shows when it is run."""
    found: set[tuple[str, str]] = set()
    for statement in statements:
        await connection.execute("SAVEPOINT plan")
        try:
            await statement.prepare(connection, opened)
            found |= await statement.targets(connection)
        except Exception as error:
            if cause_of(error) is Cause.SERVER:
                raise
        # Undone, to let go of the locks that planning takes.
        await connection.execute("ROLLBACK TO SAVEPOINT plan; RELEASE SAVEPOINT plan")
    schemas, names = [schema for schema, _ in found], [name for _, name in found]
    return frozenset(row["name"] for row in await connection.fetch(QUOTE, schemas, names))


async def _apart(connection: Any, sql: str) -> Exception | None:
    """Run it by itself. The error, where it fails alone."""
    await connection.execute("SAVEPOINT guard")
    try:
        await connection.execute(sql)
    except Exception as error:
        if cause_of(error) is Cause.SERVER:
            raise
        await connection.execute("ROLLBACK TO SAVEPOINT guard; RELEASE SAVEPOINT guard")
        return error
    await connection.execute("RELEASE SAVEPOINT guard")
    return None


def _trigger_name(resource: str, mode: FenceMode) -> str:
    name = f"fencepost_{mode.value}_{resource}"
    if len(name.encode()) <= _NAME_BYTES_MAX:
        return name
    return f"fencepost_{mode.value}_{hashlib.sha256(resource.encode()).hexdigest()[:32]}"


def _trigger(table: str, name: str, resource: str, mode: FenceMode) -> str:
    """BEFORE, so that what is refused has not been looked at by any other trigger of its rows. A statement that
    changes no row counts as well: with others in the table it would."""
    quoted = '"' + name.replace('"', '""') + '"'
    argument = "'" + resource.replace("'", "''") + "'"
    return f"""CREATE TRIGGER {quoted} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table} FOR EACH STATEMENT
        WHEN (pg_catalog.current_setting('fencepost.pass', true) IS DISTINCT FROM pg_catalog.txid_current()::text)
        EXECUTE FUNCTION fencepost.guard({argument}, '{mode.value}')"""
