"""From committed command to committed outcome: crashes, retries, lanes, budgets (concepts: The life of a command)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from fencepost.raft.core.errors import ResourceUnavailable
from fencepost.raft.effects.batch import OUTCOME_BYTES_MAX
from fencepost.raft.effects.handlers import Permanent, Retryable
from fencepost.raft.effects.policy import RetryPolicy
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.ports import AnswerStatus, Attempt, Guarantee, Wait

from ..node.world import POLICY, ResourceSpec, SimNode, World

SECOND = 1_000_000_000
NAMES = ("n1", "n2", "n3")


def script(faults: dict[str, list[Exception]]) -> dict[str, Callable[[Attempt], bytes]]:
    """An effect that raises what is written for an operation id, in order, and then succeeds."""

    def credit(attempt: Attempt) -> bytes:
        left = faults.get(attempt.operation_id)
        if left:
            raise left.pop(0)
        return b'{"rows":1}'

    return {"credit": credit}


def executed(world: World, resource: int = 0) -> list[str]:
    return [operation.operation_id for operation in world.specs[resource].store.operations]


def hold(world: World, where: str) -> SimNode:
    """The active leader, with its next effect held before it is sent, or its answer on the way back."""
    leader = world.active_leader()
    setattr(leader.resource, f"hold_{where}", True)
    return leader


# -- S50: crash around the effect -----------------------------------------------------------------


@pytest.mark.parametrize("guarantee", [Guarantee.FENCED, Guarantee.KEYED])
@pytest.mark.parametrize("where", ["before", "after"])
def test_s50_crash_around_the_call_and_the_successor_finishes(where: str, guarantee: Guarantee) -> None:
    """S50 (i) and (ii): the receiver gets it at least once, counts it once, always under its own id."""
    with World(ResourceSpec(guarantee=guarantee), seed=1) as world:
        old = hold(world, where)
        world.submit(old, "a", "b", lane="l")
        world.until(lambda: old.resource.held)
        world.advance(0.05)
        world.crash(old.name)
        assert executed(world) == ([] if where == "before" else ["a", "b"])
        new = world.active_leader(other_than=old.name)
        world.until(lambda: new.operation("b").state is OperationState.SUCCEEDED)
        world.start(old.name)
        world.settle()
        world.check_equal()
        assert executed(world) == ["a", "b"]
        for operation_id in "ab":
            operation = new.operation(operation_id)
            assert (operation.attempt, operation.failures, operation.lost) == (2, 0, 1)
            assert operation.token is not None
            assert operation.token.term > operation.term


def test_s50_crash_after_the_outcome_repeats_nothing() -> None:
    with World(seed=2) as world:
        old = world.active_leader()
        world.done(old, "a")
        world.settle()
        world.crash(old.name)
        new = world.active_leader(other_than=old.name)
        world.advance(2.0)
        assert new.resource.batches == []
        assert executed(world) == ["a"]


@pytest.mark.parametrize("where", ["before", "after"])
def test_s50_naked_is_never_repeated_by_itself(where: str) -> None:
    with World(ResourceSpec(guarantee=Guarantee.NAKED), seed=3) as world:
        old = hold(world, where)
        world.submit(old, "a", "b", lane="l")
        world.until(lambda: old.resource.held)
        world.settle_log()
        world.crash(old.name)
        new = world.active_leader(other_than=old.name)
        world.done(new, "other")
        world.advance(3.0)
        assert new.operation("a").state is OperationState.IN_DOUBT
        assert new.resource.batches == [["other"]]
        assert new.effects.status()["ledger"]["in_doubt"] == 2


@pytest.mark.parametrize("guarantee", [Guarantee.KEYED, Guarantee.NAKED])
def test_s50_unfenced_effects_wait_for_the_commit_of_their_dispatch(guarantee: Guarantee) -> None:
    """An attempt is spent before the effect, or a command that kills its executor loops for ever."""
    with World(ResourceSpec(guarantee=guarantee), seed=4) as world:
        leader = world.active_leader()
        seen: list[tuple[str, OperationState, int]] = []
        execute = leader.resource.execute

        async def watched(token: object, holder: object, attempts: list[Attempt]) -> object:
            for attempt in attempts:
                operation = leader.operation(attempt.operation_id)
                seen.append((attempt.operation_id, operation.state, operation.attempt - attempt.number))
            return await execute(token, holder, attempts)  # type: ignore[arg-type]

        leader.resource.execute = watched  # type: ignore[method-assign,assignment]
        world.done(leader, "a", "b")
        assert seen == [("a", OperationState.DISPATCHED, 0), ("b", OperationState.DISPATCHED, 0)]


def test_s40_an_effect_that_waited_for_its_loop_is_not_sent_after_the_authority_is_gone() -> None:
    """Another handler blocks the loop of the effects; meanwhile leadership is lost."""
    with World(ResourceSpec(guarantee=Guarantee.NAKED), seed=23) as world:
        leader = world.active_leader()
        run = leader.runtime.run
        waiting: list[Callable[[], None]] = []
        leader.runtime.run = lambda work, done: waiting.append(lambda: run(work, done))  # type: ignore[method-assign]
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: waiting)
        leader.loop.step_down("test")
        world.advance(0.01)
        for start in waiting:
            start()
        world.advance(0.1)
        assert leader.resource.batches == []
        new = world.active_leader(other_than=leader.name)
        world.until(lambda: new.operation("a").state is OperationState.IN_DOUBT)
        assert executed(world) == []


@pytest.mark.parametrize("queryable", [False, True])
def test_s51_a_command_whose_executors_vanish_again_and_again_is_given_up(queryable: bool) -> None:
    """It may have been applied, so it is in doubt; and a letter where the resource says that it was not."""
    policy = RetryPolicy(max_attempts=4, lost_max=3)
    with World(ResourceSpec(policy=policy, queryable=queryable), seed=5) as world:
        for node in world.up():
            node.resource.hold_before = True
        for round_number in range(3):
            leader = world.active_leader()
            if not round_number:
                world.submit(leader, "killer", wait=Wait.COMMITTED)
            world.until(lambda node=leader: node.resource.held)  # type: ignore[misc]
            world.settle_log()
            world.crash(leader.name)
            world.start(leader.name).resource.hold_before = True
            assert executed(world) == []
        for node in world.up():
            node.resource.hold_before = False
        leader = world.active_leader()
        ends = OperationState.DEAD if queryable else OperationState.IN_DOUBT
        world.until(lambda: leader.operation("killer").state is ends)
        assert any("every executor went away" in row.note for row in leader.operation("killer").history)
        assert ("its resource says not applied" in leader.operation("killer").error) is queryable
        world.done(leader, "innocent")
        assert executed(world) == ["innocent"]


# -- S51: poison ----------------------------------------------------------------------------------


def test_s51_poison_is_retried_with_growing_pauses_and_then_dead_while_others_go_on() -> None:
    """S51: #1 always fails for good, #2 never answers as it should, the rest is fine."""
    faults: dict[str, list[Exception]] = {"p1": [Permanent("400")] * 99, "p2": [Retryable("503")] * 99}
    with World(ResourceSpec(effects=script(faults)), seed=6) as world:
        leader = world.active_leader()
        poison = world.submit(leader, "p1", "p2")
        fine = world.submit(leader, *[f"c{number}" for number in range(98)])
        world.until(lambda: world.answered(fine), within_s=0.2)
        assert {world.connection.only(request).state for request in fine} == {"succeeded"}
        first = world.answer(poison[0])
        assert (first.status, first.code, first.state, first.detail) == (
            AnswerStatus.DONE, "COMMAND_FAILED", "failed", "400"
        )  # fmt: skip
        second = world.answer(poison[1], within_s=10.0)
        assert (second.status, second.code, second.state) == (AnswerStatus.DONE, "COMMAND_FAILED", "dead")
        assert "the limit is 4 failed attempts" in second.detail
        operation = leader.operation("p2")
        assert (operation.attempt, operation.failures) == (4, 4)
        for node in world.up():
            world.until(lambda node=node: node.operation("p2").state is OperationState.DEAD)  # type: ignore[misc]
        assert leader.effects.status()["ledger"]["dead"] == 1
        world.settle()
        world.check_equal()


