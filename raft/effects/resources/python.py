"""Handlers written in Python, for everything that has no resource of its own.

The guarantee is declared, not enforced: what the other side does with the operation id and the
token, only the handler's author knows (concepts: What can be promised depends on the resource).
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import structlog

from ...core.errors import ConfigurationError, FenceError, Outcome, ResourceUnavailable
from ...core.token import FencingToken
from ...outbox.codec import canonical_json
from ...ports import Answered, Attempt, AttemptOutcome, AttemptStatus, Fence, Found, Guarantee
from ..handlers import ClaimContext, EffectContext, Permanent, Retryable
from .ledger import StoredFence, check_fence

RESULT_BYTES_MAX = 64 * 1024

Handler = Callable[[EffectContext, Any], Any]
"""``handler(context, payload)``, plain or async. The payload is decoded JSON, or bytes where it is
none; what is returned must be JSON too.

A query is called the same way and does nothing but look: None where it cannot tell, False where the operation was
not applied, and anything else is its result."""

ClaimHook = Callable[[ClaimContext], Any]
"""``claim(context)``, plain or async: makes the token the highest that the other side accepts, durably, or raises what
speaks against it: ``StaleLeader``, ``DuplicateGeneration`` or ``WrongCluster``. What it returns says nothing."""

CLAIM_TIMEOUT_S = 8.0
"""Shorter than what a leader waits for any claim (``effects.bounds``), so that the error names the hook."""

HORIZON_NS = 23 * 3_600_000_000_000
"""Many APIs forget a key after a day."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PythonEffect:
    """``handler`` and ``query`` are ``"module:function"`` or the function itself; ``timeout_ns`` bounds one call."""

    handler: str | Handler
    timeout_ns: int = 30_000_000_000
    query: str | Handler = ""


