"""Elections: who asks, who grants, who counts."""

from __future__ import annotations

import pytest

from fencepost.jepsen.cores.world import World
from fencepost.raft.core.entry import EntryKind, HardState
from fencepost.raft.core.events import Role
from fencepost.raft.core.messages import (
    AppendEntries,
    PreVote,
    PreVoteResponse,
    RequestVote,
    RequestVoteResponse,
)
from fencepost.raft.core.options import SECOND, Options

from .lone import FIVE, Lone, entries


def test_silence_for_an_election_timeout_starts_a_pre_vote_that_changes_nothing() -> None:
    lone = Lone(term=3, log=entries(1, 3))
    lone.advance(SECOND - 1)
    assert lone.take() == []
    lone.advance(1)
    sent = {send.to: send.message for send in lone.visible}
    round_ = lone.raft.pre_vote_round
    assert sent == dict.fromkeys(("n2", "n3"), PreVote(4, 2, 3, round_))
    assert (lone.raft.role, lone.raft.current_term, lone.writes) == (Role.PRE_CANDIDATE, 3, [])


def test_unanswered_pre_vote_is_asked_again_in_a_round_of_its_own() -> None:
    lone = Lone(term=3)
    rounds = iter((11, 22, 33))
    lone.raft.between = lambda low, high: next(rounds) if low == 1 else low
    lone.campaign()
    lone.advance(2 * SECOND)
    asked = [message.round for message in lone.take("n2") if isinstance(message, PreVote)]
    assert asked == [11, 22, 33]
    lone.receive("n2", PreVoteResponse(3, True, 11, ""))
    assert lone.raft.role is Role.PRE_CANDIDATE  # An answer to an earlier round.
    lone.receive("n2", PreVoteResponse(3, True, 33, ""))
    assert lone.raft.role is Role.CANDIDATE


def test_refusal_with_a_higher_term_is_followed() -> None:
    lone = Lone(term=3)
    lone.campaign()
    round_ = lone.raft.pre_vote_round
    lone.receive("n2", PreVoteResponse(7, False, round_, "stale-term"))
    assert (lone.raft.role, lone.raft.current_term) == (Role.FOLLOWER, 7)


def test_late_refusal_takes_no_node_from_its_leader() -> None:
    lone = Lone(term=3)
    lone.campaign()
    round_ = lone.raft.pre_vote_round
    lone.append(3, (0, 0), source="n2")
    lone.receive("n3", PreVoteResponse(7, False, round_, "stale-term"))
    assert (lone.raft.current_term, lone.raft.leader) == (3, "n2")


def test_majority_of_refusals_ends_the_round() -> None:
    lone = Lone(voters=FIVE, term=3)
    lone.campaign()
    round_ = lone.raft.pre_vote_round
    for voter in ("n2", "n3"):
        lone.receive(voter, PreVoteResponse(3, False, round_, "log-behind"))
    assert lone.raft.role is Role.PRE_CANDIDATE
    lone.receive("n4", PreVoteResponse(3, False, round_, "log-behind"))
    assert lone.raft.role is Role.FOLLOWER


def test_majority_of_refused_votes_ends_the_candidacy_in_the_same_term() -> None:
    lone = Lone(term=3)
    lone.become_candidate()
    lone.durable()
    for voter in ("n2", "n3"):
        lone.receive(voter, RequestVoteResponse(4, False, "already-voted"))
    assert (lone.raft.role, lone.raft.current_term, lone.raft.voted_for) == (Role.FOLLOWER, 4, "n1")


def test_own_vote_counts_only_once_it_is_durable() -> None:
    lone = Lone(term=3)
    lone.become_candidate()
    lone.receive("n2", RequestVoteResponse(4, True, ""))
    assert lone.raft.role is Role.CANDIDATE
    lone.durable()
    assert lone.raft.role is Role.LEADER


def test_durable_vote_of_an_earlier_candidacy_is_none_in_this_one() -> None:
    lone = Lone(term=3)
    lone.become_candidate()
    lone.become_candidate()
    assert lone.raft.current_term == 5
    lone.durable(1)
    lone.receive("n2", RequestVoteResponse(5, True, ""))
    assert lone.raft.role is Role.CANDIDATE
    lone.durable(1)
    assert lone.raft.role is Role.LEADER


