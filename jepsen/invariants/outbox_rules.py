"""What an entry of the outbox may do to operations, and what it must do, judged entry by entry (concepts: The life of
a command; S31, S47).

Where a rule itself is wrong, all replicas are wrong alike, and comparing their states does not show it. Here the
rules stand a second time, as conditions instead of a machine, and a replay of the committed log is held against
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...raft.core.entry import Entry, EntryKind
from ...raft.core.invariants import Summary
from ...raft.core.token import FencingToken
from ...raft.outbox.codec import Activation, Command, Dispatch, Outcome, OutcomeRow, decode
from ...raft.outbox.operation import TERMINAL, Operation, OperationState
from ...raft.outbox.transitions import Verdict
from .ledger import Ledger
from .observed import ObservedNode
from .property import Property
from .reference import Reference, Replay

_FREE = (OperationState.COMMITTED, OperationState.RETRY_WAIT)
_AFTER = {
    Verdict.FAILED: (OperationState.FAILED,),
    Verdict.DEAD: (OperationState.DEAD,),
    Verdict.RETRY: (OperationState.RETRY_WAIT,),
    Verdict.NOT_ATTEMPTED: _FREE,
    Verdict.IN_DOUBT: (OperationState.IN_DOUBT,),
}
_COUNTED = (Verdict.FAILED, Verdict.DEAD, Verdict.RETRY)
"""What counts against the limit of failed attempts."""


class Standing(NamedTuple):
    """How an operation stands between two entries."""

    state: OperationState
    attempt: int
    failures: int
    lost: int
    token: FencingToken | None
    result: bytes


def standing(operation: Operation) -> Standing:
    return Standing(
        operation.state, operation.attempt, operation.failures, operation.lost, operation.token, operation.result
    )


class OutboxRules(Property):
    name = "outbox"

    def __init__(self, ledger: Ledger, reference: Reference) -> None:
        super().__init__(ledger)
        self._reference = reference
        self._replay: Replay | None = None

    def first_committed(self, node: ObservedNode, entries: Sequence[Entry], before: Summary) -> None:
        replay = self._replay
        if replay is None or replay.applier.last_applied < self._reference.start_index:
            replay = self._replay = self._reference.fresh()
        applied = replay.applier.last_applied
        if applied < entries[0].index - 1:
            replay.applier.apply(self.ledger.slice(applied + 1, entries[0].index - 1))
        for entry in entries:
            if entry.index > replay.applier.last_applied:
                self._apply(replay, entry)

    def _apply(self, replay: Replay, entry: Entry) -> None:
        made = decode(entry.data) if entry.kind == EntryKind.OUTBOX else None
        touched = {each.index: (each, standing(each)) for each in _touched(replay, made)}
        token = None if made is None else replay.machine.tokens.get(getattr(made, "resource", ""))
        highest = FencingToken(0, 0) if token is None else token.token
        replay.applier.apply([entry])
        if isinstance(made, Dispatch):
            self._dispatched(entry, made, touched, highest)
        elif isinstance(made, Outcome):
            self._ended(entry, made, touched, highest)
        elif isinstance(made, Activation):
            self._activated(entry, made, touched, highest, replay)
        elif isinstance(made, Command):
            self._submitted(entry, made, touched, replay)

    # -- the rules ----------------------------------------------------------------------------------

    def _submitted(self, entry: Entry, made: Command, touched: Touched, replay: Replay) -> None:
        operation = replay.machine.operations[made.operation_id]
        for known, was in touched.values():
            self._expect(entry, known, was, was)
            if known is not operation:
                raise self.broken(f"{_text(entry)} submits {made.operation_id!r} once more, and it is {operation}")
        if not touched and (operation.index, standing(operation)) != (entry.index, _NEW):
            raise self.broken(f"{_text(entry)} submits {made.operation_id!r}, which is {operation}")

    def _dispatched(self, entry: Entry, made: Dispatch, touched: Touched, highest: FencingToken) -> None:
        speaks = _speaks(entry, made.token, highest)
        for index, attempt in made.rows:
            if index in touched:
                operation, was = touched[index]
                starts = speaks and was.state in _FREE and attempt == was.attempt + 1
                then = was._replace(state=OperationState.DISPATCHED, attempt=attempt, token=made.token)
                self._expect(entry, operation, was, then if starts else was)

    def _ended(self, entry: Entry, made: Outcome, touched: Touched, highest: FencingToken) -> None:
        speaks = _speaks(entry, made.token, highest)
        for row in made.rows:
            if row.index not in touched:
                continue
            operation, was = touched[row.index]
            if was.state in TERMINAL:
                self._expect(entry, operation, was, was)
            elif row.verdict == Verdict.SUCCEEDED:
                self._succeeded(entry, operation, was, row, made.token)
            else:
                named = was.state is OperationState.DISPATCHED and (row.attempt, made.token) == (was.attempt, was.token)
                self._failed(entry, operation, was, row, counts=speaks and named)
            touched[row.index] = (operation, standing(operation))

    def _succeeded(
        self, entry: Entry, operation: Operation, was: Standing, row: OutcomeRow, token: FencingToken
    ) -> None:
        """A fact, whoever says it and whatever has been said since."""
        higher = token if was.token is None else max(token, was.token)
        then = was._replace(
            state=OperationState.SUCCEEDED, attempt=max(was.attempt, row.attempt), token=higher, result=row.result
        )
        self._expect(entry, operation, was, then)

    def _failed(self, entry: Entry, operation: Operation, was: Standing, row: OutcomeRow, *, counts: bool) -> None:
        """An opinion: it counts if it is the active leader's about the attempt that is under way."""
        verdict = Verdict(row.verdict)
        after = operation.state if counts and operation.state in _AFTER[verdict] else None
        if counts and after is None:
            allowed = " or ".join(_AFTER[verdict])
            raise self.broken(f"{_text(entry)} says {verdict.name}: {_told(operation, was)}, and not {allowed}")
        failures = was.failures + (counts and verdict in _COUNTED)
        self._expect(entry, operation, was, was._replace(state=after or was.state, failures=failures))

    def _activated(
        self, entry: Entry, made: Activation, touched: Touched, highest: FencingToken, replay: Replay
    ) -> None:
        speaks = _speaks(entry, made.token, highest)
        after = OperationState.IN_DOUBT if made.guarantee == "naked" else OperationState.COMMITTED
        for operation, was in touched.values():
            left = was.state is OperationState.DISPATCHED and was.token is not None and was.token < made.token
            then = was._replace(state=after, lost=was.lost + 1)
            self._expect(entry, operation, was, then if speaks and left else was)
        active = replay.machine.tokens.get(made.resource)
        stands = FencingToken(0, 0) if active is None else active.token
        if stands != (made.token if speaks else highest):
            raise self.broken(f"{_text(entry)} activates {made.token} at {made.resource}, and {stands} is active there")

    def _expect(self, entry: Entry, operation: Operation, was: Standing, then: Standing) -> None:
        if standing(operation) != then:
            raise self.broken(f"{_text(entry)}: {_told(operation, was)}, and should be {then}")


Touched = dict[int, tuple[Operation, Standing]]
"""By index: operations that an entry speaks of, and how they stood before it."""

_NEW = Standing(OperationState.COMMITTED, 0, 0, 0, None, b"")


def _touched(replay: Replay, made: object) -> Iterable[Operation]:
    machine = replay.machine
    if isinstance(made, Command):
        known = machine.operations.get(made.operation_id)
        return [] if known is None else [known]
    if isinstance(made, Dispatch | Outcome):
        named = [machine.by_index.get(row.index) for row in made.rows]
        return [each for each in named if each is not None and each.resource == made.resource]
    if isinstance(made, Activation):
        return list(machine.pending.get(made.resource, {}).values())
    return []


def _speaks(entry: Entry, token: FencingToken, highest: FencingToken) -> bool:
    """Whether an entry is its own leader's, and no later leader has been activated at that resource."""
    return token.term == entry.term and token >= highest


def _text(entry: Entry) -> str:
    return f"entry {entry.index} of term {entry.term}"


def _told(operation: Operation, was: Standing) -> str:
    return f"{operation.operation_id!r} (index {operation.index}) was {was} and is {standing(operation)}"
