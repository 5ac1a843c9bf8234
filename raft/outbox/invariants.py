"""What holds of the outbox at every applied index, and what may change between two of them.

Runs after every apply in tests and simulation, never on the hot path: the cost is the whole state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from itertools import pairwise
from typing import NamedTuple, TypeVar

from ..core.token import FencingToken
from .codec import Retention
from .operation import FINAL, TERMINAL, HistoryRow, Operation, OperationState
from .retention import COUNT_AGE_NS
from .state import OutboxState
from .state_digest import operation_terms, other_terms, sum_of
from .transitions import ARROWS


class OperationView(NamedTuple):
    """One operation at one applied index: a copy that no longer changes."""

    identity: tuple[str, str, str, str, bytes, bytes, int, int, int]
    state: OperationState
    attempt: int
    failures: int
    lost: int
    token: FencingToken | None
    result: bytes
    error: str
    finished_ns: int
    history: tuple[HistoryRow, ...]
    place: int = 0


class View(NamedTuple):
    """The state at one applied index, for comparison with a later one."""

    last_applied: int
    cluster_time_ns: int
    tokens: dict[str, FencingToken]
    operations: dict[str, OperationView]
    dispatchable_from_ns: dict[str, int]
    """By operation id: of those that must not be dispatched before a certain cluster time, that time."""
    retention: Retention
    ended: int
    """How many have ended for good."""


def view(state: OutboxState) -> View:
    return View(
        state.last_applied,
        state.cluster_time_ns,
        {resource: activation.token for resource, activation in state.tokens.items()},
        {operation_id: _view(operation) for operation_id, operation in state.operations.items()},
        {operation_id: each.not_before_ns for operation_id, each in state.operations.items() if each.not_before_ns},
        state.retention,
        len(state.ended),
    )


def _view(operation: Operation) -> OperationView:
    return OperationView(
        (
            operation.operation_id,
            operation.resource,
            operation.effect,
            operation.lane,
            operation.payload,
            operation.digest,
            operation.index,
            operation.term,
            operation.submitted_ns,
        ),
        operation.state,
        operation.attempt,
        operation.failures,
        operation.lost,
        operation.token,
        operation.result,
        operation.error,
        operation.finished_ns,
        tuple(operation.history),
        operation.place,
    )


def check(state: OutboxState) -> None:
    """Raise AssertionError, naming every violation, unless all that must hold now holds."""
    _raise(list(violations(state)))


def check_step(before: View, after: View) -> None:
    """Raise AssertionError unless the step from ``before`` to ``after`` is one that may happen."""
    _raise(list(step_violations(before, after)))


def _raise(found: list[str]) -> None:
    if found:
        raise AssertionError("outbox invariant violated: " + "; ".join(found))


# -- what holds now -----------------------------------------------------------------------------------


def violations(state: OutboxState) -> Iterator[str]:
    yield from _index_violations(state)
    for operation in state.operations.values():
        for what in _operation_violations(state, operation):
            yield f"operation {operation.operation_id!r}: {what}"


def _index_violations(state: OutboxState) -> Iterator[str]:
    """The indexes say the same as the operations, which is what a snapshot rebuilds them from."""
    in_order = list(state.operations.values())
    if [operation.index for operation in in_order] != sorted({operation.index for operation in in_order}):
        yield "operations are not in log order, or two share an index"
    if {operation.index: operation for operation in in_order} != state.by_index:
        yield "by_index does not agree with operations"
    if in_order != [each for each in state.in_order if state.by_index.get(each.index) is each]:
        yield "in_order does not agree with operations"
    pending: dict[str, list[int]] = {}
    dead: dict[str, dict[int, Operation]] = {}
    counts: dict[str, dict[OperationState, int]] = {}
    for operation in in_order:
        indexes = pending.setdefault(operation.resource, [])
        letters = dead.setdefault(operation.resource, {})
        counts.setdefault(operation.resource, dict.fromkeys(OperationState, 0))[operation.state] += 1
        if operation.state not in TERMINAL:
            indexes.append(operation.index)
        elif operation.state is OperationState.DEAD:
            letters[operation.index] = operation
    for indexes in pending.values():
        indexes.sort(key=lambda index: state.by_index[index].place)
    if {name: list(each) for name, each in _filled(state.pending)} != dict(_filled(pending)):
        yield "pending does not agree with operations"
    if dict(_filled(state.dead)) != dict(_filled(dead)):
        yield "dead does not agree with operations"
    final = sorted([each for each in in_order if each.state in FINAL], key=lambda each: (each.finished_ns, each.index))
    if sorted(state.ended, key=lambda each: (each.finished_ns, each.index)) != final:
        yield "ended does not agree with operations"
    if any(before.finished_ns > after.finished_ns for before, after in pairwise(state.ended)):
        yield "ended is not in the order of the ends"
    if {name: each for name, each in state.counts.items() if any(each.values())} != counts:
        yield f"counts are {state.counts}, and counting gives {counts}"
    for operation_id, operation in state.operations.items():
        if operation.operation_id != operation_id:
            yield f"operation {operation.operation_id!r} stands under {operation_id!r}"
    if state.terms != sum_of(other_terms(state) + sum([operation_terms(operation) for operation in in_order])):
        yield "the sum of terms is not what adding up gives"


_T = TypeVar("_T", bound=Sized)


def _filled(tables: dict[str, _T]) -> Iterator[tuple[str, _T]]:
    return ((name, table) for name, table in tables.items() if table)


def _operation_violations(state: OutboxState, operation: Operation) -> Iterator[str]:
    finished = operation.state in TERMINAL
    active = state.tokens.get(operation.resource)
    if finished != bool(operation.finished_ns):
        yield f"{operation.state} with finished_ns {operation.finished_ns}"
    if operation.state is OperationState.SUCCEEDED and operation.error:
        yield "succeeded with an error"
    if operation.state is not OperationState.SUCCEEDED and operation.result:
        yield f"{operation.state} with a result"
    if operation.state is OperationState.DISPATCHED:
        if operation.token is None or operation.attempt < 1:
            yield "dispatched without token or attempt"
        elif active is not None and operation.token < active.token:
            # Activation takes over everything of a lower token, at once (concepts: From winning an election to acting).
            yield f"dispatched under {operation.token} while {active.token} is active"
    if operation.state is OperationState.CANCELLED and not operation.cancel_ns:
        yield "cancelled, and nobody has asked for it"
    if operation.state is OperationState.DEAD and not operation.error:
        yield "dead without a reason"
    if not operation.index <= operation.place <= state.last_applied:
        yield f"index {operation.index} and place {operation.place}"
    if operation.next_try_ns and operation.state is not OperationState.RETRY_WAIT:
        yield f"{operation.state} with a time for its next try"
    if operation.failures + operation.lost > operation.attempt:
        yield f"{operation.failures} failed and {operation.lost} lost of {operation.attempt} attempts"
    yield from _history_violations(state, operation)


def _history_violations(state: OutboxState, operation: Operation) -> Iterator[str]:
    history = operation.history
    first, last = history[0], history[-1]
    if (first.index, first.state, first.time_ns) != (
        operation.index,
        OperationState.COMMITTED,
        operation.submitted_ns,
    ):
        yield "its history does not start with its commit"
    if last.state != operation.state:
        yield f"{operation.state}, and its history ends with {last.state}"
    if last.index > state.last_applied or last.time_ns > state.cluster_time_ns:
        yield "its history runs ahead of what was applied"
    for number, (row, following) in enumerate(pairwise(history)):
        if following.index < row.index or following.time_ns < row.time_ns:
            yield f"history row {number + 1} lies before the row above it"
        # Rows after the first are the ones that go when a history grows too long.
        if number and (row.state, following.state) not in ARROWS:
            yield f"history goes from {row.state} to {following.state}"


# -- what may change ----------------------------------------------------------------------------------


def step_violations(before: View, after: View) -> Iterator[str]:
    if after.last_applied <= before.last_applied:
        yield f"last applied went from {before.last_applied} to {after.last_applied}"
    if after.cluster_time_ns < before.cluster_time_ns:
        yield "cluster time went backwards"
    for resource, token in before.tokens.items():
        if resource not in after.tokens or after.tokens[resource] < token:
            yield f"the active token of {resource} went down from {token}"
    if len(after.operations) > len(before.operations) + 1:
        yield "one entry made more than one operation"
    for operation_id, old in before.operations.items():
        new = after.operations.get(operation_id)
        if new is None:
            if not _may_be_forgotten(old, before, after):
                yield f"operation {operation_id!r} is gone"
            continue
        not_before_ns = before.dispatchable_from_ns.get(operation_id, 0)
        dispatched = new.state is OperationState.DISPATCHED and new.attempt > old.attempt
        if dispatched and after.cluster_time_ns < not_before_ns:
            yield f"operation {operation_id!r}: dispatched before its time"
        if new is not old and new != old:
            for what in _change_violations(old, new, after.last_applied):
                yield f"operation {operation_id!r}: {what}"


def _may_be_forgotten(old: OperationView, before: View, after: View) -> bool:
    """By the rules in force now, and the time. It may have been one of many even if they are fewer by now."""
    window_ns, ended_max = after.retention
    age_ns = after.cluster_time_ns - old.finished_ns
    many = ended_max and before.ended >= ended_max and age_ns >= COUNT_AGE_NS
    return old.state in FINAL and bool((window_ns and age_ns >= window_ns) or many)


def _change_violations(old: OperationView, new: OperationView, index: int) -> Iterator[str]:
    if old.state in FINAL:
        yield f"changed after it was {old.state}"
    if new.identity != old.identity:
        yield "its identity changed"
    redriven = new.place != old.place
    if redriven and (old.state, new.state, new.place) != (OperationState.DEAD, OperationState.COMMITTED, index):
        yield f"its place went from {old.place} to {new.place}, and it from {old.state} to {new.state}"
    counted_less = new.failures < old.failures or new.lost < old.lost
    if new.attempt < old.attempt or (counted_less and not redriven):
        yield "an attempt was taken back"
    if old.token is not None and (new.token is None or new.token < old.token):
        yield f"its token went down from {old.token} to {new.token}"
    if new.state is OperationState.DISPATCHED and old.state is OperationState.DISPATCHED and new.token != old.token:
        yield "dispatched again while under way"
    if new.history == old.history:
        yield "changed without a row of history"
    added = [row for row in new.history if row.index == index]
    state: str = old.state
    for row in added:
        if (state, row.state) not in ARROWS:
            yield f"went from {state} to {row.state}"
        state = row.state
    if state != new.state:
        yield f"its history says {state} and it is {new.state}"


def lane_violations(state: OutboxState) -> Iterator[str]:
    """Order within lanes, as every honest leader keeps it (S52). Not enforced at apply: which
    command comes next is the dispatcher's decision, and a success is a fact even out of order."""
    for pending in state.pending.values():
        heads: dict[str, Operation] = {}
        for operation in pending.values():
            if operation.lane:
                heads.setdefault(operation.lane, operation)
        if not heads:
            continue
        resource = next(iter(heads.values())).resource
        for operation in state.operations.values():
            head = heads.get(operation.lane)
            if head is None or operation.resource != resource or operation.place <= head.place:
                continue
            if operation.state is OperationState.SUCCEEDED:
                yield f"{operation.operation_id!r} is done before {head.operation_id!r}, lane {operation.lane!r}"
