"""State machine safety: nobody ever commits or applies another entry at an index (thesis figure 3.2)."""

from __future__ import annotations

from typing import Any

from ...raft.core.entry import Entry, Snapshot
from ...raft.core.invariants import Summary
from .observed import ObservedNode
from .property import Property


class StateMachineSafety(Property):
    name = "state machine safety"

    def started(self, node: ObservedNode) -> None:
        """What a start takes for committed is: its log below that, and the snapshot that stands for the rest."""
        snapshot = node.raft.snapshot
        if snapshot is not None:
            self._check_label(node, snapshot)
        self._compare(node, 1, node.raft.commit_index, "has found as committed")

    def committed(self, node: ObservedNode, before: Summary) -> None:
        self._compare(node, before.commit_index + 1, node.raft.commit_index, "has committed")

    def restored(self, node: ObservedNode, snapshot: Snapshot) -> None:
        self._check_label(node, snapshot)

    def applied(self, node: ObservedNode, entries: list[Entry], results: list[Any]) -> None:
        first, last = entries[0].index, entries[-1].index
        wanted = self.ledger.slice(first, last)
        if wanted == entries:
            return
        known = {entry.index: entry for entry in wanted}
        for entry in entries:
            if entry.index > self.ledger.base and known.get(entry.index) != entry:
                raise self.broken(
                    f"{node} has applied {entry}, and what is committed there is {known.get(entry.index)}"
                )

    def _compare(self, node: ObservedNode, first: int, last: int, has: str) -> None:
        image, ledger = node.asked, self.ledger
        first = max(first, image.previous_index + 1, ledger.base + 1)
        last = min(last, ledger.last_index)
        if first > last:
            return
        held, known = image.slice(first, last), ledger.slice(first, last)
        if held != known:
            by_index = {entry.index: entry for entry in held}
            wrong = next(entry for entry in known if by_index.get(entry.index) != entry)
            raise self.broken(f"{node} {has} {by_index.get(wrong.index)} where {wrong} was committed before")

    def _check_label(self, node: ObservedNode, snapshot: Snapshot) -> None:
        known = self.ledger.term_at(snapshot.last_index)
        if snapshot.last_index > self.ledger.last_index or known not in (snapshot.last_term, -1):
            raise self.broken(
                f"{node} has a snapshot of {snapshot.last_index} in term {snapshot.last_term}, and what is committed "
                f"there is of term {known} (-1: nothing)"
            )
