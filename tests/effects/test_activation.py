"""From winning an election to acting, and out of office again (concepts: From winning an election to acting)."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.raft.core.errors import Outcome, ResourceUnavailable, WrongCluster
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.activation import StageClock
from fencepost.raft.effects.authority import Authority
from fencepost.raft.effects.resources.ledger import StoredFence
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.ports import AnswerStatus, Guarantee, Wait

from ..node.world import ELECTION_S, ResourceSpec, SimNode, World


def activation(node: SimNode, resource: str = "ledger") -> str:
    return str(node.effects.status()[resource]["activation"])


def test_authority_is_never_valid_again() -> None:
    lease = True
    authority = Authority(FencingToken(1, 2), "n1/1", lambda: lease)
    assert authority.valid()
    lease = False
    assert not authority.valid()
    assert not authority.revoked
    lease = True
    assert authority.valid()
    authority.revoke()
    assert not authority.valid()


def test_stages_stop_at_the_first_that_is_missing_and_never_go_backwards() -> None:
    stages = StageClock()
    stages.start(1_000)
    stages.reached("detect", 2_000_001_000)
    stages.reached("elect", 1_000)
    stages.reached("fence", 5_000_001_000)
    assert [(stage.stage, stage.seconds) for stage in stages.seconds()] == [("detect", 2.0), ("elect", 0.0)]
    stages.reached("catch-up", 2_000_001_000)
    stages.reached("catch-up", 9_000_001_000)
    assert [stage.seconds for stage in stages.seconds()] == [2.0, 0.0, 2.0, 3.0]


def test_s54_no_call_before_the_no_op_is_applied_and_the_claim_stands() -> None:
    """S54: done #1..#10 are committed, not yet applied on the new leader; it calls nothing for them."""
    with World(seed=1) as world:
        old = world.active_leader()
        names = [f"c{number}" for number in range(10)]
        world.done(old, *names)
        world.submit(old, "open", wait=Wait.COMMITTED)
        world.settle()
        others = [node for node in world.up() if node is not old]
        for node in others:
            node.resource.hang_claims = True
            node.log_store.delay_s = 0.02
        world.crash(old.name)
        new = world.leader()
        assert new in others
        world.until(lambda: new.resource.held)
        assert activation(new) == "fencing"
        (request,) = world.submit(new, "next")
        world.advance(2.0)
        assert new.resource.batches == []
        assert activation(new) == "fencing"
        new.resource.hang_claims = False
        new.resource.release()
        assert world.answer(request).status == AnswerStatus.DONE
        assert [name for batch in new.resource.batches for name in batch] == ["next"]
        world.check_store()


def test_s54_nothing_is_claimed_before_the_barrier() -> None:
    """Elected, and its no-op cannot be committed: no claim, no call."""
    with World(seed=2) as world:
        old = world.active_leader()
        world.submit(old, "a", wait=Wait.COMMITTED)
        world.settle()
        claims = len(world.specs[0].store.claims)
        others = [node for node in world.up() if node is not old]
        world.crash(old.name)
        world.until(lambda: any(node.leads for node in others))
        new = next(node for node in others if node.leads)
        for node in others:
            if node is not new:
                world.pause(node.name)
        world.advance(0.8 * ELECTION_S)
        assert activation(new) in ("elected", "recovering", "follower")
        assert len(world.specs[0].store.claims) == claims
        assert new.resource.batches == []


def test_s54_entries_before_the_no_op_alone_are_no_barrier() -> None:
    """The no-op is committed by the two others before the new leader's own disk has it: what comes
    before it is applied first, and nothing may be claimed on that."""
    with World(seed=3) as world:
        old = world.active_leader()
        slow, other = [node for node in world.up() if node is not old]
        world.submit(old, "a", wait=Wait.COMMITTED)
        world.until(lambda: slow.raft.log.last_index == other.raft.log.last_index > 2)
        index = slow.raft.log.last_index
        assert slow.raft.commit_index < index
        old.loop.step_down("test")
        slow.log_store.delay_s = 0.05
        world.advance(0.31)
        slow.process.call_soon(slow.loop.campaign)
        claims = len(world.specs[0].store.claims)
        world.until(lambda: slow.leads and slow.applier.last_applied >= index)
        assert slow.applier.last_applied < slow.raft.term_start_index
        world.advance(0.01)
        assert slow.applier.last_applied < slow.raft.term_start_index
        assert activation(slow) == "recovering"
        assert len(world.specs[0].store.claims) == claims
        world.until(lambda: activation(slow) == "active")
        world.settle()
        world.check_store()


