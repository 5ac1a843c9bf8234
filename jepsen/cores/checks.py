"""What must hold across the cores of a cluster (Raft thesis, figure 3.2), checked as it happens.

Judged by what is on the disks wherever a core says that others hold something, whatever it believes.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...raft.core.configuration import Configuration
from ...raft.core.entry import Entry, EntryKind, Snapshot
from ...raft.core.events import Role
from ...raft.core.invariants import Summary
from ...raft.core.state import RaftState
from .machine import Machine, next_digest
from .members import MemberChecks
from .parts import Node


class ClusterChecks:
    """Remembers who led, what was written and what was committed, over the whole run."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.leaders: dict[int, str] = {}
        """Who led in which term."""
        self.committed: list[Entry] = []
        """Every committed entry, from index 1 on, as the first node to commit it saw it."""
        self.digests: list[int] = [0]
        """The state after each of them, from index 0 on."""
        self.members = MemberChecks()
        self._nodes = nodes
        self._committed_in: list[int] = []
        """In which term each of them was committed, as far as seen: never lower than it was."""
        self._written: dict[tuple[int, int], tuple[Entry, int]] = {}
        self._committed_to: dict[str, int] = {}
        self._applied_to: dict[str, int] = {}
        """What each node has ever applied, over all its lives."""

    # -- processes --------------------------------------------------------------------------------

    def crashed(self, name: str) -> None:
        self._committed_to[name] = 0

    def restarted(self, node: Node) -> None:
        """What a node has acted on, it finds again (S20)."""
        raft, name = node.raft, node.name
        assert raft is not None
        applied = self._applied_to.get(name, 0)
        if raft.log.last_index < applied:
            raise AssertionError(f"{name} had applied {applied} and starts with a log to {raft.log.last_index}")
        for entry in self._entries(name, raft, raft.log.first_index, min(applied, raft.log.last_index)):
            if entry != self.committed[entry.index - 1] or raft.log.term_at(entry.index) != entry.term:
                raise AssertionError(f"{name} had applied {self.committed[entry.index - 1]} and starts with {entry}")
        self._committed_to[name] = min(raft.log.previous_index, len(self.committed))
        self._check_committed(name, raft)

    # -- one step ---------------------------------------------------------------------------------

    def after_step(self, name: str, before: Summary, raft: RaftState, written: list[Entry]) -> None:
        for entry in written:
            self._check_entry(name, entry, raft.log.term_at(entry.index - 1))
            if entry.kind == EntryKind.CONFIGURATION and raft.role is Role.LEADER:
                self.members.check_appended(name, entry, raft)
        if raft.role is Role.LEADER and before.role is not Role.LEADER:
            self._check_elected(name, raft)
        led = before.role is Role.LEADER and before.current_term == raft.current_term
        if led and raft.commit_index > before.commit_index:
            self._check_counted(name, before, raft)
        if raft.commit_index > self._committed_to.setdefault(name, 0):
            self._check_committed(name, raft)

    def _check_entry(self, name: str, entry: Entry, previous_term: int) -> None:
        """Log matching: index and term name one entry, and what stands before it."""
        known = self._written.setdefault((entry.index, entry.term), (entry, previous_term))
        if known != (entry, previous_term):
            raise AssertionError(
                f"log matching: {name} wrote {entry} after term {previous_term}, elsewhere it is {known[0]} "
                f"after term {known[1]}"
            )

    def _check_elected(self, name: str, raft: RaftState) -> None:
        term = raft.current_term
        other = self.leaders.setdefault(term, name)
        if other != name:
            raise AssertionError(f"election safety: {name} and {other} both led term {term}")
        voted = {voter for voter, node in self._nodes.items() if node.disk.votes.get(term) == name}
        _need_quorum(raft.configuration, voted, f"{name} leads term {term} with votes on the disks of")
        # Late votes may make a leader of an earlier term, which owes nothing to what later terms have
        # committed. With log matching, the last entry that it does owe stands for all before it.
        index = len(self.committed)
        while index and self._committed_in[index - 1] >= term:
            index -= 1
        index = max(index, raft.log.previous_index)
        if index and raft.log.term_at(index) != self.committed[index - 1].term:
            raise AssertionError(f"leader completeness: {name} leads term {term} without {self.committed[index - 1]}")

    def _check_counted(self, name: str, before: Summary, raft: RaftState) -> None:
        """What a leader commits is on the disks of a quorum of the configuration in force, of both when joint."""
        index = raft.commit_index
        term = raft.log.term_at(index)
        held = {other for other, node in self._nodes.items() if node.holds(index, term)}
        _need_quorum(before.configuration, held, f"{name} committed {index} of term {term}, which is on the disks of")

    def _check_committed(self, name: str, raft: RaftState) -> None:
        start = max(self._committed_to[name], raft.log.previous_index) + 1
        for entry in self._entries(name, raft, start, raft.commit_index):
            if entry.index > len(self.committed):
                self.committed.append(entry)
                self.digests.append(next_digest(self.digests[-1], entry))
                self._committed_in.append(raft.current_term)
                self.members.check_committed(entry)
            elif self.committed[entry.index - 1] != entry:
                raise AssertionError(
                    f"state machine safety: {name} committed {entry}, before it was {self.committed[entry.index - 1]}"
                )
        if raft.commit_index > len(self.committed):
            raise AssertionError(f"{name} committed {raft.commit_index} by a snapshot of what nobody has committed")
        self._committed_to[name] = raft.commit_index

    def _entries(self, name: str, raft: RaftState, first: int, last: int) -> list[Entry]:
        """From memory, and what a start has left on disk from there."""
        start, disk = raft.log.window_start, self._nodes[name].disk
        behind = disk.previous_index
        older = disk.entries[first - behind - 1 : max(min(last, start - 1) - behind, 0)] if first < start else []
        return [*older, *raft.log.slice(max(first, start), last)]

    def check_applied(self, name: str, entry: Entry) -> None:
        if entry.index > len(self.committed) or self.committed[entry.index - 1] != entry:
            raise AssertionError(f"state machine safety: {name} applied {entry}, which is not committed")
        self._applied_to[name] = max(self._applied_to.get(name, 0), entry.index)

    def check_label(self, name: str, label: Snapshot, machine: Machine) -> None:
        """A label and the state it stands on are those of one index of the one history (S19)."""
        index = label.last_index
        if index > len(self.committed):
            raise AssertionError(f"{name} has a snapshot of {index}, which is not committed")
        entry = self.committed[index - 1]
        if (label.last_term, label.last_time_ns) != (entry.term, entry.time_ns):
            raise AssertionError(f"{name} has {label}, but the entry there is {entry}")
        if (machine.last_index, machine.digest) != (index, self.digests[index]):
            raise AssertionError(f"{name} has the state of {machine.last_index} under {label}")
        self.members.check_label(name, label)


def _need_quorum(configuration: Configuration, those: set[str], what: str) -> None:
    for voters in (configuration.voters, configuration.outgoing):
        if voters and len(those.intersection(voters)) < len(voters) // 2 + 1:
            raise AssertionError(f"{what} {sorted(those)} only, of the voters {voters}")
