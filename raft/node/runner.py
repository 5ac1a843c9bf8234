"""Work that blocks, off the node's loop: one piece at a time, in the order in which it was given."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol

Completion = Callable[[Any, BaseException | None], None]
"""Called on the node's loop with a result or an error."""

_Job = tuple[Callable[[], Any], Completion]


class BlockingRunner(Protocol):
    def run(self, work: Callable[[], Any], done: Completion) -> None:
        """Have ``work()`` done after everything that was given before; call ``done`` on the node's loop."""

    async def close(self) -> None:
        """Wait until what is under way has ended, bounded. What has not been begun never is."""


class ThreadRunner:
    """A thread of its own: neither the log, nor handlers, nor name resolution wait for it, or it for them (S43)."""

    def __init__(self, node_loop: asyncio.AbstractEventLoop, name: str, *, close_timeout_s: float = 2.0) -> None:
        self._node_loop = node_loop
        self._close_timeout_s = close_timeout_s
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closed = False
        # A daemon: work that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Any], done: Completion) -> None:
        self._jobs.put((work, done))

    def _main(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not self._closed:
                self._do(*job)

    def _do(self, work: Callable[[], Any], done: Completion) -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as raised:  # Whoever waits must hear that it ended, whatever it was (S41).
            error = raised
        with suppress(RuntimeError):  # The node's loop has closed; nobody is left to tell.
            self._node_loop.call_soon_threadsafe(done, result, error)

    async def close(self) -> None:
        self._closed = True
        self._jobs.put(None)
        deadline = self._node_loop.time() + self._close_timeout_s
        while self._thread.is_alive() and self._node_loop.time() < deadline:  # noqa: ASYNC110 - a thread sets no event
            await asyncio.sleep(0.005)
