"""Leadership handed over on purpose: the target ready, effects on record, nobody left without an answer (S08, S49)."""

from __future__ import annotations

from collections import Counter

import pytest

from fencepost.raft.core.errors import Outcome
from fencepost.raft.core.messages import TimeoutNow
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.ports import AnswerStatus, Guarantee, Wait

from .test_snapshots import Network
from .world import ELECTION_S, ResourceSpec, SimNode, World


def others(world: World, node: SimNode) -> list[SimNode]:
    return [each for each in world.up() if each is not node]


@pytest.mark.parametrize("seed", range(10))
def test_s08_under_load_the_target_leads_at_once_and_every_write_is_answered(seed: int) -> None:
    with World(seed=seed) as world:
        old = world.active_leader()
        world.settle()
        target = others(world, old)[seed % 2]
        term = old.raft.current_term
        requests: list[int] = []
        number = 0

        def write() -> None:
            nonlocal number
            for node in world.up():
                if node.leads:
                    number += 1
                    requests.extend(world.submit(node, f"op{number}", wait=Wait.COMMITTED))

        for _ in range(20):
            write()
            world.advance(0.001)
        begun = world.loop.time()
        call = world.call(old, "cluster.transfer_leader", target=target.name)
        while not target.leads:
            write()
            world.advance(0.001)
            assert world.loop.time() - begun < 2 * ELECTION_S, "the target does not lead in time"
        for _ in range(50):
            write()
            world.advance(0.001)
        world.until(lambda: world.heard(call))
        reply = world.connection.replies[call]
        assert (reply["leader"], reply["term"]) == (target.name, term + 1)
        world.until(lambda: world.answered(requests))
        statuses = Counter(world.connection.only(request).status for request in requests)
        assert set(statuses) <= {AnswerStatus.DONE, AnswerStatus.RETRY}, statuses
        assert statuses[AnswerStatus.DONE] > 20
        assert target.raft.current_term == term + 1, "one change of leader"
        world.settle()
        world.check_equal()
        world.check_store()


def test_a_leader_that_took_over_has_its_record_too_and_nobody_was_missed() -> None:
    """It campaigned without asking first: there was no stage of that name, and so there was no record at all."""
    with World(seed=2) as world:
        old = world.active_leader()
        world.done(old, "a")
        reply = world.reply(old, "cluster.transfer_leader")
        new = world.nodes[reply["leader"]]
        assert world.active_leader() is new
        world.done(new, "b")
        world.settle()
        record = world.reply(new, "status")["last_election"]
        assert (record["node"], record["token"]["term"]) == (new.name, str(reply["term"]))
        seconds = {stage["stage"]: stage["seconds"] for stage in record["stages"]}
        assert list(seconds) == ["detect", "elect", "catch-up", "fence", "reconcile", "first-effect"]
        assert sum(seconds.values()) < ELECTION_S


def test_without_a_target_the_best_follower_is_chosen() -> None:
    with World(seed=1) as world:
        old = world.active_leader()
        lagging, ready = others(world, old)
        world.isolate(lagging.name)
        world.done(old, "a", "b")
        reply = world.reply(old, "cluster.transfer_leader")
        assert reply["leader"] == ready.name
        assert not old.leads


def test_s49_effects_under_way_are_on_record_before_the_successor_begins() -> None:
    with World(ResourceSpec(batch_limit=1, concurrency=3), seed=2) as world:
        old = world.active_leader()
        old.resource.hold_before = True
        running = world.submit(old, "a", "b", "c")
        world.until(lambda: len(old.resource.held) == 3)
        call = world.call(old, "cluster.transfer_leader")
        world.advance(0.1)
        assert old.leads
        assert old.effects.status()["ledger"]["activation"] == "draining"
        waiting = world.submit(old, "d", wait=Wait.COMMITTED)
        world.answer(waiting[0])
        old.resource.hold_before = False
        old.resource.release()
        world.until(lambda: world.heard(call))
        assert world.connection.replies[call]["drained"] is True
        assert [world.answer(request).status for request in running] == [AnswerStatus.DONE] * 3
        new = world.active_leader(other_than=old.name)
        world.until(lambda: new.operation("d").state is OperationState.SUCCEEDED)
        world.settle()
        tokens = {each.operation_id: each.token.term for each in world.specs[0].store.operations}
        assert tokens["d"] > tokens["a"] == tokens["b"] == tokens["c"]
        assert not world.specs[0].store.refusals, "an effect of the old leader came after the successor's claim"
        world.check_store()


