"""Writes without a token, as a SQLite database can see them: triggers on the tables that effects write to.

Inside its own transaction, behind the fence, fencepost puts a row into ``fencepost_pass`` and takes it out before the
commit. SQLite lets nobody see what another connection has not committed, so a trigger that finds no such row runs in a
transaction that passed no fence, of whatever program. It then counts the row that is written, or refuses it.

It is made for programs that were forgotten, not for enemies: whoever may write to the file may drop a trigger.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from ..modes import OFF, FenceMode, ModeReport
from .sqlite_tables import TABLE_PREFIX

FORMAT = 2
"""Of a file that is looked at. A version that knows nothing of it would be refused at each write, and says so at the
start instead."""

GUARD_PREFIX = f"{TABLE_PREFIX}guard_"

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS fencepost_modes (
        resource TEXT PRIMARY KEY,
        mode TEXT NOT NULL CHECK (mode IN ('observe', 'enforce')),
        since_ns INTEGER NOT NULL,
        observed_ns INTEGER NOT NULL,
        unfenced INTEGER NOT NULL DEFAULT 0,
        last_unfenced_ns INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS fencepost_pass (resource TEXT NOT NULL)",
    # The latch stands where the mode does: not even another program goes back by mistake.
    """CREATE TRIGGER IF NOT EXISTS fencepost_mode_latch BEFORE UPDATE OF mode ON fencepost_modes
        WHEN OLD.mode = 'enforce' AND NEW.mode <> 'enforce'
        BEGIN SELECT RAISE(ABORT, 'fencepost: a mode never goes back'); END""",
    """CREATE TRIGGER IF NOT EXISTS fencepost_mode_stays BEFORE DELETE ON fencepost_modes
        BEGIN SELECT RAISE(ABORT, 'fencepost: a mode never goes back'); END""",
)

_READ = "SELECT mode, since_ns, observed_ns, unfenced, last_unfenced_ns FROM fencepost_modes WHERE resource = ?"
_WRITE = """INSERT INTO fencepost_modes (resource, mode, since_ns, observed_ns) VALUES (?, ?, ?, ?)
    ON CONFLICT (resource) DO UPDATE SET mode = excluded.mode, since_ns = excluded.since_ns"""
_WRITE_FORMAT = """INSERT INTO fencepost_format
    SELECT ? WHERE NOT EXISTS (SELECT 1 FROM fencepost_format WHERE version = ?)"""
_ANY = "SELECT 1 FROM fencepost_modes LIMIT 1"
_ENTER = "INSERT INTO fencepost_pass (resource) VALUES (?)"
_LEAVE = "DELETE FROM fencepost_pass"
_TABLES = """SELECT name FROM sqlite_schema
    WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' COLLATE NOCASE"""
_GUARDS = f"""SELECT DISTINCT tbl_name FROM sqlite_schema
    WHERE type = 'trigger' AND name LIKE '{GUARD_PREFIX.replace("_", "!_")}%' ESCAPE '!' AND instr(sql, ?)"""

MESSAGE = "fencepost: a write without a token"


class Guard:
    """The guards of one resource, as one connection at a time sees them. On the resource's own thread."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._wanted: frozenset[str] = frozenset()
        self._stands_for: frozenset[str] | None = None
        """Tables whose guards this process has seen or made, since the last claim."""
        self.seen = OFF

    def read(self, connection: sqlite3.Connection) -> ModeReport:
        """The mode and its counts. What is guarded is told as of the last :meth:`stand`."""
        row = connection.execute(_READ, (self._resource,)).fetchone()
        if row is None:
            self.seen = OFF
            return OFF
        mode, since_ns, observed_ns, unfenced, last_ns = row
        # Whatever shows a token is compared in every mode, so nothing else is applied that would be refused.
        self.seen = ModeReport(
            FenceMode(mode), since_ns, observed_ns, unfenced, unfenced, last_ns, self.seen.guarded, self.seen.unguarded
        )
        return self.seen

    def report(self, connection: sqlite3.Connection, tables: Iterable[str]) -> ModeReport:
        """The same, with what is guarded as the file has it."""
        report = self.read(connection)
        if report.mode is FenceMode.OFF:
            return report
        guarded = self._guarded(connection)
        self.seen = report._replace(guarded=guarded, unguarded=sorted(set(tables) - set(guarded)))
        return self.seen

    def set(self, connection: sqlite3.Connection, mode: FenceMode, now_ns: int) -> None:
        connection.execute(_WRITE, (self._resource, mode.value, now_ns, now_ns))
        connection.execute(_WRITE_FORMAT, (FORMAT, FORMAT))
        self._stands_for = None

    def forget(self) -> None:
        """Look anew whether the guards stand: at a claim, on another file, after a transaction that was undone."""
        self._stands_for = None

    def enter(self, connection: sqlite3.Connection, tables: frozenset[str]) -> bool:
        """In a transaction that has passed the fence: stand the guards, and let this transaction through. Returns
        whether :meth:`leave` is to be called before the commit."""
        if connection.execute(_ANY).fetchone() is None:
            return False
        if self.read(connection).mode is not FenceMode.OFF:
            self.stand(connection, tables)
        # Also where another resource of the file is looked at: it may have guards on the same tables.
        connection.execute(_ENTER, (self._resource,))
        return True

    @staticmethod
    def leave(connection: sqlite3.Connection) -> None:
        connection.execute(_LEAVE)

    def stand(self, connection: sqlite3.Connection, tables: frozenset[str]) -> None:
        """Make the guards that are missing."""
        if self._stands_for == tables:
            return
        there = {name for (name,) in connection.execute(_TABLES)}
        for table in sorted(tables & there):
            for verb in ("INSERT", "UPDATE", "DELETE"):
                connection.execute(self._trigger(table, verb))
        self._stands_for = tables
        guarded = self._guarded(connection)
        self.seen = self.seen._replace(guarded=guarded, unguarded=sorted(tables - set(guarded)))

    def _guarded(self, connection: sqlite3.Connection) -> list[str]:
        rows = connection.execute(_GUARDS, (f"resource = {_text(self._resource)}",))
        return sorted(name for (name,) in rows)

    def _trigger(self, table: str, verb: str) -> str:
        """BEFORE, so that what is refused has not been looked at by any other trigger of the table."""
        name = f"{GUARD_PREFIX}{verb.lower()}_{self._resource}_{table}"
        where = f"resource = {_text(self._resource)}"
        message = _text(f"{MESSAGE}: resource {self._resource} enforces its fence")
        return f"""CREATE TRIGGER IF NOT EXISTS {_name(name)} BEFORE {verb} ON {_name(table)}
            WHEN NOT EXISTS (SELECT 1 FROM fencepost_pass)
            BEGIN
                SELECT RAISE(ABORT, {message}) FROM fencepost_modes WHERE {where} AND mode = 'enforce';
                UPDATE fencepost_modes SET unfenced = unfenced + 1,
                    last_unfenced_ns = CAST(strftime('%s', 'now') AS INTEGER) * 1000000000
                    WHERE {where};
            END"""


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'
