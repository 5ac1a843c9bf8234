"""One batch of attempts inside one PostgreSQL transaction that has already passed the fence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...core.token import FencingToken
from ...ports import Attempt, AttemptOutcome, AttemptStatus
from .outcomes import (
    BEHIND,
    Known,
    again,
    duplicate_or_superseded,
    failed,
    replay,
    succeeded,
    superseded,
    unknown_effect,
    waits,
)
from .postgres_effect import NotBindable, Statement
from .postgres_errors import Cause, cause_of
from .postgres_run import RUN_BYTES_MAX, size_of

Place = tuple[int, int]
"""(incarnation, log index)."""


class LaneMark(NamedTuple):
    reached: Place
    """How far the lane has come."""
    forgotten: Place
    """Up to where what it did is no longer kept (``ordered-lane``); (0, 0) if all of it is."""


class Again(Exception):
    """Roll back and run the batch once more, carefully."""


class _Run:
    """Attempts of one effect that are sent together: they stand one behind the other in the batch."""

    def __init__(self) -> None:
        self.statement: Statement | None = None
        self.attempts: list[Attempt] = []
        self.values: list[list[Any]] = []
        self.operation_ids: set[str] = set()
        self._bytes = 0

    def takes(self, statement: Statement, values: list[Any]) -> bool:
        """Whether one more may come along. The first one may, whatever its size: it is a request of its own."""
        if not self.attempts:
            return True
        return (
            statement is self.statement
            and len(self.attempts) < statement.runs.length_max
            and self._bytes + size_of(values) <= RUN_BYTES_MAX
        )

    def add(self, statement: Statement, attempt: Attempt, values: list[Any]) -> None:
        self.statement = statement
        self.attempts.append(attempt)
        self.values.append(values)
        self.operation_ids.add(attempt.operation_id)
        self._bytes += size_of(values)


class Batch:
    """Runs attempts in order.

    Without ``careful`` the first failing statement raises :class:`Again`: nearly every batch has none. Then attempts
    of one effect that follow each other are one exchange with the server, and none of them waits for the one before
    it. With ``careful`` each attempt has its savepoint, which costs two more exchanges, and fails alone.
    """

    def __init__(self, attempts: Sequence[Attempt], statements: Mapping[str, Statement], *, careful: bool) -> None:
        self.attempts = attempts
        self.careful = careful
        self.outcomes: list[AttemptOutcome] = []
        self.applied: list[tuple[Attempt, bytes]] = []
        """What was applied in this transaction, in order, with its result."""
        self.lanes: dict[str, int] = {}
        """How far it moved each lane: log index."""
        self._statements = statements
        self._run = _Run()
        """What is not sent yet."""

    async def run(
        self,
        connection: Any,
        opened: int,
        token: FencingToken,
        known: dict[str, Known],
        lanes: Mapping[str, LaneMark],
    ) -> None:
        """Raises :class:`Again`, or an error that is about the server and no attempt."""
        self.outcomes, self.applied, self.lanes, self._run = [], [], {}, _Run()
        found: list[AttemptOutcome | None] = []
        """None for what is being sent: it succeeds, or the batch is run again."""
        blocked: set[str] = set()
        for attempt in self.attempts:
            lane = attempt.lane
            if lane and lane in blocked:
                found.append(BEHIND)
                continue
            if attempt.operation_id in self._run.operation_ids:
                await self._send(connection, opened, known)
            before = known.get(attempt.operation_id)
            if before is not None:
                outcome: AttemptOutcome | None = replay(attempt, before)
            else:
                outcome = self._out_of_order(attempt, token, lanes)
                if outcome is None:
                    outcome = await self._attempt(connection, opened, attempt, known)
                    if lane and (outcome is None or outcome.status is AttemptStatus.SUCCEEDED):
                        self.lanes[lane] = attempt.index
            found.append(outcome)
            if lane and outcome is not None and outcome.status is not AttemptStatus.SUCCEEDED:
                blocked.add(lane)
        await self._send(connection, opened, known)
        self.outcomes = [
            succeeded(known[attempt.operation_id].result) if outcome is None else outcome
            for attempt, outcome in zip(self.attempts, found, strict=True)
        ]

    def _out_of_order(
        self, attempt: Attempt, token: FencingToken, lanes: Mapping[str, LaneMark]
    ) -> AttemptOutcome | None:
        """What to answer where the lane has moved on past this attempt; None where it has not."""
        if not attempt.lane:
            return None
        place = (token.incarnation, attempt.index)
        moved = self.lanes.get(attempt.lane)
        if moved is not None and attempt.index <= moved:
            return superseded(attempt, moved)
        mark = lanes.get(attempt.lane)
        if mark is None or place > mark.reached:
            return None
        if place <= mark.forgotten:
            return duplicate_or_superseded(attempt, mark.reached[1])
        return superseded(attempt, mark.reached[1])

    async def _attempt(
        self, connection: Any, opened: int, attempt: Attempt, known: dict[str, Known]
    ) -> AttemptOutcome | None:
        """None where it is added to the run that is sent next."""
        statement = self._statements.get(attempt.effect)
        if statement is None:
            return unknown_effect(attempt)
        if self.careful:
            return await self._alone(connection, opened, statement, attempt, known)
        with _or_again():
            await statement.prepare(connection, opened)
            values = statement.bind(attempt)
        if not self._run.takes(statement, values):
            await self._send(connection, opened, known)
        self._run.add(statement, attempt, values)
        return None

    async def _send(self, connection: Any, opened: int, known: dict[str, Known]) -> None:
        run, self._run = self._run, _Run()
        statement = run.statement
        if statement is None:
            return
        with _or_again():
            if len(run.attempts) == 1:
                results = [await statement.run(run.values[0])]
            else:
                await statement.runs.prepare(connection, opened)
                results = await statement.run_all(run.values)
        for attempt, result in zip(run.attempts, results, strict=True):
            self._applied(attempt, result, known)

    def _applied(self, attempt: Attempt, result: bytes, known: dict[str, Known]) -> None:
        known[attempt.operation_id] = Known(attempt.digest, result)
        self.applied.append((attempt, result))

    async def _alone(
        self, connection: Any, opened: int, statement: Statement, attempt: Attempt, known: dict[str, Known]
    ) -> AttemptOutcome:
        await connection.execute("SAVEPOINT attempt")
        try:
            await statement.prepare(connection, opened)
            result = await statement.run(statement.bind(attempt))
        except NotBindable as error:
            outcome = failed(error)
        except Exception as error:
            outcome = _judged(statement, error)
        else:
            await connection.execute("RELEASE SAVEPOINT attempt")
            self._applied(attempt, result, known)
            return succeeded(result)
        await connection.execute("ROLLBACK TO SAVEPOINT attempt; RELEASE SAVEPOINT attempt")
        return outcome


@contextlib.contextmanager
def _or_again() -> Iterator[None]:
    """Whatever is about an attempt is found out by running the batch carefully."""
    try:
        yield
    except NotBindable as error:
        raise Again from error
    except Exception as error:
        if cause_of(error) is Cause.SERVER:
            raise
        raise Again from error


def _judged(statement: Statement, error: Exception) -> AttemptOutcome:
    """What an error in the statement says about its attempt. Raises it again where it is about the server."""
    cause = cause_of(error)
    if cause is Cause.ATTEMPT:
        return failed(error)
    if cause is Cause.CONTENTION:
        return again(error)
    if cause in (Cause.MISSING, Cause.STATEMENT):
        # Never failed for it: the table may be created, the configuration be corrected.
        return waits(str(statement.error(error)) if cause is Cause.STATEMENT else str(error))
    raise error
