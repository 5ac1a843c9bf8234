"""The log as the core sees it: entries by index, in memory.

Index 0 is the empty log's last entry, of term 0. What a snapshot holds may be cut off in front: then
the log begins behind a *previous* entry of which only index and term are known (thesis section 5.1).
"""

from __future__ import annotations

from .entry import Entry

ENTRIES_PER_MESSAGE_MAX = 1 << 14
"""Entries in one AppendEntries, beside the bound on their payloads: entries without any would make a
message for a follower that was long away as large as the log, and no frame holds that."""


class RaftLog:
    __slots__ = ("_entries", "_previous_index", "_previous_term", "_previous_time_ns")

    def __init__(
        self, entries: list[Entry], previous_index: int = 0, previous_term: int = 0, previous_time_ns: int = 0
    ) -> None:
        self._entries = entries
        self._previous_index = previous_index
        self._previous_term = previous_term
        self._previous_time_ns = previous_time_ns

    @property
    def previous_index(self) -> int:
        """The index before ``first_index``: its term is known, its entry is not."""
        return self._previous_index

    @property
    def previous_term(self) -> int:
        return self._previous_term

    @property
    def first_index(self) -> int:
        return self._previous_index + 1

    @property
    def last_index(self) -> int:
        return self._previous_index + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self._previous_term

    @property
    def last_time_ns(self) -> int:
        return self._entries[-1].time_ns if self._entries else self._previous_time_ns

    def term_at(self, index: int) -> int:
        """The term of the entry at ``index``, or -1 if this log does not hold it."""
        offset = index - self._previous_index - 1
        if 0 <= offset < len(self._entries):
            return self._entries[offset].term
        if offset == -1:
            return self._previous_term
        return 0 if index == 0 else -1

    def matches(self, index: int, term: int) -> bool:
        """Whether the log holds an entry of ``term`` at ``index`` (the consistency check, section 3.5)."""
        return self.term_at(index) == term

    def entry(self, index: int) -> Entry:
        return self._entries[index - self._previous_index - 1]

    def slice(self, start: int, end: int) -> list[Entry]:
        """Entries with ``start <= index <= end``; none if ``end`` is before ``start``."""
        if start <= self._previous_index:
            raise AssertionError(f"entries from {start} on of a log that begins behind {self._previous_index}")
        return self._entries[start - self._previous_index - 1 : max(end - self._previous_index, 0)]

    def slice_bytes(self, start: int, bytes_max: int) -> tuple[list[Entry], int]:
        """Entries from ``start`` on whose payloads together fit ``bytes_max``, and how long those are; at
        least one if there is one, and :data:`ENTRIES_PER_MESSAGE_MAX` at the most."""
        offset = start - self._previous_index - 1
        entries = self._entries
        total = 0
        end = offset
        for end in range(offset, min(len(entries), offset + ENTRIES_PER_MESSAGE_MAX)):
            size = len(entries[end].data)
            if total + size > bytes_max and end > offset:
                return entries[offset:end], total
            total += size
        return entries[offset : end + 1], total

    def append(self, entries: list[Entry]) -> None:
        self._entries.extend(entries)

    def truncate_from(self, index: int) -> None:
        """Delete the entry at ``index`` and everything after it."""
        if index <= self._previous_index:
            raise AssertionError(f"truncation at {index} of a log that begins behind {self._previous_index}")
        del self._entries[index - self._previous_index - 1 :]

    def compact_to(self, index: int) -> None:
        """Delete the entries up to ``index``, which stays known as the previous one (section 5.1)."""
        if index <= self._previous_index:
            return
        previous = self.entry(index)
        del self._entries[: index - self._previous_index]
        self._previous_index, self._previous_term = index, previous.term
        self._previous_time_ns = previous.time_ns

    def reset(self, index: int, term: int, time_ns: int) -> None:
        """Delete every entry; go on behind ``index``, which a snapshot holds."""
        self._entries.clear()
        self._previous_index, self._previous_term, self._previous_time_ns = index, term, time_ns

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
            if self._entries[middle - self._previous_index - 1].term > term:
                high = middle - 1
            else:
                low = middle
        return high
