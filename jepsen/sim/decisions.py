"""Somebody who looks at commands now and then, and decides about one: cancels it, redrives it, resolves it.

What he says about a command in doubt is true: he has waited until nothing about it can be on its way any more, and
looked at the resource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...raft.core.options import SECOND
from ...raft.outbox.operation import FINAL, Operation, OperationState
from .clients import Client
from .jobs import Job
from .streams import stream

if TYPE_CHECKING:
    from .node import SimNode
    from .world import World

PAUSE_NS = 1500 * SECOND // 1000
"""Between two looks, on average."""
PATIENCE_NS = 60 * SECOND
"""Of cluster time since a command went in doubt. No request is on its way for longer."""


class Decisions:
    """Runs from :meth:`start` until :meth:`stop`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.client = Client(world, "operator")
        self.jobs: list[Job] = []
        self._random = stream(world.seed, "decisions").random
        self._shift = 0

    def start(self) -> None:
        self._shift += 1
        self._wait(self._shift)

    def stop(self) -> None:
        self._shift += 1

    @property
    def at_rest(self) -> bool:
        return self.client.job is None

    def _wait(self, shift: int) -> None:
        self._world.outside.call_after_ns(int(2 * PAUSE_NS * self._random()), self._look, shift)

    def _look(self, shift: int) -> None:
        if shift != self._shift:
            return
        leader = self._world.leader()
        if leader is not None and self.client.job is None:
            decided = self._decide(leader)
            if decided is not None:
                method, parameters = decided
                self.jobs.append(self.client.call(method, timeout_s=3.0, **parameters))
        self._wait(shift)

    def _decide(self, leader: SimNode) -> tuple[str, dict[str, Any]] | None:
        """About the youngest commands most of the time: they are the ones that move."""
        operations = [each for each in leader.machine.in_order[-60:] if each.state not in FINAL]
        if not operations:
            return None
        operation = operations[int(self._random() * len(operations))]
        drawn = self._random()
        if operation.state is OperationState.DEAD:
            if drawn < 0.3 and self._was_applied(operation):
                return "command.resolve", {"id": operation.operation_id, "as": "done", "note": "looked"}
            if drawn < 0.3:
                return "command.discard", {"id": operation.operation_id, "note": "of no use"}
            return "command.redrive", {"id": operation.operation_id, "note": "once more"}
        if operation.state is OperationState.IN_DOUBT:
            return self._resolve(leader, operation)
        if drawn < 0.6:
            return "command.cancel", {"id": operation.operation_id, "note": "no longer wanted"}
        return None

    def _resolve(self, leader: SimNode, operation: Operation) -> tuple[str, dict[str, Any]] | None:
        since_ns = leader.loop.cluster_time_ns() - operation.history[-1].time_ns
        if operation.resource not in self._world.resources or since_ns < PATIENCE_NS:
            return None
        word = "done" if self._was_applied(operation) else "failed"
        return "command.resolve", {"id": operation.operation_id, "as": word, "note": "looked"}

    def _was_applied(self, operation: Operation) -> bool:
        resource = self._world.resources.get(operation.resource)
        return resource is not None and (operation.resource, operation.operation_id) in resource.inner.store.first
