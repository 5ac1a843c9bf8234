"""Each invariant finds the fault it is there for: planted here, because the machine has none of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.raft.core.token import FencingToken
from fencepost.raft.outbox.codec import Activation
from fencepost.raft.outbox.invariants import View, check, check_step, view
from fencepost.raft.outbox.machine import OutboxMachine
from fencepost.raft.outbox.operation import HistoryRow, OperationState
from fencepost.raft.outbox.transitions import ARROWS, TAKE_OVER_BY_GUARANTEE, TRANSITIONS, Trigger
from fencepost.raft.ports import Guarantee

from .script import RESOURCE, Script


def _machine() -> OutboxMachine:
    script = Script()
    script.activate(2)
    a, b, _ = script.submit("a"), script.submit("b"), script.submit("c")
    script.dispatch((a, 1), (b, 1))
    script.succeed(a, 1)
    return script.machine


def _set(operation_id: str, **changes: object) -> Callable[[OutboxMachine], None]:
    def plant(machine: OutboxMachine) -> None:
        for name, value in changes.items():
            setattr(machine.operations[operation_id], name, value)

    return plant


def _higher_token(machine: OutboxMachine) -> None:
    machine.tokens[RESOURCE] = Activation(RESOURCE, FencingToken(1, 9), "n9", "fenced")


STATES = {
    "pending forgets one": lambda machine: machine.pending[RESOURCE].popitem(),
    "counts are off": lambda machine: machine.counts[RESOURCE].update({OperationState.DEAD: 1}),
    "index points elsewhere": lambda machine: machine.by_index.update({2: machine.by_index[3]}),
    "order forgets one": lambda machine: machine.in_order.pop(),
    "stands under another id": lambda machine: machine.operations.update(x=machine.operations.pop("c")),
    "terminal without an end": _set("a", finished_ns=0),
    "success with an error": _set("a", error="why"),
    "result without success": _set("b", result=b"1"),
    "dispatched without a token": _set("b", token=None),
    "dispatched under a lower token": _higher_token,
    "next try of a dispatched one": _set("b", next_try_ns=7),
    "more failures than attempts": _set("b", failures=5),
    "history does not end in the state": _set("b", state=OperationState.RETRY_WAIT),
    "history runs ahead": lambda machine: setattr(machine, "last_applied", 1),
}  # fmt: skip


def test_the_machine_itself_passes() -> None:
    check(_machine())


@pytest.mark.parametrize("plant", STATES.values(), ids=STATES)
def test_planted_state_is_found(plant: Callable[[OutboxMachine], object]) -> None:
    machine = _machine()
    plant(machine)
    with pytest.raises(AssertionError, match="invariant"):
        check(machine)


def _after(change: Callable[[OutboxMachine], object]) -> tuple[View, View]:
    machine = _machine()
    before = view(machine)
    machine.last_applied += 1
    change(machine)
    return before, view(machine)


STEPS = {
    "an operation is gone": lambda machine: machine.operations.pop("c"),
    "a result changes": _set("a", result=b"other"),
    "a terminal state is left": _set("a", state=OperationState.COMMITTED),
    "an identity changes": _set("c", payload=b"other"),
    "an attempt is taken back": _set("b", attempt=0),
    "a token goes down": _set("b", token=FencingToken(1, 1)),
    "no row of history": _set("b", state=OperationState.DEAD),
    "an arrow that is none": lambda machine: machine.operations["c"].history.append(
        HistoryRow(machine.last_applied, 1, "failed", 0, None, "")
    ),
    "the active token goes down": lambda machine: machine.tokens.clear(),
    "time goes backwards": lambda machine: setattr(machine, "cluster_time_ns", 0),
    "the applied index stands": lambda machine: setattr(machine, "last_applied", machine.last_applied - 1),
}


@pytest.mark.parametrize("plant", STEPS.values(), ids=STEPS)
def test_planted_step_is_found(plant: Callable[[OutboxMachine], object]) -> None:
    with pytest.raises(AssertionError, match="invariant"):
        check_step(*_after(plant))


def test_a_step_without_change_passes() -> None:
    check_step(*_after(lambda machine: None))


def test_the_table_is_the_diagram() -> None:
    assert {
        ("committed", "dispatched"), ("retry-wait", "dispatched"),
        ("committed", "succeeded"), ("dispatched", "succeeded"), ("retry-wait", "succeeded"), ("in-doubt", "succeeded"),
        ("dispatched", "failed"), ("dispatched", "dead"), ("dispatched", "retry-wait"),
        ("dispatched", "committed"), ("dispatched", "in-doubt"),
        ("committed", "cancelled"), ("retry-wait", "cancelled"), ("dispatched", "cancelled"), ("in-doubt", "cancelled"),
        ("committed", "committed"), ("retry-wait", "retry-wait"), ("dispatched", "dispatched"),
        ("committed", "in-doubt"), ("retry-wait", "in-doubt"), ("committed", "dead"), ("retry-wait", "dead"),
        ("in-doubt", "dead"), ("in-doubt", "retry-wait"), ("dead", "committed"), ("dead", "failed"),
        ("dead", "succeeded"),
    } == ARROWS  # fmt: skip
    assert set(TRANSITIONS) == set(Trigger)


def test_every_guarantee_has_its_take_over() -> None:
    assert set(TAKE_OVER_BY_GUARANTEE) == {guarantee.value for guarantee in Guarantee}
