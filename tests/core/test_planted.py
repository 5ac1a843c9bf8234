"""Faults that others have made, planted one at a time: the tests must see every one of them.

What finds a fault is named beside it: a scenario, or the random world within ``ROUNDS`` runs of each
profile that has neither snapshots nor changes (``test_planted_changes`` has the others). The world then
goes without the invariants of the single core, so that each of these faults is seen by its consequences:
two leaders, lost entries, words that no disk backs. A fault that the world no longer finds means that it
has become too tame.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from fencepost.jepsen.cores.chaos import run
from fencepost.jepsen.cores.profiles import PROFILES
from fencepost.raft.core import answers, append_entries, commitment, election, leading, quorum, replication
from fencepost.raft.core.log import RaftLog
from fencepost.raft.core.options import SECOND
from fencepost.raft.core.progress import Progress
from fencepost.raft.core.state import RaftState
from fencepost.raft.core.step import Raft

from . import test_append_entries, test_authority, test_election, test_log, test_replication, test_scenarios
from .planting import planted

ROUNDS = 3
PROFILES_LOG = 9
"""So many of the profiles, the first ones, are about elections and logs alone."""

WORLD = None
"""Found by the random world; everything else is found by the test named."""


class Fault(NamedTuple):
    name: str
    function: Callable[..., Any]
    line: str
    fault: str
    found_by: Callable[[], None] | None


FAULTS = (
    # -- elections
    Fault(
        "pre-vote answers matched by term (S01)",
        election.handle_pre_vote_response,
        "message.round != state.pre_vote_round",
        "message.term < state.current_term",
        test_scenarios.test_s01_pre_vote_grant_of_a_node_left_behind_counts,
    ),
    Fault(
        "a granted pre-vote raises the term (S01, S02)",
        election.handle_pre_vote,
        "    state.send(source, PreVoteResponse",
        "    state.become_follower(message.term, '', '') or state.send(source, PreVoteResponse",
        test_scenarios.test_s01_granting_a_pre_vote_leaves_the_term_alone,
    ),
    Fault(
        "votes counted by answers, not by voters (S06)",
        election.handle_request_vote_response,
        "state.votes.setdefault(source, message.granted)",
        "state.votes.setdefault(source if source not in state.votes else 'n5', message.granted)",
        test_scenarios.test_s06_votes_are_counted_by_voter_term_and_phase,
    ),
    Fault(
        "the term of a vote is not compared (S06)",
        election.handle_request_vote_response,
        "or message.term != state.current_term",
        "",
        test_scenarios.test_s06_votes_are_counted_by_voter_term_and_phase,
    ),
    Fault(
        "a majority is half of the voters",
        quorum.majority_vote,
        "granted >= quorum",
        "granted >= len(voters) // 2",
        WORLD,
    ),
    Fault(
        "vote not saved before the reply (S05)",
        election.handle_request_vote,
        "            state.save_hard_state()\n",
        "",
        WORLD,
    ),
    Fault("a node votes twice in a term", election.handle_request_vote, "state.voted_for not in", "'' not in", WORLD),
    Fault(
        "nothing waits for term and vote (S05)",
        RaftState.sendable_after,
        "after = max(after, self.hard_state_sequence)",
        "pass",
        WORLD,
    ),
    Fault(
        "own vote counts before it is durable (S05)",
        election.campaign,
        "state.votes = {}",
        "state.votes = {state.node_id: True}",
        test_election.test_own_vote_counts_only_once_it_is_durable,
    ),
    Fault(
        "the log of a candidate is not compared",
        election._vote_refusal,
        "if not state.log.is_up_to_date(last_log_index, last_log_term):",
        "if False:",
        WORLD,
    ),
    Fault(
        "logs are compared by length before term",
        RaftLog.is_up_to_date,
        "(last_log_term, last_log_index) >= (self.last_term, self.last_index)",
        "(last_log_index, last_log_term) >= (self.last_index, self.last_term)",
        partial(test_log.test_up_to_date_compares_terms_before_indexes, (9, 1), False),
    ),
    Fault(
        "stickiness off (S02, S30)",
        RaftState.has_live_leader,
        "return self.now - self.last_leader_contact < self.options.election_timeout",
        "return False",
        test_scenarios.test_s02_node_with_a_high_term_and_no_way_to_hear_costs_the_leader_nothing,
    ),
    Fault(
        "stickiness forgets with the leader's name (S30)",
        RaftState.has_live_leader,
        "return self.now",
        "return bool(self.leader) and self.now",
        test_scenarios.test_s30_follower_refuses_votes_as_long_as_its_leader_may_count_on_it,
    ),
    Fault(
        "the vote is cleared in the same term",
        RaftState.become_follower,
        "if term > self.current_term:",
        "if term >= self.current_term:",
        WORLD,
    ),
    Fault(
        "terms begin at the saved one whatever the log says (S03)",
        RaftState.__init__,
        "max(hard_state.term, self.log.last_term)",
        "hard_state.term",
        test_scenarios.test_s03_term_is_never_below_the_logs,
    ),
    # -- the follower
    Fault(
        "every append truncates (S17)",
        append_entries._count_known,
        "return known",
        "return 0",
        WORLD,
    ),
    Fault(
        "a conflict is overwritten but its tail stays (S17)",
        append_entries.handle_append_entries,
        "if first <= log.last_index:",
        "if False:",
        WORLD,
    ),
    Fault(
        "the previous entry is not compared",
        append_entries.handle_append_entries,
        "and not log.matches(message.prev_log_index, message.prev_log_term)",
        "and message.prev_log_index > log.last_index",
        WORLD,
    ),
    Fault(
        "a follower's commit index is not capped (S16)",
        append_entries.handle_append_entries,
        "min(message.leader_commit, last_new_index)",
        "min(message.leader_commit, log.last_index)",
        WORLD,
    ),
    Fault(
        "an append is acknowledged before its write (S05, S13)",
        append_entries.handle_append_entries,
        "after = state.write_sequence",
        "pass",
        WORLD,
    ),
    Fault(
        "a heartbeat's answer claims what is not durable (S13)",
        append_entries.handle_append_entries,
        "min(last_new_index, state.durable_index)",
        "last_new_index",
        WORLD,
    ),
    Fault(
        "the completion of an overwritten write counts (S18)",
        RaftState.truncate_from,
        "write.last_index = min(write.last_index, index - 1)",
        "pass",
        WORLD,
    ),
    Fault(
        "durable is not taken back by a truncation (S18)",
        RaftState.truncate_from,
        "    self.durable_index = min(self.durable_index, index - 1)\n",
        "",
        WORLD,
    ),
    Fault(
        "an old leader is listened to",
        append_entries.handle_append_entries,
        "if message.term < state.current_term:",
        "if message.term < 0:",
        test_append_entries.test_earlier_term_is_refused_and_renews_nobody,
    ),
    # -- commitment
    Fault(
        "old terms are committed by counting (S22)",
        commitment.advance_commit_index,
        " or state.log.term_at(index) != state.current_term",
        "",
        test_scenarios.test_s22_entry_of_an_earlier_term_is_not_committed_by_counting,
    ),
    Fault(
        "the leader counts itself before its disk (S13)",
        commitment.advance_commit_index,
        "state.durable_index",
        "state.log.last_index",
        test_scenarios.test_s13_leaders_own_copy_counts_only_when_durable,
    ),
    Fault(
        "applied before durable",
        commitment.report_apply,
        "min(state.commit_index, state.durable_index)",
        "state.commit_index",
        WORLD,
    ),
    Fault(
        "one copy fewer is enough",
        quorum.majority_value,
        "reached[len(voters) // 2]",
        "reached[len(voters) // 2 - 1]",
        WORLD,
    ),
    # -- the leader
    Fault(
        "refusals do not move the probe back",
        Progress.refused,
        "self.next_index = max(min(rejected, may_match + 1), self.match_index + 1)",
        "pass",
        WORLD,
    ),
    Fault(
        "a probe that is lost is never repeated",
        leading.leader_tick,
        "                progress.probe_sent = True\n                send_heartbeat(state, peer, progress)\n",
        "                progress.probe_sent or send_heartbeat(state, peer, progress)\n"
        "                progress.probe_sent = True\n",
        WORLD,
    ),
    Fault(
        "a full window is never freed",
        Progress.acknowledged,
        "self.in_flight_bytes -= in_flight.popleft()[1]",
        "break",
        WORLD,
    ),
    Fault(
        "a broken link starts every probe again at the beginning",
        Raft._unreachable,
        "if progress.state is ProgressState.REPLICATE:",
        "if True:",
        test_replication.test_broken_link_while_probing_does_not_go_back_to_the_beginning,
    ),
    Fault(
        "no check of the quorum (S30)",
        RaftState.lost_quorum,
        "self.options.check_quorum",
        "False",
        test_scenarios.test_s30_answers_that_do_not_come_back_cost_the_leader_its_authority,
    ),
    Fault(
        "the lease counts from the answer (S30)",
        answers._answering,
        "progress.contact_at = sent_at",
        "progress.contact_at = state.now",
        test_scenarios.test_s30_lease_counts_from_the_question_not_from_the_answer,
    ),
    Fault(
        "a lease by the leader's own timeout alone (S49)",
        RaftState.lease_bound,
        "if progress.promise",
        "if False",
        partial(
            test_authority.test_s49_with_different_election_timeouts_the_shortest_one_ends_the_lease,
            3 * SECOND,
            SECOND,
        ),
    ),
    Fault(
        "the lease begins with the election (S30)",
        Raft.holds_lease,
        "and self.commit_index >= self.term_start_index",
        "",
        test_scenarios.test_s30_no_lease_before_a_quorum_has_followed_in_this_term,
    ),
    Fault(
        "a leader ignores its own disk (S07)",
        leading.leader_tick,
        "if state.disk_is_stalled():",
        "if False:",
        test_scenarios.test_s07_leader_with_a_hung_disk_is_replaced,
    ),
    Fault(
        "a failed disk is forgotten (S12)",
        Raft._storage_failed,
        "self.failed = True",
        "pass",
        test_scenarios.test_s12_first_storage_failure_is_final,
    ),
    Fault(
        "stamps follow the wall clock back (S46)",
        replication.handle_propose,
        "max(event.time_ns, state.log.last_time_ns)",
        "event.time_ns",
        test_scenarios.test_s46_wall_clock_only_stamps_entries_and_never_goes_back,
    ),
)


def find_in_the_world() -> None:
    for round_ in range(ROUNDS):
        for place in range(PROFILES_LOG):
            run(place + round_ * len(PROFILES), check_nodes=False)


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_planted_fault_is_found(fault: Fault) -> None:
    search = fault.found_by or find_in_the_world
    with (
        planted(fault.function, fault.line, fault.fault),
        pytest.raises((AssertionError, IndexError)),
    ):
        search()


def test_without_a_fault_nothing_is_found() -> None:
    """The other half: every search above passes on the core as it is."""
    for search in {fault.found_by for fault in FAULTS if fault.found_by is not None}:
        search()


def test_the_first_profiles_are_those_without_snapshots_and_changes() -> None:
    quiet = [profile for profile in PROFILES if not (profile.asks or profile.reads or profile.options.snapshot_entries)]
    assert tuple(quiet) == PROFILES[:PROFILES_LOG]


def test_planting_is_undone_and_refuses_a_line_that_is_not_there() -> None:
    before = quorum.majority_value.__code__
    with planted(quorum.majority_value, "len(voters) // 2", "len(voters) // 3"):
        assert quorum.majority_value.__code__ is not before
    assert quorum.majority_value.__code__ is before
    with pytest.raises(AssertionError, match="0 times"), planted(quorum.majority_value, "no such line", ""):
        pass
