"""Many submissions through a window: bounded memory, no task for each, results as they end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator

from ..raft.core.errors import FencepostError
from ..raft.outbox.codec import Command
from ..raft.ports import Answer

Start = Callable[[Command], "asyncio.Future[Answer]"]


class _Window:
    """What is under way and what has ended."""

    def __init__(self, start: Start, size: int) -> None:
        self._start = start
        self._size = max(1, size)
        self.under_way: dict[asyncio.Future[Answer], Command] = {}
        self.ended: deque[tuple[Command, Answer | FencepostError]] = deque()
        self.exhausted = False
        self.source_error: BaseException | None = None
        self.changed = asyncio.Event()

    @property
    def full(self) -> bool:
        # What has ended and was not taken yet counts too: a slow reader holds back the source.
        return len(self.under_way) + len(self.ended) >= self._size

    def add(self, command: Command) -> None:
        try:
            future = self._start(command)
        except FencepostError as error:
            self._end(command, error)
            return
        self.under_way[future] = command
        future.add_done_callback(self._done)

    def _done(self, future: asyncio.Future[Answer]) -> None:
        command = self.under_way.pop(future, None)
        if command is None or future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._end(command, future.result())
        elif isinstance(error, FencepostError):
            self._end(command, error)
        else:
            self.source_error = error
            self.changed.set()

    def _end(self, command: Command, result: Answer | FencepostError) -> None:
        self.ended.append((command, result))
        self.changed.set()

    def abandon(self) -> None:
        under_way, self.under_way = self.under_way, {}
        for future in under_way:
            future.cancel()


async def submit_window(
    start: Start, commands: Iterable[Command] | AsyncIterable[Command], *, window: int
) -> AsyncIterator[tuple[Command, Answer | FencepostError]]:
    """Yield (command, answer or error) as each ends; an error of the source is raised when the
    commands before it have ended."""
    state = _Window(start, window)
    feeder: asyncio.Task[None] | None = None
    source = iter(commands) if isinstance(commands, Iterable) else None
    room = asyncio.Event()
    if source is None:
        assert isinstance(commands, AsyncIterable)
        feeder = asyncio.get_running_loop().create_task(_feed(commands, state, room), name="fencepost-submit-many")
    try:
        while True:
            if source is not None:
                _fill(source, state)
            while state.ended:
                yield state.ended.popleft()
                room.set()
            if state.exhausted and not state.under_way:
                break
            if not state.full and source is not None and not state.exhausted:
                continue
            state.changed.clear()
            if not state.ended:
                await state.changed.wait()
        if state.source_error is not None:
            raise state.source_error
    finally:
        if feeder is not None:
            feeder.cancel()
            await asyncio.wait({feeder})
        state.abandon()


def _fill(source: Iterator[Command], state: _Window) -> None:
    while not state.full and not state.exhausted:
        try:
            command = next(source)
        except StopIteration:
            state.exhausted = True
            return
        except Exception as error:
            # The source is the caller's code: its error is his, but later than what it gave before.
            state.source_error = error
            state.exhausted = True
            return
        state.add(command)


async def _feed(commands: AsyncIterable[Command], state: _Window, room: asyncio.Event) -> None:
    try:
        async for command in commands:
            while state.full:
                room.clear()
                await room.wait()
            state.add(command)
    except asyncio.CancelledError:
        raise
    except Exception as error:  # the caller's code, as in _fill
        state.source_error = error
    finally:
        state.exhausted = True
        state.changed.set()
