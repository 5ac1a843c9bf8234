"""Claim hooks: the other side hears of a new leader's token before anything is executed under it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from fencepost.raft.core.errors import ConfigurationError, ResourceUnavailable, StaleLeader
from fencepost.raft.effects.handlers import ClaimContext, EffectContext
from fencepost.raft.effects.resources import python
from fencepost.raft.effects.resources.python import PythonEffect, PythonResource
from fencepost.raft.ports import Answered, Fence, Found, Guarantee

from .subjects import attempt_of, token

Make = Callable[..., Any]


async def _unused(context: EffectContext, payload: Any) -> Any:
    return None


@pytest_asyncio.fixture
async def make() -> AsyncIterator[Make]:
    opened: list[PythonResource] = []

    async def one(claim: Any, handler: Any = _unused, query: Any = "", **options: Any) -> PythonResource:
        options.setdefault("guarantee", Guarantee.FENCED)
        effects = {"send": PythonEffect(handler, query=query)}
        resource = PythonResource("mail", effects, cluster_id="shop", claim=claim, **options)
        opened.append(resource)
        await resource.open()
        return resource

    yield one
    for resource in opened:
        await resource.close()


def one_attempt() -> Any:
    return attempt_of(None, "op-1", 7, effect="send")


@pytest.mark.parametrize("plain", [True, False])
async def test_a_claim_is_told_with_all_that_names_the_leader(make: Make, plain: bool) -> None:
    told: list[ClaimContext] = []

    async def claim(context: ClaimContext) -> None:
        told.append(context)

    resource = await make(told.append if plain else claim)
    assert told == []
    assert await resource.claim(token(3), "n1 (boot 1)") is None
    assert await resource.claim(token(4), "n1 (boot 1)") == Fence(token(3), "n1 (boot 1)")
    assert [(each.token, each.holder, each.cluster_id) for each in told] == [
        (token(3), "n1 (boot 1)", "shop"),
        (token(4), "n1 (boot 1)", "shop"),
    ]
    assert 0 < told[0].deadline - time.monotonic() < 10


async def test_effects_hear_of_holder_and_cluster(make: Make) -> None:
    told: list[EffectContext] = []

    async def handler(context: EffectContext, payload: Any) -> Any:
        told.append(context)
        return None

    async def query(context: EffectContext, payload: Any) -> Any:
        told.append(context)
        return False

    resource = await make(lambda context: None, handler, query)
    await resource.claim(token(1), "n1")
    await resource.execute(token(1), "n1", [one_attempt()])
    await resource.query(one_attempt())
    assert [(each.token, each.holder, each.cluster_id) for each in told] == [(token(1), "n1", "shop")] * 2


async def test_a_claim_that_is_refused_is_none(make: Make) -> None:
    refuse = [True]

    def claim(context: ClaimContext) -> None:
        if refuse[0]:
            raise StaleLeader("a newer one was here")

    resource = await make(claim)
    with pytest.raises(StaleLeader):
        await resource.claim(token(1), "n1")
    assert await resource.fence() is None
    refuse.clear()
    refuse.append(False)
    await resource.claim(token(1), "n1")
    assert await resource.fence() == Fence(token(1), "n1")


async def test_whatever_else_it_raises_means_that_nothing_is_known(make: Make) -> None:
    def claim(context: ClaimContext) -> None:
        raise OSError("connection refused")

    resource = await make(claim)
    with pytest.raises(ResourceUnavailable, match="OSError: connection refused"):
        await resource.claim(token(1), "n1")
    assert await resource.fence() is None


async def test_one_that_does_not_come_back_is_given_up(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "CLAIM_TIMEOUT_S", 0.01)
    never = asyncio.Event()

    async def claim(context: ClaimContext) -> None:
        await never.wait()

    resource = await make(claim)
    with pytest.raises(ResourceUnavailable, match="TimeoutError"):
        await resource.claim(token(1), "n1")


async def test_a_lower_token_of_this_process_does_not_reach_the_hook(make: Make) -> None:
    told: list[ClaimContext] = []
    resource = await make(told.append)
    await resource.claim(token(2), "n1")
    with pytest.raises(StaleLeader):
        await resource.claim(token(1), "n1")
    assert len(told) == 1


@pytest.mark.parametrize("hook", [True, False])
async def test_absence_is_final_where_the_other_side_has_heard_of_the_claim(make: Make, hook: bool) -> None:
    resource = await make((lambda context: None) if hook else "", query=lambda context, payload: False)
    await resource.claim(token(1), "n1")
    assert resource.absence_is_final is hook
    assert await resource.query(one_attempt()) == Answered(Found.NOT_APPLIED)


async def test_a_query_that_hears_of_another_leader_says_so(make: Make) -> None:
    def query(context: EffectContext, payload: Any) -> Any:
        raise StaleLeader("a newer one was here")

    resource = await make(lambda context: None, query=query)
    await resource.claim(token(1), "n1")
    with pytest.raises(StaleLeader):
        await resource.query(one_attempt())


def test_it_is_for_fenced_resources_alone() -> None:
    with pytest.raises(ConfigurationError, match="keyed"):
        PythonResource("mail", {}, guarantee=Guarantee.KEYED, claim=lambda context: None)


async def test_a_hook_that_cannot_be_imported_is_named(make: Make) -> None:
    with pytest.raises(ConfigurationError, match="'mail': claim hook 'nowhere:claim' cannot be used"):
        await make("nowhere:claim")
