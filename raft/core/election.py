"""Elections: pre-vote, votes, and what a new leader does first (thesis sections 3.4, 3.6.1, 9.6)."""

from __future__ import annotations

from .entry import Entry, EntryKind
from .events import Role
from .messages import PreVote, PreVoteResponse, RequestVote, RequestVoteResponse, TimeoutNow
from .progress import Progress
from .quorum import VoteResult, vote_result
from .replication import broadcast_append
from .state import RaftState


def start_election(state: RaftState) -> None:
    """The election timeout has passed, or somebody asked: campaign, by pre-vote first."""
    state.reset_election_deadline()
    if not state.may_be_needed or state.removed:
        return
    if state.disk_is_stalled():
        return  # A vote of our own could not become durable; leave it to nodes whose disk works (S07).
    if state.options.pre_vote:
        _start_pre_vote(state)
    else:
        campaign(state, transfer=False)


def _start_pre_vote(state: RaftState) -> None:
    state.role = Role.PRE_CANDIDATE
    state.leader = ""
    # Chance rather than a counter: a counter would start again with the process, and an answer
    # to a round before the restart would pass for one of ours.
    state.pre_vote_round = state.between(1, (1 << 62))
    state.votes = {state.node_id: True}
    state.report_role("election timeout")
    for peer in state.voting_peers:
        state.send(
            peer,
            PreVote(state.current_term + 1, state.log.last_index, state.log.last_term, state.pre_vote_round),
        )
    _count_pre_votes(state)


def _count_pre_votes(state: RaftState) -> None:
    result = vote_result(state.configuration, state.votes)
    if result is VoteResult.WON:
        campaign(state, transfer=False)
    elif result is VoteResult.LOST:
        state.become_follower(state.current_term, "", "pre-vote lost")


def campaign(state: RaftState, *, transfer: bool) -> None:
    """Spend a term. The requests, like our own vote, wait until term and vote are durable (S05)."""
    state.current_term += 1
    state.voted_for = state.node_id
    state.save_hard_state()
    state.role = Role.CANDIDATE
    state.leader = ""
    state.votes = {}
    state.reset_election_deadline()
    state.report_role("campaign")
    for peer in state.voting_peers:
        state.send(peer, RequestVote(state.current_term, state.log.last_index, state.log.last_term, transfer))


def own_vote_durable(state: RaftState) -> None:
    """Our vote for ourselves is on disk: now it counts."""
    if state.role is Role.CANDIDATE and state.durable_sequence >= state.hard_state_sequence:
        state.votes[state.node_id] = True
        _count_votes(state)


def _count_votes(state: RaftState) -> None:
    result = vote_result(state.configuration, state.votes)
    if result is VoteResult.WON:
        _become_leader(state)
    elif result is VoteResult.LOST:
        state.become_follower(state.current_term, "", "election lost")


def _become_leader(state: RaftState) -> None:
    """Lead, and append the no-op whose commitment says that everything before it is committed too."""
    state.role = Role.LEADER
    state.leader = state.node_id
    state.votes = {}
    state.progress = {peer: Progress(state.log.last_index + 1, state.now) for peer in state.peers}
    state.note_contact()
    state.heartbeat_deadline = state.now + state.options.heartbeat_interval
    inherited = state.log.slice(max(state.commit_index, state.log.previous_index) + 1, state.log.last_index)
    state.uncommitted.extend([(entry.index, len(entry.data)) for entry in inherited])
    state.uncommitted_bytes = sum([len(entry.data) for entry in inherited])
    state.term_start_index = state.log.last_index + 1
    state.append_entries(
        [Entry(state.term_start_index, state.current_term, EntryKind.NO_OP, state.log.last_time_ns, b"")]
    )
    state.report_role("elected")
    broadcast_append(state)


