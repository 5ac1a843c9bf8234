"""A disk for one core: what was asked for is not what is written until the simulation says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ...raft.core.entry import Entry, EntryKind, HardState
from ...raft.core.errors import NotFound
from ...raft.core.events import Persist
from ...raft.core.log import OlderEntries, RaftLog


class Disk:
    """Writes complete strictly in order, one at a time, or never.

    A crash keeps what was completed, and of the rest any prefix: a write may have reached the
    platter although nobody was told, and the last one may have been torn between its parts.
    """

    def __init__(self) -> None:
        self.hard_state = HardState(0, "")
        self.votes: dict[int, str] = {}
        """Every vote that was ever on this disk, by term."""
        self.previous_index = 0
        self.previous_term = 0
        """What stands before the first of ``entries``."""
        self.entries: list[Entry] = []
        self.compact_to = 0
        """Entries up to here may go at any time."""
        self.commit_index = 0
        self.pending: deque[Persist] = deque()
        self.durable_sequence = 0
        self.stuck = False
        """No write completes while this is set."""
        self.free_at = 0
        """When the last write that was asked for will be done, simulated nanoseconds."""

    @property
    def last_index(self) -> int:
        return self.previous_index + len(self.entries)

    def term_at(self, index: int) -> int:
        """The term of the entry at ``index``, or -1 if it is not here."""
        if index == self.previous_index:
            return self.previous_term
        held = self.previous_index < index <= self.last_index
        return self.entries[index - self.previous_index - 1].term if held else -1

    def read(self, start: int, end: int, bytes_max: int) -> list[Entry]:
        """``ports.LogStore.read``."""
        if start <= self.previous_index:
            raise NotFound(f"entry {start} is compacted")
        found = RaftLog(self.entries, self.previous_index).slice_bytes(start, bytes_max)[0]
        return found[: end - start + 1]

    def recover(self, window_entries: int, window_bytes: int) -> tuple[list[Entry], OlderEntries | None]:
        """What a start reads in, and what it knows of what it leaves here."""
        log = RaftLog(list(self.entries), self.previous_index, self.previous_term)
        gone = log.shed(self.commit_index, window_entries, window_bytes)
        configurations = [entry for entry in gone if entry.kind == EntryKind.CONFIGURATION]
        sizes = [(entry.index, len(entry.data)) for entry in gone]
        return log.slice(log.window_start, log.last_index), log.older(configurations, sizes)

    def ask(self, write: Persist) -> None:
        self.pending.append(write)

    def complete(self) -> int:
        """Complete the oldest pending write and return its sequence."""
        write = self.pending.popleft()
        self._write(write, len(write.entries) + 3)
        self.commit_index = max(self.commit_index, write.commit_index)
        self.durable_sequence = write.sequence
        return write.sequence

    def compact(self) -> None:
        """Let go of the entries that are no longer needed."""
        if self.previous_index < self.compact_to <= self.last_index:
            term = self.term_at(self.compact_to)
            del self.entries[: self.compact_to - self.previous_index]
            self.previous_index, self.previous_term = self.compact_to, term

    def crash(self, between: Callable[[int, int], int] | None) -> None:
        """Lose power. Without ``between`` nothing pending is kept."""
        if between is not None:
            for _ in range(between(0, len(self.pending))):
                self.complete()
            if self.pending and between(0, 1):
                # Torn: the parts stand one after another in the record stream, and the commit index may
                # count only with the last of them.
                torn = self.pending[0]
                self._write(torn, between(0, len(torn.entries) + 3))
        self.pending.clear()
        self.durable_sequence = 0
        self.stuck = False
        self.free_at = 0

    def _write(self, write: Persist, parts: int) -> None:
        """The first ``parts`` of truncation, reset, hard state and the entries, one by one."""
        if write.truncate_from and parts > 0:
            if write.truncate_from <= self.previous_index:
                raise AssertionError(f"truncation at {write.truncate_from} behind {self.previous_index}")
            del self.entries[write.truncate_from - self.previous_index - 1 :]
        if write.reset is not None and parts > 1:
            self.entries.clear()
            self.previous_index, self.previous_term = write.reset.last_index, write.reset.last_term
        if write.hard_state is not None and parts > 2:
            self._save(write.hard_state)
        for entry in write.entries[: max(parts - 3, 0)]:
            if entry.index != self.last_index + 1:
                raise AssertionError(f"entry {entry.index} written after entry {self.last_index}")
            self.entries.append(entry)
        self.compact_to = max(self.compact_to, write.compact_to)

    def _save(self, hard_state: HardState) -> None:
        term, voted_for = hard_state
        if term < self.hard_state.term:
            raise AssertionError(f"term {term} written over {self.hard_state.term}")
        if voted_for and self.votes.setdefault(term, voted_for) != voted_for:
            raise AssertionError(f"voted for {voted_for} and {self.votes[term]} in term {term}")
        self.hard_state = hard_state
