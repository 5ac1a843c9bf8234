"""One connection to a PostgreSQL database: bounded in every wait, and dropped when it can no longer be trusted.

The bounds are the server's, set for the session. They hold when this process is frozen, which is when they
are needed: a holder that stands still inside its transaction keeps the fence's row from its successor.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec
import structlog

from ...core.errors import ConfigurationError, Outcome, ResourceUnavailable, StorageFormatUnknown
from .postgres_errors import CONNECT_REFUSED, sqlstate
from .postgres_guard_tables import FORMAT as GUARD_FORMAT
from .postgres_guard_tables import SCHEMA as GUARD_SCHEMA
from .postgres_guard_tables import TOKEN_MISSING
from .postgres_tables import (
    BEGIN,
    HAS_TABLES,
    LANE_INDEX,
    READ_FORMAT,
    SCHEMA,
    SCHEMA_LOCK,
    WRITE_FORMAT,
)

_log = structlog.get_logger(__name__)

ANSWER_MARGIN_S = 2.0
"""How much longer than the server's own bound this side waits for an answer: then the server is gone or frozen."""

JSON_TYPES = frozenset({"json", "jsonb"})
_TEXT_TYPES = (
    *("json", "jsonb", "numeric", "timestamptz", "timestamp", "date", "time", "timetz", "interval"),
    *("inet", "cidr", "bit", "varbit"),
)
"""Types that travel in PostgreSQL's own writing: a payload is JSON and has no dates, and money in a float is wrong."""


@dataclass(frozen=True, slots=True)
class PostgresBounds:
    """How long anything may take, in nanoseconds.

    A frozen holder of the fence is ended by the server after ``idle_ns``, or after ``statement_ns`` and then
    ``idle_ns`` if it was frozen while a statement ran; so long, at most, does its successor wait.
    """

    connect_ns: int = 3_000_000_000
    statement_ns: int = 10_000_000_000
    """One statement, its waits for locks included: ``statement_timeout``."""
    lock_ns: int = 4_000_000_000
    """One wait for a lock: ``lock_timeout``. Longer than ``idle_ns``, so that one claim outlasts a frozen holder."""
    idle_ns: int = 2_000_000_000
    """Between two statements of a transaction: ``idle_in_transaction_session_timeout``."""


class CommitRefused(Exception):
    """COMMIT found a violation (a deferred constraint). Nothing of the transaction was applied."""


