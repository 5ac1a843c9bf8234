"""The end of the log's chain of segments, where it is written: appending, rolling on, trimming behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..raft.core.errors import StorageFull
from .chain import Manifest, roll, trim
from .disk import Disk
from .entry_reader import EntryIndex
from .records import RecordType
from .room import Room
from .segments import ActiveSegment
from .spare import Spare
from .standing import Standing

ROLL_FRACTION = 8
"""A segment that holds compacted entries ends early, once it is this part of its full size: a log whose
entries are all in the segment in use could never be trimmed. Smaller logs keep their entries."""


class LogTail:
    """Used by the writer only. All of it raises StorageError, and after that no record may be written."""

    def __init__(
        self,
        disk: Disk,
        segment: ActiveSegment,
        standing: Standing,
        index: EntryIndex,
        first_segment: int,
        *,
        segment_bytes: int,
        entropy: Callable[[int], bytes],
        spare: Spare,
        room: Room,
    ) -> None:
        self.segment = segment
        self.first_segment = first_segment
        self.room = room
        self._disk = disk
        self._standing = standing
        self._index = index
        self._segment_bytes = segment_bytes
        self._entropy = entropy
        self._spare = spare
        self._unlooked_bytes = 0
        """Appended since the room was last told."""

    @property
    def directory(self) -> Path:
        return self.segment.path.parent

    def append(self, kind: RecordType, *body: bytes) -> int:
        """Write one record and sync it; its offset. Nothing of it is kept where that fails for want of room."""
        segment = self.segment
        offset = segment.end
        while True:
            try:
                segment.append(kind, *body)
                self._unlooked_bytes += segment.end - offset
                return offset
            except StorageFull:
                # A *write* that found no room has lost nothing, and its half record is cut away (S11). A
                # sync that did may have lost anything (S12).
                if not (segment.refused and self.room.make()):
                    raise

    def look_ahead(self) -> None:
        """What later writes would have to wait for, done while nobody waits for this one.

        What was compacted is given up here: the write that said so is durable (S14).
        """
        standing = self._standing
        freed, standing.freed = standing.freed, False
        if freed:
            # Before a roll too: where space is short, what is given up makes some.
            self._trim()
        if self.segment.end >= self._segment_bytes or (
            freed and standing.holds_freed() and self.segment.end >= self._segment_bytes // ROLL_FRACTION
        ):
            self.roll()
            if freed:
                self._trim()
        self.segment.write_ahead(self._segment_bytes)
        written, self._unlooked_bytes = self._unlooked_bytes, 0
        self.room.wrote(written)
        self._spare.prepare(self.segment.end)

    def roll(self) -> None:
        self.segment = segment = roll(
            self._disk, self.segment, self._spare, self._entropy, self._standing.state, self.first_segment, self.room
        )
        self._standing.begin_segment(segment.header.number)
        self._index.begin_segment(segment.header.number, segment.header.seed)

    def _trim(self) -> None:
        first = self._standing.first_needed()
        if first <= self.first_segment:
            return
        header = self.segment.header
        # First, so that whoever does not find a segment, or finds another in its file, knows why.
        self._index.drop_before(first)
        trim(self._disk, self.directory, header.instance, Manifest(first, header.number), self._spare, self.room)
        self.first_segment = first

    def close(self) -> None:
        self.segment.close()
        self._spare.give_up()
