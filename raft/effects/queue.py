"""Which commands of one resource may start next: log order, lanes, retries. Pure bookkeeping.

Lives as long as one leader's tenure and is filled from the replicated state, so it holds nothing
that a failover could lose.
"""

from __future__ import annotations

import heapq
from collections import deque

from ..outbox.operation import TERMINAL, Operation, OperationState

_COMMITTED = OperationState.COMMITTED
_RETRY_WAIT = OperationState.RETRY_WAIT


class DispatchQueue:
    """Operations in the order in which they may be dispatched.

    An operation without a lane stands alone. A lane is one queue: it is taken into a batch as a
    run of consecutive operations, and is *busy* from then until :meth:`release_lane`. A lane whose
    head cannot start here (it is in doubt, or its effect is not known to this node) stands still:
    what comes after may not overtake it (scenario S52).
    """

    def __init__(self, known_effects: frozenset[str]) -> None:
        self._known_effects = known_effects
        self._ready: deque[Operation | str] = deque()
        """Operations without a lane, and names of lanes that can go on and are not busy."""
        self._lanes: dict[str, deque[Operation]] = {}
        self._busy: set[str] = set()
        self._waiting: list[tuple[int, int, Operation | str]] = []
        """Heap of (next try in cluster time, index, operation or lane)."""
        self._standing: set[str] = set()
        """Lanes whose head cannot start here."""

    def startable(self, operation: Operation) -> bool:
        state = operation.state
        return (state is _COMMITTED or state is _RETRY_WAIT) and operation.effect in self._known_effects

    def offer(self, operation: Operation) -> None:
        """Add an operation that is not terminal. Of one lane: in log order."""
        name = operation.lane
        if not name:
            if self.startable(operation):
                self._enter(operation, operation)
            return
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = deque()
        lane.append(operation)
        if len(lane) == 1 and name not in self._busy:
            self._enter_lane(name)

    def _enter(self, operation: Operation, item: Operation | str) -> None:
        if operation.state is _RETRY_WAIT:
            heapq.heappush(self._waiting, (operation.next_try_ns, operation.index, item))
        else:
            self._ready.append(item)

    def _enter_lane(self, name: str) -> None:
        """A lane that is not busy: ready, waiting for its head's next try, standing, or empty and gone."""
        lane = self._lanes[name]
        # An outcome may arrive by another way than through here: a success that a former leader's
        # effect had, and that was put on record only now.
        while lane and lane[0].state in TERMINAL:
            lane.popleft()
        if not lane:
            del self._lanes[name]
        elif self.startable(lane[0]):
            self._enter(lane[0], name)
        else:
            self._standing.add(name)

    def ended(self, operation: Operation) -> None:
        """An operation that was not under way here has ended: its lane may be able to go on."""
        if operation.lane in self._standing:
            self._standing.discard(operation.lane)
            self._enter_lane(operation.lane)

    @property
    def has_standing(self) -> bool:
        return bool(self._standing)

    def take(self, limit: int) -> list[Operation]:
        """Up to ``limit`` operations to dispatch now. Their lanes are busy until released."""
        batch: list[Operation] = []
        ready = self._ready
        while ready and len(batch) < limit:
            item = ready.popleft()
            if not isinstance(item, str):
                if item.state not in TERMINAL:
                    batch.append(item)
                continue
            lane = self._lanes[item]
            if lane[0].state in TERMINAL:
                self._enter_lane(item)  # Ended by another way since; at the end of the queue, if not empty.
                continue
            self._busy.add(item)
            batch.append(lane.popleft())  # If the head has had to wait, its wait is over.
            while lane and len(batch) < limit and lane[0].state is _COMMITTED and self.startable(lane[0]):
                batch.append(lane.popleft())
        return batch

    def release_lane(self, name: str, returned: list[Operation]) -> None:
        """What was taken of a lane has ended. ``returned`` are those of it that are not terminal,
        in log order; they go to the front."""
        self._busy.discard(name)
        self._lanes[name].extendleft(reversed(returned))
        self._enter_lane(name)

    def wake(self, cluster_time_ns: int) -> None:
        """Make ready what has waited long enough."""
        while self._waiting and self._waiting[0][0] <= cluster_time_ns:
            self._ready.append(heapq.heappop(self._waiting)[2])

    def next_wake_ns(self) -> int:
        """Cluster time of the next retry; 0 when nothing waits."""
        return self._waiting[0][0] if self._waiting else 0

    @property
    def is_empty(self) -> bool:
        """Nothing is ready, and nothing waits for its time."""
        return not self._ready and not self._waiting

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)
