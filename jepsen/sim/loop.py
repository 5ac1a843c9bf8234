"""An asyncio event loop on virtual time: one thread of one simulated process.

Tasks, futures, timeouts and locks are asyncio's own; this loop only decides what runs when. There is
no selector and no thread: what comes from outside is put on the world's agenda. A thread can be
*hindered*: stopped with its process, held up by a long callback, or slow at each one. Then what has
become due waits, and runs late, in the order in which it became due.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

from .agenda import Agenda, Handle
from .clock import SimClock
from .violation import Violation

T = TypeVar("T")

TASKS_KEPT = 32
"""Beyond this many, tasks that have ended are forgotten at the next one made."""


class SimLoop(asyncio.AbstractEventLoop):
    """``clock`` is the node's: timers follow it, as fast or as slow as it goes."""

    def __init__(self, agenda: Agenda, clock: SimClock) -> None:
        self.agenda = agenda
        self.clock = clock
        self.hindered = False
        self.dead = False
        self.stopped = False
        """With its whole process, by a signal."""
        self._append = agenda.ready.append
        self._cost_ns = 0
        self._busy_until_ns = 0
        self._backlog: deque[Handle] = deque()
        self._awaited = False
        """The end of what it is busy with is on the agenda."""
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._tasks_looked_at = TASKS_KEPT

    # -- asyncio's side -----------------------------------------------------------------------------

    def time(self) -> float:
        return self.clock.monotonic_ns() / 1e9

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        handle = Handle(self, callback, args)
        self._append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(self, callback, args)
        self._append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(self, callback, args)
        agenda = self.agenda
        handle.due_ns = due_ns = agenda.now_ns + self.clock.true_ns(int(delay * 1e9 + 0.999))
        agenda.put(due_ns, handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_later(when - self.time(), callback, *args)

    def call_after_ns(self, delay_ns: int, callback: Callable[..., object], *args: Any) -> Handle:
        """As ``call_later``, in true nanoseconds: for what the world does to this thread, not for what it plans."""
        handle = Handle(self, callback, args)
        handle.due_ns = due_ns = self.agenda.now_ns + delay_ns
        self.agenda.put(due_ns, handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name)
        self._tasks[task] = None
        if len(self._tasks) > self._tasks_looked_at:
            self._tasks = {task: None for task in self._tasks if not task.done()}
            self._tasks_looked_at = max(TASKS_KEPT, 2 * len(self._tasks))
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """asyncio tells of a task that died unseen. That is a bug of whoever owned it, unless the process died."""
        if not self.dead:
            error = context.get("exception")
            self.agenda.put(self.agenda.now_ns, Handle(self, _raise, (f"{context['message']}: {error!r}", error)))

    # -- what holds it up ---------------------------------------------------------------------------

    def defer(self, handle: Handle) -> None:
        """This is due, and the thread cannot run it now."""
        if self.dead:
            return
        self._backlog.append(handle)
        self._await_free()

    def block(self, duration_ns: int) -> None:
        """The thread does nothing else for so long: a callback that computes, a collection, a page fault."""
        self._busy_until_ns = max(self._busy_until_ns, self.agenda.now_ns) + duration_ns
        self.hindered = True
        self._await_free()

    def slow_down(self, cost_ns: int) -> None:
        """From now on every callback takes so long; 0: none takes any time."""
        self._cost_ns = cost_ns
        self.hindered = True
        self._await_free()

    def set_stopped(self, stopped: bool) -> None:
        self.stopped = stopped
        self.hindered = True
        self._await_free()

    def die(self) -> None:
        """Nothing of it runs any more, not even the ends of what had begun."""
        self.dead = self.hindered = True
        self._backlog.clear()
        tasks, self._tasks = self._tasks, {}
        for task in tasks:
            coroutine = task.get_coro()
            if not task.done() and not getattr(coroutine, "cr_running", False):
                coroutine.close()

    def _await_free(self) -> None:
        if not self._awaited and not self.stopped and not self.dead:
            self._awaited = True
            self.agenda.put(max(self._busy_until_ns, self.agenda.now_ns), Handle(_Free(), self._free, ()))  # type: ignore[arg-type]

    def _free(self) -> None:
        self._awaited = False
        if self.dead or self.stopped:
            return
        agenda, backlog = self.agenda, self._backlog
        if self._busy_until_ns > agenda.now_ns:
            self._await_free()
        elif not self._cost_ns:
            self.hindered = False
            agenda.ready.extend(backlog)
            backlog.clear()
        elif backlog:
            # One at a time. What it is told to run meanwhile comes behind what waits already.
            handle = backlog.popleft()
            self._busy_until_ns = agenda.now_ns + self._cost_ns
            if backlog:
                self._await_free()
            callback = handle.callback
            if callback is not None:
                asyncio._set_running_loop(self)
                callback(*handle.arguments)


class _Free:
    """The loop of a handle that always runs: the thread it frees is hindered itself."""

    hindered = False


def _raise(text: str, error: BaseException | None) -> None:
    raise Violation(text) from error