def test_s51_no_answer_is_no_failure_however_often() -> None:
    """A keyed effect that took place and whose answer is lost every time: nobody may say that it failed."""

    def lost(attempt: Attempt) -> bytes:
        took_place.add(attempt.operation_id)
        raise TimeoutError("no answer")

    took_place: set[str] = set()
    with World(ResourceSpec(effects={"credit": lost}, guarantee=Guarantee.KEYED), seed=26) as world:
        leader = world.active_leader()
        (request,) = world.submit(leader, "a")
        world.until(lambda: leader.operation("a").state is OperationState.IN_DOUBT, within_s=10.0)
        assert took_place == {"a"}
        assert "the limit is 4 failed attempts" in leader.operation("a").error
        (joined,) = world.submit(leader, "a")
        for each in (request, joined):  # Nobody hears more by waiting on.
            answer = world.answer(each)
            assert (answer.status, answer.code, answer.state) == (AnswerStatus.UNKNOWN, "OUTCOME_UNKNOWN", "in-doubt")
            assert "in doubt" in answer.detail
        world.settle_log()
        world.check_equal()


def test_s51_s53_attempts_and_backoff_survive_a_failover() -> None:
    """The count and the time of the next try stand in the log: a new leader neither forgets nor hurries."""
    faults: dict[str, list[Exception]] = {"p": [Retryable("503")] * 99}
    policy = RetryPolicy(max_attempts=3, backoff_ns=4 * SECOND, backoff_max_ns=60 * SECOND)
    with World(ResourceSpec(effects=script(faults), policy=policy), seed=7) as world:
        world.between = lambda low, high: high if high >= SECOND else world.random.randint(low, high)  # type: ignore[method-assign]
        old = world.active_leader()
        world.submit(old, "p")
        world.until(lambda: old.operation("p").state is OperationState.RETRY_WAIT)
        due = old.operation("p").next_try_ns
        assert due - old.clock.time_ns() > 3.9 * SECOND
        world.settle_log()
        world.crash(old.name)
        new = world.active_leader(other_than=old.name)
        assert new.operation("p").failures == 1
        world.until(lambda: new.resource.sent_at, within_s=6.0)
        assert abs(new.clock.time_ns() - due) < SECOND // 200
        world.until(lambda: new.operation("p").failures == 2)
        world.until(lambda: new.operation("p").state is OperationState.DEAD, within_s=10.0)
        assert new.operation("p").attempt == 3


