"""What happens because time passes, and by nothing else: deadlines, and what is no longer remembered.

Cluster time is that of the newest entry. While nothing is appended it stands still, and what waits for it would
wait for ever; so the leader appends an entry when something is due, and none as long as nothing is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

from ..core.entry import Entry, EntryKind
from ..core.token import FencingToken
from ..outbox.codec import Expiry, OutboxEntry, Retention, Tick, encode
from ..outbox.machine import OutboxMachine
from ..outbox.operation import TERMINAL, Operation, OperationState
from .dispatcher import Proposer

_FREE = (OperationState.COMMITTED, OperationState.RETRY_WAIT)

EXPIRED_AT_ONCE = 256
"""Operations in one entry."""
FORGETTING_PAUSE_NS = 60 * 1_000_000_000
"""A cluster in which nothing else happens forgets in rounds that are at least so far apart, or by a sixteenth of
the time that it remembers."""


class DueTimes:
    """Of one tenure. Hears of its own entries (``raft.node.waiters.ProposalSink``)."""

    def __init__(self, machine: OutboxMachine, token: FencingToken, proposer: Proposer) -> None:
        self._machine = machine
        self._token = token
        self._proposer = proposer
        self._deadlines: list[tuple[int, int]] = []
        """Heap of (deadline, index)."""
        self._overdue: dict[int, Operation] = {}
        """By index: their deadline has passed while an attempt was under way, or it is being put on record."""
        self._proposed = False
        """One of its entries is under way; the next one waits for that."""

    def watch(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            if operation.deadline_ns:
                heapq.heappush(self._deadlines, (operation.deadline_ns, operation.index))

    def settle(self, wanted: Retention) -> None:
        """Have the cluster remember as long as this node's file says, if it does not yet."""
        if self._machine.retention != wanted:
            self._propose(wanted)

    def pump(self, cluster_time_ns: int) -> int:
        """Put on record what is due. Cluster time at which something else will be; 0 for never."""
        while self._deadlines and self._deadlines[0][0] <= cluster_time_ns:
            _, index = heapq.heappop(self._deadlines)
            operation = self._machine.by_index.get(index)
            if operation is not None:
                self._overdue[index] = operation
        next_ns = self._deadlines[0][0] if self._deadlines else 0
        if self._proposed:
            return next_ns
        if self._overdue:
            self._expire()
        forgetting_ns = self._machine.next_forgetting_ns()
        if forgetting_ns and not self._proposed:
            if forgetting_ns > self._machine.cluster_time_ns:
                forgetting_ns += min(self._machine.retention.window_ns // 16, FORGETTING_PAUSE_NS)
            if forgetting_ns <= cluster_time_ns:
                self._propose(Tick())
            else:
                next_ns = min(next_ns, forgetting_ns) if next_ns else forgetting_ns
        return next_ns

    def _expire(self) -> None:
        by_resource: dict[str, list[int]] = {}
        for index, operation in list(self._overdue.items()):
            # A redriven one has no deadline any more.
            if operation.state in TERMINAL or operation.state is OperationState.IN_DOUBT or not operation.deadline_ns:
                del self._overdue[index]
            elif operation.state in _FREE:
                by_resource.setdefault(operation.resource, []).append(index)
        for resource, indexes in by_resource.items():
            self._propose(Expiry(resource, self._token, indexes[:EXPIRED_AT_ONCE]))

    def _propose(self, entry: OutboxEntry) -> None:
        self._proposed = True
        self._proposer.propose_internal(EntryKind.OUTBOX, (encode(entry),), self, (None,))

    def accepted(self, keys: Sequence[None], first_index: int, term: int) -> None:
        pass

    def refused(self, keys: Sequence[None], code: str, leader: str) -> None:
        pass  # Only a leader that is one no longer is refused; its tenure is being revoked.

    def applied(self, keys: Sequence[None], entries: Sequence[Entry], results: Sequence[Any]) -> None:
        self._proposed = False
        self._proposer.wake()

    def lost(self, keys: Sequence[None]) -> None:
        pass

    def unknown(self, keys: Sequence[None]) -> None:
        pass
