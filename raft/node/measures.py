"""What a node counts of its own part in the cluster, since it was started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.entry import Entry, EntryKind
from ..core.events import Role, RoleChange, TransferBegun
from ..measures import LEADERSHIP_BOUNDS_S, Seconds
from ..outbox.codec import CANCEL, DISCARD, EXPIRY, REDRIVE, RESOLVE
from ..outbox.machine import SubmitResult
from ..outbox.operation import TERMINAL, Operation, OperationState
from .observers import Onlooker

if TYPE_CHECKING:
    from .loop import RaftLoop

DECISIONS = {CANCEL: "cancel", REDRIVE: "redrive", RESOLVE: "resolve", DISCARD: "discard", EXPIRY: "deadline"}
"""By kind of entry: what changes a command by another way than through its attempts."""

_ENDS = TERMINAL | {OperationState.IN_DOUBT}


class NodeMeasures(Onlooker):
    """Implements ``raft.node.observers.LoopObserver``."""

    def __init__(self, loop: RaftLoop) -> None:
        self._loop = loop
        self.campaigns = 0
        """Times that this node missed a leader and asked whether it might ask for votes (pre-vote)."""
        self.elections_begun = 0
        """Times that this node became a candidate, and asked for votes."""
        self.elections_won = 0
        self.leader_changes = 0
        """Times that another leader than before was followed or was this node."""
        self.leaderships_lost = 0
        self.leaderships = Seconds(LEADERSHIP_BOUNDS_S)
        """How long those that have ended took."""
        self.least_lease_left_ns: int | None = None
        """The least that was left of the lease when a turn ended, in this leadership or the last one."""
        self.unapplied_at_election = 0
        """Entries in the log that this node had not applied yet when it was elected last."""
        self.submitted = 0
        """Commands applied under an id that was not known: on every node."""
        self.ended: dict[str, dict[OperationState, int]] = {}
        """By resource and state: commands that have ended, or got in doubt, as applied here. A command that is given
        another life may end twice."""
        self.decisions: dict[tuple[str, str], int] = {}
        """By resource and what was decided: commands that an entry of :data:`DECISIONS` has changed."""
        self.transfers_begun = 0
        self._leader = ""
        self._role = Role.FOLLOWER
        self._leads_since = 0

    @property
    def leading_s(self) -> float:
        """How long this node leads; 0 if it does not."""
        return (self._loop.now() - self._leads_since) / 1e9 if self._role is Role.LEADER else 0.0

    def role_changed(self, change: RoleChange) -> None:
        if self._role is Role.LEADER and change.role is not Role.LEADER:
            self.leaderships_lost += 1
            self.leaderships.observe(self.leading_s)
        if change.role is Role.PRE_CANDIDATE:
            self.campaigns += 1
        elif change.role is Role.CANDIDATE:
            self.elections_begun += 1
        elif change.role is Role.LEADER:
            self.elections_won += 1
            self._leads_since = self._loop.now()
            self.least_lease_left_ns = None
            self.unapplied_at_election = self._loop.term_start_index() - 1 - self._loop.applier.last_applied
        self._role = change.role
        if change.leader and change.leader != self._leader:
            self._leader = change.leader
            self.leader_changes += 1

    def applied(self, entries: list[Entry], results: list[Any]) -> None:
        for entry, result in zip(entries, results, strict=True):
            if type(result) is SubmitResult:
                self.submitted += not result.replayed and not result.reused
            elif type(result) is list and result and entry.kind == EntryKind.OUTBOX:
                self._count(entry, result)

    def _count(self, entry: Entry, operations: list[Operation]) -> None:
        resource = operations[0].resource  # An entry is about one resource.
        decision = DECISIONS.get(entry.data[1])
        if decision is not None:
            key = (resource, decision)
            self.decisions[key] = self.decisions.get(key, 0) + len(operations)
        ended = self.ended.setdefault(resource, {})
        index = entry.index
        for operation in operations:
            state = operation.state
            # What was applied along with it may have taken the operation further: then that one counts.
            if state in _ENDS and operation.history[-1][0] == index:
                ended[state] = ended.get(state, 0) + 1

    def transfer_begun(self, transfer: TransferBegun) -> None:
        self.transfers_begun += 1

    def before_turn_ends(self, now: int) -> None:
        if self._role is Role.LEADER:
            left = self._loop.raft.lease_left(now)
            if left is not None and (self.least_lease_left_ns is None or left < self.least_lease_left_ns):
                self.least_lease_left_ns = left
