"""Has a resource give up what it keeps of operations that the cluster has forgotten (concepts: Operation ids).

A resource recognises a repeat by the row that it keeps of the first one. A command that is remembered may be attempted
again, so its row has to stay; of one that has ended and is forgotten nobody asks any more.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from ..core.errors import FenceError
from ..outbox.machine import OutboxMachine
from ..ports import PrunableResource, Resource
from .authority import Authority
from .runtime import EffectsRuntime

_LOG = structlog.get_logger("fencepost.effects")

ROUND = 256
"""Operations that the cluster forgets before its resources are told: a transaction for each of them would cost as much
as the effects do. A new leader begins with a round, whatever there is."""
ROWS_AT_ONCE = 256
"""In one transaction: nobody else passes the fence meanwhile."""


class Forgetting:
    """Of one resource, for one tenure. Nothing of it is on record: what it does may be done again by anybody who leads,
    or left undone."""

    def __init__(
        self,
        *,
        resource: Resource,
        authority: Authority,
        machine: OutboxMachine,
        runtime: EffectsRuntime,
        may_begin: Callable[[], bool],
        on_trouble: Callable[[BaseException], None],
    ) -> None:
        """``may_begin()``: the resource is claimed and active. ``on_trouble`` is told when it has another holder."""
        self._resource: PrunableResource | None = resource if isinstance(resource, PrunableResource) else None
        self._authority = authority
        self._machine = machine
        self._runtime = runtime
        self._may_begin = may_begin
        self._on_trouble = on_trouble
        self._due_at = 0
        """How many operations the cluster must have forgotten before the next round."""
        self._below = 0
        self._under_way = False

    def pump(self) -> None:
        """Begin a round, if one is due."""
        if self._resource is None or self._under_way or self._machine.forgotten < self._due_at:
            return
        if not self._may_begin() or not self._authority.valid():
            return
        below = self._machine.remembers_from()
        self._due_at = self._machine.forgotten + ROUND
        if below > self._below:
            self._below = below
            self._forget(self._resource, below)

    def _forget(self, resource: PrunableResource, below: int) -> None:
        authority = self._authority

        async def forget() -> bool:
            if authority.revoked:
                return False
            return await resource.forget(authority.token, authority.holder, below, ROWS_AT_ONCE)

        def ended(more: bool | None, error: BaseException | None) -> None:
            self._under_way = False
            if error is not None:
                self._below = 0  # The next round does what this one has left.
                _LOG.warning("rows not forgotten", resource=resource.name, below=below, error=str(error))
                if isinstance(error, FenceError):
                    self._on_trouble(error)
            elif more and not authority.revoked and self._may_begin():
                self._forget(resource, below)

        self._under_way = True
        self._runtime.run(forget, ended)
