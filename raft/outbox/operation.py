"""One operation's replicated state, and the transitions it may make (concepts: The life of a command)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ..core.token import FencingToken


class OperationState(StrEnum):
    COMMITTED = "committed"
    DISPATCHED = "dispatched"
    RETRY_WAIT = "retry-wait"
    IN_DOUBT = "in-doubt"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD = "dead"
    """Given up, and certainly not applied. A dead letter: kept until it is redriven or discarded."""
    CANCELLED = "cancelled"


TERMINAL = frozenset({OperationState.SUCCEEDED, OperationState.FAILED, OperationState.DEAD, OperationState.CANCELLED})
"""Whoever waits for a command is told of its end."""

FINAL = TERMINAL - {OperationState.DEAD}
"""Ended for good: nothing leads out of these, and they may be forgotten."""


class HistoryRow(NamedTuple):
    """One arrow of an operation's life: the entry that drew it."""

    index: int  # type: ignore[assignment]  # the thesis's word; tuple.index is not used
    time_ns: int
    state: str
    attempt: int
    token: FencingToken | None
    note: str


@dataclass(slots=True, eq=False)
class Operation:
    operation_id: str
    resource: str
    effect: str
    lane: str
    payload: bytes
    digest: bytes
    index: int
    term: int
    submitted_ns: int
    """Cluster time of the entry that committed it."""
    state: OperationState = OperationState.COMMITTED
    attempt: int = 0
    """The number of the last attempt; 0 before the first."""
    failures: int = 0
    """Attempts that count against the retry limit."""
    lost: int = 0
    """Attempts whose executor went away before their outcome was known."""
    token: FencingToken | None = None
    """The token of the last attempt."""
    result: bytes = b""
    error: str = ""
    next_try_ns: int = 0
    finished_ns: int = 0
    history: list[HistoryRow] = field(default_factory=list)
    place: int = 0
    """Where it stands in its lane: its index, or that of the entry that redrove it last."""
    not_before_ns: int = 0
    deadline_ns: int = 0
    cancel_ns: int = 0
    """Cluster time at which it was asked to be cancelled, where that could not be done at once; else 0."""
    unsure: bool = False
    """An attempt has ended without an answer where no later refusal tells that it was not applied."""
