"""The statements of a SQLite resource: checked once, bound to payloads by name."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from ...core.errors import ConfigurationError
from ...outbox.codec import canonical_json
from ...ports import Attempt
from .outcomes import RESULT_BYTES_MAX
from .sqlite_guard import GUARD_PREFIX
from .sqlite_tables import TABLE_PREFIX

BUILT_IN = frozenset({"operation_id", "lane", "log_index", "payload"})
"""Parameters that every statement has besides the keys of the payload, which they win over."""

_STATEMENTS = ("INSERT", "REPLACE", "UPDATE", "DELETE", "SELECT", "WITH")
_FIRST_WORD = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*([A-Za-z]+)", re.DOTALL)
_WRITES = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
_ROWS = [b'{"rows":%d}' % count for count in range(16)]


@dataclass(frozen=True, slots=True)
class SqliteEffect:
    """One effect: a statement with named parameters, ``INSERT INTO entries VALUES (:account, :cents)``.

    ``think_ns`` is a declared pause before the transaction, for demonstrations, in nanoseconds.
    """

    sql: str
    think_ns: int = 0


class NotBindable(Exception):
    """This payload does not fit this statement, and never will."""


class TableMissing(Exception):
    """The statement names a table or column that is not there, or not yet."""


class Statement:
    """An effect's statement as one connection knows it."""

    def __init__(self, resource: str, effect: str, sql: str) -> None:
        self.resource = resource
        self.effect = effect
        self.sql = sql
        self._names: list[str] | None = None
        self._needs_payload = True
        self.tables: frozenset[str] = frozenset()
        """Tables that it writes to, also by triggers, as far as it is checked."""

    @property
    def checked(self) -> bool:
        return self._names is not None

    def check_again(self, connection: sqlite3.Connection) -> None:
        self._names = None
        self.check(connection)

    def check(self, connection: sqlite3.Connection) -> None:
        """Compile the statement without running it.

        Raises :class:`ConfigurationError` if it can never work, :class:`TableMissing` if what it
        names does not exist yet: a table may be created later, and until then commands wait.
        """
        if self._names is not None:
            return
        first = _FIRST_WORD.match(self.sql)
        if first is None or first[1].upper() not in _STATEMENTS:
            # Anything else could end the transaction that fence, dedupe and effect share.
            raise self._error(f"it must be one statement that starts with {', '.join(_STATEMENTS)}")
        names = _Names()
        authorizer = _Authorizer()
        connection.set_authorizer(authorizer)
        try:
            connection.execute(f"EXPLAIN {self.sql}", names).close()
        except sqlite3.OperationalError as error:
            if str(error).startswith(("no such table", "no such column")) or " has no column " in str(error):
                raise TableMissing(str(error)) from error
            raise self._error(str(error)) from error
        except (sqlite3.DatabaseError, sqlite3.Warning) as error:
            raise self._error(_in_our_words(error)) from error
        finally:
            connection.set_authorizer(None)
        self._names = names.found
        self.tables = frozenset(authorizer.written)
        self._needs_payload = not BUILT_IN.issuperset(names.found)

    def _error(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"resource {self.resource!r}, effect {self.effect!r}: the SQL is not usable: {why}",
            tried=(self.sql.strip(),),
            next_step=f"correct sql under [resources.{self.resource}.effects.{self.effect}]",
        )

    def bind(self, attempt: Attempt) -> dict[str, Any]:
        """The statement's parameters from a payload. Raises :class:`NotBindable`, naming what is missing."""
        if self._names is None:
            raise AssertionError("bind before check")
        values = _decode_object(attempt.payload) if self._needs_payload else {}
        parameters: dict[str, Any] = {}
        for name in self._names:
            if name in BUILT_IN:
                parameters[name] = _built_in(name, attempt)
                continue
            if name not in values:
                known = ", ".join(sorted(values)) or "no keys"
                raise NotBindable(f"the payload has no {name!r}, which the SQL needs as :{name} (it has {known})")
            value = values[name]
            if isinstance(value, dict | list):
                value = canonical_json(value).decode()
            elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
                raise NotBindable(f"{name!r} is {value}, which does not fit into 64 bits")
            parameters[name] = value
        return parameters

    def run(self, connection: sqlite3.Connection, parameters: dict[str, Any]) -> bytes:
        """Run once and return the result as JSON: the row of a RETURNING, or ``{"rows": count}``."""
        cursor = connection.execute(self.sql, parameters)
        if cursor.description is None:
            count = cursor.rowcount
            if count < 0:  # The sqlite3 module does not count for statements that start with WITH.
                (count,) = connection.execute("SELECT changes()").fetchone()
            return _ROWS[count] if count < len(_ROWS) else b'{"rows":%d}' % count
        columns = [column[0] for column in cursor.description]
        # Drawn to its end: a statement that is still open would keep the transaction from ending.
        rows = [dict(zip(columns, row, strict=True)) for row in cursor]
        if not rows:
            return _ROWS[0]
        result = msgspec.json.encode(rows[0] if len(rows) == 1 else rows)
        if len(result) > RESULT_BYTES_MAX:
            raise NotBindable(f"a result of {len(result)} bytes; the limit is {RESULT_BYTES_MAX} bytes")
        return result


class _Names(dict[str, None]):
    """Stands in for parameters while a statement is compiled, and learns their names."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __missing__(self, name: str) -> None:
        if name not in self.found:
            self.found.append(name)


class _Authorizer:
    """Keeps a statement off our tables, and learns to which others it writes."""

    def __init__(self) -> None:
        self.written: set[str] = set()

    def __call__(
        self, action: int, table: str | None, _column: str | None, database: str | None, trigger: str | None
    ) -> int:
        if action not in _WRITES or table is None:
            return sqlite3.SQLITE_OK
        if not table.lower().startswith(TABLE_PREFIX):
            if database == "main" and not table.lower().startswith("sqlite_"):
                self.written.add(table)
            return sqlite3.SQLITE_OK
        # The guards of the table that it writes to count there (sqlite_guard).
        return sqlite3.SQLITE_OK if trigger is not None and trigger.startswith(GUARD_PREFIX) else sqlite3.SQLITE_DENY


def _in_our_words(error: Exception) -> str:
    text = str(error)
    if "one statement at a time" in text:
        return "it is more than one statement (a trigger can do the rest)"
    if "has no name" in text:
        return "its parameters must have names, as in :account"
    if "not authorized" in text:
        return f"it writes to a table of fencepost's own ({TABLE_PREFIX}…)"
    return text


def _decode_object(payload: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(payload)
    except msgspec.DecodeError as error:
        raise NotBindable(f"the payload is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise NotBindable(f"the payload is JSON but no object: {type(value).__name__}")
    return value


def _built_in(name: str, attempt: Attempt) -> str | int | bytes:
    if name == "operation_id":
        return attempt.operation_id
    if name == "lane":
        return attempt.lane
    if name == "log_index":
        return attempt.index
    try:
        return attempt.payload.decode()
    except UnicodeDecodeError:
        return attempt.payload


def check_all(connection: sqlite3.Connection, statements: Iterable[Statement]) -> dict[str, str]:
    """Check every statement. Returns, by effect, what is not there yet; raises ConfigurationError."""
    missing: dict[str, str] = {}
    for statement in statements:
        try:
            statement.check(connection)
        except TableMissing as error:
            missing[statement.effect] = str(error)
    return missing
