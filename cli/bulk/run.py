"""The bulk submission itself: many lanes side by side, each lane in the order of the file.

Order within a lane holds under retries and failovers because the next command of a lane is sent only
when the one before it is known to be committed; its execution is awaited afterwards, by submitting
the same id once more, which joins the one that is running. A lane whose command has no definite
answer is held: what follows it is not sent.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from ...raft.core.errors import (
    CommandFailed,
    CommandInvalid,
    FencepostError,
    OperationIdReused,
    Outcome,
)
from ...raft.outbox.codec import Command
from ...raft.outbox.operation import TERMINAL
from ...raft.ports import Answer, Wait
from .journal import Journal
from .rows import Refusal, Row

PROBLEMS_MAX = 1000


class Fate(StrEnum):
    """What became of one line. Each line read has exactly one."""

    DONE = "done"
    REPLAYED = "replayed"
    """The cluster knew it already: the stored outcome, or joined while it ran."""
    FAILED = "failed"
    """Committed, and ended in a definite failure."""
    REFUSED = "refused"
    """Certainly not executed, and it never will be as it stands."""
    NOT_SUBMITTED = "not_submitted"
    """Certainly not executed so far; the same line can be submitted again."""
    UNKNOWN = "unknown"
    """No definite answer. Submitting the same line again is safe."""


FINAL = frozenset({Fate.DONE, Fate.REPLAYED, Fate.FAILED})
"""What the journal remembers: these will answer the same for ever."""


class Submitter(Protocol):
    """The part of the client that this needs."""

    async def submit(self, command: Command, *, wait: Wait = ..., timeout_s: float | None = ...) -> Answer: ...


@dataclass(slots=True)
class Summary:
    lines: int = 0
    submitted: int = 0
    resumed: int = 0
    """Lines whose outcome an earlier run had noted in the resume file."""
    conflicts: int = 0
    """Those of the refused whose id stands for another command."""
    reroutes: int = 0
    """How often answers came from another node than before."""
    longest_reroute_s: float = 0.0
    """The longest time without an answer that came of it."""
    stopped: str = ""
    """Why reading ended before the input did; empty when it did not."""
    fates: Counter[Fate] = field(default_factory=Counter)
    problems: list[dict[str, Any]] = field(default_factory=list)
    first_error: FencepostError | None = None
    """The first error that stopped the run."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "lines": self.lines,
            "submitted": self.submitted,
            **{fate.value: self.fates[fate] for fate in Fate},
            "conflicts": self.conflicts,
            "resumed": self.resumed,
            "reroutes": self.reroutes,
            "longest_reroute_s": round(self.longest_reroute_s, 6) if self.reroutes else None,
            "stopped": self.stopped or None,
            "problems": sorted(self.problems, key=lambda problem: int(problem["line"])),
        }

    @property
    def exit_code(self) -> int:
        """The first that applies: 5 unknown; 3 or 4 cluster away; 6 conflict; 8 failed; 2 refused; 0."""
        if self.fates[Fate.UNKNOWN]:
            return 5
        if self.first_error is not None:
            return self.first_error.exit_code
        if self.conflicts:
            return 6
        if self.fates[Fate.FAILED]:
            return 8
        if self.fates[Fate.REFUSED]:
            return 2
        return 4 if self.fates[Fate.NOT_SUBMITTED] else 0


