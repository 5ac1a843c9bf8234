"""A client between two incarnations of one cluster: whoever is left of the former one is not followed any more."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.raft.core.errors import FencepostError, IncarnationMismatch
from fencepost.raft.outbox.codec import Command
from fencepost.transport.client import Client
from fencepost.transport.listener import ClientListener

from .samples import local_node
from .world import FakeNode


class NodeOf(FakeNode):
    """A node that takes every command, of one incarnation."""

    def __init__(self, incarnation: int, node_id: str = "n1") -> None:
        self.incarnation = incarnation
        super().__init__(node_id)
        self.role = "leader"

    def make_listener(self, listen: str, **limits: Any) -> ClientListener:
        return ClientListener(listen, self, local_node(self.node_id)._replace(incarnation=self.incarnation), **limits)


def command(name: str) -> Command:
    return Command(name, "ledger", "credit", "", b"{}")


async def test_a_client_leaves_the_former_incarnation_once_it_has_met_the_later_one() -> None:
    async with NodeOf(1) as old, NodeOf(2, "n2") as new, Client([old.address, new.address], timeout_s=10) as client:
        await client.submit(command("before"))
        assert [len(node.submissions) for node in (old, new)] == [1, 0]
        # Met by whatever is asked there.
        await client.call("status", {}, endpoint=new.address)
        await client.submit(command("after"))
        assert [len(node.submissions) for node in (old, new)] == [1, 1]
        with pytest.raises(IncarnationMismatch, match="n1 is of incarnation 1 of cluster"):
            await client.call("status", {}, endpoint=old.address)


async def test_a_client_that_has_met_the_later_one_never_asks_the_former() -> None:
    async with NodeOf(1) as old, NodeOf(2, "n2") as new, Client([new.address, old.address], timeout_s=10) as client:
        await client.call("status", {}, endpoint=new.address)
        answers = await client.call_all("status", {})
        theirs, ours = answers[old.address], answers[new.address]
        assert isinstance(theirs, IncarnationMismatch)
        assert "INCARNATION_MISMATCH" in theirs.next_step
        assert not isinstance(ours, FencepostError)
        assert ours["node_id"] == "n2"
        await client.submit(command("one"))
        assert (old.submissions, len(new.submissions)) == ([], 1)


async def test_a_cluster_that_went_on_with_one_node_is_followed_from_the_start() -> None:
    async with NodeOf(7) as node, Client([node.address], timeout_s=10) as client:
        assert (await client.submit(command("one"))).state == "succeeded"
