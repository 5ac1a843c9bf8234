"""F5: a token that was let in is of a term whose no-op is committed, and comes from the node that led it."""

from __future__ import annotations

from ..sim.resource import OutsideResource, ResourceCall
from .calls import accepted, text
from .property import Property


class TokenElected(Property):
    name = "F5 token elected"

    def called(self, call: ResourceCall, resource: OutsideResource) -> None:
        if not accepted(call):
            return
        ledger, term = self.ledger, call.token.term
        leadership, index = ledger.leaderships.get(term), ledger.no_ops.get(term)
        if leadership is None or leadership.name != call.node:
            led = "nobody" if leadership is None else leadership.name
            raise self.broken(f"{text(call)} was accepted, and {led} led term {term}")
        if index is None or index != leadership.start_index:
            raise self.broken(
                f"{text(call)} was accepted, and the no-op of term {term} at index {leadership.start_index} "
                f"is not committed"
            )
        node = ledger.nodes[call.node]
        if call.token.incarnation != node.node.directory.incarnation:
            raise self.broken(f"{text(call)} was accepted; its incarnation is {node.node.directory.incarnation}")
