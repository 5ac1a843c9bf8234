"""A follower that lacks entries which are gone at the leader gets a snapshot (thesis section 5.3).

In parts, one at a time: the follower names the place at which it goes on, so that a part that was
lost, came twice or met a new leader costs itself and nothing more. The contents are none of the
core's business: it asks for parts to be read and stored, and hears when that is done.
"""

from __future__ import annotations

from .append_entries import heard_from_leader
from .entry import Snapshot
from .events import (
    ChunkStored,
    ReadChunk,
    Role,
    SnapshotReceived,
    SnapshotUnusable,
    StoreChunk,
)
from .messages import InstallSnapshot, InstallSnapshotResponse
from .progress import Progress, ProgressState
from .state import RaftState
from .waiting import Incoming

# -- the leader's side --------------------------------------------------------------------------------


def send_snapshot(state: RaftState, peer: str, progress: Progress) -> None:
    """Begin to send the newest snapshot, which holds everything that is gone from the log."""
    snapshot = state.snapshot
    if snapshot is None or snapshot.last_index < state.log.previous_index:
        raise AssertionError(f"entries up to {state.log.previous_index} are gone, the newest snapshot is {snapshot}")
    progress.become_snapshot(snapshot, state.now)
    send_chunk(state, peer, progress)


def send_chunk(state: RaftState, peer: str, progress: Progress) -> None:
    """Ask for the next part to be read and sent, unless one is on its way."""
    snapshot = progress.snapshot
    assert snapshot is not None
    if progress.chunk_sent_at and state.now - progress.chunk_sent_at < state.options.chunk_timeout:
        return
    progress.chunk_sent_at = max(state.now, 1)
    progress.chunk_first_at = progress.chunk_first_at or progress.chunk_sent_at
    offset = progress.snapshot_offset
    state.out.chunks.append(
        ReadChunk(
            peer,
            InstallSnapshot(state.current_term, snapshot, offset, b"", progress.chunk_sent_at),
            min(state.options.chunk_bytes, snapshot.size_bytes - offset),
            state.sendable_after(),
        )
    )


def chunk_unavailable(state: RaftState, peer: str) -> None:
    """That snapshot is not kept any more: begin anew, after the next heartbeat's answer."""
    progress = state.progress.get(peer)
    if progress is not None and progress.state is ProgressState.SNAPSHOT:
        progress.become_probe()
        progress.probe_sent = True


def chunk_answered(state: RaftState, progress: Progress, message: InstallSnapshotResponse) -> bool:
    """Whether the next part is wanted: this answers the part that was sent last, on whichever of its ways. Where
    one takes longer than its timeout, the answer to the newest asking would always be yet to come."""
    snapshot, first_at = progress.snapshot, progress.chunk_first_at
    if snapshot is None or message.last_index != snapshot.last_index or not 0 < first_at <= message.sent_at:
        return False
    progress.snapshot_stored(min(max(message.offset, 0), snapshot.size_bytes), state.now)
    progress.chunk_sent_at = progress.chunk_first_at = 0
    return True


# -- the follower's side ------------------------------------------------------------------------------


def handle_install_snapshot(state: RaftState, source: str, message: InstallSnapshot) -> None:
    snapshot = message.snapshot
    if message.term < state.current_term:
        _answer(state, source, snapshot, 0, message.sent_at)  # Tell the old leader of the newer term.
        return
    if state.role is Role.LEADER and message.term == state.current_term:
        raise AssertionError(f"two leaders in term {message.term}: {state.node_id} and {source}")
    if message.term > state.current_term or state.role is not Role.FOLLOWER or state.leader != source:
        state.become_follower(message.term, source, "heard from the leader")
    heard_from_leader(state)
    if snapshot.last_index <= state.commit_index:
        if state.incoming is not None and state.incoming.snapshot.last_index <= state.commit_index:
            state.incoming = None  # What was left of it is needed no more. Another one may be on its way.
        _answer_installed(state, source, snapshot, message.sent_at)
        return
    incoming = state.incoming
    if incoming is None or incoming.snapshot != snapshot:
        if message.offset:
            _answer(state, source, snapshot, 0, message.sent_at)
            return
        incoming = state.incoming = Incoming(snapshot, source)
    incoming.source, incoming.sent_at = source, message.sent_at
    if incoming.storing:
        return
    if message.offset != incoming.offset:
        _answer(state, source, snapshot, incoming.offset, message.sent_at)
        return
    incoming.storing = True
    last = message.offset + len(message.data) >= snapshot.size_bytes
    state.out.store_chunks.append(StoreChunk(snapshot, message.offset, message.data, last))


def chunk_stored(state: RaftState, event: ChunkStored) -> None:
    incoming = state.incoming
    if incoming is None or incoming.snapshot != event.snapshot:
        return  # Another snapshot has taken its place.
    incoming.storing = False
    incoming.offset = event.offset
    if incoming.source == state.leader:
        _answer(state, incoming.source, incoming.snapshot, incoming.offset, incoming.sent_at)


def snapshot_unusable(state: RaftState, event: SnapshotUnusable) -> None:
    """Forget it. The leader sends a part again when the last one is not answered, and hears that it has
    to begin anew."""
    if state.incoming is not None and state.incoming.snapshot == event.snapshot:
        state.incoming = None


def snapshot_received(state: RaftState, event: SnapshotReceived) -> None:
    """All of it is durable here. It takes the place of what it covers, and of nothing else."""
    snapshot = event.snapshot
    incoming = state.incoming
    if incoming is not None and incoming.snapshot == snapshot:
        state.incoming = None
    known = state.snapshot
    if known is not None and snapshot.last_index <= known.last_index:
        pass
    elif state.log.matches(snapshot.last_index, snapshot.last_term):
        # The log has what the snapshot holds, and maybe more, which stays (figure 5.3, step 6).
        state.snapshot = snapshot
        state.rebase_configurations(snapshot)
        if state.role is not Role.LEADER:  # Elected meanwhile, it finds its own way to where that ends.
            state.commit_index = max(state.commit_index, snapshot.last_index)
    elif state.role is not Role.LEADER:
        if state.role is not Role.FOLLOWER:
            # It takes the newest one on the disk for its own, or it would offer what is not kept any more.
            state.become_follower(state.current_term, "", "received a snapshot")
        state.snapshot = snapshot
        state.reset_log(snapshot)
        state.commit_index = state.apply_reported = snapshot.last_index
        state.applied_bytes = state.labelled_bytes = 0
        state.out.restore = snapshot
    if incoming is not None and incoming.snapshot == snapshot and incoming.source == state.leader:
        _answer_installed(state, incoming.source, snapshot, incoming.sent_at)


def _answer(state: RaftState, to: str, snapshot: Snapshot, offset: int, sent_at: int) -> None:
    promise = state.options.election_timeout
    state.send(to, InstallSnapshotResponse(state.current_term, snapshot.last_index, offset, False, sent_at, promise))


def _answer_installed(state: RaftState, to: str, snapshot: Snapshot, sent_at: int) -> None:
    """Everything up to it is committed here; said once all of that is durable."""
    after = 0 if state.durable_index >= snapshot.last_index else state.write_sequence
    state.send(
        to,
        InstallSnapshotResponse(
            state.current_term,
            snapshot.last_index,
            snapshot.size_bytes,
            True,
            sent_at,
            state.options.election_timeout,
        ),
        after,
    )
