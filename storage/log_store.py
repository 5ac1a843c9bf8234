"""The ``LogStore`` port on files: one thread, one record and one sync for everything queued.

Entries, terms, votes and truncations go through one ordered stream. A truncation is a record like
any other; bytes that were acknowledged are never rewritten, so a crash between a truncation and the
entries that replace the deleted ones leaves the old log or the new one (S17).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple

import msgpack
import structlog

from ..raft.core.entry import Entry
from ..raft.core.errors import StorageError, StorageFull
from ..raft.core.events import Persist
from .admission import Admission
from .chain import Manifest, last_segment, remove_before, write_manifest
from .disk import Disk
from .entry_reader import EntryIndex, EntryReader
from .failures import disk_failure
from .identity import DataDirectory
from .records import RecordType
from .recovery import ALL, LoadedLog, Recovered, Window, load_log
from .room import DEFAULT_LOW_BYTES, Room
from .segments import (
    DEFAULT_SEGMENT_BYTES,
    clear_temporaries,
    open_segment,
    segment_name,
)
from .spare import Spare
from .standing import Standing
from .tail import LogTail

_log = structlog.get_logger("fencepost.storage")

DRAIN_BYTES = 4 << 20
"""One record takes from the queue until its body is this long. Bounds how long one sync can take,
and so how long the first write in it waits for the last."""


class StoreStatus(NamedTuple):
    """Counters for ``status`` and metrics; read from any thread."""

    segment: int
    """Number of the segment in use."""
    segment_bytes: int
    syncs: int
    """Records made durable by this process."""
    written_bytes: int
    failure: StorageError | None
    first_segment: int = 1
    """Number of the segment that the log begins with."""
    free_bytes: int = 0
    """On the file system of the log, when it was looked at last: once a mebibyte, and when the log is sealed."""
    low: bool = False
    """That is less than ``low_bytes``."""
    reserve_held: bool = False
    """There is a file to give up when the disk is full."""


SEAL_AFTER_S = 1.0
"""Quiet for this long, the log is sealed: damage to what was written last is then no longer taken for
a torn write. Nothing waits for it."""


PIECES_MAX = 512
"""More writes than this are joined before they are written: a system takes about a thousand at once."""


class FileLogStore:
    """:class:`~fencepost.raft.ports.LogStore` in a data directory.

    ``append`` may be called from one thread at a time. It costs microseconds and never blocks; the
    store's own thread encodes, writes and syncs. That thread cannot be cancelled (S42): whoever
    stops waiting for a write has learnt nothing about it.

    A store that is begun with :meth:`start_stepped` has no thread: it does the same turns where and
    when :meth:`step` and :meth:`seal` are called, so that a run can be repeated exactly.
    """

    def __init__(self, tail: LogTail, standing: Standing, index: EntryIndex, reader: EntryReader, seal_after_s: float):
        """Made by :meth:`open`."""
        self._tail = tail
        self._seal_after_s = seal_after_s
        self._queue: SimpleQueue[Persist | None] = SimpleQueue()
        self._packer = msgpack.Packer()
        self._thread: Thread | None = None
        self._stepped = False
        self._on_durable: Callable[[int], None] = lambda sequence: None
        self._on_failure: Callable[[StorageError], None] = lambda error: None
        self._failure: StorageError | None = None
        self._closed = False
        self._ended = False
        self._sealed = True
        self._syncs = 0
        self._written_bytes = 0
        # What the log is on disk; touched by the writer only.
        self._standing = standing
        self._index = index
        self._collected: list[Persist] = []
        """What the record under way holds."""
        self._entry_reader = reader
        # What the log will be once the queue is empty; touched by append only.
        self._admission = Admission(standing.state)

    @classmethod
    def open(
        cls,
        directory: DataDirectory,
        *,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        seal_after_s: float = SEAL_AFTER_S,
        window: Window = ALL,
        low_bytes: int = DEFAULT_LOW_BYTES,
    ) -> tuple[FileLogStore, Recovered]:
        """Recover the log of an open data directory and make it ready for appending.

        A torn tail is cut and the cut synced. ``segment_bytes`` is the size at which a segment ends,
        ``seal_after_s`` how long nothing is written until the log is sealed, ``window`` how much of it is
        kept in what is returned: the rest is read back by :meth:`read`. With less than ``low_bytes`` free on
        its disk, the log warns.
        Raises StorageCorrupt, StorageFormatUnknown, StorageFull or StorageError; then nothing was
        changed that the next attempt would miss.
        """
        disk, log_path = directory.disk, directory.log_path
        _settle(disk, log_path)
        loaded = load_log(disk, log_path, bytes.fromhex(directory.instance_id), window)
        manifest = Manifest(loaded.manifest.first, loaded.header.number)
        if manifest != loaded.manifest:
            directory.reserve.spend(lambda: write_manifest(disk, log_path, loaded.header.instance, manifest))
        remove_before(disk, log_path, manifest.first)
        segment = open_segment(disk, loaded.path, loaded.header, loaded.end)
        spare = Spare(disk, log_path, segment_bytes)
        tail = LogTail(
            disk,
            segment,
            loaded.standing,
            loaded.where,
            manifest.first,
            segment_bytes=segment_bytes,
            entropy=directory.entropy,
            spare=spare,
            room=Room(disk, log_path, directory.reserve, spare, low_bytes=low_bytes, spare_bytes=segment_bytes),
        )
        reader = EntryReader(disk, log_path, loaded.where)
        store = cls(tail, loaded.standing, loaded.where, reader, seal_after_s)
        try:
            store._make_ready(loaded)
        except BaseException:
            store._tail.close()
            raise
        return store, loaded.recovered

    def start(self, on_durable: Callable[[int], None], on_failure: Callable[[StorageError], None]) -> None:
        """Begin writing. Both callbacks are called on the store's thread and must not block."""
        self._begin(on_durable, on_failure)
        # A daemon: an interpreter that ends without close() must end, and may, as after a kill.
        self._thread = Thread(target=self._run, name="fencepost-log", daemon=True)
        self._thread.start()

    def start_stepped(self, on_durable: Callable[[int], None], on_failure: Callable[[StorageError], None]) -> None:
        """Begin without a thread, in place of :meth:`start`: whoever calls :meth:`step` does the writing.

        Both callbacks are called from within ``step``, ``seal`` and ``close``.
        """
        self._begin(on_durable, on_failure)
        self._stepped = True

    def step(self) -> bool:
        """One turn of the writer in the caller's thread; whether there was anything to do.

        Everything that is queued becomes one record, is synced and told to ``on_durable``; then what
        later writes would have to wait for is done. Does not raise: a failure goes to ``on_failure``
        and is final, as in the thread. Only after :meth:`start_stepped`.
        """
        self._must_be_stepped()
        if self._failure is not None:
            return False
        try:
            write = self._queue.get_nowait()
        except Empty:
            return False
        self._guard(lambda: self._turn(write))
        return True

    def seal(self) -> bool:
        """What the thread does after a quiet second (``SEAL_AFTER_S``); whether there was anything to do.

        Nothing may be queued: a seal says where the log stands, and it has not come to rest. Only
        after :meth:`start_stepped`; does not raise.
        """
        self._must_be_stepped()
        if self._failure is not None or self._sealed or self._ended or not self._queue.empty():
            return False
        self._guard(self._seal)
        return True

    def append(self, write: Persist) -> None:
        """Queue a write, which belongs to the store from now on.

        Raises AssertionError if it does not fit the log: a bug of the caller.
        """
        if self._closed:
            raise AssertionError("append after close")
        self._admission.admit(write)
        if self._failure is None:
            self._queue.put(write)

    def read(self, start: int, end: int, bytes_max: int) -> list[Entry]:
        """``LogStore.read``. On any thread, beside the writer."""
        return self._entry_reader.read(start, end, bytes_max)

    def close(self) -> None:
        """Finish what was queued, seal the log, end the thread. Blocks until that is done.

        May be called again. Does not raise: a failure has gone to ``on_failure``.
        """
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        if self._thread is None:
            if self._failure is None:
                self._run()
        else:
            self._thread.join()
        self._tail.close()

    def status(self) -> StoreStatus:
        tail, room = self._tail, self._tail.room
        return StoreStatus(
            tail.segment.header.number,
            tail.segment.end,
            self._syncs,
            self._written_bytes,
            self._failure,
            tail.first_segment,
            room.free_bytes,
            room.low,
            room.reserve_held,
        )

    # -- the caller's thread ------------------------------------------------------------------------

    def _begin(self, on_durable: Callable[[int], None], on_failure: Callable[[StorageError], None]) -> None:
        if self._thread is not None or self._stepped or self._closed:
            raise AssertionError("the store was started before")
        self._on_durable = on_durable
        self._on_failure = on_failure

    def _must_be_stepped(self) -> None:
        if not self._stepped or self._closed:
            raise AssertionError("only a store that was started without a thread, and not closed, is driven by steps")

    # -- the writer: the store's thread, or whoever steps -------------------------------------------

    def _run(self) -> None:
        self._guard(self._write_until_closed)

    def _guard(self, act: Callable[[], None]) -> None:
        """Do a part of the writer's work; its first failure is latched and told, whoever drives it."""
        try:
            act()
        except StorageError as error:
            self._fail(error)
        except Exception as error:
            # Whatever ends the writer ends the node: one that dies unseen looks like a slow disk for
            # ever (S41).
            failure = StorageError(f"the log's writer failed: {error!r}", next_step="report this as a bug")
            failure.__cause__ = error
            self._fail(failure)

    def _write_until_closed(self) -> None:
        while not self._ended:
            try:
                write = self._queue.get(timeout=None if self._sealed else self._seal_after_s)
            except Empty:
                self._seal()
            else:
                self._turn(write)
        if not self._sealed:
            try:
                self._seal()
            except StorageFull:
                # Everything acknowledged is durable; without its seal the log reads as after a kill.
                _log.warning("log_not_sealed", file=os.fspath(self._tail.segment.path))

    def _turn(self, write: Persist | None) -> None:
        """Make this write and what is queued behind it durable, as one record. None ends the writer."""
        if write is None:
            self._ended = True
            return
        pieces, sequence, closing = self._collect(write)
        tail = self._tail
        offset = tail.append(RecordType.WRITES, *pieces)
        self._index.written(tail.segment.header.number, offset, self._collected)
        self._sealed = False
        self._syncs += 1
        self._written_bytes += sum(map(len, pieces))
        self._on_durable(sequence)
        self._ended = closing
        if not closing:
            tail.look_ahead()

    def _collect(self, write: Persist) -> tuple[list[bytes], int, bool]:
        """Everything that is queued, as the body of one record; its last sequence; whether to end."""
        pack, take = self._packer.pack, self._queue.get_nowait
        packed = pack(write)
        self._standing.take(write)
        pieces, self._collected = [packed], [write]
        room = DRAIN_BYTES - len(packed)
        sequence = write.sequence
        closing = False
        while room > 0:
            try:
                following = take()
            except Empty:
                break
            if following is None:
                closing = True
                break
            packed = pack(following)
            self._standing.take(following)
            pieces.append(packed)
            self._collected.append(following)
            room -= len(packed)
            sequence = following.sequence
        pieces.insert(0, self._packer.pack_array_header(len(pieces)))
        if len(pieces) > PIECES_MAX:
            pieces = [b"".join(pieces)]
        return pieces, sequence, closing

    def _seal(self) -> None:
        standing = self._standing
        body = self._packer.pack((*standing.hard_state, standing.last_index, standing.commit_index))
        self._tail.append(RecordType.SEAL, body)
        self._sealed = True
        # It comes to rest: others may be filling the disk meanwhile, and nobody would look.
        self._tail.room.look()

    def _fail(self, error: StorageError) -> None:
        self._failure = error
        _log.error("log_failed", code=error.code, reason=error.message, next_step=error.next_step)
        try:
            self._on_failure(error)
        except Exception:
            # The listener is gone (its loop was closed before the store): there is nobody to tell.
            _log.exception("log_failure_unheard")

    # -- opening ------------------------------------------------------------------------------------

    def _make_ready(self, loaded: LoadedLog) -> None:
        tail = self._tail
        if loaded.size != loaded.end:
            tail.segment.finish()
        if loaded.recovered.torn_bytes:
            _log.warning(
                "torn_tail_cut",
                file=os.fspath(loaded.path),
                offset=loaded.end,
                bytes=loaded.recovered.torn_bytes,
                next_index=self._standing.last_index + 1,
            )
        if tail.segment.header.state is None:
            # A version that knows no snapshots must not meet writes about them: it would call them
            # damage. A new segment it refuses by its version (S55).
            tail.roll()
        if loaded.raised:
            raised = Persist(0, loaded.recovered.hard_state, 0, [], 0)
            tail.append(RecordType.WRITES, self._packer.pack((raised,)))
            self._standing.take(raised)
            self._admission = Admission(self._standing.state)
        if loaded.raised or not loaded.sealed:
            self._seal()
        tail.room.look()


def _settle(disk: Disk, log_path: Path) -> None:
    """Make what is about to be read durable, or find out that it cannot be.

    A process that was killed leaves bytes and names that only the cache has; acting on them is
    acknowledging before the sync (S13, S14). And after a *failed* sync the cache may hold what the
    disk does not and call it clean, so the last segment is read from the disk again (S12). Earlier
    segments were synced without an error before the next one was begun.
    """
    number = last_segment(disk, log_path)
    clear_temporaries(disk, log_path)
    path = log_path / segment_name(number)
    try:
        disk.sync_directory(log_path)
        if number:
            file = disk.open(path, create=False)
            try:
                file.sync()
                file.drop_cache()
            finally:
                file.close()
    except OSError as error:
        raise disk_failure(error, "syncing", path) from error
