"""What holds of the outbox at every applied index, and what may change between two of them.

Runs after every apply in tests and simulation, never on the hot path: the cost is the whole state.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ..core.token import FencingToken
from .operation import TERMINAL, HistoryRow, Operation, OperationState
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


class View(NamedTuple):
    """The state at one applied index, for comparison with a later one."""

    last_applied: int
    cluster_time_ns: int
    tokens: dict[str, FencingToken]
    operations: dict[str, OperationView]


def view(state: OutboxState) -> View:
    return View(
        state.last_applied,
        state.cluster_time_ns,
        {resource: activation.token for resource, activation in state.tokens.items()},
        {operation_id: _view(operation) for operation_id, operation in state.operations.items()},
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
    if in_order != state.in_order:
        yield "in_order does not agree with operations"
    pending: dict[str, list[int]] = {}
    counts: dict[str, dict[OperationState, int]] = {}
    for operation in in_order:
        indexes = pending.setdefault(operation.resource, [])
        counts.setdefault(operation.resource, dict.fromkeys(OperationState, 0))[operation.state] += 1
        if operation.state not in TERMINAL:
            indexes.append(operation.index)
    if {resource: list(operations) for resource, operations in state.pending.items()} != pending:
        yield "pending does not agree with operations"
    if state.counts != counts:
        yield f"counts are {state.counts}, and counting gives {counts}"
    for operation_id, operation in state.operations.items():
        if operation.operation_id != operation_id:
            yield f"operation {operation.operation_id!r} stands under {operation_id!r}"
    if state.terms != sum_of(other_terms(state) + sum([operation_terms(operation) for operation in in_order])):
        yield "the sum of terms is not what adding up gives"


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
            yield f"operation {operation_id!r} is gone"
            continue
        if new is not old and new != old:
            for what in _change_violations(old, new, after.last_applied):
                yield f"operation {operation_id!r}: {what}"


def _change_violations(old: OperationView, new: OperationView, index: int) -> Iterator[str]:
    if old.state in TERMINAL:
        yield f"changed after it was {old.state}"
    if new.identity != old.identity:
        yield "its identity changed"
    if new.attempt < old.attempt or new.failures < old.failures or new.lost < old.lost:
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
            if head is None or operation.resource != resource or operation.index <= head.index:
                continue
            if operation.state is OperationState.SUCCEEDED:
                yield f"{operation.operation_id!r} is done before {head.operation_id!r}, lane {operation.lane!r}"
