"""The replicated outbox: what an entry does to a command, and what a snapshot keeps of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....raft.outbox import capture
from ....raft.outbox import snapshot as outbox_snapshot
from ....raft.outbox.machine import OutboxMachine
from ....raft.outbox.state import OutboxState
from .mutant import Mutant


def _mutant(name: str, function: Callable[..., Any], line: str, fault: str) -> Mutant:
    return Mutant(name, "outbox", function, line, fault)


MUTANTS = (
    _mutant(
        "a command that is known is taken in once more",
        OutboxMachine._apply_command,
        "if known is not None:",
        "if False:",
    ),
    _mutant(
        "what the predecessor had under way is not taken over",
        OutboxMachine._apply_activation,
        "if after is None or operation.token is None or operation.token >= token:",
        "if True:",
    ),
    _mutant(
        "a naked effect that was under way is begun anew",
        OutboxMachine._apply_activation,
        "trigger = TAKE_OVER_BY_GUARANTEE.get(activation.guarantee)",
        "trigger = Trigger.TAKE_OVER",
    ),
    _mutant(
        "a retry begins its count anew",
        OutboxMachine._fail,
        "operation.failures += trigger in _FAILURES",
        "operation.failures = int(trigger in _FAILURES)",
    ),
    _mutant(
        "an operation that waits is not in a snapshot's list of what waits",
        OutboxState.place_operation,
        "if state not in TERMINAL:",
        "if state is OperationState.COMMITTED:",
    ),
    _mutant(
        "what is under way is cancelled for certain",
        OutboxMachine._way_to_cancel,
        "if operation.state is OperationState.DISPATCHED:",
        "if operation.state is OperationState.DISPATCHED and not operation.attempt:",
    ),
    _mutant(
        "what may have been applied is cancelled for certain",
        OutboxMachine._way_to_cancel,
        "heard_of_all = self._has_heard_of_all(entry, operation)",
        "heard_of_all = own = True",
    ),
    _mutant(
        "a redriven letter keeps its old place",
        OutboxMachine._apply_redrive,
        "operation.place = entry.index",
        "pass",
    ),
    _mutant(
        "a dead letter is forgotten",
        OutboxMachine._end,
        "elif operation.state in FINAL:",
        "if operation.state in TERMINAL:",
    ),
    _mutant(
        "cluster time is not in a snapshot",
        outbox_snapshot._load_head,
        "state.cluster_time_ns = head.cluster_time_ns",
        "pass",
    ),
    _mutant(
        "lost attempts are not read back from a snapshot",
        outbox_snapshot._load_operations,
        "operation = Operation(*record)",
        "operation = Operation(*record[:12], 0, *record[13:])",
    ),
    _mutant(
        "what changes while a snapshot is written is written as it has become",
        capture.Captures.keep,
        "capture.kept[index] = record_of(operation)",
        "pass",
    ),
)