class PostgresConnection:
    """``transaction`` is the way in. Not for two tasks at once: whoever holds it has a lock around it."""

    def __init__(self, name: str, url: str, *, schema: str, lanes_ordered: bool, bounds: PostgresBounds) -> None:
        self._name = name
        self._url = url
        self._schema = schema
        self._lanes_ordered = lanes_ordered
        self._bounds = bounds
        self._connection: Any = None
        self.place = _place(url)
        """Where the database is, without the password."""
        self.opened = 0
        """Counts connections; what was prepared on an earlier one is gone."""
        self.shortfall = ""
        """Why an acknowledged commit may be lost by this server; empty if it is not."""
        self.seqscan = "on"
        """What the session says of ``enable_seqscan`` (``on`` or ``off``), where nothing of ours says otherwise."""

    # -- opening -----------------------------------------------------------------------------------

    async def open(self) -> Any:
        """The connection, made if there is none.

        Raises :class:`ConfigurationError` for what an operator has to put right, and
        :class:`ResourceUnavailable` for what may be gone the next time.
        """
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        self.drop()
        connection = await self._connect()
        try:
            await self._set_up(connection)
            await self._check_server(connection)
            await self._make_tables(connection)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        self.opened += 1
        return connection

    async def _connect(self) -> Any:
        asyncpg = _library(self._name)
        bounds = self._bounds
        try:
            return await asyncpg.connect(
                self._url,
                timeout=bounds.connect_ns / 1e9,
                command_timeout=bounds.statement_ns / 1e9 + ANSWER_MARGIN_S,
            )
        except asyncpg.PostgresError as error:
            if sqlstate(error) in CONNECT_REFUSED:
                raise ConfigurationError(
                    f"resource {self._name!r}: {self.place} refuses the connection: {error}",
                    next_step=f"check url or url_env under [resources.{self._name}], and pg_hba.conf",
                ) from error
            raise self.unavailable(error, "takes no connection") from error
        except (OSError, TimeoutError, asyncpg.InterfaceError) as error:
            raise self.unavailable(error, "cannot be reached") from error
        except ValueError:
            # The library's words may quote the address, and with it the password.
            raise ConfigurationError(
                f"resource {self._name!r}: its url is not one of PostgreSQL",
                next_step=f"postgresql://user:password@host:5432/database, in url_env of [resources.{self._name}]",
            ) from None

    async def _set_up(self, connection: Any) -> None:
        """What holds for this session, whatever the server, the database and the role say."""
        bounds = self._bounds
        settings = {
            "statement_timeout": bounds.statement_ns // 1_000_000,
            "lock_timeout": bounds.lock_ns // 1_000_000,
            "idle_in_transaction_session_timeout": bounds.idle_ns // 1_000_000,
            # A peer that takes nothing in: a result too large for the socket must not hold the fence either.
            "tcp_user_timeout": (bounds.statement_ns + bounds.idle_ns) // 1_000_000,
            # A whole machine that stands still in the middle of a request, of which the server awaits the rest.
            "tcp_keepalives_idle": max(1, bounds.idle_ns // 1_000_000_000),
            "tcp_keepalives_interval": 1,
            "tcp_keepalives_count": 3,
            "TimeZone": "'UTC'",
            "DateStyle": "'ISO'",
            "IntervalStyle": "'iso_8601'",
            "application_name": _quoted(f"fencepost {self._name}"),
        }
        if connection.get_server_version() >= (14,):
            # So that a statement of ours ends soon after we have hung up.
            settings["client_connection_check_interval"] = 1000
        # remote_apply is more than `on` and stays; everything less is raised: durable before it answers.
        statements = [f"SET {name} = {value}" for name, value in settings.items()]
        statements.append(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') "
            "NOT IN ('on', 'remote_apply')"
        )
        with self._opening():
            await connection.execute(";".join(statements))
            for kind in _TEXT_TYPES:
                decode = _as_json if kind in JSON_TYPES else str
                await connection.set_type_codec(kind, schema="pg_catalog", encoder=str, decoder=decode, format="text")

    async def settle(self) -> None:
        """End what a request outside of a transaction may have left open."""
        with self._opening():
            await self._connection.execute("SELECT 1")

    async def _check_server(self, connection: Any) -> None:
        with self._opening():
            row = await connection.fetchrow(
                "SELECT pg_is_in_recovery() AS standby, current_setting('fsync') AS fsync, "
                "current_setting('full_page_writes') AS full_page_writes, "
                "current_setting('enable_seqscan') AS enable_seqscan"
            )
        if row["standby"]:
            raise ResourceUnavailable(
                f"resource {self._name!r}: {self.place} is a standby and takes no writes",
                next_step="name the primary in its url, or all of them with target_session_attrs=primary",
                outcome=Outcome.RETRY,
            )
        lacking = [name for name in ("fsync", "full_page_writes") if row[name] == "off"]
        shortfall = ""
        if lacking:
            shortfall = (
                f"the server runs with {' and '.join(lacking)} off: a crash of its machine may undo what it said"
            )
            if shortfall != self.shortfall:
                _log.warning("not durable", resource=self._name, server=self.place, reason=shortfall)
        self.shortfall = shortfall
        self.seqscan = row["enable_seqscan"]

    async def _make_tables(self, connection: Any) -> None:
        with self._opening():
            async with self._short_transaction(connection):
                await connection.execute(f"SELECT pg_advisory_xact_lock({SCHEMA_LOCK})")
                if await connection.fetchval(HAS_TABLES):
                    version = await connection.fetchval(READ_FORMAT)
                    if version is not None and version > GUARD_FORMAT:
                        raise StorageFormatUnknown(
                            f"resource {self._name!r}: {self.place} has tables of format {version}; "
                            f"this version knows {GUARD_FORMAT}",
                            next_step="install the version that wrote it",
                        )
                else:
                    await connection.execute(SCHEMA + GUARD_SCHEMA)
                    await connection.execute(WRITE_FORMAT)
                if self._lanes_ordered:
                    await connection.execute(LANE_INDEX)
                if self._schema:
                    await self._run_schema(connection)

    async def _run_schema(self, connection: Any) -> None:
        try:
            await connection.execute(self._schema)
        except _library(self._name).PostgresError as error:
            if sqlstate(error) == TOKEN_MISSING:
                raise ConfigurationError(
                    f"resource {self._name!r}: its schema writes rows without a token, and its fence is enforced",
                    next_step=f"take what puts rows in out of schema under [resources.{self._name}]",
                ) from error
            if sqlstate(error)[:2] not in ("22", "23", "42", "3F", "P0", "2B", "0A", "25"):
                raise
            raise ConfigurationError(
                f"resource {self._name!r}: its schema fails: {error}",
                next_step=f"correct schema under [resources.{self._name}]; it runs at every connection, in one "
                "transaction, so it must hold where the tables are there already (CREATE TABLE IF NOT EXISTS)",
            ) from error

    @contextlib.asynccontextmanager
    async def _short_transaction(self, connection: Any) -> AsyncIterator[None]:
        await connection.execute(BEGIN)
        yield
        await connection.execute("COMMIT")

    @contextlib.contextmanager
    def _opening(self) -> Any:
        asyncpg = _library(self._name)
        try:
            yield
        except asyncpg.PostgresError as error:
            if sqlstate(error) == "42501":
                raise ConfigurationError(
                    f"resource {self._name!r}: {self.place} denies what is needed: {error}",
                    next_step="let the role create the schema fencepost once, or make it the owner of that schema",
                ) from error
            raise self.unavailable(error, "cannot be prepared") from error
        except (OSError, TimeoutError, asyncpg.InterfaceError) as error:
            raise self.unavailable(error, "cannot be prepared") from error

    # -- using -------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """``BEGIN`` … ``COMMIT``; rolled back on any error.

        Raises :class:`ResourceUnavailable`, with outcome ``retry`` where certainly nothing was
        applied and ``unknown`` where the commit itself failed, and :class:`CommitRefused`.
        """
        asyncpg = _library(self._name)
        connection = await self.open()
        # InternalClientError: the library's own state, when the server hangs up between two of its steps.
        broken = (
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,
            OSError,
            TimeoutError,
        )
        try:
            await connection.execute(BEGIN)
            yield connection
        except broken as error:
            # Nothing is committed before COMMIT is sent. The server undoes the rest when it finds us gone; what was
            # prepared here goes too, which is what an altered table needs.
            self.drop()
            raise self.unavailable(error, "fails") from error
        except (asyncio.CancelledError, GeneratorExit):
            self.drop()
            raise
        except BaseException:
            await self._abandon(connection)
            raise
        await self._commit(connection, broken)

    async def _commit(self, connection: Any, broken: tuple[type[Exception], ...]) -> None:
        try:
            answer = await connection.execute("COMMIT")
        except broken as error:
            if sqlstate(error)[:2] == "23":
                raise CommitRefused(str(error)) from error
            self.drop()
            # A definite answer of the server names what it did not do. No answer: it may be in.
            definite = sqlstate(error) in ("40001", "40P01", "57014", "55P03")
            outcome = Outcome.RETRY if definite else Outcome.UNKNOWN
            raise self.unavailable(error, "failed to commit", outcome=outcome) from error
        except BaseException:
            self.drop()
            raise
        if answer != "COMMIT":
            # A transaction that had failed before ends in ROLLBACK, and the server calls that no error.
            self.drop()
            raise self.unavailable(None, f"answered COMMIT with {answer}")

    async def reading(self) -> Any:
        """The connection, for a single read."""
        return await self.open()

    async def _abandon(self, connection: Any) -> None:
        """Roll back; a connection on which not even that works is dropped."""
        try:
            await connection.execute("ROLLBACK")
        except BaseException:
            self.drop()

    def unavailable(
        self, error: BaseException | None, what: str, *, outcome: Outcome = Outcome.RETRY
    ) -> ResourceUnavailable:
        """For what is no fault of an attempt. The text holds the server's words and never the password."""
        code = sqlstate(error) if error is not None else ""
        why = "" if error is None else f": {str(error) or type(error).__name__}"
        held = code in ("55P03", "57014")
        return ResourceUnavailable(
            f"resource {self._name!r}: {self.place} {what}{why}{f' ({code})' if code else ''}",
            next_step="see who holds the lock (pg_stat_activity, pg_locks); a frozen holder is ended by the server"
            if held
            else "check the server and the way to it",
            outcome=outcome,
        )

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            await connection.close(timeout=1)
        except Exception:
            connection.terminate()


def _library(name: str) -> Any:
    """asyncpg, which is loaded only where a PostgreSQL resource is used."""
    try:
        import asyncpg
    except ImportError as error:
        raise ConfigurationError(
            f"resource {name!r} is of kind postgres, and asyncpg is not installed",
            next_step="pip install 'fencepost[postgres]'",
        ) from error
    return asyncpg


def _place(url: str) -> str:
    try:
        parts = urlsplit(url)
        where = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "the database"
    return f"{where}{parts.path}" if where or parts.path else "the database"


def _as_json(text: str) -> msgspec.Raw:
    """Left as it is, and put into a result as it is: a number in it is not squeezed through a float."""
    return msgspec.Raw(text.encode())


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
