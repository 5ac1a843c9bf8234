"""A log as somebody holds it: what a core has handed over, or what a disk has of that.

Kept from the writes alone, so it can be compared with what the core believes.
"""

from __future__ import annotations

from ...raft.core.configuration import Configuration, decode_configuration
from ...raft.core.entry import Entry, EntryKind, HardState, Snapshot
from ...raft.core.events import Persist

NOTHING_SAVED = HardState(0, "")


class LogImage:
    """Entries with what goes before them, term and vote, and the configurations in it.

    ``snapshot`` is the newest one that is durable there: it stands for everything that it covers.
    """

    __slots__ = (
        "commit_index",
        "configurations",
        "entries",
        "hard_state",
        "previous_index",
        "previous_term",
        "snapshot",
    )

    def __init__(
        self,
        configuration: Configuration,
        hard_state: HardState = NOTHING_SAVED,
        entries: list[Entry] | None = None,
        previous_index: int = 0,
        previous_term: int = 0,
        snapshot: Snapshot | None = None,
        commit_index: int = 0,
    ) -> None:
        """``configuration`` is the one that the cluster began with."""
        self.hard_state = hard_state
        self.entries: list[Entry] = list(entries or ())
        self.previous_index = previous_index
        self.previous_term = previous_term
        self.snapshot = snapshot
        self.commit_index = commit_index
        """A durable lower bound, as the writes say it."""
        base = (0, configuration) if snapshot is None else (snapshot.configuration_index, snapshot.configuration)
        self.configurations = [base]
        """(index, configuration), in log order; the first is the one from before the first entry."""
        self._note(self.entries)

    def copy(self) -> LogImage:
        made = LogImage(
            self.configurations[0][1],
            self.hard_state,
            None,
            self.previous_index,
            self.previous_term,
            self.snapshot,
            self.commit_index,
        )
        made.entries = self.entries.copy()
        made.configurations = self.configurations.copy()
        return made

    @property
    def last_index(self) -> int:
        return self.previous_index + len(self.entries)

    @property
    def last_term(self) -> int:
        return self.entries[-1].term if self.entries else self.previous_term

    @property
    def configuration(self) -> tuple[int, Configuration]:
        """The one in force, and where it stands."""
        return self.configurations[-1]

    def term_at(self, index: int) -> int:
        """-1 where it holds no such entry."""
        place = index - self.previous_index - 1
        if 0 <= place < len(self.entries):
            return self.entries[place].term
        if place == -1:
            return self.previous_term
        return 0 if index == 0 else -1

    def slice(self, first: int, last: int) -> list[Entry]:
        """Entries with ``first <= index <= last``, as far as it has them."""
        return self.entries[max(first - self.previous_index - 1, 0) : max(last - self.previous_index, 0)]

    def holds(self, index: int, term: int) -> bool:
        """Whether the entry of ``term`` at ``index`` would be there after a crash: itself, or in a snapshot."""
        if self.term_at(index) == term:
            return True
        return self.snapshot is not None and index <= self.snapshot.last_index

    # -- what changes it ----------------------------------------------------------------------------

    def take(self, write: Persist) -> None:
        """Truncation, reset, term and vote, entries, compaction, in this order."""
        if write.truncate_from:
            self._truncate(write.truncate_from)
        if write.reset is not None:
            self._reset(write.reset)
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        if write.entries:
            self.entries += write.entries
            self._note(write.entries)
        self.commit_index = max(self.commit_index, write.commit_index)
        if write.compact_to > self.previous_index:
            self._compact(write.compact_to)

    def _note(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.kind == EntryKind.CONFIGURATION and entry.index > self.configurations[-1][0]:
                self.configurations.append((entry.index, decode_configuration(entry.data)))

    def _truncate(self, index: int) -> None:
        del self.entries[max(index - self.previous_index - 1, 0) :]
        while len(self.configurations) > 1 and self.configurations[-1][0] >= index:
            self.configurations.pop()

    def _reset(self, snapshot: Snapshot) -> None:
        self.entries.clear()
        self.previous_index, self.previous_term = snapshot.last_index, snapshot.last_term
        self.snapshot = snapshot
        self.commit_index = max(self.commit_index, snapshot.last_index)
        self.configurations = [(snapshot.configuration_index, snapshot.configuration)]

    def _compact(self, index: int) -> None:
        term = self.term_at(index)
        del self.entries[: index - self.previous_index]
        self.previous_index, self.previous_term = index, term
        while len(self.configurations) > 1 and self.configurations[1][0] <= index:
            self.configurations.pop(0)
