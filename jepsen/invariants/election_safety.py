"""Election safety: at most one leader in a term, elected by the durable votes of a quorum (thesis figure 3.2)."""

from __future__ import annotations

from .ledger import lacking
from .observed import Leadership, ObservedNode
from .property import Property


class ElectionSafety(Property):
    name = "election safety"

    def elected(self, node: ObservedNode, leadership: Leadership) -> None:
        term = leadership.term
        other = self.ledger.leaderships.get(term)
        if other is not None:
            raise self.broken(f"{node} leads term {term}, and {other.name}/{other.boot} was elected in it before")
        configuration = node.configuration
        voters = sorted({*configuration.voters, *configuration.outgoing})
        nodes = self.ledger.nodes
        granted = [voter for voter in voters if voter in nodes and (term, node.name) in nodes[voter].votes]
        lacks = lacking(configuration, granted)
        if lacks:
            raise self.broken(
                f"{node} leads term {term} with durable votes of {granted} only, which is no majority of {lacks}"
            )
