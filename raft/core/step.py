"""``Raft.step(event) -> effects``: the whole core behind one function."""

from __future__ import annotations

from . import (
    answers,
    append_entries,
    commitment,
    election,
    install_snapshot,
    leading,
    membership,
    read_index,
    replication,
    snapshot,
    transfer,
)
from .events import (
    Campaign,
    ChangeConfiguration,
    ChunkStored,
    ChunkUnavailable,
    Durable,
    Effects,
    EntriesRead,
    Event,
    Propose,
    Read,
    ReadRefused,
    Receive,
    Refused,
    Role,
    SnapshotNotTaken,
    SnapshotReceived,
    SnapshotTaken,
    SnapshotUnusable,
    StepDown,
    StorageFailed,
    Tick,
    TransferLeadership,
    Unreachable,
)
from .messages import (
    AppendEntries,
    AppendEntriesResponse,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    PreVote,
    PreVoteResponse,
    ReadIndex,
    ReadIndexResponse,
    RequestVote,
    RequestVoteResponse,
    TimeoutNow,
)
from .progress import ProgressState
from .state import RaftState

NEVER = 1 << 62
"""Nanoseconds; no clock gets there."""


class Raft(RaftState):
    """A Raft node as a function of its events. No clock, no chance, no I/O of its own."""

    def step(self, event: Event) -> Effects:
        """Take one event and return what has to be done about it.

        Raises AssertionError on a violated invariant, :class:`~.errors.UnknownEntry` for a configuration
        that this version cannot read: either way the caller must stop the node.
        """
        self.out = Effects()
        if self.failed:
            self._refuse(event)
            return self.out
        # Monotonic clocks do not go back; an event that was stamped before another one that has
        # been handled since is simply handled now.
        if event.now > self.now:
            self.now = event.now
        self.append_cache = None
        applied = self.apply_reported
        if self.role is Role.LEADER and type(event) is not Receive and self.lost_quorum():
            # Before anything is sent that would renew a follower. A message is heard first: it may be
            # the answer that was missing.
            self.become_follower(self.current_term, "", "no contact with a quorum")
        if type(event) is StorageFailed:
            self._storage_failed()
            return self.out
        self._handle(event)
        if self.pending_reads or self.forwarded_reads:
            read_index.drop_reads(self)
        self.close_write()
        commitment.report_apply(self)
        if self.out.apply_to:
            # What was reported before is applied by now, or its reader knows that it may be on disk only.
            self.log.shed(applied, self.options.window_entries, self.options.window_bytes)
            snapshot.want_snapshot(self, applied)
        return self.out

    def _refuse(self, event: Event) -> None:
        """Whoever asks is always answered (S44)."""
        match event:
            case Propose() | ChangeConfiguration():
                self.out.proposed = Refused("NOT_LEADER", "")
            case TransferLeadership():
                self.out.transfer = Refused("NOT_LEADER", "")
            case Read():
                self.out.reads = [ReadRefused(request_id, "NOT_LEADER", "") for request_id in event.request_ids]

    def _handle(self, event: Event) -> None:
        match event:
            case Receive():
                self._receive(event.source, event.message)
            case Durable():
                self._durable(event.sequence)
            case Propose():
                replication.handle_propose(self, event)
            case Tick():
                self._tick()
            case Unreachable():
                self._unreachable(event.peer)
            case Campaign():
                # A timeout without a word keeps this node's promise to a leader that answers from its lease.
                promised = self.options.lease_reads and self.has_live_leader()
                if self.role is not Role.LEADER and not promised:
                    election.start_election(self)
            case StepDown():
                if self.role is not Role.FOLLOWER:
                    self.become_follower(self.current_term, "", event.reason)
                    # Whoever gives up for a reason must not be the first to ask again: the others'
                    # timers run out within two timeouts of its last heartbeat.
                    self.election_deadline += 2 * self.options.election_timeout
            case Read():
                read_index.handle_read(self, event)
            case EntriesRead():
                replication.entries_read(self, event)
            case ChangeConfiguration():
                membership.handle_change_configuration(self, event)
            case TransferLeadership():
                transfer.handle_transfer(self, event)
            case _:
                self._snapshot_event(event)

    def _snapshot_event(self, event: Event) -> None:
        match event:
            case SnapshotTaken():
                snapshot.snapshot_taken(self, event)
            case SnapshotNotTaken():
                snapshot.snapshot_not_taken(self)
            case ChunkUnavailable():
                install_snapshot.chunk_unavailable(self, event.to)
            case ChunkStored():
                install_snapshot.chunk_stored(self, event)
            case SnapshotReceived():
                install_snapshot.snapshot_received(self, event)
            case SnapshotUnusable():
                install_snapshot.snapshot_unusable(self, event)

    def deadline(self) -> int:
        """The monotonic time at which the next :class:`Tick` is wanted, nanoseconds."""
        if self.failed:
            return NEVER
        return leading.leader_deadline(self) if self.role is Role.LEADER else self.election_deadline

    @property
    def is_busy(self) -> bool:
        """Whether client proposals would be refused as BUSY now."""
        return self.transfer is not None or self.uncommitted_bytes >= self.options.uncommitted_bytes_max

    def holds_lease(self, now: int) -> bool:
        """Whether this node leads and a quorum followed it within an election timeout before ``now``: the shortest one
        of theirs and its own.

        Followers refuse their votes for at least that long after they heard from it, unless they
        restart and forget, or leadership is being handed over. It makes refusals at resources rare; it
        is not the safety argument (concepts: From winning an election to acting).
        """
        return (
            self.role is Role.LEADER
            and not self.failed
            and self.transfer is None
            # Votes are no promise to refuse others: until a quorum has taken this term's no-op,
            # nobody has followed.
            and self.commit_index >= self.term_start_index
            and now - min(self.quorum_contact, now) < self.lease_bound()
        )

    def lease_left(self, now: int) -> int | None:
        """Nanoseconds until this leader would give up, if nobody answered any more; below zero it is overdue. None
        where it does not lead, or nobody has followed yet."""
        if self.role is not Role.LEADER or self.commit_index < self.term_start_index:
            return None
        return min(self.quorum_contact, now) + self.options.election_timeout - now

    def stale_age(self, now: int) -> int | None:
        """How old the state here may be, as far as this node knows: nanoseconds since a leader's word was
        heard, or since a quorum followed this leader. None if there is none, or if something is known to be
        committed that the state lacks: for how long, nobody says."""
        if self.apply_reported < max(self.commit_index, self.told_commit_index):
            return None
        if self.role is Role.LEADER:
            return now - min(self.quorum_contact, now)
        return now - self.last_leader_contact if self.leader else None

    def _receive(self, source: str, message: Message) -> None:
        match message:
            case AppendEntries():
                append_entries.handle_append_entries(self, source, message)
            case AppendEntriesResponse():
                answers.handle_append_entries_response(self, source, message)
            case PreVote():
                election.handle_pre_vote(self, source, message)
            case PreVoteResponse():
                election.handle_pre_vote_response(self, source, message)
            case RequestVote():
                election.handle_request_vote(self, source, message)
            case RequestVoteResponse():
                election.handle_request_vote_response(self, source, message)
            case InstallSnapshot():
                install_snapshot.handle_install_snapshot(self, source, message)
            case InstallSnapshotResponse():
                answers.handle_install_snapshot_response(self, source, message)
            case TimeoutNow():
                election.handle_timeout_now(self, source, message)
            case ReadIndex():
                read_index.handle_read_index(self, source, message)
            case ReadIndexResponse():
                read_index.handle_read_index_response(self, message)

    def _durable(self, sequence: int) -> None:
        pending = self.pending_writes
        while pending and pending[0].sequence <= sequence:
            write = pending.popleft()
            self.durable_sequence = write.sequence
            self.durable_index = max(self.durable_index, write.last_index)
        if self.role is not Role.LEADER:
            election.own_vote_durable(self)
        elif commitment.advance_commit_index(self):
            answers.committed_more(self)

    def _tick(self) -> None:
        if self.role is Role.LEADER:
            leading.leader_tick(self)
            return
        if self.forwarded_reads:
            read_index.drop_old_reads(self)
        if self.now >= self.election_deadline:
            election.start_election(self)

    def _unreachable(self, peer: str) -> None:
        progress = self.progress.get(peer)
        if progress is None:
            return
        # Where a probe has got to is kept: going back to the last known match would send the
        # whole log again to a node that was only away while this leader was elected.
        if progress.state is ProgressState.REPLICATE:
            progress.become_probe()
        elif progress.state is ProgressState.SNAPSHOT:
            progress.chunk_sent_at = 0

    def _storage_failed(self) -> None:
        # Nor does it follow anybody: what it has asked its leader will not be answered.
        self.become_follower(self.current_term, "", "storage failed")
        read_index.drop_reads(self)
        self.failed = True
        self.out.sends.clear()
