"""Linearizable reads: through a quorum, through the leader, from its lease (thesis section 6.4)."""

from __future__ import annotations

import pytest

from fencepost.jepsen.cores.world import World
from fencepost.raft.core.configuration import Change, ChangeKind, Configuration
from fencepost.raft.core.events import Accepted, ReadReady, ReadRefused, Role
from fencepost.raft.core.messages import (
    AppendEntries,
    Message,
    PreVote,
    ReadIndex,
    ReadIndexResponse,
    RequestVote,
    RequestVoteResponse,
)
from fencepost.raft.core.options import MILLISECOND, SECOND, Options

from .lone import FIVE, THREE, Lone, entries

LEASES = Options(lease_reads=True, clock_drift_ppm=100_000)
"""A lease of nine tenths of a second."""
TIMEOUT = 150 * MILLISECOND
QUICK = Options(
    election_timeout=TIMEOUT, heartbeat_interval=40 * MILLISECOND, stall_bound=TIMEOUT, transfer_timeout=TIMEOUT
)


def leader(*, voters: tuple[str, ...] = THREE, options: Options | None = None) -> Lone:
    """n1 leads term 2; its no-op, the entry at 1, is committed."""
    lone = Lone(voters=voters, term=1, options=options)
    lone.become_leader()
    for peer in lone.raft.peers:
        lone.acknowledge(peer, 1)
    lone.now += MILLISECOND
    lone.take()
    return lone


def asked(lone: Lone, to: str) -> list[int]:
    """When the heartbeats to ``to`` were sent since last asked."""
    found = [send.message.sent_at for send in lone.visible if send.to == to and isinstance(send.message, AppendEntries)]
    lone.visible = [send for send in lone.visible if send.to != to]
    return found


def refused(*request_ids: int, leader: str = "") -> list[ReadRefused]:
    return [ReadRefused(request_id, "NOT_LEADER", leader) for request_id in request_ids]


# -- through a quorum -----------------------------------------------------------------------------------


def test_a_read_waits_for_a_quorum_that_was_asked_after_it_began() -> None:
    lone = leader()
    before = lone.now
    assert lone.read(7) == []
    (at,) = asked(lone, "n2")
    assert at > before
    lone.acknowledge("n2", 1, sent_at=before)  # It followed *before* the read.
    assert lone.reads == []
    lone.acknowledge("n2", 1, sent_at=at)
    assert lone.reads == [ReadReady(7, 1)]


def test_a_read_has_the_commit_index_of_its_beginning() -> None:
    lone = leader()
    lone.read(7)
    (at,) = asked(lone, "n2")
    lone.propose(b"x")
    lone.settle()
    lone.acknowledge("n3", 2, sent_at=at - 1)
    assert (lone.raft.commit_index, lone.reads) == (2, [])
    lone.acknowledge("n2", 1, sent_at=at)
    assert lone.reads == [ReadReady(7, 1)]


def test_many_reads_share_one_round_and_those_that_come_meanwhile_the_next() -> None:
    lone = leader()
    lone.read(1, 2)
    (first,) = asked(lone, "n2")
    lone.read(3)
    lone.read(4)
    assert asked(lone, "n2") == []
    lone.acknowledge("n2", 1, sent_at=first)
    assert lone.reads == [ReadReady(1, 1), ReadReady(2, 1)]
    (second,) = asked(lone, "n2")
    lone.acknowledge("n2", 1, sent_at=second)
    assert lone.reads[2:] == [ReadReady(3, 1), ReadReady(4, 1)]
    assert asked(lone, "n2") == []


def test_a_round_that_is_lost_is_made_up_for_by_the_next_heartbeat() -> None:
    lone = leader()
    lone.read(1)
    asked(lone, "n2")
    lone.advance(300 * MILLISECOND)
    lone.acknowledge("n2", 1, sent_at=asked(lone, "n2")[-1])
    assert lone.reads == [ReadReady(1, 1)]


def test_a_quorum_is_one_of_voters_and_of_both_halves() -> None:
    joint = Configuration(("n1", "n4", "n5"), outgoing=THREE, learners=("n6",))
    lone = Lone(configuration=joint, term=1)
    lone.become_leader()
    for peer in ("n2", "n4"):
        lone.acknowledge(peer, 1)
    lone.take()
    lone.now += 1
    lone.read(1)
    assert sorted({send.to for send in lone.visible}) == ["n2", "n3", "n4", "n5"]
    lone.now = lone.raft.now
    for peer in ("n6", "n4", "n5"):
        lone.acknowledge(peer, 1)
    assert lone.reads == []
    lone.acknowledge("n3", 1)
    assert lone.reads == [ReadReady(1, 1)]


