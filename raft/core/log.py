"""The log as the core sees it: entries by index, the newest of them in memory.

Index 0 is the empty log's last entry, of term 0. What a snapshot holds may be cut off in front: then
the log begins behind a *previous* entry of which only index and term are known (thesis section 5.1).

**The window.** In memory are the entries from ``window_start`` on. Of those before it, down to
``first_index``, the terms are known, as runs, and the entries are on disk only: whoever needs them reads
them back. Only an entry that is durable, committed and reported for applying leaves the window. Such an
entry is never deleted but by compaction and never changes, so what is read back is what left, whatever has
happened meanwhile; and no truncation ever reaches behind the window.
"""

from __future__ import annotations

from typing import NamedTuple

from .entry import Entry

ENTRIES_PER_MESSAGE_MAX = 1 << 14
"""Entries in one AppendEntries, beside the bound on their payloads: entries without any would make a
message for a follower that was long away as large as the log, and no frame holds that."""

WINDOW_SLACK = 8
"""The window is let grow by this part of its bounds before entries leave it: many at once cost little each."""


class OlderEntries(NamedTuple):
    """What a start knows of the entries that it has left on disk: all before the ones that it has read in."""

    last_index: int
    last_time_ns: int
    terms: list[tuple[int, int]]
    """(first index, term) of every run of entries of one term, oldest first."""
    configurations: list[Entry]
    """Those of them that hold a configuration."""
    sizes: list[tuple[int, int]]
    """(last index, payload bytes) of groups of them, oldest first."""

    def bytes_after(self, index: int) -> int:
        """Payload bytes behind ``index``, or a little more: a group counts as a whole."""
        return sum([size for last, size in self.sizes if last > index])


