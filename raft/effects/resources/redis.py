"""A Redis or Valkey server as a resource: fence, dedupe and effect in one script, which the server runs alone.

What it promises is as durable as the server. With ``appendonly yes`` and ``appendfsync always`` each operation
takes effect exactly once, as long as the server keeps its data; with less, a crash may take back what was
acknowledged, the fence with it, and the resource calls itself ``keyed`` and says why.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import structlog

from ...core.errors import ConfigurationError, Outcome, ResourceUnavailable
from ...core.token import FencingToken
from ...ports import Answered, Attempt, AttemptOutcome, AttemptStatus, Fence, Guarantee
from . import redis_script as script
from .asking import UNTOLD, answer, still_holds
from .ledger import StoredFence, check_fence, check_kept
from .outcomes import BEHIND, Known, failed, replay, succeeded, superseded, unknown_effect, waits
from .redis_connection import RedisConnection
from .redis_effect import NotBindable, RedisEffect, Template, result_json

__all__ = ["RedisEffect", "RedisResource"]

_log = structlog.get_logger(__name__)

_SHA1S = {
    text: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest() for text in (script.SCRIPT, script.QUERY)
}


class RedisResource:
    """A resource of kind ``redis`` (``raft.ports.Resource``).

    ``url`` is ``redis://user:password@host:port/database``, ``rediss://`` with TLS, or ``unix://path``.
    ``forget_after_ns`` is how long an operation is recognised; 0 for ever. What may have been applied is not repeated
    after three quarters of it. ``assume_durable`` is the operator's
    word for a server that does not let itself be asked. ``time_ns`` is the wall clock for stamps.

    ``guarantee`` is what the server's settings allow, asked at every connection and every claim.
    """

    kind: ClassVar[str] = "redis"
    refusal_tells: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        url: str,
        effects: Mapping[str, RedisEffect],
        *,
        cluster_id: str,
        batch_limit: int = 128,
        forget_after_ns: int = 0,
        assume_durable: bool = False,
        connect_ns: int = 3_000_000_000,
        answer_ns: int = 5_000_000_000,
        time_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        if not cluster_id:
            raise ConfigurationError(f"resource {name!r} has no cluster id to fence by")
        self.name = name
        self.effects = frozenset(effects)
        self.batch_limit = batch_limit
        self.concurrency = 1  # The server runs one script at a time.
        self._cluster_id = cluster_id
        self._forget_after_ns = forget_after_ns
        prefix = script.key_prefix(name)
        self._keys = [prefix + key for key in script.KEYS]
        self._templates = {
            effect: Template(name, effect, definition.commands) for effect, definition in effects.items()
        }
        self._connection = RedisConnection(
            name, url, connect_ns=connect_ns, answer_ns=answer_ns, assume_durable=assume_durable
        )
        self._time_ns = time_ns
        self._claimed: FencingToken | None = None
        self._holder = ""
        """Who has claimed it."""
        self._lock = asyncio.Lock()
        self._said = ""

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.KEYED if self.guarantee_reason else Guarantee.FENCED

    @property
    def guarantee_reason(self) -> str:
        """Why it is not ``fenced``; empty if it is."""
        if self._forget_after_ns:
            return "operations are forgotten after a while (forget_after)"
        return self._connection.shortfall

    @property
    def absence_is_final(self) -> bool:
        """A server that may forget the fence may let in what a claim has barred, and one that forgets operations has
        nothing to say about them."""
        return self.guarantee is Guarantee.FENCED

    @property
    def dedupes_by_place(self) -> bool:
        return self._forget_after_ns > 0

    # -- the port ------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect and ask the server how it keeps its data.

        Raises :class:`ConfigurationError` (address, password, a server that evicts the fence) or
        :class:`ResourceUnavailable` (out of reach, loading, a replica).
        """
        async with self._lock:
            await self._connection.open()
            self._say()

    def _say(self) -> None:
        reason = self.guarantee_reason
        if reason and reason != self._said:
            _log.warning("keyed, not fenced", resource=self.name, server=self._connection.place, reason=reason)
        if self._connection.replicas and not reason and self._said != "replicas":
            _log.warning(
                "a failover to a replica may take back acknowledged effects, and the fence",
                resource=self.name,
                server=self._connection.place,
                replicas=self._connection.replicas,
            )
            reason = "replicas"
        self._said = reason

    async def claim(self, token: FencingToken, holder: str) -> Fence | None:
        async with self._lock:
            await self._connection.open()
            try:
                await self._connection.examine()
            except BaseException as error:
                await self._connection.drop()
                raise self._connection.told(error, "cannot be asked", Outcome.RETRY) from error
            self._say()
            stored, _ = await self._act(token, holder, None)
            self._claimed, self._holder = token, holder
        return None if stored is None else Fence(stored.token, stored.holder)

    async def execute(self, token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
        if len(attempts) > self.batch_limit:
            raise AssertionError(f"{len(attempts)} attempts for a batch limit of {self.batch_limit}")
        async with self._lock:
            _, answers = await self._act(token, holder, [self._told(attempt) for attempt in attempts])
        return [_outcome(attempt, *answer) for attempt, answer in zip(attempts, answers, strict=True)]

    async def query(self, attempt: Attempt) -> Answered:
        async with self._lock:
            *fence, record = await self._run(script.QUERY, self._keys[:2], [attempt.operation_id])
            claimed, holder = self._claimed, self._holder
        if claimed is None or not still_holds(self.name, self._stored(*fence), self._cluster_id, claimed, holder):
            return UNTOLD
        if not record:
            return UNTOLD if self._forget_after_ns else answer(attempt, None, claimed)
        kept = script.unpack(record)
        return answer(attempt, Known(kept[script.RECORD_DIGEST], result_json(kept[script.RECORD_RESULT])), claimed)

    async def fence(self) -> Fence | None:
        async with self._lock:
            token, holder = await self._connection.act("HMGET", self._keys[0], "token", "holder")
        return None if token is None else Fence(script.token_of(token), holder.decode())

    async def close(self) -> None:
        """Let what is under way end, then hang up. Safe to call twice."""
        async with self._lock:
            await self._connection.drop()

    # -- the script --------------------------------------------------------------------------------

    def _told(self, attempt: Attempt) -> list[Any]:
        """An attempt as the script takes it. What is wrong with it goes along: the fence speaks first, then dedupe."""
        commands: list[list[bytes]] = []
        status, error = b"", ""
        template = self._templates.get(attempt.effect)
        if template is None:
            status, error = script.WAITS, unknown_effect(attempt).error
        else:
            try:
                commands = template.bind(attempt)
            except NotBindable as reason:
                status, error = script.FAILED, str(reason)
        if self._forget_after_ns and attempt.age_ns > self._forget_after_ns * 3 // 4:
            # Not later: the clocks by which it is forgotten are the leaders', and not the cluster's.
            status, error = script.DOUBTFUL, "an earlier attempt may have been applied, and be forgotten (forget_after)"
        head = [attempt.operation_id, attempt.digest, attempt.effect, attempt.lane, script.number(attempt.index)]
        return [*head, attempt.number, commands, status, error]

    async def _act(
        self, token: FencingToken, holder: str, attempts: list[list[Any]] | None
    ) -> tuple[StoredFence | None, list[tuple[bytes, bytes]]]:
        now_ns = self._time_ns()
        words = [
            self._cluster_id,
            script.token_text(token),
            holder,
            str(now_ns),
            "" if self._claimed is None else script.token_text(self._claimed),
            str((now_ns - self._forget_after_ns) // 1_000_000) if self._forget_after_ns else "",
            b"" if attempts is None else script.pack(attempts),
        ]
        code, *fence, answers = await self._run(script.SCRIPT, self._keys, words)
        stored = self._stored(*fence)
        if code != script.PASSED:
            _log.warning("refused at the fence", resource=self.name, code=code.decode(), token=str(token))
            # The script has compared; the words and the kind of the refusal are the same for every resource.
            if code == script.FORGOTTEN:
                check_kept(self.name, stored, self._claimed)
            check_fence(self.name, stored, self._cluster_id, token, holder)
            raise AssertionError(f"the script of resource {self.name!r} answers {code!r} to {token} over {stored}")
        return stored, [(status, value) for status, value in answers]

    def _stored(self, cluster: bytes, token: bytes, holder: bytes) -> StoredFence | None:
        return StoredFence(self.name, cluster.decode(), script.token_of(token), holder.decode()) if token else None

    async def _run(self, text: str, keys: list[str], words: list[Any]) -> Any:
        arguments = [len(keys), *keys, *words]
        try:
            return await self._connection.act("EVALSHA", _SHA1S[text], *arguments)
        except ResourceUnavailable:
            raise
        except Exception:  # The server does not have the script, or no longer: nothing was run.
            return await self._connection.act("EVAL", text, *arguments)


def _outcome(attempt: Attempt, status: bytes, value: bytes) -> AttemptOutcome:
    if status == script.APPLIED:
        return succeeded(result_json(value))
    if status == script.REPLAYED:
        return AttemptOutcome(AttemptStatus.SUCCEEDED, result_json(value), "", True)
    if status == script.REUSED:
        return replay(attempt, Known(b"another", b""))
    if status == script.SUPERSEDED:
        return superseded(attempt, int(value[script.NUMBER_WIDTH :]))
    if status == script.DOUBTFUL:
        return AttemptOutcome(AttemptStatus.DOUBT, b"", value.decode(), False)
    if status == script.FAILED:
        return failed(value.decode(errors="replace"))
    if status == script.WAITS:
        return waits(value.decode(errors="replace"))
    return BEHIND
