"""One batch of attempts inside one PostgreSQL transaction that has already passed the fence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

Place = tuple[int, int]
"""(incarnation, log index)."""


class LaneMark(NamedTuple):
    reached: Place
    """How far the lane has come."""
    forgotten: Place
    """Up to where what it did is no longer kept (``ordered-lane``); (0, 0) if all of it is."""


class Again(Exception):
    """Roll back and run the batch once more, carefully."""


class Batch:
    """Runs attempts in order.

    Without ``careful`` the first failing statement raises :class:`Again`: nearly every batch has none, and a
    savepoint costs two more round trips an attempt. With ``careful`` each attempt has its savepoint and fails alone.
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

    async def run(
        self,
        connection: Any,
        opened: int,
        token: FencingToken,
        known: dict[str, Known],
        lanes: Mapping[str, LaneMark],
    ) -> None:
        """Raises :class:`Again`, or an error that is about the server and no attempt."""
        self.outcomes, self.applied, self.lanes = [], [], {}
        blocked: set[str] = set()
        for attempt in self.attempts:
            lane = attempt.lane
            if lane and lane in blocked:
                self.outcomes.append(BEHIND)
                continue
            before = known.get(attempt.operation_id)
            if before is not None:
                outcome = replay(attempt, before)
            else:
                outcome = self._out_of_order(attempt, token, lanes) or await self._attempt(connection, opened, attempt)
                if outcome.status is AttemptStatus.SUCCEEDED:
                    known[attempt.operation_id] = Known(attempt.digest, outcome.result)
                    self.applied.append((attempt, outcome.result))
                    if lane:
                        self.lanes[lane] = attempt.index
            self.outcomes.append(outcome)
            if lane and outcome.status is not AttemptStatus.SUCCEEDED:
                blocked.add(lane)

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

    async def _attempt(self, connection: Any, opened: int, attempt: Attempt) -> AttemptOutcome:
        statement = self._statements.get(attempt.effect)
        if statement is None:
            return unknown_effect(attempt)
        if not self.careful:
            try:
                await statement.prepare(connection, opened)
                parameters = statement.bind(attempt)
                return succeeded(await statement.run(parameters))
            except NotBindable as error:
                raise Again from error
            except Exception as error:
                if cause_of(error) is Cause.SERVER:
                    raise
                raise Again from error
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
            return succeeded(result)
        await connection.execute("ROLLBACK TO SAVEPOINT attempt; RELEASE SAVEPOINT attempt")
        return outcome


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
