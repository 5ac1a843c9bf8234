"""What the outbox remembers: the attributes of the machine, without the rules that change them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from .codec import Activation, Election, Retention
from .operation import TERMINAL, Operation, OperationState
from .tables import OperationsById, OperationsByIndex

EVENTS_KEPT = 100
"""How many elections, and how many activations, the state remembers."""


_FREED_AT_ONCE = 4096


class ElectionRecord(NamedTuple):
    index: int  # type: ignore[assignment]  # tuple.index, which nobody misses
    time_ns: int
    election: Election


class ActivationRecord(NamedTuple):
    index: int  # type: ignore[assignment]  # tuple.index, which nobody misses
    time_ns: int
    activation: Activation
    returned: int
    """How many operations of the predecessor became dispatchable again."""
    in_doubt: int
    """How many went in doubt."""


class OutboxState:
    """Plain data. Readers may look at every attribute and change none."""

    def __init__(self) -> None:
        self.operations = OperationsById()
        """Every operation, by operation id, in log order."""
        self.by_index = OperationsByIndex()
        self.in_order: list[Operation] = []
        """The same once more, and those that were forgotten since it was swept last. It only ever grows at its
        end, or is replaced, so that a snapshot may read it from another thread."""
        self.pending: dict[str, dict[int, Operation]] = {}
        """By resource, then by index in the order of their places: the operations that are not terminal."""
        self.dead: dict[str, dict[int, Operation]] = {}
        """By resource, then by index: the dead letters."""
        self.ended: deque[Operation] = deque()
        """In the order of their ends: the operations that may be forgotten one day."""
        self.retention = Retention()
        self.forgotten = 0
        """How many operations were forgotten."""
        self.forgotten_ids_ns = 0
        """The highest time in the id of a forgotten operation, nanoseconds since the Unix epoch: an id that bears an
        earlier one and is not known may have been forgotten."""
        self.counts: dict[str, dict[OperationState, int]] = {}
        """By resource: how many operations are in each state."""
        self.tokens: dict[str, Activation] = {}
        """By resource: the activation with the highest token applied so far."""
        self.elections: deque[ElectionRecord] = deque(maxlen=EVENTS_KEPT)
        self.activations: deque[ActivationRecord] = deque(maxlen=EVENTS_KEPT)
        self.terms = 0
        """The sum that stands for all of the above (``state_digest``)."""
        self.cluster_time_ns = 0
        self.last_applied = 0
        """Index of the last outbox entry applied; entries of other kinds do not move it."""
        self.being_read = False
        """Of a state that was replaced: a snapshot of it may not be written yet, and needs ``in_order`` whole."""

    @property
    def done_watermark(self) -> int:
        """Every operation whose place is up to this has ended, dead letters among them."""
        firsts = [next(iter(pending.values())).place for pending in self.pending.values() if pending]
        return min(firsts) - 1 if firsts else self.last_applied

    def place_operation(self, operation: Operation) -> None:
        """Put an operation into the tables that go by its state. Those of one resource, in the order of places."""
        resource, state = operation.resource, operation.state
        counts = self.counts.get(resource)
        if counts is None:
            counts = self.counts[resource] = dict.fromkeys(OperationState, 0)
            self.pending[resource] = {}
            self.dead[resource] = {}
        counts[state] += 1
        if state not in TERMINAL:
            self.pending[resource][operation.index] = operation
        elif state is OperationState.DEAD:
            self.dead[resource][operation.index] = operation

    def discard(self) -> None:
        """Free a state that nobody needs any more, operation by operation: to free all of them in one go would
        stop every other thread for as long as that takes."""
        if not self.being_read:  # Whoever draws a snapshot of it looks there for what was forgotten before.
            self.by_index.discard()
        in_order, self.in_order = self.in_order, []
        while in_order and not self.being_read:
            del in_order[-_FREED_AT_ONCE:]
        self.pending.clear()
        self.dead.clear()
        self.ended.clear()
        self.operations.discard()