def test_an_effect_that_hangs_holds_a_transfer_up_for_a_bounded_time() -> None:
    with World(seed=3) as world:
        old = world.active_leader()
        old.resource.hold_before = True
        world.submit(old, "a")
        world.until(lambda: old.resource.held)
        call = world.call(old, "cluster.transfer_leader", timeout_s=2.0)
        world.advance(0.9)
        assert old.leads
        world.until(lambda: world.heard(call), within_s=1.5)
        assert world.connection.replies[call]["drained"] is False
        assert not old.leads
        new = world.active_leader(other_than=old.name)
        world.until(lambda: new.operation("a").state is OperationState.SUCCEEDED)
        old.resource.hold_before = False
        old.resource.release()
        world.settle()
        world.check_store()


@pytest.mark.parametrize("guarantee", [Guarantee.FENCED, Guarantee.KEYED])
def test_s08_a_leader_whose_target_does_not_come_serves_on(guarantee: Guarantee) -> None:
    """It was told to campaign, and the message was lost: within a transfer's time all goes on, nothing is missing.

    Effects that end meanwhile are put on record afterwards, by the leader that has them.
    """
    with World(ResourceSpec(guarantee=guarantee, batch_limit=1, concurrency=2), seed=4) as world:
        old = world.active_leader()
        world.settle()
        network = Network(world)
        network.drops = lambda source, to, message: isinstance(message, TimeoutNow)
        old.resource.hold_before = True
        running = world.submit(old, "a", "b", lane="l")
        world.until(lambda: old.resource.held)
        # Straight to the core: no drain has waited for the effects.
        sink = _Heard()
        old.loop.transfer_leadership("", sink)
        world.until(lambda: old.raft.transfer is not None and old.raft.transfer.told_at)
        assert old.effects.status()["ledger"]["activation"] == "draining"
        (refused,) = world.submit(old, "now")
        assert world.answer(refused).code == "BUSY"
        old.resource.hold_before = False
        old.resource.release()
        world.advance(0.02)
        assert old.operation("a").state is not OperationState.SUCCEEDED, "taken into a log that the target has whole"
        world.until(lambda: sink.heard, within_s=2.0)
        assert sink.heard[0].startswith("ended: ")
        assert old.leads
        assert [world.answer(request, within_s=1.0).status for request in running] == [AnswerStatus.DONE] * 2
        world.done(old, "now", "later")
        assert old.effects.status()["ledger"] == {
            **old.effects.status()["ledger"],
            "activation": "active",
            "in_flight": 0,
            "pending": 0,
        }
        assert len(world.specs[0].store.operations) == 4
        if guarantee is Guarantee.FENCED:
            world.check_store()


