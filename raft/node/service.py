"""What clients ask of a node: submissions, plain proposals and questions.

Implements ``ports.RequestHandler`` on the node's loop. A frame of requests becomes one batch of
proposals; the answers of one turn leave in one frame a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..core.entry import Entry, EntryKind, Snapshot
from ..core.errors import CommandInvalid, FencepostError, OperationIdExpired
from ..core.events import Role, RoleChange
from ..outbox.codec import PAYLOAD_BYTES_MAX, decode_submission, digest
from ..outbox.machine import Expired, OutboxMachine, SubmitResult
from ..outbox.operation import TERMINAL, Operation, OperationState
from ..ports import Answer, AnswerStatus, Connection, ProposeRequest, SubmitRequest, Wait
from .calls import Query, SlowQuery
from .desk import CallDesk
from .loop import RaftLoop
from .observers import Onlooker
from .reads import LocalReads

PENDING_MAX = 200_000
"""Commands without an outcome that a node takes in; beyond it submissions are refused as BUSY. All of
them are kept in memory, on every node."""

_DONE = int(AnswerStatus.DONE)
_UNCOMMITTED = "leadership was lost before it committed"


class _Key(NamedTuple):
    connection: Connection
    request_id: int
    wait: int


class _DoneWaiter(NamedTuple):
    connection: Connection
    request_id: int
    replayed: bool


class ClientService(Onlooker):
    """Turns client frames into proposals and applied entries into answers."""

    def __init__(
        self,
        *,
        loop: RaftLoop,
        machine: OutboxMachine,
        leader_address: Callable[[str], str],
        queries: Mapping[str, Query],
        slow_queries: Mapping[str, SlowQuery] | None = None,
    ) -> None:
        """``leader_address(node_id)`` is where clients reach a node, as far as known, else ""."""
        self._loop = loop
        self._machine = machine
        self._leader_address = leader_address
        self.reads = LocalReads(loop, leader_address)
        """What an embedder reads his own state machines by."""
        self.desk = CallDesk(self.reads, queries, slow_queries or {})
        self._submissions = _SubmissionSink(self)
        self._proposals = _ProposalAnswers(self)
        self._answers: dict[Connection, list[Answer]] = {}
        self._done_waiters: dict[int, list[_DoneWaiter]] = {}
        self._done_expire_at = 0
        self._draining = False
        self.replayed = 0
        """Submissions of a command that was known already, and that heard its answer or wait for it."""
        self.reused = 0
        """Submissions refused because their id stands for another command."""
        self._closed: set[Connection] = set()
        """Connections that went away in this turn: nobody waits there any more."""

    # -- RequestHandler ---------------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        """Nothing new is taken in any more."""
        return self._draining

    def stop_admitting(self) -> None:
        """The node is going away: take nothing new in. Questions and replays are answered still."""
        self._draining = True

    def submit(self, connection: Connection, requests: list[SubmitRequest]) -> None:
        keys: list[_Key] = []
        data: list[bytes] = []
        known = self._machine.operations
        for request_id, wait, body in requests:
            try:
                command = decode_submission(body)
            except CommandInvalid as error:
                self._refuse(connection, request_id, error)
                continue
            operation = known.get(command.operation_id)
            if operation is not None:
                # Only a shortcut: what is applied is committed, so this answer is right on any
                # node, leader or not. The judgement itself is made at apply.
                same = operation.digest == digest(command)
                result = SubmitResult(operation, same, not same)
                self._answer_submission(_Key(connection, request_id, wait), result)
                continue
            keys.append(_Key(connection, request_id, wait))
            data.append(body)
        if keys and self._draining:
            self.answer_all(keys, AnswerStatus.RETRY, "NOT_LEADER", "")
        elif keys and sum(map(len, self._machine.pending.values())) >= PENDING_MAX:
            self.answer_all(keys, AnswerStatus.RETRY, "BUSY", f"{PENDING_MAX} commands wait for their outcome")
        elif keys:
            self._loop.propose(EntryKind.OUTBOX, data, self._submissions, keys)
        self._turn_or_flush()

    def propose(self, connection: Connection, requests: list[ProposeRequest]) -> None:
        keys: list[_Key] = []
        data: list[bytes] = []
        for request_id, body in requests:
            if len(body) > PAYLOAD_BYTES_MAX:
                error = CommandInvalid(f"entry of {len(body)} bytes; the limit is {PAYLOAD_BYTES_MAX} bytes")
                self._refuse(connection, request_id, error)
                continue
            keys.append(_Key(connection, request_id, Wait.COMMITTED))
            data.append(body)
        if keys and self._draining:
            self.answer_all(keys, AnswerStatus.RETRY, "NOT_LEADER", "")
        elif keys:
            self._loop.propose(EntryKind.EMBEDDED, data, self._proposals, keys)
        self._turn_or_flush()

    def call(self, connection: Connection, request_id: int, method: str, parameters: dict[str, Any]) -> None:
        self.desk.call(connection, request_id, method, parameters)

    def closed(self, connection: Connection) -> None:
        self._answers.pop(connection, None)
        if self._done_waiters:
            self._closed.add(connection)
            self._turn_or_flush()

    # -- LoopObserver -----------------------------------------------------------------------------

    def role_changed(self, change: RoleChange) -> None:
        if change.role is Role.LEADER:
            self._done_expire_at = 0
        elif self._done_waiters and not self._done_expire_at:
            self._done_expire_at = self._loop.now() + 2 * self._loop.raft.options.election_timeout

    def applied(self, entries: list[Entry], results: list[Any]) -> None:
        if not self._done_waiters:
            return
        for result in results:
            if type(result) is list:
                for operation in result:
                    if operation.state in TERMINAL or operation.state is OperationState.IN_DOUBT:
                        self._operation_ended(operation)

    def restored(self, snapshot: Snapshot) -> None:
        """What commands have become in between was not applied here one by one: look at all that are waited for."""
        for index in list(self._done_waiters):
            operation = self._machine.by_index.get(index)
            if operation is not None and (operation.state in TERMINAL or operation.state is OperationState.IN_DOUBT):
                self._operation_ended(operation)

    def before_turn_ends(self, now: int) -> None:
        if self._closed:
            self._forget_closed()
        if self._done_expire_at and now >= self._done_expire_at:
            self._end_done_waiters("leadership was lost; it is committed, its outcome is not known here")
        answers = self._answers
        if answers:
            self._answers = {}
            for connection, batch in answers.items():
                connection.answer(batch)

    def stopped(self) -> None:
        self._end_done_waiters("the node is stopping; it is committed, its outcome is not known here")
        self.before_turn_ends(0)

    def _turn_or_flush(self) -> None:
        """Answers leave at the end of a turn; a node that has stopped makes none any more."""
        if self._loop.stopped:
            self.stopped()
        else:
            self._loop.wake()

    def _forget_closed(self) -> None:
        """One pass for all connections that went away: a command may stay open long after its submitters."""
        closed, self._closed = self._closed, set()
        for index, waiters in list(self._done_waiters.items()):
            if any(waiter.connection in closed for waiter in waiters):
                left = [waiter for waiter in waiters if waiter.connection not in closed]
                if left:
                    self._done_waiters[index] = left
                else:
                    del self._done_waiters[index]

    # -- answers ----------------------------------------------------------------------------------

    def queue(self, connection: Connection, answer: Answer) -> None:
        batch = self._answers.get(connection)
        if batch is None:
            self._answers[connection] = [answer]
        else:
            batch.append(answer)

    def answer_all(self, keys: Sequence[_Key], status: AnswerStatus, code: str, detail: str) -> None:
        term = self._loop.raft.current_term
        for connection, request_id, _ in keys:
            self.queue(connection, Answer(request_id, int(status), 0, term, False, "", b"", code, detail))
        self._loop.wake()

    def refused(self, keys: Sequence[_Key], code: str, leader: str) -> None:
        if code == "TOO_LARGE":
            limit = self._loop.raft.options.entry_bytes_max
            self.answer_all(keys, AnswerStatus.REFUSED, code, f"an entry holds at most {limit} bytes")
            return
        detail = self._leader_address(leader) if code == "NOT_LEADER" and leader else ""
        self.answer_all(keys, AnswerStatus.RETRY, code, detail)

    def _refuse(self, connection: Connection, request_id: int, error: FencepostError) -> None:
        status = int(AnswerStatus.REFUSED)
        self.queue(connection, Answer(request_id, status, 0, 0, False, "", b"", error.code, error.message))
        self._loop.wake()

    def _answer_submission(self, key: _Key, result: SubmitResult | Expired) -> None:
        connection, request_id, wait = key
        if isinstance(result, Expired):
            self._refuse(connection, request_id, _expired(result.operation_id))
            return
        operation, replayed, reused = result
        self.replayed += replayed
        self.reused += reused
        if reused:
            status = int(AnswerStatus.REFUSED)
            detail = f"operation id {operation.operation_id!r} belongs to another command, at index {operation.index}"
            self.queue(
                connection,
                Answer(request_id, status, operation.index, operation.term, False, operation.state.value, b"",
                       "OPERATION_ID_REUSED", detail),
            )  # fmt: skip
        elif wait == Wait.DONE and operation.state is OperationState.IN_DOUBT:
            self.queue(connection, _unknown_answer(request_id, operation, replayed, _doubt(operation)))
        elif wait == Wait.DONE and operation.state not in TERMINAL and self._loop.raft.role is not Role.LEADER:
            # A follower may be cut off and never hear how it ends; whoever leads has it in hand.
            self.queue(connection, _unknown_answer(request_id, operation, replayed, "and this node does not lead"))
        elif wait == Wait.DONE and operation.state not in TERMINAL:
            waiters = self._done_waiters.setdefault(operation.index, [])
            waiters.append(_DoneWaiter(connection, request_id, replayed))
        else:
            self.queue(connection, _done_answer(request_id, operation, replayed))

    def _operation_ended(self, operation: Operation) -> None:
        """It is done, or in doubt: nobody hears more by waiting on."""
        waiters = self._done_waiters.pop(operation.index, None)
        if waiters:
            for connection, request_id, replayed in waiters:
                if operation.state in TERMINAL:
                    answer = _done_answer(request_id, operation, replayed)
                else:
                    answer = _unknown_answer(request_id, operation, replayed, _doubt(operation))
                self.queue(connection, answer)

    def _end_done_waiters(self, detail: str) -> None:
        self._done_expire_at = 0
        waiting, self._done_waiters = self._done_waiters, {}
        for index, waiters in waiting.items():
            for connection, request_id, replayed in waiters:
                answer = Answer(
                    request_id, int(AnswerStatus.UNKNOWN), index, 0, replayed, "", b"", "OUTCOME_UNKNOWN", detail
                )
                self.queue(connection, answer)


def _expired(operation_id: str) -> OperationIdExpired:
    return OperationIdExpired(
        f"operation id {operation_id!r} is older than what is remembered; whether it was executed once is not known",
        next_step="look at the resource; if it was not executed, submit it under a new id",
    )


def _doubt(operation: Operation) -> str:
    return f"and in doubt: {operation.error or 'its executor went away'}"


def _unknown_answer(request_id: int, operation: Operation, replayed: bool, why: str) -> Answer:
    return Answer(
        request_id,
        int(AnswerStatus.UNKNOWN),
        operation.index,
        operation.term,
        replayed,
        operation.state.value,
        b"",
        "OUTCOME_UNKNOWN",
        f"committed at index {operation.index}, {why}",
    )


def _done_answer(request_id: int, operation: Operation, replayed: bool) -> Answer:
    failed = operation.state is not OperationState.SUCCEEDED and operation.state in TERMINAL
    return Answer(
        request_id,
        _DONE,
        operation.index,
        operation.term,
        replayed,
        operation.state.value,
        operation.result,
        "COMMAND_FAILED" if failed else "",
        operation.error if failed else "",
    )


class _SubmissionSink:
    """Hears what became of proposed submissions."""

    def __init__(self, service: ClientService) -> None:
        self._service = service

    def accepted(self, keys: Sequence[_Key], first_index: int, term: int) -> None:
        for index, (connection, request_id, wait) in enumerate(keys, first_index):
            if wait == Wait.ACCEPTED:
                answer = Answer(request_id, _DONE, index, term, False, "accepted", b"", "", "")
                self._service.queue(connection, answer)
                self._service._loop.wake()

    def refused(self, keys: Sequence[_Key], code: str, leader: str) -> None:
        self._service.refused(keys, code, leader)

    def applied(self, keys: Sequence[_Key], entries: Sequence[Entry], results: Sequence[Any]) -> None:
        for key, result in zip(keys, results, strict=True):
            if key.wait != Wait.ACCEPTED:  # Else answered when it was appended, and only once.
                self._service._answer_submission(key, result)

    def lost(self, keys: Sequence[_Key]) -> None:
        keys = [key for key in keys if key.wait != Wait.ACCEPTED]
        self._service.answer_all(keys, AnswerStatus.RETRY, "LEADERSHIP_LOST", "")

    def unknown(self, keys: Sequence[_Key]) -> None:
        keys = [key for key in keys if key.wait != Wait.ACCEPTED]
        self._service.answer_all(keys, AnswerStatus.UNKNOWN, "OUTCOME_UNKNOWN", _UNCOMMITTED)


class _ProposalAnswers:
    """Hears what became of plain log proposals."""

    def __init__(self, service: ClientService) -> None:
        self._service = service

    def accepted(self, keys: Sequence[_Key], first_index: int, term: int) -> None:
        pass

    def refused(self, keys: Sequence[_Key], code: str, leader: str) -> None:
        self._service.refused(keys, code, leader)

    def applied(self, keys: Sequence[_Key], entries: Sequence[Entry], results: Sequence[Any]) -> None:
        queue = self._service.queue
        for (connection, request_id, _), entry, result in zip(keys, entries, results, strict=True):
            body = result if type(result) is bytes else b""
            queue(connection, Answer(request_id, _DONE, entry.index, entry.term, False, "", body, "", ""))

    def lost(self, keys: Sequence[_Key]) -> None:
        self._service.answer_all(keys, AnswerStatus.RETRY, "LEADERSHIP_LOST", "")

    def unknown(self, keys: Sequence[_Key]) -> None:
        self._service.answer_all(keys, AnswerStatus.UNKNOWN, "OUTCOME_UNKNOWN", _UNCOMMITTED)
