"""What a proxy remembers, durably: the fence, and every operation that it let through, with its answer.

Comparing the token, recognising the id and marking the operation as let through are one transaction with
``synchronous=FULL``. What is marked and was not answered when a process ends is in doubt for its successor: the API may
have done it. One process at a time holds the file.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...raft.core.errors import ConfigurationError, FenceError, FencepostError, OperationIdReused
from ...raft.core.token import FencingToken
from ...raft.effects.modes import FenceMode
from ...raft.effects.resources.ledger import StoredFence, check_fence

FORMAT = 1

_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS proxy (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        format INTEGER NOT NULL, resource TEXT NOT NULL, cluster TEXT NOT NULL, upstream TEXT NOT NULL,
        mode TEXT NOT NULL CHECK (mode IN ('observe', 'enforce')),
        observed_ns INTEGER NOT NULL,
        unfenced INTEGER NOT NULL DEFAULT 0, last_unfenced_ns INTEGER NOT NULL DEFAULT 0,
        would_reject INTEGER NOT NULL DEFAULT 0,
        refused INTEGER NOT NULL DEFAULT 0, replayed INTEGER NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE IF NOT EXISTS proxy_fence (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        incarnation INTEGER NOT NULL, term INTEGER NOT NULL, holder TEXT NOT NULL, accepted_ns INTEGER NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS proxy_operations (
        operation_id TEXT PRIMARY KEY,
        digest BLOB NOT NULL, state TEXT NOT NULL,
        incarnation INTEGER NOT NULL, term INTEGER NOT NULL, holder TEXT NOT NULL,
        first_ns INTEGER NOT NULL, sent INTEGER NOT NULL,
        status INTEGER NOT NULL DEFAULT 0, headers BLOB NOT NULL DEFAULT x'5b5d', body BLOB NOT NULL DEFAULT x'',
        answered_ns INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS proxy_operations_by_state ON proxy_operations (state) WHERE state <> 'answered'",
    # Counting them would read every answer that was ever given.
    "CREATE TABLE IF NOT EXISTS proxy_answers (one INTEGER PRIMARY KEY CHECK (one = 1), answered INTEGER NOT NULL)",
    """INSERT INTO proxy_answers SELECT 1, count(*) FROM proxy_operations WHERE state = 'answered'
        AND NOT EXISTS (SELECT 1 FROM proxy_answers) HAVING NOT EXISTS (SELECT 1 FROM proxy_answers)""",
    """CREATE TRIGGER IF NOT EXISTS proxy_mode_latch BEFORE UPDATE OF mode ON proxy
        WHEN OLD.mode = 'enforce' AND NEW.mode <> 'enforce'
        BEGIN SELECT RAISE(ABORT, 'fencepost: a mode never goes back'); END""",
)


class MarkState(StrEnum):
    MARKED = "marked"
    """It was let through, and has no answer yet."""
    ANSWERED = "answered"
    DOUBT = "doubt"
    """It was let through, and nobody will ever hear of the answer."""


class Stored(NamedTuple):
    """An answer as it was given the first time."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Bearer(NamedTuple):
    """Who asks: what a request shows of its token."""

    cluster: str
    token: FencingToken
    holder: str


class Mark(NamedTuple):
    """What is to become of one request."""

    state: MarkState | None
    """As it was before; None for an operation that was not known, and is marked now."""
    stored: Stored | None
    first_ns: int


