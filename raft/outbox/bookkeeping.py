"""What every change of an operation has to keep in step: counts, tables, the sum of terms, captures."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

from ..core.entry import Entry
from ..core.token import FencingToken
from .capture import Captures
from .operation import FINAL, TERMINAL, HistoryRow, Operation, OperationState
from .state import ActivationRecord, ElectionRecord, OutboxState
from .state_digest import (
    counters_term,
    course_term,
    kept_row_term,
    operation_terms,
    record_term,
    sum_of,
)

HISTORY_ROWS_MAX = 128
"""Rows of history an operation keeps. Beyond it the oldest goes, but never the first: a command
that is put off for days must not grow without bound."""

SWEEP_MIN = 4096
"""Forgotten operations that may stand in ``in_order`` before it is swept."""

FENCED = "fenced"
"""The value of ``raft.ports.Guarantee`` for those where no attempt of an earlier leader comes after the next claim."""

_DEAD = OperationState.DEAD
_R = TypeVar("_R", ActivationRecord, ElectionRecord)


class Bookkeeping(OutboxState):
    """Base of the machine: how the state is changed, without the rules that say when."""

    def __init__(self) -> None:
        super().__init__()
        self._captures = Captures()

    def _is_current(self, entry: Entry, resource: str, token: FencingToken) -> bool:
        """Whether an entry speaks for the leader that appended it, and none has followed it.

        An entry whose token is of another term than the entry itself was carried over: made by a
        leader that had lost its term before the entry got into the log (S47).
        """
        if token.term != entry.term:
            return False
        active = self.tokens.get(resource)
        return active is None or token >= active.token

    def is_fenced(self, resource: str) -> bool:
        """Whether the leader that was activated last found the resource to be fenced."""
        active = self.tokens.get(resource)
        return active is not None and active.guarantee == FENCED

    def _has_heard_of_all(self, entry: Entry, operation: Operation) -> bool:
        """Whether no attempt on record of an operation has been applied or can be, now that its last one has ended.

        What was lost with its leader is heard of as soon as a later leader's attempt has ended at a fenced resource,
        and is not unsure: nothing older comes after the claim, and what has come is recognised.
        """
        if operation.unsure or not operation.lost:
            return not operation.unsure
        token = operation.token
        return self.is_fenced(operation.resource) and token is not None and token.term == entry.term

    def _was_fenced(self, resource: str) -> bool:
        """Whether a leader may have found the resource to be fenced: what it promises may change while it is used."""
        made = (record.activation for record in self.activations)
        return any(each.resource == resource and each.guarantee == FENCED for each in made)

    def _remember(self, records: deque[_R], record: _R) -> None:
        terms = self.terms + record_term(record)
        if len(records) == records.maxlen:
            terms -= record_term(records[0])
        self.terms = sum_of(terms)
        records.append(record)

    def _touch(self, operation: Operation) -> None:
        """``operation`` is about to change in what its rows do not say; :meth:`_settle` afterwards."""
        if self._captures.drawing:
            self._captures.keep(operation)
        self.terms -= counters_term(operation) + course_term(operation)

    def _settle(self, operation: Operation) -> None:
        self.terms = sum_of(self.terms + counters_term(operation) + course_term(operation))

    def _move(
        self,
        entry: Entry,
        operation: Operation,
        after: OperationState,
        attempt: int,
        token: FencingToken | None,
        note: str,
    ) -> None:
        counts, before = self.counts[operation.resource], operation.state
        counts[before] -= 1
        counts[after] += 1
        operation.state = after
        operation.history.append(HistoryRow(entry.index, entry.time_ns, after, attempt, token, note))
        self.terms = sum_of(self.terms + kept_row_term(operation, operation.history[-1]))
        if after in TERMINAL:
            self._end(entry, operation, before)

    def _end(self, entry: Entry, operation: Operation, before: OperationState) -> None:
        """It has come to an end, out of a state that was none, or the dead letters."""
        operation.finished_ns = entry.time_ns
        table = self.dead if before is _DEAD else self.pending
        del table[operation.resource][operation.index]
        if operation.state is _DEAD:
            self.dead[operation.resource][operation.index] = operation
        elif operation.state in FINAL:
            self.ended.append(operation)

    def _trim(self, operations: list[Operation]) -> None:
        for operation in operations:
            if len(operation.history) > HISTORY_ROWS_MAX:
                gone = slice(1, len(operation.history) - HISTORY_ROWS_MAX + 1)
                self.terms = sum_of(
                    self.terms - sum([kept_row_term(operation, row) for row in operation.history[gone]])
                )
                del operation.history[gone]

    def _forget(self, operation: Operation) -> None:
        """As if it had never been, but for the count of those. It stays in ``in_order`` until that is swept."""
        if self._captures.drawing:
            self._captures.keep(operation)
        self.terms = sum_of(self.terms - operation_terms(operation))
        self.counts[operation.resource][operation.state] -= 1
        del self.operations[operation.operation_id]
        del self.by_index[operation.index]
        self.forgotten += 1

    def _sweep(self) -> None:
        """Not part of the state, and so not of its rules: it waits for captures, which are not either."""
        stale = len(self.in_order) - len(self.operations)
        if stale < SWEEP_MIN or stale * 2 < len(self.in_order):
            return
        known = self.by_index.get
        self.in_order = [operation for operation in self.in_order if known(operation.index) is operation]