@pytest.mark.parametrize("skew_h", [-1, 1])
def test_s46_retries_do_not_wait_for_a_wall_clock_that_was_set(skew_h: int) -> None:
    """A clock step on the leader, or a successor whose clock is behind: the pause is as long as drawn."""
    faults: dict[str, list[Exception]] = {"p": [Retryable("503")] * 2}
    policy = RetryPolicy(max_attempts=9, backoff_ns=SECOND, backoff_max_ns=SECOND)
    with World(ResourceSpec(effects=script(faults), policy=policy), seed=8) as world:
        world.between = lambda low, high: high if high >= SECOND else world.random.randint(low, high)  # type: ignore[method-assign]
        old = world.active_leader()
        world.submit(old, "p")
        world.until(lambda: old.operation("p").failures == 1)
        first = world.loop.now_ns
        old.clock.skew_ns = skew_h * 3600 * SECOND
        world.until(lambda: old.operation("p").failures == 2)
        assert 0.9 * SECOND < world.loop.now_ns - first < 1.2 * SECOND
        if skew_h < 0:
            for node in world.up():
                node.clock.skew_ns = skew_h * 3600 * SECOND
            world.settle_log()
            world.crash(old.name)
        world.until(lambda: executed(world) == ["p"], within_s=3.0)


def test_s46_a_deadline_is_never_further_away_than_it_was_drawn() -> None:
    """A leader elected while its clock was an hour ahead, then set right: its successor, with the
    right time, must not wait for that hour."""
    faults: dict[str, list[Exception]] = {"p": [Retryable("503")]}
    policy = RetryPolicy(max_attempts=9, backoff_ns=SECOND, backoff_max_ns=SECOND)
    hour = 3600 * SECOND
    with World(ResourceSpec(effects=script(faults), policy=policy), seed=25, skews=dict.fromkeys(NAMES, hour)) as world:
        world.until(lambda: any(node.leads for node in world.up()))
        for node in world.up():
            node.clock.skew_ns = 0
        old = world.active_leader()
        world.submit(old, "p")
        world.until(lambda: old.operation("p").state is OperationState.RETRY_WAIT)
        world.settle_log()
        world.crash(old.name)
        world.until(lambda: executed(world) == ["p"], within_s=3.0)


# -- S52: order -----------------------------------------------------------------------------------


