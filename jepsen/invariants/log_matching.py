"""Log matching: index and term name one entry, and everything before it (thesis figure 3.2)."""

from __future__ import annotations

from ...raft.core.entry import Entry
from ...raft.core.events import Persist
from ...raft.core.invariants import Summary
from .ledger import Ledger
from .observed import ObservedNode
from .property import Property

WHOLE_EVERY = 256
"""Writes between two comparisons of all of a log with what was written of it."""


class LogMatching(Property):
    """Looks at what is written, and at what a start has read."""

    name = "log matching"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._known: dict[tuple[int, int], tuple[Entry, int]] = {}
        """By index and term: the entry, and the term of the one before it."""
        self._writes = 0

    def started(self, node: ObservedNode) -> None:
        image = node.disk
        self._look(node, image.entries, image.previous_term)

    def wrote(self, node: ObservedNode, write: Persist, before: Summary) -> None:
        if write.entries:
            self._look(node, write.entries, node.asked.term_at(write.entries[0].index - 1))
        self._writes += 1
        if self._writes % WHOLE_EVERY == 0:
            self._compare(node)

    def changed_role(self, node: ObservedNode, before: Summary) -> None:
        self._compare(node)

    def _look(self, node: ObservedNode, entries: list[Entry], previous_term: int) -> None:
        known = self._known
        for entry in entries:
            name = (entry.index, entry.term)
            found = known.get(name)
            if found is None:
                known[name] = (entry, previous_term)
            elif (found[0] is not entry and found[0] != entry) or found[1] != previous_term:
                raise self.broken(
                    f"{node} holds {entry} at index {entry.index} behind term {previous_term}; elsewhere it is "
                    f"{found[0]} behind term {found[1]}"
                )
            previous_term = entry.term

    def _compare(self, node: ObservedNode) -> None:
        """The log in memory is the one that was handed over to the disk."""
        log, asked = node.raft.log, node.asked
        if (log.previous_index, log.previous_term) != (asked.previous_index, asked.previous_term):
            raise self.broken(
                f"the log of {node} begins behind {log.previous_index}:{log.previous_term}, and what it wrote behind "
                f"{asked.previous_index}:{asked.previous_term}"
            )
        if log.slice(log.first_index, log.last_index) != asked.entries:
            held = {entry.index: entry for entry in asked.entries}
            wrong = [
                entry for entry in log.slice(log.first_index, log.last_index) if held.pop(entry.index, None) != entry
            ]
            raise self.broken(f"{node} has {[*wrong, *held.values()][0]} in its log or in what it wrote, not in both")
