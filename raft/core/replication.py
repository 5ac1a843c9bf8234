"""The leader's side of AppendEntries: what to send to whom, and what the answers say."""

from __future__ import annotations

from .commitment import advance_commit_index
from .entry import Entry
from .events import Accepted, Propose, Refused, Role
from .messages import AppendEntries, AppendEntriesResponse
from .progress import Progress, ProgressState
from .quorum import quorum_value
from .state import RaftState


def handle_propose(state: RaftState, event: Propose) -> None:
    """Append proposals if this node leads and has room; otherwise refuse before an index is used."""
    if state.role is not Role.LEADER:
        state.out.proposed = Refused("NOT_LEADER", state.leader)
        return
    size = sum([len(data) for _, data in event.proposals])
    if not event.internal and state.uncommitted_bytes >= state.options.uncommitted_bytes_max:
        state.out.proposed = Refused("BUSY", state.leader)
        return
    time_ns = max(event.time_ns, state.log.last_time_ns)
    term = state.current_term
    first = state.log.last_index + 1
    state.append_entries(
        [Entry(index, term, kind, time_ns, data) for index, (kind, data) in enumerate(event.proposals, first)]
    )
    state.uncommitted.append((state.log.last_index, size))
    state.uncommitted_bytes += size
    state.out.proposed = Accepted(first, term)
    broadcast_append(state)


def broadcast_append(state: RaftState) -> None:
    for peer, progress in state.progress.items():
        send_entries(state, peer, progress)


def send_entries(state: RaftState, peer: str, progress: Progress) -> None:
    """Send what the follower lacks, as far as its window allows."""
    log = state.log
    while progress.next_index <= log.last_index:
        if progress.state is ProgressState.PROBE:
            if progress.probe_sent:
                return
        elif len(progress.in_flight) >= state.options.in_flight_max:
            return
        message = _append_message(state, progress.next_index)
        last = message.prev_log_index + len(message.entries)
        if progress.state is ProgressState.PROBE:
            progress.probe_sent = True
            _send(state, peer, progress, message)
            return
        progress.in_flight.append(last)
        progress.next_index = last + 1
        _send(state, peer, progress, message)


def _append_message(state: RaftState, next_index: int) -> AppendEntries:
    """The message for a follower at ``next_index``.

    Followers that stand at the same place get the *same object*, so that it is encoded once.
    """
    cached = state.append_cache
    if cached is not None and cached[0] == next_index and cached[1] == state.log.last_index:
        return cached[2]
    message = AppendEntries(
        state.current_term,
        next_index - 1,
        state.log.term_at(next_index - 1),
        state.commit_index,
        state.now,
        state.log.slice_bytes(next_index, state.options.append_bytes_max),
    )
    state.append_cache = (next_index, state.log.last_index, message)
    return message


def _send(state: RaftState, peer: str, progress: Progress, message: AppendEntries) -> None:
    progress.sent_at = state.now
    progress.commit_sent = min(message.leader_commit, message.prev_log_index + len(message.entries))
    # Beside the leader's own disk, not after it (thesis section 10.2.1): the leader counts itself
    # only once its copy is durable.
    state.send(peer, message)


def send_heartbeat(state: RaftState, peer: str, progress: Progress) -> None:
    """An AppendEntries without entries, at the place where the follower should stand.

    If the follower has lost something of what was in flight, it refuses and is probed again.
    """
    index = progress.next_index - 1
    _send(
        state,
        peer,
        progress,
        AppendEntries(state.current_term, index, state.log.term_at(index), state.commit_index, state.now, []),
    )


def handle_append_entries_response(state: RaftState, source: str, message: AppendEntriesResponse) -> None:
    if message.term > state.current_term:
        state.become_follower(message.term, "", "higher term in an append answer")
        return
    progress = state.progress.get(source)
    if state.role is not Role.LEADER or message.term < state.current_term or progress is None:
        return
    if progress.contact_at < message.sent_at <= state.now:
        progress.contact_at = message.sent_at
    if message.success:
        if progress.acknowledged(message.match_index):
            advance_commit_index(state)
        send_entries(state, source, progress)
        return
    may_match = state.log.last_index_with_term_at_most(message.hint_index, message.hint_term)
    if progress.refused(message.match_index, may_match):
        send_entries(state, source, progress)
        if not progress.probe_sent:
            send_heartbeat(state, source, progress)  # Nothing to send, but the place must be found.
            progress.probe_sent = True


def quorum_contact_at(state: RaftState) -> int:
    """Since when a majority is known to have followed this leader: the *send* time of what they answered.

    The base of check-quorum and of the leader lease (thesis section 6.4.1).
    """
    contacts = {peer: progress.contact_at for peer, progress in state.progress.items()}
    contacts[state.node_id] = state.now
    return quorum_value(state.configuration, contacts)


def leader_tick(state: RaftState) -> None:
    """Authority first, then heartbeats: without quorum contact nothing is sent that renews a follower."""
    if state.options.check_quorum and state.now - quorum_contact_at(state) >= state.options.election_timeout:
        state.become_follower(state.current_term, "", "no contact with a quorum")
        return
    if state.disk_is_stalled():
        state.become_follower(state.current_term, "", "own disk stalled")
        return
    interval = state.options.heartbeat_interval
    if state.now >= state.heartbeat_deadline:
        state.heartbeat_deadline = state.now + interval
        for peer, progress in state.progress.items():
            if state.now - progress.sent_at >= interval // 2:
                # It is the probe, too: a follower that is away costs heartbeats, not entries.
                progress.probe_sent = True
                send_heartbeat(state, peer, progress)
    for peer, progress in state.progress.items():
        if _owes_commit_notice(state, progress) and state.now - progress.sent_at >= state.options.commit_notice_delay:
            send_heartbeat(state, peer, progress)


def _owes_commit_notice(state: RaftState, progress: Progress) -> bool:
    """An idle follower that has not been told the newest commit index it could act on."""
    return (
        progress.state is ProgressState.REPLICATE
        and not progress.in_flight
        and progress.commit_sent < min(state.commit_index, progress.match_index)
    )


def leader_deadline(state: RaftState) -> int:
    """When ``leader_tick`` next has something to do."""
    deadline = state.heartbeat_deadline
    for progress in state.progress.values():
        if _owes_commit_notice(state, progress):
            deadline = min(deadline, progress.sent_at + state.options.commit_notice_delay)
    if state.pending_writes:
        deadline = min(deadline, state.pending_writes[0].started_at + state.options.stall_bound + 1)
    return deadline
