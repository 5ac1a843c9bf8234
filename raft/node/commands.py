"""``command.cancel``, ``redrive``, ``resolve`` and ``discard``, and ``resource.claim``: what people want of commands.

Each becomes an entry of the log, and what it did is judged there; the answer says what that was. Asked of a node
that does not lead, nothing is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..core.entry import Entry, EntryKind
from ..core.errors import CommandInvalid, NotFound, NotLeader, WrongState
from ..core.token import FencingToken, token_json
from ..outbox.codec import PAYLOAD_BYTES_MAX, Cancel, Discard, OutboxEntry, Redrive, Resolve, check_note, encode
from ..outbox.machine import OutboxMachine
from ..outbox.operation import TERMINAL, Operation, OperationState
from ..outbox.transitions import Finding
from ..ports import Answered, Found
from .calls import Reply, SlowCall, SlowQuery, not_leader, timeout_of, unknown
from .loop import RaftLoop

_FINDINGS = {"done": Finding.DONE, "failed": Finding.NOT_DONE}


class Acting(Protocol):
    """One leader's time in office (``raft.effects.tenure``), as far as it is needed here."""

    @property
    def token(self) -> FencingToken: ...

    def hold(self, operation: Operation) -> None: ...

    def ask(self, operation: Operation, heard: Callable[[Answered | None], None]) -> None: ...

    def claim_again(self, name: str) -> None: ...

    def has(self, name: str) -> bool: ...

    def dedupes_by_place(self, name: str) -> bool: ...


