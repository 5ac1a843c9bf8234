"""Nodes that have applied equally much have equal states (thesis section 3.1), and each state is sound by itself.

A look costs as much as the state is large, so there are fewer of them the longer the log is.
"""

from __future__ import annotations

from typing import Any

from ...raft.core.entry import Entry
from ...raft.outbox.invariants import check
from .ledger import Ledger
from .observed import ObservedNode
from .property import Property
from .reference import Reference, state_hash

EVERY_LEAST = 64
"""Applied entries of one node between two looks, at least; and a part of all that it has applied:"""
PART = 4
BEHIND_MAX = 8
"""A node whose batches end elsewhere is compared after so many at the latest, however much that costs."""


class EqualState(Property):
    """Compares each node with the reference, so with every other; the reference goes where the first one is."""

    name = "equal state"

    def __init__(self, ledger: Ledger, reference: Reference) -> None:
        super().__init__(ledger)
        self._reference = reference
        self._due: dict[str, int] = {}
        self._passed: dict[str, int] = {}
        self._held: dict[int, tuple[bytes, str]] = {}
        """By index: the state and whose it was, of the last looks."""
        self.looks = 0

    def started(self, node: ObservedNode) -> None:
        self._due[node.name] = node.applied + 1

    def applied(self, node: ObservedNode, entries: list[Entry], results: list[Any]) -> None:
        index = entries[-1].index
        if index < self._due[node.name]:
            return
        behind = index < self._reference.applied and index not in self._held
        passed = self._passed.get(node.name, 0)
        if behind and passed < BEHIND_MAX:
            # The reference would have to begin anew; where the next batch ends it may not be ahead.
            self._passed[node.name] = passed + 1
            return
        self._passed[node.name] = 0
        self._due[node.name] = index + max(EVERY_LEAST, index // PART)
        self.look(node, index)

    def look(self, node: ObservedNode, index: int) -> None:
        """``index`` is what this node has applied."""
        self.looks += 1
        held = state_hash(node.node.applier)
        other = self._held.setdefault(index, (held, str(node)))
        if len(self._held) > 64:
            del self._held[next(iter(self._held))]
        if other[0] != held:
            raise self.broken(f"at index {index} {node} has state {held.hex()} and {other[1]} has {other[0].hex()}")
        wanted = self._reference.hash_at(index)
        if wanted is not None and held != wanted:
            raise self.broken(f"at index {index} {node} has state {held.hex()}; replaying the log gives {wanted.hex()}")
        try:  # What can be derived is not in the hash, and may be wrong on one node alone.
            check(node.node.machine)
        except AssertionError as error:
            raise self.broken(f"{node} at index {index}: {error}") from error

    def finished(self) -> None:
        for node in self.ledger.members():
            self.look(node, node.node.applier.last_applied)
