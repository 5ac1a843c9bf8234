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
from ...raft.outbox.codec import (
    Activation,
    Cancel,
    Command,
    Discard,
    Dispatch,
    Expiry,
    Outcome,
    OutcomeRow,
    Redrive,
    Resolve,
    decode,
)
from ...raft.outbox.operation import FINAL, Operation, OperationState
from ...raft.outbox.operation_id import time_in_id_ns
from ...raft.outbox.transitions import Finding, Verdict
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
    Verdict.UNANSWERED: (OperationState.RETRY_WAIT,),
    Verdict.UNHEARD: _FREE,
}
_COUNTED = (Verdict.FAILED, Verdict.DEAD, Verdict.RETRY, Verdict.UNANSWERED)
"""What counts against the limit of failed attempts."""
_UNSURE = (Verdict.UNANSWERED, Verdict.UNHEARD)
_AGAIN = (Verdict.RETRY, Verdict.NOT_ATTEMPTED, *_UNSURE)
"""What another attempt follows, unless nobody wants it any more."""


class Standing(NamedTuple):
    """How an operation stands between two entries."""

    state: OperationState
    attempt: int
    failures: int
    lost: int
    token: FencingToken | None
    result: bytes
    place: int
    unsure: bool = False
    unwanted: bool = False
    """It was asked to be cancelled."""

    def heard_of_all(self, entry: Entry, *, fenced: bool) -> bool:
        """Every attempt on record has ended, and with a definite word. At a fenced resource the word about an attempt
        of the leader that speaks is one about all that were lost before."""
        settled = fenced and self.token is not None and self.token.term == entry.term
        return not self.unsure and (settled or not self.lost)


