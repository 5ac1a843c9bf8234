"""Group commit for the fence file: whatever has come while one transaction was synced shares the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from .marks import Marks

T = TypeVar("T")

TOGETHER_MAX = 256
"""In one transaction."""


class Writer:
    """Calls methods of ``marks`` on a thread of its own, in the order in which they were asked for. Whoever asks hears
    the result once it is durable, and in the same order."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fencepost-proxy")
        self._waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, work: Callable[[], T]) -> T:
        """Raises what ``work`` raises, and ``sqlite3.Error``."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._waiting.append((work, answer))
        if self._task is None:
            self._task = loop.create_task(self._write())
        return await answer

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
            works = [work for work, _ in batch]
            try:
                results = await loop.run_in_executor(self._thread, self._marks.together, works)
            except Exception as error:
                results = [(None, error)] * len(batch)
            for (_, answer), (result, failure) in zip(batch, results, strict=True):
                if answer.done():
                    continue  # Whoever asked was cut off; what was done is done.
                if failure is None:
                    answer.set_result(result)
                else:
                    answer.set_exception(failure)
        self._task = None

    async def close(self) -> None:
        """Let what was asked for end, then close the file."""
        if self._task is not None:
            await self._task
        await asyncio.get_running_loop().run_in_executor(self._thread, self._marks.close)
        self._thread.shutdown(wait=False)
