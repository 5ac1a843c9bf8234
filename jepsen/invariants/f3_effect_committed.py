"""F3: each effect is a committed command, at that index and with those bytes."""

from __future__ import annotations

import hashlib

from ...raft.core.entry import EntryKind
from ...raft.outbox.codec import Redrive, decode, digest
from ..sim.resource import AttemptRecord, OutsideResource, ResourceCall
from .calls import effects_of, text
from .ledger import Ledger
from .property import Property
from .reference import Reference


class EffectCommitted(Property):
    name = "F3 effect committed"

    def __init__(self, ledger: Ledger, reference: Reference) -> None:
        super().__init__(ledger)
        self._reference = reference

    def called(self, call: ResourceCall, resource: OutsideResource) -> None:
        for attempt in effects_of(call):
            self._check(call, attempt)

    def _check(self, call: ResourceCall, attempt: AttemptRecord) -> None:
        index = self._submitted_at(attempt.index)
        what = f"{attempt.operation_id!r} took effect in {text(call)} as the command at index {index}"
        if index <= max(self.ledger.base, self._reference.start_index):
            self._check_older(what, call, attempt)
            return
        command = self.ledger.commands.get(index)
        if command is None:
            raise self.broken(f"{what}, and committed there is {self.ledger.entry(index)}")
        if self.ledger.first_index[command.operation_id] != index:
            raise self.broken(f"{what}, which repeats the one at {self.ledger.first_index[command.operation_id]}")
        sent = (attempt.operation_id, call.resource, attempt.lane, attempt.digest, attempt.payload_digest)
        known = (
            command.operation_id, command.resource, command.lane, digest(command), _payload_digest(command.payload),
        )  # fmt: skip
        if sent != known:
            raise self.broken(f"{what}, with {sent}; committed there is {known}")

    def _submitted_at(self, place: int) -> int:
        """An operation's place is where it was submitted, or redriven last."""
        entry = self.ledger.entry(place)
        redrive = decode(entry.data) if entry is not None and entry.kind == EntryKind.OUTBOX else None
        return self.ledger.first_index.get(redrive.operation_id, 0) if isinstance(redrive, Redrive) else place

    def _check_older(self, what: str, call: ResourceCall, attempt: AttemptRecord) -> None:
        """From before the log that is known: the state that it has left knows it."""
        operation = self._reference.at_end().machine.operations.get(attempt.operation_id)
        if (
            operation is None
            or operation.place < attempt.index
            or (operation.resource, operation.lane) != (call.resource, attempt.lane)
            or (operation.digest, _payload_digest(operation.payload)) != (attempt.digest, attempt.payload_digest)
        ):
            raise self.broken(f"{what}, and the state holds {operation}")


def _payload_digest(payload: bytes) -> bytes:
    """As a resource records what has arrived."""
    return hashlib.blake2b(payload, digest_size=8).digest()
