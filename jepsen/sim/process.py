"""One operating-system process: its threads, and the signals that stop, continue and kill it.

A node has one for its event loop, one for its effects, one that writes the log and one for snapshots.
A signal meets all of them; a long callback only the thread it runs in.
"""

from __future__ import annotations

from collections.abc import Callable

from .agenda import Agenda
from .clock import SimClock
from .loop import SimLoop


class Process:
    """``clock`` is the machine's, as this process sees it since its start."""

    def __init__(self, agenda: Agenda, clock: SimClock) -> None:
        self.agenda = agenda
        self.clock = clock
        self.dead = False
        self.silent = False
        """It has ended with its whole machine: nobody resets its connections."""
        self.paused = False
        self._threads: list[SimLoop] = []
        self._at_death: list[Callable[[], None]] = []
        self.loop = self.thread()
        """The thread of the node itself."""

    def thread(self) -> SimLoop:
        """A new thread of this process."""
        # asyncio's abstract class raises for what is left out: sockets, signals, subprocesses.
        loop = SimLoop(self.agenda, self.clock)  # type: ignore[abstract]
        self._threads.append(loop)
        return loop

    def at_death(self, callback: Callable[[], None]) -> None:
        """What the operating system does behind it: close its sockets, release its locks."""
        self._at_death.append(callback)

    def pause(self) -> None:
        """SIGSTOP. Its sockets go on filling, its timers go on running out; nothing of it runs."""
        if not self.dead and not self.paused:
            self.paused = True
            for thread in self._threads:
                thread.set_stopped(True)

    def resume(self) -> None:
        """SIGCONT. What has become due runs now, late, in the order in which it became due."""
        if not self.dead and self.paused:
            self.paused = False
            for thread in self._threads:
                thread.set_stopped(False)

    def kill(self, *, silent: bool = False) -> None:
        """SIGKILL, or the end of the process by itself. Nothing of it is heard of again."""
        if self.dead:
            return
        self.dead = True
        self.silent = silent
        for thread in self._threads:
            thread.die()
        for callback in self._at_death:
            callback()
