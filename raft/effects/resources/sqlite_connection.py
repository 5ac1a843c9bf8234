"""One connection to a ledger's file: opened, watched, and closed when it can no longer be trusted.

Synchronous: everything here runs on the resource's own thread.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from ...core.errors import ConfigurationError, FencepostError, Outcome, ResourceUnavailable, StorageFormatUnknown
from .sqlite_guard import FORMAT as GUARD_FORMAT
from .sqlite_guard import MESSAGE as GUARD_MESSAGE
from .sqlite_guard import SCHEMA as GUARD_SCHEMA
from .sqlite_tables import READ_FORMAT, SCHEMA, SCHEMA_VERSION, WRITE_FORMAT


class CommitRefused(Exception):
    """COMMIT found a violation (a deferred constraint). Nothing of the transaction was applied."""


class SqliteConnection:
    """``transaction`` is the way in: one ``BEGIN IMMEDIATE``, on the file that the path names now."""

    def __init__(self, name: str, path: Path, *, schema: str, busy_timeout_ms: int) -> None:
        self._name = name
        self._path = path
        self._schema = schema
        self._busy_timeout_ms = busy_timeout_ms
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """Device and inode of the file that was opened; kept after the connection is dropped."""
        self.generation = 0
        """Counts the files this resource has been opened on. A new one must be claimed before use."""

    # -- opening -----------------------------------------------------------------------------------

    def open(self, *, create: bool) -> sqlite3.Connection:
        """The connection, made if there is none.

        Raises :class:`ConfigurationError` for what an operator has to put right, and
        :class:`ResourceUnavailable` for what may be gone the next time.
        """
        if self._connection is not None:
            return self._connection
        if not self._path.parent.is_dir():
            raise ConfigurationError(
                f"resource {self._name!r}: the directory {self._path.parent} does not exist",
                next_step=f"mkdir -p {self._path.parent}",
            )
        # Never made anew once it was there: an empty ledger has forgotten its fence (rule 5).
        uri = f"file:{quote(str(self._path))}?mode={'rwc' if create else 'rw'}"
        try:
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=self._busy_timeout_ms / 1000)
        except sqlite3.Error as error:
            raise self.unavailable(error, "cannot be opened", outcome=Outcome.RETRY) from error
        try:
            self._prepare(connection)
            file = self._file_now()
        except BaseException:
            connection.close()
            raise
        if file != self._file:
            self._file = file
            self.generation += 1
        self._connection = connection
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        try:
            # FULL: an acknowledged effect survives a power cut, and so does a fence.
            connection.execute("PRAGMA synchronous=FULL")
            self._write_ahead(connection)
            connection.execute("BEGIN IMMEDIATE")
            with _rolled_back_on_error(connection):
                self._check_format(connection)
                for statement in (*SCHEMA, *GUARD_SCHEMA):
                    connection.execute(statement)
                connection.execute(WRITE_FORMAT, (SCHEMA_VERSION,))
                connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            if primary_code(error) == sqlite3.SQLITE_NOTADB:
                raise ConfigurationError(
                    f"resource {self._name!r}: {self._path} is not a SQLite database",
                    next_step=f"check path under [resources.{self._name}]; nothing was written to it",
                ) from error
            raise self.unavailable(error, "cannot be prepared", outcome=Outcome.RETRY) from error
        if self._schema:
            self._run_schema(connection)

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        """Readers beside the writer, one sync a commit. Where the file system cannot, a rollback journal."""
        deadline_ns = time.monotonic_ns() + self._busy_timeout_ms * 1_000_000
        while True:
            try:
                (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
                if mode != "wal":
                    connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                # Changing the mode does not wait for locks by itself, and all nodes start at once.
                if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic_ns() > deadline_ns:
                    raise
                time.sleep(0.02)

    def _check_format(self, connection: sqlite3.Connection) -> None:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'fencepost_format'").fetchone():
            return
        (version,) = connection.execute(READ_FORMAT).fetchone()
        if version is not None and version > GUARD_FORMAT:
            raise StorageFormatUnknown(
                f"resource {self._name!r}: {self._path} has tables of format {version}; "
                f"this version knows {GUARD_FORMAT}",
                next_step="install the version that wrote it",
            )

    def _run_schema(self, connection: sqlite3.Connection) -> None:
        try:
            connection.executescript(self._schema)
        except sqlite3.Error as error:
            if primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise self.unavailable(error, "cannot be prepared", outcome=Outcome.RETRY) from error
            if str(error).startswith(GUARD_MESSAGE):
                raise ConfigurationError(
                    f"resource {self._name!r}: its schema writes rows without a token, and its fence is enforced",
                    next_step=f"take what puts rows in out of schema under [resources.{self._name}]",
                ) from error
            raise ConfigurationError(
                f"resource {self._name!r}: its schema fails: {error}",
                next_step=f"correct schema under [resources.{self._name}]; it runs at every start, "
                "so it must hold where the tables are there already (CREATE TABLE IF NOT EXISTS)",
            ) from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    # -- using -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """``BEGIN IMMEDIATE`` … ``COMMIT``; rolled back on any error.

        Raises :class:`ResourceUnavailable`, with outcome ``retry`` where certainly nothing was
        applied and ``unknown`` where the commit itself failed, and :class:`CommitRefused`.
        """
        connection = self.open(create=False)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._distrust(error)
            raise self.unavailable(error, "gives no write lock", outcome=Outcome.RETRY) from error
        try:
            with _rolled_back_on_error(connection):
                # Under the lock: an effect must not go into a file that nobody will look at.
                self._check_file()
                yield connection
        except sqlite3.Error as error:
            self._distrust(error)
            raise self.unavailable(error, "fails", outcome=Outcome.RETRY) from error
        except ResourceUnavailable:
            self.drop()
            raise
        self._commit(connection)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """For reading the file that the path names now, as it stands at one moment. Raises
        :class:`ResourceUnavailable`."""
        connection = self.open(create=False)
        try:
            connection.execute("BEGIN")
            with _rolled_back_on_error(connection):
                self._check_file()
                yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self.drop()
            raise self.unavailable(error, "cannot be read", outcome=Outcome.RETRY) from error
        except ResourceUnavailable:
            self.drop()
            raise

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.IntegrityError as error:
            connection.execute("ROLLBACK")
            raise CommitRefused(str(error)) from error
        except sqlite3.Error as error:
            # The write may or may not have reached the disk: only the ledger itself can say.
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            self.drop()
            raise self.unavailable(error, "failed to commit", outcome=Outcome.UNKNOWN) from error

    def _file_now(self) -> tuple[int, int]:
        try:
            status = os.stat(self._path)
        except OSError as error:
            raise ResourceUnavailable(
                f"resource {self._name!r}: {self._path} is gone: {error.strerror}",
                next_step="put it back; a new and empty file would have forgotten every fence and operation",
                outcome=Outcome.RETRY,
            ) from error
        return status.st_dev, status.st_ino

    def _check_file(self) -> None:
        if self._file_now() != self._file:
            raise ResourceUnavailable(
                f"resource {self._name!r}: {self._path} is no longer the file that was opened",
                next_step="nothing: it is opened again, and claimed before it is used",
                outcome=Outcome.RETRY,
            )

    def _distrust(self, error: sqlite3.Error) -> None:
        """Drop the connection unless the error says no more than that somebody else is writing."""
        if primary_code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            self.drop()

    def unavailable(self, error: sqlite3.Error, what: str, *, outcome: Outcome) -> FencepostError:
        busy = primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        waited = f" after {self._busy_timeout_ms} ms" if busy else ""
        return ResourceUnavailable(
            f"resource {self._name!r}: {self._path} {what}{waited}: {error}",
            next_step="see who holds it (lsof, a backup, a forgotten shell)" if busy else "check the file and its disk",
            outcome=outcome,
        )

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


@contextlib.contextmanager
def _rolled_back_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise


def primary_code(error: BaseException) -> int:
    """SQLite's primary result code; 0 for an error that the sqlite3 module made itself."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