class RaftLog:
    __slots__ = ("_bytes", "_entries", "_previous_index", "_runs", "_shed_index", "_shed_time_ns")

    def __init__(
        self,
        entries: list[Entry],
        previous_index: int = 0,
        previous_term: int = 0,
        previous_time_ns: int = 0,
        older: OlderEntries | None = None,
    ) -> None:
        """``entries`` follow ``older`` where there are any, else ``previous_index``."""
        self._entries = entries
        self._bytes = sum([len(entry.data) for entry in entries])
        """Payload bytes in memory."""
        self._previous_index = previous_index
        self._runs = [(previous_index, previous_term)]
        """(first index, term) of every run of entries of one term before the window, the previous one first."""
        self._shed_index = previous_index
        """The index before the window, and the time of the entry there."""
        self._shed_time_ns = previous_time_ns
        if older is not None and older.last_index > previous_index:
            self._runs += [(index, term) for index, term in older.terms if term > previous_term]
            self._shed_index, self._shed_time_ns = older.last_index, older.last_time_ns

    @property
    def previous_index(self) -> int:
        """The index before ``first_index``: its term is known, its entry is not."""
        return self._previous_index

    @property
    def previous_term(self) -> int:
        return self._runs[0][1]

    @property
    def first_index(self) -> int:
        return self._previous_index + 1

    @property
    def window_start(self) -> int:
        """The index of the first entry in memory, or of the next one that is appended."""
        return self._shed_index + 1

    @property
    def last_index(self) -> int:
        return self._shed_index + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self._runs[-1][1]

    @property
    def last_time_ns(self) -> int:
        return self._entries[-1].time_ns if self._entries else self._shed_time_ns

    def term_at(self, index: int) -> int:
        """The term of the entry at ``index``, or -1 if this log does not hold it."""
        offset = index - self._shed_index - 1
        if 0 <= offset < len(self._entries):
            return self._entries[offset].term
        if self._previous_index <= index <= self._shed_index:
            return self._shed_term(index)
        return 0 if index == 0 else -1

    def _shed_term(self, index: int) -> int:
        runs = self._runs
        low, high = 0, len(runs) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if runs[middle][0] > index:
                high = middle - 1
            else:
                low = middle
        return runs[low][1]

    def time_at(self, index: int) -> int:
        """Cluster time of the entry at ``index``, which is in the window or right before it."""
        return self._shed_time_ns if index == self._shed_index else self.entry(index).time_ns

    def matches(self, index: int, term: int) -> bool:
        """Whether the log holds an entry of ``term`` at ``index`` (the consistency check, section 3.5)."""
        return self.term_at(index) == term

    def entry(self, index: int) -> Entry:
        """The entry at ``index``, which is in the window."""
        if index <= self._shed_index:
            raise AssertionError(f"entry {index} of a log that is in memory from {self.window_start} on")
        return self._entries[index - self._shed_index - 1]

    def slice(self, start: int, end: int) -> list[Entry]:
        """Entries with ``start <= index <= end``, all in the window; none if ``end`` is before ``start``."""
        if start <= self._shed_index:
            raise AssertionError(f"entries from {start} on of a log that is in memory from {self.window_start} on")
        return self._entries[start - self._shed_index - 1 : max(end - self._shed_index, 0)]

    def slice_bytes(self, start: int, bytes_max: int) -> tuple[list[Entry], int]:
        """Entries from ``start`` on, which is in the window, whose payloads together fit ``bytes_max``, and how
        long those are; at least one if there is one, and :data:`ENTRIES_PER_MESSAGE_MAX` at the most."""
        offset = start - self._shed_index - 1
        entries = self._entries
        total = 0
        end = offset
        for end in range(offset, min(len(entries), offset + ENTRIES_PER_MESSAGE_MAX)):
            size = len(entries[end].data)
            if total + size > bytes_max and end > offset:
                return entries[offset:end], total
            total += size
        return entries[offset : end + 1], total

    def older(self, configurations: list[Entry], sizes: list[tuple[int, int]]) -> OlderEntries | None:
        """What is known of the entries before the window, with what only their reader knows; None without any."""
        if self._shed_index == self._previous_index:
            return None
        return OlderEntries(self._shed_index, self._shed_time_ns, self._runs[1:], configurations, sizes)

    def append(self, entries: list[Entry]) -> None:
        self._entries.extend(entries)
        self._bytes += sum([len(entry.data) for entry in entries])

    def truncate_from(self, index: int) -> None:
        """Delete the entry at ``index``, which is in the window, and everything after it."""
        if index <= self._shed_index:
            raise AssertionError(f"truncation at {index} of a log that is in memory from {self.window_start} on")
        offset = index - self._shed_index - 1
        self._bytes -= sum([len(entry.data) for entry in self._entries[offset:]])
        del self._entries[offset:]

    def shed(self, index: int, entries_max: int, bytes_max: int) -> list[Entry]:
        """Let the oldest entries leave the window, none above ``index``, so that at most so many entries and
        payload bytes stay; 0 for no bound. What has left. Nothing leaves while the window is little too large.

        Whoever calls it knows that all up to ``index`` is durable and committed, and applied or about to be.
        """
        entries = self._entries
        count, size = len(entries), self._bytes
        over = entries_max and count > entries_max + entries_max // WINDOW_SLACK
        if not over and not (bytes_max and size > bytes_max + bytes_max // WINDOW_SLACK):
            return []
        most = min(count, index - self._shed_index)
        end = max(min(most, count - entries_max), 0) if entries_max else 0
        size -= sum([len(entry.data) for entry in entries[:end]])
        while bytes_max and size > bytes_max and end < most:
            size -= len(entries[end].data)
            end += 1
        return self._leave(end, size) if end > 0 else []

    def _leave(self, count: int, bytes_left: int) -> list[Entry]:
        gone = self._entries[:count]
        del self._entries[:count]
        self._bytes = bytes_left
        # Terms never fall along a log: where the last one has not risen, none has.
        if gone[-1].term != self._runs[-1][1]:
            term = self._runs[-1][1]
            for entry in gone:
                if entry.term != term:
                    term = entry.term
                    self._runs.append((entry.index, term))
        self._shed_index, self._shed_time_ns = gone[-1].index, gone[-1].time_ns
        return gone

    def compact_to(self, index: int) -> None:
        """Delete the entries up to ``index``, which stays known as the previous one (section 5.1)."""
        if index <= self._previous_index:
            return
        inside = index - self._shed_index
        if inside > 0:
            self._leave(inside, self._bytes - sum([len(entry.data) for entry in self._entries[:inside]]))
        runs = self._runs
        self._runs = [(index, self._shed_term(index)), *[run for run in runs if run[0] > index]]
        self._previous_index = index

    def reset(self, index: int, term: int, time_ns: int) -> None:
        """Delete every entry; go on behind ``index``, which a snapshot holds."""
        self._entries.clear()
        self._bytes = 0
        self._runs = [(index, term)]
        self._previous_index = self._shed_index = index
        self._shed_time_ns = time_ns

    def is_up_to_date(self, last_log_index: int, last_log_term: int) -> bool:
        """Whether a candidate's log is at least as up to date as this one (thesis section 3.6.1)."""
        return (last_log_term, last_log_index) >= (self.last_term, self.last_index)

    def last_index_with_term_at_most(self, index: int, term: int) -> int:
        """The largest index ``<= index`` whose term is ``<= term`` (term-aware back-up, section 3.5.3).

        Two logs can only agree at an index where neither has the larger term, so everything above
        may be skipped without asking.
        """
        low, high = self._previous_index, min(index, self.last_index)
        while low < high:  # Terms never fall along a log: halve, whatever a peer claims.
            middle = (low + high + 1) // 2
            if self.term_at(middle) > term:
                high = middle - 1
            else:
                low = middle
        return high
