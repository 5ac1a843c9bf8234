"""Stops a node between two lines of its own code, as a frozen process is stopped, and lets it go on or ends it there.

Every fault that lies between a check and a write is one of these places, so they are gone through one after the other.
The lines are Python's trace events: what one line does is one step, and so is a whole transaction in a server.
"""

from __future__ import annotations

import dis
import os
import sysconfig
import threading
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_OURS = os.path.realpath(Path(__file__).resolve().parents[2])
_INSTALLED = tuple(
    {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_OUR_ROOMS = tuple(f"{_OURS}{os.sep}{room}{os.sep}" for room in ("raft", "storage", "transport", "cli", "jepsen"))


class Ended(BaseException):
    """The node is ended where it stands. No ``except Exception`` catches it."""


class Files:
    """Whose lines are steps: the user's own, and those of ``besides``."""

    def __init__(self, besides: Iterable[Path | str]) -> None:
        self._besides = tuple(os.path.realpath(each) for each in besides)
        self._known: dict[str, bool] = {}

    def hold(self, file: str) -> bool:
        found = self._known.get(file)
        if found is None:
            found = self._known[file] = self._judge(file)
        return found

    def _judge(self, file: str) -> bool:
        if file.startswith("<"):
            return False
        path = os.path.realpath(file)
        if any(path == each or path.startswith(each + os.sep) for each in self._besides):
            return True
        return not path.startswith(_INSTALLED) and not path.startswith(_OUR_ROOMS)


@cache
def _exits(code: CodeType) -> frozenset[int]:
    """Where the code leaves a ``with``, as offsets: ``__exit__(None, None, None)`` is called from there."""
    steps = [each for each in dis.get_instructions(code) if each.opname not in ("CACHE", "PRECALL")]
    found = set()
    for place in range(len(steps) - 3):
        nones, call = steps[place : place + 3], steps[place + 3]
        if call.opname == "CALL" and all(each.opname == "LOAD_CONST" and each.argval is None for each in nones):
            # What is returned is put out of the way before, and the line begins there.
            found |= {each.offset for each in (steps[max(0, place - 2) : place + 1])}
    return frozenset(found)


class Stepper:
    """Counts the steps of one node's threads while it is armed, and stops it before one of them."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._go = threading.Event()
        self._armed = False
        self._stop_before = 0
        self._stopped = False
        self._error: type[BaseException] | None = None
        self.steps = 0
        self.place = ""
        """Where it stands, ``file:line``."""
        self.may_end = True
        """Whether it can be given an error there. Not on the way out of a ``with``: its ``__exit__`` would be passed
        over, which neither an error nor a crash does: the one goes through it, and after the other locks are free."""
        self.halted = threading.Event()
        """Set when it stands; whoever waits for that puts an event of his own here."""

    @property
    def stopped(self) -> bool:
        return self._stopped

    def arm(self, stop_before: int = 0) -> None:
        """Count from here; stand still before step ``stop_before`` (0: before none)."""
        with self._lock:
            self.steps, self._stop_before, self._armed = 0, stop_before, True

    def disarm(self) -> None:
        with self._lock:
            self._armed = False

    def wake(self, error: type[BaseException] | None = None) -> None:
        """Let it go on; with ``error`` it gets that instead of its next step. Nothing if it does not stand."""
        with self._lock:
            self._armed = False
            self._error = error if self._stopped else None
        self._go.set()

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """For ``sys.settrace`` of each thread of the node."""
        return self._trace_lines if self._files.hold(frame.f_code.co_filename) else None

    def _trace_lines(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and self._armed:
            self._step(frame)
        return self._trace_lines

    def _step(self, frame: FrameType) -> None:
        with self._lock:
            if not self._armed:
                return
            if not self._stopped:
                self.steps += 1
                if self.steps == self._stop_before:
                    self._stopped = True
                    self.may_end = frame.f_lasti not in _exits(frame.f_code)
                    self.place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
                    self.halted.set()
            stopped = self._stopped
        if stopped:
            # Every thread of a frozen process stands, each before its next step.
            self._go.wait()
            if self._error is not None:
                raise self._error
