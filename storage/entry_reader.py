"""Entries read back from the log's files, beside the writer.

The index keeps, sparsely, where in which segment entries begin. Each of its marks stands for the entries
from its own first one up to the next mark's, and says from which write of which record on the first
version that is met of each of them is the one that counts. So a truncation always gets a mark: what it
deleted is still in the file, in front of what took its place. Records stand where they were written until
their segment goes, so a mark is true until then.

Only entries may be asked for that are durable and committed. Nothing deletes those but compaction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import msgpack

from ..raft.core.entry import Entry
from ..raft.core.errors import NotFound, StorageCorrupt
from ..raft.core.events import Persist
from .disk import Disk
from .failures import corrupt, disk_failure
from .records import HEADER_BYTES, SECTOR_BYTES, Record, RecordType, UnknownRecord, header_at, record_at
from .segments import segment_name

STRIDE_BYTES = 64 << 10
"""Marks are at least so far apart in a file: a reading looks through so much in vain at the most."""

READ_BYTES = 256 << 10
"""How much is read of a file at a time."""


class Mark(NamedTuple):
    first: int
    """The log index of the first entry that it stands for."""
    segment: int
    offset: int
    """Of the record, bytes."""
    skip: int
    """Writes of that record that do not count."""


class Stretch(NamedTuple):
    """A mark, the last index that it stands for (0: no bound), and the seed of its segment."""

    mark: Mark
    last: int
    seed: int


class EntryIndex:
    """Which record entries are in. Changed by whoever writes or recovers the log, read by any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._marks: list[Mark] = []
        self._seeds: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._marks)

    # -- what changes it ----------------------------------------------------------------------------

    def begin_segment(self, number: int, seed: int) -> None:
        with self._lock:
            self._seeds[number] = seed

    def written(self, segment: int, offset: int, writes: Sequence[Persist]) -> None:
        """A record with these writes is durable at ``offset`` of ``segment``."""
        with self._lock:
            for skip, (_, _, truncate_from, entries, _, reset, _) in enumerate(writes):
                if truncate_from or reset is not None or entries:
                    first = entries[0].index if entries else 0
                    behind = 0 if reset is None else reset.last_index
                    self.note(Mark(first, segment, offset, skip), truncate_from, behind)

    def note(self, mark: Mark, truncate_from: int, reset_to: int) -> None:
        """One write: it deletes from an index on, or everything (the log goes on behind ``reset_to``), 0 for
        neither, and has entries from ``mark.first`` on, 0 for none."""
        marks = self._marks
        if reset_to:
            marks.clear()
        elif truncate_from:
            while marks and marks[-1].first >= truncate_from:
                marks.pop()
        if truncate_from or reset_to:
            marks.append(mark._replace(first=reset_to + 1 if reset_to else truncate_from))
        elif mark.first:
            last = marks[-1] if marks else None
            if last is None or last.segment != mark.segment or mark.offset - last.offset >= STRIDE_BYTES:
                marks.append(mark)

    def drop_before(self, segment: int) -> None:
        """The segments before this one are going."""
        with self._lock:
            self._marks = [mark for mark in self._marks if mark.segment >= segment]
            self._seeds = {number: seed for number, seed in self._seeds.items() if number >= segment}

    # -- what others read ---------------------------------------------------------------------------

    def find(self, index: int) -> Stretch | None:
        """What stands for ``index``; None if that is not kept."""
        with self._lock:
            marks = self._marks
            place = bisect_right(marks, index, key=lambda mark: mark.first)
            if place == 0:
                return None
            mark = marks[place - 1]
            last = marks[place].first - 1 if place < len(marks) else 0
            return Stretch(mark, last, self._seeds[mark.segment])

    def keeps(self, segment: int) -> bool:
        with self._lock:
            return segment in self._seeds


