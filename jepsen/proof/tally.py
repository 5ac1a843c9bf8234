"""What a run has reached, counted while it runs: faults that happened, zombies, changes under a partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ...raft.core.entry import Snapshot
from ...raft.core.events import Accepted, ChangeConfiguration, Effects, EntriesRead, Event, Persist, Role
from ...raft.core.invariants import Summary
from ...raft.core.messages import AppendEntries
from ...raft.core.token import FencingToken
from ..invariants.ledger import Ledger
from ..invariants.observed import ObservedNode
from ..invariants.property import Property
from ..sim.resource import QUESTIONS, OutsideResource, ResourceCall

OBSERVED = ("observed.snapshot", "observed.compaction", "observed.install", "observed.joint", "observed.read-back")
"""Not done to the cluster but brought about: snapshots taken, logs compacted, snapshots installed, joint
configurations entered, entries read back from a disk and sent to a follower. They are counted with the faults, and a
run set has to have had them as well."""


class Tally(Property):
    """It judges nothing; it looks on where properties look."""

    name = "tally"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.happened: Counter[str] = Counter()
        self.zombie = False
        self.membership_partition = False
        self.at_joint: list[Callable[[], object]] = []
        """What is to be done as soon as a leader has a joint configuration in its log."""
        self._claimed: dict[str, FencingToken] = {}

    def special(self, node: ObservedNode, before: Summary, event: Event, effects: Effects) -> None:
        if effects.take_snapshot is not None:
            self.happened["observed.snapshot"] += 1
        if type(event) is EntriesRead and any(isinstance(send.message, AppendEntries) for send in effects.sends):
            self.happened["observed.read-back"] += 1
        if type(event) is ChangeConfiguration and isinstance(effects.proposed, Accepted) and self._parted(node):
            self.membership_partition = True

    def wrote(self, node: ObservedNode, write: Persist, before: Summary) -> None:
        if write.compact_to:
            self.happened["observed.compaction"] += 1

    def restored(self, node: ObservedNode, snapshot: Snapshot) -> None:
        self.happened["observed.install"] += 1

    def configured(self, node: ObservedNode) -> None:
        if node.raft.configuration.is_joint:
            self.happened["observed.joint"] += 1
            if node.raft.role is Role.LEADER:
                waiting, self.at_joint = self.at_joint, []
                for act in waiting:
                    self.ledger.world.outside.call_soon(act)

    def _parted(self, node: ObservedNode) -> bool:
        members = frozenset(node.raft.configuration.members)
        links = self.ledger.world.network.links.values()
        return any(link.blocked and {link.source, link.to} <= members for link in links)

    def called(self, call: ResourceCall, resource: OutsideResource) -> None:
        if call.kind in QUESTIONS:
            return
        newest = self._claimed.get(call.resource)
        if newest is not None and call.token < newest:
            self.zombie = True
        elif call.kind == "claim" and call.decision == "accepted":
            self._claimed[call.resource] = call.token
