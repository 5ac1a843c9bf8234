"""Where effects run: on a loop of their own, and what is told of their end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from fencepost.raft.core.errors import ResourceUnavailable
from fencepost.raft.effects.runtime import EffectsRuntime, LocalRuntime, ThreadRuntime


class Endings:
    def __init__(self) -> None:
        self.heard: list[tuple[Any, BaseException | None]] = []
        self.threads: set[int] = set()
        self._event = asyncio.Event()

    def done(self, result: Any, error: BaseException | None) -> None:
        self.heard.append((result, error))
        self.threads.add(threading.get_ident())
        self._event.set()

    async def wait(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.heard) < count:
                self._event.clear()
                await self._event.wait()


MADE: dict[str, Callable[[asyncio.AbstractEventLoop], EffectsRuntime]] = {
    "thread": ThreadRuntime,
    "thread-uvloop": lambda loop: ThreadRuntime(loop, new_loop=uvloop.new_event_loop),
    "local": LocalRuntime,
}


@pytest.fixture(params=MADE)
async def runtime(request: pytest.FixtureRequest) -> Any:
    made = MADE[request.param](asyncio.get_running_loop())
    yield made
    await made.close()


async def test_results_and_errors_come_back_on_the_nodes_loop(runtime: EffectsRuntime) -> None:
    endings = Endings()

    async def works() -> int:
        return 7

    async def fails() -> int:
        raise ValueError("no")

    runtime.run(works, endings.done)
    runtime.run(fails, endings.done)
    await endings.wait(2)
    assert endings.threads == {threading.get_ident()}
    assert endings.heard[0] == (7, None)
    assert isinstance(endings.heard[1][1], ValueError)


async def test_close_ends_what_runs_and_says_so(runtime: EffectsRuntime) -> None:
    endings = Endings()
    started = threading.Event()

    async def hangs() -> None:
        started.set()
        await asyncio.get_running_loop().create_future()

    runtime.run(hangs, endings.done)
    await asyncio.to_thread(started.wait, 20)
    await runtime.close()
    await endings.wait(1)
    assert isinstance(endings.heard[0][1], asyncio.CancelledError)


async def test_close_twice_and_with_nothing_to_do(runtime: EffectsRuntime) -> None:
    await runtime.close()
    await runtime.close()


async def test_s40_a_handler_that_blocks_blocks_only_its_own_loop() -> None:
    runtime = ThreadRuntime(asyncio.get_running_loop())
    endings = Endings()
    release, started = threading.Event(), threading.Event()

    async def blocks() -> int:
        started.set()
        release.wait(20)
        return threading.get_ident()

    runtime.run(blocks, endings.done)
    await asyncio.to_thread(started.wait, 20)
    # This loop goes on: a turn of it ends although the handler has not.
    await asyncio.sleep(0)
    assert not endings.heard
    release.set()
    await endings.wait(1)
    assert endings.heard[0][0] != threading.get_ident()
    await runtime.close()


async def test_completions_for_a_loop_that_is_gone_are_dropped() -> None:
    other = asyncio.new_event_loop()
    other.close()
    runtime = ThreadRuntime(other)
    ended = threading.Event()

    async def works() -> None:
        ended.set()

    runtime.run(works, lambda result, error: None)
    await asyncio.to_thread(ended.wait, 20)
    await runtime.close()
    assert not runtime._tasks


async def test_work_for_an_ended_runtime_is_answered_and_fails_nobody() -> None:
    runtime = ThreadRuntime(asyncio.get_running_loop())
    await runtime.close()
    heard: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        raise AssertionError("never started")

    runtime.run(work, lambda result, error: heard.set_result(error))
    async with asyncio.timeout(10):
        assert isinstance(await heard, ResourceUnavailable)


async def test_what_comes_last_runs_on_the_loop_of_the_effects_when_all_have_ended() -> None:
    """A connection can only be closed where it was made."""
    seen: list[tuple[str, asyncio.AbstractEventLoop]] = []
    begun = threading.Event()

    async def note(what: str) -> None:
        seen.append((what, asyncio.get_running_loop()))

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await note("ended")

    runtime = ThreadRuntime(asyncio.get_running_loop(), last=lambda: note("last"))
    endings = Endings()
    runtime.run(endless, endings.done)
    await asyncio.to_thread(begun.wait, 20)
    await runtime.close()
    await endings.wait(1)
    assert [what for what, _ in seen] == ["ended", "last"]
    assert seen[0][1] is seen[1][1] is not asyncio.get_running_loop()