def test_the_only_voter_answers_at_once() -> None:
    lone = leader(voters=("n1",))
    assert lone.raft.commit_index == 1
    assert lone.read(1, 2) == [ReadReady(1, 1), ReadReady(2, 1)]


def test_a_node_without_a_leader_refuses_and_a_leader_that_gives_up_does_too() -> None:
    lone = Lone(term=1)
    assert lone.read(1, 2) == refused(1, 2)
    lone = leader()
    lone.read(3)
    lone.step_down()
    assert lone.reads == refused(3)
    lone.now += 1
    lone.storage_failed()
    assert lone.read(4) == refused(4)


# -- S29, S30, S44 --------------------------------------------------------------------------------------


def test_s29_read_waits_for_the_no_op_of_the_new_leaders_term() -> None:
    """The cluster has committed 9, the new leader knows of 7."""
    lone = Lone(term=2, log=entries(*[1] * 9), commit_index=7)
    lone.become_leader()
    lone.read(1)
    at = lone.visible[-1].message
    assert isinstance(at, AppendEntries)
    lone.acknowledge("n2", 0, sent_at=at.sent_at)  # A quorum follows, but has not got the no-op.
    assert lone.reads == []
    lone.acknowledge("n3", 10, sent_at=1)
    assert lone.raft.commit_index == 10
    assert lone.reads == [ReadReady(1, 10)]


def test_s29_no_lease_before_the_no_op_is_committed() -> None:
    lone = Lone(term=2, log=entries(*[1] * 9), commit_index=7, options=LEASES)
    lone.become_leader()
    lone.acknowledge("n2", 0)
    assert lone.read(1, lease=True) == []
    lone.now = lone.raft.now
    lone.acknowledge("n2", 10)
    assert lone.reads == [ReadReady(1, 10)]
    assert lone.read(2, lease=True) == [ReadReady(2, 10)]


def test_s30_cut_off_leader_answers_no_read() -> None:
    world = World(FIVE, seed=1, options=QUICK)
    world.elect("n1")
    world.run_for(TIMEOUT)
    world.partition(("n1", "n2"), ("n3", "n4", "n5"))
    old = [world.read("n1"), world.read("n2")]
    world.run_until(lambda: world.leader() in ("n3", "n4", "n5"), within=10 * TIMEOUT, what="the majority elects")
    leader = world.leader()
    assert leader is not None
    outcome = world.propose(leader, b"x=2")
    assert isinstance(outcome, Accepted)
    world.run_until(lambda: world.raft(leader).commit_index >= outcome.first_index, within=TIMEOUT, what="x is 2")
    late = world.read("n1")
    world.run_for(10 * TIMEOUT)
    assert not {*old, late} & set(world.reads.asked)
    assert (world.reads.ready, world.reads.refused) == (0, 3)
    world.read(leader)
    world.run_for(TIMEOUT)
    assert world.reads.ready == 1


@pytest.mark.parametrize("how", ["higher term", "step down", "no quorum", "own disk stalls", "storage fails"])
def test_s44_everything_that_waits_for_a_leader_ends_with_its_office(how: str) -> None:
    """Five proposals, two reads, a read for a follower, a transfer and a change of members."""
    lone = leader(voters=FIVE)
    lone.change(Change(ChangeKind.ADD_LEARNER, "n6"))
    lone.propose(*[b"x"] * 5)
    lone.read(1)
    lone.read(2)
    lone.receive("n3", ReadIndex(2, 99))
    lone.transfer("n2")
    lone.take()
    match how:
        case "higher term":
            lone.receive("n4", RequestVoteResponse(3, False, ""))
            lone.settle()
        case "step down":
            lone.step_down()
        case "no quorum" | "own disk stalls":
            if how == "no quorum":
                lone.settle()
            lone.advance(2 * SECOND)
        case "storage fails":
            lone.storage_failed()
    assert lone.raft.role is not Role.LEADER
    assert lone.reads == refused(1, 2)
    assert (list(lone.raft.pending_reads), lone.raft.transfer, lone.raft.departing) == ([], None, {})
    answers = [send.message for send in lone.visible if send.to == "n3" and isinstance(send.message, ReadIndexResponse)]
    if how != "storage fails":
        assert answers == [ReadIndexResponse(lone.raft.current_term, 99, 0)]
    # Nothing is asked of the log: it decides what became of the proposals and the change.
    assert lone.raft.log.last_index == 7


