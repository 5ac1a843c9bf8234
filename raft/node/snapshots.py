"""Taking, sending, receiving and restoring snapshots: what the core asks for and the disk does (thesis chapter 5).

Nothing here holds the node's loop for longer than it takes to copy a list: the state is captured, and a
received one is swapped in, on the loop; encoding, reading, writing, verifying and parsing are done by a
:class:`~fencepost.raft.node.runner.BlockingRunner`, whose results come back as events (S19, S36, S40).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol

import structlog

from ..core.entry import Snapshot
from ..core.errors import NotFound, StorageError, StorageFull
from ..core.events import (
    ChunkStored,
    ChunkUnavailable,
    Event,
    ReadChunk,
    SnapshotNotTaken,
    SnapshotReceived,
    SnapshotTaken,
    SnapshotUnusable,
    StoreChunk,
)
from ..core.messages import Message
from ..ports import SnapshotStore
from .applier import Applier, PreparedState
from .runner import BlockingRunner, Completion

_LOG = structlog.get_logger("fencepost.node")


class KeeperLoop(Protocol):
    """The part of the node's loop that a keeper needs."""

    def now(self) -> int: ...

    def leads_in(self, term: int) -> bool: ...

    def feed(self, event: Event) -> None: ...

    def fail(self, error: BaseException) -> None: ...

    def storage_failed(self, error: BaseException) -> None: ...

    def guarded(self, callback: Completion) -> Completion: ...


_Part = tuple[str, Snapshot, int, int]
"""For whom, of what, offset, length."""


class _Abandoned(Exception):
    """The node is closing; a snapshot that is being written is not finished."""


