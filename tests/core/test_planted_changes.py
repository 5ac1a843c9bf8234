"""Faults planted in what changes a cluster: members, transfers, reads, snapshots, authority.

As in ``test_planted``; the random world is searched by profile, ``SEEDS`` seeds of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from fencepost.jepsen.cores.chaos import run
from fencepost.jepsen.cores.profiles import PROFILES
from fencepost.raft.core import (
    answers,
    configuration,
    election,
    install_snapshot,
    leading,
    membership,
    quorum,
    read_index,
    replication,
    snapshot,
    transfer,
)
from fencepost.raft.core.log import RaftLog
from fencepost.raft.core.progress import Progress
from fencepost.raft.core.sizes import LogSizes
from fencepost.raft.core.state import RaftState
from fencepost.raft.core.step import Raft

from . import (
    test_authority,
    test_configuration,
    test_flow_control,
    test_install_snapshot,
    test_membership,
    test_read_index,
    test_scenarios_members,
    test_send_snapshot,
    test_snapshots,
    test_transfer,
)
from .planting import planted
from .test_planted import Fault

SEEDS = 10


def find_in(profile: str) -> None:
    place = [known.name for known in PROFILES].index(profile)
    for round_ in range(SEEDS):
        run(place + round_ * len(PROFILES), check_nodes=False)


def world(profile: str) -> Callable[[], None]:
    return partial(find_in, profile)


MEMBERS, FREEZES = world("members"), world("members that freeze")
TRANSFERS, SNAPSHOTS = world("transfers"), world("snapshots")
READS, LEASES = world("reads without check-quorum"), world("leases")
NEW_MEMBERS = world("snapshots for new members")

FAULTS = (
    # -- configurations and their quorums
    Fault(
        "a joint election is won in the new half alone",
        quorum.vote_result,
        "if other is not VoteResult.WON:",
        "if False:",
        NEW_MEMBERS,
    ),
    Fault(
        "what is joint is committed by the new half alone (S24)",
        quorum.quorum_value,
        "value = min(value, majority_value(configuration.outgoing, values))",
        "pass",
        test_scenarios_members.test_s24_joint_entry_is_committed_by_both_majorities_only,
    ),
    Fault(
        "two voters change without a joint configuration",
        configuration.change_simply,
        "> 1:",
        "> 2:",
        test_configuration.test_two_voters_at_once_are_refused_without_a_joint_configuration,
    ),
    Fault(
        "who was to become a learner is forgotten",
        configuration.leave_joint,
        "{*configuration.learners, *configuration.learners_next}",
        "configuration.learners",
        test_configuration.test_a_voter_that_becomes_a_learner_votes_until_the_joint_configuration_is_left,
    ),
    Fault(
        "ids are used again",
        membership._refuse_retired,
        "if node_id in before.retired and",
        "if False and",
        MEMBERS,
    ),
    # -- when members change
    Fault(
        "members change before the term has begun (S23)",
        membership._why_not_now,
        "if state.commit_index < state.term_start_index:",
        "if False:",
        FREEZES,
    ),
    Fault(
        "two changes at once (S23)",
        membership._why_not_now,
        "if state.configuration_index > state.commit_index:",
        "if False:",
        MEMBERS,
    ),
    Fault(
        "a configuration stays in force though it is overwritten (S25)",
        RaftState.truncate_from,
        "if self._configurations[-1][0] >= index:",
        "if False:",
        test_scenarios_members.test_s25_restart_keeps_a_configuration_that_is_not_committed_and_loses_it_when_it_is_overwritten,
    ),
    Fault(
        "a restart forgets what is not committed (S25)",
        RaftState.__init__,
        "self._note_configurations(entries)",
        "pass",
        test_scenarios_members.test_s25_cluster_goes_on_after_a_restart_between_appending_and_committing,
    ),
    Fault(
        "nobody leaves a joint configuration (S24)",
        membership.configuration_committed,
        "configuration.auto_leave and",
        "False and",
        FREEZES,
    ),
    Fault(
        "a joint configuration is left before it is committed (S24)",
        membership.configuration_committed,
        "state.configuration_index > state.commit_index or",
        "",
        MEMBERS,
    ),
    Fault(
        "a removed leader leads on",
        membership.configuration_committed,
        "and not state.is_voter:",
        "and False:",
        test_membership.test_a_leader_that_is_removed_leads_until_that_is_committed_and_counts_itself_no_more,
    ),
    Fault(
        "a voter that was never heard of (S28)",
        membership._not_caught_up,
        "if not progress.heard:",
        "if False:",
        test_scenarios_members.test_s28_voter_that_never_starts_costs_no_quorum,
    ),
    Fault(
        "a voter that lacks a snapshot (S28)",
        membership._not_caught_up,
        "if progress.match_index < state.log.previous_index:",
        "if False:",
        test_membership.test_s28_a_learner_that_needs_a_snapshot_has_not_caught_up_however_few_entries_it_lacks,
    ),
    Fault(
        "a voter that lags (S28)",
        membership._not_caught_up,
        "if behind > state.options.promotion_lag_max:",
        "if False:",
        test_scenarios_members.test_s28_learner_that_lags_is_promoted_once_it_has_caught_up,
    ),
    Fault(
        "the voters that answer go (S28)",
        membership._not_caught_up,
        "if state.now - quorum_value(after, contacts) >= state.options.election_timeout:",
        "if False:",
        test_scenarios_members.test_s28_voter_that_answers_does_not_go_while_the_rest_is_silent,
    ),
    Fault(
        "a removed node with the longest log does not campaign",
        election.start_election,
        "state.may_be_needed",
        "state.is_voter",
        partial(
            test_scenarios_members.test_a_removed_leader_with_the_longest_log_is_elected_once_more,
            configuration.ChangeKind.REMOVE,
        ),
    ),
    Fault(
        "a node campaigns though a snapshot says that it is no voter (S27)",
        RaftState.reset_log,
        "self._configurations = [(snapshot.configuration_index, snapshot.configuration)]",
        "pass",
        test_install_snapshot.test_s27_snapshot_replaces_every_configuration_that_it_covers,
    ),
    Fault(
        "nobody tells a removed node (S02)",
        election.handle_pre_vote,
        'reason = "removed"',
        'reason = "log-behind"',
        partial(
            test_scenarios_members.test_s02_node_that_was_demoted_or_removed_while_away_comes_back_quietly,
            configuration.ChangeKind.REMOVE,
        ),
    ),
    Fault(
        "a removal is told before it is committed",
        election.handle_pre_vote,
        "configuration = state.committed_configuration()",
        "configuration = state.configuration",
        test_membership.test_a_removal_that_is_not_committed_is_no_reason_to_tell,
    ),
    Fault(
        "only those vote who know that they may (S26)",
        election.handle_request_vote,
        "    if not reason and state.voted_for not in",
        "    reason = reason or ('' if state.is_voter else 'no-voter')\n    if not reason and state.voted_for not in",
        test_scenarios_members.test_s26_voter_that_does_not_know_that_it_is_one_votes,
    ),
    Fault(
        "a removed member is forgotten before it has heard of it",
        membership.let_go,
        "if told or away:",
        "if True:",
        test_membership.test_a_removed_member_hears_of_it_and_is_forgotten_then,
    ),
    Fault(
        "a leader that is removed leaves the others to their timeouts",
        membership.configuration_committed,
        "hand_on(state)",
        "pass",
        test_membership.test_after_a_leader_is_removed_nobody_waits_for_a_timeout,
    ),
    Fault(
        "a leader that is removed crosses a transfer",
        transfer.hand_on,
        "if state.transfer is None else state.transfer.target",
        "",
        test_membership.test_a_removed_leader_tells_nobody_but_the_target_of_a_transfer_to_campaign,
    ),
    # -- transfers
    Fault(
        "proposals are taken after the target was told (S08)",
        replication._refusal,
        "(state.transfer.told_at or not event.internal)",
        "False",
        test_transfer.test_a_target_that_lags_catches_up_first_and_nothing_new_is_admitted_meanwhile,
    ),
    Fault(
        "the target is told before it has everything (S08)",
        transfer.drive_transfer,
        "match_index == state.log.last_index and",
        "",
        test_transfer.test_a_target_that_lags_catches_up_first_and_nothing_new_is_admitted_meanwhile,
    ),
    Fault(
        "the target asks first (S08)",
        election.handle_timeout_now,
        "campaign(state, transfer=True)",
        "start_election(state)",
        partial(test_transfer.test_s08_transfer_under_steady_writes, 0),
    ),
    Fault(
        "the target does not say why it asks (S08)",
        election.handle_timeout_now,
        "campaign(state, transfer=True)",
        "campaign(state, transfer=False)",
        partial(test_transfer.test_s08_transfer_under_steady_writes, 0),
    ),
    Fault(
        "a transfer is never given up",
        transfer.drive_transfer,
        "if state.now >= transfer.deadline:",
        "if False:",
        TRANSFERS,
    ),
    Fault(
        "a transfer outlives its term",
        RaftState.become_follower,
        "    self.transfer = None\n",
        "",
        test_transfer.test_a_transfer_dies_with_the_term,
    ),
    # -- reads
    Fault(
        "a read is confirmed by what was asked before it (S30)",
        read_index.confirm_reads,
        "while pending and pending[0].begun_at <= contact:",
        "while pending and contact:",
        READS,
    ),
    Fault(
        "a read does not wait for the term to begin (S29)",
        read_index._take,
        "if state.commit_index >= state.term_start_index else 0",
        "",
        test_read_index.test_s29_read_waits_for_the_no_op_of_the_new_leaders_term,
    ),
    Fault(
        "learners confirm reads",
        RaftState.note_contact,
        "quorum_value(self.configuration, contacts)",
        "sorted(contacts.values())[-2:][0]",
        test_read_index.test_a_quorum_is_one_of_voters_and_of_both_halves,
    ),
    Fault(
        "whoever waits for a read is forgotten (S44)",
        read_index.drop_reads,
        "if state.role is not Role.LEADER:",
        "if False:",
        READS,
    ),
    Fault(
        "a round that was lost is not made up for",
        read_index.handle_read_index_response,
        "state.forwarded_reads.pop(message.batch, None)",
        "None",
        READS,
    ),
    Fault(
        "a lease before the term has begun (S29)",
        read_index.lease_allows_reads,
        "and state.commit_index >= state.term_start_index",
        "",
        LEASES,
    ),
    Fault(
        "a lease twice as long",
        read_index.lease_allows_reads,
        "< state.options.at_the_fastest(state.lease_bound())",
        "< 2 * state.options.at_the_fastest(state.lease_bound())",
        LEASES,
    ),
    Fault(
        "a lease in spite of a transfer",
        transfer.drive_transfer,
        "state.lease_forfeited = True",
        "pass",
        test_read_index.test_no_lease_once_somebody_was_told_to_campaign,
    ),
    Fault(
        "a start forgets the promise that a lease rests on",
        RaftState.__init__,
        "now if options.lease_reads else -(1 << 62)",
        "-(1 << 62)",
        test_read_index.test_who_was_started_keeps_its_vote_for_a_timeout_where_leases_are_read,
    ),
    Fault(
        "whoever is asked to campaign breaks its promise",
        Raft._handle,
        "promised = self.options.lease_reads and self.has_live_leader()",
        "promised = False",
        test_read_index.test_a_lease_is_not_broken_by_a_campaign_that_somebody_asks_for,
    ),
    # -- snapshots
    Fault(
        "a snapshot keeps a log that conflicts with it (S15)",
        install_snapshot.snapshot_received,
        "elif state.log.matches(snapshot.last_index, snapshot.last_term):",
        "elif snapshot.last_index <= state.log.last_index:",
        test_install_snapshot.test_s15_conflicting_entry_at_the_snapshots_index_goes_with_all_that_follows,
    ),
    Fault(
        "a snapshot drops a log that agrees with it (S15)",
        install_snapshot.snapshot_received,
        "elif state.log.matches(snapshot.last_index, snapshot.last_term):",
        "elif False:",
        test_install_snapshot.test_s15_log_that_has_the_snapshots_last_entry_keeps_what_follows,
    ),
    Fault(
        "writes from before a snapshot count for what follows it (S18)",
        RaftState.reset_log,
        "write.last_index = 0",
        "pass",
        test_install_snapshot.test_s15_entries_on_their_way_to_the_disk_are_not_taken_for_what_replaced_them,
    ),
    Fault(
        "the log is not told of a snapshot after a crash (S15)",
        RaftState.__init__,
        "superseded = snapshot is not None and not self.log.matches(snapshot.last_index, snapshot.last_term)",
        "superseded = False",
        partial(
            test_snapshots.test_s15_snapshot_that_the_log_was_not_told_of_replaces_it_at_the_start,
            (1,) * 4,
        ),
    ),
    Fault(
        "a label of more than was applied (S19)",
        snapshot.want_snapshot,
        "label_at(state, applied)",
        "label_at(state, state.log.last_index)",
        SNAPSHOTS,
    ),
    Fault(
        "a label with members of later (S19)",
        snapshot.label_at,
        "state.configuration_at(index)",
        "state._configurations[-1]",
        NEW_MEMBERS,
    ),
    Fault(
        "a label with no members",
        snapshot.want_snapshot,
        "known = bool(state.configuration_at(applied)[1].voters)",
        "known = True",
        test_snapshots.test_a_node_that_joins_labels_nothing_before_it_knows_the_members,
    ),
    Fault(
        "the log is cut off under a follower that gets a snapshot",
        snapshot.compact,
        "index = min(index, progress.snapshot.last_index)",
        "pass",
        test_snapshots.test_a_leader_keeps_what_a_follower_will_need_after_its_snapshot,
    ),
    Fault(
        "new snapshots take the one that is being sent away (S15)",
        snapshot.want_snapshot,
        "and not _is_sending_an_older(state)",
        "",
        test_install_snapshot.test_s15_follower_gets_a_snapshot_though_new_ones_are_taken_faster_than_one_can_be_sent,
    ),
    Fault(
        "a follower that does not get on holds up snapshots (S11)",
        Progress.snapshot_stored,
        "if offset > self.snapshot_furthest:",
        "if True:",
        test_send_snapshot.test_a_follower_that_does_not_get_on_holds_up_no_snapshot,
    ),
    Fault(
        "a snapshot is said to be in place before it is",
        install_snapshot._answer_installed,
        "0 if state.durable_index >= snapshot.last_index else state.write_sequence",
        "0",
        test_install_snapshot.test_what_is_committed_and_not_durable_here_is_in_place_once_it_is,
    ),
    Fault(
        "a part is stored wherever it belongs",
        install_snapshot.handle_install_snapshot,
        "if message.offset != incoming.offset:",
        "if False:",
        test_install_snapshot.test_a_part_that_is_no_longer_or_not_yet_wanted_is_answered_with_the_place_that_is,
    ),
    Fault(
        "a part that is lost is lost for good",
        install_snapshot.send_chunk,
        "and state.now - progress.chunk_sent_at < state.options.chunk_timeout",
        "",
        SNAPSHOTS,
    ),
    Fault(
        "a snapshot that is damaged is waited for",
        install_snapshot.snapshot_unusable,
        "state.incoming = None",
        "pass",
        test_install_snapshot.test_a_damaged_snapshot_begins_anew,
    ),
    Fault(
        "answers that come twice send parts twice",
        install_snapshot.chunk_answered,
        "or not 0 < first_at <= message.sent_at",
        "",
        test_send_snapshot.test_one_part_at_a_time_and_only_its_own_answer_brings_the_next,
    ),
    Fault(
        "a part that takes longer than its timeout is never answered",
        install_snapshot.send_chunk,
        "progress.chunk_first_at or progress.chunk_sent_at",
        "progress.chunk_sent_at",
        test_send_snapshot.test_a_part_that_takes_longer_than_its_timeout_is_taken_for_answered_all_the_same,
    ),
    Fault(
        "no heartbeats during a snapshot (S36)",
        leading.leader_tick,
        "if state.now - progress.sent_at >= interval // 2:",
        "if state.now - progress.sent_at >= interval // 2 and progress.state is not ProgressState.SNAPSHOT:",
        test_install_snapshot.test_s36_slow_snapshot_stops_no_heartbeats,
    ),
    Fault(
        "a refusal ends a snapshot",
        Progress.refused,
        "or self.state is ProgressState.SNAPSHOT",
        "",
        test_flow_control.test_a_refusal_during_a_snapshot_is_late,
    ),
    Fault(
        "large entries are kept by the thousand",
        snapshot._retained_behind,
        "state.sizes.cut(last_index)",
        "0",
        partial(test_snapshots.test_of_entries_and_bytes_to_retain_the_smaller_counts, 4, 25, 19),
    ),
    Fault(
        "what is behind the snapshot counts as kept in front of it",
        LogSizes.cut,
        "total = size  #",
        "total += size  #",
        partial(test_snapshots.test_of_entries_and_bytes_to_retain_the_smaller_counts, 4, 40, 17),
    ),
    Fault(
        "what a start finds in the log counts as nothing",
        RaftState.__init__,
        "self.sizes.add(last_index, size)",
        "pass",
        partial(test_snapshots.test_what_a_start_leaves_on_disk_counts_as_retained_by_groups, 45, 4),
    ),
    Fault(
        "cluster time begins anew behind a snapshot",
        RaftLog.__init__,
        "self._shed_time_ns = previous_time_ns",
        "self._shed_time_ns = 0",
        test_snapshots.test_cluster_time_goes_on_from_a_snapshot_behind_which_there_is_nothing,
    ),
    # -- authority
    Fault(
        "a leader without a quorum is looked at by its timer alone (S30)",
        Raft.step,
        "and type(event) is not Receive and self.lost_quorum()",
        "and type(event) is Tick and self.lost_quorum()",
        partial(
            test_authority.test_s30_leader_without_a_quorum_gives_up_at_whatever_comes_first,
            test_authority.EVENTS["proposal"],
        ),
    ),
    Fault(
        "timers come before messages",
        Raft.step,
        "and type(event) is not Receive and",
        "and",
        test_authority.test_messages_come_before_timers,
    ),
    Fault(
        "an answer renews a follower of a leader without a quorum (S30)",
        answers._matches,
        " or state.lost_quorum()",
        "",
        partial(
            test_authority.test_s30_message_that_does_not_help_renews_nobody_and_the_timer_ends_it,
            test_authority.MESSAGES["old answer"],
        ),
    ),
    Fault(
        "a refusal renews a follower of a leader without a quorum (S30)",
        answers.handle_append_entries_response,
        " and not state.lost_quorum()",
        "",
        partial(
            test_authority.test_s30_message_that_does_not_help_renews_nobody_and_the_timer_ends_it,
            test_authority.MESSAGES["refusal"],
        ),
    ),
    Fault(
        "a read renews followers of a leader without a quorum (S30)",
        read_index._ask,
        "if state.lost_quorum():",
        "if False:",
        partial(
            test_authority.test_s30_message_that_does_not_help_renews_nobody_and_the_timer_ends_it,
            test_authority.MESSAGES["read of a follower"],
        ),
    ),
    Fault(
        "a snapshot goes on without a quorum (S30)",
        answers.handle_install_snapshot_response,
        " and not state.lost_quorum()",
        "",
        test_authority.test_a_snapshot_goes_on_only_with_a_quorum,
    ),
    Fault(
        "a joint configuration is left without a quorum",
        membership.configuration_committed,
        " or state.lost_quorum()",
        "",
        test_authority.test_s30_joint_configuration_is_not_left_without_a_quorum,
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_planted_fault_is_found(fault: Fault) -> None:
    assert fault.found_by is not None
    with (
        planted(fault.function, fault.line, fault.fault),
        pytest.raises((AssertionError, IndexError, pytest.fail.Exception)),
    ):
        fault.found_by()


def test_without_a_fault_nothing_is_found() -> None:
    """The other half for the named tests; the worlds are run elsewhere."""
    for search in {fault.found_by for fault in FAULTS}:
        if search is not None and getattr(search, "func", None) is not find_in:
            search()
