"""What is committed stays committed: no disk that held it loses it, and a quorum goes on holding it (S13, S14, S17).

Excepted by declaration: disks of a minority that were lost, put back to an older state, or damaged. With the
disks of a majority gone, nothing is promised.
"""

from __future__ import annotations

from ...raft.core.events import Persist
from .image import LogImage
from .ledger import lacking
from .observed import ObservedNode
from .property import DiskFate, Property


class CommittedForEver(Property):
    name = "committed for ever"

    def syncing(self, node: ObservedNode, write: Persist) -> None:
        """No truncation and no reset takes away what is committed, unless a snapshot there holds it."""
        if write.truncate_from:
            self._check_gone(node, write.truncate_from, "deletes")
        if write.reset is not None:
            self._check_gone(node, write.reset.last_index + 1, "drops")

    def started(self, node: ObservedNode) -> None:
        if node.disk_before is not None:
            self._compare(node, node.disk_before, node.disk)
        self._count(node.name)

    def _compare(self, node: ObservedNode, before: LogImage, held: LogImage) -> None:
        known_to = min(before.last_index, self.ledger.last_index)
        for index in (known_to, held.last_index + 1):
            term = self.ledger.term_at(index)
            if 0 < index <= known_to and term >= 0 and before.holds(index, term) and not held.holds(index, term):
                raise self.broken(
                    f"the disk of {node} held index {index} of term {term}, which is committed, and after its start it "
                    f"has term {held.term_at(index)} there and ends at {held.last_index}"
                )

    def disk_changed(self, node: ObservedNode, fate: DiskFate) -> None:
        commit = self.ledger.commit
        if commit is None:
            return
        changed = [name for name, other in self.ledger.nodes.items() if other.lost is not None or other is node]
        whole = [name for name in self._voters() if name not in changed]
        if lacking(commit.configuration, whole):
            # Whoever is left is no quorum: another one might be made of disks that know nothing.
            self.ledger.quorum_lost = True

    def _check_gone(self, node: ObservedNode, first: int, does: str) -> None:
        """Whether the disk loses a committed entry from ``first`` on, which is the end of its log."""
        image, ledger = node.disk, self.ledger
        start = max(first, ledger.base + 1, image.previous_index + 1)
        end = min(image.last_index, ledger.last_index)
        for wanted, entry in zip(ledger.slice(start, end), image.slice(start, end), strict=False):
            if wanted.term == entry.term:
                raise self.broken(
                    f"the disk of {node} {does} {entry}, which is committed, with its log from {first} on"
                )

    def _voters(self) -> list[str]:
        commit = self.ledger.commit
        assert commit is not None
        return sorted({*commit.configuration.voters, *commit.configuration.outgoing})

    def _count(self, name: str) -> None:
        """The newest commit is on a quorum still, and with log matching everything before it."""
        commit = self.ledger.commit
        if commit is None or self.ledger.quorum_lost:
            return
        holders = self.ledger.holders(commit.configuration, commit.index, commit.term)
        lacks = lacking(commit.configuration, holders)
        if lacks:
            raise self.broken(
                f"after a start of {name} index {commit.index} of term {commit.term}, committed by {commit.by}, is on "
                f"{holders} only, which is no majority of {lacks}"
            )
