"""Peers that come, go and move while a node runs, and members it has not heard of yet."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fencepost.raft.core.entry import Entry
from fencepost.raft.core.errors import ConfigurationError
from fencepost.raft.core.messages import AppendEntries, AppendEntriesResponse, InstallSnapshot, PreVote
from fencepost.transport import codec
from fencepost.transport.handshake import NotAMember, hello_to_peer
from fencepost.transport.peers import PeerTransport

from .peer_world import LIMITS, Recorder, transport_of, until
from .samples import SNAPSHOT, local_node
from .test_listener import bodies
from .world import DEADLINE_S, Lines, Proxy, RawClient, unused_address

BEAT = AppendEntries(1, 0, 0, 0, 0, [])
ANSWER = AppendEntriesResponse(1, True, 1, 0, 0, 1)


class Nodes:
    """Transports by name, each at an address of its own; none knows another unless it is told."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self.handlers: dict[str, Recorder] = {}
        self.transports: dict[str, PeerTransport] = {}
        self.lines = Lines()

    async def start(self, name: str, *peers: str, **arguments: Any) -> PeerTransport:
        """Start a node that dials ``peers``, which have been given an address before."""
        about = ("instance_id", "cluster_id", "bootstrap_voters")
        changes = {key: arguments.pop(key) for key in about if key in arguments}
        if name not in self.addresses:
            self.addresses[name] = await unused_address()
        handler = self.handlers[name] = Recorder()
        transport = transport_of(
            local_node(name, **changes),
            self.addresses[name],
            {peer: self.addresses[peer] for peer in peers},
            handler,
            **{"log": self.lines, **arguments},
        )
        self.transports[name] = transport
        await transport.start()
        return transport

    async def pair(self) -> tuple[PeerTransport, PeerTransport]:
        """n1 and n2, connected both ways."""
        self.addresses |= {"n1": await unused_address(), "n2": await unused_address()}
        one, two = await self.start("n1", "n2"), await self.start("n2", "n1")
        await until(lambda: is_up(one, "n2") and is_up(two, "n1"), "n1 and n2 connected")
        return one, two

    async def close(self) -> None:
        for transport in self.transports.values():
            await transport.close()


def is_up(transport: PeerTransport, peer: str) -> bool:
    status = transport.links().get(peer)
    return status is not None and status.connected


def link_tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("fencepost-peer-")}


async def gets(handler: Recorder, source: str, send: Callable[[], None]) -> None:
    """Send until something arrives: what is sent into a connection that is just being made may be lost."""
    before = len(handler.of(source))

    def arrived() -> bool:
        send()
        return len(handler.of(source)) > before

    await until(arrived, f"a message of {source}")


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    made = Nodes()
    try:
        yield made
    finally:
        async with asyncio.timeout(DEADLINE_S):
            await made.close()


# -- who comes --------------------------------------------------------------------------------------


async def test_a_new_peer_is_dialled_and_the_others_are_left_alone(nodes: Nodes) -> None:
    one, _ = await nodes.pair()
    kept = one._links["n2"].connection
    three = await nodes.start("n3", "n1")
    one.send("n3", BEAT)
    one.set_peers({name: nodes.addresses[name] for name in ("n2", "n3")})
    await until(lambda: is_up(one, "n3") and is_up(three, "n1"), "n1 and n3 connected")
    one.send("n3", BEAT)
    await nodes.handlers["n3"].changes.until(lambda: nodes.handlers["n3"].of("n1"))
    assert one._links["n2"].connection is kept
    assert nodes.handlers["n1"].unreachable_peers == []


async def test_the_list_may_name_this_node_and_say_nothing_new(nodes: Nodes) -> None:
    one, _ = await nodes.pair()
    links = dict(one._links)
    for _ in range(3):
        one.set_peers(nodes.addresses)
    assert one._links == links
    assert list(one.links()) == ["n2"]


async def test_what_is_no_address_is_a_peer_that_is_down(nodes: Nodes) -> None:
    """It may stand in the log: no reason for a node to fail, nor for its other peers to be missed."""
    one, _ = await nodes.pair()
    one.set_peers({"n2": nodes.addresses["n2"], "n3": "nowhere", "n4": "a:b:c"})
    await until(lambda: all(one.links()[peer].last_error for peer in ("n3", "n4")), "said of both")
    assert "no address" in one.links()["n3"].last_error
    assert "ambiguous" in one.links()["n4"].last_error
    assert is_up(one, "n2")
    three = await nodes.start("n3", "n1")
    one.set_peers(nodes.addresses)
    await until(lambda: is_up(one, "n3") and is_up(three, "n1"), "met once it is one")


def test_what_is_no_address_in_the_configuration_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="'nowhere' is no address"):
        transport_of(local_node("n1"), "127.0.0.1:0", {"n2": "nowhere"})