class EntryReader:
    """Used by any number of threads: each reading has its own files and buffers."""

    def __init__(self, disk: Disk, directory: Path, index: EntryIndex) -> None:
        self._disk = disk
        self._directory = directory
        self._index = index

    def read(self, start: int, end: int, bytes_max: int) -> list[Entry]:
        """Entries from ``start`` on whose payloads together fit ``bytes_max``, none behind ``end``; at least one.

        All of them are durable and committed. Raises NotFound if ``start`` is compacted or about to be,
        StorageCorrupt where the files do not hold what they held, StorageError.
        """
        found: list[Entry] = []
        size = 0
        pages = _Pages(self._disk, self._directory)
        while start <= end:
            stretch = self._index.find(start)
            if stretch is None:  # Before the reading, or during it: then what was found is compacted, too.
                raise NotFound(f"entry {start} is compacted")
            last = min(end, stretch.last or end)
            try:
                for entry in self._entries(pages, stretch, start, last):
                    size += len(entry.data)
                    if size > bytes_max and found:
                        return found
                    found.append(entry)
            except (FileNotFoundError, StorageCorrupt) as error:
                if not self._index.keeps(stretch.mark.segment):
                    raise NotFound(f"entry {start} was compacted while it was read") from error
                if isinstance(error, StorageCorrupt):
                    raise
                raise corrupt(pages.path(stretch.mark.segment), 0, start, "the segment is missing") from error
            except OSError as error:
                raise disk_failure(error, "reading", pages.path(stretch.mark.segment)) from error
            start = last + 1
        return found

    def _entries(self, pages: _Pages, stretch: Stretch, start: int, last: int) -> Iterator[Entry]:
        """The entries ``start`` to ``last``, all of which are in this stretch."""
        mark = stretch.mark
        path = pages.path(mark.segment)
        offset, skip = mark.offset, mark.skip
        index = start
        while True:
            record = pages.record(mark.segment, offset, stretch.seed, index)
            if record.type == RecordType.WRITES:
                for row in _rows(path, record, skip, index):
                    if row[0] < index:
                        continue
                    if row[0] != index:
                        raise corrupt(path, offset, index, f"entry {row[0]} is there")
                    yield Entry._make(row)
                    if index == last:
                        return
                    index += 1
            offset, skip = record.end, 0


def _rows(path: Path, record: Record, skip: int, index: int) -> Iterator[tuple[int, int, int, int, bytes]]:
    try:
        writes = msgpack.unpackb(record.body, use_list=False, strict_map_key=True, max_map_len=0, max_ext_len=0)
        for _, _, _, rows, *_ in writes[skip:]:
            yield from rows
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise corrupt(path, record.offset, index, f"a record of unknown shape ({error})") from error


class _Pages:
    """What one reading has of the files."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._segment = 0
        self._base = 0
        self._data = b""

    def path(self, segment: int) -> Path:
        return self._directory / segment_name(segment)

    def record(self, segment: int, offset: int, seed: int, index: int) -> Record:
        """The record at ``offset``. Raises StorageCorrupt if there is none, and OSError."""
        self._fetch(segment, offset, HEADER_BYTES)
        header = header_at(self._data, seed, offset, self._base)
        if header is not None:
            self._fetch(segment, offset, HEADER_BYTES + header.length + SECTOR_BYTES)
        try:
            record = record_at(self._data, seed, offset, self._base)
        except UnknownRecord as error:
            raise corrupt(self.path(segment), offset, index, str(error)) from error
        if record is None:
            raise corrupt(self.path(segment), offset, index, "there is no intact record any more")
        return record

    def _fetch(self, segment: int, offset: int, length: int) -> None:
        """Have so much from ``offset`` on, or as much as there is."""
        held = segment == self._segment and self._base <= offset
        if not held or offset + length > self._base + len(self._data):
            self._data = self._disk.read_at(self.path(segment), offset, max(length, READ_BYTES))
            self._segment, self._base = segment, offset
