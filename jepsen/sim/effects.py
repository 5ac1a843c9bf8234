"""The effects' side of one process: the thread that effects run on, and resources as it reaches them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

from ...raft.core.errors import ResourceUnavailable
from ...raft.core.token import FencingToken
from ...raft.effects.runtime import Completion
from ...raft.ports import Answered, Attempt, AttemptOutcome, AttemptStatus, Fence, Guarantee
from .loop import SimLoop
from .process import Process
from .resource import NO_TOKEN, OutsideResource, Request


class SimRuntime:
    """``EffectsRuntime``: as the real one has a thread for effects, so has this; hops between the two take no time."""

    def __init__(self, node: SimLoop, effects: SimLoop) -> None:
        self._node = node
        self._effects = effects
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._closed = False

    def run(self, work: Callable[[], Coroutine[Any, Any, Any]], done: Completion) -> None:
        if self._closed:
            self._node.call_soon(done, None, ResourceUnavailable("effects have ended on this node"))
        else:
            self._effects.call_soon(self._start, work, done)

    def _start(self, work: Callable[[], Coroutine[Any, Any, Any]], done: Completion) -> None:
        task = self._effects.create_task(self._carry(work, done))
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)

    async def _carry(self, work: Callable[[], Coroutine[Any, Any, Any]], done: Completion) -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = await work()
        except GeneratorExit:
            raise  # The process has been killed: there is nobody to be told.
        except BaseException as raised:  # Cancellation too: whoever waits must hear that it ended.
            error = raised
        self._node.call_soon(done, result, error)

    async def close(self) -> None:
        self._closed = True
        for task in list(self._tasks):
            task.cancel()


class ResourceClient:
    """``ports.Resource``: one outside resource as one process reaches it, with a way there and a way back."""

    kind = "memory"
    dedupes_by_place = False
    refusal_tells = True

    def __init__(
        self, outside: OutsideResource, process: Process, thread: SimLoop, node: str, boot: int, chance: Random
    ) -> None:
        spec = outside.spec
        self.name = spec.name
        self.guarantee = spec.guarantee
        self.batch_limit = spec.batch_limit
        self.concurrency = spec.concurrency
        self.effects = outside.inner.effects
        self.under_way = 0
        """``execute`` calls that have left and not come back."""
        self._outside = outside
        self._process = process
        self._thread = thread
        self._node = node
        self._boot = boot
        self._chance = chance

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def claim(self, token: FencingToken, holder: str) -> Fence | None:
        result: Fence | None = await self._call("claim", token, holder, ())
        return result

    async def fence(self) -> Fence | None:
        result: Fence | None = await self._call("fence", NO_TOKEN, "", ())
        return result

    async def execute(self, token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
        self.under_way += 1
        looks = self._outside.hooks.on_effect
        if looks:
            for look in tuple(looks):
                look(self._node, self.name, token)
        try:
            outcomes: list[AttemptOutcome] = await self._call("execute", token, holder, attempts)
            return outcomes
        except ResourceUnavailable as error:
            if self.guarantee is Guarantee.FENCED:
                raise
            # A handler that gets no answer, or a refused connection, says so for each attempt.
            definite = error.outcome.value != "unknown"
            status = AttemptStatus.RETRY if definite else AttemptStatus.UNKNOWN
            return [AttemptOutcome(status, b"", str(error), False)] * len(attempts)
        finally:
            self.under_way -= 1

    async def _call(self, kind: str, token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> Any:
        thread = self._thread
        answered = thread.create_future()
        settings = self._outside.settings

        def reply(result: Any, error: BaseException | None) -> None:
            thread.call_after_ns(self._way_ns(), settle, result, error)

        def settle(result: Any, error: BaseException | None) -> None:
            if answered.done():
                return
            if error is None:
                answered.set_result(result)
            else:
                answered.set_exception(error)

        request = Request(kind, self._node, self._boot, token, holder, attempts, thread.agenda.now_ns, reply)
        # On its way it belongs to the network: it arrives whatever becomes of this process.
        self._outside.outside.call_after_ns(self._way_ns(), self._outside.arrive, request)
        impatient = ResourceUnavailable(
            f"no answer within {settings.patience_ns / 1e9:g} s from resource {self.name!r}"
        )
        timer = thread.call_after_ns(settings.patience_ns, settle, None, impatient)
        try:
            return await answered
        finally:
            timer.cancel()

    def _way_ns(self) -> int:
        settings = self._outside.settings
        drawn = self._chance.random()
        if drawn < settings.tail:
            tail_ns = int(settings.tail_ns * self._chance.paretovariate(settings.tail_alpha))
            return settings.way_min_ns + min(tail_ns, settings.tail_max_ns)
        return settings.way_min_ns + int(drawn * settings.way_spread_ns)


class QueryableClient(ResourceClient):
    """``ports.QueryableResource``."""

    absence_is_final = True

    async def query(self, attempt: Attempt) -> Answered:
        answer: Answered = await self._call("query", NO_TOKEN, "", (attempt,))
        return answer