def test_one_unreachable_resource_leaves_the_others_active() -> None:
    with World(ResourceSpec("up"), ResourceSpec("down"), seed=3) as world:
        world.specs[1].store.down = True
        leader = world.leader()
        world.until(lambda: activation(leader, "up") == "active")
        world.done(leader, "a", resource="up")
        (waiting,) = world.submit(leader, "b", resource="down")
        world.advance(3.0)
        assert activation(leader, "down") == "fencing"
        status = leader.effects.status()["down"]
        assert "is down" in status["last_error"]
        body = world.call(leader, "command.get", id="b")
        world.advance(0.01)
        assert "fencing: resource 'down' is down" in world.connection.replies[body]["waiting_reason"]
        assert waiting not in world.connection.answers
        world.done(leader, "c", resource="up")
        assert leader.raft.current_term == 1
        # Claims are tried with a growing pause: about 0.1, 0.2, 0.4 ... at most every 2 s.
        assert 3 <= len(world.logged("resource not active")) <= 8
        world.specs[1].store.down = False
        assert world.answer(waiting).status == AnswerStatus.DONE
        world.check_store(world.specs[1])


def test_an_activation_that_raises_leaves_the_others_active() -> None:
    with World(ResourceSpec("good"), ResourceSpec("bad"), seed=4) as world:
        for node in world.up():
            node.resources["bad"].claims_fail = ZeroDivisionError("handler module has a bug")
        leader = world.leader()
        world.until(lambda: activation(leader, "good") == "active")
        world.done(leader, "a", resource="good")
        world.advance(5.0)
        assert activation(leader, "bad") == "fencing"
        assert leader.effects.status()["bad"]["last_error"] == "handler module has a bug"
        assert world.logged("resource not active")[-1]["code"] == "ZeroDivisionError"
        assert leader.raft.current_term == 1


def test_a_claim_without_an_answer_is_given_up_and_tried_again() -> None:
    with World(seed=5) as world:
        for node in world.up():
            node.resource.hang_claims = True
        leader = world.leader()
        world.until(lambda: leader.resource.held)
        for node in world.up():
            node.resource.hang_claims = False
        world.until(lambda: activation(leader) == "active", within_s=15.0)
        assert "no answer within 10 s" in world.logged("resource not active")[0]["error"]


def test_commands_committed_with_a_second_activation_are_not_lost() -> None:
    """The resource goes away and comes back; commands that commit in the very batch of the new
    activation entry belong to a queue that is already filled: they must still be offered."""
    with World(seed=6) as world:
        leader = world.active_leader()
        spec = world.specs[0]
        spec.store.down = True
        world.submit(leader, "a")
        world.until(lambda: activation(leader) == "fencing")
        spec.store.down = False
        proposed = leader.loop.propose_internal

        def with_company(*arguments: object) -> None:
            proposed(*arguments)  # type: ignore[arg-type]
            if not world.connection.answers and activation(leader) == "reconciling":
                leader.loop.propose_internal = proposed  # type: ignore[method-assign]
                world.submit(leader, "b", "c", "d", at_once=True)

        leader.loop.propose_internal = with_company  # type: ignore[method-assign,assignment]
        world.until(lambda: "d" in leader.machine.operations, within_s=5.0)
        world.settle()
        assert {each.operation_id for each in spec.store.operations} == {"a", "b", "c", "d"}
        world.check_store()


def test_batches_that_fail_side_by_side_cause_one_claim() -> None:
    with World(ResourceSpec(batch_limit=1, concurrency=4), seed=7) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        world.submit(leader, "a", "b", "c", "d", wait=Wait.COMMITTED)
        world.until(lambda: len(leader.resource.held) == 4)
        claims = 0
        claim = leader.resource.claim

        async def counted(token: FencingToken, holder: str) -> object:
            nonlocal claims
            claims += 1
            return await claim(token, holder)

        leader.resource.claim = counted  # type: ignore[method-assign,assignment]
        world.specs[0].store.down = True
        leader.resource.hold_before = False
        leader.resource.release()
        world.advance(0.05)
        world.specs[0].store.down = False
        world.advance(3.0)
        assert claims == 1
        assert activation(leader) == "active"
        world.settle()
        world.check_store()


