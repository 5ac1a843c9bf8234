"""What every Transport owes the node: one suite, run in memory and on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fencepost.raft.core.messages import AppendEntries, InstallSnapshot, Message, PreVote

from .peer_world import Cluster, MemoryCluster, SocketCluster
from .samples import ENTRIES, MESSAGES


@pytest.fixture(params=[MemoryCluster, SocketCluster], ids=["memory", "sockets"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    async with request.param() as made:
        await made.connected()
        yield made


async def test_every_message_arrives_as_it_was_sent(cluster: Cluster) -> None:
    for message in MESSAGES:
        cluster.transport("n1").send("n2", message)
    got = cluster.handlers["n2"].received
    await cluster.until(lambda: len(got) == len(MESSAGES), "all messages")
    assert {source for source, _ in got} == {"n1"}
    # Parts of snapshots may be overtaken; the order of the others is theirs alone.
    for bulk in (False, True):
        arrived = [message for _, message in got if isinstance(message, InstallSnapshot) is bulk]
        sent = [message for message in MESSAGES if isinstance(message, InstallSnapshot) is bulk]
        assert arrived == sent
        assert [type(message) for message in arrived] == [type(message) for message in sent]


async def test_one_message_object_for_several_peers(cluster: Cluster) -> None:
    message = AppendEntries(3, 6, 2, 5, 1, ENTRIES)
    for peer in ("n2", "n3"):
        cluster.transport("n1").send(peer, message)
    for peer in ("n2", "n3"):
        handler = cluster.handlers[peer]
        await cluster.until(lambda handler=handler: handler.received, "the message")  # type: ignore[misc]
        assert handler.received == [("n1", message)]
    assert cluster.handlers["n1"].received == []


async def test_order_is_kept_between_two(cluster: Cluster) -> None:
    messages: list[Message] = [PreVote(n, n, n, n) for n in range(500)]
    for message in messages:
        cluster.transport("n1").send("n2", message)
    await cluster.until(lambda: len(cluster.handlers["n2"].received) == 500, "all messages")
    assert cluster.handlers["n2"].of("n1") == messages


async def test_both_directions_and_all_pairs(cluster: Cluster) -> None:
    names = list(cluster.handlers)
    for source in names:
        for to in names:
            if source != to:
                cluster.transport(source).send(to, PreVote(int(source[1:]), 0, 0, int(to[1:])))
    for name, handler in cluster.handlers.items():
        await cluster.until(lambda handler=handler: len(handler.received) == 2, "two messages")  # type: ignore[misc]
        assert {source for source, _ in handler.received} == set(names) - {name}
        assert all(message.round == int(name[1:]) for _, message in handler.received)  # type: ignore[union-attr]


async def test_a_cut_link_drops_and_tells_both_ends_and_the_others_go_on(cluster: Cluster) -> None:
    await cluster.cut("n1", "n2")
    assert "n2" in cluster.handlers["n1"].unreachable_peers
    assert "n1" in cluster.handlers["n2"].unreachable_peers
    assert cluster.handlers["n3"].unreachable_peers == []
    cluster.transport("n1").send("n2", PreVote(1, 1, 1, 1))
    cluster.transport("n1").send("n3", PreVote(2, 2, 2, 2))
    await cluster.until(lambda: cluster.handlers["n3"].received, "the message of the healthy link")
    await cluster.heal("n1", "n2")
    cluster.transport("n1").send("n2", PreVote(3, 3, 3, 3))
    await cluster.until(lambda: cluster.handlers["n2"].received, "the message after healing")
    # What was sent into the cut is gone; it does not come late.
    assert cluster.handlers["n2"].received == [("n1", PreVote(3, 3, 3, 3))]


async def test_sending_to_nobody_or_oneself_is_dropped(cluster: Cluster) -> None:
    cluster.transport("n1").send("n9", PreVote(1, 1, 1, 1))
    cluster.transport("n1").send("n1", PreVote(1, 1, 1, 1))
    cluster.transport("n1").send("n2", PreVote(2, 2, 2, 2))
    await cluster.until(lambda: cluster.handlers["n2"].received, "the message")
    assert cluster.handlers["n1"].received == []
