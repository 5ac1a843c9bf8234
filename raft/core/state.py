"""Everything the core knows, and the few moves that every file of it shares.

The rules themselves live beside this file, one idea each: ``election``, ``append_entries``
(the follower's side), ``replication`` (the leader's side), ``commitment``, ``membership``,
``transfer``, ``read_index``, ``snapshot``, ``install_snapshot``. ``step`` dispatches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .configuration import Configuration, decode_configuration
from .entry import Entry, EntryKind, HardState, Snapshot
from .events import Effects, Persist, Role, RoleChange, Send
from .log import OlderEntries, RaftLog
from .messages import AppendEntries, Message
from .options import Options
from .progress import Progress
from .quorum import quorum_value
from .sizes import LogSizes
from .waiting import ForwardedRead, Incoming, PendingRead, Transfer


class PendingWrite:
    """A write handed out and not yet durable.

    ``last_index`` is the last index it makes durable; lowered when a truncation overtakes it, so
    that the completion of an overwritten write says nothing about its replacement (S18).
    """

    __slots__ = ("last_index", "sequence", "started_at")

    def __init__(self, sequence: int, last_index: int, started_at: int) -> None:
        self.sequence = sequence
        self.last_index = last_index
        self.started_at = started_at


class RaftState:
    """The state of one Raft node. Only ``step`` changes it."""

    def __init__(
        self,
        *,
        node_id: str,
        configuration: Configuration,
        hard_state: HardState,
        entries: list[Entry],
        commit_index: int,
        options: Options,
        between: Callable[[int, int], int],
        now: int,
        snapshot: Snapshot | None = None,
        previous_index: int = 0,
        previous_term: int = 0,
        older: OlderEntries | None = None,
    ) -> None:
        """``between(low, high)`` is the injected randomness. ``commit_index`` is a recovered lower bound.

        ``configuration`` is the one the cluster began with: snapshot and log know better if they have
        another. ``snapshot`` is the newest one that is durable here, ``previous_index`` and
        ``previous_term`` say what the log goes on behind, and ``older`` what is known of the entries that
        stand between that and the first of ``entries``, on disk only.
        Raises :class:`~.errors.UnknownEntry` for a configuration that this version cannot read.
        """
        self.node_id = node_id
        self.options = options
        self.between = between
        self.now = now
        self.out = Effects()
        self.snapshot = snapshot
        time_ns = 0 if snapshot is None else snapshot.last_time_ns
        self.log = RaftLog(entries, previous_index, previous_term, time_ns, older)
        superseded = snapshot is not None and not self.log.matches(snapshot.last_index, snapshot.last_term)
        if snapshot is not None and superseded:
            # Received and published, and then the power went before the log was told (S15).
            if max(commit_index, previous_index) > snapshot.last_index:
                raise AssertionError(
                    f"the log begins behind {previous_index} and is committed to {commit_index}: "
                    f"{snapshot} is older, the newest one must have been lost"
                )
            self.log.reset(snapshot.last_index, snapshot.last_term, snapshot.last_time_ns)
        # The log may know a later term than the saved one after damage; a term is never reused (S03).
        self.current_term = max(hard_state.term, self.log.last_term)
        self.voted_for = hard_state.voted_for if self.current_term == hard_state.term else ""
        if snapshot is not None:
            commit_index = max(commit_index, snapshot.last_index)
        if commit_index > self.log.last_index:
            raise AssertionError(f"recovered commit index {commit_index} is past the log's end {self.log.last_index}")
        if commit_index + 1 < self.log.window_start:
            raise AssertionError(f"entries left on disk before {self.log.window_start}, committed to {commit_index}")
        self.commit_index = commit_index
        self.told_commit_index = 0
        """The highest index that a leader has said to be committed; this log may lack what is there."""
        self.apply_reported = snapshot.last_index if snapshot is not None else 0
        if self.log.previous_index > self.apply_reported:
            raise AssertionError(f"entries up to {self.log.previous_index} are gone, a snapshot holds {snapshot}")
        self.role = Role.FOLLOWER
        self.leader = ""
        self.failed = False

        self.write_sequence = 0
        self.durable_sequence = 0
        self.durable_index = self.log.last_index
        self.hard_state_sequence = 0
        """The last write that carried term or vote: what every answer waits for (S05)."""
        self.pending_writes: deque[PendingWrite] = deque()

        self.votes: dict[str, bool] = {}
        self.pre_vote_round = 0
        self.votes_refused: dict[str, int] = {}
        """By reason: votes and pre-votes that this node asked for and was refused. Nothing rests on it."""
        self.removed = False
        """A voter has said that this node was taken out of the cluster for good."""
        # Whoever has promised a leader to keep its vote to itself has forgotten it with the process.
        self.last_leader_contact = now if options.lease_reads else -(1 << 62)
        self.election_deadline = 0
        self.heartbeat_deadline = 0
        self.progress: dict[str, Progress] = {}
        self.departing: dict[str, int] = {}
        """Peers that are members no more, and the index of the configuration that they still have to hear of."""
        self.quorum_contact = 0
        """See ``replication.quorum_contact_at``."""
        self.transfer: Transfer | None = None
        self.lease_forfeited = False
        """Somebody was told to campaign in spite of this leader: votes may be given away behind its back."""
        self.pending_reads: deque[PendingRead] = deque()
        self.read_round_at = 0
        """When heartbeats were last sent for the sake of reads."""
        self.forwarded_reads: dict[int, ForwardedRead] = {}
        """By batch."""
        self.read_batch = 0
        self.term_start_index = 0
        """Index of this leader's no-op, while it leads."""
        self.uncommitted: deque[tuple[int, int]] = deque()
        self.uncommitted_bytes = 0

        self.incoming: Incoming | None = None
        """The snapshot that is being received."""
        self.snapshot_wanted = False
        """``Effects.take_snapshot`` was given out and is not answered."""
        self.snapshot_again_at = 0
        """After one that could not be taken: not before this time, monotonic nanoseconds."""
        self.applied_bytes = 0
        """Payload bytes applied since the newest snapshot."""
        if older is not None:
            self.applied_bytes = older.bytes_after(self.apply_reported)
        self.labelled_bytes = 0
        """How many of them a snapshot holds that was asked for."""
        self.sizes = LogSizes(options.retained_bytes)
        if not superseded:
            for last_index, size in older.sizes if older is not None else ():
                self.sizes.add(last_index, size)
            self.sizes.add_entries([entry for entry in entries if entry.index <= self.apply_reported])

        self.append_cache: tuple[int, int, AppendEntries, int] | None = None
        self._write_open = False
        self._write_hard_state = False
        self._write_truncate = 0
        self._write_reset: Snapshot | None = None
        self._write_compact_to = 0
        self._write_entries: list[Entry] = []

        base = (0, configuration) if snapshot is None else (snapshot.configuration_index, snapshot.configuration)
        self._configurations = [base]
        if older is not None:
            self._note_configurations(older.configurations)
        self._note_configurations(entries)
        self.configuration = self._configurations[-1][1]
        self.reset_election_deadline()
        if self.current_term != hard_state.term:
            self.save_hard_state()
        if snapshot is not None and superseded:
            self._open_write()
            self._write_reset = snapshot

    # -- reading ----------------------------------------------------------------------------------

    @property
    def is_voter(self) -> bool:
        return self.configuration.is_voter(self.node_id)

    @property
    def may_be_needed(self) -> bool:
        """Whether an election may need this node: as a voter in force, or of a configuration before that
        which may still be in force for others. It may have the longest log of all, and then nobody is
        elected without it (thesis section 4.2.2)."""
        committed_at = self.configuration_at(self.commit_index)[0]
        return any(
            index >= committed_at and configuration.is_voter(self.node_id)
            for index, configuration in self._configurations
        )

    @property
    def voting_peers(self) -> list[str]:
        """Whose votes count beside our own."""
        configuration = self.configuration
        voters = sorted({*configuration.voters, *configuration.outgoing})
        return [voter for voter in voters if voter != self.node_id]

    @property
    def peers(self) -> list[str]:
        """Everybody else who receives the log."""
        return [member for member in self.configuration.members if member != self.node_id]

    @property
    def configuration_index(self) -> int:
        """Where the configuration in force stands in the log; 0 for the one the cluster began with."""
        return self._configurations[-1][0]

    def configuration_at(self, index: int) -> tuple[int, Configuration]:
        """The newest configuration at or below ``index``, which must not be before the newest snapshot."""
        known = self._configurations
        place = len(known) - 1
        while place and known[place][0] > index:
            place -= 1
        return known[place]

    def committed_configuration(self) -> Configuration:
        """The newest configuration that is known to be committed."""
        return self.configuration_at(self.commit_index)[1]

    def lost_quorum(self) -> bool:
        """Check-quorum: nothing has come from a quorum for an election timeout (thesis section 6.2)."""
        return (
            self.options.check_quorum and self.now - min(self.quorum_contact, self.now) >= self.options.election_timeout
        )

    def has_live_leader(self) -> bool:
        """Leader stickiness (thesis section 4.2.3): a leader was heard within the smallest election timeout."""
        if not self.options.check_quorum:
            return False
        if self.role is Role.LEADER:
            return True
        # Judged by the contact alone: a higher term learnt from some late answer makes the node
        # forget who leads, but the leader still counts on not being voted out for this long.
        return self.now - self.last_leader_contact < self.options.election_timeout

    def disk_is_stalled(self) -> bool:
        """The oldest write has been pending for longer than the bound (S07)."""
        pending = self.pending_writes
        return bool(pending) and self.now - pending[0].started_at > self.options.stall_bound

    # -- writing ----------------------------------------------------------------------------------

    def _open_write(self) -> int:
        """The sequence number of this step's write, which is made at the end of the step."""
        if not self._write_open:
            self._write_open = True
            self.write_sequence += 1
        return self.write_sequence

    def save_hard_state(self) -> None:
        self.hard_state_sequence = self._open_write()
        self._write_hard_state = True

    def append_entries(self, entries: list[Entry]) -> None:
        self._open_write()
        self.log.append(entries)
        self._write_entries = self._write_entries + entries if self._write_entries else entries
        if self._note_configurations(entries):
            self._configuration_changed()

    def truncate_from(self, index: int) -> None:
        """Delete from ``index`` on. Never at or below the commit index (S17)."""
        if index <= self.commit_index:
            raise AssertionError(f"truncation at {index} would delete committed entries up to {self.commit_index}")
        self._open_write()
        self.log.truncate_from(index)
        self._write_truncate = index
        self.durable_index = min(self.durable_index, index - 1)
        for write in self.pending_writes:
            write.last_index = min(write.last_index, index - 1)
        if self._configurations[-1][0] >= index:
            # Back to what was in force before: a configuration counts while it is in the log (S25).
            while self._configurations[-1][0] >= index:
                self._configurations.pop()
            self._configuration_changed()

    def reset_log(self, snapshot: Snapshot) -> None:
        """Drop the log for a snapshot that is durable here and not part of it (S15). What was committed is
        in the snapshot, whose configuration replaces every one that it covers (S27)."""
        if snapshot.last_index <= self.commit_index:
            raise AssertionError(f"{snapshot} would take committed entries up to {self.commit_index} away")
        self._open_write()
        self.log.reset(snapshot.last_index, snapshot.last_term, snapshot.last_time_ns)
        self.sizes.forget(snapshot.last_index)
        self._write_reset = snapshot
        # The snapshot is durable, and a start with it repairs a log that was not told.
        self.durable_index = snapshot.last_index
        for write in self.pending_writes:
            write.last_index = 0
        self._configurations = [(snapshot.configuration_index, snapshot.configuration)]
        self._configuration_changed()

    def compact_log(self, index: int) -> None:
        """Let entries up to ``index`` go, which ``self.snapshot`` holds."""
        assert self.snapshot is not None
        if index > self.snapshot.last_index:
            raise AssertionError(f"compaction to {index}, past the snapshot of {self.snapshot.last_index}")
        self._open_write()
        self.log.compact_to(index)
        self.sizes.forget(index)
        self._write_compact_to = index

    def rebase_configurations(self, snapshot: Snapshot) -> None:
        """Forget configurations that a snapshot stands for."""
        later = [known for known in self._configurations if known[0] > snapshot.last_index]
        before = self.configuration
        self._configurations = [(snapshot.configuration_index, snapshot.configuration), *later]
        if self._configurations[-1][1] != before:
            self._configuration_changed()

    def _note_configurations(self, entries: list[Entry]) -> bool:
        """A configuration is in force as soon as it is in the log (thesis section 4.1)."""
        found = [
            (entry.index, decode_configuration(entry.data))
            for entry in entries
            if entry.kind == EntryKind.CONFIGURATION and entry.index > self._configurations[-1][0]
        ]
        self._configurations += found
        return bool(found)

    def _configuration_changed(self) -> None:
        self.configuration = self._configurations[-1][1]
        self.out.configuration = self.configuration

    def close_write(self) -> None:
        """End of the step: hand out what it wrote as one :class:`Persist`."""
        if not self._write_open:
            return
        self.out.persist.append(
            Persist(
                self.write_sequence,
                HardState(self.current_term, self.voted_for) if self._write_hard_state else None,
                self._write_truncate,
                self._write_entries,
                self.commit_index,
                self._write_reset,
                self._write_compact_to,
            )
        )
        self.pending_writes.append(PendingWrite(self.write_sequence, self.log.last_index, self.now))
        self._write_open = False
        self._write_hard_state = False
        self._write_truncate = 0
        self._write_reset = None
        self._write_compact_to = 0
        self._write_entries = []

    # -- speaking ---------------------------------------------------------------------------------

    def send(self, to: str, message: Message, after: int = 0) -> None:
        """Send once write ``after`` is durable; never before the current term and vote are (S05)."""
        self.out.sends.append(Send(to, message, self.sendable_after(after)))

    def sendable_after(self, after: int = 0) -> int:
        """The write that a message has to wait for which needs ``after``; 0 for none."""
        after = max(after, self.hard_state_sequence)
        return after if after > self.durable_sequence else 0

    def note_contact(self) -> None:
        """Since when a quorum is known to have followed this leader: the *send* time of what they have
        answered (thesis section 6.4.1). A leader is always in contact with itself."""
        contacts = {peer: progress.contact_at for peer, progress in self.progress.items()}
        contacts[self.node_id] = 1 << 62
        self.quorum_contact = quorum_value(self.configuration, contacts)

    def lease_bound(self) -> int:
        """For how long after the sending of what a quorum has answered nobody else can have been voted for: the
        shortest of what this leader and those that answered it go by, nanoseconds. Their settings may differ (S49)."""
        promises = [progress.promise for progress in self.progress.values() if progress.promise]
        return min(self.options.election_timeout, *promises) if promises else self.options.election_timeout

    # -- timers and roles -------------------------------------------------------------------------

    def reset_election_deadline(self) -> None:
        timeout = self.options.election_timeout
        self.election_deadline = self.now + self.between(timeout, 2 * timeout)

    def become_follower(self, term: int, leader: str, reason: str) -> None:
        """Follow in ``term``. Only a strictly higher term clears the vote."""
        if term > self.current_term:
            self.current_term = term
            self.voted_for = ""
            self.save_hard_state()
        changed = self.role is not Role.FOLLOWER or self.leader != leader
        if self.role is not Role.FOLLOWER:
            self.reset_election_deadline()
        self.role = Role.FOLLOWER
        self.leader = leader
        self.votes = {}
        self.progress = {}
        self.departing = {}
        self.transfer = None
        self.lease_forfeited = False
        self.quorum_contact = 0
        self.term_start_index = 0
        self.uncommitted.clear()
        self.uncommitted_bytes = 0
        if changed:
            self.report_role(reason)

    def report_role(self, reason: str) -> None:
        self.out.role_changes.append(RoleChange(self.role, self.current_term, self.leader, reason))