def _vote_refusal(state: RaftState, term: int, last_log_index: int, last_log_term: int) -> str:
    """Why a vote in ``term`` is refused, apart from stickiness; empty if it is not.

    Judged by term and log only. Who counts is decided by the candidate's configuration (S26).
    """
    if term < state.current_term:
        return "stale-term"
    if not state.log.is_up_to_date(last_log_index, last_log_term):
        return "log-behind"
    return ""


def _count_refusal(state: RaftState, source: str, reason: str) -> None:
    """The first answer of a voter, as with the votes themselves."""
    if reason and source not in state.votes:
        state.votes_refused[reason] = state.votes_refused.get(reason, 0) + 1


def handle_pre_vote(state: RaftState, source: str, message: PreVote) -> None:
    """Answer without changing anything here: a granted pre-vote raises no term (S01, S02)."""
    configuration = state.committed_configuration()
    if source in configuration.retired and source not in configuration.members:
        reason = "removed"  # For good: ids are not used again. It need not go on asking (S02).
    elif state.has_live_leader() and source != state.leader:
        reason = "leader-alive"
    elif message.term == state.current_term and state.voted_for not in ("", source):
        reason = "already-voted"
    else:
        reason = _vote_refusal(state, message.term, message.last_log_index, message.last_log_term)
    state.send(source, PreVoteResponse(state.current_term, not reason, message.round, reason))


def handle_pre_vote_response(state: RaftState, source: str, message: PreVoteResponse) -> None:
    if state.role is not Role.PRE_CANDIDATE or message.round != state.pre_vote_round:
        return  # Not even its term: a late refusal must not take a node away from its leader.
    _count_refusal(state, source, message.reason)
    if message.reason == "removed":
        state.removed = True
        state.become_follower(state.current_term, "", "removed from the cluster")
        return
    if message.term > state.current_term and not message.granted:
        state.become_follower(message.term, "", "higher term in a pre-vote answer")
        return
    state.votes.setdefault(source, message.granted)
    _count_pre_votes(state)


def handle_request_vote(state: RaftState, source: str, message: RequestVote) -> None:
    if state.has_live_leader() and source != state.leader and not message.transfer:
        # Not even the term is taken over: a node that cannot hear the leader may not depose it.
        state.send(source, RequestVoteResponse(state.current_term, False, "leader-alive"))
        return
    if message.term > state.current_term:
        state.become_follower(message.term, "", "higher term in a vote request")
    reason = _vote_refusal(state, message.term, message.last_log_index, message.last_log_term)
    if not reason and state.voted_for not in ("", source):
        reason = "already-voted"
    if not reason:
        if state.voted_for != source:
            state.voted_for = source
            state.save_hard_state()
        if state.role is not Role.FOLLOWER:
            # A pre-candidate: the answers to its own question must not set it against its choice.
            state.become_follower(state.current_term, "", "voted for another")
        state.reset_election_deadline()
    state.send(source, RequestVoteResponse(state.current_term, not reason, reason))


def handle_request_vote_response(state: RaftState, source: str, message: RequestVoteResponse) -> None:
    if state.role is Role.CANDIDATE and message.term >= state.current_term:
        _count_refusal(state, source, message.reason)
    if message.term > state.current_term:
        state.become_follower(message.term, "", "higher term in a vote answer")
        return
    if state.role is not Role.CANDIDATE or message.term != state.current_term:
        return
    # The first answer of a voter stands; a duplicate or a contradiction changes nothing (S06).
    state.votes.setdefault(source, message.granted)
    _count_votes(state)


def handle_timeout_now(state: RaftState, source: str, message: TimeoutNow) -> None:
    """The leader hands over: campaign at once, without pre-vote, and say so (thesis section 3.10)."""
    if message.term != state.current_term or source != state.leader or state.role is not Role.FOLLOWER:
        return  # Late: that leadership has ended, or this node has done something else since.
    if state.is_voter and not state.removed and not state.disk_is_stalled():
        campaign(state, transfer=True)