def test_s44_a_thousand_step_downs_leave_nothing_behind() -> None:
    lone = Lone(term=1)
    for number in range(1000):
        lone.become_leader()
        lone.read(number)
        lone.step_down()
    assert len(lone.reads) == 1000
    assert (len(lone.raft.pending_reads), len(lone.raft.forwarded_reads)) == (0, 0)


# -- through followers ----------------------------------------------------------------------------------


def follower() -> Lone:
    lone = Lone(term=1)
    lone.append(1, (0, 0), source="n2")
    lone.take()
    return lone


def question(lone: Lone) -> ReadIndex:
    (send,) = lone.visible
    assert (send.to, isinstance(send.message, ReadIndex)) == ("n2", True)
    lone.visible.clear()
    assert isinstance(send.message, ReadIndex)
    return send.message


def test_a_follower_asks_its_leader_and_answers_itself() -> None:
    lone = follower()
    assert lone.read(7, 8, lease=True) == []
    batch = question(lone).batch
    lone.receive("n2", ReadIndexResponse(1, batch, 5))
    assert lone.reads == [ReadReady(7, 5), ReadReady(8, 5)]
    lone.receive("n2", ReadIndexResponse(1, batch, 9))  # It came twice.
    assert len(lone.reads) == 2


def test_a_leader_that_cannot_answer_says_so() -> None:
    lone = follower()
    lone.read(7)
    lone.receive("n2", ReadIndexResponse(1, question(lone).batch, 0))
    assert lone.reads == refused(7)


def test_an_answer_of_a_later_term_ends_the_one_it_was_asked_in() -> None:
    lone = follower()
    lone.read(7)
    lone.receive("n2", ReadIndexResponse(5, question(lone).batch, 0))
    assert (lone.reads, lone.raft.current_term, lone.raft.leader) == (refused(7), 5, "")


def test_a_later_leader_of_the_same_name_answers_what_was_asked_in_an_earlier_term() -> None:
    """It confirms after the question came, in whatever term."""
    lone = follower()
    lone.read(7)
    lone.receive("n2", ReadIndexResponse(5, question(lone).batch, 9))
    assert lone.reads == [ReadReady(7, 9)]


def test_answers_are_told_apart_by_batch_also_from_before_a_restart() -> None:
    lone = follower()
    lone.read(1)
    first = question(lone).batch
    lone.read(2)
    second = question(lone).batch
    assert first != second
    lone.receive("n2", ReadIndexResponse(1, second, 5))
    assert lone.reads == [ReadReady(2, 5)]
    again = Lone(term=1)
    again.raft.between = lambda low, high: 12345 if low == 1 else low
    again.append(1, (0, 0), source="n2")
    again.take()
    again.read(1)
    assert question(again).batch == 12346  # Begun by chance, not at 1 again.


@pytest.mark.parametrize(
    "how", ["another leader", "asked to campaign", "own timeout", "later term", "another read", "storage fails"]
)
def test_a_follower_that_loses_its_leader_refuses_what_it_had_asked(how: str) -> None:
    lone = follower()
    lone.read(7)
    leader = ""
    match how:
        case "another leader":
            lone.append(2, (0, 0), source="n3")
            leader = "n3"
        case "asked to campaign":
            lone.campaign()
        case "own timeout":
            lone.advance(3 * SECOND)
            leader = "n2"
        case "later term":
            lone.receive("n3", RequestVoteResponse(3, False, ""))
        case "storage fails":
            lone.storage_failed()
        case "another read":
            lone.now += SECOND
            lone.append(1, (0, 0), source="n2")
            lone.read(8)
            leader = "n2"
    assert lone.reads == refused(7, leader=leader)


def test_a_leader_answers_for_its_followers_once_a_quorum_has_confirmed() -> None:
    lone = leader()
    lone.receive("n3", ReadIndex(2, 99))
    (at,) = asked(lone, "n2")
    assert [message for message in lone.take("n3") if isinstance(message, ReadIndexResponse)] == []
    lone.acknowledge("n2", 1, sent_at=at)
    assert lone.take("n3") == [ReadIndexResponse(2, 99, 1)]
    assert lone.reads == []


def test_nobody_but_a_leader_answers_and_nobody_but_a_member_is_answered() -> None:
    lone = follower()
    assert lone.receive("n3", ReadIndex(1, 99)) == [ReadIndexResponse(1, 99, 0)]
    lone = leader()
    assert lone.receive("n9", ReadIndex(2, 99)) == [ReadIndexResponse(2, 99, 0)]
    assert lone.receive("n3", ReadIndex(5, 99)) == []
    assert lone.durable() == [ReadIndexResponse(5, 99, 0)]
    assert lone.raft.role is Role.FOLLOWER


