"""The snapshots' thread in virtual time: one piece of blocking work after another, each at the end of its time.

As with the log's writer: a process that ends while a piece is under way may be cut off at any operation
of it, and a disk that hangs holds it up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...raft.node.runner import Completion
from .agenda import ProcessEnded
from .logwriter import SyncTimes
from .loop import SimLoop


class SimRunner:
    """``raft.node.runner.BlockingRunner`` for one process."""

    def __init__(self, node: SimLoop, thread: SimLoop, times: SyncTimes) -> None:
        self.working = False
        self.hanging = False
        self._node = node
        self._thread = thread
        self._times = times
        self._jobs: deque[tuple[Callable[[], Any], Completion]] = deque()
        self._closed = False

    def run(self, work: Callable[[], Any], done: Completion) -> None:
        self._jobs.append((work, done))
        if not self.working:
            self._begin()

    def go_on(self) -> None:
        """A disk that hung works again."""
        if self.hanging:
            self.hanging = False
            self._thread.call_after_ns(0, self._work)

    def cut_off(self) -> None:
        """The process has ended while a piece was under way: do what of it was done until then."""
        if self.working and self._jobs:
            with suppress(ProcessEnded, Exception):
                self._jobs[0][0]()

    async def close(self) -> None:
        self._closed = True
        self._jobs.clear()

    def _begin(self) -> None:
        self.working = True
        took_ns = self._times.sync_ns()
        if took_ns < 0:
            self.hanging = True
        else:
            self._thread.call_after_ns(took_ns, self._work)

    def _work(self) -> None:
        self.working = False
        if not self._jobs:
            return  # Closed meanwhile.
        work, done = self._jobs[0]
        result: Any = None
        error: BaseException | None = None
        try:
            result = work()
        except Exception as raised:
            error = raised
        self._jobs.popleft()
        self._node.call_soon(done, result, error)
        if self._jobs:
            self._begin()
