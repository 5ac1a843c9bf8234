"""A required resource that stays away, a planned stop, and what a change of leader leaves on record."""

from __future__ import annotations

from fencepost.raft.core.errors import ResourceUnavailable
from fencepost.raft.effects.policy import HAND_ONS_MAX, ActivationPolicy
from fencepost.raft.ports import AnswerStatus, Wait

from ..node.world import ResourceSpec, World
from .test_activation import activation

BOUND_S = 5.0
SOON = ActivationPolicy(timeout_ns=int(BOUND_S * 1e9))


def test_s54_leadership_goes_to_a_node_that_reaches_the_resource() -> None:
    """S54: one node cannot reach a required resource; it does not linger, and the next one acts."""
    with World(ResourceSpec(activation=SOON), seed=1) as world:
        lonely = world.active_leader()
        lonely.resource.executes_fail = lonely.resource.claims_fail = ResourceUnavailable("no route from here")
        world.submit(lonely, "a")
        world.until(lambda: activation(lonely) == "fencing")
        world.until(lambda: not lonely.leads, within_s=BOUND_S + 1)
        world.until(lambda: any(node.leads for node in world.up()), within_s=10.0)
        assert world.leader() is not lonely
        (again,) = world.submit(world.leader(), "a")
        assert world.answer(again).status == AnswerStatus.DONE
        assert len(world.logged("required resource away")) == 1
        world.check_store()


def test_s54_a_resource_away_for_everybody_ends_in_a_leader_not_in_elections_without_end() -> None:
    with World(ResourceSpec("up"), ResourceSpec("down", activation=SOON), seed=2) as world:
        world.specs[1].store.down = True
        world.leader()
        world.advance(30 * BOUND_S)
        handed_on = [line for line in world.logged("required resource away") if line["hands_on"]]
        assert 1 <= len(handed_on) <= HAND_ONS_MAX * len(world.up())
        leader = world.leader()
        term = leader.raft.current_term
        world.done(leader, "a", resource="up")
        world.advance(10 * BOUND_S)
        assert world.leader().raft.current_term == term
        world.specs[1].store.down = False
        world.done(leader, "b", resource="down")
        assert leader.effects._hand_ons == {"up": 0, "down": 0}


def test_an_optional_resource_costs_nobody_the_leadership() -> None:
    optional = ActivationPolicy(required=False, timeout_ns=SOON.timeout_ns)
    with World(ResourceSpec("up"), ResourceSpec("down", activation=optional), seed=3) as world:
        world.specs[1].store.down = True
        leader = world.leader()
        world.advance(5 * BOUND_S)
        assert leader.leads
        assert leader.raft.current_term == 1
        assert world.logged("required resource away") == []
        assert leader.effects.status()["down"]["required"] is False
        assert leader.effects.status()["up"]["required"] is True


def test_a_node_that_is_going_away_takes_nothing_in_and_answers_what_it_knows() -> None:
    with World(seed=4) as world:
        leader = world.active_leader()
        world.done(leader, "known")
        leader.service.stop_admitting()
        new, known = world.submit(leader, "new", "known")
        answer = world.answer(new)
        assert (answer.status, answer.code) == (AnswerStatus.RETRY, "NOT_LEADER")
        answer = world.answer(known)
        assert (answer.status, answer.replayed) == (AnswerStatus.DONE, True)
        world.settle()
        assert "new" not in leader.machine.operations


def test_one_record_a_change_of_leader_with_every_stage() -> None:
    with World(seed=5) as world:
        first = world.active_leader()
        world.done(first, "a")
        world.crash(first.name)
        second = world.active_leader()
        world.submit(second, "b", wait=Wait.COMMITTED)
        world.settle()
        records = second.machine.elections
        assert [record.election.node for record in records] == [first.name, second.name]
        stages = [stage.stage for stage in records[-1].election.stages]
        assert stages == ["detect", "elect", "catch-up", "fence", "reconcile", "first-effect"]


def test_s31_nobody_joins_a_running_command_at_a_node_that_may_never_hear_its_end() -> None:
    with World(seed=6) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        (request,) = world.submit(leader, "a")
        world.until(lambda: leader.resource.held)
        follower = next(node for node in world.up() if node is not leader)
        world.until(lambda: "a" in follower.machine.operations)
        (joined,) = world.submit(follower, "a")
        answer = world.answer(joined)
        assert answer.status == AnswerStatus.UNKNOWN
        assert answer.state == follower.operation("a").state.value
        assert "committed at index" in answer.detail
        leader.resource.hold_before = False
        leader.resource.release()
        assert world.answer(request).status == AnswerStatus.DONE
        world.settle()
        (after,) = world.submit(follower, "a")
        assert (world.answer(after).status, world.answer(after).replayed) == (AnswerStatus.DONE, True)
