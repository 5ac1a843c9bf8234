"""One batch of attempts inside one transaction that has already passed the fence."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from ...core.errors import ConfigurationError
from ...core.token import FencingToken
from ...ports import Attempt, AttemptOutcome, AttemptStatus
from .outcomes import BEHIND, Known, failed, replay, succeeded, superseded, unknown_effect, waits
from .sqlite_connection import primary_code
from .sqlite_effect import NotBindable, Statement, TableMissing

_DEFINITE = (
    sqlite3.IntegrityError,  # A constraint.
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    sqlite3.NotSupportedError,
    OverflowError,
    UnicodeError,
    NotBindable,
)
"""This attempt failed by itself, and would fail again."""


class Again(Exception):
    """Roll back and run the batch once more: carefully, or with one more attempt decided."""


class Batch:
    """Runs attempts in order.

    Without ``careful`` the first failing statement raises :class:`Again`: nearly every batch has
    none, and a savepoint an attempt would cost each of them. With ``careful`` each attempt has its
    savepoint and fails alone.
    """

    def __init__(self, attempts: Sequence[Attempt], statements: Mapping[str, Statement], *, careful: bool) -> None:
        self.attempts = attempts
        self.careful = careful
        self.outcomes: list[AttemptOutcome] = []
        self.applied: list[tuple[Attempt, bytes]] = []
        """What was applied in this transaction, in order, with its result."""
        self.lanes: dict[str, tuple[int, int]] = {}
        """How far it moved each lane: (incarnation, log index)."""
        self._statements = statements
        self._decided: dict[int, AttemptOutcome] = {}
        """Attempts that took the whole transaction down with them, by position."""

    def run(
        self,
        connection: sqlite3.Connection,
        token: FencingToken,
        known: dict[str, Known],
        lanes: Mapping[str, tuple[int, int]],
    ) -> None:
        """Raises :class:`Again`, or an ``OperationalError`` that is about the file and no attempt."""
        self.outcomes, self.applied, self.lanes = [], [], {}
        blocked: set[str] = set()
        for position, attempt in enumerate(self.attempts):
            lane = attempt.lane
            if lane and lane in blocked:
                self.outcomes.append(BEHIND)
                continue
            before = known.get(attempt.operation_id)
            if before is not None:
                outcome = replay(attempt, before)
            else:
                place = (token.incarnation, attempt.index)
                mark = (self.lanes.get(lane) or lanes.get(lane)) if lane else None
                if mark is not None and place <= mark:
                    outcome = superseded(attempt, mark[1])
                elif position in self._decided:
                    outcome = self._decided[position]
                else:
                    outcome = self._attempt(connection, position, attempt)
                    if outcome.status is AttemptStatus.SUCCEEDED:
                        known[attempt.operation_id] = Known(attempt.digest, outcome.result)
                        self.applied.append((attempt, outcome.result))
                        if lane:
                            self.lanes[lane] = place
            self.outcomes.append(outcome)
            if lane and outcome.status is not AttemptStatus.SUCCEEDED:
                blocked.add(lane)

    def _attempt(self, connection: sqlite3.Connection, position: int, attempt: Attempt) -> AttemptOutcome:
        statement = self._statements.get(attempt.effect)
        if statement is None:
            return unknown_effect(attempt)
        try:
            if not statement.checked:
                statement.check(connection)
            parameters = statement.bind(attempt)
        except NotBindable as error:
            return failed(error)
        except (TableMissing, ConfigurationError) as error:
            # Never failed for it: the table may be created, the configuration be corrected.
            return waits(str(error))
        if not self.careful:
            try:
                return succeeded(statement.run(connection, parameters))
            except (sqlite3.Error, OverflowError, UnicodeError, NotBindable) as error:
                raise Again from error
        connection.execute("SAVEPOINT attempt")
        try:
            result = statement.run(connection, parameters)
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_ERROR:
                raise  # Locked, full, broken: about the file.
            self._undo(connection, position, failed(error))
            return self._why(connection, statement, error)
        except _DEFINITE as error:
            self._undo(connection, position, failed(error))
            return failed(error)
        connection.execute("RELEASE attempt")
        return succeeded(result)

    def _undo(self, connection: sqlite3.Connection, position: int, outcome: AttemptOutcome) -> None:
        if not connection.in_transaction:
            # INSERT OR ROLLBACK, or a trigger that raises ROLLBACK, has ended the transaction and
            # taken the fence and every attempt before it along. It is left out of the next round.
            self._decided[position] = outcome
            raise Again
        connection.execute("ROLLBACK TO attempt")
        connection.execute("RELEASE attempt")

    @staticmethod
    def _why(connection: sqlite3.Connection, statement: Statement, error: sqlite3.Error) -> AttemptOutcome:
        """Whether a statement failed for its data, or because its table is gone (it waits for that)."""
        try:
            statement.check_again(connection)
        except (TableMissing, ConfigurationError) as missing:
            return waits(str(missing))
        return failed(error)