async def test_before_the_start_it_only_says_whom_to_dial(nodes: Nodes) -> None:
    two = await nodes.start("n2")
    one = transport_of(local_node("n1"), "127.0.0.1:0", {"n9": "127.0.0.1:1"})
    one.set_peers({"n2": nodes.addresses["n2"], "n3": "nowhere"})
    assert link_tasks() == set()
    await one.start()
    await until(lambda: is_up(one, "n2"), "connected")
    assert list(one.links()) == ["n2", "n3"]
    await one.close()
    one.set_peers({"n2": nodes.addresses["n2"]})
    assert link_tasks() == set()
    await until(lambda: not two._arrived, "gone")


# -- who goes ---------------------------------------------------------------------------------------


async def test_a_peer_that_is_gone_is_left_without_a_task_or_a_socket_and_refused(nodes: Nodes) -> None:
    one, two = await nodes.pair()
    await nodes.start("n3")
    one.set_peers({name: nodes.addresses[name] for name in ("n2", "n3")})
    await until(lambda: is_up(one, "n3"), "n3 met")
    connection, arrived = one._links["n2"].connection, one._arrived["n2"]
    assert connection is not None
    one.set_peers({"n3": nodes.addresses["n3"]})
    assert list(one.links()) == ["n3"]
    await until(lambda: link_tasks() == {"fencepost-peer-n3", "fencepost-peer-n1"}, "the task has ended")
    await until(lambda: connection.over.done() and arrived.over.done(), "the sockets are closed")
    await until(lambda: not one._leaving and "n2" not in one._arrived, "nothing of it is kept")
    await until(lambda: "not a member" in two.links()["n1"].last_error, "n2 is told")
    assert nodes.lines.names().count("peer_refused") == 1
    [refused] = [fields for event, fields in nodes.lines.events if event == "peer_refused"]
    assert "n2 is not a member of cluster 'cluster-a'" in refused["reason"]
    assert "node id that was never used" in refused["next_step"]
    two.send("n1", PreVote(9, 9, 9, 9))
    one.send("n2", BEAT)
    assert nodes.handlers["n1"].received == nodes.handlers["n2"].received == []
    assert is_up(one, "n3")


async def test_the_refusal_has_a_code() -> None:
    transport = transport_of(local_node("n1"), "127.0.0.1:0", {})
    transport.set_peers({}, retired=["n2"])
    await transport.start()
    try:
        raw = await RawClient.to(transport.address)
        raw.send(codec.encode_hello(hello_to_peer(local_node("n2"), "n1")))
        await raw.until_closed()
        [refusal] = bodies(raw.data)
        assert refusal.code == "NOT_A_MEMBER"
        assert type(codec.error_of(refusal)) is NotAMember
    finally:
        await transport.close()


async def test_what_was_said_last_to_a_peer_that_is_gone_still_arrives(nodes: Nodes) -> None:
    one, _ = await nodes.pair()
    last = [AppendEntries(1, 0, 0, 0, n, [Entry(1, 1, 2, 1, b"x" * 100_000)]) for n in range(5)]
    for message in last:
        one.send("n2", message)
    one.set_peers({})
    await nodes.handlers["n2"].changes.until(lambda: len(nodes.handlers["n2"].received) == 5)
    assert nodes.handlers["n2"].of("n1") == last


@pytest.mark.parametrize("closed", [False, True], ids=["while the node runs on", "as the node closes"])
async def test_a_gone_peer_that_does_not_read_is_not_waited_for(nodes: Nodes, closed: bool) -> None:
    nodes.addresses["n2"] = await unused_address()
    await nodes.start("n2")
    async with Proxy(nodes.addresses["n2"]) as proxy:
        limits = LIMITS._replace(ping_s=30.0) if closed else LIMITS
        one = transport_of(local_node("n1"), "127.0.0.1:0", {"n2": proxy.address}, limits=limits)
        await one.start()
        await until(lambda: is_up(one, "n2"), "connected")
        proxy.frozen = True
        proxy.stop_reading()
        connection = one._links["n2"].connection
        assert connection is not None
        while not connection.full:
            one.send("n2", AppendEntries(1, 0, 0, 0, 0, [Entry(1, 1, 2, 1, b"x" * 1_000_000)]))
            await asyncio.sleep(0)
        one.set_peers({})
        if closed:
            await one.close()
        await until(lambda: connection.over.done(), "closed all the same")
        await one.close()
    assert link_tasks() == set()


async def test_a_peer_may_go_in_the_middle_of_a_dial() -> None:
    async with Proxy("127.0.0.1:1") as proxy:
        proxy.hold = True
        transport = transport_of(local_node("n1"), "127.0.0.1:0", {"n2": proxy.address})
        await transport.start()
        await proxy.changes.until(lambda: proxy.connections)
        transport.set_peers({})
        await until(lambda: not proxy.sides and not transport._tasks, "no socket and no task")
        await transport.close()