# -- from the lease -------------------------------------------------------------------------------------


def test_a_lease_answers_at_once_as_long_as_clocks_allow() -> None:
    lone = leader(options=LEASES)
    sent_at = lone.now - MILLISECOND
    assert lone.read(1, lease=True) == [ReadReady(1, 1)]
    assert lone.take() == []
    lone.now = sent_at + SECOND * 9 // 10 - 1
    assert lone.read(2, lease=True) == [ReadReady(2, 1)]
    lone.now += 1
    assert lone.read(3, lease=True) == []
    assert asked(lone, "n2") != []


def test_a_lease_is_for_who_asks_and_where_it_is_allowed() -> None:
    lone = leader(options=LEASES)
    assert lone.read(1) == []
    lone = leader()
    assert lone.read(1, lease=True) == []


def test_no_lease_once_somebody_was_told_to_campaign() -> None:
    lone = leader(options=LEASES)
    lone.propose(b"x")  # n2 has to catch up first: until then nobody campaigns.
    lone.transfer("n2")
    assert lone.read(1, lease=True) == [ReadReady(1, 1)]
    lone.acknowledge("n2", 2)
    assert lone.raft.transfer is not None
    assert lone.raft.transfer.told_at
    assert lone.read(2, lease=True) == []
    lone.settle()
    for _ in range(12):
        lone.advance(100 * MILLISECOND)
        lone.acknowledge("n3", 2)
    assert lone.raft.transfer is None
    assert lone.raft.role is Role.LEADER
    lone.reads.clear()
    assert lone.read(3, lease=True) == []  # It may act late, for the rest of this term.


def test_who_was_started_keeps_its_vote_for_a_timeout_where_leases_are_read() -> None:
    """It may have promised that to a leader before, and has forgotten it."""
    lone = Lone(term=1, options=LEASES)
    assert lone.receive("n2", RequestVote(2, 9, 9, False)) == [RequestVoteResponse(1, False, "leader-alive")]
    lone.now += SECOND
    lone.receive("n2", RequestVote(2, 9, 9, False))
    assert lone.durable() == [RequestVoteResponse(2, True, "")]
    lone = Lone(term=1)
    lone.receive("n2", RequestVote(2, 9, 9, False))
    assert lone.durable() == [RequestVoteResponse(2, True, "")]


def test_who_is_asked_to_campaign_keeps_its_own_promise_where_leases_are_read() -> None:
    """Its own vote would be the one that the leader counts on."""
    lone = Lone(term=1, options=LEASES)
    lone.append(1, (0, 0), source="n2")
    lone.now += SECOND - 1
    lone.take()
    lone.campaign()
    assert (lone.raft.role, lone.take()) == (Role.FOLLOWER, [])
    lone.now += 1
    lone.campaign()
    assert [type(message) for message in lone.take()] == [PreVote, PreVote]


def test_a_lease_is_not_broken_by_a_campaign_that_somebody_asks_for() -> None:
    """n1 hears n2 alone, n2 and n3 hear each other; n3 has long lost its leader."""
    options = Options(
        election_timeout=TIMEOUT,
        heartbeat_interval=40 * MILLISECOND,
        stall_bound=TIMEOUT,
        transfer_timeout=TIMEOUT,
        lease_reads=True,
    )
    for seed in range(5):
        world = World(seed=seed, options=options)
        world.run_for(2 * TIMEOUT)
        world.elect("" if world.leader() else "n1")
        leader = world.leader()
        assert leader is not None
        second, third = [name for name in THREE if name != leader]
        world.cut(leader, third)
        world.cut(third, leader)
        world.run_for(2 * TIMEOUT)
        assert world.leader() == leader
        world.campaign(second)
        world.run_for(30 * MILLISECOND)
        if world.leader() not in (None, leader):
            world.propose(world.leader() or "", b"x")
            world.run_for(20 * MILLISECOND)
        world.read(leader, lease=True)
        world.run_for(3 * TIMEOUT)


def test_answers_of_reads_go_out_with_what_they_need_on_the_disk() -> None:
    """A follower that answers from a later term than its own saves that first (S05)."""
    lone = Lone(term=1)
    lone.receive("n2", ReadIndex(7, 1))
    assert lone.visible == []
    messages: list[Message] = lone.durable()
    assert messages == [ReadIndexResponse(7, 1, 0)]
