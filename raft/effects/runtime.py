"""Where effects run: never on the loop that keeps the node alive, unless an embedder says so.

A handler may block. On a loop of its own it then costs other handlers their time, not the node its
leadership (scenario S40).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from ..core.errors import ResourceUnavailable

Completion = Callable[[Any, BaseException | None], None]
"""Called on the node's loop with a result or an error."""


class EffectsRuntime(Protocol):
    def run(self, work: Callable[[], Coroutine[Any, Any, Any]], done: Completion) -> None:
        """Run ``work()`` on the effects loop; call ``done`` on the node's loop when it has ended."""

    async def close(self) -> None:
        """Cancel what still runs, wait for it to end, bounded."""


class GuardedRuntime:
    """Another runtime, whose completions cannot fail unseen: they run on the node's loop but in no
    turn of it, and asyncio would only log what they raise (scenario S41)."""

    def __init__(self, runtime: EffectsRuntime, guarded: Callable[[Completion], Completion]) -> None:
        """``guarded(callback)`` is the callback that ends the node if it raises."""
        self._runtime = runtime
        self._guarded = guarded

    def run(self, work: Callable[[], Coroutine[Any, Any, Any]], done: Completion) -> None:
        self._runtime.run(work, self._guarded(done))

    async def close(self) -> None:
        await self._runtime.close()


async def carry(
    work: Callable[[], Coroutine[Any, Any, Any]], done: Completion, node_loop: asyncio.AbstractEventLoop
) -> None:
    """Do ``work`` on this loop, which is another than the node's, and tell that one how it ended."""
    result: Any = None
    error: BaseException | None = None
    try:
        result = await work()
    except BaseException as raised:  # Cancellation too: whoever waits must hear that it ended.
        error = raised
    with suppress(RuntimeError):  # The node's loop has closed; nobody is left to tell.
        node_loop.call_soon_threadsafe(done, result, error)


class ThreadRuntime:
    """A thread with an event loop for effects; one hop there and one back for a whole batch.

    ``last`` is run on that loop when everything else there has ended: a connection can only be closed on the loop
    that it was made on.
    """

    def __init__(
        self,
        node_loop: asyncio.AbstractEventLoop,
        *,
        last: Callable[[], Coroutine[Any, Any, None]] | None = None,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
        close_timeout_s: float = 2.0,
    ) -> None:
        self._node_loop = node_loop
        self._last = last
        self._close_timeout_s = close_timeout_s
        self._loop = new_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._main, name="fencepost-effects", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def run(self, work: Callable[[], Coroutine[Any, Any, Any]], done: Completion) -> None:
        if self._closed:
            # Only a node that is stopping gets here; it must not fail over what it will never do.
            self._node_loop.call_soon(done, None, ResourceUnavailable("effects have ended on this node"))
            return
        self._loop.call_soon_threadsafe(self._start, work, done)

    def _start(self, work: Callable[[], Coroutine[Any, Any, Any]], done: Completion) -> None:
        task = self._loop.create_task(carry(work, done, self._node_loop))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        def cancel() -> None:
            for task in self._tasks:
                task.cancel()

        if not self._closed:  # A flag rather than the thread's life, which may end between two lines.
            self._closed = True
            self._loop.call_soon_threadsafe(cancel)
            deadline = asyncio.get_running_loop().time() + self._close_timeout_s
            while self._tasks and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - another loop's
                await asyncio.sleep(0.01)
            if self._last is not None:
                ending = asyncio.run_coroutine_threadsafe(self._last(), self._loop)
                with suppress(TimeoutError):  # A handler blocks that loop. It goes with the process.
                    async with asyncio.timeout(self._close_timeout_s):
                        await asyncio.wrap_future(ending)
            self._loop.call_soon_threadsafe(self._loop.stop)


class LocalRuntime:
    """Effects on the node's own loop: for embedders whose handlers never block, and for tests."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, work: Callable[[], Coroutine[Any, Any, Any]], done: Completion) -> None:
        task = self._loop.create_task(self._carry(work, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, work: Callable[[], Coroutine[Any, Any, Any]], done: Completion) -> None:
        try:
            result = await work()
        except BaseException as raised:
            done(None, raised)
            return
        done(result, None)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2.0)
