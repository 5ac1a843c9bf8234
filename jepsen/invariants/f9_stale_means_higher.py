"""F9: STALE is answered only where a higher token was let in before, and DUPLICATE only where the same one was, from
another holder."""

from __future__ import annotations

from ...raft.core.errors import DuplicateGeneration, StaleLeader
from ...raft.core.token import FencingToken
from ...raft.ports import Guarantee
from ..sim.resource import OutsideResource, ResourceCall
from .calls import accepted, text
from .ledger import Ledger
from .property import Property


class StaleMeansHigher(Property):
    name = "F9 stale means higher"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._highest: dict[str, tuple[FencingToken, str]] = {}

    def called(self, call: ResourceCall, resource: OutsideResource) -> None:
        highest = self._highest.get(call.resource)
        if accepted(call):
            if highest is None or call.token > highest[0]:
                self._highest[call.resource] = (call.token, call.holder)
            return
        if call.decision not in (StaleLeader.code, DuplicateGeneration.code):
            return
        if resource.spec.guarantee is not Guarantee.FENCED:
            raise self.broken(
                f"{text(call)} was refused as {call.decision} by a {resource.spec.guarantee.value} resource"
            )
        if highest is None:
            raise self.broken(f"{text(call)} was refused as {call.decision}, and no token was let in before")
        stale = call.token < highest[0]
        duplicate = call.token == highest[0] and call.holder != highest[1]
        if not (stale if call.decision == StaleLeader.code else duplicate):
            raise self.broken(
                f"{text(call)}, of {call.holder}, was refused as {call.decision}, and the highest let in before is "
                f"{highest[0]}, of {highest[1]}"
            )

    def resource_restored(self, resource: OutsideResource) -> None:
        self._highest.pop(resource.name, None)
        stored = resource.store.fences.get(resource.name)
        if stored is not None:
            self._highest[resource.name] = (stored.token, stored.holder)
