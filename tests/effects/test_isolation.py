"""Poison, dead and slow endpoints slow down nobody else: a healthy load with and without them, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from fencepost.raft.core.errors import ResourceUnavailable
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects import dispatcher, queue
from fencepost.raft.effects.handlers import Permanent, Retryable
from fencepost.raft.effects.policy import ActivationPolicy, RetryPolicy
from fencepost.raft.ports import Attempt, AttemptOutcome, Guarantee, Wait

from ..node.world import ResourceSpec, SimNode, World

LANES, EACH = 10, 40
SECOND = 1_000_000_000
OPTIONAL = ActivationPolicy(required=False)
PATIENT = RetryPolicy(max_attempts=100, backoff_ns=SECOND // 20, backoff_max_ns=SECOND)
SLOW_S = 5.0
NOTICED = 1.05
"""Healthy work may take this much longer beside sick work."""


def poisonous(attempt: Attempt) -> bytes:
    if attempt.operation_id.startswith("poison"):
        raise Retryable("503")
    if attempt.operation_id.startswith("refused"):
        raise Permanent("400")
    return b'{"rows":1}'


def slow_down(node: SimNode, resource: str, slow: Callable[[Attempt], bool]) -> None:
    """Have this node's calls of such commands take long."""
    gated = node.resources[resource]
    execute = gated.execute

    async def slowly(token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
        if any(map(slow, attempts)):
            await asyncio.sleep(SLOW_S)
        return await execute(token, holder, attempts)

    gated.execute = slowly  # type: ignore[method-assign]


def healthy_s(world: World, leader: SimNode, resource: str) -> float:
    """Submit the healthy load, a few commands a millisecond over all lanes: seconds until all of it is done."""
    began_ns = world.loop.now_ns
    requests = []
    for number in range(EACH):
        for lane in range(LANES):
            requests += world.submit(leader, f"{resource}-{lane}-{number}", lane=f"{lane}", resource=resource)
        requests += world.submit(leader, f"{resource}-free-{number}", resource=resource)
        world.advance(0.002)
    world.until(lambda: world.answered(requests), within_s=60.0, what="the healthy load")
    assert {world.connection.only(request).state for request in requests} == {"succeeded"}
    world.check_store(next(spec for spec in world.specs if spec.name == resource))
    return (world.loop.now_ns - began_ns) / SECOND


# -- other resources ---------------------------------------------------------------------------------


def beside_sick_resources(sick: int) -> float:
    """Seconds for the healthy load, with ``sick`` commands for each of three endpoints that do not work."""
    specs = [
        ResourceSpec("healthy"),
        ResourceSpec("dead", policy=PATIENT, activation=OPTIONAL),
        ResourceSpec("slow", guarantee=Guarantee.KEYED, batch_limit=1, concurrency=4, activation=OPTIONAL),
        ResourceSpec("poison", {"credit": poisonous}, batch_limit=1, concurrency=4, policy=PATIENT),
    ]
    with World(*specs, seed=41) as world:
        leader = world.active_leader()
        leader.resources["dead"].executes_fail = ResourceUnavailable("connection refused")
        slow_down(leader, "slow", lambda attempt: True)
        for name in ("dead", "slow", "poison"):
            world.submit(leader, *[f"{name}-{number}" for number in range(sick)], resource=name, wait=Wait.COMMITTED)
        world.advance(0.1)
        took_s = healthy_s(world, leader, "healthy")
        if sick:
            assert not world.specs[1].store.operations
            assert len(world.specs[2].store.operations) <= 4
            assert not world.specs[3].store.operations
        return took_s


def test_s51_s53_a_dead_a_slow_and_a_poisoned_endpoint_slow_down_no_other() -> None:
    alone_s, beside_s = beside_sick_resources(0), beside_sick_resources(300)
    assert beside_s / alone_s < NOTICED


# -- other lanes -------------------------------------------------------------------------------------


def beside_poison(poison: int) -> float:
    """Seconds for the healthy load beside so many lanes whose head never succeeds, at the same resource."""
    with World(ResourceSpec("ledger", {"credit": poisonous}, policy=PATIENT), seed=42) as world:
        leader = world.active_leader()
        for number in range(poison):
            names = [f"poison-{number}", *(f"behind-{number}-{each}" for each in range(10))]
            world.submit(leader, *names, lane=f"poison-{number}", wait=Wait.COMMITTED)
            world.submit(leader, f"refused-{number}", f"poison-free-{number}", wait=Wait.COMMITTED)
        world.advance(0.1)
        took_s = healthy_s(world, leader, "ledger")
        done = {each.operation_id for each in world.specs[0].store.operations}
        assert not any(name.startswith(("poison", "refused", "behind")) for name in done)
        return took_s


def test_s51_poison_slows_down_no_other_lane() -> None:
    assert beside_poison(20) / beside_poison(0) < NOTICED


def beside_slow_lanes(slow: int) -> float:
    """Seconds for the healthy load beside so many lanes of slow commands, at a resource of 16 calls at once."""
    spec = ResourceSpec("api", guarantee=Guarantee.KEYED, batch_limit=1, concurrency=16)
    with World(spec, seed=43) as world:
        leader = world.active_leader()
        slow_down(leader, "api", lambda attempt: attempt.operation_id.startswith("slow"))
        for number in range(slow):
            names = [f"slow-{number}-{each}" for each in range(10)]
            world.submit(leader, *names, lane=f"slow-{number}", wait=Wait.COMMITTED)
        world.advance(0.1)
        return healthy_s(world, leader, "api")


@pytest.mark.parametrize("slow", [1, 4])
def test_s53_slow_lanes_take_no_more_than_their_calls(slow: int) -> None:
    """A lane has one call under way. The other calls at once are for the others, whose rate is as large."""
    assert beside_slow_lanes(slow) / beside_slow_lanes(0) < 16 / (16 - slow) + NOTICED - 1


# -- the checks can fail -----------------------------------------------------------------------------


def test_a_dispatcher_that_waits_for_its_slow_calls_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call at a time: whatever is behind a slow one waits."""
    monkeypatch.setattr(dispatcher.Dispatcher, "_concurrency", lambda self: 1)
    with pytest.raises(AssertionError, match="the healthy load did not come to hold"):
        beside_slow_lanes(2)


def test_a_queue_that_stands_behind_poison_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pauses poison is tried in every batch, and fills it."""
    monkeypatch.setattr(queue, "due_of", lambda operation: 0)
    alone_s = beside_poison(0)
    monkeypatch.setattr(queue.DispatchQueue, "take", lambda self, limit, take=queue.DispatchQueue.take: take(self, 4))
    with pytest.raises(AssertionError):
        assert beside_poison(20) / alone_s < NOTICED
