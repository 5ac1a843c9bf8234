"""Which commands of one resource may start next: log order, lanes, times, retries. Pure bookkeeping.

Lives as long as one leader's tenure and is filled from the replicated state, so it holds nothing
that a failover could lose.
"""

from __future__ import annotations

import heapq
from collections import deque

from ..outbox.operation import TERMINAL, Operation, OperationState

_COMMITTED = OperationState.COMMITTED
_RETRY_WAIT = OperationState.RETRY_WAIT
_DEAD = OperationState.DEAD


class DispatchQueue:
    """Operations in the order in which they may be dispatched.

    An operation without a lane stands alone. A lane is one queue: it is taken into a batch as a
    run of consecutive operations, and is *busy* from then until :meth:`release_lane`. A lane whose
    head cannot start here (it is in doubt, its effect is not known to this node, or its deadline has
    passed and that is not on record yet) stands still: what comes after may not overtake it (scenario
    S52). So does, where ``dead_blocks``, a lane of which there is a dead letter.
    """

    def __init__(self, known_effects: frozenset[str], *, dead_blocks: bool = False) -> None:
        self._known_effects = known_effects
        self._dead_blocks = dead_blocks
        self._now_ns = 0
        """Cluster time when it was told last."""
        self._ready: deque[Operation | str] = deque()
        """Operations without a lane, and names of lanes that can go on and are not busy."""
        self._lanes: dict[str, deque[Operation]] = {}
        self._busy: set[str] = set()
        self._waiting: list[tuple[int, int, int, Operation | str]] = []
        """Heap of (cluster time from which it may start, place, a number, operation or lane). What has become of an
        item meanwhile is looked at when its time has come."""
        self._waited = 0
        self._standing: set[str] = set()
        """Lanes whose head cannot start here."""
        self._dead: dict[str, set[int]] = {}
        """Dead letters by lane: their indexes. Empty unless they block it."""

    def startable(self, operation: Operation) -> bool:
        state = operation.state
        if not (state is _COMMITTED or state is _RETRY_WAIT) or operation.effect not in self._known_effects:
            return False
        return not operation.deadline_ns or operation.deadline_ns > self._now_ns

    def offer(self, operation: Operation) -> None:
        """Add an operation that is not terminal. Of one lane: in the order of places."""
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
        due_ns = due_of(operation)
        if due_ns:
            self._waited += 1
            heapq.heappush(self._waiting, (due_ns, operation.place, self._waited, item))
        else:
            self._ready.append(item)

    def _enter_lane(self, name: str) -> None:
        """A lane that is not busy: ready, waiting for its head's time, standing, or empty and gone."""
        lane = self._lanes[name]
        # An outcome may arrive by another way than through here: a success that a former leader's
        # effect had, and that was put on record only now.
        while lane and lane[0].state in TERMINAL:
            lane.popleft()
        if not lane:
            del self._lanes[name]
        elif self.startable(lane[0]) and name not in self._dead:
            self._enter(lane[0], name)
        else:
            self._standing.add(name)

    # -- what happens elsewhere -------------------------------------------------------------------

    def changed(self, operation: Operation) -> None:
        """An operation that was not under way here has ended, or can be started again: its lane may be able to
        go on, or may have to stand."""
        name = operation.lane
        if not name:
            if operation.state is _RETRY_WAIT:
                self.offer(operation)
            return
        if operation.state is _DEAD:
            self.died(operation)
        elif name in self._dead:
            self._unblock(operation)
        waits = name in self._lanes and name not in self._busy
        if waits and (name in self._standing or self._lanes[name][0].state in TERMINAL):
            self._standing.discard(name)
            self._enter_lane(name)

    def died(self, operation: Operation) -> None:
        """It is a dead letter, from now on or from before."""
        if self._dead_blocks and operation.lane:
            self._dead.setdefault(operation.lane, set()).add(operation.index)

    def redriven(self, operation: Operation) -> None:
        """A dead letter is none any more, and has a new place: behind everything that is here."""
        if operation.lane in self._dead:
            self._unblock(operation)
        lane = self._lanes.get(operation.lane)
        if lane is not None and any(each is operation for each in lane):
            # It has died behind a head that stands, and is still where it was.
            self._lanes[operation.lane] = deque(each for each in lane if each is not operation)
        if operation.lane in self._standing:
            self._standing.discard(operation.lane)
            self._enter_lane(operation.lane)
        self.offer(operation)

    def _unblock(self, operation: Operation) -> None:
        letters = self._dead[operation.lane]
        letters.discard(operation.index)
        if not letters:
            del self._dead[operation.lane]

    @property
    def has_standing(self) -> bool:
        """Whether a lane stands, or will as soon as something comes."""
        return bool(self._standing or self._dead)

    # -- taking -----------------------------------------------------------------------------------

    def take(self, limit: int) -> list[Operation]:
        """Up to ``limit`` operations to dispatch now. Their lanes are busy until released."""
        batch: list[Operation] = []
        ready = self._ready
        while ready and len(batch) < limit:
            item = ready.popleft()
            if not isinstance(item, str):
                if self.startable(item):
                    batch.append(item)
                continue
            lane = self._lanes.get(item)
            if lane is None or item in self._busy or item in self._standing:
                continue  # Not what it was when it was put here.
            if not self._may_start(lane[0]) or item in self._dead:
                self._enter_lane(item)  # Ended by another way since; at the end of the queue, if not empty.
                continue
            self._busy.add(item)
            batch.append(lane.popleft())  # If the head has had to wait, its wait is over.
            while lane and len(batch) < limit and lane[0].state is _COMMITTED and self._may_start(lane[0]):
                batch.append(lane.popleft())
        return batch

    def _may_start(self, operation: Operation) -> bool:
        return due_of(operation) <= self._now_ns and self.startable(operation)

    def release_lane(self, name: str, returned: list[Operation]) -> None:
        """What was taken of a lane has ended. ``returned`` are those of it that are not terminal,
        in log order; they go to the front."""
        self._busy.discard(name)
        self._lanes[name].extendleft(reversed(returned))
        self._enter_lane(name)

    def wake(self, cluster_time_ns: int) -> None:
        """Make ready what has waited long enough."""
        if cluster_time_ns > self._now_ns:
            self._now_ns = cluster_time_ns
        while self._waiting and self._waiting[0][0] <= cluster_time_ns:
            due_ns, place, _, item = heapq.heappop(self._waiting)
            if isinstance(item, str) or (item.place, due_of(item)) == (place, due_ns):
                self._ready.append(item)

    def next_wake_ns(self) -> int:
        """Cluster time at which something may start; 0 when nothing waits."""
        return self._waiting[0][0] if self._waiting else 0

    @property
    def is_empty(self) -> bool:
        """Nothing is ready, and nothing waits for its time."""
        return not self._ready and not self._waiting

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)


def due_of(operation: Operation) -> int:
    """Cluster time from which on it may start; 0 for at once."""
    return operation.next_try_ns if operation.next_try_ns > operation.not_before_ns else operation.not_before_ns
