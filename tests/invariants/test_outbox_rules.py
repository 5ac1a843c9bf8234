"""The rules of the outbox as a property: faults planted in the machine itself, which all replicas have alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fencepost.jepsen.invariants.outbox_rules import OutboxRules
from fencepost.jepsen.proof.planting import planted
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
from fencepost.raft.outbox.machine import OutboxMachine
from fencepost.raft.outbox.transitions import TAKE_OVER_BY_GUARANTEE, Trigger, Verdict

from .scene import Scene, scene

OLD, NEW = FencingToken(1, 2), FencingToken(1, 3)


class Tale:
    """Entries that follow the log of a world, one after another, as far as the property takes them."""

    def __init__(self, it: Scene) -> None:
        self.it = it
        self.own = it.of(OutboxRules)
        self.index = it.ledger.last_index
        self.operation = 0

    def tell(self, made: OutboxEntry, term: int = 2) -> None:
        self.index += 1
        entry = Entry(self.index, term, EntryKind.OUTBOX, self.index, encode(made))
        self.own.first_committed(self.it.leader, [entry], self.it.before())

    def submit(self, resource: str = "ledger") -> None:
        self.tell(Command("one", resource, "credit", "", b"[]"))
        self.operation = self.index

    def activate(
        self, token: FencingToken, *, guarantee: str = "fenced", resource: str = "ledger", term: int = 0
    ) -> None:
        self.tell(Activation(resource, token, "holder", guarantee), term or token.term)

    def dispatch(self, token: FencingToken, attempt: int = 1, *, term: int = 0) -> None:
        rows = [DispatchRow(self.operation, attempt)]
        self.tell(Dispatch("ledger", token, rows), term or token.term)

    def end(self, token: FencingToken, verdict: Verdict, attempt: int = 1, *, term: int = 0, next_ns: int = 0) -> None:
        rows = [OutcomeRow(self.operation, attempt, int(verdict), b"" if verdict else b"done", "", next_ns)]
        self.tell(Outcome("ledger", token, rows), term or token.term)


@contextmanager
def begun() -> Iterator[Tale]:
    """One command is submitted and the leader of term 2 is active."""
    with scene() as it:
        tale = Tale(it)
        tale.submit()
        tale.activate(OLD)
        yield tale


def whole_life(tale: Tale) -> None:
    """Every rule, once kept in each direction."""
    tale.dispatch(OLD, 2)  # There was no first attempt.
    tale.dispatch(OLD, term=3)  # Carried over into another term.
    tale.end(OLD, Verdict.FAILED)  # Nothing is under way.
    tale.dispatch(OLD)
    tale.end(OLD, Verdict.NOT_ATTEMPTED)
    tale.dispatch(OLD, 2)
    tale.end(OLD, Verdict.NOT_ATTEMPTED, 2, next_ns=9)
    tale.dispatch(OLD, 3)
    tale.end(OLD, Verdict.RETRY, 2)  # Of another attempt.
    tale.end(OLD, Verdict.RETRY, 3, next_ns=9)
    tale.dispatch(OLD, 4)
    tale.activate(OLD, term=3)
    tale.activate(NEW)
    tale.activate(OLD)
    tale.end(OLD, Verdict.FAILED, 4)
    tale.dispatch(OLD, 5)
    tale.dispatch(NEW, 5)
    tale.end(NEW, Verdict.IN_DOUBT, 5)
    tale.dispatch(NEW, 6)
    tale.end(OLD, Verdict.SUCCEEDED, 4, term=3)
    tale.end(NEW, Verdict.DEAD, 5)
    tale.submit()
    tale.activate(FencingToken(1, 4), resource="naked", guarantee="naked")


def test_right_entries_and_wrong_ones_that_change_nothing_are_passed_in_silence() -> None:
    with begun() as tale:
        whole_life(tale)
        assert tale.own._replay is not None
        operation = tale.own._replay.machine.operations["one"]
        assert (operation.state, operation.attempt, operation.lost, operation.failures) == ("succeeded", 5, 1, 1)


FAULTS: tuple[tuple[str, Callable[..., Any], str, str, str], ...] = (
    (
        "a superseded leader is listened to",
        OutboxMachine._is_current,
        "if token.term != entry.term:",
        "if False:",
        "was Standing.*committed.* and is Standing.*dispatched",
    ),
    (
        "a lower token is active again",
        OutboxMachine._is_current,
        "return active is None or token >= active.token",
        "return True",
        "activates 1.2 at ledger, and 1.2 is active there",
    ),
    (
        "attempts are not counted",
        OutboxMachine._apply_dispatch,
        "operation.attempt + 1 != attempt or ",
        "",
        "attempt=0.* and is Standing.*attempt=2",
    ),
    (
        "a failure counts whatever its attempt",
        OutboxMachine._fail,
        "operation.attempt != row.attempt or ",
        "",
        "attempt=3.* and is Standing.*retry-wait",
    ),
    (
        "failures are not counted",
        OutboxMachine._fail,
        "operation.failures += trigger in _FAILURES",
        "pass",
        "failures=0.*should be",
    ),
    (
        "what was not attempted counts",
        OutboxMachine._fail,
        "operation.failures += trigger in _FAILURES",
        "operation.failures += 1",
        "failures=1",
    ),
    (
        "a success is an opinion",
        OutboxMachine._apply_outcome,
        "if row[2]:",
        "if row[2] or not current:",
        "should be Standing.*succeeded",
    ),
    (
        "the first result is lost",
        OutboxMachine._apply_outcome,
        "operation.result = row[3]",
        "pass",
        "result=b''",
    ),
    (
        "what is under way is not taken over",
        OutboxMachine._apply_activation,
        "if after is None or operation.token is None or operation.token >= token:",
        "if True:",
        "was Standing.*dispatched.*should be Standing.*committed",
    ),
    (
        "lost attempts are not counted",
        OutboxMachine._apply_activation,
        "operation.lost += 1",
        "pass",
        "lost=0",
    ),
    (
        "an id is made twice",
        OutboxMachine._apply_command,
        "if known is not None:",
        "if False:",
        "submits 'one' once more, and it is Operation",
    ),
)


@pytest.mark.parametrize(("name", "function", "line", "fault", "says"), FAULTS, ids=[each[0] for each in FAULTS])
def test_a_machine_that_breaks_a_rule_is_found(
    name: str, function: Callable[..., Any], line: str, fault: str, says: str
) -> None:
    with begun() as tale, planted(function, line, fault), tale.it.breaks(OutboxRules, says):
        whole_life(tale)


def test_what_is_in_doubt_at_a_naked_resource_is_not_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with scene() as it:
        tale = Tale(it)
        tale.submit("naked")
        tale.activate(OLD, resource="naked", guarantee="naked")
        tale.tell(Dispatch("naked", OLD, [DispatchRow(tale.operation, 1)]))
        monkeypatch.setitem(TAKE_OVER_BY_GUARANTEE, "naked", Trigger.TAKE_OVER)
        with it.breaks(OutboxRules, "and is Standing.*committed.*should be Standing.*in-doubt"):
            tale.activate(NEW, resource="naked", guarantee="naked")
