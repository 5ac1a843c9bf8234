"""Where an embedder's handlers run: on a thread of their own, on the node's loop, or on another loop of his."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from ...raft.core.errors import ConfigurationError, ResourceUnavailable
from ...raft.effects.runtime import Completion, EffectsRuntime, LocalRuntime, carry
from ..parts import Last, own_thread

HandlerLoop = Literal["own", "node"] | asyncio.AbstractEventLoop
CLOSE_TIMEOUT_S = 2.0


def runtime_on(choice: HandlerLoop) -> Callable[[asyncio.AbstractEventLoop, Last], EffectsRuntime]:
    """Raises :class:`ConfigurationError` for what is neither a word nor a loop."""
    if choice == "own":
        return own_thread
    if choice == "node":
        return lambda loop, last: LocalRuntime(loop)
    if isinstance(choice, asyncio.AbstractEventLoop):
        return partial(_on, choice)
    raise ConfigurationError(f"handlers_on={choice!r}", next_step='"own", "node", or an event loop that runs')


def _on(
    chosen: asyncio.AbstractEventLoop, node_loop: asyncio.AbstractEventLoop, last: Callable[[], Any]
) -> EffectsRuntime:
    return LocalRuntime(node_loop) if chosen is node_loop else LoopRuntime(node_loop, chosen, last)


class LoopRuntime:
    """Effects on a loop of the embedder's, which runs on another thread than the node's and is his to close."""

    def __init__(
        self, node_loop: asyncio.AbstractEventLoop, loop: asyncio.AbstractEventLoop, last: Callable[[], Any]
    ) -> None:
        self._node_loop = node_loop
        self._loop = loop
        self._last = last
        self._running: set[Future[Any]] = set()
        self._closed = False

    def run(self, work: Callable[[], Coroutine[Any, Any, Any]], done: Completion) -> None:
        if self._closed or self._loop.is_closed():
            self._node_loop.call_soon(done, None, ResourceUnavailable("effects have ended on this node"))
            return
        future = asyncio.run_coroutine_threadsafe(carry(work, done, self._node_loop), self._loop)
        self._running.add(future)
        future.add_done_callback(self._running.discard)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        running = [asyncio.wrap_future(future) for future in list(self._running)]
        for future in list(self._running):
            future.cancel()
        if running:
            await asyncio.wait(running, timeout=CLOSE_TIMEOUT_S)
        if not self._loop.is_running():
            return
        ending = asyncio.run_coroutine_threadsafe(self._last(), self._loop)
        with suppress(TimeoutError):  # A handler blocks that loop.
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await asyncio.wrap_future(ending)
