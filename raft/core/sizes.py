"""How many payload bytes lie where in the log: what says how much of it may be kept (thesis section 5.1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .entry import Entry

GROUPS = 16
"""The entries to keep are counted in so many groups: what is kept is that much less than it might be, at most."""


class LogSizes:
    """Applied entries in groups of some payload bytes. A group remembers an index and a size, so that entries
    which are not in memory any more are still counted."""

    __slots__ = ("_bytes_max", "_group_bytes", "_groups")

    def __init__(self, bytes_max: int) -> None:
        """``bytes_max`` is what :meth:`cut` keeps; 0: everything, and nothing is remembered."""
        self._bytes_max = bytes_max
        self._group_bytes = bytes_max // GROUPS
        self._groups: deque[tuple[int, int]] = deque()
        """(last index, payload bytes), oldest first."""

    def add(self, last_index: int, size: int) -> None:
        """Entries up to ``last_index``, which follow those that were added before, hold ``size`` bytes."""
        groups = self._groups
        if not self._bytes_max:
            return
        if groups and groups[-1][1] + size <= self._group_bytes:
            groups[-1] = (last_index, groups[-1][1] + size)
        else:
            groups.append((last_index, size))

    def add_entries(self, entries: Sequence[Entry]) -> int:
        """The same of these entries. Returns how much they hold."""
        size = sum([len(entry.data) for entry in entries])
        if self._bytes_max > 0 and self._group_bytes < size:
            for entry in entries:
                self.add(entry.index, len(entry.data))
        elif entries:
            self.add(entries[-1].index, size)
        return size

    def forget(self, index: int) -> None:
        """Entries up to ``index`` are gone from the log."""
        while self._groups and self._groups[0][0] <= index:
            self._groups.popleft()

    def cut(self, index: int) -> int:
        """What has to go so that the entries that stay up to ``index`` hold ``bytes_max`` at the most: everything
        up to the index returned, 0 if nothing has to. A group counts as a whole."""
        total, end = 0, index
        for last_index, size in reversed(self._groups):
            if last_index >= index:
                total = size  # The lowest of these is the group of ``index``.
                continue
            if total > self._bytes_max:
                return end
            total, end = total + size, last_index
        return end if total > self._bytes_max else 0
