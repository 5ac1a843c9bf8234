"""What a client was told is committed stays in every later leader's log, with the same bytes, and is on every node in
the end; and what it was told came of it is what came of it (concepts: The four answers)."""

from __future__ import annotations

from typing import NamedTuple

from ...raft.core.entry import EntryKind
from ...raft.outbox.operation import FINAL, OperationState
from ...raft.ports import Answer, AnswerStatus, Wait
from ..sim.jobs import Invocation, Kind, Reply
from .ledger import Ledger
from .observed import Leadership, ObservedNode
from .property import Property
from .reference import Reference

_KINDS = {Kind.SUBMIT: int(EntryKind.OUTBOX), Kind.PROPOSE: int(EntryKind.EMBEDDED)}


class Promise(NamedTuple):
    """Something that a client was told."""

    client: str
    what: str
    kind: int
    data: bytes
    answer: Answer
    node: str
    """Who said it."""
    time_ns: int


class Acknowledged(Property):
    name = "acknowledged"

    def __init__(self, ledger: Ledger, reference: Reference) -> None:
        super().__init__(ledger)
        self._reference = reference
        self.promises: dict[int, Promise] = {}
        """By index: the first one about it."""
        self._outcomes: dict[str, Promise] = {}
        """By operation id: the first answer that says how it ended."""

    def answered(self, invocation: Invocation, answer: Answer | Reply | None) -> None:
        if not isinstance(answer, Answer) or not _claims_committed(invocation, answer):
            return
        job = invocation.job
        promise = Promise(
            job.client,
            job.name,
            _KINDS[job.kind],
            job.data,
            answer,
            f"{invocation.node}/{invocation.boot}",
            self.ledger.now_ns,
        )
        self._check_committed(promise)
        known = self.promises.setdefault(answer.index, promise)
        if known.data != promise.data:
            raise self.broken(f"{_text(promise)} and {_text(known)} are other things at one index")
        if job.kind is Kind.SUBMIT and answer.status == AnswerStatus.DONE and answer.state in FINAL:
            before = self._outcomes.setdefault(job.name, promise)
            if (before.answer.state, before.answer.result) != (answer.state, answer.result):
                raise self.broken(f"{_text(promise)}, and before that {_text(before)}")

    def _check_committed(self, promise: Promise) -> None:
        ledger, answer = self.ledger, promise.answer
        if answer.index <= ledger.base:
            return
        entry = ledger.entry(answer.index)
        if entry is None:
            raise self.broken(f"{_text(promise)}; committed is everything up to {ledger.last_index}")
        if (entry.kind, entry.data) != (promise.kind, promise.data) or answer.term not in (0, entry.term):
            raise self.broken(f"{_text(promise)}; committed there is {entry}")

    def elected(self, node: ObservedNode, leadership: Leadership) -> None:
        image, ledger = node.asked, self.ledger
        if ledger.quorum_lost:
            return
        for index, promise in self.promises.items():
            if index <= max(image.previous_index, ledger.base):
                continue
            place = index - image.previous_index - 1
            if place < len(image.entries) and image.entries[place].data == promise.data:
                continue
            if ledger.committed_in[index - ledger.base - 1] >= leadership.term:
                continue  # Late votes may make a leader of a term that is over; it owes nothing to later ones.
            raise self.broken(f"{node} leads term {leadership.term} without index {index}: {_text(promise)}")

    def finished(self) -> None:
        replay = self._reference.at_end()
        for index, promise in self.promises.items():
            self._check_committed(promise)
            for node in self.ledger.members():
                image = node.asked
                if index <= max(image.previous_index, self.ledger.base):
                    continue  # In a snapshot there, whose state is compared as a whole.
                place = index - image.previous_index - 1
                if place >= len(image.entries) or image.entries[place].data != promise.data:
                    raise self.broken(f"{node} does not have index {index} in the end: {_text(promise)}")
        for operation_id, promise in self._outcomes.items():
            operation = replay.machine.operations.get(operation_id)
            if operation is None and replay.machine.forgotten:
                continue  # It has ended, and that was told; what may be forgotten is judged elsewhere.
            if operation is None or (operation.state, operation.result) != (
                promise.answer.state,
                promise.answer.result,
            ):
                raise self.broken(f"{_text(promise)}; in the end it is {operation}")


def _claims_committed(invocation: Invocation, answer: Answer) -> bool:
    """An index in an answer is that of a committed entry, but where the client wants to hear of less. One that was
    refused because its id belongs to another command names the index of that one."""
    if not answer.index:
        if answer.status == AnswerStatus.DONE:
            raise AssertionError(f"{invocation} is answered as done, without an index: {answer}")
        return False
    if answer.status == AnswerStatus.DONE:
        return invocation.job.kind is Kind.PROPOSE or invocation.job.wait != Wait.ACCEPTED
    return answer.status == AnswerStatus.UNKNOWN


def _text(promise: Promise) -> str:
    answer = promise.answer
    state = f" as {answer.state}" if answer.state in [state.value for state in OperationState] else ""
    return (
        f"{promise.node} told {promise.client} that {promise.what} is committed at index {answer.index} of term "
        f"{answer.term}{state}"
    )
