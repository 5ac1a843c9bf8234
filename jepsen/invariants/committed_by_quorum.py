"""An entry is committed when a quorum holds it durably, and not before (thesis section 3.6.2; S13, S22).

Judged by what the disks hold, whatever any core believes. Both majorities count in a joint configuration.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...raft.core.entry import Entry
from ...raft.core.events import Role
from ...raft.core.invariants import Summary
from .ledger import lacking
from .observed import ObservedNode
from .property import Property


class CommittedByQuorum(Property):
    name = "committed by quorum"

    def first_committed(self, node: ObservedNode, entries: Sequence[Entry], before: Summary) -> None:
        last, term = entries[-1], node.raft.current_term
        if before.role is not Role.LEADER and node.raft.role is not Role.LEADER:
            raise self.broken(
                f"{node}, a {node.raft.role} of term {term}, commits {last}, which no leader has committed"
            )
        if last.term != before.current_term:
            raise self.broken(f"{node} commits {last} by counting, in term {before.current_term}")
        # What is in force now may be the end of a joint configuration, appended because this was committed.
        configuration = before.configuration
        holders = self.ledger.holders(configuration, last.index, last.term)
        lacks = lacking(configuration, holders)
        if lacks:
            raise self.broken(
                f"{node} commits index {last.index} of term {last.term} in term {term} with durable copies on "
                f"{holders} only, which is no majority of {lacks}"
            )
