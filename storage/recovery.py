"""From the bytes of a log back to entries, term and vote. Only reads.

Records are replayed in order; within a write: truncation, reset, hard state, entries. What a replay
can check about them it checks, because everything it lets pass will be voted on and acknowledged.
A log that was trimmed is replayed from what the header of its first segment says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from ..raft.core.entry import Entry, EntryKind, HardState
from ..raft.core.log import OlderEntries, RaftLog
from .chain import Manifest, last_segment, read_manifest
from .disk import Disk
from .entry_reader import EntryIndex, Mark
from .failures import corrupt, corrupt_file, disk_failure, format_unknown
from .progress import Progress
from .records import Record, RecordType, UnknownRecord, header_after, is_zero_from, record_at, torn_bytes
from .segments import HEADER_BYTES, SegmentHeader, decode_segment_header, segment_name
from .standing import EMPTY, LogState, Standing


class Window(NamedTuple):
    """How much of a log is read into memory, beside what is not known to be committed; the newest of it."""

    entries: int = 0
    """0 for no bound."""
    payload_bytes: int = 0
    """0 for no bound."""


ALL = Window()


class Recovered(NamedTuple):
    """What a data directory held."""

    hard_state: HardState
    """Term 0 and no vote only in a log that has never held anything (S03)."""
    entries: list[Entry]
    """Contiguous from ``previous_index`` + 1, or behind ``older``; terms non-decreasing."""
    commit_index: int
    """The highest commit index recorded: a lower bound of what is committed, never above the last index."""
    torn_bytes: int
    """Bytes of a half-written last record that were, or would be, cut away; 0 for none."""
    previous_index: int = 0
    """What the log goes on behind, because a snapshot holds everything up to there; 0 for a log from its start."""
    previous_term: int = 0
    older: OlderEntries | None = None
    """What is known of entries before ``entries`` that were left on disk."""

    @property
    def last_index(self) -> int:
        before = self.previous_index if self.older is None else self.older.last_index
        return before + len(self.entries)

    @property
    def last_term(self) -> int:
        if self.entries:
            return self.entries[-1].term
        return self.previous_term if self.older is None or not self.older.terms else self.older.terms[-1][1]


class LoadedLog(NamedTuple):
    """A recovered log, and where it ends on disk."""

    recovered: Recovered
    path: Path
    header: SegmentHeader
    end: int
    """Where the last intact record of the last segment ends, bytes."""
    size: int
    """Bytes of the last segment's file."""
    sealed: bool
    """The last record is a seal, or the log is empty."""
    raised: bool
    """``recovered.hard_state`` is not what the log says but what its entries call for."""
    manifest: Manifest
    standing: Standing
    """The log as its records leave it, for the writer to go on from."""
    where: EntryIndex
    """Which of the files which entries are in."""


class _Invalid(Exception):
    """A record that is intact but does not fit what came before it."""


