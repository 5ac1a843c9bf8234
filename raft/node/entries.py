"""Entries that are on disk only, read on a thread of their own: for slow followers, and for applying after a start."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..core.entry import Entry
from ..core.errors import NotFound, StorageError
from ..core.events import EntriesRead, ReadEntries
from ..ports import LogStore
from .runner import BlockingRunner
from .snapshots import KeeperLoop


class EntryReading:
    """Reads from the log's files what has left the core's memory, one thing after another.

    All of it is durable and committed, so what comes back is right whatever has happened meanwhile, and
    only compaction can have taken it away. Any other error of the disk is as final as a failed write.
    """

    def __init__(self, *, store: LogStore, runner: BlockingRunner, loop: KeeperLoop) -> None:
        self._store = store
        self._runner = runner
        self._loop = loop
        self.readings = 0
        """For followers, so far."""

    def for_follower(self, wanted: ReadEntries) -> None:
        """Carry out ``Effects.read_entries``: the core is told by :class:`EntriesRead`."""
        self.readings += 1
        self._read(wanted.start, wanted.end, wanted.bytes_max, partial(self._tell, wanted))

    def _tell(self, wanted: ReadEntries, entries: list[Entry] | None) -> None:
        self._loop.feed(EntriesRead(self._loop.now(), wanted.to, wanted.term, wanted.start, entries or []))

    def for_applying(self, start: int, end: int, bytes_max: int, done: Callable[[list[Entry] | None], None]) -> None:
        """``done`` is called on the node's loop, with None if ``start`` is compacted."""
        self._read(start, end, bytes_max, done)

    def _read(self, start: int, end: int, bytes_max: int, done: Callable[[list[Entry] | None], None]) -> None:
        work = partial(self._store.read, start, end, bytes_max)
        self._runner.run(work, self._loop.guarded(partial(self._was_read, done)))

    def _was_read(
        self, done: Callable[[list[Entry] | None], None], entries: list[Entry] | None, error: BaseException | None
    ) -> None:
        if error is None or isinstance(error, NotFound):
            done(entries)
        elif isinstance(error, StorageError):
            self._loop.storage_failed(error)
        else:
            self._loop.fail(error)

    async def close(self) -> None:
        """Wait until what is under way has ended. Bounded."""
        await self._runner.close()