def test_trouble_between_claim_and_activation_waits_for_the_next_claim() -> None:
    with World(ResourceSpec(batch_limit=1, concurrency=2), seed=22) as world:
        leader = world.active_leader()
        gated = leader.resource
        gated.delay_s = 0.0
        gated.hold_before = True
        world.submit(leader, "a", "b", "c", wait=Wait.COMMITTED)
        world.until(lambda: len(gated.held) == 2)
        gated.hold_before = False
        gated.executes_fail = ResourceUnavailable("away")
        first, second = gated.held
        first.set_result(None)
        world.until(lambda: activation(leader) == "reconciling")
        second.set_result(None)
        world.advance(0.0005)
        gated.executes_fail = None
        assert activation(leader) == "fencing"
        activations = len(leader.machine.activations)
        world.until(lambda: len(leader.machine.activations) > activations)
        assert activation(leader) == "fencing"
        assert gated.batches == []
        world.until(lambda: activation(leader) == "active")
        assert len(leader.machine.activations) == activations + 2
        world.settle()
        world.check_store()


def test_stale_claim_steps_down_and_raises_the_alarm_generation_regression() -> None:
    """The resource has seen a later generation than this cluster's: a restore, or a foreign cluster."""
    with World(seed=8) as world:
        store = world.specs[0].store
        store.fences["ledger"] = StoredFence("ledger", "cluster", FencingToken(1, 4), "somebody/1")
        leader = world.leader()
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: world.logged("generation_regression"))
        alarm = world.logged("generation_regression")[0]
        assert (alarm["log_level"], alarm["resource"], alarm["token"]) == ("error", "ledger", "1.1")
        world.until(lambda: not leader.leads)
        assert "higher token" in next(
            line["reason"] for line in world.logged("role changed") if "resource" in line["reason"]
        )
        assert store.operations == []
        # Terms grow past it in the end; only then does anything happen.
        new = world.active_leader(within_s=20.0)
        assert new.effects.token is not None
        assert new.effects.token > FencingToken(1, 4)
        assert sum(node.effects.stale_refusals["ledger"] for node in world.up()) >= 1
        world.done(new, "b")
        world.settle()
        assert all(operation.token > FencingToken(1, 4) for operation in store.operations)


def test_duplicate_generation_is_an_alarm_and_costs_the_leadership() -> None:
    with World(seed=9) as world:
        store = world.specs[0].store
        store.fences["ledger"] = StoredFence("ledger", "cluster", FencingToken(1, 1), "impostor/1")
        leader = world.leader()
        assert leader.raft.current_term == 1
        world.until(lambda: world.logged("duplicate_generation"))
        assert world.logged("duplicate_generation")[0]["log_level"] == "critical"
        new = world.active_leader()
        assert new.raft.current_term > 1
        assert all(operation.token.term > 1 for operation in store.operations)


def test_s47_paused_ex_leaders_late_write_is_refused_and_it_steps_down() -> None:
    """S47: n1 takes #9, is stopped just before sending; n2 runs #9; n1 wakes. Its call bears the old
    token and is refused, on record; accepted effects for #9 = 1; what it proposes is a no-op."""
    with World(seed=10) as world:
        old = world.active_leader()
        old.resource.hold_before = True
        world.submit(old, "nine", lane="l")
        world.until(lambda: old.resource.held)
        token = old.effects.token
        assert token is not None
        world.pause(old.name)
        old.resource.release()
        new = world.active_leader(other_than=old.name)
        world.until(lambda: new.operation("nine").state is OperationState.SUCCEEDED)
        before = new.machine.state_hash()
        world.resume(old.name)
        store = world.specs[0].store
        world.until(lambda: store.refusals)
        refusal = store.refusals[0]
        assert (refusal.token, refusal.operations, refusal.reason) == (token, ["nine"], "STALE_LEADER")
        world.advance(1.0)
        assert not old.leads
        assert old.effects.stale_refusals["ledger"] == 1
        assert [each.operation_id for each in store.operations] == ["nine"]
        assert new.machine.state_hash() == before
        world.settle()
        world.check_equal()
        assert new.operation("nine").failures == 0


