"""Commands that a dead leader left in doubt, at a resource that can be asked about them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fencepost.raft.core.errors import StaleLeader
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.handlers import Retryable
from fencepost.raft.effects.policy import RetryPolicy
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.ports import Attempt, AttemptOutcome, Guarantee, Wait

from ..node.world import ResourceSpec, SimNode, World


def naked() -> ResourceSpec:
    return ResourceSpec(guarantee=Guarantee.NAKED, queryable=True)


def asked(world: World) -> list[tuple[str, str, int]]:
    return [(node.name, *each) for node in world.nodes.values() for each in node.resource.asked]


def left_in_doubt(world: World, where: str) -> SimNode:
    """A leader ended right before or after the effect of ``a``. Returns its successor, active."""
    old = world.active_leader()
    setattr(old.resource, f"hold_{where}", True)
    world.submit(old, "a")
    world.until(lambda: old.resource.held)
    world.settle_log()
    world.crash(old.name)
    new = world.active_leader(other_than=old.name)
    world.done(new, "other")
    world.advance(3.0)
    return new


@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("where", ["before", "after"])
def test_absence_counts_where_a_claim_makes_it_final_and_presence_everywhere(where: str, final: bool) -> None:
    with World(naked(), seed=3) as world:
        for node in world.nodes.values():
            node.resource.absence_is_final = final  # type: ignore[attr-defined]
        new = left_in_doubt(world, where)
        assert asked(world) == [(new.name, "a", 1)]
        operation = new.operation("a")
        effects = [each.operation_id for each in world.specs[0].store.operations]
        if where == "after":
            assert (operation.state, operation.attempt) == (OperationState.SUCCEEDED, 1)
            assert effects == ["a", "other"], "nothing is repeated"
        elif final:
            assert (operation.state, operation.attempt) == (OperationState.SUCCEEDED, 2)
            assert sorted(effects) == ["a", "other"]
        else:
            assert (operation.state, operation.attempt) == (OperationState.IN_DOUBT, 1)
            assert effects == ["other"]
        world.check_equal()


def test_a_lane_behind_it_goes_on_when_it_is_found() -> None:
    with World(ResourceSpec(guarantee=Guarantee.NAKED, queryable=True, batch_limit=1), seed=4) as world:
        old = world.active_leader()
        old.resource.hold_after = True
        world.submit(old, "a", "b", lane="l")
        world.until(lambda: old.resource.held)
        world.settle_log()
        world.crash(old.name)
        new = world.active_leader(other_than=old.name)
        world.until(lambda: new.operation("b").state is OperationState.SUCCEEDED)
        assert new.operation("a").state is OperationState.SUCCEEDED
        assert [each.operation_id for each in world.specs[0].store.operations] == ["a", "b"]


def test_one_that_does_not_answer_leaves_everything_as_it_is() -> None:
    with World(naked(), seed=5) as world:
        for node in world.nodes.values():
            node.resource.query_fails = OSError("away")
        new = left_in_doubt(world, "after")
        assert asked(world) == [(new.name, "a", 1)]
        assert new.operation("a").state is OperationState.IN_DOUBT


def test_where_nothing_is_in_doubt_nobody_is_asked() -> None:
    with World(ResourceSpec(guarantee=Guarantee.KEYED, queryable=True), seed=6) as world:
        new = left_in_doubt(world, "after")
        assert new.operation("a").state is OperationState.SUCCEEDED
        assert asked(world) == []


def test_absence_does_not_count_for_an_attempt_of_the_very_leader_that_asks() -> None:
    """It has not answered, is not there yet, and arrives: nothing bars it, and another attempt would do it twice."""
    with World(naked(), seed=7) as world:
        leader = world.active_leader()
        execute = leader.resource.execute

        async def overdue(token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
            leader.resource.execute = execute  # type: ignore[method-assign]
            world.loop.call_later(1.0, world.loop.create_task, execute(token, holder, attempts))
            raise ConnectionError("no answer")

        leader.resource.execute = overdue  # type: ignore[method-assign]
        world.submit(leader, "a")
        world.until(lambda: asked(world))
        world.advance(3.0)
        assert [each.operation_id for each in world.specs[0].store.operations] == ["a"]
        assert leader.operation("a").state is OperationState.IN_DOUBT
        leader.loop.step_down("test")
        world.until(lambda: leader.operation("a").state is OperationState.SUCCEEDED)


def test_a_leader_that_hears_of_another_holder_when_it_asks_steps_down() -> None:
    with World(ResourceSpec(queryable=True), seed=7) as world:
        leader = world.active_leader()
        leader.resource.query_fails = StaleLeader("it has accepted another")
        leader.resource.hold_before = True
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.resource.held)
        request = world.call(leader, "command.cancel", id="a")
        world.until(lambda: not leader.leads)
        assert [each["resource"] for each in world.logged("stale token refused")] == ["ledger"]
        world.until(lambda: world.heard(request))


def test_what_is_asked_about_is_its_last_attempt_where_that_stood() -> None:
    """A command that was redriven stands at another place than the one that its entry has."""
    policy = RetryPolicy(max_attempts=1, backoff_ns=1, backoff_max_ns=1)
    fails = {"a": 1}

    def credit(attempt: Attempt) -> bytes:
        if fails.pop(attempt.operation_id, 0):
            raise Retryable("503")
        return b"{}"

    with World(ResourceSpec(effects={"credit": credit}, policy=policy, queryable=True), seed=8) as world:
        leader = world.active_leader()
        world.submit(leader, "a", lane="k", wait=Wait.COMMITTED)
        world.until(lambda: leader.operation("a").state is OperationState.DEAD)
        leader.resource.hold_before = True
        redriven = world.reply(leader, "command.redrive", id="a")["entry_index"]
        world.until(lambda: leader.resource.held and leader.operation("a").attempt == 2)
        asked: list[Attempt] = []
        leader.resource.look = asked.append
        world.reply(leader, "command.cancel", id="a")
        assert [(each.index, each.number) for each in asked] == [(redriven, 2)]
