"""One change of the members at a time: none before the leader has committed in its term, and none before the one
before it is committed (thesis section 4.1; the fault of 2015, S23)."""

from __future__ import annotations

from ...raft.core.entry import EntryKind
from ...raft.core.events import Persist, Role
from ...raft.core.invariants import Summary
from .observed import ObservedNode
from .property import Property

_CONFIGURATION = int(EntryKind.CONFIGURATION)


class OneChangeInFlight(Property):
    name = "one change in flight"

    def wrote(self, node: ObservedNode, write: Persist, before: Summary) -> None:
        raft, known = node.raft, node.asked.configurations
        if raft.role is not Role.LEADER or not write.entries or known[-1][0] < write.entries[0].index:
            return
        made = [entry for entry in write.entries if (entry.kind, entry.term) == (_CONFIGURATION, raft.current_term)]
        if not made:
            return
        ledger, index, term = self.ledger, made[0].index, raft.current_term
        before_it = max(at for at, _ in known if at < made[-1].index)
        if len(made) > 1:
            raise self.broken(
                f"{node}, leader of term {term}, appends configurations at {[each.index for each in made]}"
            )
        if raft.commit_index < raft.term_start_index:
            raise self.broken(
                f"{node} appends a configuration at {index} before it has committed in its term {term} "
                f"(from {raft.term_start_index} on, committed to {raft.commit_index})"
            )
        agreed = ledger.term_at(before_it) == node.asked.term_at(before_it)
        if before_it > max(ledger.base, node.asked.previous_index) and not agreed:
            raise self.broken(
                f"{node}, leader of term {term}, appends a configuration at {index}, and the one at {before_it} is not "
                f"committed"
            )