def test_s47_late_outcome_of_a_paused_ex_leader_changes_nothing() -> None:
    """Its effect was done, the answer on its way when it was stopped. The successor finds the effect
    done; what the old leader puts into its own log on waking is never applied."""
    with World(seed=21) as world:
        old = world.active_leader()
        old.resource.hold_after = True
        world.submit(old, "nine", lane="l")
        world.until(lambda: old.resource.held)
        world.settle_log()
        world.pause(old.name)
        old.resource.release()
        new = world.active_leader(other_than=old.name)
        world.until(lambda: new.operation("nine").state is OperationState.SUCCEEDED)
        before = new.machine.state_hash()
        world.resume(old.name)
        world.advance(1.0)
        assert new.machine.state_hash() == before
        operation = new.operation("nine")
        assert (operation.attempt, operation.lost, operation.failures) == (2, 1, 0)
        world.settle()
        world.check_equal()
        world.check_store()


def test_s47_stale_refusal_makes_a_leader_that_knows_nothing_step_down() -> None:
    """It still believes to lead, by its own lease: the refusal tells it better."""
    with World(seed=11) as world:
        leader = world.active_leader()
        store = world.specs[0].store
        store.fences["ledger"] = StoredFence("ledger", "cluster", FencingToken(1, 2), "successor/1")
        (request,) = world.submit(leader, "a")
        world.until(lambda: not leader.leads, what="stepping down")
        assert store.refusals[-1].reason == "STALE_LEADER"
        assert leader.effects.stale_refusals["ledger"] == 1
        operation = leader.operation("a")
        # A refusal is a fact about the caller, never about the command.
        assert operation.state in (OperationState.COMMITTED, OperationState.DISPATCHED)
        assert (operation.failures, operation.error) == (0, "")
        # The successor gets there in the end and executes it once.
        world.active_leader(within_s=20.0)
        world.settle()
        assert len(store.operations) == 1
        world.until(lambda: request in world.connection.answers)


def test_s49_drain_finishes_effects_before_leadership_ends() -> None:
    """S49: three effects in flight; dispatch stops, they finish and are recorded, then the end."""
    with World(ResourceSpec(batch_limit=1, concurrency=3), seed=12) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        running = world.submit(leader, "a", "b", "c")
        world.until(lambda: len(leader.resource.held) == 3)
        drain = leader.process.create_task(leader.effects.drain(5.0))
        world.advance(0.05)
        assert activation(leader) == "draining"
        waiting = world.submit(leader, "d", wait=Wait.COMMITTED)
        world.answer(waiting[0])
        world.advance(0.2)
        assert not drain.done()
        assert leader.leads
        leader.resource.hold_before = False
        leader.resource.release()
        world.until(drain.done)
        assert drain.result() is True
        for operation in "abc":
            assert leader.operation(operation).state is OperationState.SUCCEEDED
        assert [world.answer(request).status for request in running] == [AnswerStatus.DONE] * 3
        assert leader.operation("d").state is OperationState.COMMITTED, "dispatched while draining"
        leader.loop.stop()
        world.crash(leader.name)
        world.active_leader(other_than=leader.name)
        world.settle()
        tokens = {each.operation_id: each.token.term for each in world.specs[0].store.operations}
        assert tokens["d"] > tokens["a"] == tokens["b"] == tokens["c"]
        world.check_store()


def test_s49_drain_is_bounded_and_leaves_the_rest_to_the_successor() -> None:
    with World(seed=13) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        world.submit(leader, "a")
        world.until(lambda: leader.resource.held)
        drain = leader.process.create_task(leader.effects.drain(1.0))
        world.until(drain.done, within_s=1.5)
        assert drain.result() is False
        leader.loop.stop()
        assert leader.effects.token is None
        world.crash(leader.name)
        new = world.active_leader(other_than=leader.name)
        world.until(lambda: new.operation("a").state is OperationState.SUCCEEDED)
        world.settle()
        world.check_store()


