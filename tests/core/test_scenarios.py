"""The failures of docs/scenarios.md that the core alone can show, each with its right values."""

from __future__ import annotations

import pytest

from fencepost.jepsen.cores.world import World
from fencepost.raft.core.entry import Entry, EntryKind, HardState
from fencepost.raft.core.errors import CommittedConflict
from fencepost.raft.core.events import Accepted, Propose, Role
from fencepost.raft.core.messages import (
    AppendEntries,
    AppendEntriesResponse,
    Message,
    PreVote,
    PreVoteResponse,
    RequestVote,
    RequestVoteResponse,
)
from fencepost.raft.core.options import MILLISECOND, SECOND, Options

from .lone import FIVE, Lone, entries, entry

TIMEOUT = 150 * MILLISECOND
QUICK = Options(
    election_timeout=TIMEOUT,
    heartbeat_interval=40 * MILLISECOND,
    stall_bound=TIMEOUT,
    commit_notice_delay=5 * MILLISECOND,
)


def cluster(*names: str, seed: int = 1) -> World:
    return World(names or ("n1", "n2", "n3"), seed=seed, options=QUICK)


def log_of(world: World, name: str) -> list[bytes]:
    """Payloads of the embedder's entries in a node's log."""
    raft = world.raft(name)
    return [item.data for item in raft.log.slice(1, raft.log.last_index) if item.kind == EntryKind.EMBEDDED]


def write_to(world: World, name: str, *data: bytes) -> int:
    """Propose and wait until the leader has committed it; the last index."""
    outcome = world.propose(name, *data)
    assert isinstance(outcome, Accepted)
    last = outcome.first_index + len(data) - 1
    world.run_until(lambda: world.raft(name).commit_index >= last, within=5 * TIMEOUT, what="committed")
    return last


# -- S01 ------------------------------------------------------------------------------------------


def test_s01_pre_vote_grant_of_a_node_left_behind_counts() -> None:
    lone = Lone(term=5, log=entries(1, 5))
    lone.campaign()
    (question, _) = lone.take()
    assert isinstance(question, PreVote)
    assert question.term == 6
    lone.receive("n3", PreVoteResponse(1, True, question.round, ""))
    assert (lone.raft.role, lone.raft.current_term) == (Role.CANDIDATE, 6)


def test_s01_granting_a_pre_vote_leaves_the_term_alone() -> None:
    lone = Lone(term=1)
    assert lone.receive("n3", PreVote(6, 9, 5, 77)) == [PreVoteResponse(1, True, 77, "")]
    assert (lone.raft.current_term, lone.raft.voted_for, lone.writes) == (1, "", [])


def test_s01_leader_within_five_timeouts_with_a_node_left_behind() -> None:
    world = cluster()
    world.elect("n2")
    world.isolate("n3")
    behind = world.raft("n3").current_term
    for _ in range(4):
        world.step_down(world.elect())
    leader = world.elect()
    term = world.raft(leader).current_term
    assert behind == 1
    assert term >= 5
    world.heal()
    world.crash(leader)
    assert world.raft("n3").current_term == behind
    world.run_until(
        lambda: (now := world.leader()) is not None and world.raft(now).current_term > term,
        within=5 * TIMEOUT,
        what="the other one leads with n3's vote",
    )
    assert world.leader() not in (leader, "n3")


# -- S02 (removal needs membership changes; the term part is the core's) -----------------------------


def test_s02_isolated_node_keeps_its_term_and_returns_quietly() -> None:
    world = cluster()
    world.elect("n1")
    world.isolate("n3")
    world.run_for(80 * TIMEOUT)  # At least forty timeouts of its own.
    assert world.raft("n3").current_term == 1
    write_to(world, "n1", b"x")
    world.heal()
    world.run_for(5 * TIMEOUT)
    assert world.leader() == "n1"
    assert [world.raft(name).current_term for name in world.nodes] == [1, 1, 1]
    assert log_of(world, "n3") == [b"x"]


def test_s02_node_with_a_high_term_and_no_way_to_hear_costs_the_leader_nothing() -> None:
    lone = Lone(term=3, log=entries(3))
    lone.append(3, (1, 3), source="n2")
    answer = lone.receive("n3", RequestVote(40, 9, 3, False))
    assert answer == [RequestVoteResponse(3, False, "leader-alive")]
    assert (lone.raft.current_term, lone.raft.leader) == (3, "n2")
    assert lone.receive("n3", PreVote(40, 9, 3, 5)) == [PreVoteResponse(3, False, 5, "leader-alive")]
    # The leader may ask for an election itself (S08): then the vote is free.
    lone.receive("n3", RequestVote(40, 9, 3, True))
    assert lone.durable() == [RequestVoteResponse(40, True, "")]


