"""A disk for one core: what was asked for is not what is written until the simulation says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ...raft.core.entry import Entry, HardState
from ...raft.core.events import Persist


class Disk:
    """Writes complete strictly in order, one at a time, or never.

    A crash keeps what was completed, and of the rest any prefix: a write may have reached the
    platter although nobody was told, and the last one may have been torn between its parts.
    """

    def __init__(self) -> None:
        self.hard_state = HardState(0, "")
        self.entries: list[Entry] = []
        self.commit_index = 0
        self.pending: deque[Persist] = deque()
        self.durable_sequence = 0
        self.stuck = False
        """No write completes while this is set."""
        self.free_at = 0
        """When the last write that was asked for will be done, simulated nanoseconds."""

    def ask(self, write: Persist) -> None:
        self.pending.append(write)

    def complete(self) -> int:
        """Complete the oldest pending write and return its sequence."""
        write = self.pending.popleft()
        self._write(write, len(write.entries))
        self.commit_index = max(self.commit_index, write.commit_index)
        self.durable_sequence = write.sequence
        return write.sequence

    def crash(self, between: Callable[[int, int], int] | None) -> None:
        """Lose power. Without ``between`` nothing pending is kept."""
        if between is not None:
            for _ in range(between(0, len(self.pending))):
                self.complete()
            if self.pending and between(0, 1):
                # Torn: truncation and hard state stand before the entries in the record stream, and
                # the commit index may count only with the last of them.
                torn = self.pending[0]
                self._write(torn, between(0, len(torn.entries)))
        self.pending.clear()
        self.durable_sequence = 0
        self.stuck = False
        self.free_at = 0

    def _write(self, write: Persist, count: int) -> None:
        if write.truncate_from:
            del self.entries[write.truncate_from - 1 :]
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        for entry in write.entries[:count]:
            if entry.index != len(self.entries) + 1:
                raise AssertionError(f"entry {entry.index} written after entry {len(self.entries)}")
            self.entries.append(entry)
