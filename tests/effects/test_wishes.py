"""Cancel, times, dead letters and doubt, from the question of a client to the entry that answers it."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.raft.core.errors import CommandInvalid, NotFound, NotLeader, WrongState
from fencepost.raft.effects.dispatcher import Dispatcher
from fencepost.raft.effects.handlers import Retryable
from fencepost.raft.effects.policy import DispatchPolicy, OnDead, RetryPolicy
from fencepost.raft.outbox.codec import Command, Retention, encode
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.ports import Attempt, Guarantee, SubmitRequest, Wait

from ..core.planting import planted
from ..node.world import ResourceSpec, SimNode, World

S = 1_000_000_000
POLICY = RetryPolicy(max_attempts=2, backoff_ns=10_000_000, backoff_max_ns=10_000_000)


def failing(times: dict[str, int]) -> dict[str, Any]:
    """An effect that is refused so many times, by operation id."""

    def credit(attempt: Attempt) -> bytes:
        left = times.get(attempt.operation_id, 0)
        if left:
            times[attempt.operation_id] = left - 1
            raise Retryable("503")
        return b'{"rows":1}'

    return {"credit": credit}


def executed(world: World) -> list[str]:
    return [operation_id for _, operation_id in world.specs[0].store.effects]


def timed(world: World, leader: SimNode, name: str, *, not_before_ns: int = 0, deadline_ns: int = 0) -> None:
    command = Command(name, "ledger", "credit", "", b"{}", not_before_ns, deadline_ns)
    request = SubmitRequest(7_000_000 + len(leader.machine.operations), Wait.COMMITTED, encode(command))
    leader.process.call_soon(leader.service.submit, world.connection, [request])
    world.until(lambda: name in leader.machine.operations)


# -- cancel -----------------------------------------------------------------------------------------------


def test_what_waits_behind_another_is_cancelled_for_certain() -> None:
    with World(ResourceSpec(batch_limit=1)) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        world.submit(leader, "a", "b", lane="k", wait=Wait.COMMITTED)
        world.until(lambda: leader.resource.held)
        answer = world.reply(leader, "command.cancel", id="b", note="ordered twice")
        assert (answer["did"], answer["definite"], answer["state"]) == ("cancelled", True, "cancelled")
        leader.resource.hold_before = False
        leader.resource.release()
        world.until(lambda: leader.operation("a").state is OperationState.SUCCEEDED)
        world.advance(1)
        assert executed(world) == ["a"]
        assert world.reply(leader, "command.cancel", id="b")["did"] == "cancelled"


def test_what_is_under_way_is_only_asked_to_be_cancelled_and_the_answer_says_so() -> None:
    with World(ResourceSpec(effects=failing({"a": 1}), policy=POLICY)) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.resource.held)
        world.settle_log()
        answer = world.reply(leader, "command.cancel", id="a")
        assert (answer["did"], answer["definite"], answer["state"]) == ("requested", False, "dispatched")
        leader.resource.hold_before = False
        leader.resource.release()
        world.until(lambda: leader.operation("a").state is OperationState.CANCELLED)
        assert executed(world) == []


def cancelled_while_nothing_commits() -> None:
    """Its next attempt is due while the cancel waits for its commit: it waits as well, and does not run."""
    policy = RetryPolicy(backoff_ns=100_000_000, backoff_max_ns=100_000_000)
    with World(ResourceSpec(effects=failing({"a": 1}), policy=policy), seed=3) as world:
        leader = world.active_leader()
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.operation("a").state is OperationState.RETRY_WAIT)
        others = [node.name for node in world.up() if node is not leader]
        world.blocked |= {(leader.name, name) for name in others}
        request = world.call(leader, "command.cancel", id="a")
        world.advance(0.15)
        world.blocked.clear()
        world.until(lambda: world.heard(request))
        world.until(lambda: leader.operation("a").state in (OperationState.CANCELLED, OperationState.SUCCEEDED))
        world.advance(1)
        assert leader.operation("a").state is OperationState.CANCELLED
        assert executed(world) == []


def test_an_attempt_that_is_due_does_not_overtake_a_cancel_that_is_not_committed_yet() -> None:
    cancelled_while_nothing_commits()
    with planted(Dispatcher.hold, "self._held.add(operation.index)", "pass"), pytest.raises(AssertionError):
        cancelled_while_nothing_commits()


def test_an_effect_that_would_run_beside_its_dispatch_does_not_overtake_a_cancel() -> None:
    """Both are asked for in one turn: whichever stands first in the log, the effect agrees with it."""
    with World() as world:
        leader = world.active_leader()
        for node in world.up():
            node.resource.hold_before = True
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: "a" in leader.machine.operations)
        operation = leader.operation("a")
        request = world.call(leader, "command.cancel", id="a")
        leader.resource.hold_before = False
        leader.resource.release()
        world.until(lambda: world.heard(request))
        world.until(lambda: operation.state in (OperationState.CANCELLED, OperationState.SUCCEEDED))
        world.advance(1)
        assert (operation.state is OperationState.CANCELLED) is ("a" not in executed(world))


@pytest.mark.parametrize("queryable", [True, False])
def test_after_a_failover_the_resource_is_asked_before_a_cancel_is_promised(queryable: bool) -> None:
    """The effect has happened, and the dispatch that would say so was lost with its leader."""
    with World(ResourceSpec(queryable=queryable)) as world:
        leader = world.active_leader()
        leader.resource.hold_after = True
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: "a" in executed(world))
        world.crash(leader.name)
        new = world.leader(other_than=leader.name)
        request = world.call(new, "command.cancel", id="a")
        world.until(lambda: world.heard(request))
        world.until(lambda: new.operation("a").state is OperationState.SUCCEEDED)
        assert executed(world) == ["a"]


def test_a_resource_that_does_not_answer_makes_a_cancel_a_request_and_no_riddle() -> None:
    with World(ResourceSpec(queryable=True)) as world:
        leader = world.active_leader()
        leader.resource.hang_queries = True
        leader.resource.hold_before = True
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.resource.held)
        world.settle_log()
        answer = world.reply(leader, "command.cancel", id="a")
        assert (answer["did"], answer["definite"]) == ("requested", False)
        assert leader.resource.asked == [("a", 1)]


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("command.redrive", {}),
        ("command.discard", {}),
        ("command.resolve", {"as": "done", "note": "seen"}),
        ("command.cancel", {}),
    ],
)
def test_what_has_succeeded_is_past_all_of_it(method: str, more: dict[str, Any]) -> None:
    with World() as world:
        leader = world.active_leader()
        world.done(leader, "a")
        with pytest.raises(WrongState):
            world.reply(leader, method, id="a", **more)
        with pytest.raises(NotFound):
            world.reply(leader, method, id="nobody", **more)
        follower = next(node for node in world.up() if node is not leader)
        with pytest.raises(NotLeader):
            world.reply(follower, method, id="a", **more)


# -- times ------------------------------------------------------------------------------------------------


def test_a_scheduled_command_waits_for_its_time_and_others_do_not_wait_for_it() -> None:
    with World() as world:
        leader = world.active_leader()
        due_ns = leader.loop.cluster_time_ns() + 2 * S
        timed(world, leader, "later", not_before_ns=due_ns)
        world.done(leader, "now")
        world.advance(1.5)
        assert executed(world) == ["now"]
        world.until(lambda: leader.operation("later").state is OperationState.SUCCEEDED, within_s=2)
        dispatch = next(row for row in leader.operation("later").history if row.state == OperationState.DISPATCHED)
        assert dispatch.time_ns >= due_ns


def test_a_scheduled_command_outlives_its_leader() -> None:
    with World() as world:
        leader = world.active_leader()
        timed(world, leader, "later", not_before_ns=leader.loop.cluster_time_ns() + 3 * S)
        world.settle_log()
        world.crash(leader.name)
        new = world.active_leader(other_than=leader.name)
        world.until(lambda: new.operation("later").state is OperationState.SUCCEEDED, within_s=5)
        assert executed(world) == ["later"]


@pytest.mark.parametrize("away", [False, True])
def test_what_was_not_dispatched_by_its_deadline_is_a_letter_even_while_nothing_else_happens(away: bool) -> None:
    with World() as world:
        leader = world.active_leader()
        if away:
            world.specs[0].store.down = True
        else:
            leader.resource.hold_before = True
            world.submit(leader, "a", wait=Wait.COMMITTED)
            world.until(lambda: leader.resource.held)
        timed(world, leader, "late", deadline_ns=leader.loop.cluster_time_ns() + S)
        world.until(lambda: leader.operation("late").state is OperationState.DEAD, within_s=3)
        assert "its deadline passed" in leader.operation("late").error
        assert "late" not in executed(world)


def test_a_quiet_cluster_appends_nothing_unless_something_is_due() -> None:
    with World() as world:
        leader = world.active_leader()
        world.done(leader, "a")
        world.advance(1)
        before = leader.raft.log.last_index
        world.advance(60)
        assert leader.raft.log.last_index == before


def test_s33_a_quiet_cluster_forgets_what_its_settings_let_it() -> None:
    with World(retention=Retention(20 * S, 0)) as world:
        leader = world.active_leader()
        world.done(leader, "a", "b")
        assert leader.machine.retention == Retention(20 * S, 0)
        world.advance(10)
        assert len(leader.machine.operations) == 2
        before = leader.raft.log.last_index
        world.until(lambda: not leader.machine.operations, within_s=30)
        world.advance(60)
        assert leader.raft.log.last_index <= before + 2
        world.settle_log()
        assert all(not node.machine.operations for node in world.up())


# -- dead letters and lanes -------------------------------------------------------------------------------


@pytest.mark.parametrize("on_dead", OnDead)
def test_s52_a_lane_stands_or_goes_on_behind_a_dead_letter_as_its_resource_says(on_dead: OnDead) -> None:
    spec = ResourceSpec(effects=failing({"a": 2}), policy=POLICY, dispatch=DispatchPolicy(on_dead=on_dead))
    with World(spec) as world:
        leader = world.active_leader()
        world.submit(leader, "a", "b", lane="k", wait=Wait.COMMITTED)
        world.submit(leader, "c", lane="other", wait=Wait.COMMITTED)
        world.until(lambda: leader.operation("a").state is OperationState.DEAD)
        world.advance(1)
        blocked = on_dead is OnDead.BLOCK
        assert executed(world) == (["c"] if blocked else ["c", "b"])
        # A new leader knows of it from the state alone.
        world.settle_log()
        world.crash(leader.name)
        leader = world.active_leader(other_than=leader.name)
        world.advance(1)
        assert ("b" in executed(world)) is not blocked
        answer = world.reply(leader, "command.redrive", id="a", note="mended")
        assert (answer["did"], answer["state"]) == ("redriven", "committed")
        world.until(lambda: leader.operation("a").state is OperationState.SUCCEEDED)
        # Behind everything that was in its lane by then: it has a new place.
        assert executed(world) == ["c", "b", "a"]
        assert leader.operation("a").attempt == 3


def blocking() -> ResourceSpec:
    return ResourceSpec(effects=failing({"a": 2}), policy=POLICY, dispatch=DispatchPolicy(on_dead=OnDead.BLOCK))


def behind_a_letter(world: World) -> SimNode:
    """``a`` is a dead letter, and ``b`` stands behind it. Returns the leader."""
    leader = world.active_leader()
    world.submit(leader, "a", "b", lane="k", wait=Wait.COMMITTED)
    world.until(lambda: leader.operation("a").state is OperationState.DEAD)
    world.advance(1)
    assert executed(world) == []
    return leader


def test_s52_a_discarded_letter_lets_its_lane_go_on() -> None:
    with World(blocking()) as world:
        leader = behind_a_letter(world)
        world.reply(leader, "command.discard", id="a", note="of no use")
        world.until(lambda: leader.operation("b").state is OperationState.SUCCEEDED)
        assert leader.operation("a").state is OperationState.FAILED
        assert executed(world) == ["b"]


def unsure_letter(world: World) -> SimNode:
    """``a``, whose first attempt went away with its leader and whose second one was refused: a dead letter, whose lane
    has gone on. Returns the leader."""
    old = world.active_leader()
    old.resource.hold_before = True
    world.submit(old, "a", lane="k", wait=Wait.COMMITTED)
    world.until(lambda: old.resource.held)
    world.settle_log()
    world.crash(old.name)
    new = world.active_leader(other_than=old.name)
    world.until(lambda: new.operation("a").state is OperationState.DEAD)
    world.done(new, "b", lane="k")
    return new


def by_place(*, queryable: bool) -> ResourceSpec:
    effects = failing({"a": 1})
    policy = RetryPolicy(max_attempts=1, backoff_ns=10_000_000, backoff_max_ns=10_000_000)
    return ResourceSpec(effects=effects, policy=policy, queryable=queryable, dedupes_by_place=True)


def test_what_may_have_been_applied_at_its_old_place_is_redriven_on_an_operators_word_alone() -> None:
    with World(by_place(queryable=False)) as world:
        leader = unsure_letter(world)
        operation = leader.operation("a")
        refused = world.error(leader, "command.redrive", id="a")
        assert isinstance(refused, WrongState)
        assert "--not-applied" in refused.next_step
        world.advance(1)
        assert (operation.state, executed(world)) == (OperationState.DEAD, ["b"])
        sent: list[Attempt] = []
        leader.resource.watch = lambda _, attempts: sent.extend(attempts)
        answer = world.reply(leader, "command.redrive", id="a", not_applied=True)
        world.until(lambda: operation.state is OperationState.SUCCEEDED)
        assert executed(world) == ["b", "a"]
        # At its old place its lane would have refused it.
        assert [each.index for each in sent] == [answer["entry_index"]] == [operation.place]
        assert operation.place > leader.operation("b").index > operation.index


def test_what_its_resource_says_was_not_applied_is_redriven_without_a_word() -> None:
    with World(by_place(queryable=True)) as world:
        old = world.active_leader()
        leader = unsure_letter(world)
        with pytest.raises(WrongState, match="may have been applied"):
            world.reply(leader, "command.redrive", id="a")  # Its own attempt may still be on its way.
        assert leader.resource.asked == [("a", 2)]
        world.start(old.name)
        world.settle_log()
        world.crash(leader.name)
        new = world.active_leader(other_than=leader.name)
        assert world.reply(new, "command.redrive", id="a")["did"] == "redriven"
        assert new.resource.asked == [("a", 2)]
        world.until(lambda: new.operation("a").state is OperationState.SUCCEEDED)
        assert executed(world) == ["b", "a"]


def test_what_its_resource_says_was_applied_is_not_redriven_and_has_succeeded() -> None:
    with World(by_place(queryable=True)) as world:
        leader = unsure_letter(world)
        operation = leader.operation("a")
        first = world.specs[0].store.first  # Somebody has done it by hand.
        first["ledger", "a"] = first["ledger", "b"]._replace(operation_id="a", digest=operation.digest)
        answer = world.reply(leader, "command.redrive", id="a")
        assert (answer["did"], answer["state"]) == ("resolved", "succeeded")
        assert (operation.state, operation.result) == (OperationState.SUCCEEDED, b'{"rows":1}')
        world.advance(1)
        assert executed(world) == ["b"]


def test_s52_a_dead_letter_that_was_applied_after_all_lets_its_lane_go_on() -> None:
    with World(blocking()) as world:
        leader = behind_a_letter(world)
        denied: dict[str, Any] = {"as": "failed", "note": "looked"}
        with pytest.raises(WrongState, match="already"):
            world.reply(leader, "command.resolve", id="a", **denied)
        done: dict[str, Any] = {"as": "done", "note": "by hand", "result": "7"}
        answer = world.reply(leader, "command.resolve", id="a", **done)
        assert (answer["did"], answer["state"]) == ("resolved", "succeeded")
        assert leader.operation("a").result == b"7"
        world.until(lambda: leader.operation("b").state is OperationState.SUCCEEDED)
        assert executed(world) == ["b"]


# -- in doubt ---------------------------------------------------------------------------------------------


def in_doubt(world: World) -> SimNode:
    leader = world.active_leader()
    leader.resource.hold_before = True
    world.submit(leader, "a", wait=Wait.COMMITTED)
    world.until(lambda: leader.resource.held)
    world.settle_log()
    world.crash(leader.name)
    new = world.active_leader(other_than=leader.name)
    world.until(lambda: new.operation("a").lost == 1)
    return new


@pytest.mark.parametrize(("word", "state"), [("done", "succeeded"), ("failed", "dead")])
def test_s50_an_operator_resolves_what_nobody_can_ask_about(word: str, state: str) -> None:
    with World(ResourceSpec(guarantee=Guarantee.NAKED)) as world:
        leader = in_doubt(world)
        wrongs: list[dict[str, Any]] = [{"as": word}, {"as": "perhaps", "note": "seen"}]
        for wrong in wrongs:
            with pytest.raises(CommandInvalid):
                world.reply(leader, "command.resolve", id="a", **wrong)
        with pytest.raises(WrongState):
            world.reply(leader, "command.cancel", id="a")
        right: dict[str, Any] = {"as": word, "note": "the bank says so"}
        answer = world.reply(leader, "command.resolve", id="a", **right)
        assert (answer["did"], answer["state"]) == ("resolved", state)
        world.advance(1)
        assert executed(world) == []


def test_s50_a_resource_that_can_be_asked_leaves_nothing_in_doubt() -> None:
    with World(ResourceSpec(guarantee=Guarantee.NAKED, queryable=True)) as world:
        leader = in_doubt(world)
        world.until(lambda: leader.operation("a").state is OperationState.SUCCEEDED)
        assert executed(world) == ["a"]
        notes = [row.note for row in leader.operation("a").history]
        assert any(note.startswith("its resource says not applied") for note in notes)


def test_past_the_horizon_nothing_that_may_have_been_applied_is_repeated() -> None:
    """The other side may have forgotten the key by then."""
    spec = ResourceSpec(guarantee=Guarantee.KEYED, dispatch=DispatchPolicy(horizon_ns=2 * S))
    with World(spec) as world:
        leader = world.active_leader()
        leader.resource.hold_after = True
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.resource.held)
        world.settle_log()
        for node in world.up():
            node.resource.hang_claims = True
        world.crash(leader.name)
        new = world.leader(other_than=leader.name)
        world.advance(3)
        for node in world.up():
            node.resource.hang_claims = False
            node.resource.release()
        world.until(lambda: new.operation("a").state is OperationState.IN_DOUBT, within_s=20)
        assert executed(world) == ["a"]
        assert "its key may be forgotten" in new.operation("a").error


def test_a_redriven_command_is_as_young_as_a_new_one() -> None:
    """What is past the horizon of its resource when it dies would else be in doubt as soon as it is redriven."""
    spec = ResourceSpec(effects=failing({"a": 3}), policy=POLICY, guarantee=Guarantee.KEYED)
    with World(spec) as world:
        leader = world.active_leader()
        sent: list[Attempt] = []
        leader.resource.watch = lambda _, attempts: sent.extend(attempts)
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.operation("a").state is OperationState.DEAD)
        world.advance(30)
        world.reply(leader, "command.redrive", id="a")
        world.until(lambda: leader.operation("a").state is OperationState.SUCCEEDED)
        assert [each.number for each in sent] == [1, 2, 3, 4]
        # A refusal says that nothing was applied: what came before it makes no attempt older.
        assert [each.age_ns for each in sent] == [0, 0, 0, 0]


def test_a_resource_is_claimed_again_on_demand() -> None:
    with World() as world:
        leader = world.active_leader()
        world.specs[0].store.fences.clear()
        assert world.reply(leader, "resource.claim", name="ledger")["resource"] == "ledger"
        world.until(lambda: "ledger" in world.specs[0].store.fences)
        world.done(leader, "a")
        with pytest.raises(NotFound):
            world.reply(leader, "resource.claim", name="nothing")