# -- S03 ------------------------------------------------------------------------------------------


def test_s03_term_is_never_below_the_logs() -> None:
    lone = Lone(term=2, voted_for="n3", log=entries(1, 2, 5))
    assert (lone.raft.current_term, lone.raft.voted_for) == (5, "")
    lone.campaign()
    assert lone.take() == []  # Nothing is said before the repaired term is on disk.
    (question, _) = lone.durable()
    assert isinstance(question, PreVote)
    assert question.term == 6
    assert lone.writes[0].hard_state == HardState(5, "")


def test_s03_staggered_cold_start_keeps_what_was_acknowledged() -> None:
    world = cluster()
    for _ in range(5):
        world.elect()
        world.step_down(world.elect())
    leader = world.elect()
    write_to(world, leader, b"old")
    term = world.raft(leader).current_term
    world.run_for(TIMEOUT)
    for name in world.nodes:
        world.crash(name)
    for name in ("n1", "n3"):
        world.start(name)
    leader = world.elect()
    first = write_to(world, leader, b"43", b"44", b"45") - 2
    world.start("n2")
    world.run_for(10 * TIMEOUT)
    for name in world.nodes:
        assert log_of(world, name) == [b"old", b"43", b"44", b"45"]
        assert world.raft(name).log.term_at(first) > term


# -- S05 ------------------------------------------------------------------------------------------


def test_s05_vote_reply_waits_for_the_vote() -> None:
    lone = Lone(term=4)
    assert lone.receive("n2", RequestVote(5, 0, 0, False)) == []
    assert lone.receive("n2", RequestVote(5, 0, 0, False)) == []  # A repetition is no way around it.
    # A crash now has lost the vote: granting it to another is allowed.
    again = Lone(term=4)
    again.receive("n3", RequestVote(5, 0, 0, False))
    assert again.durable() == [RequestVoteResponse(5, True, "")]
    # With the write done, it is not.
    assert lone.durable() == [RequestVoteResponse(5, True, ""), RequestVoteResponse(5, True, "")]
    saved = Lone(term=5, voted_for="n2")
    assert saved.receive("n3", RequestVote(5, 0, 0, False)) == [RequestVoteResponse(5, False, "already-voted")]


def test_s05_append_reply_waits_for_its_entries() -> None:
    lone = Lone(term=1)
    assert lone.append(1, (0, 0), entries(1, 1)) == []
    assert lone.append(1, (2, 1), entries(1, start=3)) == []
    assert lone.durable(1) == [AppendEntriesResponse(1, True, 2, 0, 0, 7, SECOND)]
    assert lone.durable(1) == [AppendEntriesResponse(1, True, 3, 0, 0, 7, SECOND)]


def test_s05_candidates_first_request_waits_for_its_own_vote() -> None:
    lone = Lone(term=4)
    lone.become_candidate()
    assert lone.take() == []
    assert lone.durable() == [RequestVote(5, 0, 0, False), RequestVote(5, 0, 0, False)]


def test_s05_nothing_is_said_in_a_term_that_is_not_saved() -> None:
    lone = Lone(term=4, log=entries(4))
    assert lone.append(9, (0, 0)) == []  # An empty append depends on no entry, but on the term.
    assert lone.receive("n3", PreVote(4, 0, 0, 3)) == []
    assert [message.term for message in lone.durable()] == [9, 9]


# -- S06 ------------------------------------------------------------------------------------------


def test_s06_votes_are_counted_by_voter_term_and_phase() -> None:
    lone = Lone(voters=FIVE, term=1)
    lone.campaign()
    question = lone.visible[0].message
    assert isinstance(question, PreVote)
    for voter in ("n2", "n2", "n9"):
        lone.receive(voter, PreVoteResponse(1, True, question.round, ""))
    assert lone.raft.role is Role.PRE_CANDIDATE
    lone.receive("n3", PreVoteResponse(1, True, question.round, ""))
    assert (lone.raft.role, lone.raft.current_term) == (Role.CANDIDATE, 2)
    lone.durable()
    lone.receive("n2", RequestVoteResponse(2, True, ""))
    lone.receive("n2", RequestVoteResponse(2, True, ""))  # Twice.
    lone.receive("n3", RequestVoteResponse(1, True, ""))  # Late, of another term.
    lone.receive("n4", PreVoteResponse(2, True, question.round, ""))  # Of another phase.
    lone.receive("n9", RequestVoteResponse(2, True, ""))  # No voter.
    assert lone.raft.role is Role.CANDIDATE
    assert [voter for voter in FIVE if lone.raft.votes.get(voter)] == ["n1", "n2"]
    lone.receive("n5", RequestVoteResponse(2, True, ""))
    assert lone.raft.role is Role.LEADER