class CommandCalls:
    """Slow calls, answered by the leader."""

    def __init__(
        self,
        loop: RaftLoop,
        timers: asyncio.AbstractEventLoop,
        machine: OutboxMachine,
        acting: Callable[[], Acting | None],
        *,
        leader_address: Callable[[str], str],
    ) -> None:
        """``acting()`` is this node's time in office, once everything that was committed before is applied."""
        self.loop = loop
        self._timers = timers
        self._machine = machine
        self._acting = acting
        self._leader_address = leader_address

    def methods(self) -> dict[str, SlowQuery]:
        return {
            "command.cancel": self.cancel,
            "command.redrive": self.redrive,
            "command.resolve": self.resolve,
            "command.discard": self.discard,
            "resource.claim": self.claim,
        }

    def cancel(self, parameters: dict[str, Any], reply: Reply) -> None:
        """``id``, ``note``, ``timeout_s``. Certain where nothing of the command can have been done; else a wish,
        and the answer says which."""
        tenure, operation, note = self._of(parameters)
        if operation.state is OperationState.CANCELLED:
            reply(_body(operation, "cancelled"), None)
            return
        if operation.state in TERMINAL or operation.state is OperationState.IN_DOUBT:
            raise _wrong(operation, "it can be cancelled no more", _instead_of(operation))
        call = self._call(parameters, reply, f"{operation.operation_id!r} is cancelled")
        # From now on none of its effects begins before its dispatch is committed, which is after this in the log.
        tenure.hold(operation)

        def heard(answer: Answered | None) -> None:
            absent = answer is not None and answer.found is Found.NOT_APPLIED
            if not call.ended:
                self._propose(call, operation, Cancel(operation.operation_id, tenure.token, absent, note), "cancelled")

        tenure.ask(operation, heard)

    def redrive(self, parameters: dict[str, Any], reply: Reply) -> None:
        """``id``, ``note``, ``not_applied`` (an operator's word), ``timeout_s``."""
        tenure, operation, note = self._of(parameters)
        if operation.state is not OperationState.DEAD:
            raise _wrong(operation, "only a dead letter is redriven", _instead_of(operation))
        call = self._call(parameters, reply, f"{operation.operation_id!r} is redriven")
        entry = Redrive(operation.operation_id, note)
        doubtful = (operation.unsure or operation.lost) and tenure.dedupes_by_place(operation.resource)
        if not doubtful or parameters.get("not_applied"):
            self._propose(call, operation, entry, "redriven")
            return

        def heard(answer: Answered | None) -> None:
            found = Found.UNKNOWN if answer is None else answer.found
            # What this very leader has sent may still be on its way: its claim does not bar it.
            earlier = operation.token is None or operation.token < tenure.token
            if call.ended:
                return
            if operation.state is OperationState.DEAD and found is Found.NOT_APPLIED and earlier:
                self._propose(call, operation, entry, "redriven")
            elif operation.state is OperationState.DEAD and answer is not None and found is Found.APPLIED:
                fact = (operation.attempt, tenure.token, answer.result, "asked before it was redriven")
                self._propose(call, operation, Resolve(operation.operation_id, Finding.DONE, *fact), "resolved")
            else:
                call.fail(_recognised_no_more(operation))

        tenure.ask(operation, heard)

    def discard(self, parameters: dict[str, Any], reply: Reply) -> None:
        """``id``, ``note``, ``timeout_s``."""
        _, operation, note = self._of(parameters)
        if operation.state is not OperationState.DEAD:
            raise _wrong(operation, "only a dead letter is discarded", _instead_of(operation))
        call = self._call(parameters, reply, f"{operation.operation_id!r} is discarded")
        self._propose(call, operation, Discard(operation.operation_id, note), "discarded")

    def resolve(self, parameters: dict[str, Any], reply: Reply) -> None:
        """``id``, ``as`` (``done`` or ``failed``), ``note`` (required), ``result`` (of what is done), ``timeout_s``."""
        _, operation, note = self._of(parameters)
        finding = _FINDINGS.get(str(parameters.get("as")))
        if finding is None:
            raise CommandInvalid("as: write done or failed")
        if not note:
            raise CommandInvalid("a resolution needs a note: who looked, and where", next_step="--note TEXT")
        result = parameters.get("result") or b""
        result = result.encode() if isinstance(result, str) else result
        if not isinstance(result, bytes):
            raise CommandInvalid("a result is bytes, or text")
        if len(result) > PAYLOAD_BYTES_MAX or (result and finding is not Finding.DONE):
            raise CommandInvalid(f"a result is that of what is done, and at most {PAYLOAD_BYTES_MAX} bytes")
        if operation.state is OperationState.DEAD and finding is not Finding.DONE:
            raise _wrong(operation, "it counts as not applied already", _instead_of(operation))
        if operation.state not in (OperationState.IN_DOUBT, OperationState.DEAD):
            raise _wrong(operation, "only what is in doubt, or a dead letter, is resolved", _instead_of(operation))
        call = self._call(parameters, reply, f"{operation.operation_id!r} is resolved")
        entry = Resolve(operation.operation_id, finding, 0, None, result, note)
        self._propose(call, operation, entry, "resolved")

    def claim(self, parameters: dict[str, Any], reply: Reply) -> None:
        """``name``: have the leader claim the fence of a resource again, as after that was restored."""
        tenure = self._leading()
        name = str(parameters.get("name", ""))
        if not tenure.has(name):
            raise NotFound(f"the leader has no resource {name!r}", next_step="fencepost resource list")
        tenure.claim_again(name)
        reply({"resource": name, "token": token_json(tenure.token)}, None)

    # -- inside -----------------------------------------------------------------------------------

    def _leading(self) -> Acting:
        raft = self.loop.raft
        tenure = self._acting()
        if raft.leader != raft.node_id:
            raise not_leader(raft.leader, self._leader_address)
        if tenure is None:
            raise NotLeader("this leader does not know yet what others have committed", next_step="ask again")
        return tenure

    def _of(self, parameters: dict[str, Any]) -> tuple[Acting, Operation, str]:
        tenure = self._leading()
        operation_id, note = str(parameters.get("id", "")), str(parameters.get("note") or "")
        check_note(note)
        operation = self._machine.operations.get(operation_id)
        if operation is None:
            raise NotFound(f"no command {operation_id!r} is known", next_step="fencepost command list")
        return tenure, operation, note

    def _call(self, parameters: dict[str, Any], reply: Reply, what: str) -> SlowCall:
        next_step = f"fencepost command show {parameters.get('id')} --history"
        return SlowCall(self.loop, self._timers, reply, timeout_of(parameters), lambda: unknown(what, next_step))

    def _propose(self, call: SlowCall, operation: Operation, entry: OutboxEntry, word: str) -> None:
        sink = _WishSink(call, operation, word)
        self.loop.propose_internal(EntryKind.OUTBOX, (encode(entry),), sink, (None,))


