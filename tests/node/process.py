"""One whole node in a simulated process: everything real but disk, network, clock and the resource."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

from fencepost.jepsen.cores.disk import Disk
from fencepost.raft.core.entry import Entry
from fencepost.raft.core.errors import StorageError
from fencepost.raft.core.events import Persist
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.resources.memory import FakeResource
from fencepost.raft.ports import Answered, Attempt, AttemptOutcome, Fence, Guarantee, Resource

from .virtual_time import VirtualTimeLoop

T = TypeVar("T")

WALL_CLOCK_NS = 1_700_000_000_000_000_000


class ProcessLoop:
    """A process's view of the loop: while it is paused nothing of it runs, once it is dead nothing ever does."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop
        self.paused = False
        self.dead = False
        self._backlog: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._resumed: asyncio.Future[None] | None = None

    def _guarded(self, callback: Callable[..., object], *arguments: Any) -> None:
        if self.dead:
            return
        if self.paused:
            self._backlog.append((callback, arguments))
            return
        callback(*arguments)

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> asyncio.Handle:
        return self._loop.call_soon(self._guarded, callback, *arguments)

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(delay, self._guarded, callback, *arguments)

    def create_future(self) -> asyncio.Future[Any]:
        return self._loop.create_future()

    def create_task(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return self._loop.create_task(coroutine, context=contextvars.copy_context())

    def pause(self) -> None:
        self.paused = True
        if self._resumed is None:
            self._resumed = self._loop.create_future()

    def resume(self) -> None:
        """What had become due runs now, late, in the order in which it became due."""
        if not self.paused:
            return
        self.paused = False
        backlog, self._backlog = self._backlog, deque()
        for callback, arguments in backlog:
            self.call_soon(callback, *arguments)
        if self._resumed is not None:
            self._resumed.set_result(None)
            self._resumed = None

    async def runnable(self) -> None:
        """Returns while the process is not paused."""
        while self.paused and not self.dead:
            assert self._resumed is not None
            await asyncio.shield(self._resumed)


def as_event_loop(process: ProcessLoop) -> asyncio.AbstractEventLoop:
    """The parts of a node use no more of their loop than :class:`ProcessLoop` has."""
    return cast(asyncio.AbstractEventLoop, process)


class SimClock:
    """``ports.Clock`` on virtual time. ``skew_ns`` may be changed: somebody sets the wall clock."""

    def __init__(self, loop: VirtualTimeLoop, *, offset_ns: int = 0) -> None:
        self._loop = loop
        self._offset_ns = offset_ns
        self.skew_ns = 0

    def monotonic_ns(self) -> int:
        return self._loop.now_ns + self._offset_ns

    def time_ns(self) -> int:
        return WALL_CLOCK_NS + self._loop.now_ns + self.skew_ns


class SimLogStore:
    """``ports.LogStore`` over a disk that outlives the process. Writes take ``delay_s`` each."""

    def __init__(self, disk: Disk, loop: VirtualTimeLoop, process: ProcessLoop, *, delay_s: float = 0.001) -> None:
        self._disk = disk
        self._loop = loop
        self._process = process
        self.delay_s = delay_s
        self.failed = False
        self.closed = False
        self._on_durable: Callable[[int], None] = lambda sequence: None
        self._on_failure: Callable[[StorageError], None] = lambda error: None
        self._busy = False

    def start(self, on_durable: Callable[[int], None], on_failure: Callable[[StorageError], None]) -> None:
        self._on_durable = on_durable
        self._on_failure = on_failure

    def append(self, write: Persist) -> None:
        self._disk.ask(write)
        self._go_on()

    def read(self, start: int, end: int, bytes_max: int) -> list[Entry]:
        return self._disk.read(start, end, bytes_max)

    def close(self) -> None:
        self.closed = True

    def stick(self) -> None:
        self._disk.stuck = True

    def unstick(self) -> None:
        self._disk.stuck = False
        self._go_on()

    def fail(self, error: StorageError) -> None:
        """The write under way fails; nothing completes any more (S12)."""
        self.failed = True
        self._on_failure(error)

    def _go_on(self) -> None:
        if not self._busy and self._disk.pending:
            self._busy = True
            self._loop.call_later(self.delay_s, self._synced, len(self._disk.pending))

    def _synced(self, count: int) -> None:
        self._busy = False
        if self._disk.stuck or self.failed or self._process.dead:
            return
        sequence = 0
        for _ in range(count):
            sequence = self._disk.complete()
        self._on_durable(sequence)
        self._go_on()


class GatedResource:
    """A resource as one process reaches it: with a way there and a way back that a test can block.

    ``hold_before`` stops batches just before they are sent, ``hold_after`` the answers on their way
    back: the effect has then happened.
    """

    def __init__(self, inner: FakeResource, process: ProcessLoop, *, delay_s: float = 0.001) -> None:
        self.inner = inner
        self.process = process
        self.delay_s = delay_s
        self.hold_before = False
        self.hold_after = False
        self.held: list[asyncio.Future[None]] = []
        self.claims_fail: BaseException | None = None
        self.executes_fail: BaseException | None = None
        """Raised in place of sending anything."""
        self.hang_claims = False
        self.watch: Callable[[FencingToken, Sequence[Attempt]], None] = lambda token, attempts: None
        """Sees every batch as it is handed over; what it raises ends the node."""
        self.running = 0
        self.running_max = 0
        self.batches: list[list[str]] = []
        """Operation ids of every batch that was sent."""
        self.sent_at: list[tuple[int, str]] = []
        """(virtual nanoseconds, operation id) of every attempt that was sent."""
        self.asked: list[tuple[str, int]] = []
        """(operation id, last attempt) of every question about an operation."""
        self.look: Callable[[Attempt], None] = lambda attempt: None
        """Sees what every question is about."""
        self.query_fails: BaseException | None = None
        self.hang_queries = False
        self.dedupes_by_place = False
        self.refusal_tells = True
        self.forgets: list[tuple[FencingToken, int]] = []
        """(token, index below which) of every time it was to give up what it keeps."""
        self.forget_fails: BaseException | None = None

    name = property(lambda self: self.inner.name)
    guarantee: Guarantee = property(lambda self: self.inner.guarantee)  # type: ignore[assignment]
    effects: frozenset[str] = property(lambda self: self.inner.effects)  # type: ignore[assignment]
    batch_limit: int = property(lambda self: self.inner.batch_limit)  # type: ignore[assignment]
    concurrency: int = property(lambda self: self.inner.concurrency)  # type: ignore[assignment]
    kind = "memory"

    def release(self) -> None:
        held, self.held = self.held, []
        for waiting in held:
            if not waiting.done():
                waiting.set_result(None)

    async def _travel(self, hold: bool) -> None:
        if hold and not self.process.dead:
            gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.held.append(gate)
            await gate
        await asyncio.sleep(self.delay_s)
        await self.process.runnable()

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def claim(self, token: FencingToken, holder: str) -> Fence | None:
        await self._travel(self.hang_claims)
        if self.claims_fail is not None:
            raise self.claims_fail
        result = await self.inner.claim(token, holder)
        await self._travel(False)
        return result

    async def execute(self, token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        try:
            self.watch(token, attempts)
            await self._travel(self.hold_before)
            if self.executes_fail is not None:
                raise self.executes_fail
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualTimeLoop)
            self.batches.append([attempt.operation_id for attempt in attempts])
            self.sent_at.extend((loop.now_ns, attempt.operation_id) for attempt in attempts)
            result = await self.inner.execute(token, holder, attempts)
            await self._travel(self.hold_after)
            return result
        finally:
            self.running -= 1

    async def fence(self) -> Fence | None:
        await self._travel(False)
        return await self.inner.fence()


class QueryableResource(GatedResource):
    """One that can be asked what has become of an operation."""

    absence_is_final = True
    """What a process of this world has sent has arrived before it can end."""

    async def query(self, attempt: Attempt) -> Answered:
        await self._travel(False)
        self.asked.append((attempt.operation_id, attempt.number))
        if self.hang_queries:
            await asyncio.get_running_loop().create_future()
        self.look(attempt)
        if self.query_fails is not None:
            raise self.query_fails
        return await self.inner.query(attempt)


class PrunableResource(GatedResource):
    """One that gives up what the cluster has forgotten."""

    async def forget(self, token: FencingToken, holder: str, below: int, limit: int) -> bool:
        await self._travel(False)
        self.forgets.append((token, below))
        if self.forget_fails is not None:
            raise self.forget_fails
        return await self.inner.forget(token, holder, below, limit)


def as_resource(gated: GatedResource) -> Resource:
    return cast(Resource, gated)