def test_s06_the_first_answer_of_a_voter_stands() -> None:
    lone = Lone(voters=FIVE, term=1)
    lone.become_candidate()
    lone.durable()
    lone.receive("n2", RequestVoteResponse(2, False, "log-behind"))
    lone.receive("n2", RequestVoteResponse(2, True, ""))
    lone.receive("n3", RequestVoteResponse(2, True, ""))
    assert lone.raft.role is Role.CANDIDATE


# -- S07 ------------------------------------------------------------------------------------------


def test_s07_leader_with_a_hung_disk_is_replaced() -> None:
    world = cluster()
    world.elect("n1")
    write_to(world, "n1", b"before")
    world.stick("n1")
    stuck = world.propose("n1", b"unknown")
    assert isinstance(stuck, Accepted)
    world.run_until(lambda: world.leader() not in (None, "n1"), within=5 * TIMEOUT, what="another node leads")
    leader = world.leader()
    assert leader is not None
    assert world.raft("n1").role is Role.FOLLOWER
    assert not world.raft("n1").holds_lease(world.now + world.nodes["n1"].clock_offset)
    write_to(world, leader, b"after")
    # n1 never applied what it could not recover, and campaigns no more.
    assert world.nodes["n1"].applied_to < stuck.first_index
    world.run_for(20 * TIMEOUT)
    assert world.leader() == leader
    world.unstick("n1")
    world.run_for(5 * TIMEOUT)
    assert log_of(world, "n1") == log_of(world, leader)