def test_leader_begins_with_a_no_op_of_its_term() -> None:
    lone = Lone(term=3, log=entries(1, 3))
    lone.become_leader()
    last = lone.raft.log.entry(3)
    assert (last.term, last.kind, last.data) == (4, EntryKind.NO_OP, b"")
    assert lone.raft.term_start_index == 3


def test_single_voter_leads_and_commits_alone_but_not_before_its_disk() -> None:
    lone = Lone(voters=("n1",))
    lone.advance(SECOND)
    assert lone.raft.role is Role.CANDIDATE
    lone.durable()
    assert (lone.raft.role, lone.raft.commit_index) == (Role.LEADER, 0)
    lone.durable()
    assert (lone.raft.commit_index, lone.applied_to) == (1, 1)
    lone.advance(100 * SECOND)
    assert lone.raft.role is Role.LEADER


@pytest.mark.parametrize(
    ("last", "granted"),
    [((2, 3), True), ((3, 3), True), ((1, 4), True), ((1, 3), False), ((9, 2), False)],
)
def test_vote_only_for_a_log_at_least_as_up_to_date(last: tuple[int, int], granted: bool) -> None:
    lone = Lone(term=4, log=entries(1, 3))
    lone.receive("n2", RequestVote(5, *last, False))
    (answer,) = lone.durable()
    assert answer == RequestVoteResponse(5, granted, "" if granted else "log-behind")
    lone = Lone(term=4, log=entries(1, 3))
    assert lone.receive("n2", PreVote(5, *last, 1)) == [PreVoteResponse(4, granted, 1, "" if granted else "log-behind")]


def test_one_vote_in_a_term_and_again_for_the_same() -> None:
    lone = Lone(term=4)
    lone.receive("n2", RequestVote(5, 0, 0, False))
    lone.durable()
    assert lone.receive("n3", RequestVote(5, 0, 0, False)) == [RequestVoteResponse(5, False, "already-voted")]
    assert lone.receive("n2", RequestVote(5, 0, 0, False)) == [RequestVoteResponse(5, True, "")]
    assert len(lone.writes) == 1
    assert lone.receive("n3", PreVote(5, 0, 0, 1)) == [PreVoteResponse(5, False, 1, "already-voted")]


def test_higher_term_clears_the_vote_and_the_same_term_does_not() -> None:
    lone = Lone(term=5, voted_for="n2")
    lone.append(5, (0, 0), source="n3")
    assert lone.raft.voted_for == "n2"
    lone.append(6, (0, 0), source="n3")
    assert lone.raft.voted_for == ""
    assert lone.writes[-1].hard_state == HardState(6, "")


def test_vote_in_an_earlier_term_is_refused_with_the_current_one() -> None:
    lone = Lone(term=5)
    assert lone.receive("n2", RequestVote(4, 9, 9, False)) == [RequestVoteResponse(5, False, "stale-term")]
    assert lone.receive("n2", PreVote(4, 9, 9, 2)) == [PreVoteResponse(5, False, 2, "stale-term")]


def test_granted_vote_ends_a_pre_candidacy() -> None:
    lone = Lone(voters=FIVE, term=4)
    lone.campaign()
    round_ = lone.raft.pre_vote_round
    lone.take()
    lone.append(5, (0, 0), source="n5")  # Back to follower, and again:
    lone.now += 2 * SECOND
    lone.campaign()
    lone.settle()
    round_ = lone.raft.pre_vote_round
    lone.receive("n2", RequestVote(5, 0, 0, False))
    assert lone.durable()[-1] == RequestVoteResponse(5, True, "")
    for voter in ("n3", "n4", "n5"):
        lone.receive(voter, PreVoteResponse(5, True, round_, ""))
    assert (lone.raft.role, lone.raft.current_term) == (Role.FOLLOWER, 5)  # n2 is not set back.


