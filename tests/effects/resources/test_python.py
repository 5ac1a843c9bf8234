"""Handlers written by users: what they get, what their exceptions mean, what they cannot hold up."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fencepost.raft.core.errors import ConfigurationError, Outcome, ResourceUnavailable, StaleLeader
from fencepost.raft.effects.handlers import EffectContext, Permanent, Retryable
from fencepost.raft.effects.resources.python import PythonEffect, PythonResource
from fencepost.raft.ports import AttemptOutcome, AttemptStatus, Fence, Guarantee

from .subjects import attempt_of, token

Open = Callable[..., Any]

FOREVER_NS = 60_000_000_000


@pytest_asyncio.fixture
async def open_python() -> AsyncIterator[Open]:
    opened: list[PythonResource] = []

    async def make(handler: Any, *, timeout_ns: int = FOREVER_NS, **options: Any) -> PythonResource:
        options.setdefault("guarantee", Guarantee.KEYED)
        resource = PythonResource("mail", {"send": PythonEffect(handler, timeout_ns)}, **options)
        opened.append(resource)
        await resource.open()
        return resource

    yield make
    for resource in opened:
        await resource.close()


async def run(resource: PythonResource, payload: Any = None, term: int = 1) -> AttemptOutcome:
    attempt = attempt_of(payload, "op-1", 7, lane="k", number=3, effect="send")
    (outcome,) = await resource.execute(token(term), f"n{term}", [attempt])
    return outcome


class _Callable:
    async def __call__(self, context: EffectContext, payload: Any) -> Any:
        return payload


async def _async(context: EffectContext, payload: Any) -> Any:
    return payload


def _plain(context: EffectContext, payload: Any) -> Any:
    return payload


def _twice(factor: str, context: EffectContext, payload: Any) -> Any:
    return payload


HANDLERS = [_async, _plain, _Callable(), functools.partial(_twice, "x")]


# -- what a handler gets and gives ----------------------------------------------------------------------


@pytest.mark.parametrize("handler", HANDLERS, ids=["async", "plain", "object", "partial"])
@pytest.mark.parametrize("payload", [{"b": [1, None], "a": "ü"}, [], "text", 5, None])
async def test_payload_in_result_out(open_python: Open, handler: Any, payload: Any) -> None:
    outcome = await run(await open_python(handler), payload)
    assert (outcome.status, outcome.error, outcome.replayed) == (AttemptStatus.SUCCEEDED, "", False)
    assert json.loads(outcome.result) == payload


async def test_a_payload_that_is_no_json_comes_as_bytes(open_python: Open) -> None:
    seen: list[Any] = []
    await run(await open_python(lambda context, payload: seen.append(payload)), b"\xff no json")
    assert seen == [b"\xff no json"]


async def test_the_context_names_the_attempt(open_python: Open) -> None:
    contexts: list[EffectContext] = []
    await run(await open_python(lambda context, payload: contexts.append(context)), term=9)
    (context,) = contexts
    assert (context.operation_id, context.index, context.entry_term, context.token, context.attempt) == (
        "op-1",
        7,
        1,
        token(9),
        3,
    )
    assert (context.effect, context.lane) == ("send", "k")
    assert context.deadline > 0


@pytest.mark.parametrize("result", [object(), float("nan"), "x" * 100_000], ids=["object", "nan", "large"])
async def test_a_result_that_cannot_be_kept_does_not_undo_the_effect(open_python: Open, result: Any) -> None:
    outcome = await run(await open_python(lambda context, payload: result))
    assert (outcome.status, outcome.result) == (AttemptStatus.SUCCEEDED, b"null")


# -- what exceptions mean -------------------------------------------------------------------------------


def _raising(error: BaseException, *, plain: bool) -> Any:
    async def later(context: EffectContext, payload: Any) -> Any:
        raise error

    def now(context: EffectContext, payload: Any) -> Any:
        raise error

    return now if plain else later


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (Retryable("503"), AttemptStatus.RETRY, "503"),
        (Permanent("400"), AttemptStatus.FAILED, "400"),
        (ConnectionResetError("reset"), AttemptStatus.UNKNOWN, "ConnectionResetError: reset"),
        (TimeoutError("theirs"), AttemptStatus.UNKNOWN, "TimeoutError: theirs"),
        (KeyError("account"), AttemptStatus.UNKNOWN, "KeyError: 'account'"),
    ],
)
async def test_exceptions(open_python: Open, plain: bool, error: Exception, status: AttemptStatus, text: str) -> None:
    """What nobody foresaw may have happened after the effect: unknown, never "failed"."""
    outcome = await run(await open_python(_raising(error, plain=plain)))
    assert (outcome.status, outcome.error, outcome.result) == (status, text, b"")


async def test_stale_leader_passes_through(open_python: Open) -> None:
    """The far side compared the token: a fact about this leader, not about the operation."""
    resource = await open_python(_raising(StaleLeader("412"), plain=True), guarantee=Guarantee.FENCED)
    with pytest.raises(StaleLeader):
        await run(resource)


async def test_no_answer_in_time_is_unknown(open_python: Open) -> None:
    cancelled = asyncio.Event()

    async def hang(context: EffectContext, payload: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    outcome = await run(await open_python(hang, timeout_ns=1_000_000))
    assert (outcome.status, outcome.error) == (AttemptStatus.UNKNOWN, "no answer within 0.001 s")
    assert cancelled.is_set()


async def test_an_attempt_that_found_no_free_thread_was_not_attempted(open_python: Open) -> None:
    """S50: certainly not applied, so nothing is in doubt and no attempt is spent."""
    entered, go_on = threading.Event(), threading.Event()

    def hold(context: EffectContext, payload: Any) -> None:
        entered.set()
        go_on.wait(60)

    effects = {"hold": PythonEffect(hold), "send": PythonEffect(_plain, timeout_ns=1_000_000)}
    resource = PythonResource("mail", effects, guarantee=Guarantee.KEYED, concurrency=1)
    await resource.open()
    holding = asyncio.ensure_future(resource.execute(token(1), "n1", [attempt_of({}, "a", effect="hold")]))
    await asyncio.get_running_loop().run_in_executor(None, entered.wait, 60)
    waiting = await run(resource)
    go_on.set()
    (held,) = await holding
    await resource.close()
    assert held.status is AttemptStatus.SUCCEEDED
    assert (waiting.status, waiting.error) == (
        AttemptStatus.NOT_ATTEMPTED,
        "all 1 threads of the resource are busy",
    )


async def test_losing_authority_cancels_the_handler(open_python: Open) -> None:
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def hang(context: EffectContext, payload: Any) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    under_way = asyncio.ensure_future(run(await open_python(hang)))
    await entered.wait()
    under_way.cancel()
    with pytest.raises(asyncio.CancelledError):
        await under_way
    assert cancelled.is_set()


async def test_a_plain_handler_blocks_no_other(open_python: Open) -> None:
    both = threading.Barrier(2, timeout=30)

    def meet(context: EffectContext, payload: Any) -> str:
        both.wait()
        return threading.current_thread().name

    resource = await open_python(meet, concurrency=2)
    first, second = await asyncio.gather(run(resource), run(resource))
    assert first.result.startswith(b'"resource-mail')
    assert first.result != second.result


async def test_an_unknown_effect_waits(open_python: Open) -> None:
    resource = await open_python(_plain)
    (outcome,) = await resource.execute(token(1), "n1", [attempt_of({}, effect="unheard-of")])
    assert outcome.status is AttemptStatus.NOT_ATTEMPTED
    assert "unheard-of" in outcome.error


# -- claims ---------------------------------------------------------------------------------------------


async def test_a_claim_is_remembered_in_this_process(open_python: Open) -> None:
    resource = await open_python(_plain)
    assert await resource.claim(token(2), "n2") is None
    assert await resource.claim(token(3), "n3") == Fence(token(2), "n2")
    assert await resource.fence() == Fence(token(3), "n3")
    with pytest.raises(StaleLeader):
        await run(resource, term=2)


# -- opening --------------------------------------------------------------------------------------------


async def test_handlers_are_found_by_name(open_python: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_effects_of_a_test.py").write_text(
        "class Mail:\n    @staticmethod\n    def send(context, payload):\n        return payload['to']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    outcome = await run(await open_python("shop_effects_of_a_test:Mail.send"), {"to": "alice"})
    assert outcome.result == b'"alice"'


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        ("json", "module:function"),
        (":dumps", "module:function"),
        ("no_such_module_anywhere:send", "ModuleNotFoundError"),
        ("json:no_such_function", "json has no function no_such_function"),
        ("json:__name__", "json has no function __name__"),
        ("broken_module_of_a_test:send", "ZeroDivisionError"),
    ],
)
async def test_handlers_that_cannot_be_used(
    open_python: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handler: str, why: str
) -> None:
    (tmp_path / "broken_module_of_a_test.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=why) as caught:
        await open_python(handler)
    assert "'mail'" in caught.value.message
    assert "'send'" in caught.value.message


async def test_naked_needs_an_opt_in(open_python: Open) -> None:
    with pytest.raises(ConfigurationError, match="naked") as caught:
        await open_python(_plain, guarantee=Guarantee.NAKED)
    assert "allow_duplicates" in caught.value.next_step
    resource = await open_python(_plain, guarantee=Guarantee.NAKED, allow_duplicates=True)
    assert (await run(resource)).status is AttemptStatus.SUCCEEDED


async def test_closed_is_closed(open_python: Open) -> None:
    resource = await open_python(_plain)
    await resource.close()
    await resource.close()
    with pytest.raises(ResourceUnavailable) as caught:
        await run(resource)
    assert caught.value.outcome is Outcome.RETRY