def test_s07_short_stall_causes_no_election() -> None:
    world = cluster()
    world.elect("n1")
    world.stick("n1")
    assert isinstance(world.propose("n1", b"x"), Accepted)
    world.run_for(3 * TIMEOUT // 10)
    world.unstick("n1")
    world.run_for(5 * TIMEOUT)
    assert (world.leader(), world.raft("n1").current_term) == ("n1", 1)
    assert world.nodes["n1"].applied_to == 2


# -- S12 ------------------------------------------------------------------------------------------


def test_s12_first_storage_failure_is_final() -> None:
    lone = Lone(term=1)
    lone.become_leader()
    lone.propose(b"x")
    lone.take()
    lone.storage_failed()
    assert lone.raft.role is Role.FOLLOWER
    for peer in ("n2", "n3"):
        lone.acknowledge(peer, 2)
    lone.durable()  # The sync that "succeeds" after the one that failed.
    lone.receive("n3", RequestVote(9, 9, 9, False))
    lone.advance(100 * SECOND)
    assert lone.propose(b"y")[:2] == ("NOT_LEADER", "")
    assert lone.take() == []
    assert (lone.applied_to, lone.raft.current_term) == (0, 2)
    assert not lone.raft.holds_lease(lone.now)


def test_s12_failed_leader_is_replaced_and_its_file_decides() -> None:
    world = cluster()
    world.elect("n1")
    world.stick("n1")
    assert isinstance(world.propose("n1", b"x"), Accepted)
    world.run_for(MILLISECOND // 2)  # Before the entry has reached anybody.
    world.fail_storage("n1")
    world.isolate("n1")
    leader = world.elect()
    assert leader != "n1"
    write_to(world, leader, b"y")
    world.crash("n1")
    world.heal()
    world.start("n1")
    world.run_for(5 * TIMEOUT)
    assert [log_of(world, name) for name in world.nodes] == [[b"y"]] * 3


# -- S13 ------------------------------------------------------------------------------------------


def test_s13_acknowledged_entry_survives_power_loss_and_a_pause() -> None:
    world = cluster()
    world.elect("n1")
    world.cut("n1", "n3")
    write_to(world, "n1", b"X")
    world.crash("n2")
    world.start("n2")
    world.isolate("n1")
    world.run_until(lambda: world.leader() == "n2", within=10 * TIMEOUT, what="n2 leads, n3 cannot")
    world.run_for(TIMEOUT)
    assert log_of(world, "n3") == [b"X"]


def test_s13_leaders_own_copy_counts_only_when_durable() -> None:
    lone = Lone(term=1)
    lone.become_leader()
    lone.propose(b"x")
    lone.acknowledge("n2", 2)
    assert lone.raft.commit_index == 1  # n2 and an undurable n1 are no majority.
    lone.durable()
    assert (lone.raft.commit_index, lone.applied_to) == (2, 2)


def test_s13_heartbeat_answer_claims_only_what_is_durable() -> None:
    lone = Lone(term=1)
    lone.append(1, (0, 0), entries(1, 1, 1))
    assert lone.append(1, (3, 1)) == [AppendEntriesResponse(1, True, 0, 0, 0, 7, SECOND)]
    lone.durable()
    assert lone.append(1, (3, 1)) == [AppendEntriesResponse(1, True, 3, 0, 0, 7, SECOND)]


def test_s13_committed_by_the_others_is_applied_only_when_durable_here() -> None:
    lone = Lone(term=1)
    lone.become_leader()
    lone.propose(b"x")
    lone.acknowledge("n2", 2)
    lone.acknowledge("n3", 2)
    assert (lone.raft.commit_index, lone.applied_to) == (2, 1)
    lone.durable()
    assert lone.applied_to == 2


# -- S16 ------------------------------------------------------------------------------------------


def test_s16_follower_commits_no_leftover_entries() -> None:
    lone = Lone(term=2, log=entries(*[1] * 19, *[2] * 6), commit_index=20)  # 21..25:2 are leftovers.
    lone.append(3, (20, 2), commit=26)
    lone.durable()
    assert (lone.raft.commit_index, lone.applied_to) == (20, 20)


def test_s16_commit_stops_at_what_the_message_proved() -> None:
    lone = Lone(term=2, log=entries(1, 1, 2, 2))
    lone.append(3, (1, 1), entries(1, start=2), commit=4)
    assert lone.raft.commit_index == 2
    lone.append(3, (4, 2), commit=3)
    assert lone.raft.commit_index == 3


# -- S17 ------------------------------------------------------------------------------------------


def test_s17_late_append_of_a_prefix_shortens_nothing() -> None:
    lone = Lone(term=1, log=entries(1, 1))
    assert lone.append(1, (0, 0), entries(1)) == [AppendEntriesResponse(1, True, 1, 0, 0, 7, SECOND)]
    assert (lone.raft.log.last_index, lone.writes) == (2, [])
    assert lone.append(1, (0, 0), entries(1, 1)) == [AppendEntriesResponse(1, True, 2, 0, 0, 7, SECOND)]
    assert lone.writes == []


def test_s17_conflict_removes_the_entry_and_everything_after_it() -> None:
    lone = Lone(term=2, log=entries(1, 1, 1, 2))
    lone.append(3, (1, 1), [entry(2, 3)])
    (write,) = lone.writes
    assert (write.truncate_from, write.entries, write.hard_state) == (2, [entry(2, 3)], HardState(3, ""))
    assert lone.raft.log.slice(1, 9) == [entry(1, 1), entry(2, 3)]
    assert lone.durable() == [AppendEntriesResponse(3, True, 2, 0, 0, 7, SECOND)]


def test_s17_known_entries_before_a_conflict_are_not_written_again() -> None:
    lone = Lone(term=2, log=entries(1, 1, 2, 2))
    lone.append(3, (0, 0), [*entries(1, 1), entry(3, 3)])
    (write,) = lone.writes
    assert (write.truncate_from, write.entries) == (3, [entry(3, 3)])


def test_s17_committed_entries_cannot_be_truncated() -> None:
    lone = Lone(term=2, log=entries(1, 1, 2), commit_index=2)
    with pytest.raises(AssertionError, match="committed"):
        lone.raft.truncate_from(2)
    # What a leader cannot send is not taken for a reason to truncate either.
    with pytest.raises(CommittedConflict, match="entry 1 of term 1 is committed here, and n2"):
        lone.append(3, (0, 0), [entry(1, 3), entry(2, 3)])
    assert lone.raft.log.slice(1, 2) == entries(1, 1)


# -- S18 ------------------------------------------------------------------------------------------


def test_s18_completion_of_an_overwritten_write_says_nothing_about_its_replacement() -> None:
    lone = Lone(term=1)
    lone.append(1, (0, 0), entries(1, 1, 1))
    lone.append(2, (0, 0), entries(2, 2, 2), source="n3")
    first = lone.durable(1)
    assert lone.raft.durable_index == 0
    # The word of term 1 may still go out: its entries were on disk when it was given.
    assert first == [AppendEntriesResponse(1, True, 3, 0, 0, 7, SECOND)]
    assert lone.append(2, (3, 2), source="n3") == []  # Term 2 is not saved yet.
    assert lone.durable(1) == [
        AppendEntriesResponse(2, True, 3, 0, 0, 7, SECOND),
        AppendEntriesResponse(2, True, 0, 0, 0, 7, SECOND),
    ]
    assert lone.raft.durable_index == 3
    assert lone.writes[1].truncate_from == 1


def test_s18_partial_overwrite() -> None:
    lone = Lone(term=1)
    lone.append(1, (0, 0), entries(1, 1, 1))
    lone.append(2, (1, 1), entries(2, start=2), source="n3")
    lone.durable(1)
    assert lone.raft.durable_index == 1
    lone.durable(1)
    assert lone.raft.durable_index == 2


# -- S22 ------------------------------------------------------------------------------------------


def test_s22_entry_of_an_earlier_term_is_not_committed_by_counting() -> None:
    """Figure 3.7: S1 leads term 4 with 2:2 on S1, S2 and now S3."""
    lone = Lone(voters=FIVE, term=3, log=entries(1, 2), commit_index=1)
    lone.become_leader()
    assert (lone.raft.current_term, lone.raft.term_start_index) == (4, 3)
    lone.acknowledge("n2", 2)
    lone.acknowledge("n3", 2)
    assert lone.raft.commit_index == 1
    lone.acknowledge("n2", 3)
    assert lone.raft.commit_index == 1
    lone.acknowledge("n3", 3)
    assert lone.raft.commit_index == 3


# -- S30 ------------------------------------------------------------------------------------------


def test_s30_leader_without_a_quorum_gives_up_and_falls_silent() -> None:
    world = cluster("n1", "n2", "n3", "n4", "n5")
    world.elect("n1")
    clock = world.nodes["n1"].clock_offset
    assert world.raft("n1").holds_lease(world.now + clock)
    world.partition(("n1", "n2"), ("n3", "n4", "n5"))
    cut_at = world.now
    # The lease is measured from when the answered message was sent, so it ends within a timeout.
    assert not world.raft("n1").holds_lease(cut_at + TIMEOUT + clock)
    world.run_for(TIMEOUT + QUICK.heartbeat_interval)
    assert world.raft("n1").role is Role.FOLLOWER
    said: list[Message] = []
    world.on_message = lambda source, to, message: said.append(message) if source == "n1" else None
    world.run_until(lambda: world.leader() in ("n3", "n4", "n5"), within=10 * TIMEOUT, what="the majority elects")
    leader = world.leader()
    assert leader is not None
    write_to(world, leader, b"x=2")
    assert not any(isinstance(message, AppendEntries) for message in said)
    assert log_of(world, "n1") == []


def test_s30_answers_that_do_not_come_back_cost_the_leader_its_authority() -> None:
    """One way only: the followers hear the leader, it does not hear them."""
    world = cluster()
    world.elect("n1")
    world.cut("n2", "n1")
    world.cut("n3", "n1")
    world.run_until(lambda: world.leader() in ("n2", "n3"), within=6 * TIMEOUT, what="another leads")
    assert world.raft("n1").role is Role.FOLLOWER


def test_s30_no_lease_before_a_quorum_has_followed_in_this_term() -> None:
    lone = Lone(term=1)
    lone.become_leader()
    assert not lone.raft.holds_lease(lone.now)  # Votes only: nobody refuses a rival for them.
    lone.acknowledge("n2", 1)
    assert lone.raft.holds_lease(lone.now)
    assert lone.raft.holds_lease(lone.now + lone.raft.options.election_timeout - 1)
    assert not lone.raft.holds_lease(lone.now + lone.raft.options.election_timeout)


def test_s30_lease_counts_from_the_question_not_from_the_answer() -> None:
    lone = Lone(term=1)
    lone.become_leader()
    lone.now += SECOND // 4
    asked = lone.now
    lone.now += SECOND // 2
    lone.acknowledge("n2", 1, sent_at=asked)
    assert lone.raft.holds_lease(asked + SECOND - 1)
    assert not lone.raft.holds_lease(asked + SECOND)
    lone.acknowledge("n3", 1, sent_at=lone.now + 5 * SECOND)  # An echo of what was never sent.
    assert not lone.raft.holds_lease(asked + SECOND)


def test_s30_follower_refuses_votes_as_long_as_its_leader_may_count_on_it() -> None:
    lone = Lone(term=1, log=entries(1))
    lone.append(1, (1, 1), source="n2")
    lone.now += SECOND - 1
    assert lone.receive("n3", RequestVote(2, 9, 1, False)) == [RequestVoteResponse(1, False, "leader-alive")]
    # Learning of a later term from an old answer changes who leads, not who counts on us.
    lone.receive("n3", RequestVoteResponse(3, False, "stale-term"))
    lone.durable()
    assert (lone.raft.current_term, lone.raft.leader) == (3, "")
    assert lone.receive("n3", RequestVote(4, 9, 3, False)) == [RequestVoteResponse(3, False, "leader-alive")]
    lone.now += 1
    lone.receive("n3", RequestVote(4, 9, 3, False))
    assert lone.durable() == [RequestVoteResponse(4, True, "")]


# -- S31 ------------------------------------------------------------------------------------------


def test_s31_write_that_looked_lost_is_committed_by_the_next_leader() -> None:
    world = cluster()
    world.elect("n1")
    world.run_for(TIMEOUT)
    world.cut("n1", "n3")
    world.cut("n2", "n1")  # n1's entry arrives, the answer does not.
    outcome = world.propose("n1", b"X")
    assert isinstance(outcome, Accepted)
    world.run_for(10 * MILLISECOND)
    world.isolate("n1")
    world.run_until(lambda: world.raft("n1").role is not Role.LEADER, within=3 * TIMEOUT, what="n1 steps down")
    assert world.raft("n1").commit_index < outcome.first_index  # Unknown to n1, not refused.
    leader = world.elect()
    assert leader == "n2"
    assert log_of(world, "n2") == [b"X"]
    world.heal()
    world.run_for(5 * TIMEOUT)
    assert [log_of(world, name) for name in world.nodes] == [[b"X"]] * 3  # Once, everywhere.
    assert world.nodes["n1"].applied_to == world.nodes["n2"].applied_to > outcome.first_index


# -- S46 ------------------------------------------------------------------------------------------


def test_s46_wall_clock_only_stamps_entries_and_never_goes_back() -> None:
    lone = Lone(term=1)
    lone.become_leader()
    hour = 3600 * SECOND
    for time_ns in (10 * hour, 9 * hour, 11 * hour):
        lone.step(Propose(lone.now, time_ns, [(EntryKind.EMBEDDED, b"x")]))
    deadline = lone.raft.deadline()
    assert deadline - lone.now <= lone.raft.options.heartbeat_interval
    assert [item.time_ns for item in lone.raft.log.slice(2, 4)] == [10 * hour, 10 * hour, 11 * hour]
    # A leader with an earlier clock goes on from the last entry's time.
    other = Lone(term=1, log=[Entry(1, 1, EntryKind.EMBEDDED, 10 * hour, b"x")])
    other.become_leader()
    other.propose(b"y")
    assert [item.time_ns for item in other.raft.log.slice(2, 3)] == [10 * hour, 10 * hour]


def test_s46_no_lease_and_no_authority_after_a_suspend() -> None:
    lone = Lone(term=1)
    lone.become_leader()
    lone.acknowledge("n2", 1)
    lone.now += 3 * SECOND  # SIGSTOP, then the answers that lay in the socket, then the tick.
    lone.acknowledge("n2", 1, sent_at=lone.now - 3 * SECOND)
    assert not lone.raft.holds_lease(lone.now)
    lone.tick()
    assert lone.raft.role is Role.FOLLOWER
    assert not any(isinstance(message, AppendEntries) for message in lone.take())


def test_s46_an_event_stamped_earlier_turns_no_clock_back() -> None:
    lone = Lone(term=1)
    now = lone.now
    lone.now -= SECOND
    lone.append(1, (0, 0))
    assert (lone.raft.now, lone.raft.last_leader_contact) == (now, now)


def test_s46_timeouts_of_150_ms_work_as_written() -> None:
    world = cluster()
    world.elect("n1")
    world.run_for(100 * TIMEOUT)
    assert (world.leader(), world.raft("n1").current_term) == ("n1", 1)
    world.crash("n1")
    world.run_until(lambda: world.leader() is not None, within=5 * TIMEOUT, what="the others elect")
