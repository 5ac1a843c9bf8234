"""Virtual time: what is to happen, in order, and a clock that jumps from one event to the next.

Nothing waits. An hour of simulated time costs as much as what happens in it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from .violation import Violation

if TYPE_CHECKING:
    from .loop import SimLoop

SPINS_MAX = 1_000_000
"""Callbacks at one moment; a world that makes more is in a busy loop."""


class Handle(asyncio.TimerHandle):
    """A callback that runs in a thread of a process, now or later, unless it is cancelled.

    ``asyncio.TimerHandle`` by interface only: what the base class prepares for each one (a copied
    context, a place for a traceback) costs more than all of this.
    """

    __slots__ = ("arguments", "callback", "due_ns", "loop")

    def __init__(self, loop: SimLoop, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.loop = loop
        self.callback: Callable[..., object] | None = callback
        self.arguments = arguments
        self.due_ns = 0

    def cancel(self) -> None:
        self.callback = None
        self.arguments = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.due_ns / 1e9

    def __repr__(self) -> str:
        return f"<Handle {self.callback} at {self.due_ns}>"


class Agenda:
    """The clock of the world and everything that is still to happen. All times are nanoseconds.

    What has the same time happens in the order in which it was put down.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self.ready: deque[Handle] = deque()
        """What runs before time goes on."""
        self.heap: list[tuple[int, int, Handle]] = []
        """What runs later: (time, order, what)."""
        self._orders = count(1)
        self.next_order = self._orders.__next__

    @staticmethod
    def running() -> asyncio.AbstractEventLoop | None:
        """The thread that runs at this moment."""
        return asyncio._get_running_loop()

    def put(self, when_ns: int, handle: Handle) -> None:
        """Let ``handle`` run at ``when_ns``, or now if that is over."""
        heapq.heappush(self.heap, (when_ns, self.next_order(), handle))

    @property
    def last_order(self) -> int:
        """How much has been put down so far: a measure of what has happened."""
        return int(self._orders.__reduce__()[1][0]) - 1

    def run_to(self, end_ns: int) -> None:
        """Everything that happens up to ``end_ns``, included. What a callback raises comes out here."""
        self._run(end_ns, None)
        if end_ns > self.now_ns:
            self.now_ns = end_ns

    def run_until(self, holds: Callable[[], object], end_ns: int) -> bool:
        """Run moment by moment until ``holds()``; False if it does not by ``end_ns``."""
        if self._run(end_ns, holds):
            return True
        if end_ns > self.now_ns:
            self.now_ns = end_ns
        return False

    def _run(self, end_ns: int, holds: Callable[[], object] | None) -> bool:
        previous = asyncio._get_running_loop()
        try:
            while True:
                try:
                    return self._run_on(end_ns, holds)
                except ProcessEnded:
                    pass  # That process is dead; the others go on.
        finally:
            asyncio._set_running_loop(previous)

    def _run_on(self, end_ns: int, holds: Callable[[], object] | None) -> bool:
        """The heart of the simulation, and most of its own cost: no call more than needed."""
        heap, ready = self.heap, self.ready
        popleft, heappop, set_running_loop = ready.popleft, heapq.heappop, asyncio._set_running_loop
        running: SimLoop | None = None
        spins = 0
        while True:
            while ready:
                handle = popleft()
                callback = handle.callback
                if callback is None:
                    continue
                loop = handle.loop
                if loop.hindered:
                    loop.defer(handle)
                    continue
                if loop is not running:
                    set_running_loop(loop)
                    running = loop
                spins += 1
                if spins > SPINS_MAX:
                    raise Violation(f"a busy loop: {handle} and {list(ready)[:5]}")
                callback(*handle.arguments)
            if holds is not None and holds():
                return True
            if not heap:
                return False
            first = heap[0]
            if first[0] > end_ns:
                return False
            heappop(heap)
            if first[0] > self.now_ns:
                self.now_ns = first[0]
                spins = 0
            ready.append(first[2])


class ProcessEnded(BaseException):
    """The process that was running has come to its end in the middle of what it did, and does no more.

    Not an Exception: nothing in a process can catch its own SIGKILL.
    """