def test_s52_lane_keeps_its_order_through_failures() -> None:
    """S52: A then B on one lane, A fails twice; B comes after it. Other lanes and no lane pass by."""
    faults: dict[str, list[Exception]] = {"a": [Retryable("503"), Retryable("503")]}
    with World(ResourceSpec(effects=script(faults)), seed=9) as world:
        leader = world.active_leader()
        requests = world.submit(leader, "a", "b", "c", lane="k") + world.submit(leader, "x", lane="other")
        requests += world.submit(leader, "free")
        world.until(lambda: world.answered(requests))
        order = executed(world)
        assert [name for name in order if name in "abc"] == ["a", "b", "c"]
        assert order.index("x") < order.index("a")
        assert order.index("free") < order.index("a")
        assert leader.operation("b").failures == 0
        world.check_store()


def test_s52_a_dead_head_lets_the_lane_go_on() -> None:
    faults: dict[str, list[Exception]] = {"a": [Retryable("503")] * 99, "b": [Permanent("400")]}
    with World(ResourceSpec(effects=script(faults)), seed=10) as world:
        leader = world.active_leader()
        requests = world.submit(leader, "a", "b", "c", lane="k")
        assert world.answer(requests[2], within_s=10.0).state == "succeeded"
        assert [world.connection.only(request).state for request in requests] == ["dead", "failed", "succeeded"]
        assert executed(world) == ["c"]


def test_s52_same_order_with_a_failover_between() -> None:
    faults: dict[str, list[Exception]] = {"b": [Retryable("503")]}
    with World(ResourceSpec(effects=script(faults), batch_limit=1), seed=11) as world:
        old = world.active_leader()
        world.submit(old, "a", "b", "c", "d", lane="k")
        world.until(lambda: "b" in old.machine.operations and old.operation("b").failures == 1)
        world.crash(old.name)
        new = world.active_leader(other_than=old.name)
        world.until(lambda: new.operation("d").state is OperationState.SUCCEEDED)
        assert executed(world) == ["a", "b", "c", "d"]
        world.start(old.name)
        world.settle()
        world.check_equal()
        world.check_store()


def test_s52_head_in_doubt_blocks_its_lane_and_no_other() -> None:
    with World(ResourceSpec(guarantee=Guarantee.NAKED, batch_limit=1), seed=12) as world:
        leader = world.active_leader()
        leader.resource.executes_fail = TimeoutError("nobody knows")
        world.submit(leader, "a", "b", lane="k")
        world.until(lambda: "a" in leader.machine.operations and leader.operation("a").state is OperationState.IN_DOUBT)
        leader.resource.executes_fail = None
        world.done(leader, "x", lane="other")
        world.submit(leader, "c", lane="k")
        world.advance(5.0)
        assert leader.operation("b").state is OperationState.COMMITTED
        assert leader.operation("c").state is OperationState.COMMITTED
        assert executed(world) == ["x"]
        # So it stays on the next leader.
        leader.loop.step_down("test")
        world.advance(0.05)
        new = world.active_leader()
        world.done(new, "y")
        world.advance(3.0)
        assert executed(world) == ["x", "y"]


def test_s52_head_with_an_effect_unknown_here_blocks_its_lane_and_no_other() -> None:
    with World(seed=13) as world:
        leader = world.active_leader()
        world.submit(leader, "odd", lane="k", effect="debit", wait=Wait.COMMITTED)
        world.submit(leader, "b", lane="k", wait=Wait.COMMITTED)
        world.done(leader, "x", lane="other")
        world.advance(1.0)
        assert executed(world) == ["x"]


def test_lane_mates_follow_before_the_outcome_is_committed_and_after_it() -> None:
    with World(ResourceSpec(batch_limit=2), seed=14) as world:
        leader = world.active_leader()
        names = [f"c{number}" for number in range(20)]
        world.done(leader, *names, lane="k")
        assert executed(world) == names
        world.done(leader, "next", lane="k")
        world.settle()
        assert leader.effects.status()["ledger"]["in_flight"] == 0
        tenure = leader.effects._tenure
        assert tenure is not None
        queue = tenure._seats["ledger"].dispatcher._queue
        assert not queue._lanes
        assert not queue._busy


# -- S53: budgets ---------------------------------------------------------------------------------


def test_s53_lost_leadership_is_charged_to_nobody() -> None:
    with World(seed=15) as world:
        for node in world.up():
            node.resource.hold_before = True
        for _ in range(6):
            leader = world.active_leader()
            if "a" not in leader.machine.operations:
                world.submit(leader, "a", wait=Wait.COMMITTED)
            world.until(lambda node=leader: node.resource.held)  # type: ignore[misc]
            leader.loop.step_down("test")
            world.advance(0.01)
            for gate in leader.resource.held:
                gate.cancel()
            leader.resource.held.clear()
        for node in world.up():
            node.resource.hold_before = False
            node.resource.release()
        world.until(lambda: executed(world) == ["a"])
        world.settle()
        leader = world.active_leader()
        operation = leader.operation("a")
        assert (operation.state, operation.failures) == (OperationState.SUCCEEDED, 0)
        assert operation.attempt >= 6


