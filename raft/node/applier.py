"""Applying committed entries to the state machines, strictly in order, each exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.entry import Entry, EntryKind
from ..core.errors import UnknownEntry
from ..ports import Machine


class Applier:
    """Hands each entry to the machine of its kind.

    An entry that no machine here knows, or on which a machine raises, is not skipped: the error
    goes up, the node stops, and ``last_applied`` stays before it (S55, S59).
    """

    def __init__(self, machines: Mapping[int, Machine]) -> None:
        self._apply = {kind: machine.apply for kind, machine in machines.items()}
        self.last_applied = 0

    def apply(self, entries: list[Entry]) -> list[Any]:
        """Apply entries that follow ``last_applied``; one result an entry, None where Raft made it."""
        results: list[Any] = []
        append = results.append
        for entry in entries:
            apply = self._apply.get(entry.kind)
            if apply is not None:
                append(apply(entry))
            elif entry.kind == EntryKind.NO_OP:
                append(None)
            else:
                raise UnknownEntry(
                    f"entry {entry.index} of term {entry.term} is of kind {entry.kind}, which this node cannot apply",
                    next_step="install the version that wrote it; the node applies nothing past it",
                )
            self.last_applied = entry.index
        return results
