"""F1: at a fenced resource no lower token is let in after a higher one, and one token has one holder."""

from __future__ import annotations

from ...raft.core.token import FencingToken
from ...raft.ports import Guarantee
from ..sim.resource import OutsideResource, ResourceCall
from .calls import accepted, text
from .ledger import Ledger
from .property import Property


class TokenOrder(Property):
    name = "F1 token order"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._highest: dict[str, tuple[FencingToken, str, int]] = {}
        """By resource: the highest token let in, its holder, and in which call first."""

    def called(self, call: ResourceCall, resource: OutsideResource) -> None:
        if not accepted(call) or resource.spec.guarantee is not Guarantee.FENCED:
            return
        highest = self._highest.get(call.resource)
        if highest is None or call.token > highest[0]:
            self._highest[call.resource] = (call.token, call.holder, call.number)
            return
        token, holder, number = highest
        if call.token < token:
            raise self.broken(f"{text(call)} was accepted after call {number} with token {token}")
        if call.holder != holder:
            raise self.broken(f"{text(call)} was accepted for {call.holder}, and call {number} for {holder}")

    def resource_restored(self, resource: OutsideResource) -> None:
        """Its fence has gone back with it; from there on tokens go up again."""
        stored = resource.store.fences.get(resource.name)
        if stored is None:
            self._highest.pop(resource.name, None)
        else:
            self._highest[resource.name] = (stored.token, stored.holder, 0)
