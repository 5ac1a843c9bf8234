"""Leader completeness: what was committed in a term is in the log of every later leader (thesis figure 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from ...raft.core.entry import Entry
from ...raft.core.invariants import Summary
from .observed import Leadership, ObservedNode
from .property import Property


class LeaderCompleteness(Property):
    name = "leader completeness"

    def elected(self, node: ObservedNode, leadership: Leadership) -> None:
        """It has everything that was committed in earlier terms, entry for entry."""
        ledger, image = self.ledger, node.asked
        # Late votes may make a leader of an earlier term, which owes nothing to what later terms have committed.
        owed = len(ledger.committed)
        while owed and ledger.committed_in[owed - 1] >= leadership.term:
            owed -= 1
        first, last = max(image.previous_index, ledger.base) + 1, ledger.base + owed
        if last < first:
            if owed and last < image.previous_index and image.snapshot is None:
                raise self.broken(f"{node} leads term {leadership.term} without the entries up to {last}")
            return
        wanted, held = ledger.slice(first, last), image.slice(first, last)
        if wanted == held:
            return
        by_index = {entry.index: entry for entry in held}
        missing = next(entry for entry in wanted if by_index.get(entry.index) != entry)
        raise self.broken(
            f"{node} leads term {leadership.term} without {missing}, committed in term "
            f"{ledger.committed_in[missing.index - ledger.base - 1]}; it has {by_index.get(missing.index)} there"
        )

    def first_committed(self, node: ObservedNode, entries: Sequence[Entry], before: Summary) -> None:
        """Leaders of later terms, elected before anybody knew of this commit, have the last of these: with log
        matching that stands for all of them."""
        last, term = entries[-1], node.raft.current_term
        for later in self.ledger.leaderships.values():
            if later.term > term and later.term_at(last.index) not in (last.term, -1):
                raise self.broken(
                    f"{node} commits {last} in term {term}, and {later.name} leads term {later.term} with an entry of "
                    f"term {later.term_at(last.index)} there"
                )
