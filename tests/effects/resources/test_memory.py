"""What the resource in memory has beyond the contract: other guarantees, a gate, an outage."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.raft.core.errors import ResourceUnavailable, StaleLeader
from fencepost.raft.effects.handlers import Permanent, Retryable
from fencepost.raft.effects.resources.memory import FakeResource, MemoryStore
from fencepost.raft.ports import Attempt, AttemptStatus, Guarantee

from .subjects import attempt, token


async def test_keyed_recognises_and_does_not_compare() -> None:
    resource = FakeResource(guarantee=Guarantee.KEYED)
    await resource.claim(token(2), "n2")
    (first,) = await resource.execute(token(2), "n2", [attempt("a")])
    (stale,) = await resource.execute(token(1), "n1", [attempt("a")])
    assert (first.replayed, stale.replayed) == (False, True)
    assert resource.store.effects == [("ledger", "a")]


async def test_naked_does_it_again() -> None:
    resource = FakeResource(guarantee=Guarantee.NAKED)
    for _ in range(2):
        await resource.execute(token(1), "n1", [attempt("a")])
    assert resource.store.effects == [("ledger", "a")] * 2


async def test_a_gate_holds_a_batch_before_its_atomic_step() -> None:
    store, gate = MemoryStore(), asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    old, new = FakeResource(store=store, gate=wait), FakeResource(store=store)
    held = asyncio.ensure_future(old.execute(token(1), "n1", [attempt("a")]))
    await asyncio.sleep(0)
    await new.claim(token(2), "n2")
    gate.set()
    with pytest.raises(StaleLeader):
        await held
    assert store.effects == []


async def test_an_outage_applies_nothing() -> None:
    store = MemoryStore()
    resource = FakeResource(store=store)
    store.down = True
    for call in (resource.claim(token(1), "n1"), resource.execute(token(1), "n1", [attempt("a")]), resource.fence()):
        with pytest.raises(ResourceUnavailable):
            await call
    store.down = False
    assert await resource.fence() is None
    assert store.effects == []


async def test_effects_may_fail_in_both_ways() -> None:
    def effect(attempt: Attempt) -> bytes:
        raise Permanent("400") if attempt.operation_id == "a" else Retryable("503")

    outcomes = await FakeResource(effects={"credit": effect}).execute(
        token(1), "n1", [attempt("a", 1), attempt("b", 2)]
    )
    assert [(outcome.status, outcome.error) for outcome in outcomes] == [
        (AttemptStatus.FAILED, "400"),
        (AttemptStatus.RETRY, "503"),
    ]