def test_stickiness_ends_with_the_smallest_election_timeout() -> None:
    lone = Lone(term=5)
    lone.append(5, (0, 0), source="n2")
    lone.now += SECOND - 1
    assert lone.receive("n3", PreVote(6, 0, 0, 1)) == [PreVoteResponse(5, False, 1, "leader-alive")]
    lone.now += 1
    assert lone.receive("n3", PreVote(6, 0, 0, 1)) == [PreVoteResponse(5, True, 1, "")]


def test_the_leader_itself_may_ask_again() -> None:
    lone = Lone(term=5)
    lone.append(5, (0, 0), source="n2")
    assert lone.receive("n2", PreVote(6, 0, 0, 1)) == [PreVoteResponse(5, True, 1, "")]


def test_leader_refuses_votes_while_it_leads() -> None:
    lone = Lone(term=5)
    lone.become_leader()
    assert lone.receive("n3", RequestVote(9, 9, 9, False)) == [RequestVoteResponse(6, False, "leader-alive")]
    assert lone.raft.role is Role.LEADER


def test_without_check_quorum_and_pre_vote_it_is_plain_raft() -> None:
    lone = Lone(term=5, options=Options(pre_vote=False, check_quorum=False))
    lone.append(5, (0, 0), source="n2")
    lone.receive("n3", RequestVote(6, 0, 0, False))
    assert lone.durable() == [RequestVoteResponse(6, True, "")]
    lone.advance(SECOND)
    assert (lone.raft.role, lone.raft.current_term) == (Role.CANDIDATE, 7)


def test_step_down_keeps_term_and_vote_and_the_next_term_is_a_new_one() -> None:
    lone = Lone(term=5)
    lone.become_leader()
    lone.propose(b"x")
    lone.step_down()
    assert (lone.raft.role, lone.raft.current_term, lone.raft.voted_for) == (Role.FOLLOWER, 6, "n1")
    assert lone.propose(b"y")[:2] == ("NOT_LEADER", "")
    lone.take()
    lone.acknowledge("n2", 2)  # An answer to what it sent as leader.
    assert lone.raft.commit_index == 0
    lone.settle()
    lone.become_leader()
    assert (lone.raft.current_term, lone.raft.term_start_index) == (7, 3)
    lone.acknowledge("n2", 3)
    assert lone.raft.commit_index == 3


def test_who_steps_down_lets_the_others_go_first() -> None:
    for seed in range(20):
        world = World(seed=seed)
        leader = world.elect()
        world.step_down(leader)
        assert world.elect() != leader


def test_who_steps_down_alone_comes_back() -> None:
    lone = Lone(voters=("n1",))
    lone.become_leader()
    lone.step_down()
    lone.advance(4 * SECOND)
    lone.durable()
    assert lone.raft.role is Role.LEADER


def test_not_a_voter_never_campaigns() -> None:
    lone = Lone(voters=("n2", "n3"), term=5)
    lone.advance(10 * SECOND)
    assert (lone.raft.role, lone.take()) == (Role.FOLLOWER, [])


def test_node_whose_disk_hangs_does_not_campaign() -> None:
    lone = Lone(term=5, options=Options(stall_bound=SECOND // 2))
    lone.append(5, (0, 0), entries(5))
    lone.advance(20 * SECOND)
    assert not any(isinstance(message, PreVote | RequestVote) for message in lone.take())
    lone.durable()
    lone.advance(2 * SECOND)
    assert any(isinstance(message, PreVote) for message in lone.take())


def test_timeouts_are_drawn_between_one_and_two() -> None:
    asked: list[tuple[int, int]] = []
    lone = Lone(term=5)
    lone.raft.between = lambda low, high: asked.append((low, high)) or high  # type: ignore[func-returns-value]
    lone.append(5, (0, 0))
    assert asked == [(SECOND, 2 * SECOND)]
    assert lone.raft.deadline() == lone.now + 2 * SECOND


def test_two_leaders_in_one_term_stop_the_node() -> None:
    lone = Lone(term=5)
    lone.become_leader()
    with pytest.raises(AssertionError, match="two leaders in term 6"):
        lone.raft._receive("n2", AppendEntries(6, 0, 0, 0, 0, []))