class Marks:
    """One connection, on a thread of its own. Its methods are called within :meth:`together`, which makes them
    durable."""

    def __init__(self, path: Path, *, resource: str, cluster: str, upstream: str, mode: FenceMode, now_ns: int) -> None:
        """Opens or makes the file. What a predecessor left marked is in doubt from now on.

        Raises :class:`ConfigurationError`: another process holds it, it is another API's, or ``mode`` goes back.
        """
        self._resource = resource
        self._cluster = cluster
        self.mode = mode
        try:
            self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"{path} cannot be made or opened: {error.strerror}", next_step="check fence under [proxy]"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ConfigurationError(
                f"another process holds {path}: an API has one proxy at a time",
                next_step="end the other one first; a frozen one as well, or what it still sends comes too late",
            ) from error
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            os.close(self._lock)
            raise ConfigurationError(f"{path} cannot be used as the fence of a proxy: {error}") from error
        try:
            self._prepare(path, upstream, now_ns)
        except BaseException:
            self.close()
            raise

    def _prepare(self, path: Path, upstream: str, now_ns: int) -> None:
        connection = self._connection
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                connection.execute(statement)
            row = connection.execute("SELECT format, resource, cluster, upstream, mode FROM proxy").fetchone()
            if row is None:
                connection.execute(
                    "INSERT INTO proxy (one, format, resource, cluster, upstream, mode, observed_ns) "
                    "VALUES (1, ?, ?, ?, ?, ?, ?)",
                    (FORMAT, self._resource, self._cluster, upstream, self.mode.value, now_ns),
                )
            else:
                self._check(path, row, upstream)
                connection.execute("UPDATE proxy SET mode = ?", (self.mode.value,))
            self.left_in_doubt = connection.execute(
                "UPDATE proxy_operations SET state = ? WHERE state = ?", (MarkState.DOUBT, MarkState.MARKED)
            ).rowcount
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise ConfigurationError(f"{path} cannot be used as the fence of a proxy: {error}") from error

    def _check(self, path: Path, row: tuple[int, str, str, str, str], upstream: str) -> None:
        version, resource, cluster, before, mode = row
        if version > FORMAT:
            raise ConfigurationError(f"{path} is of format {version}; this version knows {FORMAT}")
        if (resource, cluster, before) != (self._resource, self._cluster, upstream):
            raise ConfigurationError(
                f"{path} is the fence of {resource!r} at {before}, for cluster {cluster!r}",
                next_step="a fence belongs to its API; give another API another file",
            )
        if FenceMode(mode).rank > self.mode.rank:
            raise ConfigurationError(f"{path} is in mode {mode}, and there is no way back to {self.mode}")

    def close(self) -> None:
        self._connection.close()
        os.close(self._lock)

    # -- transactions -----------------------------------------------------------------------------------

    def together(self, works: Sequence[Callable[[], Any]]) -> list[tuple[Any, Exception | None]]:
        """One transaction and one sync for all of them, in order; what raises is undone alone. Nobody may hear of a
        result before this returns. Raises ``sqlite3.Error`` when nothing of it is durable."""
        connection = self._connection
        results: list[tuple[Any, Exception | None]] = []
        connection.execute("BEGIN IMMEDIATE")
        try:
            for work in works:
                connection.execute("SAVEPOINT one")
                try:
                    results.append((work(), None))
                except FencepostError as error:
                    connection.execute("ROLLBACK TO one")
                    results.append((None, error))
                connection.execute("RELEASE one")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return results

    def claim(self, bearer: Bearer, now_ns: int) -> StoredFence | None:
        """Make the token the highest. The one before it. Raises :class:`FenceError`."""
        stored = self._fence()
        self._pass(stored, bearer, now_ns, strictly=True)
        return stored

    def mark(self, bearer: Bearer, operation_id: str, digest: bytes, now_ns: int, *, again_ns: int) -> Mark:
        """Cluster, fence, repeat, mark: in that order, in one step. An operation in doubt whose first time is less than
        ``again_ns`` ago is marked anew, to be sent once more.

        Raises :class:`FenceError` and :class:`OperationIdReused`; then nothing was marked.
        """
        self._pass(self._fence(), bearer, now_ns, strictly=self.mode is FenceMode.ENFORCE)
        row = self._connection.execute(
            "SELECT digest, state, first_ns, status, headers, body FROM proxy_operations WHERE operation_id = ?",
            (operation_id,),
        ).fetchone()
        if row is None:
            self._connection.execute(
                "INSERT INTO proxy_operations "
                "(operation_id, digest, state, incarnation, term, holder, first_ns, sent) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, 1)",
                (operation_id, digest, MarkState.MARKED, *bearer.token, bearer.holder, now_ns),
            )
            return Mark(None, None, now_ns)
        before, state, first_ns, status, headers, body = row
        if before != digest:
            raise OperationIdReused(f"{operation_id!r} was used for another request", next_step="use another id")
        if state == MarkState.ANSWERED:
            self._connection.execute("UPDATE proxy SET replayed = replayed + 1")
            pairs = msgspec.json.decode(headers, type=list[tuple[str, str]])
            return Mark(MarkState.ANSWERED, Stored(status, pairs, body), first_ns)
        if state == MarkState.DOUBT and now_ns - first_ns < again_ns:
            self._connection.execute(
                "UPDATE proxy_operations SET state = ?, incarnation = ?, term = ?, holder = ?, sent = sent + 1 "
                "WHERE operation_id = ?",
                (MarkState.MARKED, *bearer.token, bearer.holder, operation_id),
            )
            return Mark(None, None, first_ns)
        return Mark(MarkState(state), None, first_ns)

    def answered(self, operation_id: str, stored: Stored, now_ns: int) -> None:
        headers = msgspec.json.encode(stored.headers)
        self._connection.execute(
            "UPDATE proxy_operations SET state = ?, status = ?, headers = ?, body = ?, answered_ns = ? "
            "WHERE operation_id = ?",
            (
                MarkState.ANSWERED,
                stored.status,
                headers,
                stored.body,
                now_ns,
                operation_id,
            ),
        )
        self._connection.execute("UPDATE proxy_answers SET answered = answered + 1")

    def lost(self, operation_id: str) -> None:
        """It may have been done, and nobody knows."""
        self._connection.execute(
            "UPDATE proxy_operations SET state = ? WHERE operation_id = ?", (MarkState.DOUBT, operation_id)
        )

    def released(self, operation_id: str) -> None:
        """It was certainly not done this time. If it never was sent before, it is as if it had never been asked for."""
        self._connection.execute("DELETE FROM proxy_operations WHERE operation_id = ? AND sent = 1", (operation_id,))
        self._connection.execute(
            "UPDATE proxy_operations SET state = ? WHERE operation_id = ?", (MarkState.DOUBT, operation_id)
        )

    def unfenced(self, now_ns: int) -> None:
        """A request without a token is let pass."""
        self._connection.execute(
            "UPDATE proxy SET unfenced = unfenced + 1, would_reject = would_reject + 1, last_unfenced_ns = ?",
            (now_ns,),
        )

    def refused(self) -> None:
        self._connection.execute("UPDATE proxy SET refused = refused + 1")

    def counts(self) -> dict[str, int]:
        """What it has seen since it was made."""
        row = self._connection.execute(
            "SELECT observed_ns, unfenced, last_unfenced_ns, would_reject, refused, replayed FROM proxy"
        ).fetchone()
        names = ("observed_ns", "unfenced", "last_unfenced_ns", "would_reject", "refused", "replayed")
        return dict(zip(names, row, strict=True))

    def status(self) -> Mapping[str, object]:
        fence = self._fence()
        states = dict(
            self._connection.execute(
                "SELECT state, count(*) FROM proxy_operations WHERE state <> 'answered' GROUP BY state"
            )
        )
        (states[MarkState.ANSWERED.value],) = self._connection.execute("SELECT answered FROM proxy_answers").fetchone()
        return {
            "resource": self._resource,
            "cluster": self._cluster,
            "mode": self.mode.value,
            "token": None if fence is None else f"{fence.token.incarnation}.{fence.token.term}",
            "holder": "" if fence is None else fence.holder,
            **self.counts(),
            "operations": {state.value: states.get(state.value, 0) for state in MarkState},
        }

    # -- inside ----------------------------------------------------------------------------------------

    def _fence(self) -> StoredFence | None:
        row = self._connection.execute("SELECT incarnation, term, holder FROM proxy_fence").fetchone()
        if row is None:
            return None
        return StoredFence(self._resource, self._cluster, FencingToken(row[0], row[1]), row[2])

    def _pass(self, stored: StoredFence | None, bearer: Bearer, now_ns: int, *, strictly: bool) -> None:
        """Compare and advance. Observing, a token that is too low is let pass, and counted; another cluster's never."""
        known = stored or StoredFence(self._resource, self._cluster, FencingToken(0, 0), "")
        try:
            rises = check_fence(self._resource, known, bearer.cluster, bearer.token, bearer.holder)
        except FenceError:
            if strictly or bearer.cluster != self._cluster:
                raise
            self._connection.execute("UPDATE proxy SET would_reject = would_reject + 1")
            return
        if rises:
            self._connection.execute(
                "INSERT OR REPLACE INTO proxy_fence VALUES (1, ?, ?, ?, ?)", (*bearer.token, bearer.holder, now_ns)
            )