def standing(operation: Operation) -> Standing:
    return Standing(
        operation.state,
        operation.attempt,
        operation.failures,
        operation.lost,
        operation.token,
        operation.result,
        operation.place,
        operation.unsure,
        operation.cancel_ns > 0,
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
        forgotten = replay.machine.forgotten
        replay.applier.apply([entry])
        if replay.machine.forgotten != forgotten:
            self._forgotten(entry, replay)
        if isinstance(made, Dispatch):
            self._dispatched(entry, made, touched, highest)
        elif isinstance(made, Outcome):
            self._ended(entry, made, touched, highest, replay)
        elif isinstance(made, Activation):
            self._activated(entry, made, touched, highest, replay)
        elif isinstance(made, Command):
            self._submitted(entry, made, touched, replay)
        elif touched:
            self._wished(entry, made, touched, replay)

    # -- the rules ----------------------------------------------------------------------------------

    def _submitted(self, entry: Entry, made: Command, touched: Touched, replay: Replay) -> None:
        operation = replay.machine.operations.get(made.operation_id)
        if operation is None:
            if not touched and 0 < time_in_id_ns(made.operation_id) <= replay.machine.forgotten_ids_ns:
                return
            raise self.broken(f"{_text(entry)} submits {made.operation_id!r}, which is not known and not too old")
        for known, was in touched.values():
            self._expect(entry, known, was, was)
            if known is not operation:
                raise self.broken(f"{_text(entry)} submits {made.operation_id!r} once more, and it is {operation}")
        if not touched and (operation.index, standing(operation)) != (entry.index, _new(entry.index)):
            raise self.broken(f"{_text(entry)} submits {made.operation_id!r}, which is {operation}")

    def _dispatched(self, entry: Entry, made: Dispatch, touched: Touched, highest: FencingToken) -> None:
        speaks = _speaks(entry, made.token, highest)
        for index, attempt in made.rows:
            if index in touched:
                operation, was = touched[index]
                due = entry.time_ns >= operation.not_before_ns
                starts = due and not _is_over(entry, operation)
                starts = starts and speaks and was.state in _FREE and attempt == was.attempt + 1
                then = was._replace(state=OperationState.DISPATCHED, attempt=attempt, token=made.token)
                self._expect(entry, operation, was, then if starts else was)

    def _ended(self, entry: Entry, made: Outcome, touched: Touched, highest: FencingToken, replay: Replay) -> None:
        speaks = _speaks(entry, made.token, highest)
        for row in made.rows:
            if row.index not in touched:
                continue
            operation, was = touched[row.index]
            if was.state in FINAL:
                self._expect(entry, operation, was, was)
            elif row.verdict == Verdict.SUCCEEDED:
                self._succeeded(entry, operation, was, row, made.token)
            else:
                named = was.state is OperationState.DISPATCHED and (row.attempt, made.token) == (was.attempt, was.token)
                self._failed(entry, operation, was, row, counts=speaks and named, fenced=_is_fenced(replay, operation))
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

    def _failed(
        self, entry: Entry, operation: Operation, was: Standing, row: OutcomeRow, *, counts: bool, fenced: bool
    ) -> None:
        """An opinion: it counts if it is the active leader's about the attempt that is under way."""
        verdict = Verdict(row.verdict)
        was_unsure = was.unsure or (counts and verdict in _UNSURE)
        allowed_states: tuple[OperationState, ...] = _AFTER[verdict]
        heard = was._replace(unsure=was_unsure).heard_of_all(entry, fenced=fenced)
        if was.unwanted and verdict in _AGAIN and heard:
            allowed_states = (OperationState.CANCELLED,)
        elif was.unwanted and verdict in _AGAIN and not fenced:
            allowed_states = (OperationState.IN_DOUBT,)
        after = operation.state if counts and operation.state in allowed_states else None
        if counts and after is None:
            allowed = " or ".join(allowed_states)
            raise self.broken(f"{_text(entry)} says {verdict.name}: {_told(operation, was)}, and not {allowed}")
        failures = was.failures + (counts and verdict in _COUNTED)
        self._expect(
            entry, operation, was, was._replace(state=after or was.state, failures=failures, unsure=was_unsure)
        )

    def _activated(
        self, entry: Entry, made: Activation, touched: Touched, highest: FencingToken, replay: Replay
    ) -> None:
        speaks = _speaks(entry, made.token, highest)
        for operation, was in touched.values():
            left = was.state is OperationState.DISPATCHED and was.token is not None and was.token < made.token
            doubtful = made.guarantee == "naked" or (made.guarantee == "keyed" and was.unwanted)
            after = OperationState.IN_DOUBT if doubtful else OperationState.COMMITTED
            then = was._replace(state=after, lost=was.lost + 1, unsure=was.unsure or made.guarantee != "fenced")
            self._expect(entry, operation, was, then if speaks and left else was)
        active = replay.machine.tokens.get(made.resource)
        stands = FencingToken(0, 0) if active is None else active.token
        if stands != (made.token if speaks else highest):
            raise self.broken(f"{_text(entry)} activates {made.token} at {made.resource}, and {stands} is active there")

    def _wished(self, entry: Entry, made: object, touched: Touched, replay: Replay) -> None:
        """What an operator or a client wants, or what a deadline says."""
        for operation, was in touched.values():
            token = getattr(made, "token", None)
            active = replay.machine.tokens.get(operation.resource)
            speaks = token is None or _speaks(entry, token, FencingToken(0, 0) if active is None else active.token)
            then = was
            if isinstance(made, Cancel) and speaks:
                then = _after_cancel(entry, made, operation, was, fenced=_is_fenced(replay, operation))
            elif isinstance(made, Redrive) and was.state is OperationState.DEAD:
                then = was._replace(
                    state=OperationState.COMMITTED, failures=0, lost=0, place=entry.index, unsure=False, unwanted=False
                )
            elif isinstance(made, Discard) and was.state is OperationState.DEAD:
                then = was._replace(state=OperationState.FAILED)
            elif isinstance(made, Resolve) and speaks and _is_open_to(made, was):
                then = _after_resolve(made, was, over=_is_over(entry, operation))
            elif isinstance(made, Expiry) and speaks and was.state in _FREE and _is_over(entry, operation):
                heard = was.heard_of_all(entry, fenced=_is_fenced(replay, operation))
                then = was._replace(state=OperationState.DEAD if heard else OperationState.IN_DOUBT)
            self._expect(entry, operation, was, then)

    def _forgotten(self, entry: Entry, replay: Replay) -> None:
        """Whatever has not ended for good is known still, and something let the others be forgotten."""
        machine = replay.machine
        if not any(machine.retention):
            raise self.broken(f"{_text(entry)} forgets operations, and all are to be remembered")
        for tables in (machine.pending, machine.dead):
            for table in tables.values():
                for operation in table.values():
                    if machine.operations.get(operation.operation_id) is not operation:
                        raise self.broken(
                            f"{_text(entry)} forgets {operation.operation_id!r}, which is {operation.state}"
                        )

    def _expect(self, entry: Entry, operation: Operation, was: Standing, then: Standing) -> None:
        if standing(operation) != then:
            raise self.broken(f"{_text(entry)}: {_told(operation, was)}, and should be {then}")


Touched = dict[int, tuple[Operation, Standing]]
"""By index: operations that an entry speaks of, and how they stood before it."""


def _new(index: int) -> Standing:
    return Standing(OperationState.COMMITTED, 0, 0, 0, None, b"", index)


def _is_fenced(replay: Replay, operation: Operation) -> bool:
    active = replay.machine.tokens.get(operation.resource)
    return active is not None and active.guarantee == "fenced"


def _is_over(entry: Entry, operation: Operation) -> bool:
    return 0 < operation.deadline_ns <= entry.time_ns


def _after_cancel(entry: Entry, made: Cancel, operation: Operation, was: Standing, *, fenced: bool) -> Standing:
    """Cancelled only where nothing that is not on record can have been done, or still be done."""
    if was.state is OperationState.DISPATCHED:
        return was._replace(unwanted=True)
    if was.state not in _FREE:
        return was
    cancelled, unwanted = was._replace(state=OperationState.CANCELLED, unwanted=True), was._replace(unwanted=True)
    heard = was.heard_of_all(entry, fenced=fenced)
    if not fenced:  # No resource of a simulated world has been, and is not any more.
        return cancelled if heard else unwanted._replace(state=OperationState.IN_DOUBT)
    timed = operation.not_before_ns > 0 or operation.deadline_ns > 0
    of_this_leader = operation.term == entry.term or (was.token is not None and was.token.term == entry.term)
    if heard and (timed or of_this_leader):
        return cancelled
    behind_the_fence = was.token is None or was.token < made.token
    return cancelled if made.absent and behind_the_fence else unwanted


def _is_open_to(made: Resolve, was: Standing) -> bool:
    """A dead letter may turn out to have been applied; that it was not is what is believed of it already."""
    mistaken = was.state is OperationState.DEAD and made.finding == Finding.DONE
    return mistaken or was.state is OperationState.IN_DOUBT


def _after_resolve(made: Resolve, was: Standing, *, over: bool) -> Standing:
    if made.token is not None and made.attempt != was.attempt:
        return was
    if made.finding == Finding.DONE:
        return was._replace(state=OperationState.SUCCEEDED, result=made.result, unsure=False)
    if made.finding == Finding.NOT_DONE:
        return was._replace(state=OperationState.DEAD, unsure=False)
    if was.unwanted:
        return was._replace(state=OperationState.CANCELLED, unsure=False)
    return was._replace(state=OperationState.DEAD if over else OperationState.RETRY_WAIT, unsure=False)


def _touched(replay: Replay, made: object) -> Iterable[Operation]:
    machine = replay.machine
    if isinstance(made, Command | Cancel | Redrive | Resolve | Discard):
        known = machine.operations.get(made.operation_id)
        return [] if known is None else [known]
    if isinstance(made, Dispatch | Outcome | Expiry):
        indexes = made.indexes if isinstance(made, Expiry) else [row.index for row in made.rows]
        named = [machine.by_index.get(index) for index in indexes]
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
