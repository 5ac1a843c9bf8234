"""What must hold beside the invariants, and can only be seen by who knows what is being done to the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..invariants import PropertyViolated
from ..sim.observer import Observer

if TYPE_CHECKING:
    from .stage import Stage


class Looks(Observer):
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def on_effect(self, node: str, resource: str) -> None:
        """No more effects of one node are under way at a resource than it takes (S53)."""
        running = self._stage.world.node(node)
        client = running.resources[resource]
        if client.under_way > client.concurrency:
            what = f"{client.under_way} effects of {running} are under way at {resource}"
            what = f"{what}, which takes {client.concurrency}"
            self._stage.world.fail(PropertyViolated("concurrency", what))

    def strangers(self) -> None:
        """Called every now and then: an empty disk is not let in by whoever has met the one before it (S21)."""
        world = self._stage.world
        for name, known_by in self._stage.wiped.items():
            node = world.hosts[name].node
            if node is None:
                continue
            for link in world.network.links.values():
                outward = link.source == name and link.dialled_by is node.transport
                inward = link.to == name and link.reached is node.transport
                other = link.to if outward else link.source
                if link.up and (outward or inward) and other in known_by:
                    raise PropertyViolated("strangers", f"{other} talks to {name}, whose disk was lost")