class SnapshotKeeper:
    """Carries out ``take_snapshot``, ``chunks``, ``store_chunks`` and ``restore`` of the core's effects.

    Everything goes through one ``runner``, so parts are stored in the order in which they were given.
    An error of the disk is as final as the log's (S12), but for a full one: a snapshot that finds no
    room is given up, and nothing is lost by that.
    """

    def __init__(
        self,
        *,
        store: SnapshotStore,
        applier: Applier,
        runner: BlockingRunner,
        loop: KeeperLoop,
        send: Callable[[str, Message], None],
        while_loading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """``send(to, message)`` hands a message to the transport. ``while_loading()`` is entered around reading
        a whole state in, on the runner's thread: whoever owns the process may want to prepare it for that."""
        self._store = store
        self._applier = applier
        self._runner = runner
        self._loop = loop
        self._send = send
        self._while_loading = while_loading
        self._prepared: dict[Snapshot, PreparedState] = {}
        """What was received, and the core has yet to hear of: of two at once where its loop was held up."""
        self._reading: dict[_Part, ReadChunk] = {}
        """What is being read, and the newest question for it."""
        self._closing = False

    # -- taking -----------------------------------------------------------------------------------

    def take(self, label: Snapshot) -> None:
        """Capture the state, which is the one after ``label.last_index``, now; write it by and by."""
        contents = self._applier.capture()
        self._run(partial(self._write, label, contents), partial(self._taken, label))

    def _write(self, label: Snapshot, contents: Iterable[bytes]) -> Snapshot | None:
        newest = self._store.newest()
        if newest is not None and newest.last_index >= label.last_index:
            return None  # One that was received meanwhile holds more.
        return self._store.write(label, self._until_closing(contents))

    def _until_closing(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            if self._closing:
                raise _Abandoned
            yield chunk

    def _taken(self, label: Snapshot, snapshot: Snapshot | None, error: BaseException | None) -> None:
        if isinstance(error, StorageFull):
            _LOG.warning("snapshot not taken", last_index=label.last_index, error=str(error))
        elif error is not None:
            self._failed(error)
            return
        if snapshot is None:
            self._loop.feed(SnapshotNotTaken(self._loop.now()))
            return
        _LOG.info("snapshot taken", last_index=snapshot.last_index, bytes=snapshot.size_bytes)
        self._loop.feed(SnapshotTaken(self._loop.now(), snapshot))

    # -- sending ----------------------------------------------------------------------------------

    def read(self, chunk: ReadChunk) -> None:
        """Read a part of a snapshot of this node's own and send it. What is asked for again meanwhile is read
        once: the first part takes as long as all of the snapshot takes to be verified."""
        message = chunk.message
        part = (chunk.to, message.snapshot, message.offset, chunk.length)
        begun = part in self._reading
        self._reading[part] = chunk
        if not begun:
            work = partial(self._store.read, message.snapshot, message.offset, chunk.length)
            self._run(work, partial(self._was_read, part))

    def _was_read(self, part: _Part, data: bytes | None, error: BaseException | None) -> None:
        chunk = self._reading.pop(part)
        if error is not None and not isinstance(error, NotFound):
            self._failed(error)
        elif not data and chunk.length:
            self._loop.feed(ChunkUnavailable(self._loop.now(), chunk.to))
        elif self._loop.leads_in(chunk.message.term):  # Else it would keep followers from electing another.
            self._send(chunk.to, chunk.message._replace(data=data or b""))

    # -- receiving --------------------------------------------------------------------------------

    def store(self, part: StoreChunk) -> None:
        """Store a part of a snapshot that another node sends; after the last one, read the state out of it."""
        self._run(partial(self._receive, part), partial(self._received, part.snapshot))

    def _receive(self, part: StoreChunk) -> int | PreparedState | None:
        """How much is stored now; the state, once that is all of it; None if it is damaged."""
        snapshot = part.snapshot
        stored = self._store.store_chunk(snapshot, part.offset, part.data)
        if not part.last or stored != snapshot.size_bytes:
            return stored
        if not self._store.finish(snapshot):
            return None
        # Published, and the core is not told before the state was read: if it cannot be, because a later
        # version wrote it, the node stops with the log and the state that it had (S55).
        with self._while_loading():
            return self._applier.prepare(self._until_closing(self._store.contents(snapshot)))

    def _received(self, snapshot: Snapshot, result: Any, error: BaseException | None) -> None:
        now = self._loop.now()
        if isinstance(error, StorageFull):
            _LOG.warning("snapshot not stored", last_index=snapshot.last_index, error=str(error))
            self._loop.feed(SnapshotUnusable(now, snapshot))
        elif error is not None:
            self._failed(error)
        elif isinstance(result, PreparedState):
            _LOG.info("snapshot received", last_index=snapshot.last_index, bytes=snapshot.size_bytes)
            self._prepared[snapshot] = result
            self._loop.feed(SnapshotReceived(now, snapshot))
        elif result is None:
            _LOG.warning("snapshot damaged on its way", last_index=snapshot.last_index)
            self._loop.feed(SnapshotUnusable(now, snapshot))
        else:
            self._loop.feed(ChunkStored(now, snapshot, result))

    def adopt(self, snapshot: Snapshot) -> None:
        """Replace the state of the machines by that of ``snapshot``, which has been received."""
        prepared = self._prepared.get(snapshot)
        if prepared is None:
            raise AssertionError(f"asked to restore {snapshot}, which was not received")
        self._applier.adopt(prepared, snapshot.last_index)

    def settled(self, snapshot: Snapshot) -> None:
        """The core has done with a received snapshot what it wants to do with it."""
        prepared = self._prepared.pop(snapshot, None)
        if prepared is not None:
            # What is left of it is the old state, or the new one that was not wanted.
            self._run(prepared.discard, self._discarded)

    def _discarded(self, result: None, error: BaseException | None) -> None:
        if error is not None:
            self._failed(error)

    # -- both -------------------------------------------------------------------------------------

    def _run(self, work: Callable[[], Any], done: Completion) -> None:
        self._runner.run(work, self._loop.guarded(done))

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, _Abandoned):
            return
        if isinstance(error, StorageError):
            self._loop.storage_failed(error)
        else:
            self._loop.fail(error)

    async def close(self) -> None:
        """Give up what is under way, and wait until it has ended. Bounded."""
        self._closing = True
        await self._runner.close()