def test_s53_dead_endpoint_through_failovers_is_called_within_its_budget() -> None:
    """S53: many pending, half to a dead endpoint, three failovers: calls stay under the cap, the live
    half is done, nothing is dead-lettered for "we lost leadership"."""
    live, dead = ResourceSpec("live", batch_limit=50), ResourceSpec("dead", batch_limit=50, concurrency=2)
    with World(live, dead, seed=16) as world:
        for node in world.up():
            node.resources["dead"].executes_fail = ResourceUnavailable("connection refused")
        leader = world.active_leader()
        for name in ("live", "dead"):
            world.submit(leader, *[f"{name}{number}" for number in range(300)], resource=name, wait=Wait.COMMITTED)
        for _ in range(3):
            world.advance(5.0)
            world.leader().loop.step_down("test")
            world.advance(0.1)
        new = world.active_leader()
        assert len(live.store.operations) == 300
        assert sum(len(node.resources["dead"].batches) for node in world.up()) == 0
        calls = len(world.logged("effect batch failed"))
        assert 3 < calls <= 2 * 4 * 10
        assert all(node.resources["dead"].running_max <= 2 for node in world.up())
        assert {new.operation(f"dead{number}").failures for number in range(300)} == {0}
        for node in world.up():
            node.resources["dead"].executes_fail = None
        world.settle()
        assert len(dead.store.operations) == 300
        world.check_store(dead)
        world.check_equal()


@pytest.mark.parametrize("guarantee", [Guarantee.FENCED, Guarantee.KEYED])
def test_s53_a_handler_that_always_raises_makes_no_storm(guarantee: Guarantee) -> None:
    with World(ResourceSpec(guarantee=guarantee), seed=17) as world:
        leader = world.active_leader()
        leader.resource.executes_fail = ZeroDivisionError("bug")
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.advance(10.0)
        assert 2 <= len(world.logged("effect batch failed")) <= 40
        assert leader.raft.log.last_index < 150


def test_concurrency_is_bounded_and_used() -> None:
    with World(ResourceSpec(batch_limit=1, concurrency=3), seed=18) as world:
        leader = world.active_leader()
        world.done(leader, *[f"c{number}" for number in range(30)])
        assert leader.resource.running_max == 3
        world.settle()
        world.check_store()
        assert leader.effects.status()["ledger"]["in_flight"] == 0


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_s53_an_effect_that_hangs_from_an_earlier_tenure_counts_against_the_bound(guarantee: Guarantee) -> None:
    """The same node is elected again while an effect of its last term still hangs."""
    with World(ResourceSpec(guarantee=guarantee), voters=("n1",), seed=24) as world:
        leader = hold(world, "before")
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.resource.held)
        leader.loop.step_down("test")
        world.advance(0.01)
        assert world.active_leader() is leader
        leader.resource.hold_before = False
        (request,) = world.submit(leader, "b")
        world.advance(1.0)
        assert request not in world.connection.answers
        assert leader.resource.running == 1
        leader.resource.release()
        assert world.answer(request).status == AnswerStatus.DONE
        assert leader.resource.running_max == 1
        assert executed(world).count("a") == 1
        if guarantee is Guarantee.FENCED:
            assert world.specs[0].store.refusals[-1].operations == ["a"]
            world.settle()
            world.check_store()


def test_results_of_a_batch_that_no_frame_holds_are_recorded_in_parts() -> None:
    """An entry that cannot be sent would end every leader that executes the batch, one after another."""
    size = 60_000
    effects = {"credit": lambda attempt: b'"%s"' % attempt.operation_id.encode().rjust(size, b"x")}
    with World(ResourceSpec(effects=effects), seed=27) as world:
        leader = world.active_leader()
        names = [f"c{number}" for number in range(200)]
        world.done(leader, *names[:100], lane="k")
        world.done(leader, *names[100:])
        assert max(map(len, leader.resource.batches)) > 3 * OUTCOME_BYTES_MAX // size
        assert max(len(entry.data) for entry in leader.raft.log.slice(1, leader.raft.log.last_index)) < (
            OUTCOME_BYTES_MAX + 2 * size
        )
        assert {len(leader.operation(name).result) for name in names} == {size + 2}
        world.settle()
        world.check_equal()
        world.check_store()
        assert leader.effects.status()["ledger"]["in_flight"] == 0


