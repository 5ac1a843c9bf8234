"""What only goes up: terms, the one vote in each, commit and applied indexes; and on a disk, over every restart.

A start finds what was durable and a beginning of what had been handed over since, in order: nothing less,
nothing else.
"""

from __future__ import annotations

from typing import Any

from ...raft.core.entry import Entry, Snapshot
from ...raft.core.events import Effects, Event, Persist
from ...raft.core.invariants import Summary
from .image import LogImage
from .ledger import Ledger
from .observed import ObservedNode
from .property import DiskFate, Property


class Monotone(Property):
    name = "monotone"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._votes: dict[str, tuple[int, str]] = {}
        """By node: term and vote as its cores and disks have shown them last."""

    # -- over events --------------------------------------------------------------------------------

    def stepped(self, node: ObservedNode, before: Summary, event: Event, effects: Effects) -> None:
        raft = node.raft
        self._see_vote(node, raft.current_term, raft.voted_for)
        if raft.commit_index < before.commit_index:
            raise self.broken(
                f"{node}, term {raft.current_term}: commit index {raft.commit_index} after {before.commit_index}"
            )
        if raft.apply_reported < before.apply_reported:
            raise self.broken(f"{node}: asks to apply to {raft.apply_reported} after {before.apply_reported}")

    def applied(self, node: ObservedNode, entries: list[Entry], results: list[Any]) -> None:
        expected = node.applied
        for entry in entries:
            expected += 1
            if entry.index != expected:
                raise self.broken(f"{node} applied index {entry.index} where {expected} was next")

    def restored(self, node: ObservedNode, snapshot: Snapshot) -> None:
        if snapshot.last_index < node.applied:
            raise self.broken(f"{node} went back from index {node.applied} to a snapshot of {snapshot.last_index}")

    def _see_vote(self, node: ObservedNode, term: int, vote: str) -> None:
        seen_term, seen_vote = self._votes.get(node.name, (0, ""))
        if term < seen_term:
            raise self.broken(f"{node}: term {term} after term {seen_term}")
        if term == seen_term and seen_vote and vote != seen_vote:
            raise self.broken(f"{node}: vote for {vote or 'nobody'} in term {term} after one for {seen_vote}")
        self._votes[node.name] = (term, vote)

    # -- over restarts ------------------------------------------------------------------------------

    def syncing(self, node: ObservedNode, write: Persist) -> None:
        saved = write.hard_state
        if saved is None:
            return
        before = node.disk.hard_state
        if saved.term < before.term or (saved.term == before.term and before.voted_for not in ("", saved.voted_for)):
            raise self.broken(f"the disk of {node} goes from {before} to {saved}")

    def disk_changed(self, node: ObservedNode, fate: DiskFate) -> None:
        self._votes.pop(node.name, None)

    def started(self, node: ObservedNode) -> None:
        held, before = node.disk, node.disk_before
        # What a process thought and had not made durable is forgotten with it.
        self._votes[node.name] = (held.hard_state.term, held.hard_state.voted_for)
        if before is None:
            return
        if held.commit_index < before.commit_index:
            raise self.broken(
                f"{node} started with commit index {held.commit_index}, and {before.commit_index} was durable"
            )
        self._check_found(node, held, before)

    def _check_found(self, node: ObservedNode, held: LogImage, before: LogImage) -> None:
        image = before.copy()
        differs = [_difference(held, image)]
        for write in node.pending:
            if not differs[-1]:
                return
            image.take(write)
            differs.append(_difference(held, image))
        if all(differs):
            # Of the same length as what was found tells more than that the others are not.
            told = next((each for each in differs if not each.startswith(_LENGTH)), differs[-1])
            raise self.broken(
                f"{node} started with what is neither what was durable nor that with a beginning of the "
                f"{len(node.pending)} writes that were under way: {told}"
            )


_LENGTH = "its log ends at"


def _difference(held: LogImage, image: LogImage) -> str:
    """In words; empty if a start that has found ``held`` may have read ``image``.

    A disk may hold entries for longer than it has to, and a snapshot that nobody was told of yet.
    """
    if held.hard_state != image.hard_state:
        return f"{held.hard_state} instead of {image.hard_state}"
    covered = max(held.previous_index, image.previous_index)
    if held.previous_index > max(image.previous_index, held.snapshot.last_index if held.snapshot else 0):
        return f"its log begins behind {held.previous_index}, instead of behind {image.previous_index}"
    if image.snapshot is not None and (held.snapshot is None or held.snapshot.last_index < image.snapshot.last_index):
        return f"snapshot {held.snapshot} instead of {image.snapshot}"
    if held.last_index != image.last_index and not _superseded(held, image):
        return f"{_LENGTH} {held.last_index}, instead of at {image.last_index}"
    first, last = covered + 1, min(held.last_index, image.last_index)
    if held.slice(first, last) != image.slice(first, last):
        return f"other entries between {first} and {last}"
    return ""


def _superseded(held: LogImage, image: LogImage) -> bool:
    """A snapshot that was received and published, and the power went before the log was told (S15)."""
    snapshot = held.snapshot
    return (
        snapshot is not None
        and held.last_index == held.previous_index == snapshot.last_index
        and image.term_at(snapshot.last_index) != snapshot.last_term
    )
