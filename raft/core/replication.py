"""What a leader sends to whom (thesis section 3.5; windows, section 10.2.1)."""

from __future__ import annotations

from .entry import Entry
from .events import Accepted, EntriesRead, Propose, ReadEntries, Refused, Role
from .install_snapshot import send_chunk, send_snapshot
from .log import ENTRIES_PER_MESSAGE_MAX
from .messages import AppendEntries
from .progress import Progress, ProgressState
from .state import RaftState


def handle_propose(state: RaftState, event: Propose) -> None:
    """Append proposals if this node leads and has room; otherwise refuse before an index is used."""
    refused = _refusal(state, event)
    if refused is not None:
        state.out.proposed = refused
        return
    time_ns = max(event.time_ns, state.log.last_time_ns)
    term = state.current_term
    first = state.log.last_index + 1
    state.append_entries(
        [Entry(index, term, kind, time_ns, data) for index, (kind, data) in enumerate(event.proposals, first)]
    )
    size = sum([len(data) for _, data in event.proposals])
    state.uncommitted.append((state.log.last_index, size))
    state.uncommitted_bytes += size
    state.out.proposed = Accepted(first, term)
    broadcast_append(state)


def _refusal(state: RaftState, event: Propose) -> Refused | None:
    if state.role is not Role.LEADER:
        return Refused("NOT_LEADER", state.leader)
    if not state.is_voter and state.configuration_index <= state.commit_index:
        return Refused("NOT_LEADER", "", "this leader is no voter any more")
    if state.transfer is not None and (state.transfer.told_at or not event.internal):
        # What the leader itself has to finish may still come in until the target is told: it has to
        # have all of the log by then (S08).
        return Refused("BUSY", state.leader, f"leadership is being handed over to {state.transfer.target}")
    if not event.internal and state.uncommitted_bytes >= state.options.uncommitted_bytes_max:
        return Refused("BUSY", state.leader)
    if event.proposals and max([len(data) for _, data in event.proposals]) > state.options.entry_bytes_max:
        return Refused("TOO_LARGE", state.leader, f"an entry holds at most {state.options.entry_bytes_max} bytes")
    return None


def broadcast_append(state: RaftState) -> None:
    for peer, progress in state.progress.items():
        send_entries(state, peer, progress)


def send_entries(state: RaftState, peer: str, progress: Progress) -> None:
    """Send what the follower lacks, as far as its window of messages and bytes allows."""
    log, options = state.log, state.options
    if progress.state is ProgressState.SNAPSHOT:
        send_chunk(state, peer, progress)
        return
    while progress.next_index <= log.last_index:
        if progress.state is ProgressState.PROBE and progress.probe_sent:
            return
        if progress.next_index <= log.previous_index:
            send_snapshot(state, peer, progress)
            return
        if progress.in_flight and (
            len(progress.in_flight) >= options.in_flight_max or progress.in_flight_bytes >= options.in_flight_bytes_max
        ):
            return
        if progress.next_index < log.window_start:
            _read_entries(state, peer, progress)
            return
        message, size = _append_message(state, progress.next_index)
        if progress.state is ProgressState.PROBE:
            progress.probe_sent = True
            _send(state, peer, progress, message)
            return
        progress.sent(message.prev_log_index + len(message.entries), size)
        _send(state, peer, progress, message)


def _read_entries(state: RaftState, peer: str, progress: Progress) -> None:
    """What the follower lacks next is on disk only: ask for it, unless that is asked for already."""
    start = progress.next_index
    if progress.state is ProgressState.PROBE:
        # Nothing is read for a guess: first the place must be found where the logs meet.
        send_heartbeat(state, peer, progress)
        progress.probe_sent = True
    elif not progress.reading:
        progress.reading = True
        end = min(state.log.window_start, start + ENTRIES_PER_MESSAGE_MAX) - 1
        state.out.read_entries.append(ReadEntries(peer, state.current_term, start, end, state.options.append_bytes_max))


def entries_read(state: RaftState, event: EntriesRead) -> None:
    """Send what was read, if it is still what the follower needs next."""
    progress = state.progress.get(event.to)
    if state.role is not Role.LEADER or event.term != state.current_term or progress is None:
        return  # Asked for by an earlier leader.
    progress.reading = False
    log, start, entries = state.log, event.start, event.entries
    if not entries and start > log.previous_index:
        return  # Not kept, although it is needed here: asked for again when the follower answers a heartbeat.
    wanted = progress.state is ProgressState.REPLICATE and progress.next_index == start > log.previous_index
    if wanted:
        last = start + len(entries) - 1
        _check_read(state, entries, start, last)
        message = AppendEntries(
            state.current_term, start - 1, log.term_at(start - 1), state.commit_index, state.now, entries
        )
        progress.sent(last, sum([len(entry.data) for entry in entries]))
        _send(state, event.to, progress, message)
    send_entries(state, event.to, progress)


def _check_read(state: RaftState, entries: list[Entry], start: int, last: int) -> None:
    """The disk must give back what has left the window; anything else would be sent as committed."""
    log, ends = state.log, (entries[0], entries[-1])
    if [(entry.index, entry.term) for entry in ends] != [(index, log.term_at(index)) for index in (start, last)]:
        raise AssertionError(
            f"read entries {ends[0].index}:{ends[0].term} to {ends[1].index}:{ends[1].term} for {start} to {last}, "
            f"of terms {log.term_at(start)} and {log.term_at(last)}"
        )


def _append_message(state: RaftState, next_index: int) -> tuple[AppendEntries, int]:
    """The message for a follower at ``next_index``, and the length of its payloads.

    Followers that stand at the same place get the *same object*, so that it is encoded once.
    """
    cached = state.append_cache
    if cached is not None and cached[0] == next_index and cached[1] == state.log.last_index:
        return cached[2], cached[3]
    entries, size = state.log.slice_bytes(next_index, state.options.append_bytes_max)
    message = AppendEntries(
        state.current_term,
        next_index - 1,
        state.log.term_at(next_index - 1),
        state.commit_index,
        state.now,
        entries,
    )
    state.append_cache = (next_index, state.log.last_index, message, size)
    return message, size


def _send(state: RaftState, peer: str, progress: Progress, message: AppendEntries) -> None:
    progress.sent_at = state.now
    progress.sent_behind(message.prev_log_index, state.now)
    progress.commit_sent = min(message.leader_commit, message.prev_log_index + len(message.entries))
    # Beside the leader's own disk, not after it (thesis section 10.2.1): the leader counts itself
    # only once its copy is durable.
    state.send(peer, message)


def send_heartbeat(state: RaftState, peer: str, progress: Progress) -> None:
    """An AppendEntries without entries, at the place where the follower should stand.

    If the follower has lost something of what was in flight, it refuses and is probed again.
    """
    index = progress.next_index - 1
    if progress.state is ProgressState.SNAPSHOT or index < state.log.previous_index:
        index = 0  # Nowhere are the logs known to meet, but all logs begin alike.
    _send(
        state,
        peer,
        progress,
        AppendEntries(state.current_term, index, state.log.term_at(index), state.commit_index, state.now, []),
    )