def test_batches_are_bounded_and_carry_what_is_ready() -> None:
    with World(ResourceSpec(batch_limit=8), seed=19) as world:
        leader = world.active_leader()
        world.done(leader, *[f"c{number}" for number in range(50)])
        sizes = [len(batch) for batch in leader.resource.batches]
        assert max(sizes) == 8
        assert sum(sizes) == 50
        assert len(sizes) <= 8


def test_s53_slow_start_after_every_activation() -> None:
    with World(seed=22) as world:
        leader = world.active_leader()
        world.done(leader, *[f"a{number}" for number in range(1000)])
        sizes = [len(batch) for batch in leader.resource.batches]
        assert sizes[:5] == [16, 32, 64, 128, 256]
        assert sum(sizes) == 1000
        leader.resource.executes_fail = ResourceUnavailable("away")
        world.submit(leader, *[f"b{number}" for number in range(300)], wait=Wait.COMMITTED)
        world.advance(5.0)
        failed = [line["commands"] for line in world.logged("effect batch failed")]
        assert failed[0] == 300
        assert len(failed) > 2
        assert set(failed[1:]) == {16}
        leader.resource.executes_fail = None
        world.settle()
        assert len(world.specs[0].store.operations) == 1300


def test_failures_inside_a_concurrent_resource_release_every_lane() -> None:
    faults: dict[str, list[Exception]] = {f"c{number}": [Retryable("503")] * (number % 3) for number in range(60)}
    with World(ResourceSpec(effects=script(faults), batch_limit=3, concurrency=4), seed=20) as world:
        leader = world.active_leader()
        for number in range(60):
            world.submit(leader, f"c{number}", lane=f"lane{number % 5}" if number % 2 else "")
        world.advance(1.0)
        world.settle(within_s=30.0)
        assert Counter(executed(world)) == Counter({f"c{number}": 1 for number in range(60)})
        world.check_store()
        assert leader.effects.status()["ledger"]["in_flight"] == 0


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_outage_with_several_batches_under_way_loses_none(guarantee: Guarantee) -> None:
    """Suspended while others run, resumed: every command of every batch comes back."""
    policy = RetryPolicy(max_attempts=100, backoff_ns=POLICY.backoff_ns, backoff_max_ns=POLICY.backoff_ns)
    with World(ResourceSpec(guarantee=guarantee, batch_limit=2, concurrency=3, policy=policy), seed=21) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        names = [f"c{number}" for number in range(30)]
        for number, name in enumerate(names):
            world.submit(leader, name, lane=f"l{number % 4}" if number % 3 else "", wait=Wait.COMMITTED)
        world.until(lambda: len(leader.resource.held) == 3)
        world.specs[0].store.down = True
        leader.resource.hold_before = False
        leader.resource.release()
        world.advance(0.5)
        world.submit(leader, "during", lane="l1", wait=Wait.COMMITTED)
        world.advance(0.5)
        world.specs[0].store.down = False
        world.settle()
        assert Counter(executed(world)) == Counter([*names, "during"])
        assert leader.effects.status()["ledger"]["in_flight"] == 0
        tenure = leader.effects._tenure
        assert tenure is not None
        assert not tenure._seats["ledger"].dispatcher._queue._lanes


@pytest.mark.parametrize("first", [Guarantee.FENCED, Guarantee.KEYED])
def test_a_resource_that_learns_what_it_can_promise_neither_repeats_nor_forgets_a_batch(first: Guarantee) -> None:
    """Between a dispatch and its entry: whether the batch waits for the entry was decided at its start."""
    second = Guarantee.KEYED if first is Guarantee.FENCED else Guarantee.FENCED
    with World(ResourceSpec(guarantee=first), seed=31) as world:
        leader = world.active_leader()
        (request,) = world.submit(leader, "a")
        world.until(lambda: leader.effects.status()["ledger"]["in_flight"] == 1)
        assert leader.operation("a").state is OperationState.COMMITTED, "its dispatch is applied already"
        leader.resource.inner.guarantee = second
        assert world.answer(request).status == AnswerStatus.DONE
        world.done(leader, "b")
        world.settle()
        assert leader.resource.batches == [["a"], ["b"]]
        assert leader.effects.status()["ledger"]["in_flight"] == 0
