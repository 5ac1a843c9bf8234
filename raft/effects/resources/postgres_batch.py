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

FAILURES_SHARE = 16
"""Where more than one in so many fails, looking for them in halves costs more than it spares."""

Place = tuple[int, int]
"""(incarnation, log index)."""


class LaneMark(NamedTuple):
    reached: Place
    """How far the lane has come."""
    forgotten: Place
    """Up to where what it did is no longer kept (``ordered-lane``); (0, 0) if all of it is."""


class Again(Exception):
    """Roll back and run the batch once more, carefully."""

    def __init__(self, *, contended: bool = False) -> None:
        super().__init__()
        self.contended = contended
        """It met another writer: each attempt that meets him waits for him."""


class _Item(NamedTuple):
    position: int
    """In the batch."""
    attempt: Attempt
    values: list[Any]


class _Run:
    """Attempts of one effect that are sent together: nothing of the batch that has to be sent stands between them."""

    def __init__(self) -> None:
        self.statement: Statement | None = None
        self.items: list[_Item] = []
        self.operation_ids: set[str] = set()
        self.lanes: dict[str, int] = {}
        """The latest index of each."""
        self._bytes = 0

    def takes(self, statement: Statement, values: list[Any]) -> bool:
        """Whether one more may come along. The first one may, whatever its size: it is a request of its own."""
        if not self.items:
            return True
        return (
            statement is self.statement
            and len(self.items) < statement.runs.length_max
            and self._bytes + size_of(values) <= RUN_BYTES_MAX
        )

    def add(self, statement: Statement, item: _Item) -> None:
        self.statement = statement
        self.items.append(item)
        self.operation_ids.add(item.attempt.operation_id)
        if item.attempt.lane:
            self.lanes[item.attempt.lane] = item.attempt.index
        self._bytes += size_of(item.values)

    def bears_on(self, attempt: Attempt) -> bool:
        """Whether what is to be said of ``attempt`` depends on what becomes of these."""
        index = self.lanes.get(attempt.lane)
        return attempt.operation_id in self.operation_ids or (index is not None and attempt.index <= index)


