"""A leader's clock: what is due by itself, without any message (thesis sections 3.4 and 6.2)."""

from __future__ import annotations

from .install_snapshot import send_chunk
from .membership import configuration_committed, let_go
from .progress import Progress, ProgressState
from .replication import send_heartbeat
from .state import RaftState
from .transfer import drive_transfer


def leader_tick(state: RaftState) -> None:
    """Authority first, then heartbeats. That a quorum follows was looked at before (``step``)."""
    if state.disk_is_stalled():
        state.become_follower(state.current_term, "", "own disk stalled")
        return
    interval = state.options.heartbeat_interval
    if state.now >= state.heartbeat_deadline:
        state.heartbeat_deadline = state.now + interval
        if state.configuration.is_joint:
            configuration_committed(state)
        if state.departing:
            let_go(state)
        for peer, progress in state.progress.items():
            if state.now - progress.sent_at >= interval // 2:
                # It is the probe, too: a follower that is away costs heartbeats, not entries.
                progress.probe_sent = True
                send_heartbeat(state, peer, progress)
            if progress.state is ProgressState.SNAPSHOT:
                send_chunk(state, peer, progress)
    for peer, progress in state.progress.items():
        if _owes_commit_notice(state, progress) and state.now - progress.sent_at >= state.options.commit_notice_delay:
            send_heartbeat(state, peer, progress)
    if state.transfer is not None:
        drive_transfer(state)


def _owes_commit_notice(state: RaftState, progress: Progress) -> bool:
    """An idle follower that has not been told the newest commit index it could act on."""
    return (
        progress.state is ProgressState.REPLICATE
        and not progress.in_flight
        and progress.commit_sent < min(state.commit_index, progress.match_index)
    )


def leader_deadline(state: RaftState) -> int:
    """When a leader next has something to do, monotonic nanoseconds."""
    deadline = state.heartbeat_deadline
    for progress in state.progress.values():
        if _owes_commit_notice(state, progress):
            deadline = min(deadline, progress.sent_at + state.options.commit_notice_delay)
    if state.pending_writes:
        deadline = min(deadline, state.pending_writes[0].started_at + state.options.stall_bound + 1)
    if state.options.check_quorum:
        deadline = min(deadline, state.quorum_contact + state.options.election_timeout)
    if state.transfer is not None:
        deadline = min(deadline, state.transfer.deadline)
    return deadline