async def test_a_peer_that_is_named_again_is_known_as_the_instance_it_was_s21(nodes: Nodes) -> None:
    one, two = await nodes.pair()
    one.set_peers({})
    await until(lambda: "not a member" in two.links()["n1"].last_error, "refused")
    one.set_peers(nodes.addresses)
    await until(lambda: is_up(one, "n2") and is_up(two, "n1"), "met again")
    one.set_peers({})
    await two.close()
    one.set_peers(nodes.addresses)
    two = await nodes.start("n2", "n1", instance_id="another-disk")
    await until(lambda: "wiped or replaced" in two.links()["n1"].last_error, "another disk is refused")
    await until(lambda: "wiped or replaced" in one.links()["n2"].last_error, "wherever it is met")
    assert not is_up(one, "n2")


async def test_only_who_is_retired_is_refused_where_the_caller_knows_it(nodes: Nodes) -> None:
    """A change that is not committed may be undone: who is no peer for now may yet lead this node."""
    one, two = await nodes.pair()
    one.set_peers({}, retired=())
    await until(lambda: list(one.links()) == [] and is_up(two, "n1"), "n1 dials nobody, and is dialled")
    await gets(nodes.handlers["n1"], "n2", lambda: two.send("n1", BEAT))
    one.set_peers({}, retired=("n2",))
    await until(lambda: "not a member" in two.links()["n1"].last_error, "refused")
    one.set_peers({}, retired=())
    await until(lambda: is_up(two, "n1"), "not any more")
    # Removed in what is committed, a member in what is not: it is named, and that counts.
    arrived = one._arrived["n2"]
    one.set_peers(nodes.addresses, retired=("n2",))
    await until(lambda: is_up(one, "n2"), "dialled")
    assert one._arrived["n2"] is arrived
    assert not arrived.closed


# -- who moves (S39) --------------------------------------------------------------------------------


async def test_a_peer_with_another_address_is_dialled_there(nodes: Nodes) -> None:
    one, two = await nodes.pair()
    before = one._links["n2"]
    for _ in range(3):
        before.dropped += 1
    async with Proxy(nodes.addresses["n2"]) as proxy:
        one.set_peers({"n2": proxy.address})
        assert before.connection is None
        # What is known of the peer does not depend on where it is.
        assert one.client_address("n2") == local_node("n2").client_address
        assert one.links()["n2"].dropped == 3
        await until(lambda: is_up(one, "n2") and proxy.connections == 1, "connected through the proxy")
        await nodes.handlers["n1"].changes.until(lambda: nodes.handlers["n1"].unreachable_peers == ["n2"])
        await until(lambda: len(link_tasks()) == 2 and not one._leaving, "nothing of the old link is left")
        one.send("n2", BEAT)
        await nodes.handlers["n2"].changes.until(lambda: nodes.handlers["n2"].received)
        assert is_up(two, "n1")
        await one.close()


# -- members that this node has not heard of --------------------------------------------------------


async def test_a_node_that_joins_is_reached_by_members_it_does_not_know_and_answers_them(nodes: Nodes) -> None:
    """n4 is told of n1 alone, and n2 leads."""
    remembered: dict[str, str] = {}
    await nodes.start("n1")
    four = await nodes.start("n4", "n1", remember_instance=remembered.__setitem__)
    two = await nodes.start("n2", "n4")
    await until(lambda: is_up(two, "n4"), "n4 lets n2 in")
    assert remembered["n2"] == "instance-of-n2"
    assert list(four.links()) == ["n1"]
    assert four.client_address("n2") == local_node("n2").client_address
    two.send("n4", BEAT)
    await nodes.handlers["n4"].changes.until(lambda: nodes.handlers["n4"].of("n2") == [BEAT])
    four.send("n2", ANSWER)
    await nodes.handlers["n2"].changes.until(lambda: nodes.handlers["n2"].of("n4") == [ANSWER])
    # It dials n2 when it is told where that is, and then answers on what it dialled.
    assert "fencepost-peer-n2" not in link_tasks()
    four.set_peers({name: nodes.addresses[name] for name in ("n1", "n2")})
    await until(lambda: is_up(four, "n2"), "n4 dials n2")
    assert two._arrived["n4"].known
    four.send("n2", ANSWER)
    await nodes.handlers["n2"].changes.until(lambda: nodes.handlers["n2"].of("n4") == [ANSWER, ANSWER])


