"""The log's writer in virtual time: a real :class:`FileLogStore` that is stepped where its thread would run.

One sync is under way at a time. What is appended meanwhile waits for the next one, as it does for the
real thread. The disk is touched at the end of the time that a sync takes; a process that ends before
that may be cut off at any operation of it (:meth:`LogWriter.cut_off`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from ...raft.core.entry import Entry
from ...raft.core.errors import StorageError
from ...raft.core.events import Persist
from ...storage.log_store import FileLogStore
from .agenda import Handle, ProcessEnded
from .loop import SimLoop

SEAL_AFTER_NS = 1_000_000_000
"""As the real store: quiet for this long, the log is sealed."""


class SyncTimes(Protocol):
    """How long syncs take."""

    def sync_ns(self) -> int:
        """The next one's time, nanoseconds; below 0: it does not come back before ``go_on`` is called."""


class LogWriter:
    """``raft.ports.LogStore`` for one process. ``thread`` is the one of the process that writes."""

    def __init__(
        self, store: FileLogStore, thread: SimLoop, times: SyncTimes, *, on_sync: Callable[[int], None]
    ) -> None:
        """``on_sync(sequence)`` hears of every sync that was made, before the node does."""
        self.store = store
        self.syncing = False
        """A record is under way to the disk."""
        self.hanging = False
        """A sync has begun that does not come back."""
        self.failed = False
        self._thread = thread
        self._times = times
        self._on_sync = on_sync
        self._waiting: list[Persist] = []
        self._on_durable: Callable[[int], None] = lambda sequence: None
        self._on_failure: Callable[[StorageError], None] = lambda error: None
        self._seal_timer: Handle | None = None

    def start(self, on_durable: Callable[[int], None], on_failure: Callable[[StorageError], None]) -> None:
        self._on_durable = on_durable
        self._on_failure = on_failure
        self.store.start_stepped(self._durable, self._fail)

    def append(self, write: Persist) -> None:
        self._waiting.append(write)
        if not self.syncing:
            self._begin()

    def read(self, start: int, end: int, bytes_max: int) -> list[Entry]:
        """In whose thread and when is up to the caller."""
        return self.store.read(start, end, bytes_max)

    def close(self) -> None:
        """What a process that ends in order does last."""
        if not self.hanging:
            self._hand_over()
            self.store.close()

    def go_on(self) -> None:
        """A sync that hung comes back now."""
        if self.hanging:
            self.hanging = False
            self._thread.call_after_ns(0, self._step)

    def cut_off(self) -> None:
        """The process has ended while a record was under way: do what of it was done until then.

        The disk must have been told at which operation that is (``SimDisk.end_at``).
        """
        if self.syncing and not self.failed:
            with suppress(ProcessEnded):
                self.store.step()

    # -- the writer's thread ------------------------------------------------------------------------

    def _hand_over(self) -> None:
        waiting, self._waiting = self._waiting, []
        for write in waiting:
            self.store.append(write)

    def _begin(self) -> None:
        self.syncing = True
        if self._seal_timer is not None:
            self._seal_timer.cancel()
            self._seal_timer = None
        self._hand_over()
        took_ns = self._times.sync_ns()
        if took_ns < 0:
            self.hanging = True
        else:
            self._thread.call_after_ns(took_ns, self._step)

    def _step(self) -> None:
        self.store.step()
        self.syncing = False
        if self._waiting:
            self._begin()
        elif not self.failed:
            self._seal_timer = self._thread.call_after_ns(SEAL_AFTER_NS, self.store.seal)

    def _durable(self, sequence: int) -> None:
        self._on_sync(sequence)
        self._on_durable(sequence)

    def _fail(self, error: StorageError) -> None:
        self.failed = True
        self._on_failure(error)
