"""The follower's side of AppendEntries (thesis section 3.5 and figure 3.1)."""

from __future__ import annotations

from .errors import CommittedConflict
from .events import Role
from .messages import AppendEntries, AppendEntriesResponse
from .state import RaftState


def handle_append_entries(state: RaftState, source: str, message: AppendEntries) -> None:
    if message.term < state.current_term:
        # Tell the old leader of the newer term; nothing of the message is looked at.
        state.send(source, _refusal(state, message))
        return
    if state.role is Role.LEADER and message.term == state.current_term:
        raise AssertionError(f"two leaders in term {message.term}: {state.node_id} and {source}")
    entries = message.entries
    last_new_index = message.prev_log_index + len(entries)
    if entries and (entries[0].index != message.prev_log_index + 1 or entries[-1].index != last_new_index):
        return  # Not what any leader sends; nothing of it can be believed.
    if message.term > state.current_term or state.role is not Role.FOLLOWER or state.leader != source:
        state.become_follower(message.term, source, "heard from the leader")
    heard_from_leader(state)
    state.told_commit_index = max(state.told_commit_index, message.leader_commit)

    log = state.log
    if message.prev_log_index > state.commit_index and not log.matches(message.prev_log_index, message.prev_log_term):
        state.send(source, _refusal(state, message))
        return
    # At or below the commit index the logs agree by leader completeness, whether or not the entry
    # is still there to compare. Where it is there, it is compared.
    if message.prev_log_index <= state.commit_index:
        _check_committed(state, source, message.prev_log_index, message.prev_log_term)

    after = 0
    if entries:
        skip = _count_known(state, message)
        if skip < len(entries):
            first = entries[skip].index
            if first <= log.last_index:
                state.truncate_from(first)  # Only at a conflicting term, then the whole tail (S17).
            state.append_entries(entries[skip:] if skip else entries)
        if last_new_index > state.durable_index:
            after = state.write_sequence
    matched = last_new_index if entries else min(last_new_index, state.durable_index)
    # Commit no further than what this very message proved to match (S16).
    commit_index = min(message.leader_commit, last_new_index)
    if commit_index > state.commit_index:
        state.commit_index = commit_index
    state.send(
        source,
        AppendEntriesResponse(state.current_term, True, matched, 0, 0, message.sent_at, state.options.election_timeout),
        after,
    )


def heard_from_leader(state: RaftState) -> None:
    """The leader of this term is alive, and counts this node as one of its cluster."""
    state.last_leader_contact = state.now
    state.removed = False
    state.reset_election_deadline()


def _count_known(state: RaftState, message: AppendEntries) -> int:
    """How many leading entries of the message this log already holds.

    A late or repeated message whose entries are all known must not shorten the log (S17).
    """
    log = state.log
    if message.prev_log_index == log.last_index:
        return 0
    known = 0
    for entry in message.entries:
        if entry.index <= state.commit_index:
            _check_committed(state, state.leader, entry.index, entry.term)
        elif log.term_at(entry.index) != entry.term:
            break
        known += 1
    return known


def _check_committed(state: RaftState, source: str, index: int, term: int) -> None:
    """Every leader has what is committed. One that has not was elected by a node that had forgotten what it
    acknowledged, and what this node has applied is not what the cluster will apply (S21)."""
    own = state.log.term_at(index)
    if own not in (-1, term):
        raise CommittedConflict(
            f"entry {index} of term {own} is committed here, and {source}, the leader of term {state.current_term}, "
            f"has one of term {term} there: acknowledged entries were lost by others",
            next_step="docs/operations.md, COMMITTED_CONFLICT",
        )


def _refusal(state: RaftState, message: AppendEntries) -> AppendEntriesResponse:
    hint = state.log.last_index_with_term_at_most(message.prev_log_index, message.prev_log_term)
    return AppendEntriesResponse(
        state.current_term,
        False,
        message.prev_log_index,
        hint,
        max(state.log.term_at(hint), 0),
        message.sent_at,
        state.options.election_timeout,
    )
