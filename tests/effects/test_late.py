"""Successes that came too late for the tenure they belong to: facts all the same."""

from __future__ import annotations

from typing import Any

from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.late import LATE_ROWS_MAX, LateSuccesses
from fencepost.raft.effects.policy import DispatchPolicy, OnDead
from fencepost.raft.outbox.codec import OutcomeRow
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.outbox.transitions import Verdict
from fencepost.raft.ports import AnswerStatus, Guarantee

from ..node.world import ResourceSpec, World


def test_a_naked_success_after_step_down_is_on_record_once_the_node_leads_again() -> None:
    with World(ResourceSpec(guarantee=Guarantee.NAKED), seed=1) as world:
        first = world.active_leader()
        first.resource.hold_after = True
        world.submit(first, "a", lane="l")
        world.until(lambda: first.resource.held)
        first.loop.step_down("test")
        world.until(lambda: not first.leads)
        second = world.active_leader(other_than=first.name, within_s=10.0)
        assert second.operation("a").state is OperationState.IN_DOUBT
        # A lane-mate waits behind the command in doubt, at whoever leads.
        (behind,) = world.submit(second, "b", lane="l")
        first.resource.hold_after = False
        first.resource.release()
        world.advance(1.0)
        for _ in range(50):  # Until chance gives it the office again.
            leader = world.active_leader()
            if leader is first:
                break
            leader.loop.step_down("test")
            world.advance(1.0)
        assert first.leads
        world.until(lambda: first.operation("a").state is OperationState.SUCCEEDED)
        world.until(lambda: first.operation("b").state is OperationState.SUCCEEDED)
        assert first.operation("a").token == FencingToken(1, 1)
        assert [name for batch in first.resource.batches for name in batch].count("a") == 1
        assert behind is not None


def test_a_success_that_arrives_in_a_later_tenure_frees_the_lane_behind_it() -> None:
    """The node leads again by the time the old effect answers: its lane stands still behind the
    command in doubt, and goes on when the success is on record."""
    with World(ResourceSpec(guarantee=Guarantee.NAKED, concurrency=2), seed=2) as world:
        leader = world.active_leader()
        leader.resource.hold_after = True
        world.submit(leader, "a", lane="l")
        world.until(lambda: leader.resource.held)
        leader.loop.step_down("test")
        world.advance(0.31)
        leader.process.call_soon(leader.loop.campaign)
        world.until(lambda: leader.leads and leader.operation("a").state is OperationState.IN_DOUBT, within_s=10.0)
        (behind,) = world.submit(leader, "b", lane="l")
        world.advance(1.0)
        assert behind not in world.connection.answers
        leader.resource.hold_after = False
        leader.resource.release()
        assert world.answer(behind).status == AnswerStatus.DONE
        assert leader.operation("a").state is OperationState.SUCCEEDED


def test_a_success_of_a_dead_letter_frees_the_lane_that_nothing_waits_in_yet() -> None:
    """An operator took it for not done, and was mistaken: the letter is none any more, for what comes later either."""
    spec = ResourceSpec(guarantee=Guarantee.NAKED, concurrency=2, dispatch=DispatchPolicy(on_dead=OnDead.BLOCK))
    with World(spec, seed=2) as world:
        leader = world.active_leader()
        leader.resource.hold_after = True
        world.submit(leader, "a", lane="l")
        world.until(lambda: leader.resource.held)
        leader.loop.step_down("test")
        world.advance(0.31)
        leader.process.call_soon(leader.loop.campaign)
        world.until(lambda: leader.leads and leader.operation("a").state is OperationState.IN_DOUBT, within_s=10.0)
        how: dict[str, Any] = {"id": "a", "as": "failed", "note": "not there"}
        world.reply(leader, "command.resolve", **how)
        leader.resource.hold_after = False
        leader.resource.release()
        world.until(lambda: leader.operation("a").state is OperationState.SUCCEEDED)
        assert leader.leads
        world.done(leader, "b", lane="l")


def test_only_so_many_are_kept() -> None:
    late = LateSuccesses()
    row = OutcomeRow(1, 1, Verdict.SUCCEEDED, b"", "", 0)
    late.keep("ledger", FencingToken(1, 1), [row] * LATE_ROWS_MAX)
    late.keep("ledger", FencingToken(1, 1), [row])
    assert len(late) == LATE_ROWS_MAX
