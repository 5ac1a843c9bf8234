"""What a run has reached, counted while it runs: faults that happened, zombies, changes under a partition."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ...raft.core.events import Accepted, ChangeConfiguration, Effects, Event
from ...raft.core.invariants import Summary
from ...raft.core.token import FencingToken
from ..sim.observer import Observer
from ..sim.resource import ResourceCall

if TYPE_CHECKING:
    from ..sim.node import SimNode
    from ..sim.world import World

OBSERVED = ("observed.snapshot", "observed.compaction", "observed.install", "observed.joint")
"""Not done to the cluster but brought about: snapshots taken, logs compacted, snapshots installed, joint
configurations entered. They are counted with the faults, and a run set has to have had them as well."""


class Tally(Observer):
    def __init__(self) -> None:
        self.happened: Counter[str] = Counter()
        self.zombie = False
        self.membership_partition = False
        self._world: World | None = None
        self._claimed: dict[str, FencingToken] = {}

    def watch(self, world: World) -> None:
        """Whose links are looked at."""
        self._world = world

    def on_step(self, node: SimNode, before: Summary, event: Event, effects: Effects) -> None:
        if effects.take_snapshot is not None:
            self.happened["observed.snapshot"] += 1
        if effects.restore is not None:
            self.happened["observed.install"] += 1
        if effects.configuration is not None and effects.configuration.is_joint:
            self.happened["observed.joint"] += 1
        for persist in effects.persist:
            if persist.compact_to:
                self.happened["observed.compaction"] += 1
        if type(event) is ChangeConfiguration and isinstance(effects.proposed, Accepted) and self._parted(node):
            self.membership_partition = True

    def _parted(self, node: SimNode) -> bool:
        assert self._world is not None
        members = frozenset(node.raft.configuration.members)
        return any(link.blocked and {link.source, link.to} <= members for link in self._world.network.links.values())

    def on_resource(self, call: ResourceCall) -> None:
        if call.kind == "fence":
            return
        newest = self._claimed.get(call.resource)
        if newest is not None and call.token < newest:
            self.zombie = True
        elif call.kind == "claim" and call.decision == "accepted":
            self._claimed[call.resource] = call.token
