"""``Raft.step(event) -> effects``: the whole core behind one function."""

from __future__ import annotations

from . import append_entries, commitment, election, replication
from .events import (
    Campaign,
    Durable,
    Effects,
    Event,
    Propose,
    Receive,
    Refused,
    Role,
    StepDown,
    StorageFailed,
    Tick,
    Unreachable,
)
from .messages import (
    AppendEntries,
    AppendEntriesResponse,
    Message,
    PreVote,
    PreVoteResponse,
    RequestVote,
    RequestVoteResponse,
)
from .progress import ProgressState
from .state import RaftState

NEVER = 1 << 62
"""Nanoseconds; no clock gets there."""


class Raft(RaftState):
    """A Raft node as a function of its events. No clock, no chance, no I/O of its own."""

    def step(self, event: Event) -> Effects:
        """Take one event and return what has to be done about it.

        Raises AssertionError on a violated invariant: the caller must stop the node.
        """
        self.out = Effects()
        if self.failed:
            if isinstance(event, Propose):
                self.out.proposed = Refused("NOT_LEADER", "")  # A proposer is always answered (S44).
            return self.out
        # Monotonic clocks do not go back; an event that was stamped before another one that has
        # been handled since is simply handled now.
        if event.now > self.now:
            self.now = event.now
        self.append_cache = None
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
                progress = self.progress.get(event.peer)
                # Where a probe has got to is kept: going back to the last known match would send the
                # whole log again to a node that was only away while this leader was elected.
                if progress is not None and progress.state is ProgressState.REPLICATE:
                    progress.become_probe()
            case Campaign():
                if self.role is not Role.LEADER:
                    election.start_election(self)
            case StepDown():
                if self.role is not Role.FOLLOWER:
                    self.become_follower(self.current_term, "", event.reason)
                    # Whoever gives up for a reason must not be the first to ask again: the others'
                    # timers run out within two timeouts of its last heartbeat.
                    self.election_deadline += 2 * self.options.election_timeout
            case StorageFailed():
                if self.role is not Role.FOLLOWER:
                    self.become_follower(self.current_term, "", "storage failed")
                self.failed = True
                return self.out
        self.close_write()
        commitment.report_apply(self)
        return self.out

    def deadline(self) -> int:
        """The monotonic time at which the next :class:`Tick` is wanted, nanoseconds."""
        if self.failed:
            return NEVER
        return replication.leader_deadline(self) if self.role is Role.LEADER else self.election_deadline

    @property
    def is_busy(self) -> bool:
        """Whether client proposals would be refused as BUSY now."""
        return self.uncommitted_bytes >= self.options.uncommitted_bytes_max

    def holds_lease(self, now: int) -> bool:
        """Whether this node leads and a quorum followed it within an election timeout before ``now``.

        Followers refuse their votes for at least that long after they heard from it, unless they
        restart and forget. It makes refusals at resources rare; it is not the safety argument
        (concepts: From winning an election to acting).
        """
        return (
            self.role is Role.LEADER
            and not self.failed
            # Votes are no promise to refuse others: until a quorum has taken this term's no-op,
            # nobody has followed.
            and self.commit_index >= self.term_start_index
            and now - min(replication.quorum_contact_at(self), now) < self.options.election_timeout
        )

    def _receive(self, source: str, message: Message) -> None:
        match message:
            case AppendEntries():
                append_entries.handle_append_entries(self, source, message)
            case AppendEntriesResponse():
                replication.handle_append_entries_response(self, source, message)
            case PreVote():
                election.handle_pre_vote(self, source, message)
            case PreVoteResponse():
                election.handle_pre_vote_response(self, source, message)
            case RequestVote():
                election.handle_request_vote(self, source, message)
            case RequestVoteResponse():
                election.handle_request_vote_response(self, source, message)

    def _durable(self, sequence: int) -> None:
        pending = self.pending_writes
        while pending and pending[0].sequence <= sequence:
            write = pending.popleft()
            self.durable_sequence = write.sequence
            self.durable_index = max(self.durable_index, write.last_index)
        if self.role is Role.LEADER:
            commitment.advance_commit_index(self)
        else:
            election.own_vote_durable(self)

    def _tick(self) -> None:
        if self.role is Role.LEADER:
            replication.leader_tick(self)
        elif self.now >= self.election_deadline:
            election.start_election(self)
