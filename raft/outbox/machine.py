"""The replicated outbox: commands, attempts, outcomes and who holds which fence.

Pure: the state is a function of the entries applied, in order. No clock, chance, file or log line;
the only time is the cluster time that entries carry. All judging happens here, at apply, and never
where an entry was made: an entry may be appended by a leader that is one no longer by the time it
is applied, and then it is a no-op (S31, S47).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ..core.entry import Entry
from ..core.errors import UnknownEntry
from ..core.token import FencingToken
from .bookkeeping import FENCED, HISTORY_ROWS_MAX
from .codec import (
    Activation,
    Cancel,
    Command,
    Discard,
    Dispatch,
    Election,
    Expiry,
    Outcome,
    OutcomeRow,
    Redrive,
    Resolve,
    Retention,
    Tick,
    decode,
    digest,
)
from .operation import HistoryRow, Operation, OperationState
from .retention import Retaining
from .snapshot import load
from .state import ActivationRecord, ElectionRecord, OutboxState
from .state_digest import (
    arrow_check,
    counters_term,
    course_term,
    digest_of,
    record_term,
    row_term,
    submission_term,
    sum_of,
)
from .transitions import TAKE_OVER_BY_GUARANTEE, TRANSITIONS, Trigger, Verdict
from .wishes import Wishes

__all__ = ["HISTORY_ROWS_MAX", "Expired", "OutboxMachine", "SubmitResult"]

_COMMITTED = OperationState.COMMITTED
_DISPATCHED = OperationState.DISPATCHED
_SUCCEEDED = OperationState.SUCCEEDED
_DEAD = OperationState.DEAD
_OPEN = frozenset({OperationState.COMMITTED, OperationState.RETRY_WAIT})
_ON_DISPATCH = TRANSITIONS[Trigger.DISPATCH]
_ON_SUCCESS = TRANSITIONS[Trigger.SUCCESS]
_TRIGGERS = {
    int(Verdict.FAILED): Trigger.FAILURE,
    int(Verdict.DEAD): Trigger.DEATH,
    int(Verdict.RETRY): Trigger.RETRY,
    int(Verdict.NOT_ATTEMPTED): Trigger.RELEASE,
    int(Verdict.IN_DOUBT): Trigger.DOUBT,
    int(Verdict.UNANSWERED): Trigger.RETRY,
    int(Verdict.UNHEARD): Trigger.RELEASE,
}
_UNSURE = frozenset({int(Verdict.UNANSWERED), int(Verdict.UNHEARD)})
_FAILURES = frozenset({Trigger.RETRY, Trigger.FAILURE, Trigger.DEATH})
_VERDICTS = frozenset(int(verdict) for verdict in Verdict)
_new_tuple = tuple.__new__  # A named tuple without its Python-level __new__: half the time, per row.


class SubmitResult(NamedTuple):
    """What became of one submission."""

    operation: Operation
    """The operation of that id: the one just made, or the one that was there before."""
    replayed: bool
    """The same command had been submitted before: this is its stored answer, or joins it."""
    reused: bool
    """Another command had been submitted under this id: nothing was accepted (S34)."""


class Expired(NamedTuple):
    """A submission under an id that may have been known and was forgotten: nothing was accepted (S33)."""

    operation_id: str


class OutboxMachine(Wishes, Retaining):
    """The state machine behind entries of kind ``OUTBOX`` (``raft.ports.Machine``).

    Readers may look at every attribute and change none.
    """

    def __init__(self) -> None:
        super().__init__()
        self._appliers: dict[type, Callable[[Entry, Any], Any]] = {
            Command: self._apply_command,
            Dispatch: self._apply_dispatch,
            Outcome: self._apply_outcome,
            Activation: self._apply_activation,
            Election: self._apply_election,
            Cancel: self._apply_cancel,
            Redrive: self._apply_redrive,
            Resolve: self._apply_resolve,
            Discard: self._apply_discard,
            Expiry: self._apply_expiry,
            Tick: self._apply_tick,
            Retention: self._apply_retention,
        }

    def apply(self, entry: Entry) -> Any:
        """Apply a committed entry.

        Returns, by what the entry holds: Command: :class:`SubmitResult` or :class:`Expired`. Election, Tick
        and Retention: None. All others: the operations that they changed. Raises :class:`UnknownEntry`,
        with the state untouched, for an entry of a later version (S55).
        """
        decoded = decode(entry.data)
        if entry.index <= self.last_applied:
            raise AssertionError(f"entry {entry.index} applied after {self.last_applied}")
        result = self._appliers[type(decoded)](entry, decoded)
        self.last_applied = entry.index
        if entry.time_ns > self.cluster_time_ns:
            self.cluster_time_ns = entry.time_ns
        if self.ended and any(self.retention):
            self._forget_old()
        return result

    # -- what clients append -----------------------------------------------------------------------

    def _apply_command(self, entry: Entry, command: Command) -> SubmitResult | Expired:
        operation_id, resource, effect, lane, payload, not_before_ns, deadline_ns = command
        known = self.operations.get(operation_id)
        if known is not None:
            # Decided here and not where it was proposed: two nodes may have taken the same id in
            # at once, and dedupe must be the same on every replica (S33, S34).
            reused = known.digest != digest(command)
            return SubmitResult(known, not reused, reused)
        if self.forgotten_ids_ns and self._is_expired(operation_id):
            return Expired(operation_id)
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
            place=index,
            not_before_ns=not_before_ns,
            deadline_ns=deadline_ns,
        )
        self.operations[operation_id] = operation
        self.by_index[index] = operation
        self.in_order.append(operation)
        self.terms = sum_of(self.terms + submission_term(operation) + course_term(operation))
        self.place_operation(operation)
        result: SubmitResult = _new_tuple(SubmitResult, (operation, False, False))
        return result

    # -- what the leader appends -------------------------------------------------------------------

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
            if operation.not_before_ns > time_ns or 0 < operation.deadline_ns <= time_ns:
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
        pending, dead = self.pending.get(resource), self.dead.get(resource)
        if not pending and not dead:
            return []
        assert pending is not None
        assert dead is not None
        counts, captures = self.counts[resource], self._captures
        current = self._is_current(entry, resource, token)
        index, time_ns = entry.index, entry.time_ns
        arrow = arrow_check(index, time_ns, _SUCCEEDED, token)
        terms = 0  # Beside those of the failures, which are added where they are judged.
        changed = []
        for row in rows:
            operation = pending.get(row[0]) or dead.get(row[0])
            if operation is None:  # Unknown here, or final: the first success has won.
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
            if operation.state is _DEAD:
                del dead[row[0]]
            else:
                del pending[row[0]]
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
            self.ended.append(operation)
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
        self._touch(operation)
        operation.error = row.error
        operation.failures += trigger in _FAILURES
        operation.unsure |= row.verdict in _UNSURE
        note = row.error
        if operation.cancel_ns and after in _OPEN:
            after = self._after_a_wish(entry, operation, after)
            if after not in _OPEN:
                operation.error = note = f"cancelled: {row.error}".rstrip(": ")
        if after is OperationState.RETRY_WAIT:
            operation.next_try_ns = row.next_try_ns
        self._settle(operation)
        self._move(entry, operation, after, row.attempt, token, note)
        return True

    def _after_a_wish(self, entry: Entry, operation: Operation, after: OperationState) -> OperationState:
        """Nobody wants another attempt. Of what was certainly not applied this is the end; a fenced resource is
        asked once more about anything else, and recognises it."""
        if self._has_heard_of_all(entry, operation):
            return TRANSITIONS[Trigger.DROP][operation.state]
        return after if self.is_fenced(operation.resource) else OperationState.IN_DOUBT

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
            self._touch(operation)
            operation.lost += 1
            operation.unsure |= activation.guarantee != FENCED
            if operation.cancel_ns and operation.unsure:  # Not at a fenced resource.
                after = OperationState.IN_DOUBT  # Nobody wants another attempt, and this one may have been applied.
            self._settle(operation)
            note = f"{activation.holder} took over from token {operation.token}"
            self._move(entry, operation, after, operation.attempt, token, note)
            changed.append(operation)
        in_doubt = sum(1 for operation in changed if operation.state is OperationState.IN_DOUBT)
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
