"""Leader append-only: a leader never deletes or replaces an entry of its own log (thesis figure 3.2)."""

from __future__ import annotations

from ...raft.core.events import Persist, Role
from ...raft.core.invariants import Summary
from .observed import ObservedNode
from .property import Property


class LeaderAppendOnly(Property):
    name = "leader append-only"

    def wrote(self, node: ObservedNode, write: Persist, before: Summary) -> None:
        raft = node.raft
        if before.role is not Role.LEADER or raft.role is not Role.LEADER or before.current_term != raft.current_term:
            return
        term = raft.current_term
        if write.truncate_from or write.reset is not None:
            what = f"from {write.truncate_from} on" if write.truncate_from else f"for the snapshot of {write.reset}"
            raise self.broken(f"{node}, leader of term {term}, deletes its log {what}")
        if node.asked.term_at(before.last_index) not in (before.last_term, -1):
            raise self.broken(f"{node}, leader of term {term}, has replaced its entry {before.last_index}")
        for entry in write.entries:
            if entry.index <= before.last_index or entry.term != term:
                raise self.broken(
                    f"{node}, leader of term {term}, writes entry {entry.index} of term {entry.term} where its log "
                    f"ended at {before.last_index}"
                )
