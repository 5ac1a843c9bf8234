"""One line for every command that has ended: all that a search through logs wants to know of it.

The node that leads while it applies the end writes the line. So after a change of leader one may be missing or be
there twice; what is in the log of the cluster is the record, and this is a view of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

import structlog

from ..core.entry import Entry
from ..outbox.operation import TERMINAL, Operation, OperationState
from .observers import Onlooker

LINES_A_TURN = 64
"""Written in one turn of the loop; what is behind them waits for the next one."""
WAITING_MAX = 20_000
"""Lines that may wait. A log that takes them more slowly than commands end loses some, and says how many."""
LINES_A_SECOND = 100
"""Of commands that went well, with ``Lines.SOME``: a line costs the node's loop about 35 microseconds, which a busy
node feels. ``commands_left_out`` says how many had none."""
LINES_AT_ONCE = 1000
"""So many after a quiet time."""
TELL_NS = 10_000_000_000
"""How often it is said how many were left out."""

_LOG = structlog.get_logger("fencepost.commands")


class Lines(StrEnum):
    """Which ends are written: ``node.log_commands``."""

    ALL = "all"
    SOME = "some"
    """All that did not go well, and of the others up to a bound."""
    UNSUCCESSFUL = "unsuccessful"
    NONE = "none"


class LoggingLoop(Protocol):
    def now(self) -> int: ...

    def holds_lease(self) -> bool: ...

    def soon(self, callback: Callable[[], None]) -> None: ...


class CommandLog(Onlooker):
    """Implements ``raft.node.observers.LoopObserver``."""

    def __init__(self, loop: LoggingLoop, lines: Lines) -> None:
        self._loop = loop
        self._lines = lines
        self._waiting: deque[dict[str, Any]] = deque()
        self._scheduled = False
        self._allowed = float(LINES_AT_ONCE)
        self._allowed_at = loop.now()
        self._left_out = 0
        self._told_at = loop.now() - TELL_NS

    def applied(self, entries: list[Entry], results: list[Any]) -> None:
        lines = self._lines
        if lines is Lines.NONE:
            return
        leads = None
        for entry, result in zip(entries, results, strict=True):
            if type(result) is not list:
                continue
            for operation in result:
                # Dispatch and outcome may have been applied together, and both name the operation.
                if operation.state not in TERMINAL or operation.history[-1].index != entry.index:
                    continue
                if lines is Lines.UNSUCCESSFUL and operation.state is OperationState.SUCCEEDED:
                    continue
                if leads is None:
                    leads = self._loop.holds_lease()
                if leads:
                    self._keep(operation)

    def _keep(self, operation: Operation) -> None:
        """As it is now: a person may give it another life before the line is written."""
        if len(self._waiting) >= WAITING_MAX or not self._within_bound(operation):
            self._left_out += 1
            self._tell(self._loop.now())
            return
        self._waiting.append(line_of(operation))
        if not self._scheduled:
            # In a turn of its own: first the answers of this turn leave.
            self._scheduled = True
            self._loop.soon(self._write)

    def _write(self) -> None:
        self._scheduled = False
        for _ in range(min(LINES_A_TURN, len(self._waiting))):
            _write(self._waiting.popleft())
        if self._waiting:
            self._scheduled = True
            self._loop.soon(self._write)

    def _within_bound(self, operation: Operation) -> bool:
        if self._lines is not Lines.SOME or operation.state is not OperationState.SUCCEEDED:
            return True
        now = self._loop.now()
        self._allowed = min(self._allowed + (now - self._allowed_at) / 1e9 * LINES_A_SECOND, LINES_AT_ONCE)
        self._allowed_at = now
        if self._allowed < 1:
            return False
        self._allowed -= 1
        return True

    def _tell(self, now: int) -> None:
        if self._left_out and now - self._told_at >= TELL_NS:
            _LOG.info("commands_left_out", lines=self._left_out)
            self._left_out, self._told_at = 0, now

    def stopped(self) -> None:
        while self._waiting:
            _write(self._waiting.popleft())
        self._tell(self._told_at + TELL_NS)


def line_of(operation: Operation) -> dict[str, Any]:
    """The fields of the line. ``…_s`` are the seconds, of cluster time, that it spent in each state."""
    spent = seconds_by_state(operation)
    return {
        "id": operation.operation_id,
        "resource": operation.resource,
        "effect": operation.effect,
        "lane": operation.lane,
        "state": operation.state.value,
        "index": operation.index,
        "attempts": operation.attempt,
        "failures": operation.failures,
        "token": "" if operation.token is None else str(operation.token),
        "error": operation.error,
        **{f"{state.value.replace('-', '_')}_s": round(seconds, 6) for state, seconds in spent.items()},
        "total_s": round(max(operation.finished_ns - operation.submitted_ns, 0) / 1e9, 6),
    }


def seconds_by_state(operation: Operation) -> dict[OperationState, float]:
    """How long it was in each state before its last one. A long history has lost its middle; what was there counts
    for the state before the gap."""
    spent: dict[OperationState, float] = {}
    rows = operation.history
    for position in range(len(rows) - 1):
        state = OperationState(rows[position].state)
        seconds = max(rows[position + 1].time_ns - rows[position].time_ns, 0) / 1e9
        spent[state] = spent.get(state, 0.0) + seconds
    return spent


def _write(line: dict[str, Any]) -> None:
    if line["state"] == OperationState.SUCCEEDED.value:
        _LOG.info("command finished", **line)
    else:
        _LOG.warning("command finished", **line)
