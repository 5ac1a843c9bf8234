"""One node of a cell: a handle on the world, on a thread and a loop of its own, as if it were a process."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import queue
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any, NamedTuple, cast

import structlog

from ...raft.core.errors import DuplicateGeneration, FencepostError, Outcome, StaleLeader, WrongCluster
from ...raft.core.token import FencingToken
from ...raft.effects.handlers import EffectContext
from ...raft.effects.resources.python import Handler, PythonEffect, PythonResource
from ...raft.ports import Attempt, AttemptStatus, Found, Guarantee, QueryableResource, Resource
from .steps import Ended, Stepper
from .world import ClaimedEffect, NodeHandle

RESOURCE = "contract"


class Word(StrEnum):
    """What a node heard."""

    DONE = "done"
    STALE = "STALE_LEADER"
    DUPLICATE = "DUPLICATE_GENERATION"
    WRONG_CLUSTER = "WRONG_CLUSTER"
    FAILED = "failed"
    RETRY = "not applied, may be retried"
    UNKNOWN = "unknown"
    ENDED = "ended"
    SILENT = "no answer"


class Said(NamedTuple):
    word: Word
    result: Any = b""
    why: str = ""

    def __str__(self) -> str:
        return f"{self.word} ({self.why})" if self.why else f"{self.word}"


_FOUND = {Found.APPLIED: Word.DONE, Found.NOT_APPLIED: Word.FAILED, Found.UNKNOWN: Word.UNKNOWN}

_STATUSES = {
    AttemptStatus.SUCCEEDED: Word.DONE,
    AttemptStatus.FAILED: Word.FAILED,
    AttemptStatus.RETRY: Word.RETRY,
    AttemptStatus.NOT_ATTEMPTED: Word.RETRY,
    AttemptStatus.UNKNOWN: Word.UNKNOWN,
    AttemptStatus.DOUBT: Word.UNKNOWN,
}


def _drop(*_: Any) -> Any:
    raise structlog.DropEvent


_SILENCE = structlog.wrap_logger(None, processors=[_drop])


class _Quiet(PythonResource):
    """What a handler logs is dropped: it would say the same for every step, and most of it about faults made here."""

    def _context(self, token: FencingToken, holder: str, attempt: Attempt, timeout_s: float) -> EffectContext:
        return dataclasses.replace(super()._context(token, holder, attempt, timeout_s), log=_SILENCE)


class Call:
    """One thing that a node was asked to do, on its thread."""

    def __init__(self) -> None:
        self._said: queue.SimpleQueue[Said] = queue.SimpleQueue()
        self._heard: Said | None = None
        self.settled = threading.Event()
        """It has ended, or the node stands still in it."""

    def end(self, said: Said) -> None:
        self._said.put(said)
        self.settled.set()

    def wait(self, bound_s: float) -> Said:
        if self._heard is None:
            try:
                self._heard = self._said.get(timeout=bound_s)
            except queue.Empty:
                return Said(Word.SILENT, why=f"within {bound_s:g} s")
        return self._heard


class Node:
    """Opens the handle that ``make`` gives. Everything of it happens on this node's thread."""

    def __init__(
        self, make: Callable[[], NodeHandle], effect: str, guarantee: Guarantee, stepper: Stepper, bound_s: float
    ) -> None:
        self.stepper = stepper
        self.is_handler = False
        self.hears_claims = True
        """Whether the outside world is told who claims it."""
        self._make = make
        self._effect = effect
        self._guarantee = guarantee
        self._bound_s = bound_s
        self._resource: Resource | None = None
        self._jobs: queue.SimpleQueue[Callable[[asyncio.Runner], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._live, name="contract-node", daemon=True)
        self._thread.start()

    # -- what it is asked for ------------------------------------------------------------------------

    def open(self) -> Said:
        return self._start(self._open, threads_too=True).wait(self._bound_s)

    def claim(self, token: FencingToken, holder: str) -> Said:
        return self._start(lambda: self._used().claim(token, holder)).wait(self._bound_s)

    def execute(self, token: FencingToken, holder: str, attempt: Attempt) -> Said:
        return self.start(token, holder, attempt).wait(self._bound_s)

    def start(self, token: FencingToken, holder: str, attempt: Attempt) -> Call:
        return self._start(lambda: self._execute(token, holder, attempt))

    def start_and_stop(self, token: FencingToken, holder: str, attempt: Attempt, stop_before: int) -> Call:
        """As :meth:`start`, and wait until it stands before that step (``stepper.stopped``), or has ended without
        coming to it, or has taken longer than the bound."""
        self.stepper.arm(stop_before)
        return self._start(lambda: self._execute(token, holder, attempt), threads_too=True)

    def query(self, attempt: Attempt) -> Said:
        """DONE with the result where it was applied, FAILED where the answer is that nothing is known of it."""
        return self._start(lambda: self._query(attempt)).wait(self._bound_s)

    def close(self) -> None:
        """Whatever stands is ended; what does not end is left behind, on a thread that holds up nobody."""
        self.stepper.wake(Ended)
        self._start(self._close).wait(self._bound_s)
        self._jobs.put(None)
        self._thread.join(self._bound_s)

    # -- on the thread -------------------------------------------------------------------------------

    def _live(self) -> None:
        sys.settrace(self.stepper.trace)
        with asyncio.Runner() as runner:
            while (job := self._jobs.get()) is not None:
                job(runner)

    def _start(self, work: Callable[[], Coroutine[Any, Any, Any]], *, threads_too: bool = False) -> Call:
        call = Call()

        def job(runner: asyncio.Runner) -> None:
            call.end(_hear(runner, work))

        if not threads_too:
            self._jobs.put(job)
            return call
        # Threads that the handle starts meanwhile are threads of this node. The hook is for the whole process, so it
        # is there only while nobody else does anything: until the call has ended or stands.
        before = threading.gettrace()
        threading.settrace(self.stepper.trace)
        try:
            self.stepper.halted = call.settled
            self._jobs.put(job)
            call.settled.wait(self._bound_s)
        finally:
            threading.settrace(before)
        return call

    async def _open(self) -> None:
        handle = self._make()
        self.is_handler = not hasattr(handle, "execute")
        resource = cast("Resource", handle)
        if self.is_handler:
            claimed = handle if isinstance(handle, ClaimedEffect) else None
            self.hears_claims = claimed is not None
            handler = cast("PythonEffect | Handler", handle if claimed is None else claimed.effect)
            effect = handler if isinstance(handler, PythonEffect) else PythonEffect(handler, int(self._bound_s * 1e9))
            hears = claimed is not None and self._guarantee is Guarantee.FENCED
            resource = _Quiet(
                RESOURCE,
                {self._effect: effect},
                guarantee=self._guarantee,
                cluster_id="" if claimed is None else claimed.cluster_id,
                allow_duplicates=True,
                horizon_ns=0,
                claim=claimed.claim if claimed is not None and hears else "",
            )
        self._resource = resource
        await resource.open()

    async def _close(self) -> None:
        if self._resource is not None:
            await self._resource.close()

    def _used(self) -> Resource:
        if self._resource is None:
            raise AssertionError("the node is not open")
        return self._resource

    async def _execute(self, token: FencingToken, holder: str, attempt: Attempt) -> Said:
        (outcome,) = await self._used().execute(token, holder, [attempt])
        return Said(_STATUSES[outcome.status], outcome.result, outcome.error)

    async def _query(self, attempt: Attempt) -> Said:
        resource = self._used()
        if not isinstance(resource, QueryableResource):
            return Said(Word.UNKNOWN, why="it has no query")
        answer = await resource.query(attempt)
        return Said(_FOUND[answer.found], answer.result)


def _release(error: BaseException) -> None:
    """What the frames hold, such as a connection with its lock, goes with a process that ends. A connection of sqlite3
    is a cycle, which only the collector breaks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
        gc.collect()


_REFUSALS: dict[type[FencepostError], Word] = {
    StaleLeader: Word.STALE,
    DuplicateGeneration: Word.DUPLICATE,
    WrongCluster: Word.WRONG_CLUSTER,
}


def _hear(runner: asyncio.Runner, work: Callable[[], Coroutine[Any, Any, Any]]) -> Said:
    try:
        found = runner.run(work())
    except Ended as error:
        _release(error)
        return Said(Word.ENDED)
    except FencepostError as error:
        for kind, word in _REFUSALS.items():
            if isinstance(error, kind):
                return Said(word, why=error.message)
        word = Word.UNKNOWN if error.outcome is Outcome.UNKNOWN else Word.RETRY
        return Said(word, why=error.message)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        traceback.clear_frames(error.__traceback__)
        return Said(Word.UNKNOWN, why=text)
    return found if isinstance(found, Said) else Said(Word.DONE, found)
