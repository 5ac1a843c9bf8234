"""Linearizable reads without writing to the log (Raft thesis section 6.4).

A read may be answered from the state at the commit index that the leader has when the read comes,
once it is known that it was still the leader *then*: a quorum has answered something that was sent
afterwards. And the leader must have committed in its own term, or its commit index may be behind
(S29). Many reads share one round of heartbeats. A follower asks its leader and answers itself.

From the lease (section 6.4.1) a read is answered at once: a quorum has answered something sent so
lately that none of them can have voted for another since, as far as clocks run alike.
"""

from __future__ import annotations

from .events import Read, ReadReady, ReadRefused, Role
from .messages import ReadIndex, ReadIndexResponse
from .replication import send_heartbeat
from .state import RaftState
from .waiting import ForwardedRead, PendingRead


def handle_read(state: RaftState, event: Read) -> None:
    if state.role is Role.LEADER:
        if event.lease and lease_allows_reads(state):
            state.out.reads += [ReadReady(request_id, state.commit_index) for request_id in event.request_ids]
        else:
            _take(state, "", 0, event.request_ids)
    elif state.leader:
        _forward(state, event.request_ids)
    else:
        state.out.reads += [ReadRefused(request_id, "NOT_LEADER", "") for request_id in event.request_ids]


def lease_allows_reads(state: RaftState) -> bool:
    """Judged now, by when the answered messages were *sent* and by this node's clock at its fastest."""
    return (
        state.options.lease_reads
        and not state.lease_forfeited
        and state.commit_index >= state.term_start_index
        and state.now - min(state.quorum_contact, state.now) < state.options.at_the_fastest(state.lease_bound())
    )


def _take(state: RaftState, source: str, batch: int, request_ids: list[int]) -> None:
    # Later than everything that was sent before: only answers to what is sent from here on count.
    state.now += 1
    read_index = state.commit_index if state.commit_index >= state.term_start_index else 0
    state.pending_reads.append(PendingRead(state.now, source, batch, request_ids, read_index))
    if len(state.pending_reads) == 1:
        _ask(state)
    confirm_reads(state)


def _ask(state: RaftState) -> None:
    """A round of heartbeats to the voters. One that is lost is made up for by the next heartbeats."""
    if state.lost_quorum():
        return
    state.read_round_at = state.now
    for peer in state.voting_peers:
        send_heartbeat(state, peer, state.progress[peer])


def confirm_reads(state: RaftState) -> None:
    """Answer the reads that a quorum has confirmed; ask again for those that came meanwhile."""
    pending = state.pending_reads
    contact = min(state.quorum_contact, state.now)
    while pending and pending[0].begun_at <= contact:
        read = pending[0]
        if not read.read_index:
            if state.commit_index < state.term_start_index:
                return
            read.read_index = state.commit_index
        pending.popleft()
        if read.source:
            state.send(read.source, ReadIndexResponse(state.current_term, read.batch, read.read_index))
        else:
            state.out.reads += [ReadReady(request_id, read.read_index) for request_id in read.request_ids]
    if pending and pending[0].begun_at > state.read_round_at:
        _ask(state)


# -- through followers --------------------------------------------------------------------------------


def _forward(state: RaftState, request_ids: list[int]) -> None:
    drop_old_reads(state)
    if not state.read_batch:
        # Chance rather than 1: an answer to a question from before a restart must not pass for one to ours.
        state.read_batch = state.between(1, 1 << 62)
    state.read_batch += 1
    state.forwarded_reads[state.read_batch] = ForwardedRead(state.now, state.leader, request_ids)
    state.send(state.leader, ReadIndex(state.current_term, state.read_batch))


def handle_read_index(state: RaftState, source: str, message: ReadIndex) -> None:
    if message.term > state.current_term:
        state.become_follower(message.term, "", "higher term in a question for a read")
    if state.role is not Role.LEADER or source not in state.progress:
        state.send(source, ReadIndexResponse(state.current_term, message.batch, 0))
        return
    _take(state, source, message.batch, [])


def handle_read_index_response(state: RaftState, message: ReadIndexResponse) -> None:
    if message.term > state.current_term:
        state.become_follower(message.term, "", "higher term in an answer to a read")
    read = state.forwarded_reads.pop(message.batch, None)
    if read is None:
        return
    for request_id in read.request_ids:
        if message.read_index:
            state.out.reads.append(ReadReady(request_id, message.read_index))
        else:
            state.out.reads.append(ReadRefused(request_id, "NOT_LEADER", ""))


def drop_reads(state: RaftState) -> None:
    """End the reads that can no longer be answered: this node leads no more, or follows another."""
    if state.role is not Role.LEADER:
        while state.pending_reads:
            read = state.pending_reads.popleft()
            if read.source:
                state.send(read.source, ReadIndexResponse(state.current_term, read.batch, 0))
            state.out.reads += [ReadRefused(request_id, "NOT_LEADER", state.leader) for request_id in read.request_ids]
    for batch, forwarded in list(state.forwarded_reads.items()):
        if forwarded.leader != state.leader:
            _refuse(state, batch)


def drop_old_reads(state: RaftState) -> None:
    """A question or its answer may be lost: whoever has waited for an election timeout asks anew."""
    for batch, forwarded in list(state.forwarded_reads.items()):
        if state.now - forwarded.asked_at >= state.options.election_timeout:
            _refuse(state, batch)


def _refuse(state: RaftState, batch: int) -> None:
    forwarded = state.forwarded_reads.pop(batch)
    state.out.reads += [ReadRefused(request_id, "NOT_LEADER", state.leader) for request_id in forwarded.request_ids]
