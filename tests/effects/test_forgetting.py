"""Resources give up what the cluster has forgotten, and never what may be attempted again."""

from __future__ import annotations

import pytest

from fencepost.raft.core.errors import Outcome, ResourceUnavailable, StaleLeader
from fencepost.raft.effects import forgetting
from fencepost.raft.effects.policy import RetryPolicy
from fencepost.raft.outbox.codec import Retention
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.outbox.retention import Retaining
from fencepost.raft.ports import Wait

from ..core.planting import planted
from ..node.world import ResourceSpec, SimNode, World
from .test_wishes import executed, failing

S = 1_000_000_000
WINDOW = Retention(2 * S, 0)


@pytest.fixture(autouse=True)
def rounds_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "ROUND", 1)


def kept(world: World) -> list[str]:
    return [operation_id for _, operation_id in world.specs[0].store.first]


def forgotten(world: World, leader: SimNode, *operation_ids: str) -> None:
    world.until(lambda: not set(operation_ids) & set(leader.machine.operations), within_s=10)


def test_what_the_cluster_has_forgotten_its_resource_forgets_too() -> None:
    with World(ResourceSpec(prunable=True), retention=WINDOW) as world:
        leader = world.active_leader()
        world.done(leader, "a", "b")
        world.advance(1)
        world.done(leader, "c")
        assert kept(world) == ["a", "b", "c"]
        forgotten(world, leader, "a", "b")
        world.advance(0.1)
        assert kept(world) == ["c"]
        assert leader.resource.forgets[-1] == (leader.machine.tokens["ledger"].token, leader.operation("c").index)


def test_where_everything_is_remembered_nothing_is_forgotten() -> None:
    with World(ResourceSpec(prunable=True)) as world:
        leader = world.active_leader()
        world.done(leader, "a")
        world.advance(10)
        assert leader.resource.forgets == []
        assert leader.machine.remembers_from() == 0


def test_a_dead_letter_holds_up_everything_behind_it_until_it_is_discarded() -> None:
    policy = RetryPolicy(max_attempts=1, backoff_ns=1, backoff_max_ns=1)
    spec = ResourceSpec(effects=failing({"dead": 1}), policy=policy, prunable=True)
    with World(spec, retention=WINDOW) as world:
        leader = world.active_leader()
        world.done(leader, "before")
        world.submit(leader, "dead", wait=Wait.COMMITTED)
        world.until(lambda: leader.operation("dead").state is OperationState.DEAD)
        world.done(leader, "behind")
        forgotten(world, leader, "before", "behind")
        world.advance(3)
        assert leader.machine.remembers_from() == leader.operation("dead").index
        assert kept(world) == ["behind"]
        world.reply(leader, "command.redrive", id="dead")
        world.until(lambda: leader.operation("dead").state is OperationState.SUCCEEDED)
        forgotten(world, leader, "dead")
        world.advance(3)
        assert kept(world) == []
        assert executed(world) == ["before", "behind", "dead"]


def repeated_after_a_round() -> None:
    """``h`` and ``x`` have taken effect, their leader dies before that is on record, and the next one forgets what is
    old before it repeats them."""
    with World(ResourceSpec(prunable=True), retention=WINDOW, seed=5) as world:
        old = world.active_leader()
        world.done(old, "old")
        forgotten(world, old, "old")
        old.resource.hold_after = True
        world.submit(old, "h", "x", wait=Wait.COMMITTED)
        world.until(lambda: old.resource.held)
        world.settle_log()
        for node in world.up():
            node.resource.hold_before = True
        world.crash(old.name)
        new = world.active_leader(other_than=old.name)
        world.until(lambda: new.resource.held and new.resource.forgets)
        world.advance(0.1)
        new.resource.hold_before = False
        new.resource.release()
        world.until(lambda: new.operation("x").state is OperationState.SUCCEEDED)
        assert executed(world) == ["old", "h", "x"]
        assert "h" in kept(world)


def test_what_may_be_attempted_again_is_recognised_after_every_round() -> None:
    repeated_after_a_round()
    for wrong in ("self.last_applied + 1", "self.by_index.first() + 1"):
        with (
            planted(Retaining.remembers_from, "self.by_index.first() or self.last_applied + 1", wrong),
            pytest.raises(AssertionError, match="'h'"),
        ):
            repeated_after_a_round()


def test_a_round_that_failed_is_done_by_the_next_one() -> None:
    with World(ResourceSpec(prunable=True), retention=WINDOW) as world:
        leader = world.active_leader()
        world.done(leader, "a")
        leader.resource.forget_fails = ResourceUnavailable("away", outcome=Outcome.UNKNOWN)
        world.advance(1)
        world.done(leader, "b")
        forgotten(world, leader, "a")
        world.until(lambda: world.logged("rows not forgotten"))
        leader.resource.forget_fails = None
        forgotten(world, leader, "b")
        world.advance(1)
        assert kept(world) == []
        assert leader.leads


def test_a_leader_that_is_refused_when_it_forgets_steps_down() -> None:
    with World(ResourceSpec(prunable=True), retention=WINDOW) as world:
        leader = world.active_leader()
        world.done(leader, "a")
        leader.resource.forget_fails = StaleLeader("it has accepted another")
        world.until(lambda: not leader.leads, within_s=10)
        assert kept(world) == ["a"]
        assert [each["resource"] for each in world.logged("stale token refused")] == ["ledger"]
