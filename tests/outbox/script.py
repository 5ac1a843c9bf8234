"""Writes outbox entries into a machine the way a log would, and checks the invariants after each."""

from __future__ import annotations

from typing import Any

from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.token import FencingToken
from fencepost.raft.outbox.codec import (
    Activation,
    Command,
    Dispatch,
    DispatchRow,
    OutboxEntry,
    Outcome,
    OutcomeRow,
    encode,
)
from fencepost.raft.outbox.invariants import check, check_step, view
from fencepost.raft.outbox.machine import OutboxMachine, SubmitResult
from fencepost.raft.outbox.operation import Operation
from fencepost.raft.outbox.transitions import Verdict

RESOURCE = "ledger"
SECOND_NS = 1_000_000_000


class Script:
    """A log being written. ``term`` is the term that the next entries are appended in."""

    def __init__(self) -> None:
        self.machine = OutboxMachine()
        self.entries: list[Entry] = []
        self.index = 0
        self.term = 1
        self.time_ns = SECOND_NS

    def write(self, entry: OutboxEntry) -> Any:
        self.index += 1
        self.time_ns += 1
        logged = Entry(self.index, self.term, EntryKind.OUTBOX, self.time_ns, encode(entry))
        self.entries.append(logged)
        before = view(self.machine)
        result = self.machine.apply(logged)
        check(self.machine)
        check_step(before, view(self.machine))
        return result

    @property
    def token(self) -> FencingToken:
        return FencingToken(1, self.term)

    def submit(
        self, operation_id: str, payload: bytes = b"{}", *, lane: str = "", resource: str = RESOURCE
    ) -> Operation:
        result = self.submit_result(operation_id, payload, lane=lane, resource=resource)
        assert not result.reused
        return result.operation

    def submit_result(
        self, operation_id: str, payload: bytes = b"{}", *, lane: str = "", resource: str = RESOURCE
    ) -> SubmitResult:
        result = self.write(Command(operation_id, resource, "credit", lane, payload))
        assert isinstance(result, SubmitResult)
        return result

    def _changed(self, entry: Activation | Dispatch | Outcome) -> list[Operation]:
        changed: list[Operation] = self.write(entry)
        return changed

    def activate(self, term: int, *, guarantee: str = "fenced", holder: str = "") -> list[Operation]:
        self.term = term
        return self._changed(Activation(RESOURCE, self.token, holder or f"n{term}", guarantee))

    def dispatch(self, *rows: tuple[Operation, int], token: FencingToken | None = None) -> list[Operation]:
        listed = [DispatchRow(operation.index, attempt) for operation, attempt in rows]
        return self._changed(Dispatch(RESOURCE, token or self.token, listed))

    def outcome(
        self,
        operation: Operation,
        attempt: int,
        verdict: int,
        *,
        result: bytes = b"",
        error: str = "",
        next_try_ns: int = 0,
        token: FencingToken | None = None,
    ) -> list[Operation]:
        row = OutcomeRow(operation.index, attempt, verdict, result, error, next_try_ns)
        return self._changed(Outcome(RESOURCE, token or self.token, [row]))

    def succeed(self, operation: Operation, attempt: int, result: bytes = b"1", **others: Any) -> list[Operation]:
        return self.outcome(operation, attempt, Verdict.SUCCEEDED, result=result, **others)