class PythonResource:
    """A resource of kind ``python`` (``raft.ports.Resource``).

    Async handlers run on the effects loop, plain ones on this resource's own ``concurrency``
    threads. Each call carries one attempt, so that a slow one holds up nothing but its lane (S51).

    Without ``claim`` a claim is remembered in this process only: it stops a leader of this process from acting under a
    lower token, and the far side hears of the token with the first effect. With it, which is for ``fenced``, the far
    side hears of it before: what it does not know as applied then stays that way.

    ``horizon_ns`` is for ``keyed``: so long after its first attempt an operation is attempted again, and then no more
    (0: always), because the far side may have forgotten its key.
    """

    kind: ClassVar[str] = "python"
    dedupes_by_place: ClassVar[bool] = False
    refusal_tells: ClassVar[bool] = False  # A handler may refuse for a reason of its own, whatever was done before.

    def __init__(
        self,
        name: str,
        effects: Mapping[str, PythonEffect],
        *,
        guarantee: Guarantee,
        cluster_id: str = "",
        allow_duplicates: bool = False,
        concurrency: int = 16,
        horizon_ns: int = HORIZON_NS,
        claim: str | ClaimHook = "",
    ) -> None:
        if guarantee is Guarantee.NAKED and not allow_duplicates:
            raise ConfigurationError(
                f"resource {name!r} is naked: nothing recognises a repeated effect there",
                next_step=f"pass the operation id on as a key and declare it keyed, or set allow_duplicates = true "
                f"under [resources.{name}]",
            )
        if claim and guarantee is not Guarantee.FENCED:
            raise ConfigurationError(
                f"resource {name!r} has a claim hook and is {guarantee}: nothing compares the token there",
                next_step="declare it fenced, if the other side does, or take the hook out",
            )
        self.name = name
        self.guarantee = guarantee
        self.effects = frozenset(effects)
        self.batch_limit = 1
        self.concurrency = concurrency
        self._cluster_id = cluster_id
        self._definitions = dict(effects)
        self._horizon_ns = horizon_ns if guarantee is Guarantee.KEYED else 0
        self._claim_hook = claim
        self._hook: ClaimHook | None = None
        self._handlers: dict[str, Handler] = {}
        self._queries: dict[str, Handler] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._fence: StoredFence | None = None

    async def open(self) -> None:
        """Import every function. Raises :class:`ConfigurationError`, naming resource and effect."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.concurrency, thread_name_prefix=f"resource-{self.name}")
        # An import runs the user's code and may take its time: not on the loop.
        loaded = await asyncio.get_running_loop().run_in_executor(self._threads, self._load)
        self._handlers, self._queries, self._hook = loaded

    async def close(self) -> None:
        """Plain handlers under way are not waited for: a thread cannot be stopped. Safe to call twice."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    async def fence(self) -> Fence | None:
        return None if self._fence is None else Fence(self._fence.token, self._fence.holder)

    async def claim(self, token: FencingToken, holder: str) -> Fence | None:
        """What the hook raises besides a :class:`FenceError` becomes :class:`ResourceUnavailable`."""
        before = await self.fence()
        check_fence(self.name, self._fence, self._cluster_id, token, holder)
        if self._claim_hook:
            await self._tell(token, holder)
        self._pass_fence(token, holder)
        return before

    async def _tell(self, token: FencingToken, holder: str) -> None:
        if self._threads is None or self._hook is None:
            raise ResourceUnavailable(f"resource {self.name!r} is not open", outcome=Outcome.RETRY)
        deadline = time.monotonic() + CLAIM_TIMEOUT_S
        log = _log.bind(resource=self.name, token=str(token))
        context = ClaimContext(token, holder, self._cluster_id, deadline, log)
        try:
            async with asyncio.timeout(CLAIM_TIMEOUT_S):
                await _Call(self._hook, context).run(self._threads)
        except FenceError:
            raise
        except Exception as error:
            raise ResourceUnavailable(
                f"resource {self.name!r}: its claim hook raised {type(error).__name__}: {error}",
                next_step="nothing, if the other side is away: it is called again",
                outcome=Outcome.UNKNOWN,
            ) from error

    async def execute(self, token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
        if len(attempts) > self.batch_limit:
            raise AssertionError(f"{len(attempts)} attempts for a batch limit of {self.batch_limit}")
        if self._threads is None:
            raise ResourceUnavailable(f"resource {self.name!r} is not open", outcome=Outcome.RETRY)
        self._pass_fence(token, holder)
        return [await self._attempt(self._threads, token, holder, attempt) for attempt in attempts]

    @property
    def absence_is_final(self) -> bool:
        """Where the other side has heard of the claim; elsewhere an older attempt may still arrive there."""
        return bool(self._claim_hook)

    async def query(self, attempt: Attempt) -> Answered:
        """What the effect's query says of an operation that was left in doubt (``effects.doubts``)."""
        if self._threads is None or self._fence is None or attempt.effect not in self._queries:
            return Answered(Found.UNKNOWN)
        timeout_s = self._definitions[attempt.effect].timeout_ns / 1e9
        context = self._context(self._fence.token, self._fence.holder, attempt, timeout_s)
        answer = await self._ask(self._threads, context, attempt)
        if answer is None:
            return Answered(Found.UNKNOWN)
        if answer is False:
            return Answered(Found.NOT_APPLIED)
        return Answered(Found.APPLIED, self._encode(context, answer))

    def _pass_fence(self, token: FencingToken, holder: str) -> None:
        if check_fence(self.name, self._fence, self._cluster_id, token, holder):
            self._fence = StoredFence(self.name, self._cluster_id, token, holder)

    # -- one attempt -------------------------------------------------------------------------------

    async def _attempt(
        self, threads: ThreadPoolExecutor, token: FencingToken, holder: str, attempt: Attempt
    ) -> AttemptOutcome:
        handler = self._handlers.get(attempt.effect)
        if handler is None:
            why = f"this node knows no effect {attempt.effect!r} of this resource"
            return AttemptOutcome(AttemptStatus.NOT_ATTEMPTED, b"", why, False)
        timeout_s = self._definitions[attempt.effect].timeout_ns / 1e9
        context = self._context(token, holder, attempt, timeout_s)
        if self._horizon_ns and attempt.age_ns > self._horizon_ns:
            known = await self._too_old(threads, context, attempt)
            if known is not None:
                return known
        call = _Call(handler, context, _decode(attempt.payload))
        try:
            async with asyncio.timeout(timeout_s) as timeout:
                result = await call.run(threads)
        except FenceError:
            raise
        except Retryable as error:
            return AttemptOutcome(AttemptStatus.RETRY, b"", error.message, False)
        except Permanent as error:
            return AttemptOutcome(AttemptStatus.FAILED, b"", error.message, False)
        except Exception as error:
            # Cancellation is no Exception and goes through: authority was lost, nobody asks any more.
            if timeout.expired() and not call.started:
                why = f"all {self.concurrency} threads of the resource are busy"
                return AttemptOutcome(AttemptStatus.NOT_ATTEMPTED, b"", why, False)
            # No answer, or one that nobody foresaw: the effect may have taken place. What follows
            # from that depends on the guarantee and is the dispatcher's to judge.
            why = f"no answer within {timeout_s:g} s" if timeout.expired() else f"{type(error).__name__}: {error}"
            if not timeout.expired():
                context.log.warning("handler raised", exc_info=error)
            if self.guarantee is Guarantee.NAKED:
                # Applied is a fact. Not applied is none: what was sent may still be on its way.
                answer = await self._ask(threads, context, attempt)
                if answer is not None and answer is not False:
                    return AttemptOutcome(AttemptStatus.SUCCEEDED, self._encode(context, answer), "", True)
            return AttemptOutcome(AttemptStatus.UNKNOWN, b"", why, False)
        return AttemptOutcome(AttemptStatus.SUCCEEDED, self._encode(context, result), "", False)

    async def _too_old(
        self, threads: ThreadPoolExecutor, context: EffectContext, attempt: Attempt
    ) -> AttemptOutcome | None:
        """What becomes of an attempt past the horizon; None where it was certainly not applied before."""
        answer = await self._ask(threads, context, attempt)
        if answer is False:
            return None
        if answer is not None:
            return AttemptOutcome(AttemptStatus.SUCCEEDED, self._encode(context, answer), "", True)
        hours = attempt.age_ns / 3_600_000_000_000
        why = f"its first attempt was {hours:.1f} h ago, and the other side may have forgotten its key (horizon)"
        return AttemptOutcome(AttemptStatus.DOUBT, b"", why, False)

    async def _ask(self, threads: ThreadPoolExecutor, context: EffectContext, attempt: Attempt) -> Any:
        """What the effect's query says; None where there is none, or where it does not answer."""
        query = self._queries.get(attempt.effect)
        if query is None:
            return None
        try:
            async with asyncio.timeout(self._definitions[attempt.effect].timeout_ns / 1e9):
                return await _Call(query, context, _decode(attempt.payload)).run(threads)
        except FenceError:
            raise
        except Exception as error:
            context.log.warning("query raised", exc_info=error)
            return None

    def _context(self, token: FencingToken, holder: str, attempt: Attempt, timeout_s: float) -> EffectContext:
        return EffectContext(
            operation_id=attempt.operation_id,
            index=attempt.index,
            entry_term=attempt.entry_term,
            token=token,
            attempt=attempt.number,
            deadline=time.monotonic() + timeout_s,
            log=_log.bind(
                resource=self.name, effect=attempt.effect, operation=attempt.operation_id, attempt=attempt.number
            ),
            effect=attempt.effect,
            lane=attempt.lane,
            holder=holder,
            cluster_id=self._cluster_id,
        )

    @staticmethod
    def _encode(context: EffectContext, result: Any) -> bytes:
        """The result as JSON. The effect is done: a result that cannot be kept does not undo it."""
        try:
            encoded = canonical_json(result)
        except (TypeError, ValueError) as error:
            context.log.warning("result is not JSON and is not kept", error=str(error))
            return b"null"
        if len(encoded) > RESULT_BYTES_MAX:
            context.log.warning("result is too large and is not kept", bytes=len(encoded), limit=RESULT_BYTES_MAX)
            return b"null"
        return encoded

    # -- loading -----------------------------------------------------------------------------------

    def _load(self) -> tuple[dict[str, Handler], dict[str, Handler], ClaimHook | None]:
        found = self._definitions.items()
        return (
            {effect: self._function(f", effect {effect!r}: handler", each.handler) for effect, each in found},
            {
                effect: self._function(f", effect {effect!r}: handler", each.query)
                for effect, each in found
                if each.query
            },
            self._function(": claim hook", self._claim_hook) if self._claim_hook else None,
        )

    def _function(self, what: str, function: str | Callable[..., Any]) -> Callable[..., Any]:
        if not isinstance(function, str):
            return function
        try:
            return load_handler(function)
        except ValueError as error:
            raise self._error(what, function, str(error)) from error

    def _error(self, what: str, function: str, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"resource {self.name!r}{what} {function!r} cannot be used: {why}",
            next_step="check the name, and that the module can be imported where the node runs (PYTHONPATH)",
        )


def load_handler(handler: str) -> Handler:
    """Import ``"module:function"``. Raises ValueError that says what is wrong with it."""
    module_name, colon, function_name = handler.partition(":")
    if not (module_name and colon and function_name):
        raise ValueError("it must have the form module:function")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # Importing runs the user's code, which may raise anything.
        raise ValueError(f"{type(error).__name__}: {error}") from error
    for part in function_name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ValueError(f"{module_name} has no function {function_name}")
    handler_found: Handler = found
    return handler_found


class _Call:
    """One call of a function of the user's, which knows whether that was reached at all."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._function = function
        self._arguments = arguments
        self.started = False

    async def run(self, threads: ThreadPoolExecutor) -> Any:
        if inspect.iscoroutinefunction(self._function):
            return await self._enter()
        result = await asyncio.get_running_loop().run_in_executor(threads, self._enter)
        # A plain function may also hand out a coroutine (functools.partial, an object with __call__).
        return await result if inspect.isawaitable(result) else result

    def _enter(self) -> Any:
        self.started = True
        return self._function(*self._arguments)


def _decode(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return payload
