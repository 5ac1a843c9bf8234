"""What is wanted of a command while something else is happening to it: an activation, a doubt, a lost dispatch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fencepost.raft.core.errors import CommandInvalid, FencepostError, NotLeader, ResourceUnavailable, WrongState
from fencepost.raft.core.errors import Outcome as OutcomeOf
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.policy import RetryPolicy
from fencepost.raft.outbox.codec import Command, encode
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.ports import Answered, Attempt, AttemptOutcome, AttemptStatus, Guarantee, SubmitRequest, Wait

from ..node.process import QueryableResource
from ..node.world import ResourceSpec, SimNode, World
from .test_wishes import S, executed, failing

SLOWLY = RetryPolicy(backoff_ns=S, backoff_max_ns=S)
DONE: dict[str, Any] = {"as": "done"}


@pytest.mark.parametrize("lane", ["", "k"])
def test_a_dead_letter_that_is_redriven_beside_an_activation_is_tried_once(lane: str) -> None:
    """Both entries are applied in one go: the queue is filled from a state that holds what was redriven."""
    once = RetryPolicy(max_attempts=1)
    with World(ResourceSpec(effects=failing({"a": 1}), policy=once, guarantee=Guarantee.NAKED)) as world:
        leader = world.active_leader()
        world.submit(leader, "a", lane=lane, wait=Wait.COMMITTED)
        world.until(lambda: leader.operation("a").state is OperationState.DEAD)
        world.settle_log()
        for node in world.up():
            node.resource.hang_claims = True
        world.crash(leader.name)
        new = world.leader(other_than=leader.name)
        world.until(lambda: new.resource.held)
        world.blocked |= {(new.name, name) for name in world.disks if name != new.name}
        new.resource.hang_claims = False
        new.resource.release()
        world.call(new, "command.redrive", id="a")
        world.advance(0.1)
        world.blocked.clear()
        world.until(lambda: new.operation("a").state is OperationState.SUCCEEDED)
        world.advance(1)
        assert executed(world) == ["a"]


def test_a_wish_does_not_put_what_waits_for_its_next_attempt_into_the_queue_again() -> None:
    policy = RetryPolicy(backoff_ns=3 * S, backoff_max_ns=3 * S)
    with World(ResourceSpec(effects=failing({"a": 1}), policy=policy)) as world:
        leader = world.active_leader()
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.operation("a").state is OperationState.RETRY_WAIT)
        world.settle_log()
        world.crash(leader.name)
        new = world.active_leader()
        assert world.reply(new, "command.cancel", id="a")["did"] == "requested"
        world.until(lambda: new.operation("a").state is OperationState.SUCCEEDED)
        assert new.resource.batches == [["a"]]


@pytest.mark.parametrize("lane", ["", "k"])
def test_a_deadline_that_passed_in_doubt_counts_when_the_doubt_ends(lane: str) -> None:
    """Its resource says that it was not applied. It may not be tried any more, and its lane is not to wait for it."""
    with World(ResourceSpec(guarantee=Guarantee.NAKED, queryable=True)) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        command = Command("a", "ledger", "credit", lane, b"{}", 0, leader.loop.cluster_time_ns() + S)
        request = SubmitRequest(7, int(Wait.COMMITTED), encode(command))
        leader.process.call_soon(leader.service.submit, world.connection, [request])
        world.until(lambda: leader.resource.held)
        world.submit(leader, "b", lane=lane, wait=Wait.COMMITTED)
        world.settle_log()
        world.crash(leader.name)
        for node in world.up():
            node.resource.query_fails = ConnectionError("away")
        new = world.leader(other_than=leader.name)
        world.until(lambda: new.operation("a").state is OperationState.IN_DOUBT)
        world.advance(2)
        new.resource.query_fails = None
        world.reply(new, "resource.claim", name="ledger")
        world.until(lambda: new.operation("a").state is OperationState.DEAD)
        world.until(lambda: new.operation("b").state is OperationState.SUCCEEDED)
        assert executed(world) == ["b"]


def lost_beside_its_dispatch(world: World) -> SimNode:
    """The effect of ``a`` has happened, its dispatch was lost with its leader; the new one reaches nothing."""
    leader = world.active_leader()
    leader.resource.hold_after = True
    leader.resource.watch = lambda token, attempts: world.isolate(leader.name)
    world.submit(leader, "a", wait=Wait.COMMITTED)
    world.until(lambda: executed(world) == ["a"])
    world.crash(leader.name)
    world.heal()
    for node in world.up():
        node.resource.executes_fail = ResourceUnavailable("away", outcome=OutcomeOf.RETRY)
    new = world.active_leader()
    assert new.operation("a").attempt == 0
    world.until(lambda: new.operation("a").attempt == 1)
    return new


@pytest.mark.parametrize("under_way", [False, True])
def test_an_attempt_that_reached_nothing_says_nothing_about_one_that_is_not_on_record(under_way: bool) -> None:
    with World() as world:
        new = lost_beside_its_dispatch(world)
        state = OperationState.DISPATCHED if under_way else OperationState.COMMITTED
        world.until(lambda: new.operation("a").state is state)
        assert world.reply(new, "command.cancel", id="a")["definite"] is False
        new.resource.executes_fail = None
        world.until(lambda: new.operation("a").state is OperationState.SUCCEEDED)
        assert executed(world) == ["a"]


@pytest.mark.parametrize("tells", [False, True])
def test_a_refusal_at_the_door_says_nothing_about_one_that_is_not_on_record(tells: bool) -> None:
    """A handler that meets a 503 has not looked whether its key is known. A ledger has, and would have said so."""
    with World(ResourceSpec(policy=RetryPolicy(max_attempts=3, backoff_ns=S, backoff_max_ns=S))) as world:
        for node in world.up():
            node.resource.refusal_tells = tells
        new = lost_beside_its_dispatch(world)
        new.resource.executes_fail = None

        async def refuse(token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
            return [AttemptOutcome(AttemptStatus.RETRY, b"", "503", False) for _ in attempts]

        new.resource.execute = refuse  # type: ignore[method-assign]
        ended = OperationState.DEAD if tells else OperationState.IN_DOUBT
        world.until(lambda: new.operation("a").state is ended, within_s=10)


def test_what_the_resource_has_refused_itself_is_cancelled_for_certain() -> None:
    """By a leader that has not got it in first: nothing is missing any more."""
    with World(ResourceSpec(effects=failing({"a": 9}), policy=RetryPolicy(backoff_ns=S, backoff_max_ns=S))) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.resource.held)
        world.settle_log()
        world.crash(leader.name)
        new = world.active_leader()
        world.until(lambda: new.operation("a").state is OperationState.RETRY_WAIT)
        assert new.operation("a").lost == 1
        answer = world.reply(new, "command.cancel", id="a")
        assert (answer["did"], answer["definite"]) == ("cancelled", True)
        assert executed(world) == []


def test_nothing_is_dispatched_where_all_that_was_ready_was_cancelled() -> None:
    with World(ResourceSpec(batch_limit=1)) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.resource.held)
        world.submit(leader, "b", "c", lane="k", wait=Wait.COMMITTED)
        world.submit(leader, "d", wait=Wait.COMMITTED)
        world.until(lambda: "d" in leader.machine.operations)
        for name in ("d", "b"):
            assert world.reply(leader, "command.cancel", id=name)["definite"]
        leader.resource.hold_before = False
        leader.resource.release()
        world.until(lambda: leader.operation("c").state is OperationState.SUCCEEDED)
        world.advance(1)
        assert leader.resource.batches == [["a"], ["c"]]


def test_the_age_of_an_attempt_says_whether_its_key_may_be_forgotten() -> None:
    policy = RetryPolicy(max_attempts=2, backoff_ns=S, backoff_max_ns=S)
    with World(ResourceSpec(effects=failing({"a": 2}), policy=policy, guarantee=Guarantee.KEYED)) as world:
        leader = world.active_leader()
        ages: list[int] = []
        leader.resource.watch = lambda token, attempts: ages.extend(attempt.age_ns for attempt in attempts)
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.operation("a").state is OperationState.DEAD)
        world.advance(20)
        leader.resource.executes_fail = ConnectionError("no answer")
        world.reply(leader, "command.redrive", id="a")
        world.until(lambda: leader.operation("a").state is OperationState.RETRY_WAIT)
        leader.resource.executes_fail = None
        world.until(lambda: leader.operation("a").state is OperationState.SUCCEEDED)
        assert ages[:3] == [0, 0, 0]
        assert 0 < ages[3] <= S + 100_000_000


def cancelled_while_its_resource_is_asked(
    world: World, leader: SimNode, meanwhile: Callable[[], None]
) -> FencepostError:
    """What a client hears that wants ``a`` cancelled, where something happens before its resource has answered."""
    resource = leader.resource
    assert isinstance(resource, QueryableResource)
    gate: asyncio.Future[None] = world.loop.create_future()
    query = resource.query

    async def slow(attempt: Attempt) -> Answered:
        resource.query = query  # type: ignore[method-assign]
        await gate
        return await query(attempt)

    resource.query = slow  # type: ignore[method-assign]
    request = world.call(leader, "command.cancel", id="a")
    world.until(lambda: resource.query == query)
    meanwhile()
    gate.set_result(None)
    world.until(lambda: world.heard(request))
    assert request not in world.connection.replies, world.connection.replies[request]
    return world.connection.errors[request]


def test_a_cancel_that_its_leader_lost_the_term_over_is_not_said_to_be_asked_for() -> None:
    policy = RetryPolicy(backoff_ns=9 * S, backoff_max_ns=9 * S)
    with World(ResourceSpec(effects=failing({"a": 9}), policy=policy, queryable=True), seed=2) as world:
        leader = world.active_leader()
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.operation("a").state is OperationState.RETRY_WAIT)

        def leads_again() -> None:
            leader.loop.step_down("test")
            world.advance(0.31)
            leader.process.call_soon(leader.loop.campaign)
            world.until(lambda: leader.leads and leader.effects.acting)

        assert isinstance(cancelled_while_its_resource_is_asked(world, leader, leads_again), NotLeader)
        assert not leader.operation("a").cancel_ns


def test_a_cancel_of_what_came_in_doubt_meanwhile_is_not_said_to_be_asked_for() -> None:
    with World(
        ResourceSpec(effects=failing({"a": 1}), policy=SLOWLY, guarantee=Guarantee.NAKED, queryable=True)
    ) as world:
        leader = world.active_leader()
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.operation("a").state is OperationState.RETRY_WAIT)
        leader.resource.executes_fail = ConnectionError("no answer")
        leader.resource.query_fails = ConnectionError("no answer")

        def comes_in_doubt() -> None:
            world.until(lambda: leader.operation("a").state is OperationState.IN_DOUBT)

        assert isinstance(cancelled_while_its_resource_is_asked(world, leader, comes_in_doubt), WrongState)
        assert not leader.operation("a").cancel_ns
        assert isinstance(
            world.error(leader, "command.resolve", id="a", note="n", result=1 << 40, **DONE), CommandInvalid
        )
