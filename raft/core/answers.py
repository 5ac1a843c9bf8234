"""What the followers' answers tell a leader, and what it does then."""

from __future__ import annotations

from .commitment import advance_commit_index
from .events import LostEntries, Role
from .install_snapshot import chunk_answered, send_chunk
from .membership import configuration_committed, let_go
from .messages import AppendEntriesResponse, InstallSnapshotResponse
from .progress import Progress
from .read_index import confirm_reads
from .replication import send_entries
from .state import RaftState
from .transfer import drive_transfer


def _answering(state: RaftState, source: str, term: int, sent_at: int, promise: int) -> Progress | None:
    """The progress of a peer that has answered this leader in its term; None if that is not what it is."""
    if term > state.current_term:
        state.become_follower(term, "", "higher term in an answer")
        return None
    progress = state.progress.get(source)
    if state.role is not Role.LEADER or term < state.current_term or progress is None:
        return None
    progress.heard = True
    progress.promise = promise
    if progress.contact_at < sent_at <= state.now:
        progress.contact_at = sent_at
        state.note_contact()
        if state.pending_reads:
            confirm_reads(state)
    return progress


def handle_append_entries_response(state: RaftState, source: str, message: AppendEntriesResponse) -> None:
    progress = _answering(state, source, message.term, message.sent_at, message.promise)
    if progress is None:
        return
    if message.success:
        _matches(state, source, progress, message.match_index)
        return
    if progress.has_lost(message.match_index, message.sent_at):
        state.out.lost_entries.append(LostEntries(source, message.match_index, message.hint_index))
    if progress.lost_index:
        return
    may_match = state.log.last_index_with_term_at_most(message.hint_index, message.hint_term)
    if progress.refused(message.match_index, may_match) and not state.lost_quorum():
        # What was refused is in this log, and so is an entry to probe with: there is something to send.
        send_entries(state, source, progress)


def handle_install_snapshot_response(state: RaftState, source: str, message: InstallSnapshotResponse) -> None:
    progress = _answering(state, source, message.term, message.sent_at, message.promise)
    if progress is None:
        return
    if message.installed:
        _matches(state, source, progress, message.last_index)
    elif chunk_answered(state, progress, message) and not state.lost_quorum():
        send_chunk(state, source, progress)


def _matches(state: RaftState, source: str, progress: Progress, match_index: int) -> None:
    """The follower's log matches up to ``match_index``, durably."""
    if match_index > state.log.last_index:
        return  # Not of this leader's log; nothing of it can be believed.
    if progress.lost_index and progress.is_lost(match_index, state.log.previous_index):
        return
    if progress.acknowledged(match_index):
        progress.matched_at = state.now
        if advance_commit_index(state):
            committed_more(state)
    if state.role is not Role.LEADER or state.lost_quorum():
        return  # Without a quorum nothing is sent that renews a follower.
    send_entries(state, source, progress)
    if state.transfer is not None:
        drive_transfer(state)
    if state.departing:
        let_go(state)


def committed_more(state: RaftState) -> None:
    """The leader's commit index has moved."""
    configuration_committed(state)
    if state.pending_reads:
        confirm_reads(state)