@pytest.mark.parametrize(
    ("changes", "known", "says"),
    [
        ({"cluster_id": "cluster-b"}, {}, "belongs to cluster 'cluster-b'"),
        ({"instance_id": "another-disk"}, {"n9": "instance-of-n9"}, "wiped or replaced"),
    ],
)
async def test_an_unknown_node_of_another_cluster_or_with_another_disk_is_refused_s38_s21(
    nodes: Nodes, changes: dict[str, str], known: dict[str, str], says: str
) -> None:
    remembered: dict[str, str] = {}
    one = await nodes.start("n1", known_instances=known, remember_instance=remembered.__setitem__)
    nine = await nodes.start("n9", "n1", **changes)
    await until(lambda: re.search(says, nine.links()["n1"].last_error), "refused")
    nine.send("n1", PreVote(99, 1, 1, 1))
    assert nodes.handlers["n1"].received == []
    assert remembered == {}
    assert one._arrived == {}


async def test_an_unknown_node_that_was_first_started_with_other_voters_is_refused_and_not_remembered(
    nodes: Nodes,
) -> None:
    """It may be of no list of peers: n2 was meant to be started with n1, n2, n3, and its file named n2, n3, n4."""
    remembered: dict[str, str] = {}
    await nodes.start("n1", bootstrap_voters=("n1", "n2", "n3"), remember_instance=remembered.__setitem__)
    four = await nodes.start("n4", "n1", bootstrap_voters=("n2", "n3", "n4"))
    await until(lambda: "n1, n2, n3, and node n4 with others" in four.links()["n1"].last_error, "refused")
    # One that joined is let in by both.
    five = await nodes.start("n5", "n1", "n4")
    await until(lambda: is_up(five, "n1") and is_up(five, "n4"), "n5 comes")
    assert list(remembered) == ["n5"]
    assert "peer_refused" in nodes.lines.names()


async def test_a_broken_way_back_is_told(nodes: Nodes) -> None:
    one = await nodes.start("n1")
    nine = await nodes.start("n9", "n1")
    await until(lambda: is_up(nine, "n1"), "n9 comes")
    one.send("n9", BEAT)
    await nodes.handlers["n9"].changes.until(lambda: nodes.handlers["n9"].received)
    await nine.close()
    await nodes.handlers["n1"].changes.until(lambda: nodes.handlers["n1"].unreachable_peers == ["n9"])
    one.send("n9", BEAT)


async def test_the_way_back_is_bounded_and_carries_snapshots_behind_heartbeats(nodes: Nodes) -> None:
    limits = LIMITS._replace(ping_s=30.0, queue_bytes_max=256 * 1024, write_buffer_bytes=64 * 1024)
    nodes.addresses["n1"] = await unused_address()
    one = await nodes.start("n1", limits=limits)
    async with Proxy(nodes.addresses["n1"]) as proxy:
        handler = Recorder()
        nine = transport_of(local_node("n9"), "127.0.0.1:0", {"n1": proxy.address}, handler, limits=limits)
        await nine.start()
        await until(lambda: is_up(nine, "n1"), "n9 comes")
        for number in range(5):
            one.send("n9", InstallSnapshot(1, SNAPSHOT, number, bytes(1_000_000), 1))
            one.send("n9", BEAT._replace(sent_at=number))
        # The first part, the heartbeats beside it, and the newest of the parts that waited for it.
        await handler.changes.until(lambda: len(handler.received) == 7)
        got = [message for _, message in handler.received]
        assert [message.offset for message in got if isinstance(message, InstallSnapshot)] == [0, 4]
        assert isinstance(got[-1], InstallSnapshot)
        # It reads no more: what waits is bounded, and dropped as a whole.
        proxy.frozen = True
        proxy.stop_reading()
        told = nodes.handlers["n1"].unreachable_peers
        lanes = one._arrived["n9"]._lanes
        assert lanes is not None
        while not told:
            one.send("n9", AppendEntries(1, 0, 0, 0, 0, [Entry(1, 1, 2, 1, b"x" * 100_000)]))
            assert lanes.queued_bytes <= 256 * 1024
            await asyncio.sleep(0)
        assert told == ["n9"]
        await nine.close()
    await until(lambda: not one._arrived, "n9 is gone")


async def test_a_peer_that_pings_and_does_not_read_is_closed() -> None:
    transport = transport_of(local_node("n1"), "127.0.0.1:0", {})
    await transport.start()
    try:
        raw = await RawClient.to(transport.address)
        raw.send(codec.encode_hello(hello_to_peer(local_node("n2"), "n1")))
        await raw.changes.until(lambda: raw.data)
        assert raw.transport is not None
        raw.transport.pause_reading()
        pings = codec.encode_ping(1) * 10_000
        async with asyncio.timeout(DEADLINE_S):
            while transport._arrived:
                raw.send(pings)
                await asyncio.sleep(0)
        raw.close()
    finally:
        await transport.close()