class BulkRun:
    """One bulk submission. ``window`` bounds the lines under way at once."""

    def __init__(
        self,
        client: Submitter,
        *,
        wait: Wait = Wait.DONE,
        window: int = 256,
        timeout_s: float | None = None,
        stop_on_error: bool = False,
        journal: Journal | None = None,
        on_problem: Callable[[int, str, FencepostError, Fate], None] | None = None,
    ) -> None:
        self.summary = Summary()
        self._client = client
        self._wait = wait
        self._window = window
        self._timeout_s = timeout_s
        self._stop_on_error = stop_on_error
        self._journal = journal
        self._on_problem = on_problem
        self._stop_line = 0
        # The last line of each lane under way: its future tells whether the next may be sent.
        self._lane_tail: dict[str, asyncio.Future[bool]] = {}

    async def run(self, rows: AsyncIterator[Row | Refusal]) -> Summary:
        """Submit every row. Returns when all have a fate; cancelled, those under way get one too."""
        room = asyncio.Semaphore(self._window)
        async with asyncio.TaskGroup() as group:
            async for row in rows:
                if self.summary.stopped:
                    break
                self.summary.lines += 1
                if isinstance(row, Refusal):
                    self._end(row.line, row.operation_id, Fate.REFUSED, row.error)
                    continue
                if self._resumed(row):
                    continue
                await room.acquire()
                before, settled = self._enter_lane(row.command.lane)
                group.create_task(self._one(row, before, settled)).add_done_callback(lambda _: room.release())
        return self.summary

    def _stopped_before(self, line: int) -> bool:
        """A bad line stops what stands after it; a cluster that is away stops everything."""
        return bool(self.summary.stopped) and line > self._stop_line

    def _resumed(self, row: Row) -> bool:
        fate = self._journal.fate(row.command) if self._journal is not None else None
        if fate is None:
            return False
        self.summary.resumed += 1
        self.summary.fates[Fate(fate)] += 1
        return True

    def _enter_lane(self, lane: str) -> tuple[asyncio.Future[bool] | None, asyncio.Future[bool]]:
        settled: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if not lane:
            return None, settled
        before = self._lane_tail.get(lane)
        self._lane_tail[lane] = settled
        return before, settled

    async def _one(self, row: Row, before: asyncio.Future[bool] | None, settled: asyncio.Future[bool]) -> None:
        sent = False
        try:
            if before is not None and not await before:
                self._end(row.line, row.command.operation_id, Fate.NOT_SUBMITTED, None)
                return
            if self._stopped_before(row.line):
                self._end(row.line, row.command.operation_id, Fate.NOT_SUBMITTED, None)
                return
            sent = True
            self.summary.submitted += 1
            await self._submit(row, settled)
        except asyncio.CancelledError:
            self._end(row.line, row.command.operation_id, Fate.UNKNOWN if sent else Fate.NOT_SUBMITTED, None)
            raise
        finally:
            if not settled.done():
                settled.set_result(False)
            if self._lane_tail.get(row.command.lane) is settled and settled.result():
                del self._lane_tail[row.command.lane]

    async def _submit(self, row: Row, settled: asyncio.Future[bool]) -> None:
        command = row.command
        # Without a lane there is nobody to let pass, so one question is enough.
        first_wait = Wait.COMMITTED if command.lane else self._wait
        try:
            answer = await self._client.submit(command, wait=first_wait, timeout_s=self._timeout_s)
        except FencepostError as error:
            if isinstance(error, (OperationIdReused, CommandInvalid)):
                settled.set_result(True)  # definite: the lane's order does not suffer from going on
            self._end(row.line, command.operation_id, _fate(error), error)
            return
        settled.set_result(True)
        replayed = answer.replayed
        if self._wait is Wait.DONE and not _ended(answer):
            try:
                answer = await self._client.submit(command, wait=Wait.DONE, timeout_s=self._timeout_s)
            except FencepostError as error:
                # It is committed: whatever kept the answer away, only the outcome is open.
                self._end(row.line, command.operation_id, Fate.UNKNOWN, error)
                return
        if answer.code:
            failed = CommandFailed(f"committed at index {answer.index}, then {answer.state}: {answer.detail}")
            self._end(row.line, command.operation_id, Fate.FAILED, failed, command)
        else:
            self._end(row.line, command.operation_id, Fate.REPLAYED if replayed else Fate.DONE, None, command)

    def _end(
        self, line: int, operation_id: str, fate: Fate, error: FencepostError | None, command: Command | None = None
    ) -> None:
        summary = self.summary
        summary.fates[fate] += 1
        if isinstance(error, OperationIdReused):
            summary.conflicts += 1
        if self._journal is not None and command is not None and fate in FINAL and self._wait is Wait.DONE:
            self._journal.record(line, command, fate.value)
        if error is None:
            return
        definite = isinstance(error, (OperationIdReused, CommandInvalid, CommandFailed))
        if not summary.stopped and (self._stop_on_error or not definite):
            summary.stopped = f"at line {line}: {error.code}"
            self._stop_line = line if definite else 0
            summary.first_error = error if not definite else None
        if len(summary.problems) < PROBLEMS_MAX:
            summary.problems.append(
                {"line": line, "id": operation_id, "fate": fate.value, "code": error.code, "message": error.message}
            )
        if self._on_problem is not None:
            self._on_problem(line, operation_id, error, fate)


def _fate(error: FencepostError) -> Fate:
    if error.outcome is Outcome.UNKNOWN:
        return Fate.UNKNOWN
    # A node that refuses this client, or a whole cluster that is away, says nothing about the command.
    return Fate.REFUSED if isinstance(error, (OperationIdReused, CommandInvalid)) else Fate.NOT_SUBMITTED


def _ended(answer: Answer) -> bool:
    return bool(answer.code) or answer.state in TERMINAL
