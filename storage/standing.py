"""Where a log stands: what a seal says of it, what a segment begins with, and which segments it needs.

One class for the writer, which counts what it makes durable, and for recovery, which counts what it
reads, so that both come to the same answer.

**Which segments may go.** A segment's header says where the log stood when the segment was begun, so
the log can be read from any segment on, as a log that begins behind that index, if

* every entry before it is one that is no longer needed, and
* no later record deletes entries before it: such a record would be read over a log that lacks them.

The second can only happen to entries that were not committed, and what is compacted is committed. So
a segment that was crossed by a truncation is no place to begin, and the next one is again.
"""

from __future__ import annotations

from typing import NamedTuple

from ..raft.core.entry import Entry, HardState
from ..raft.core.events import Persist


class LogState(NamedTuple):
    """What a segment's header says of everything before it."""

    hard_state: HardState
    last_index: int
    last_term: int
    """Term of the entry at ``last_index``, or of the snapshot that the log goes on behind."""
    commit_index: int


EMPTY = LogState(HardState(0, ""), 0, 0, 0)


class Start(NamedTuple):
    """A segment from which the log can be read."""

    number: int
    last_index: int
    """The last index before it."""


class Standing:
    """The state of a log behind the last write that was taken in.

    Takes what it is given: whether it fits was checked before, by the caller.
    """

    __slots__ = (
        "_starts",
        "_terms",
        "commit_index",
        "compact_to",
        "freed",
        "hard_state",
        "last_index",
        "number",
        "previous_index",
        "previous_term",
    )

    def __init__(self, state: LogState, number: int) -> None:
        self.hard_state = state.hard_state
        self.commit_index = state.commit_index
        self.last_index = state.last_index
        self.previous_index = state.last_index
        """The log's first entry is the one behind this; 0 for a log from its start."""
        self.previous_term = state.last_term
        self.compact_to = 0
        """Entries up to this index are no longer needed."""
        self.freed = False
        """Something was compacted or reset since the owner last cleared this."""
        self.number = number
        """The segment in use."""
        # (first index, term) of every run of entries of one term, so that the term of what is last
        # after a truncation needs no look at the entries.
        self._terms: list[tuple[int, int]] = []
        self._starts = [Start(number, state.last_index)]

    @property
    def last_term(self) -> int:
        return self._terms[-1][1] if self._terms else self.previous_term

    @property
    def state(self) -> LogState:
        return LogState(self.hard_state, self.last_index, self.last_term, self.commit_index)

    def first_needed(self) -> int:
        """The number of the segment that the log has to be read from; 0 where that is not known."""
        return max((start.number for start in self._starts if start.last_index <= self.compact_to), default=0)

    def holds_freed(self) -> bool:
        """Whether the segment in use holds entries that are no longer needed."""
        return (
            not self._starts or self._starts[-1].number < self.number or self._starts[-1].last_index < self.compact_to
        )

    # -- what changes it ----------------------------------------------------------------------------

    def take(self, write: Persist) -> None:
        """Truncation, reset, hard state, entries, in this order."""
        _, hard_state, truncate_from, entries, commit_index, reset, compact_to = write
        if truncate_from:
            self.truncate(truncate_from)
        if reset is not None:
            self.reset(reset.last_index, reset.last_term)
        if hard_state is not None:
            self.hard_state = hard_state
        if entries:
            self.append(entries)
        if commit_index > self.commit_index:
            self.commit_index = commit_index
        if compact_to:
            self.compact(compact_to)

    def truncate(self, truncate_from: int) -> None:
        self.last_index = truncate_from - 1
        while self._terms and self._terms[-1][0] >= truncate_from:
            self._terms.pop()
        while self._starts and self._starts[-1].last_index > self.last_index:
            self._starts.pop()

    def reset(self, last_index: int, last_term: int) -> None:
        """Everything is deleted; the log goes on behind this index, which is committed."""
        self.previous_index, self.previous_term = last_index, last_term
        self.last_index = last_index
        self.commit_index = max(self.commit_index, last_index)
        self._terms.clear()
        # Whatever a reading finds before the reset is deleted by it, so nothing before this segment is
        # needed, and what is in it is no longer in the way of a truncation.
        here = self._starts[-1:]
        self._starts = [Start(self.number, 0)] if here and here[0].number == self.number else []
        self.compact(last_index)

    def append(self, entries: list[Entry]) -> None:
        """Entries that follow ``last_index``; at least one."""
        term = self.last_term
        if entries[-1].term != term:
            for entry in entries:
                if entry.term != term:
                    term = entry.term
                    self._terms.append((entry.index, term))
        self.last_index = entries[-1].index

    def compact(self, compact_to: int) -> None:
        self.compact_to = max(self.compact_to, compact_to)
        self.freed = True

    def begin_segment(self, number: int, *, can_start: bool = True) -> None:
        """What comes next is in another segment. ``can_start``: its header says where the log stands."""
        self.number = number
        if can_start:
            self._starts.append(Start(number, self.last_index))
