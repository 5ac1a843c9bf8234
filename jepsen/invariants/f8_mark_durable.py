"""F8: the highest token of a fenced resource is durable before anybody is answered, and survives its restarts."""

from __future__ import annotations

from ...raft.core.token import FencingToken
from ...raft.ports import Guarantee
from ..sim.resource import OutsideResource, ResourceCall
from .calls import accepted, text
from .ledger import Ledger
from .property import Property


class MarkDurable(Property):
    """Looks at what the resource has stored, whenever it has decided something, and in the end."""

    name = "F8 mark durable"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._marks: dict[str, tuple[FencingToken, int]] = {}

    def called(self, call: ResourceCall, resource: OutsideResource) -> None:
        if resource.spec.guarantee is not Guarantee.FENCED:
            return
        mark = self._marks.get(call.resource)
        if accepted(call) and (mark is None or call.token > mark[0]):
            mark = self._marks[call.resource] = (call.token, call.number)
        if mark is not None:
            self._check(resource, mark, f"after {text(call)}")

    def resource_restored(self, resource: OutsideResource) -> None:
        self._marks.pop(resource.name, None)
        stored = resource.store.fences.get(resource.name)
        if stored is not None:
            self._marks[resource.name] = (stored.token, 0)

    def finished(self) -> None:
        for name, mark in self._marks.items():
            self._check(self.ledger.world.resources[name], mark, "in the end")

    def _check(self, resource: OutsideResource, mark: tuple[FencingToken, int], when: str) -> None:
        stored = resource.store.fences.get(resource.name)
        if stored is None or stored.token < mark[0]:
            raise self.broken(
                f"{when} resource {resource.name} has {stored.token if stored else 'nothing'} stored, and in call "
                f"{mark[1]} it has let {mark[0]} in"
            )