class _WishSink:
    """Hears what became of one entry (``raft.node.waiters.ProposalSink``)."""

    def __init__(self, call: SlowCall, operation: Operation, word: str) -> None:
        self._call = call
        self._operation = operation
        self._word = word

    def accepted(self, keys: Sequence[None], first_index: int, term: int) -> None:
        pass

    def refused(self, keys: Sequence[None], code: str, leader: str) -> None:
        self._call.fail(NotLeader("this node does not lead any more: nothing was done", next_step="ask again"))

    def applied(self, keys: Sequence[None], entries: Sequence[Entry], results: Sequence[Any]) -> None:
        operation = self._operation
        if self._word == "cancelled" and operation.state is not OperationState.CANCELLED:
            if operation.state in TERMINAL:
                self._call.fail(_wrong(operation, "it ended before it could be cancelled", _instead_of(operation)))
            elif not operation.cancel_ns and operation.state is OperationState.IN_DOUBT:
                self._call.fail(
                    _wrong(operation, "it came in doubt before it could be cancelled", _instead_of(operation))
                )
            elif not operation.cancel_ns:
                # Its entry speaks for an earlier term of this node, and says nothing in this one.
                self._call.fail(NotLeader("leadership was lost meanwhile: nothing was done", next_step="ask again"))
            else:
                self._call.answer(_body(operation, "requested"))
        elif self._word != "cancelled" and not results[0]:
            self._call.fail(_wrong(operation, f"it was not {self._word}", _instead_of(operation)))
        else:
            self._call.answer(_body(operation, self._word) | {"entry_index": entries[0].index})

    def lost(self, keys: Sequence[None]) -> None:
        self.refused(keys, "LEADERSHIP_LOST", "")

    def unknown(self, keys: Sequence[None]) -> None:
        next_step = f"fencepost command show {self._operation.operation_id} --history"
        self._call.fail(unknown(f"{self._operation.operation_id!r} is {self._word}", next_step))


def _body(operation: Operation, did: str) -> dict[str, Any]:
    return {
        "id": operation.operation_id,
        "did": did,
        "definite": did != "requested",
        "state": operation.state.value,
        "attempt": operation.attempt,
        "error": operation.error or None,
    }


def _wrong(operation: Operation, why: str, next_step: str) -> WrongState:
    return WrongState(f"command {operation.operation_id!r} is {operation.state.value}: {why}", next_step=next_step)


def _recognised_no_more(operation: Operation) -> WrongState:
    return _wrong(
        operation,
        "an attempt may have been applied at its old place, and may not be recognised at a new one",
        f"look at the resource; if it was not applied:  fencepost command redrive {operation.operation_id} "
        f"--not-applied;  if it was:  fencepost command resolve {operation.operation_id} --as done --note TEXT",
    )


def _instead_of(operation: Operation) -> str:
    if operation.state is OperationState.IN_DOUBT:
        return f"fencepost command resolve {operation.operation_id} --as done|failed --note TEXT"
    if operation.state is OperationState.DEAD:
        return f"fencepost command redrive {operation.operation_id}, or discard"
    return f"fencepost command show {operation.operation_id} --history"
