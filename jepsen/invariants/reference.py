"""The state machines of a node nobody disturbs: they replay the committed log from its beginning, in order.

Replicas are compared with it and not only with one another, so that they cannot all be wrong together
without it being seen. It goes forward by itself no further than it is asked to; where it is asked for a
moment that it has passed, a second one replays from the beginning.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from ...raft.core.entry import EntryKind
from ...raft.node.applier import Applier
from ...raft.outbox.machine import OutboxMachine
from ..sim.registers import Registers

if TYPE_CHECKING:
    from .ledger import Ledger

HASHES_KEPT = 4096
"""Hashes of so many indexes are remembered, the latest asked for."""


def state_hash(applier: Applier) -> bytes:
    """16 bytes that stand for the state of all machines: they are those of its snapshot."""
    digest = hashlib.blake2b(digest_size=16)
    for chunk in applier.capture():
        digest.update(chunk)
    return digest.digest()


class Replay:
    """State machines that have applied the committed log up to ``applier.last_applied``."""

    def __init__(self) -> None:
        self.machine = OutboxMachine()
        self.registers = Registers()
        self.applier = Applier({EntryKind.OUTBOX: self.machine, EntryKind.EMBEDDED: self.registers})


class Reference:
    """Replays of the ledger's committed log."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._start_index = 0
        self._start: list[bytes] = []
        """The contents of a snapshot, where the log is not known from its first entry on."""
        self._front = Replay()
        self._rear: Replay | None = None
        self._hashes: dict[int, bytes] = {}

    @property
    def start_index(self) -> int:
        """What lies before it cannot be replayed."""
        return self._start_index

    @property
    def applied(self) -> int:
        return self._front.applier.last_applied

    def begin_at(self, index: int, applier: Applier) -> None:
        """Replay from the state of ``applier``, which is the one after ``index``."""
        self._start_index = index
        self._start = list(applier.capture())
        self._front, self._rear = self.fresh(), None
        self._hashes.clear()

    def fresh(self) -> Replay:
        """Another replay, at :attr:`start_index`."""
        made = Replay()
        if self._start:
            made.applier.adopt(made.applier.prepare(self._start), self._start_index)
        return made

    def at_end(self) -> Replay:
        """The state after everything that is committed."""
        self._advance(self._front, self._ledger.last_index)
        return self._front

    def values_at(self, index: int) -> dict[str, Any]:
        """Registers and lists after ``index``, which must not be before :attr:`start_index`."""
        return dict(self._at(max(index, self._start_index)).registers.values)

    def hash_at(self, index: int) -> bytes | None:
        """The hash of the state after ``index``; None where that cannot be replayed."""
        if index < self._start_index or index > self._ledger.last_index:
            return None
        found = self._hashes.get(index)
        if found is None:
            found = self._hashes[index] = state_hash(self._at(index).applier)
            if len(self._hashes) > HASHES_KEPT:
                del self._hashes[next(iter(self._hashes))]
        return found

    def _at(self, index: int) -> Replay:
        if index >= self.applied:
            self._advance(self._front, index)
            return self._front
        if self._rear is None or self._rear.applier.last_applied > index:
            self._rear = self.fresh()
        self._advance(self._rear, index)
        return self._rear

    def _advance(self, replay: Replay, index: int) -> None:
        first = replay.applier.last_applied + 1
        if index >= first:
            replay.applier.apply(self._ledger.slice(first, index))
