"""The conformance suite of a keyed resource. Subclassed once for the fake and once for each real thing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import pytest
import pytest_asyncio

from fencepost.raft.core.errors import FenceError
from fencepost.raft.core.token import FencingToken
from fencepost.raft.ports import Attempt, AttemptOutcome, AttemptStatus, Guarantee, Resource

from .subjects import attempt, token

Nodes = Callable[[], Awaitable[Resource]]

SUCCEEDED = AttemptStatus.SUCCEEDED
FAILED = AttemptStatus.FAILED


class KeyedSubject(Protocol):
    def node(self) -> Resource:
        """Another node's resource over the same world; not opened."""

    def world(self) -> list[str]:
        """Operation ids in the order in which their effects took place, one an effect."""


async def one(resource: Resource, by: FencingToken, each: Attempt) -> AttemptOutcome:
    (outcome,) = await resource.execute(by, f"n{by.term}", [each])
    return outcome


class KeyedContract:
    """What a keyed resource promises: an operation id takes effect once, whoever sends it and however often."""

    @pytest_asyncio.fixture
    async def nodes(self, subject: KeyedSubject) -> AsyncIterator[Nodes]:
        opened: list[Resource] = []

        async def make() -> Resource:
            resource = subject.node()
            await resource.open()
            opened.append(resource)
            return resource

        yield make
        for resource in opened:
            await resource.close()
            await resource.close()
        assert len(subject.world()) == len(set(subject.world())), "an operation took effect twice"

    async def test_says_what_it_is(self, nodes: Nodes) -> None:
        resource = await nodes()
        assert resource.guarantee is Guarantee.KEYED
        assert resource.effects == frozenset({"credit"})

    async def test_the_same_id_twice_gives_the_first_result(self, subject: KeyedSubject, nodes: Nodes) -> None:
        resource = await nodes()
        first = await one(resource, token(1), attempt("a", 1))
        between = await one(resource, token(1), attempt("b", 2))
        again = await one(resource, token(1), attempt("a", 1, number=2))
        assert (first.status, between.status, again.status) == (SUCCEEDED, SUCCEEDED, SUCCEEDED)
        assert first.result == again.result != between.result
        assert subject.world() == ["a", "b"]

    async def test_the_same_id_from_two_leaders(self, subject: KeyedSubject, nodes: Nodes) -> None:
        """S50: the effect took place and its leader died before the outcome was committed."""
        old, new = await nodes(), await nodes()
        first = await one(old, token(1), attempt("a", 1))
        await new.claim(token(2), "n2")
        again = await one(new, token(2), attempt("a", 1, number=2))
        assert (again.status, again.result) == (SUCCEEDED, first.result)
        assert subject.world() == ["a"]

    async def test_a_stale_leader_is_harmless(self, subject: KeyedSubject, nodes: Nodes) -> None:
        old, new = await nodes(), await nodes()
        await old.claim(token(1), "n1")
        await new.claim(token(2), "n2")
        await one(new, token(2), attempt("a", 1))
        late = await one(old, token(1), attempt("a", 1))
        assert late.status is SUCCEEDED
        assert subject.world() == ["a"]

    async def test_the_same_id_with_another_payload(self, subject: KeyedSubject, nodes: Nodes) -> None:
        resource = await nodes()
        await one(resource, token(1), attempt("a", 1, cents=1))
        other = await one(resource, token(1), attempt("a", 1, cents=2))
        assert other.status is FAILED
        assert other.error
        assert subject.world() == ["a"]

    async def test_what_is_refused_has_no_effect(self, subject: KeyedSubject, nodes: Nodes) -> None:
        resource = await nodes()
        outcome = await one(resource, token(1), attempt("a", 1, cents=-1))
        assert (outcome.status, outcome.result) == (FAILED, b"")
        assert outcome.error
        assert subject.world() == []

    async def test_an_unknown_effect_waits_with_its_reason(self, subject: KeyedSubject, nodes: Nodes) -> None:
        outcome = await one(await nodes(), token(1), attempt("a", 1, effect="unheard-of"))
        assert outcome.status is AttemptStatus.NOT_ATTEMPTED
        assert "unheard-of" in outcome.error
        assert subject.world() == []

    async def test_old_and_new_leader_at_once(self, subject: KeyedSubject, nodes: Nodes) -> None:
        old, new = await nodes(), await nodes()
        for index in range(1, 6):
            each = attempt(f"a{index}", index)
            outcomes = await asyncio.gather(one(old, token(1), each), one(new, token(2), each))
            statuses = {outcome.status for outcome in outcomes}
            assert SUCCEEDED in statuses
            assert statuses <= {SUCCEEDED, AttemptStatus.UNKNOWN}
        assert sorted(subject.world()) == [f"a{index}" for index in range(1, 6)]

    @pytest.mark.parametrize("seed", range(4))
    async def test_random_leaders(self, subject: KeyedSubject, nodes: Nodes, seed: int) -> None:
        chance = random.Random(seed)
        handles = [await nodes(), await nodes(), await nodes()]
        results: dict[str, bytes] = {}
        term = 1
        for _ in range(60):
            node = chance.randrange(3)
            term += chance.choice([0, 0, 0, 1])
            index = chance.randrange(1, 20)
            each = attempt(f"a{index}", index, cents=-1 if index % 7 == 0 else index)
            try:
                outcome = await one(handles[node], token(term * 3 + node), each)
            except FenceError:
                continue  # A fake may compare what this resource need not.
            assert (outcome.status is SUCCEEDED) == (index % 7 != 0)
            if outcome.status is SUCCEEDED:
                assert results.setdefault(each.operation_id, outcome.result) == outcome.result
        assert sorted(subject.world()) == sorted(results)
        assert len(results) > 5
