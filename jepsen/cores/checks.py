"""What must hold across the cores of a cluster (Raft thesis, figure 3.2), checked as it happens."""

from __future__ import annotations

from ...raft.core.entry import Entry
from ...raft.core.events import Role
from ...raft.core.messages import AppendEntriesResponse, Message, RequestVote, RequestVoteResponse
from ...raft.core.state import RaftState
from .disk import Disk


class ClusterChecks:
    """Remembers who led, what was written and what was committed, over the whole run."""

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}
        """Who led in which term."""
        self.committed: list[Entry] = []
        """Every committed entry, from index 1 on, as the first node to commit it saw it."""
        self._committed_in: list[int] = []
        """In which term each of them was committed, as far as seen: never lower than it was."""
        self._written: dict[tuple[int, int], tuple[Entry, int]] = {}
        self._committed_to: dict[str, int] = {}
        self._applied_to: dict[str, int] = {}

    def restarted(self, name: str) -> None:
        self._committed_to[name] = 0
        self._applied_to[name] = 0

    def after_step(self, name: str, was: Role, raft: RaftState, written: list[Entry], apply_to: int) -> None:
        for entry in written:
            self._check_entry(name, entry, raft.log.term_at(entry.index - 1))
        if raft.role is Role.LEADER and was is not Role.LEADER:
            self._check_elected(name, raft)
        if raft.commit_index > self._committed_to[name]:
            self._check_committed(name, raft)
        if apply_to:
            self._check_applied(name, raft, apply_to)

    def _check_entry(self, name: str, entry: Entry, previous_term: int) -> None:
        """Log matching: index and term name one entry, and what stands before it."""
        known = self._written.setdefault((entry.index, entry.term), (entry, previous_term))
        if known != (entry, previous_term):
            raise AssertionError(
                f"log matching: {name} wrote {entry} after term {previous_term}, elsewhere it is {known[0]} "
                f"after term {known[1]}"
            )

    def _check_elected(self, name: str, raft: RaftState) -> None:
        other = self.leaders.setdefault(raft.current_term, name)
        if other != name:
            raise AssertionError(f"election safety: {name} and {other} both led term {raft.current_term}")
        # Late votes may make a leader of an earlier term, which owes nothing to what later terms have
        # committed. With log matching, the last entry that it does owe stands for all before it.
        index = len(self.committed)
        while index and self._committed_in[index - 1] >= raft.current_term:
            index -= 1
        if index and raft.log.term_at(index) != self.committed[index - 1].term:
            raise AssertionError(
                f"leader completeness: {name} leads term {raft.current_term} without {self.committed[index - 1]}"
            )

    def _check_committed(self, name: str, raft: RaftState) -> None:
        start = self._committed_to[name] + 1
        for entry in raft.log.slice(start, raft.commit_index):
            if entry.index > len(self.committed):
                self.committed.append(entry)
                self._committed_in.append(raft.current_term)
            elif self.committed[entry.index - 1] != entry:
                raise AssertionError(
                    f"state machine safety: {name} committed {entry}, before it was {self.committed[entry.index - 1]}"
                )
        self._committed_to[name] = raft.commit_index

    def _check_applied(self, name: str, raft: RaftState, apply_to: int) -> None:
        for entry in raft.log.slice(self._applied_to[name] + 1, apply_to):
            if entry.index > len(self.committed) or self.committed[entry.index - 1] != entry:
                raise AssertionError(f"state machine safety: {name} applied {entry}, which is not committed")
        self._applied_to[name] = apply_to


def check_spoken(name: str, to: str, message: Message, disk: Disk) -> None:
    """A message that leaves says nothing that a crash at this moment would make untrue (S05, S13).

    Judged by the disk alone, whatever the core believes to be on it.
    """
    saved = disk.hard_state
    match message:
        case RequestVote(term=term):
            if saved.term < term or (saved.term == term and saved.voted_for != name):
                raise AssertionError(f"{name} asked for votes in term {term} with {saved} on its disk")
        case RequestVoteResponse(term=term, granted=True):
            if saved.term < term or (saved.term == term and saved.voted_for != to):
                raise AssertionError(f"{name} granted {to} its vote in term {term} with {saved} on its disk")
        case AppendEntriesResponse(term=term, success=True, match_index=match_index):
            # In a later term the entries may have been replaced since: that is another leader's word.
            if saved.term < term or (saved.term == term and len(disk.entries) < match_index):
                raise AssertionError(
                    f"{name} acknowledged {match_index} in term {term} with {len(disk.entries)} entries and {saved} "
                    "on its disk"
                )
        case _:
            if saved.term < message.term - 1:  # A pre-vote names the term after the current one.
                raise AssertionError(f"{name} spoke for term {message.term} with {saved} on its disk")
