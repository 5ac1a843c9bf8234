"""The replicated outbox: commands, attempts, outcomes and who holds which fence.

Pure: the state is a function of the entries applied, in order. No clock, chance, file or log line;
the only time is the cluster time that entries carry. All judging happens here, at apply, and never
where an entry was made: an entry may be appended by a leader that is one no longer by the time it
is applied, and then it is a no-op (S31, S47).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from ..core.entry import Entry
from ..core.errors import UnknownEntry
from ..core.token import FencingToken
from .capture import Captures
from .codec import Activation, Command, Dispatch, Election, Outcome, OutcomeRow, decode, digest
from .operation import TERMINAL, HistoryRow, Operation, OperationState
from .snapshot import load
from .state import ActivationRecord, ElectionRecord, OutboxState
from .state_digest import (
    arrow_check,
    counters_term,
    digest_of,
    kept_row_term,
    record_term,
    row_term,
    submission_term,
    sum_of,
)
from .transitions import TAKE_OVER_BY_GUARANTEE, TRANSITIONS, Trigger, Verdict

HISTORY_ROWS_MAX = 128
"""Rows of history an operation keeps. Beyond it the oldest goes, but never the first: a command
that is put off for days must not grow without bound."""

_COMMITTED = OperationState.COMMITTED
_DISPATCHED = OperationState.DISPATCHED
_SUCCEEDED = OperationState.SUCCEEDED
_ON_DISPATCH = TRANSITIONS[Trigger.DISPATCH]
_ON_SUCCESS = TRANSITIONS[Trigger.SUCCESS]
_TRIGGERS = {
    int(Verdict.FAILED): Trigger.FAILURE,
    int(Verdict.DEAD): Trigger.DEATH,
    int(Verdict.RETRY): Trigger.RETRY,
    int(Verdict.NOT_ATTEMPTED): Trigger.RELEASE,
    int(Verdict.IN_DOUBT): Trigger.DOUBT,
}
_VERDICTS = frozenset(int(verdict) for verdict in Verdict)
_R = TypeVar("_R", ActivationRecord, ElectionRecord)
_new_tuple = tuple.__new__  # A named tuple without its Python-level __new__: half the time, per row.


class SubmitResult(NamedTuple):
    """What became of one submission."""

    operation: Operation
    """The operation of that id: the one just made, or the one that was there before."""
    replayed: bool
    """The same command had been submitted before: this is its stored answer, or joins it."""
    reused: bool
    """Another command had been submitted under this id: nothing was accepted (S34)."""


class OutboxMachine(OutboxState):
    """The state machine behind entries of kind ``OUTBOX`` (``raft.ports.Machine``).

    Readers may look at every attribute and change none.
    """

    def __init__(self) -> None:
        super().__init__()
        self._captures = Captures()
        self._appliers: dict[type, Callable[[Entry, Any], Any]] = {
            Command: self._apply_command,
            Dispatch: self._apply_dispatch,
            Outcome: self._apply_outcome,
            Activation: self._apply_activation,
            Election: self._apply_election,
        }

    def apply(self, entry: Entry) -> Any:
        """Apply a committed entry.

        Returns, by what the entry holds: Command: :class:`SubmitResult`. Dispatch, Outcome: the
        operations whose state changed. Activation: the operations that were returned or went in
        doubt. Election: None. Raises :class:`UnknownEntry`, with the state untouched, for an entry
        of a later version (S55).
        """
        decoded = decode(entry.data)
        if entry.index <= self.last_applied:
            raise AssertionError(f"entry {entry.index} applied after {self.last_applied}")
        result = self._appliers[type(decoded)](entry, decoded)
        self.last_applied = entry.index
        if entry.time_ns > self.cluster_time_ns:
            self.cluster_time_ns = entry.time_ns
        return result

    # -- what clients append -----------------------------------------------------------------------

    def _apply_command(self, entry: Entry, command: Command) -> SubmitResult:
        operation_id, resource, effect, lane, payload = command
        known = self.operations.get(operation_id)
        if known is not None:
            # Decided here and not where it was proposed: two nodes may have taken the same id in
            # at once, and dedupe must be the same on every replica (S33, S34).
            reused = known.digest != digest(command)
            return SubmitResult(known, not reused, reused)
        index, time_ns = entry.index, entry.time_ns
        operation = Operation(
            operation_id,
            resource,
            effect,
            lane,
            payload,
            digest(command),
            index,
            entry.term,
            time_ns,
            history=[_new_tuple(HistoryRow, (index, time_ns, _COMMITTED, 0, None, ""))],
        )
        self.operations[operation_id] = operation
        self.by_index[index] = operation
        self.in_order.append(operation)
        self.terms = sum_of(self.terms + submission_term(operation))
        pending = self.pending.get(resource)
        if pending is None:
            pending = self.pending[resource] = {}
            self.counts[resource] = dict.fromkeys(OperationState, 0)
        pending[index] = operation
        self.counts[resource][_COMMITTED] += 1
        result: SubmitResult = _new_tuple(SubmitResult, (operation, False, False))
        return result

    # -- what the leader appends -------------------------------------------------------------------

    def _is_current(self, entry: Entry, resource: str, token: FencingToken) -> bool:
        """Whether an entry speaks for the leader that appended it, and none has followed it.

        An entry whose token is of another term than the entry itself was carried over: made by a
        leader that had lost its term before the entry got into the log (S47).
        """
        if token.term != entry.term:
            return False
        active = self.tokens.get(resource)
        return active is None or token >= active.token

    def _apply_dispatch(self, entry: Entry, dispatch: Dispatch) -> list[Operation]:
        resource, token, rows = dispatch
        pending = self.pending.get(resource)
        if not pending or not self._is_current(entry, resource, token):
            return []
        counts, captures = self.counts[resource], self._captures
        index, time_ns = entry.index, entry.time_ns
        arrow, terms = arrow_check(index, time_ns, _DISPATCHED, token), self.terms
        changed = []
        for operation_index, attempt in rows:
            operation = pending.get(operation_index)
            if operation is None or operation.attempt + 1 != attempt or operation.state not in _ON_DISPATCH:
                continue
            if captures.drawing:
                captures.keep(operation)
            counts[operation.state] -= 1
            operation.state = _DISPATCHED
            operation.attempt = attempt
            operation.token = token
            if operation.next_try_ns:
                terms -= counters_term(operation)
                operation.next_try_ns = 0
                terms += counters_term(operation)
            operation.history.append(_new_tuple(HistoryRow, (index, time_ns, _DISPATCHED, attempt, token, "")))
            terms += row_term(arrow, operation_index, attempt, "")
            changed.append(operation)
        self.terms = sum_of(terms)
        counts[_DISPATCHED] += len(changed)
        self._trim(changed)
        return changed

    def _apply_outcome(self, entry: Entry, outcome: Outcome) -> list[Operation]:
        resource, token, rows = outcome
        if not _VERDICTS.issuperset([row[2] for row in rows]):
            raise UnknownEntry(
                f"outcome at index {entry.index} with a verdict that this version does not know",
                next_step="install the version that wrote it",
            )
        pending = self.pending.get(resource)
        if not pending:
            return []
        counts, captures = self.counts[resource], self._captures
        current = self._is_current(entry, resource, token)
        index, time_ns = entry.index, entry.time_ns
        arrow = arrow_check(index, time_ns, _SUCCEEDED, token)
        terms = 0  # Beside those of the failures, which are added where they are judged.
        changed = []
        for row in rows:
            operation = pending.get(row[0])
            if operation is None:  # Unknown here, or terminal: the first success has won.
                continue
            if captures.drawing:
                captures.keep(operation)
            if row[2]:
                if current and self._fail(entry, token, operation, row):
                    changed.append(operation)
                continue
            # Success is a fact: it counts whatever its attempt, and from whichever leader.
            attempt = row[1]
            counts[operation.state] -= 1
            operation.state = _SUCCEEDED
            operation.result = row[3]
            operation.error = ""
            if operation.next_try_ns:
                terms -= counters_term(operation)
                operation.next_try_ns = 0
                terms += counters_term(operation)
            operation.finished_ns = time_ns
            note = "" if attempt == operation.attempt else f"outcome of attempt {attempt}"
            if attempt > operation.attempt:
                operation.attempt = attempt
            if operation.token is None or token > operation.token:
                operation.token = token
            counts[_SUCCEEDED] += 1
            operation.history.append(_new_tuple(HistoryRow, (index, time_ns, _SUCCEEDED, attempt, token, note)))
            terms += row_term(arrow, row[0], attempt, note, row[3])
            del pending[row[0]]
            changed.append(operation)
        self.terms = sum_of(self.terms + terms)
        self._trim(changed)
        return changed

    def _fail(self, entry: Entry, token: FencingToken, operation: Operation, row: OutcomeRow) -> bool:
        """Failure is an opinion: it counts only if it names the attempt that is under way."""
        trigger = _TRIGGERS[row.verdict]
        if trigger is Trigger.RELEASE and row.next_try_ns:
            trigger = Trigger.POSTPONE
        after = TRANSITIONS[trigger].get(operation.state)
        if after is None or operation.attempt != row.attempt or operation.token != token:
            return False
        operation.error = row.error
        terms = -counters_term(operation)
        if trigger is Trigger.RETRY or trigger is Trigger.FAILURE or trigger is Trigger.DEATH:
            operation.failures += 1
        if after is OperationState.RETRY_WAIT:
            operation.next_try_ns = row.next_try_ns
        self.terms += terms + counters_term(operation)
        self._move(entry, operation, after, row.attempt, token, row.error)
        return True

    def _apply_activation(self, entry: Entry, activation: Activation) -> list[Operation]:
        trigger = TAKE_OVER_BY_GUARANTEE.get(activation.guarantee)
        if trigger is None:
            raise UnknownEntry(
                f"activation at index {entry.index} with guarantee {activation.guarantee!r}, "
                f"which this version does not know",
                next_step="install the version that wrote it",
            )
        resource, token = activation.resource, activation.token
        active = self.tokens.get(resource)
        if not self._is_current(entry, resource, token):
            return []
        if active is not None and active.token == token and active.holder != activation.holder:
            return []  # Two holders of one token: the resource raises the alarm, the first one stays.
        if active is not None:
            self.terms -= record_term(active)
        self.tokens[resource] = activation
        self.terms += record_term(activation)
        arrows = TRANSITIONS[trigger]
        changed = []
        for operation in self.pending.get(resource, {}).values():
            after = arrows.get(operation.state)
            if after is None or operation.token is None or operation.token >= token:
                continue
            if self._captures.drawing:
                self._captures.keep(operation)
            self.terms -= counters_term(operation)
            operation.lost += 1
            self.terms += counters_term(operation)
            note = f"{activation.holder} took over from token {operation.token}"
            self._move(entry, operation, after, operation.attempt, token, note)
            changed.append(operation)
        in_doubt = len(changed) if trigger is Trigger.TAKE_OVER_NAKED else 0
        self._remember(
            self.activations,
            ActivationRecord(entry.index, entry.time_ns, activation, len(changed) - in_doubt, in_doubt),
        )
        self._trim(changed)
        return changed

    def _apply_election(self, entry: Entry, election: Election) -> None:
        if self.elections and self.elections[-1].election.token == election.token:
            # The same change of leader, now with the stages that came after.
            self.terms -= record_term(self.elections.pop())
        self._remember(self.elections, ElectionRecord(entry.index, entry.time_ns, election))

    # -- bookkeeping -------------------------------------------------------------------------------

    def _remember(self, records: deque[_R], record: _R) -> None:
        terms = self.terms + record_term(record)
        if len(records) == records.maxlen:
            terms -= record_term(records[0])
        self.terms = sum_of(terms)
        records.append(record)

    def _move(
        self,
        entry: Entry,
        operation: Operation,
        after: OperationState,
        attempt: int,
        token: FencingToken,
        note: str,
    ) -> None:
        counts = self.counts[operation.resource]
        counts[operation.state] -= 1
        counts[after] += 1
        operation.state = after
        operation.history.append(HistoryRow(entry.index, entry.time_ns, after, attempt, token, note))
        arrow = arrow_check(entry.index, entry.time_ns, after, token)
        self.terms = sum_of(self.terms + row_term(arrow, operation.index, attempt, note))
        if after in TERMINAL:
            operation.finished_ns = entry.time_ns
            del self.pending[operation.resource][operation.index]

    def _trim(self, operations: list[Operation]) -> None:
        for operation in operations:
            if len(operation.history) > HISTORY_ROWS_MAX:
                gone = slice(1, len(operation.history) - HISTORY_ROWS_MAX + 1)
                self.terms = sum_of(
                    self.terms - sum([kept_row_term(operation, row) for row in operation.history[gone]])
                )
                del operation.history[gone]

    # -- the whole state ---------------------------------------------------------------------------

    def snapshot(self) -> Iterator[bytes]:
        """The state as chunks. Captured now; the chunks may be drawn later and on another thread."""
        return self._captures.take(self)

    @staticmethod
    def prepare(chunks: Iterable[bytes]) -> OutboxState:
        """A snapshot's state, read and verified. Touches no machine: may run on any thread.

        Raises :class:`StorageCorrupt` or :class:`StorageFormatUnknown`.
        """
        return load(chunks)

    def adopt(self, prepared: OutboxState) -> None:
        """Replace the whole state by what :meth:`prepare` made, and leave the old one in ``prepared``: to free a
        million operations takes a second, which the caller may spend elsewhere (``OutboxState.discard``)."""
        old = {name: self.__dict__[name] for name in vars(prepared)}
        self.__dict__.update(vars(prepared))
        vars(prepared).update(old)
        prepared.being_read = any(not capture.ended for capture in self._captures.drawing)

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replace the state by a snapshot's.

        Raises :class:`StorageCorrupt` or :class:`StorageFormatUnknown`, with the state untouched.
        """
        self.adopt(self.prepare(chunks))

    def state_digest(self) -> bytes:
        """What stands for the state, kept up with every entry (:func:`~.state_digest.digest_of`)."""
        return digest_of(self)

    def state_hash(self) -> bytes:
        """16 bytes, equal on two replicas exactly if their states are equal (up to collision)."""
        tail = b""
        for tail in self.snapshot():  # noqa: B007 - the last one holds the digest of all before it
            pass
        return tail[1:]
