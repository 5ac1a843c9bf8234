"""No node has more effects under way at a resource than that takes (concepts: The life of a command)."""

from __future__ import annotations

from ...raft.core.token import FencingToken
from .observed import ObservedNode
from .property import Property


class BoundedConcurrency(Property):
    name = "bounded concurrency"

    def leaving(self, node: ObservedNode, resource: str, token: FencingToken) -> None:
        client = node.node.resources[resource]
        if client.under_way > client.concurrency:
            raise self.broken(
                f"{node} has {client.under_way} calls under way at {resource}, which takes {client.concurrency}"
            )
