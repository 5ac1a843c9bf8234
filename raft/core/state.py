"""Everything the core knows, and the few moves that every file of it shares.

The rules themselves live beside this file, one idea each: ``election``, ``append_entries``
(the follower's side), ``replication`` (the leader's side), ``commitment``. ``step`` dispatches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .configuration import Configuration
from .entry import Entry, HardState
from .events import Effects, Persist, Role, RoleChange, Send
from .log import RaftLog
from .messages import AppendEntries, Message
from .options import Options
from .progress import Progress


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
    ) -> None:
        """``between(low, high)`` is the injected randomness. ``commit_index`` is a recovered lower bound."""
        self.node_id = node_id
        self.configuration = configuration
        self.options = options
        self.between = between
        self.log = RaftLog(entries)
        # The log may know a later term than the saved one after damage; a term is never reused (S03).
        self.current_term = max(hard_state.term, self.log.last_term)
        self.voted_for = hard_state.voted_for if self.current_term == hard_state.term else ""
        if commit_index > self.log.last_index:
            raise AssertionError(f"recovered commit index {commit_index} is past the log's end {self.log.last_index}")
        self.commit_index = commit_index
        self.apply_reported = 0
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
        self.last_leader_contact = -(1 << 62)
        self.election_deadline = 0
        self.heartbeat_deadline = 0
        self.progress: dict[str, Progress] = {}
        self.term_start_index = 0
        """Index of this leader's no-op, while it leads."""
        self.uncommitted: deque[tuple[int, int]] = deque()
        self.uncommitted_bytes = 0

        self.now = now
        self.out = Effects()
        self.append_cache: tuple[int, int, AppendEntries] | None = None
        self._write_open = False
        self._write_hard_state = False
        self._write_truncate = 0
        self._write_entries: list[Entry] = []
        self.reset_election_deadline()
        if self.current_term != hard_state.term:
            self.save_hard_state()

    # -- reading ----------------------------------------------------------------------------------

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.configuration.voters

    @property
    def peers(self) -> list[str]:
        return [voter for voter in self.configuration.voters if voter != self.node_id]

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
            )
        )
        self.pending_writes.append(PendingWrite(self.write_sequence, self.log.last_index, self.now))
        self._write_open = False
        self._write_hard_state = False
        self._write_truncate = 0
        self._write_entries = []

    # -- speaking ---------------------------------------------------------------------------------

    def send(self, to: str, message: Message, after: int = 0) -> None:
        """Send once write ``after`` is durable; never before the current term and vote are (S05)."""
        after = max(after, self.hard_state_sequence)
        self.out.sends.append(Send(to, message, after if after > self.durable_sequence else 0))

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
        self.term_start_index = 0
        self.uncommitted.clear()
        self.uncommitted_bytes = 0
        if changed:
            self.report_role(reason)

    def report_role(self, reason: str) -> None:
        self.out.role_changes.append(RoleChange(self.role, self.current_term, self.leader, reason))
