"""How far the state machines are, and what they get next: from memory, or what a start left on disk from there.

A start may find millions of committed entries behind the snapshot. They are read and applied a piece at a
time, and the loop turns in between: heartbeats are answered, and a leader is followed. Whoever waits for an
index (a read, a proposal, the barrier before effects) waits for what is *applied*, not for what the core gave out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..core.entry import Entry, Snapshot
from ..core.events import Event, SnapshotNotTaken
from ..core.step import Raft
from .applier import Applier
from .entries import EntryReading

PIECE_ENTRIES = 1000
"""Applied in one go; more waits for the loop's next turn."""

CHUNK_ENTRIES = 16_384
"""Read from the disk in one go, and:"""
CHUNK_BYTES = 4 << 20


class ApplyingLoop(Protocol):
    """The part of the node's loop that applying needs."""

    @property
    def stopped(self) -> bool: ...

    def now(self) -> int: ...

    def feed(self, event: Event) -> None: ...

    def wake(self) -> None: ...

    def soon(self, callback: Callable[[], None]) -> None:
        """Call it in a turn of its own; what it raises ends the node."""


class Applying:
    """Carries out ``apply_to`` and ``take_snapshot`` of the core's effects, strictly in order.

    ``entries`` is set after construction; without it everything has to be in memory.
    """

    def __init__(
        self,
        raft: Raft,
        applier: Applier,
        loop: ApplyingLoop,
        *,
        applied: Callable[[list[Entry]], None],
        take: Callable[[Snapshot], None],
    ) -> None:
        """``applied(entries)`` applies them and tells everybody; ``take(label)`` captures the state as it is then."""
        self.entries: EntryReading | None = None
        self._raft = raft
        self._applier = applier
        self._loop = loop
        self._applied = applied
        self._take = take
        self._apply_to = 0
        self._due: Snapshot | None = None
        """A snapshot to take once everything up to it is applied, and nothing more."""
        self._ready: list[Entry] = []
        """Read from the disk, and not yet applied."""
        self._reading_from = 0
        """What is being read begins here; 0: nothing is."""
        self._scheduled = False

    def up_to(self, index: int) -> None:
        """Entries up to ``index`` are committed and durable here: apply them, now or by and by."""
        if index > self._apply_to:
            self._apply_to = index
            if not self._scheduled:
                self._go_on()

    def snapshot(self, label: Snapshot) -> None:
        """Take a snapshot of exactly this index: now, or on the way."""
        applied = self._applier.last_applied
        if not applied <= label.last_index <= max(self._apply_to, applied):
            raise AssertionError(f"snapshot of {label.last_index} asked for, and {applied} is applied")
        self._due = label
        self._take_due()

    def restored(self) -> None:
        """The state was replaced by a later one."""
        self._ready = []
        if self._due is not None and self._due.last_index < self._applier.last_applied:
            self._due = None
            self._loop.feed(SnapshotNotTaken(self._loop.now()))

    # -- one piece --------------------------------------------------------------------------------

    def _go_on(self) -> None:
        first, last = self._applier.last_applied + 1, self._limit()
        if first > last:
            return
        entries = self._next(first, min(last, first + PIECE_ENTRIES - 1))
        if not entries:
            return  # They are being read.
        if entries[0].index != first or entries[-1].index > last:
            raise AssertionError(f"asked to apply {first} to {last}, and got {entries[0].index} to {entries[-1].index}")
        self._applied(entries)
        self._take_due()
        if self._applier.last_applied < self._limit() and not self._loop.stopped:
            self._scheduled = True
            self._loop.soon(self._go_on_later)

    def _go_on_later(self) -> None:
        self._scheduled = False
        if not self._loop.stopped:
            self._go_on()
            self._loop.wake()

    def _limit(self) -> int:
        return self._apply_to if self._due is None else min(self._apply_to, self._due.last_index)

    def _take_due(self) -> None:
        due = self._due
        if due is not None and due.last_index == self._applier.last_applied:
            self._due = None
            self._take(due)

    # -- where they come from ---------------------------------------------------------------------

    def _next(self, first: int, last: int) -> list[Entry]:
        """Entries from ``first`` on, at most to ``last``; none as long as they are being read."""
        log = self._raft.log
        if not self._ready:
            if first >= log.window_start:
                return log.slice(first, last)
            self._read(first)
            return []
        count = last - first + 1
        self._read(self._ready[-1].index + 1)
        entries, self._ready = self._ready[:count], self._ready[count:]
        return entries

    def _read(self, first: int) -> None:
        """Have entries from ``first`` on read, if they are on disk only, while earlier ones are applied."""
        last = min(self._apply_to, self._raft.log.window_start - 1, first + CHUNK_ENTRIES - 1)
        if self._reading_from or len(self._ready) > CHUNK_ENTRIES // 2 or first > last:
            return
        if self.entries is None:
            raise AssertionError(f"entry {first} is to be applied and is on disk only, on a node that reads none back")
        self._reading_from = first
        self.entries.for_applying(first, last, CHUNK_BYTES, self._was_read)

    def _was_read(self, entries: list[Entry] | None) -> None:
        first, self._reading_from = self._reading_from, 0
        wanted = self._ready[-1].index + 1 if self._ready else self._applier.last_applied + 1
        if self._loop.stopped:
            return
        if first == wanted:
            if not entries:
                raise AssertionError(f"entry {first} is compacted, and applied is {self._applier.last_applied}")
            self._ready += entries
        # Otherwise the state was replaced meanwhile.
        if not self._scheduled:
            self._go_on_later()