class Batch:
    """Runs attempts in order.

    Attempts of one effect that follow each other are one exchange with the server, and none of them waits for the one
    before it. Without ``careful`` the first failing statement raises :class:`Again`: nearly every batch has none. With
    ``careful`` each exchange has its savepoint, which costs two more, and one that fails is halved until the attempt
    that fails is alone. With ``alone`` each attempt is from the start.
    """

    def __init__(
        self,
        attempts: Sequence[Attempt],
        statements: Mapping[str, Statement],
        *,
        careful: bool,
        alone: bool = False,
    ) -> None:
        self.attempts = attempts
        self.careful = careful
        self.alone = alone
        self.outcomes: list[AttemptOutcome] = []
        self.applied: list[tuple[Attempt, bytes]] = []
        """What was applied in this transaction, in order, with its result."""
        self.lanes: dict[str, int] = {}
        """How far it moved each lane: log index."""
        self._statements = statements
        self._run = _Run()
        """What is not sent yet."""
        self._known: dict[str, Known] = {}
        self._blocked: set[str] = set()
        self._found: dict[int, AttemptOutcome] = {}
        self._failures = 0

    async def run(
        self,
        connection: Any,
        opened: int,
        token: FencingToken,
        known: dict[str, Known],
        lanes: Mapping[str, LaneMark],
    ) -> None:
        """Raises :class:`Again`, or an error that is about the server and no attempt."""
        self.applied, self.lanes, self._run = [], {}, _Run()
        self._known, self._blocked, self._found, self._failures = known, set(), {}, 0
        for position, attempt in enumerate(self.attempts):
            if self._run.bears_on(attempt):
                await self._send(connection, opened)
            if attempt.lane and attempt.lane in self._blocked:
                self._found[position] = BEHIND
                continue
            before = known.get(attempt.operation_id)
            if before is not None:
                self._decide(position, attempt, replay(attempt, before))
                continue
            outcome = self._out_of_order(attempt, token, lanes)
            if outcome is not None:
                self._decide(position, attempt, outcome)
                continue
            await self._attempt(connection, opened, position, attempt)
        await self._send(connection, opened)
        self.outcomes = [self._found[position] for position in range(len(self.attempts))]

    def _decide(self, position: int, attempt: Attempt, outcome: AttemptOutcome) -> None:
        self._found[position] = outcome
        if attempt.lane and outcome.status is not AttemptStatus.SUCCEEDED:
            self._blocked.add(attempt.lane)

    def _applied(self, items: Sequence[_Item], results: Sequence[bytes]) -> None:
        for (position, attempt, _), result in zip(items, results, strict=True):
            self._found[position] = succeeded(result)
            self._known[attempt.operation_id] = Known(attempt.digest, result)
            self.applied.append((attempt, result))
            if attempt.lane:
                self.lanes[attempt.lane] = attempt.index

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

    async def _attempt(self, connection: Any, opened: int, position: int, attempt: Attempt) -> None:
        """Put it to the run that is sent next, if it can be bound."""
        statement = self._statements.get(attempt.effect)
        if statement is None:
            await self._refuse(connection, opened, position, attempt, unknown_effect(attempt))
            return
        try:
            if not statement.is_prepared(opened):
                outcome = await self._prepare(connection, opened, statement)
                if outcome is not None:
                    await self._refuse(connection, opened, position, attempt, outcome)
                    return
            values = statement.bind(attempt)
        except NotBindable as error:
            if not self.careful:
                raise Again from error
            await self._refuse(connection, opened, position, attempt, failed(error))
            return
        if self.alone or not self._run.takes(statement, values):
            await self._send(connection, opened)
        self._run.add(statement, _Item(position, attempt, values))

    async def _refuse(
        self, connection: Any, opened: int, position: int, attempt: Attempt, outcome: AttemptOutcome
    ) -> None:
        """It has not come to the server; but if one before it in its lane fails there, it has not had its turn."""
        if attempt.lane in self._run.lanes:
            await self._send(connection, opened)
        self._decide(position, attempt, BEHIND if attempt.lane and attempt.lane in self._blocked else outcome)

    async def _prepare(self, connection: Any, opened: int, statement: Statement) -> AttemptOutcome | None:
        """What the server's refusal means for the attempt that needs it; None if it is prepared."""
        if not self.careful:
            with _or_again():
                await statement.prepare(connection, opened)
            return None
        await self._send(connection, opened)  # Before a savepoint that may be rolled back to.
        await connection.execute("SAVEPOINT attempt")
        try:
            await statement.prepare(connection, opened)
        except Exception as error:
            outcome = _judged(statement, error)
        else:
            await connection.execute("RELEASE SAVEPOINT attempt")
            return None
        await connection.execute("ROLLBACK TO SAVEPOINT attempt; RELEASE SAVEPOINT attempt")
        return outcome

    # -- sending -------------------------------------------------------------------------------------

    async def _send(self, connection: Any, opened: int) -> None:
        run, self._run = self._run, _Run()
        if run.statement is None:
            return
        if self.careful:
            await self._settle(connection, opened, run.statement, run.items)
            return
        with _or_again():
            results = await self._exchange(connection, opened, run.statement, run.items)
        self._applied(run.items, results)

    @staticmethod
    async def _exchange(connection: Any, opened: int, statement: Statement, items: Sequence[_Item]) -> Sequence[bytes]:
        if len(items) == 1:
            return [await statement.run(items[0].values)]
        await statement.runs.prepare(connection, opened)
        return await statement.run_all([item.values for item in items])

    async def _settle(self, connection: Any, opened: int, statement: Statement, items: Sequence[_Item]) -> None:
        """In one exchange if all succeed, else in two halves, one after the other: each fails alone."""
        for item in items:
            if item.attempt.lane in self._blocked:  # By one that was sent with it.
                self._found[item.position] = BEHIND
        items = [item for item in items if item.position not in self._found]
        if not items:
            return
        await connection.execute("SAVEPOINT attempt")
        try:
            results = await self._exchange(connection, opened, statement, items)
        except NotBindable as error:
            outcome = failed(error)
        except Exception as error:
            outcome = _judged(statement, error)
        else:
            await connection.execute("RELEASE SAVEPOINT attempt")
            self._applied(items, results)
            return
        await connection.execute("ROLLBACK TO SAVEPOINT attempt; RELEASE SAVEPOINT attempt")
        if len(items) == 1:
            self._failures += 1
            self._decide(items[0].position, items[0].attempt, outcome)
            return
        # Whoever meets another writer waits for him, so that is not tried more often than there are attempts.
        many = self._failures * FAILURES_SHARE > len(self.attempts)
        singly = many or outcome.status is AttemptStatus.RETRY or statement.runs.length_max == 1
        parts = len(items) if singly else 2
        for part in range(parts):
            first, last = len(items) * part // parts, len(items) * (part + 1) // parts
            await self._settle(connection, opened, statement, items[first:last])


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
        raise Again(contended=cause_of(error) is Cause.CONTENTION) from error


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