class Replay:
    """The logical content of a log, record by record, from the segment ``number`` on."""

    def __init__(self, state: LogState = EMPTY, number: int = 1, window: Window = ALL) -> None:
        self.log = RaftLog([], state.last_index, state.last_term)
        self.where = EntryIndex()
        self.standing = Standing(state, number)
        self.sealed = True
        self._window = window
        self._configurations: list[Entry] = []
        self._sizes: list[tuple[int, int]] = []

    @property
    def entries(self) -> list[Entry]:
        """Those that are kept in memory."""
        return self.log.slice(self.log.window_start, self.log.last_index)

    @property
    def next_index(self) -> int:
        return self.standing.last_index + 1

    def enter(self, path: Path, header: SegmentHeader) -> None:
        """Go on in the next segment. Raises StorageCorrupt if it was begun behind another log."""
        here = self.standing.state
        if header.state not in (None, here):
            what = f"it was begun when the log stood at {header.state}, and the segment before it leaves it at {here}"
            raise corrupt(path, 0, self.next_index, what)
        self.standing.begin_segment(header.number, can_start=header.state is not None)

    def apply(self, path: Path, record: Record) -> None:
        """Take in one record. Raises StorageCorrupt naming the place."""
        index = self.next_index
        try:
            body = msgpack.unpackb(record.body, use_list=False, strict_map_key=True, max_map_len=0, max_ext_len=0)
            if record.type == RecordType.SEAL:
                self._seal(body)
            else:
                for skip, write in enumerate(_tuple(body)):
                    self._write(write, Mark(self.next_index, self.standing.number, record.offset, skip))
                self._leave_on_disk()
        except _Invalid as error:
            raise corrupt(path, record.offset, self.next_index, str(error)) from error
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise corrupt(path, record.offset, index, f"a record of unknown shape ({error})") from error

    def _seal(self, body: Any) -> None:
        term, voted_for, last_index, commit_index = _tuple(body)
        standing = self.standing
        here = (*standing.hard_state, standing.last_index, standing.commit_index)
        if here != (term, voted_for, last_index, commit_index):
            raise _Invalid(f"the log was sealed as {body} (term, vote, last index, commit index) and now reads {here}")
        self.sealed = True

    def _leave_on_disk(self) -> None:
        window = self._window
        gone = self.log.shed(self.standing.commit_index, window.entries, window.payload_bytes)
        if gone:
            self._configurations += [entry for entry in gone if entry.kind == EntryKind.CONFIGURATION]
            self._sizes.append((gone[-1].index, sum([len(entry.data) for entry in gone])))

    def _write(self, write: Any, mark: Mark) -> None:
        _, hard_state, truncate_from, rows, commit_index, *rest = _tuple(write)
        # Version 1 knew no snapshots, and its writes end here.
        reset, compact_to = rest or (None, 0)
        self.sealed = False
        standing = self.standing
        if _number(truncate_from):
            self._truncate(truncate_from)
        if reset is not None:
            self._reset(reset)
        if hard_state is not None:
            self._hard_state(hard_state)
        self._append(_tuple(rows))
        first = rows[0][0] if rows else 0
        self.where.note(mark._replace(first=first), truncate_from, 0 if reset is None else reset[0])
        if _number(commit_index) > standing.last_index:
            raise _Invalid(f"index {commit_index} was known to be committed and the log ends at {standing.last_index}")
        standing.commit_index = max(standing.commit_index, commit_index)
        if _number(compact_to) > standing.commit_index:
            raise _Invalid(f"entries up to {compact_to} were given up, and committed up to {standing.commit_index}")
        if compact_to:
            standing.compact(compact_to)

    def _hard_state(self, hard_state: Any) -> None:
        term, voted_for = _tuple(hard_state)
        if not isinstance(voted_for, str):
            raise _Invalid("a vote that is not text")
        was = self.standing.hard_state
        if _number(term) < was.term:
            raise _Invalid(f"the term goes back from {was.term} to {term}")
        if term == was.term and was.voted_for and voted_for != was.voted_for:
            raise _Invalid(f"the vote of term {term} changes from {was.voted_for!r} to {voted_for!r}")
        self.standing.hard_state = HardState(term, voted_for)

    def _truncate(self, truncate_from: int) -> None:
        standing = self.standing
        if truncate_from <= standing.commit_index:
            raise _Invalid(f"it deletes from index {truncate_from}, which is committed (up to {standing.commit_index})")
        if truncate_from > self.next_index:
            raise _Invalid(f"it deletes from index {truncate_from} and the log ends at {standing.last_index}")
        if truncate_from <= standing.previous_index:
            raise _Invalid(f"it deletes from index {truncate_from} and the log begins behind {standing.previous_index}")
        self.log.truncate_from(truncate_from)
        standing.truncate(truncate_from)

    def _reset(self, reset: Any) -> None:
        last_index, last_term, *_ = _tuple(reset)
        if _number(last_index) < self.standing.commit_index:
            raise _Invalid(f"it goes on behind index {last_index}, and committed up to {self.standing.commit_index}")
        self.log.reset(last_index, _number(last_term), 0)
        self._configurations, self._sizes = [], []
        self.standing.reset(last_index, last_term)

    def _append(self, rows: tuple[Any, ...]) -> None:
        if not rows:
            return
        made: list[Entry] = []
        index = self.standing.last_index
        term = self.standing.last_term
        make = Entry._make
        for row in rows:
            entry = make(row)
            index += 1
            if not (
                type(entry.index) is int
                and type(entry.term) is int
                and type(entry.kind) is int
                and type(entry.time_ns) is int
                and type(entry.data) is bytes
            ):
                raise _Invalid("an entry of unknown shape")
            if entry.index != index:
                raise _Invalid(f"entry {entry.index} stands where {index} belongs")
            if entry.term < term:
                raise _Invalid(f"the term of entry {index} is {entry.term}, below {term} before it")
            term = entry.term
            made.append(entry)
        self.log.append(made)
        self.standing.append(made)

    def recovered(self, torn_bytes: int) -> Recovered:
        log, standing = self.log, self.standing
        return Recovered(
            self.start_state(),
            self.entries,
            standing.commit_index,
            torn_bytes,
            standing.previous_index,
            standing.previous_term,
            log.older(self._configurations, self._sizes),
        )

    def start_state(self) -> HardState:
        """Term and vote to start with: never below the log's last term (S03).

        Entries of a term reach the log only after the term did, so the second case is no log that we
        wrote. Who was voted for in that term is then unknown, so the first term that is certainly
        free of a vote is the one after it.
        """
        last_term = self.standing.last_term
        if self.standing.hard_state.term >= last_term:
            return self.standing.hard_state
        return HardState(last_term + 1, "")


def _tuple(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple):
        raise TypeError(f"{type(value).__name__} where a list belongs")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} where a count belongs")
    return value


