"""What a node counts of its own part, and what it remembers of its own life."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.raft.effects.handlers import Permanent, Retryable
from fencepost.raft.effects.policy import RetryPolicy
from fencepost.raft.node.happenings import HAPPENINGS_KEPT
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.ports import Attempt, Guarantee, Wait

from .world import ELECTION_S, ResourceSpec, SimNode, World


def happened(node: SimNode) -> list[tuple[str, Any]]:
    """By the name of what happened, and what it was about."""
    return [
        (row["event"], row.get("leader") or row.get("target") or row["resource"] or row.get("reason"))
        for row in node.happenings.since(0)
    ]


# -- leadership -------------------------------------------------------------------------------------


def test_how_long_it_led_and_what_was_left_of_the_lease() -> None:
    with World(seed=1) as world:
        leader = world.active_leader()
        assert leader.measures.leading_s < ELECTION_S
        world.advance(30)
        measures = leader.measures
        assert measures.leading_s == pytest.approx(30, abs=ELECTION_S)
        # A quorum is asked again with every heartbeat, and answers in two milliseconds.
        options = leader.raft.options
        assert measures.least_lease_left_ns is not None
        lost_ns = options.election_timeout - measures.least_lease_left_ns
        assert options.heartbeat_interval <= lost_ns < options.heartbeat_interval * 1.1
        assert sum(measures.leaderships.counts) == 0
        world.isolate(leader.name)
        world.until(lambda: not leader.leads)
        assert (measures.leading_s, sum(measures.leaderships.counts)) == (0, 1)
        assert measures.leaderships.sum_s == pytest.approx(30 + ELECTION_S, abs=ELECTION_S)
        assert measures.least_lease_left_ns <= options.heartbeat_interval, "it had run out"
        assert leader.raft.lease_left(leader.loop.now()) is None


def test_why_votes_were_refused_and_how_often_it_asked() -> None:
    with World(seed=2) as world:
        leader = world.active_leader()
        away = next(node for node in world.up() if node is not leader)
        world.isolate(away.name)
        world.advance(4 * ELECTION_S)
        assert away.measures.campaigns >= 1
        assert away.raft.votes_refused == {}, "nobody has heard it"
        # It is heard again, and hears the answers, but the leader's heartbeats do not reach it.
        world.heal()
        world.blocked.add((leader.name, away.name))
        world.advance(3 * ELECTION_S)
        assert away.raft.votes_refused.get("leader-alive", 0) >= 1
        assert away.measures.elections_begun == 0, "a pre-vote spends no term"
        assert leader.raft.votes_refused == {}
        world.heal()


def test_a_log_that_is_behind_is_a_reason_and_the_answer_of_each_voter_counts_once() -> None:
    with World(seed=2) as world:
        leader = world.active_leader()
        behind, other = (node for node in world.up() if node is not leader)
        world.isolate(behind.name)
        world.done(leader, "a", "b")
        world.crash(leader.name)
        world.heal()
        assert world.active_leader() is other
        assert behind.raft.votes_refused == {"log-behind": 1}
        assert other.raft.votes_refused == {}


def test_what_a_leader_had_not_applied_when_it_was_elected() -> None:
    with World(seed=4) as world:
        leader = world.active_leader()
        assert leader.measures.unapplied_at_election == 0
        heir, other = (node for node in world.up() if node is not leader)
        # They hear what to append, and die with their leader before they hear that it is committed.
        leader.resource.hold_before = True
        world.submit(leader, *[f"a{number}" for number in range(20)], wait=Wait.COMMITTED)
        world.until(lambda: heir.raft.log.last_index == leader.raft.log.last_index > heir.applier.last_applied + 10)
        world.crash(leader.name)
        after = world.active_leader(other_than=leader.name)
        assert 10 < after.measures.unapplied_at_election <= 21
        assert after.measures.leader_changes == 2
        assert other.measures.leader_changes == 2


# -- commands ---------------------------------------------------------------------------------------


def refuse(attempt: Attempt) -> bytes:
    if attempt.operation_id.startswith("retry"):
        raise Retryable("503")
    if attempt.operation_id.startswith("bad"):
        raise Permanent("no such account")
    return b"{}"


def test_every_end_and_every_decision_counts_once_on_every_node() -> None:
    policy = RetryPolicy(max_attempts=2, backoff_ns=10_000_000, backoff_max_ns=10_000_000)
    with World(ResourceSpec(effects={"credit": refuse}, policy=policy), seed=5) as world:
        leader = world.active_leader()
        world.submit(leader, "good", "bad", "retry-1", "retry-2", wait=Wait.DONE)
        world.until(lambda: leader.operation("retry-1").state is OperationState.DEAD)
        world.until(lambda: leader.operation("retry-2").state is OperationState.DEAD)
        world.reply(leader, "command.discard", id="retry-1")
        world.reply(leader, "command.redrive", id="retry-2")
        world.until(lambda: leader.operation("retry-2").state is OperationState.DEAD)
        world.settle()
        for node in world.up():
            assert {state.value: count for state, count in node.measures.ended["ledger"].items()} == {
                "succeeded": 1,
                "failed": 2,  # One of them was discarded.
                "dead": 3,  # One of them twice.
            }
            assert node.measures.decisions == {("ledger", "discard"): 1, ("ledger", "redrive"): 1}


def test_doubt_and_what_settles_it_count() -> None:
    with World(ResourceSpec(guarantee=Guarantee.NAKED), seed=6) as world:
        leader = world.active_leader()
        leader.resource.hold_after = True
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.resource.held)
        world.crash(leader.name)
        leader = world.active_leader(other_than=leader.name)
        world.until(lambda: leader.operation("a").state is OperationState.IN_DOUBT)
        word: dict[str, Any] = {"as": "done", "note": "seen"}
        world.reply(leader, "command.resolve", id="a", **word)
        assert leader.measures.ended == {"ledger": {OperationState.IN_DOUBT: 1, OperationState.SUCCEEDED: 1}}
        assert leader.measures.decisions == {("ledger", "resolve"): 1}


def test_dispatch_and_outcome_of_one_batch_are_one_end() -> None:
    """The outcome is proposed while the dispatch waits for its commit: both are applied at once."""
    with World(seed=7) as world:
        leader = world.active_leader()
        followers = [node.name for node in world.up() if node is not leader]
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.operation("a").state is OperationState.COMMITTED)
        world.blocked |= {(name, leader.name) for name in followers}
        world.until(lambda: world.specs[0].store.effects)
        world.heal()
        world.settle()
        assert all(node.measures.ended == {"ledger": {OperationState.SUCCEEDED: 1}} for node in world.up())


# -- happenings -------------------------------------------------------------------------------------


def test_a_node_remembers_whom_it_followed_what_it_was_refused_and_who_was_a_member() -> None:
    with World(seed=8) as world:
        leader = world.active_leader()
        leader.resource.hold_before = True
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.until(lambda: leader.resource.held)
        # The leader is cut off and its effect goes on: it lands when another has claimed the fence.
        world.isolate(leader.name)
        successor = world.active_leader(other_than=leader.name)
        leader.resource.hold_before = False
        leader.resource.release()
        world.heal()
        world.until(lambda: ("stale-refused", "ledger") in happened(leader), what="the refusal")
        world.until(lambda: ("follows", successor.name) in happened(leader))
        names = [event for event, _ in happened(leader)]
        assert names.index("leads") < names.index("stopped-leading") < names.index("follows")
        assert ("leads", "elected") in happened(successor)
        world.reply(successor, "member.add", node="n4", address="n4:7001", learner=True)
        row = successor.happenings.since(0)[-1]
        assert (row["event"], row["learners"]) == ("members", ["n4"])
        body = world.reply(successor, "events", after_number=row["number"] - 1)
        assert body["happened"] == [row]
        assert body["elections"][-1]["node"] == successor.name


def test_handing_over_is_remembered_and_so_is_a_handover_that_failed() -> None:
    with World(seed=9) as world:
        leader = world.active_leader()
        target = next(node for node in world.up() if node is not leader)
        world.pause(target.name)
        world.call(leader, "cluster.transfer_leader", target=target.name)
        world.until(lambda: ("keeps-leading", target.name) in happened(leader), within_s=20)
        assert ("hands-over", target.name) in happened(leader)
        world.resume(target.name)


def test_the_oldest_are_forgotten() -> None:
    with World(seed=10) as world:
        node = world.active_leader()
        for number in range(HAPPENINGS_KEPT + 5):
            node.effects.stale_refusals["ledger"] = number + 1
            node.happenings.before_turn_ends(0)
        found = node.happenings.since(0)
        assert len(found) == HAPPENINGS_KEPT
        assert [row["number"] for row in found] == list(range(found[0]["number"], found[-1]["number"] + 1))
