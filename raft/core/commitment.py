"""When an entry is committed (thesis section 3.6.2).

A leader counts copies only of entries of its own term; entries of earlier terms are committed
with them, never by counting (the five-node figure 3.7, scenario S22). A leader's own copy counts
once it is durable, like anybody's, and only while it is a voter (section 4.2.2).
"""

from __future__ import annotations

from .quorum import quorum_value
from .state import RaftState


def advance_commit_index(state: RaftState) -> bool:
    """Leader: move the commit index to what a quorum holds, if that is of the current term."""
    match = {peer: progress.match_index for peer, progress in state.progress.items()}
    match[state.node_id] = state.durable_index
    index = quorum_value(state.configuration, match)
    if index <= state.commit_index or state.log.term_at(index) != state.current_term:
        return False
    state.commit_index = index
    uncommitted = state.uncommitted
    while uncommitted and uncommitted[0][0] <= index:
        state.uncommitted_bytes -= uncommitted.popleft()[1]
    return True


def report_apply(state: RaftState) -> None:
    """Ask for everything to be applied that is committed and durable *here*.

    Waiting for the local disk keeps what a node has acted on within what it can recover.
    """
    index = min(state.commit_index, state.durable_index)
    if index > state.apply_reported:
        state.apply_reported = index
        state.out.apply_to = index