def load_log(disk: Disk, directory: Path, instance: bytes, window: Window = ALL) -> LoadedLog:
    """Read a whole log and check it, and keep as much of it as ``window`` says. Writes nothing.

    Raises StorageCorrupt naming file, offset and index; StorageFormatUnknown; StorageError.
    """
    manifest, last = _count_segments(disk, directory, instance)
    if not manifest.last <= last <= manifest.last + 1:
        missing = directory / segment_name(min(manifest.last, last + 1))
        raise corrupt_file(missing, f"segments up to {manifest.last} have been in use and the last one found is {last}")
    replay = None
    previous_end = 0
    progress = Progress(directory, last + 1 - manifest.first)
    for number in range(manifest.first, last + 1):
        path = directory / segment_name(number)
        # Where the log was trimmed and its first segment is damaged, nobody knows the index.
        index = replay.next_index if replay else int(number == 1)
        data = _read(disk, path, index)
        header = decode_segment_header(path, data, index)
        _check_place(path, header, number, instance, index)
        if replay is None:
            replay = _begin(path, header, window)
        else:
            _check_joint(path, header, previous_end, index)
            replay.enter(path, header)
        replay.where.begin_segment(number, header.seed)
        previous_end, torn = _load_segment(path, data, header, replay, progress, is_last=number == last)
        progress.segment_read()
    assert replay is not None
    standing = replay.standing
    if last > manifest.last and previous_end > HEADER_BYTES and read_manifest(disk, directory, instance).last < last:
        raise corrupt(path, HEADER_BYTES, replay.next_index, "the manifest does not know this segment")
    if standing.commit_index < standing.previous_index:
        # Only what is committed is given up, and it is given up only when that is durable.
        what = (
            f"it begins behind index {standing.previous_index}, with {standing.commit_index} the last known committed"
        )
        raise corrupt(path, previous_end, replay.next_index, what)
    recovered = replay.recovered(torn)
    raised = recovered.hard_state != standing.hard_state
    where = replay.where
    return LoadedLog(recovered, path, header, previous_end, len(data), replay.sealed, raised, manifest, standing, where)


def _begin(path: Path, header: SegmentHeader, window: Window) -> Replay:
    """Begin to read with this segment, which is the first that the manifest counts."""
    if header.number == 1:
        if header.previous_end != 0 or header.state not in (None, EMPTY):
            raise corrupt(path, 0, 1, "it is the first segment and its header tells of one before it")
        return Replay(window=window)
    if header.state is None:
        raise corrupt(path, 0, 0, "the segments before it were deleted and its header does not say what they held")
    return Replay(header.state, header.number, window)


def _count_segments(disk: Disk, directory: Path, instance: bytes) -> tuple[Manifest, int]:
    """What the manifest says and what is there, of one moment: the log may be in use by another process."""
    manifest = read_manifest(disk, directory, instance)
    while True:
        last = last_segment(disk, directory)
        again = read_manifest(disk, directory, instance)
        if again == manifest:
            return manifest, last
        manifest = again


def _read(disk: Disk, path: Path, index: int) -> bytes:
    try:
        return disk.read(path)
    except FileNotFoundError as error:
        raise corrupt(path, 0, index, "the segment is missing") from error
    except OSError as error:
        raise disk_failure(error, "reading", path) from error


def _check_place(path: Path, header: SegmentHeader, number: int, instance: bytes, index: int) -> None:
    if header.number != number:
        raise corrupt(path, 0, index, f"it is segment {header.number} under the name of {number}")
    if header.instance != instance:
        raise corrupt(path, 0, index, "it belongs to another data directory")


def _check_joint(path: Path, header: SegmentHeader, previous_end: int, index: int) -> None:
    if header.previous_end != previous_end:
        what = f"the segment before it ends at {previous_end} and ended at {header.previous_end} when this one began"
        raise corrupt(path.with_name(segment_name(header.number - 1)), previous_end, index, what)


def _load_segment(
    path: Path, data: bytes, header: SegmentHeader, replay: Replay, progress: Progress, *, is_last: bool
) -> tuple[int, int]:
    """Replay one segment. Where its last intact record ends, and how many bytes behind it are torn."""
    seed = header.seed
    offset = HEADER_BYTES
    try:
        while (record := record_at(data, seed, offset)) is not None:
            replay.apply(path, record)
            offset = record.end
            progress.at(offset / len(data), replay.standing.last_index)
    except UnknownRecord as error:
        raise format_unknown(path, f"{error} at offset {offset}") from error
    if is_zero_from(data, offset):
        return offset, 0
    _judge_damage(path, data, seed, offset, replay.next_index, is_last=is_last)
    return offset, torn_bytes(data, seed, offset)


def _judge_damage(path: Path, data: bytes, seed: int, offset: int, index: int, *, is_last: bool) -> None:
    """Raise StorageCorrupt unless what is at ``offset`` can be a torn write (S09, S10)."""
    if not is_last:
        raise corrupt(path, offset, index, "there is no intact record, and a later segment exists")
    # From the next byte on, not from where the damaged header says the next record is: that length
    # may be what is damaged.
    following = header_after(data, seed, offset + 1)
    if following is not None:
        raise corrupt(path, offset, index, f"there is no intact record, and one that was written later at {following}")