def test_drain_of_a_follower_and_of_an_idle_leader_end_at_once() -> None:
    with World(seed=14) as world:
        leader = world.active_leader()
        follower = next(node for node in world.up() if node is not leader)
        drains = [node.process.create_task(node.effects.drain(5.0)) for node in (leader, follower)]
        world.until(lambda: all(drain.done() for drain in drains), within_s=0.1)
        assert [drain.result() for drain in drains] == [True, True]


def test_drain_ends_when_leadership_is_lost() -> None:
    with World(seed=15) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        world.submit(leader, "a")
        world.until(lambda: leader.resource.held)
        drain = leader.process.create_task(leader.effects.drain(50.0))
        world.advance(0.05)
        world.isolate(leader.name)
        world.until(drain.done)
        assert drain.result() is True


def test_keyed_batch_is_not_lost_when_the_lease_lapses_for_a_moment() -> None:
    """Its dispatch commits while no quorum was heard for too long, and then one is heard again: the
    batch was not attempted, that is put on record, and it is attempted."""
    with World(ResourceSpec(guarantee=Guarantee.KEYED), seed=16) as world:
        leader = world.active_leader()
        holds = leader.raft.holds_lease
        lapsed = 0

        def lapses(now: int) -> bool:
            nonlocal lapsed
            operation = leader.machine.operations.get("a")
            if operation is not None and operation.state is OperationState.DISPATCHED and not lapsed:
                lapsed += 1
                return False
            return holds(now)

        leader.raft.holds_lease = lapses  # type: ignore[method-assign]
        world.done(leader, "a", "b", lane="l")
        assert lapsed == 1
        operation = leader.operation("a")
        assert (operation.attempt, operation.failures) == (2, 0)
        assert leader.effects.status()["ledger"]["in_flight"] == 0
        world.check_store()


def test_wrong_cluster_keeps_the_commands_and_the_other_resources() -> None:
    with World(ResourceSpec("mine"), ResourceSpec("foreign"), seed=17) as world:
        leader = world.active_leader()
        leader.resources["foreign"].executes_fail = WrongCluster("this store belongs to another cluster")
        leader.resources["foreign"].claims_fail = leader.resources["foreign"].executes_fail
        (request,) = world.submit(leader, "a", resource="foreign", lane="l")
        world.until(lambda: activation(leader, "foreign") == "fencing")
        world.done(leader, "b", resource="mine")
        leader.resources["foreign"].executes_fail = leader.resources["foreign"].claims_fail = None
        assert world.answer(request).status == AnswerStatus.DONE
        assert leader.leads


@pytest.mark.parametrize("guarantee", [Guarantee.FENCED, Guarantee.KEYED, Guarantee.NAKED])
def test_an_outage_that_is_certain_costs_no_attempt_and_no_doubt(guarantee: Guarantee) -> None:
    with World(ResourceSpec(guarantee=guarantee), seed=18) as world:
        leader = world.active_leader()
        leader.resource.executes_fail = ResourceUnavailable("refused to connect", outcome=Outcome.RETRY)
        (request,) = world.submit(leader, "a", lane="l")
        world.advance(3.0)
        assert request not in world.connection.answers
        leader.resource.executes_fail = None
        assert world.answer(request).status == AnswerStatus.DONE
        operation = leader.operation("a")
        assert operation.failures == 0
        # The claim succeeds each time, the effect does not: the pauses must still grow.
        assert operation.attempt < 10


def test_nothing_of_an_old_tenure_outlives_it() -> None:
    with World(seed=19) as world:
        world.specs[0].store.down = True
        leader = world.leader()
        world.until(lambda: activation(leader) == "fencing")
        tenure = leader.effects._tenure
        assert tenure is not None
        leader.loop.step_down("test")
        world.advance(0.01)
        assert tenure.authority.revoked
        assert all(seat.retry is None for seat in tenure._seats.values())
        world.isolate(leader.name)
        refused = len(world.logged("resource not active"))
        claims = len(leader.resource.held)
        world.advance(0.25)
        assert len(world.logged("resource not active")) == refused
        assert len(leader.resource.held) == claims
        assert not [task for task in asyncio.all_tasks(world.loop) if "claim" in repr(task)]
