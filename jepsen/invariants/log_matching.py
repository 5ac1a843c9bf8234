"""Log matching: index and term name one entry, and everything before it (thesis figure 3.2)."""

from __future__ import annotations

from ...raft.core.entry import Entry
from ...raft.core.events import Persist
from ...raft.core.invariants import Summary
from .ledger import Ledger
from .observed import ObservedNode, runs_of
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
        start, last_index = log.window_start, log.last_index
        held = log.slice(start, last_index)
        if held != asked.slice(start, asked.last_index):
            there = {entry.index: entry for entry in asked.slice(start, asked.last_index)}
            wrong = [entry for entry in held if there.pop(entry.index, None) != entry]
            raise self.broken(f"{node} has {[*wrong, *there.values()][0]} in its log or in what it wrote, not in both")
        if start > log.first_index:
            self._compare_terms(node)

    def _compare_terms(self, node: ObservedNode) -> None:
        """What it knows of entries that are on disk only. Terms never fall, so the ends of each run stand for it."""
        log = node.raft.log
        runs = [run for run in runs_of(node.asked) if run[0] < log.window_start]
        ends = [first - 1 for first, _ in runs[1:]] + [log.window_start - 1]
        for (first, term), last in zip(runs, ends, strict=True):
            if log.term_at(first) != term or log.term_at(last) != term:
                raise self.broken(
                    f"{node} takes {first} to {last} for entries of {log.term_at(first)} to {log.term_at(last)}, and "
                    f"has written them in {term}"
                )
