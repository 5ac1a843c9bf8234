"""A snapshot holds what replaying the whole log gives: restored, and with the rest replayed, it is the same state
(thesis chapter 5; S19)."""

from __future__ import annotations

from ...raft.core.entry import Snapshot
from ...raft.core.events import Effects, Event, SnapshotReceived, SnapshotTaken
from ...raft.core.invariants import Summary
from .ledger import Ledger
from .observed import ObservedNode
from .property import Property
from .reference import Reference, state_hash


class SnapshotEqualsReplay(Property):
    """Compares where a snapshot becomes state: at a start, and where one was received. And labels with labels."""

    name = "snapshot equals replay"

    def __init__(self, ledger: Ledger, reference: Reference) -> None:
        super().__init__(ledger)
        self._reference = reference
        self._labels: dict[int, Snapshot] = {}

    def started(self, node: ObservedNode) -> None:
        if node.raft.snapshot is not None:
            self._check_label(node, node.raft.snapshot)
        if node.applied:
            self._compare(node, node.applied, "has started from")

    def restored(self, node: ObservedNode, snapshot: Snapshot) -> None:
        applied = node.node.applier.last_applied
        if applied != snapshot.last_index:
            raise self.broken(f"{node} has restored a snapshot of {snapshot.last_index} and stands at {applied}")
        self._compare(node, applied, "has restored")

    def special(self, node: ObservedNode, before: Summary, event: Event, effects: Effects) -> None:
        label = effects.take_snapshot
        if label is not None and label.last_index != max(effects.apply_to, node.applied):
            raise self.broken(f"{node} takes a snapshot of {label.last_index}, and its state is that of {node.applied}")
        if isinstance(event, SnapshotTaken | SnapshotReceived):
            self._check_label(node, event.snapshot)

    def _check_label(self, node: ObservedNode, snapshot: Snapshot) -> None:
        """The same state is the same bytes, whoever has written them."""
        known = self._labels.setdefault(snapshot.last_index, snapshot)
        if known != snapshot:
            raise self.broken(f"{node} has {snapshot}, and elsewhere the snapshot of {known.last_index} is {known}")

    def _compare(self, node: ObservedNode, index: int, what: str) -> None:
        wanted = self._reference.hash_at(index)
        held = state_hash(node.node.applier)
        if wanted is not None and held != wanted:
            raise self.broken(
                f"{node} {what} a snapshot of index {index} whose state is {held.hex()}; replaying the log gives "
                f"{wanted.hex()}"
            )