class _Heard:
    """``TransferSink`` that collects."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def done(self, leader: str, term: int) -> None:
        self.heard.append(f"done: {leader}")

    def refused(self, refusal: object) -> None:
        self.heard.append(f"refused: {refusal}")

    def ended(self, reason: str) -> None:
        self.heard.append(f"ended: {reason}")

    def unknown(self) -> None:
        self.heard.append("unknown")


def test_a_transfer_that_fails_is_told_with_the_reason_and_dispatch_goes_on() -> None:
    with World(seed=5) as world:
        old = world.active_leader()
        world.settle()
        network = Network(world)
        network.drops = lambda source, to, message: isinstance(message, TimeoutNow)
        error = world.error(old, "cluster.transfer_leader")
        assert error.outcome is Outcome.RETRY
        assert "this node leads on" in error.message
        assert old.leads
        world.done(old, "a")
        for target, words in ((old.name, "leads already"), ("n9", "no voter")):
            assert words in world.error(old, "cluster.transfer_leader", target=target).message
        world.done(old, "b")
        gone = others(world, old)[0]
        world.isolate(gone.name)
        world.advance(2 * ELECTION_S)
        assert "not heard of lately" in world.error(old, "cluster.transfer_leader", target=gone.name).message
        world.done(old, "c")


def test_commands_that_became_due_while_a_transfer_was_under_way_are_executed_when_it_failed() -> None:
    with World(seed=6) as world:
        old = world.active_leader()
        world.settle()
        network = Network(world)
        network.drops = lambda source, to, message: isinstance(message, TimeoutNow)
        for node in others(world, old):
            node.log_store.stick()
        waiting = world.submit(old, "a")
        world.advance(0.01)
        call = world.call(old, "cluster.transfer_leader", timeout_s=5)
        world.until(lambda: old.raft.transfer is not None)
        for node in others(world, old):
            node.log_store.unstick()
        world.until(lambda: world.heard(call))
        assert world.answer(waiting[0]).status == AnswerStatus.DONE
        world.settle()


def test_an_activation_that_falls_into_a_transfer_is_not_lost() -> None:
    with World(seed=7) as world:
        old = world.active_leader()
        world.specs[0].store.down = True
        waiting = world.submit(old, "a")
        world.until(lambda: old.effects.status()["ledger"]["activation"] == "fencing")
        world.settle_log()
        network = Network(world)
        network.drops = lambda source, to, message: isinstance(message, TimeoutNow)
        old.loop.transfer_leadership("", _Heard())
        world.until(lambda: old.raft.transfer is not None and old.raft.transfer.told_at)
        world.specs[0].store.down = False
        world.until(lambda: old.raft.transfer is None)
        assert world.answer(waiting[0]).status == AnswerStatus.DONE
        assert old.effects.status()["ledger"]["activation"] == "active"


def test_a_leader_that_steps_down_says_who_leads_then() -> None:
    with World(seed=8) as world:
        old = world.active_leader()
        reply = world.reply(old, "cluster.step_down")
        new = world.active_leader()
        assert reply == {"leader": new.name, "term": new.raft.current_term}
        assert not old.leads


def test_s44_questions_for_a_leader_end_when_nobody_is_elected() -> None:
    with World(seed=9) as world:
        old = world.active_leader()
        world.settle()
        network = Network(world)
        network.drops = lambda source, to, message: isinstance(message, TimeoutNow)
        calls = [world.call(old, "cluster.transfer_leader", timeout_s=3)]
        world.advance(0.05)
        for node in others(world, old):
            world.crash(node.name)
        world.advance(0.01)
        calls.append(world.call(old, "cluster.step_down", timeout_s=3))
        world.until(lambda: all(map(world.heard, calls)), within_s=4)
        assert {world.connection.errors[call].outcome for call in calls} == {Outcome.UNKNOWN}
        assert len(old.loop.transfers) == 0


def test_s45_a_node_that_is_about_to_stop_hands_over_and_knows_to_whom() -> None:
    with World(seed=10) as world:
        old = world.active_leader()
        follower = others(world, old)[0]
        term = old.raft.current_term
        asked = world.loop.create_task(old.handover.hand_over(2.0))
        world.until(asked.done)
        new = world.active_leader(other_than=old.name)
        assert asked.result() == new.name
        assert new.raft.current_term == term + 1
        elsewhere = world.loop.create_task(follower.handover.hand_over(2.0))
        world.until(elsewhere.done, within_s=0.1)
        assert elsewhere.result() == new.name


def test_s45_a_handover_that_does_not_come_about_is_bounded() -> None:
    with World(seed=11) as world:
        old = world.active_leader()
        world.settle()
        network = Network(world)
        network.drops = lambda source, to, message: isinstance(message, TimeoutNow)
        asked = world.loop.create_task(old.handover.hand_over(0.5))
        world.until(asked.done, within_s=0.6)
        assert asked.result() == ""
        alone = others(world, old)
        for node in alone:
            world.crash(node.name)
        world.advance(1.0)
        nobody = world.loop.create_task(old.handover.hand_over(0.5))
        world.until(nobody.done, within_s=0.6)
        assert nobody.result() in ("", old.name)


def test_a_leader_that_is_elected_while_it_drains_starts_nothing() -> None:
    with World(voters=("n1",), seed=12) as world:
        leader = world.active_leader()
        drain = world.loop.create_task(leader.effects.drain(5.0))
        world.until(drain.done)
        leader.loop.step_down("for the test")
        world.until(lambda: not leader.leads)
        world.until(lambda: leader.leads and leader.effects.status()["ledger"]["activation"] == "draining")
        (request,) = world.submit(leader, "a", wait=Wait.COMMITTED)
        world.answer(request)
        world.advance(1.0)
        assert not world.specs[0].store.operations
        leader.effects.end_drain()
        world.until(lambda: leader.operation("a").state is OperationState.SUCCEEDED)
