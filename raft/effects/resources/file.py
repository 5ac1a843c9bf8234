"""A folder of files as a resource: fence, dedupe and effects are committed by one rename, ``fenced``.

All nodes must reach the same folder on one file system that keeps the rules of POSIX: on one machine, or shared
by a cluster file system. NFS does not keep them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar, TypeVar

import structlog

from ...core.errors import ConfigurationError, FenceError, FencepostError, Outcome, ResourceUnavailable, WrongCluster
from ...core.token import FencingToken
from ...outbox.codec import canonical_json
from ...ports import Answered, Attempt, AttemptOutcome, Fence, Guarantee
from .asking import UNTOLD, still_holds
from .file_calls import Calls
from .file_effect import FileEffect, Plan, Step, Waits
from .file_state import State
from .file_store import FileStore
from .ledger import check_kept
from .outcomes import failed, succeeded, unknown_effect, waits
from .payload_template import NotBindable

__all__ = ["FileEffect", "FileResource"]

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class FileResource:
    """A resource of kind ``file`` (``raft.ports.Resource``).

    ``path`` is the folder, made if need be. ``kept`` is how many operations it recognises exactly; of older ones it
    says that it cannot tell. ``time_ns`` is the wall clock for stamps, ``calls`` the operating system.
    """

    kind: ClassVar[str] = "file"
    guarantee: ClassVar[Guarantee] = Guarantee.FENCED
    absence_is_final: ClassVar[bool] = True
    dedupes_by_place: ClassVar[bool] = True
    refusal_tells: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        path: Path | str,
        effects: Mapping[str, FileEffect],
        *,
        cluster_id: str,
        batch_limit: int = 256,
        kept: int = 1024,
        time_ns: Callable[[], int] = time.time_ns,
        calls: Calls | None = None,
    ) -> None:
        if not cluster_id:
            raise ConfigurationError(f"resource {name!r} has no cluster id to fence by")
        if kept < batch_limit:
            raise ConfigurationError(
                f"resource {name!r} keeps {kept} operations, fewer than one batch of {batch_limit}"
            )
        self.name = name
        self.effects = frozenset(effects)
        self.batch_limit = batch_limit
        self.concurrency = 1  # One rename after the other.
        self._path = os.path.abspath(path)
        self._cluster_id = cluster_id
        self._steps = {
            effect: [Step(name, effect, words) for words in definition.steps] for effect, definition in effects.items()
        }
        self._store = FileStore(name, self._path, cluster_id, kept, calls or Calls())
        self._time_ns = time_ns
        self._claimed: FencingToken | None = None
        self._holder = ""
        """Who has claimed it."""
        self._thread: ThreadPoolExecutor | None = None

    # -- the port: a thin asyncio shell ---------------------------------------------------------------

    async def open(self) -> None:
        """Make the folders that are missing, read the state.

        Raises :class:`ResourceUnavailable`, or :class:`ConfigurationError` for a state of another version.
        """
        if self._thread is None:
            # One thread of its own: a disk may hang, and must hold up neither a loop nor the default pool.
            self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"resource-{self.name}")
        await self._call(self._open)

    async def claim(self, token: FencingToken, holder: str) -> Fence | None:
        return await self._call(lambda: self._claim(token, holder))

    async def execute(self, token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
        if len(attempts) > self.batch_limit:
            raise AssertionError(f"{len(attempts)} attempts for a batch limit of {self.batch_limit}")
        return await self._call(lambda: self._execute(token, holder, attempts))

    async def query(self, attempt: Attempt) -> Answered:
        return await self._call(lambda: self._query(attempt))

    async def fence(self) -> Fence | None:
        stored = (await self._call(self._store.load)).ledger.fence
        return None if stored is None else Fence(stored.token, stored.holder)

    async def close(self) -> None:
        """Let what is under way end. Safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, lambda: None)
            thread.shutdown(wait=False)

    async def _call(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            raise ResourceUnavailable(f"resource {self.name!r} is not open", outcome=Outcome.RETRY)
        # Cancelling the wait does not stop the thread: what is under way ends, and the next call queues behind it.
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: self._told(work))

    def _told(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            raise ResourceUnavailable(
                f"resource {self.name!r}: {self._path}: {error}",
                next_step="check the folder, its disk and the rights of this user",
                outcome=Outcome.UNKNOWN,
            ) from error

    # -- on the thread -----------------------------------------------------------------------------

    def _open(self) -> None:
        self._store.open()
        self._store.load()

    def _claim(self, token: FencingToken, holder: str) -> Fence | None:
        def decide(state: State, _: Plan) -> tuple[bool, Fence | None]:
            stored = state.ledger.fence
            rises = state.ledger.pass_fence(self._cluster_id, token, holder, self._time_ns())
            return rises, None if stored is None else Fence(stored.token, stored.holder)

        before = self._refusing(token, holder, (), decide)
        self._claimed, self._holder = token, holder
        return before

    def _query(self, attempt: Attempt) -> Answered:
        state = self._store.load()
        claimed, fence = self._claimed, state.ledger.fence
        if claimed is None or not still_holds(self.name, fence, self._cluster_id, claimed, self._holder):
            return UNTOLD
        # What is committed and not in place and synced yet may still be undone, by a loss of power.
        return state.ledger.find(attempt, claimed) if self._store.is_completed(state) else UNTOLD

    def _execute(self, token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
        def decide(state: State, plan: Plan) -> tuple[bool, list[AttemptOutcome]]:
            check_kept(self.name, state.ledger.fence, self._claimed)
            now_ns = self._time_ns()
            rises = state.ledger.pass_fence(self._cluster_id, token, holder, now_ns)
            outcomes = state.ledger.execute(token, holder, attempts, lambda attempt: self._apply(plan, attempt), now_ns)
            return rises or any(outcome.result and not outcome.replayed for outcome in outcomes), outcomes

        return self._refusing(token, holder, attempts, decide)

    def _apply(self, plan: Plan, attempt: Attempt) -> AttemptOutcome:
        steps = self._steps.get(attempt.effect)
        if steps is None:
            return unknown_effect(attempt)
        try:
            return succeeded(canonical_json({"files": plan.add(steps, attempt)}))
        except NotBindable as reason:
            return failed(reason)
        except Waits as reason:
            return waits(str(reason))

    def _refusing(
        self,
        token: FencingToken,
        holder: str,
        attempts: Sequence[Attempt],
        decide: Callable[[State, Plan], tuple[bool, T]],
    ) -> T:
        try:
            return self._store.change(token, holder, decide)
        except FenceError as error:
            if not isinstance(error, WrongCluster):
                self._note(token, holder, attempts, error)
            raise

    def _note(self, token: FencingToken, holder: str, attempts: Sequence[Attempt], error: FencepostError) -> None:
        _log.warning("refused at the fence", resource=self.name, code=error.code, token=str(token))
        fence = self._store.load().ledger.fence
        if fence is not None:
            stored = [str(fence.token.incarnation), str(fence.token.term), fence.holder]
            mine = [str(token.incarnation), str(token.term), holder]
            operations = [attempt.operation_id for attempt in attempts]
            self._store.note_refusal([str(self._time_ns()), *mine, *stored, operations, error.code])
