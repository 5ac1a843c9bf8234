"""The transport between nodes on real sockets: silence, strangers, moved addresses, closing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import socket
import threading
from typing import Any

import pytest

from fencepost.raft.core.entry import Entry
from fencepost.raft.core.errors import AcknowledgedLost, StorageError, StorageFull
from fencepost.raft.core.messages import AppendEntries, PreVote
from fencepost.transport import codec, peers
from fencepost.transport.address import ThreadResolver
from fencepost.transport.handshake import hello_of_client, hello_to_peer
from fencepost.transport.peer_link import PeerLink
from fencepost.transport.peer_port import PeerConnection

from .peer_world import LIMITS, FakeResolver, Recorder, SocketCluster, transport_of, until
from .samples import local_node
from .test_connection import FakeTransport
from .test_listener import STRANGERS, bodies
from .world import DEADLINE_S, Lines, Proxy, RawClient, unused_address

BEAT = AppendEntries(1, 0, 0, 0, 0, [])


def pings(link: PeerLink) -> int:
    """How many pings have gone out on the connection of a link."""
    assert link.connection is not None
    return link.connection.lanes.pings


# -- silence (S35) --------------------------------------------------------------------------------


async def test_a_silent_peer_is_closed_bounded_and_disturbs_nobody() -> None:
    limits = LIMITS._replace(queue_bytes_max=256 * 1024, write_buffer_bytes=64 * 1024, missed_pings_max=20)
    async with SocketCluster(limits=limits) as cluster:
        await cluster.connected()
        n1 = cluster.transport("n1")
        for pair in (("n1", "n3"), ("n3", "n1")):
            cluster.proxies[pair].frozen = True
            cluster.proxies[pair].stop_reading()
        entries = [Entry(1, 1, 2, 1, b"x" * 100_000)]
        sent = highest = 0
        healthy = cluster.handlers["n2"]
        while "n3" not in cluster.handlers["n1"].unreachable_peers or n1.links()["n3"].connected:
            sent += 1
            message = AppendEntries(1, sent, 1, 0, sent, entries)
            for peer in ("n2", "n3"):
                n1.send(peer, message)
            highest = max(highest, n1.links()["n3"].queued_bytes)
            # The healthy peer keeps pace, message by message.
            await healthy.changes.until(lambda: len(healthy.received) == sent)  # noqa: B023
        status = n1.links()["n3"]
        assert not status.connected
        assert status.dropped > 0
        assert highest <= 256 * 1024 + 64 * 1024 + 2 * 1024 * 1024
        assert n1.links()["n2"].connected
        assert n1.links()["n2"].dropped == 0
        assert cluster.handlers["n1"].unreachable_peers.count("n2") == 0
        # Healed, it is met again without anyone's help.
        for pair in (("n1", "n3"), ("n3", "n1")):
            cluster.proxies[pair].frozen = False
        await until(lambda: cluster.is_connected("n1", "n3"), "n3 met again")


async def test_idle_links_that_go_silent_are_closed_at_both_ends() -> None:
    async with SocketCluster(2) as cluster:
        await cluster.connected()
        cluster.proxies["n1", "n2"].frozen = True
        await cluster.handlers["n1"].changes.until(lambda: cluster.handlers["n1"].unreachable_peers)
        assert "without an answer" in cluster.transport("n1").links()["n2"].last_error
        # The end that only receives on it notices too, and drops its half.
        table = cluster.transport("n2")._arrived
        await until(lambda: "n1" not in table, "the receiving end closed")


async def test_idle_links_stay_open() -> None:
    async with SocketCluster(2) as cluster:
        await cluster.connected()
        link = cluster.transport("n1")._links["n2"]
        before = pings(link)
        await until(lambda: pings(link) >= before + 20, "twenty pings")
        assert cluster.is_connected("n1", "n2")
        assert cluster.handlers["n1"].unreachable_peers == []


async def test_a_long_frame_on_a_slow_link_is_no_silence() -> None:
    async with SocketCluster(2) as cluster:
        await cluster.connected()
        proxy = cluster.proxies["n1", "n2"]
        proxy.trickle = 2_000
        cluster.transport("n1").send("n2", AppendEntries(1, 0, 0, 0, 0, [Entry(1, 1, 2, 1, b"x" * 100_000)]))
        link = cluster.transport("n1")._links["n2"]
        before = pings(link)
        # Far more intervals than a silent peer would be given.
        while pings(link) < before + 3 * LIMITS.missed_pings_max:
            proxy.drip()
            ping = pings(link)
            await until(lambda: pings(link) > ping, "an interval")  # noqa: B023
        assert cluster.is_connected("n1", "n2")
        proxy.trickle = 0
        proxy.thaw()
        await cluster.handlers["n2"].changes.until(lambda: cluster.handlers["n2"].received)
        assert cluster.handlers["n1"].unreachable_peers == []


async def test_a_full_link_keeps_only_the_newest_heartbeat() -> None:
    limits = LIMITS._replace(write_buffer_bytes=1024, ping_s=30.0)
    async with SocketCluster(2, limits=limits) as cluster:
        await cluster.connected()
        proxy = cluster.proxies["n1", "n2"]
        proxy.frozen = True
        proxy.stop_reading()
        n1 = cluster.transport("n1")
        link = n1._links["n2"]
        connection = link.connection
        assert connection is not None
        big = AppendEntries(1, 0, 0, 0, 0, [Entry(1, 1, 2, 1, b"x" * 1_000_000)])
        while not connection.full:
            n1.send("n2", big)
            await asyncio.sleep(0)
        for number in range(1000):
            n1.send("n2", BEAT._replace(sent_at=number))
        assert len(connection.lanes.urgent) == 1
        # What still waits when the connection goes is counted as dropped.
        before = n1.links()["n2"].dropped
        proxy.reset()
        await cluster.handlers["n1"].changes.until(lambda: cluster.handlers["n1"].unreachable_peers)
        assert n1.links()["n2"].dropped == before + 1


async def test_what_waited_for_a_slow_peer_arrives_in_order_once_it_reads() -> None:
    limits = LIMITS._replace(write_buffer_bytes=1024, ping_s=30.0)
    async with SocketCluster(2, limits=limits) as cluster:
        await cluster.connected()
        proxy = cluster.proxies["n1", "n2"]
        proxy.stop_reading()
        n1 = cluster.transport("n1")
        connection = n1._links["n2"].connection
        assert connection is not None
        sent = 0
        entries = [Entry(1, 1, 2, 1, b"x" * 1_000_000)]
        while len(connection.lanes.urgent) < 3:
            sent += 1
            n1.send("n2", AppendEntries(1, sent, 0, 0, 0, entries))
            await asyncio.sleep(0)
        proxy.read_again()
        handler = cluster.handlers["n2"]
        await handler.changes.until(lambda: len(handler.received) == sent)
        assert [message.prev_log_index for _, message in handler.received] == list(range(1, sent + 1))  # type: ignore[union-attr]
        assert n1.links()["n2"].dropped == 0


async def test_a_queue_that_overflows_is_dropped_and_the_node_is_told_while_the_link_stays() -> None:
    limits = LIMITS._replace(write_buffer_bytes=1024, queue_count_max=3, ping_s=30.0)
    async with SocketCluster(2, limits=limits) as cluster:
        await cluster.connected()
        proxy = cluster.proxies["n1", "n2"]
        proxy.frozen = True
        proxy.stop_reading()
        n1, handler = cluster.transport("n1"), cluster.handlers["n1"]
        connection = n1._links["n2"].connection
        big = AppendEntries(1, 0, 0, 0, 0, [Entry(1, 1, 2, 1, b"x" * 1_000_000)])
        while not n1.links()["n2"].dropped:
            n1.send("n2", big)
            await asyncio.sleep(0)
        # Not from within ``send``, but soon.
        await handler.changes.until(lambda: handler.unreachable_peers)
        assert n1.links()["n2"].dropped == 4
        assert n1._links["n2"].connection is connection


# -- who may come in (S21, S37, S38) ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cluster_id": "cluster-b"}, "belongs to cluster 'cluster-b'"),
        ({"instance_id": "another-disk"}, "wiped or replaced"),
        ({"incarnation": 2}, "incarnation 2"),
        ({"bootstrap_voters": ("n2", "n3", "n4")}, "n1, n2, n3, and node n2 with others"),
    ],
)
async def test_who_does_not_belong_hears_why_and_no_message_passes(changes: dict[str, Any], says: str) -> None:
    one, two = await unused_address(), await unused_address()
    handlers = Recorder(), Recorder()
    stranger = local_node("n2")._replace(**changes)
    own = local_node("n1", bootstrap_voters=("n1", "n2", "n3"))
    good = transport_of(own, one, {"n2": two}, handlers[0], known_instances={"n2": "instance-of-n2"})
    bad = transport_of(stranger, two, {"n1": one}, handlers[1])
    await good.start()
    await bad.start()
    try:
        await until(lambda: good.links()["n2"].last_error and bad.links()["n1"].last_error, "both refused")
        for link in (good.links()["n2"], bad.links()["n1"]):
            assert not link.connected
        assert re.search(says, good.links()["n2"].last_error + bad.links()["n1"].last_error)
        good.send("n2", PreVote(1, 1, 1, 1))
        bad.send("n1", PreVote(99, 1, 1, 1))
        assert handlers[0].received == handlers[1].received == []
        assert handlers[0].unreachable_peers == []
    finally:
        await good.close()
        await bad.close()


async def test_a_peer_that_lost_what_it_had_acknowledged_is_cut_off_hears_why_and_fails_and_may_come_again_s21() -> (
    None
):
    lost = AcknowledgedLost("entries up to 50 are gone", next_step="replace it")
    failures: list[BaseException] = []
    one, two = await unused_address(), await unused_address()
    handlers = Recorder(), Recorder()
    leader = transport_of(local_node("n1"), one, {"n2": two}, handlers[0])
    follower = transport_of(local_node("n2"), two, {"n1": one}, handlers[1], on_failure=failures.append)
    await leader.start()
    await follower.start()
    try:

        def connected() -> bool:
            return leader.links()["n2"].connected and follower.links()["n1"].connected

        await until(connected, "connected")
        leader.turn_away("n2", lost)
        await until(lambda: failures, "n2 hears why")
        (told,) = failures
        assert isinstance(told, AcknowledgedLost)
        assert (told.message, told.next_step, told.code) == (lost.message, lost.next_step, "ACKNOWLEDGED_LOST")
        # It was told once; a process that comes after it is judged by what it has.
        await until(connected, "connected again")
        assert len(failures) == 1
    finally:
        await leader.close()
        await follower.close()


async def test_other_refusals_end_nobody() -> None:
    failures: list[BaseException] = []
    one, two = await unused_address(), await unused_address()
    first = transport_of(local_node("n1"), one, {})
    other = transport_of(local_node("n2", cluster_id="cluster-b"), two, {"n1": one}, on_failure=failures.append)
    await first.start()
    await other.start()
    try:
        await until(lambda: "cluster-b" in other.links()["n1"].last_error, "refused")
        assert failures == []
    finally:
        await first.close()
        await other.close()


async def test_the_first_meeting_is_remembered_before_anything_passes() -> None:
    remembered: dict[str, str] = {}
    async with SocketCluster(2, remember_instance=remembered.__setitem__) as cluster:
        await cluster.connected()
        assert remembered == {"n1": "instance-of-n1", "n2": "instance-of-n2"}


@pytest.mark.parametrize(("kind", "final"), [(StorageFull, False), (StorageError, True)])
async def test_a_peer_that_cannot_be_remembered_is_not_let_in(kind: type[StorageError], final: bool) -> None:
    """And a disk that failed ends the node: the next try might pass without the disk knowing (S12)."""
    failures: list[BaseException] = []

    def fail(node_id: str, instance_id: str) -> None:
        raise kind("not written")

    async with SocketCluster(2, remember_instance=fail, on_failure=failures.append) as cluster:
        links = cluster.transport("n1").links
        await until(lambda: "not written" in links()["n2"].last_error, "refused")
        assert not links()["n2"].connected
        assert bool(failures) is final


@pytest.mark.parametrize("sent", STRANGERS.values(), ids=STRANGERS.keys())
async def test_strangers_on_the_peer_port_are_closed(sent: bytes) -> None:
    handler, lines = Recorder(), Lines()
    transport = transport_of(local_node("n1"), "127.0.0.1:0", {"n2": await unused_address()}, handler, log=lines)
    await transport.start()
    try:
        raw = await RawClient.to(transport.address)
        raw.send(sent)
        await raw.until_closed()
        assert len(lines.names()) == 1
        assert handler.received == []
    finally:
        await transport.close()


async def test_idle_strangers_are_closed_and_a_client_is_sent_to_the_other_port() -> None:
    lines = Lines()
    transport = transport_of(local_node("n1"), "127.0.0.1:0", {}, log=lines)
    await transport.start()
    try:
        idle = [await RawClient.to(transport.address) for _ in range(100)]
        for raw in idle:
            await raw.until_closed()
        client = await RawClient.to(transport.address)
        client.send(codec.encode_hello(hello_of_client()))
        await client.until_closed()
        [refusal] = bodies(client.data)
        assert refusal.next == "clients connect to 127.0.0.1:7101"
        assert lines.names() == ["handshake_not_finished", "peer_refused"]
    finally:
        await transport.close()


async def test_only_messages_pass_after_the_handshake() -> None:
    handler = Recorder()
    transport = transport_of(local_node("n1"), "127.0.0.1:0", {"n2": await unused_address()}, handler)
    await transport.start()
    try:
        raw = await RawClient.to(transport.address)
        hello = codec.encode_hello(hello_to_peer(local_node("n2"), "n1"))
        raw.send(hello + codec.encode_message(BEAT) + codec.encode_call(1, "status", {}))
        await raw.until_closed()
        assert handler.received == [("n2", BEAT)]
    finally:
        await transport.close()


async def test_a_peer_that_dials_again_replaces_its_half_open_connection() -> None:
    handler = Recorder()
    transport = transport_of(local_node("n1"), "127.0.0.1:0", {"n2": await unused_address()}, handler)
    await transport.start()
    hello = codec.encode_hello(hello_to_peer(local_node("n2"), "n1"))
    try:
        old = await RawClient.to(transport.address)
        old.send(hello)
        await old.changes.until(lambda: old.data)
        new = await RawClient.to(transport.address)
        new.send(hello)
        await old.until_closed()
        new.send(codec.encode_message(BEAT))
        await handler.changes.until(lambda: handler.received)
        new.close()
    finally:
        await transport.close()


async def test_the_client_address_of_a_peer_is_learned() -> None:
    async with SocketCluster(2) as cluster:
        await cluster.connected()
        n1 = cluster.transport("n1")
        assert n1.client_address("n2") == n1.links()["n2"].client_address == local_node("n2").client_address
        assert n1.client_address("n9") == ""


# -- names and first dials (S39, S43) ---------------------------------------------------------------


async def test_names_are_resolved_at_every_dial() -> None:
    resolver = FakeResolver()
    address = await unused_address()
    port = int(address.rpartition(":")[2])
    handler = Recorder()
    one = transport_of(local_node("n1"), "127.0.0.1:0", {"n2": "two.example:1"}, resolver=resolver)
    await one.start()
    two = transport_of(local_node("n2"), address, {"n1": one.address}, handler)
    try:
        # The name does not resolve: the peer is down, and this node is up all the same.
        await until(lambda: resolver.asked.count("two.example") >= 3, "three dials")
        assert "does not resolve" in one.links()["n2"].last_error
        await two.start()
        resolver.table["two.example"] = [("127.0.0.1", port)]
        await until(lambda: one.links()["n2"].connected, "connected when the name appeared")
        # It moves: another port under the same name, and the first address of two is dead.
        await two.close()
        dead, moved = await unused_address(), await unused_address()
        two = transport_of(local_node("n2"), moved, {"n1": one.address}, handler)
        await two.start()
        resolver.table["two.example"] = [("127.0.0.1", int(a.rpartition(":")[2])) for a in (dead, moved)]
        await until(lambda: one.links()["n2"].connected, "connected after the move")
        one.send("n2", BEAT)
        await handler.changes.until(lambda: handler.received)
    finally:
        await one.close()
        await two.close()


async def test_a_peer_that_starts_late_is_met() -> None:
    one_address, two_address = await unused_address(), await unused_address()
    one = transport_of(local_node("n1"), one_address, {"n2": two_address})
    await one.start()
    two = transport_of(local_node("n2"), two_address, {"n1": one_address})
    try:
        await until(lambda: one.links()["n2"].last_error == "connection refused", "a failed dial")
        await two.start()
        await until(lambda: one.links()["n2"].connected and two.links()["n1"].connected, "both connected")
        assert one.links()["n2"].last_error == ""
    finally:
        await one.close()
        await two.close()


async def test_a_peer_that_dials_ends_the_back_off() -> None:
    # With a back-off of hours only the other's dial can bring this link up within the test.
    hours = LIMITS._replace(backoff_first_s=7200.0, backoff_most_s=7200.0)
    one_address, two_address = await unused_address(), await unused_address()
    one = transport_of(local_node("n1"), one_address, {"n2": two_address}, limits=hours)
    await one.start()
    two = transport_of(local_node("n2"), two_address, {"n1": one_address})
    try:
        await until(lambda: one.links()["n2"].last_error, "a failed dial")
        await two.start()
        await until(lambda: one.links()["n2"].connected, "connected at once")
    finally:
        await one.close()
        await two.close()


async def test_a_full_default_executor_delays_no_dial() -> None:
    release = threading.Event()
    loop = asyncio.get_running_loop()
    sleepers = [loop.run_in_executor(None, release.wait) for _ in range(64)]
    resolver = ThreadResolver(lambda host, port: [("127.0.0.1", port)])
    try:
        one_address, two_address = await unused_address(), await unused_address()
        ports = [address.rpartition(":")[2] for address in (one_address, two_address)]
        one = transport_of(local_node("n1"), one_address, {"n2": f"two.example:{ports[1]}"}, resolver=resolver)
        two = transport_of(local_node("n2"), two_address, {"n1": f"one.example:{ports[0]}"}, resolver=resolver)
        await one.start()
        await two.start()
        await until(lambda: one.links()["n2"].connected and two.links()["n1"].connected, "both connected")
        assert not any(sleeper.done() for sleeper in sleepers)
        await one.close()
        await two.close()
    finally:
        release.set()
        await asyncio.gather(*sleepers)


async def test_look_ups_of_one_name_share_a_thread_and_hang_nobody_else() -> None:
    release = threading.Event()
    calls: list[str] = []

    def lookup(host: str, port: int) -> list[tuple[str, int]]:
        calls.append(host)
        if host == "slow.example":
            release.wait()
            raise OSError("gone")
        return [("127.0.0.1", port)]

    resolver = ThreadResolver(lookup)
    slow = [asyncio.ensure_future(resolver.resolve("slow.example", 1)) for _ in range(20)]
    await asyncio.sleep(0)
    assert await resolver.resolve("fast.example", 2) == [("127.0.0.1", 2)]
    assert await resolver.resolve("::1", 3) == [("::1", 3)]
    slow[0].cancel()
    release.set()
    results = await asyncio.gather(*slow, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert all(isinstance(result, OSError) for result in results[1:])
    assert calls.count("slow.example") == 1


# -- the hot path -----------------------------------------------------------------------------------


async def test_a_message_for_several_peers_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with SocketCluster() as cluster:
        await cluster.connected()
        encoded: list[Any] = []

        def encode(message: Any) -> bytes:
            encoded.append(message)
            return codec.encode_message(message)

        monkeypatch.setattr(peers, "encode_message", encode)
        n1 = cluster.transport("n1")
        first, equal = BEAT._replace(sent_at=5), BEAT._replace(sent_at=5)
        for message in (first, equal):
            for peer in ("n2", "n3"):
                n1.send(peer, message)
        assert encoded == [first, equal]


async def test_nothing_is_encoded_for_a_peer_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = transport_of(local_node("n1"), "127.0.0.1:0", {"n2": await unused_address()})
    await transport.start()
    monkeypatch.setattr(peers, "encode_message", None)
    for _ in range(10):
        transport.send("n2", BEAT)
    assert transport.links()["n2"].dropped == 10
    await transport.close()


# -- ends (S41, S45) --------------------------------------------------------------------------------


async def test_closing_waits_for_nobody() -> None:
    async with SocketCluster() as cluster:
        await cluster.connected()
        for proxy in cluster.proxies.values():
            proxy.frozen = True
        n1 = cluster.transport("n1")
        stranger = await RawClient.to(n1.address)
        async with asyncio.timeout(DEADLINE_S):
            await n1.close()
            await n1.close()
            await stranger.until_closed()
        assert not n1._tasks
        # Its own end is no broken link.
        assert cluster.handlers["n1"].unreachable_peers == []


@pytest.mark.parametrize("turns", range(5))
async def test_a_port_that_closes_while_somebody_comes_loses_no_socket(turns: int) -> None:
    """However far the accepting has got. A socket that is lost is a warning, and a warning a failure."""
    transport = transport_of(local_node("n1"), "127.0.0.1:0", {})
    await transport.start()
    host, _, port = transport.address.rpartition(":")
    with socket.create_connection((host, int(port))) as stranger:
        for _ in range(turns):
            await asyncio.sleep(0)
        await transport.close()
        gc.collect()
        stranger.settimeout(DEADLINE_S)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""


async def test_who_comes_in_after_the_port_has_closed_is_closed_too() -> None:
    transport = transport_of(local_node("n1"), "127.0.0.1:0", {})
    await transport.start()
    assert transport._port is not None
    late = PeerConnection(transport._port.table, transport, LIMITS)
    await transport.close()
    wire = FakeTransport()
    late.connection_made(wire)
    assert wire.aborted
    assert transport._port.table.connections == set()


async def test_closing_in_the_middle_of_a_dial() -> None:
    async with Proxy("127.0.0.1:1") as proxy:
        proxy.frozen = True
        transport = transport_of(local_node("n1"), "127.0.0.1:0", {"n2": proxy.address})
        await transport.start()
        await proxy.changes.until(lambda: proxy.connections)
        async with asyncio.timeout(DEADLINE_S):
            await transport.close()


async def test_a_handshake_that_is_given_up_leaves_no_socket() -> None:
    once = LIMITS._replace(connect_timeout_s=0.05, backoff_first_s=7200.0, backoff_most_s=7200.0)
    async with Proxy("127.0.0.1:1") as proxy:
        proxy.hold = True
        transport = transport_of(local_node("n1"), "127.0.0.1:0", {"n2": proxy.address}, limits=once)
        await transport.start()
        await until(lambda: transport.links()["n2"].last_error == "no answer in time", "given up")
        await until(lambda: proxy.connections and not proxy.sides, "the socket is closed")
        await transport.close()


async def test_a_link_task_that_dies_does_not_die_unseen() -> None:
    class Broken:
        async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
            if host != "127.0.0.1":
                raise ZeroDivisionError("a bug")
            return [(host, port)]

    failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    transport = transport_of(
        local_node("n1"), "127.0.0.1:0", {"n2": "two.example:1"}, resolver=Broken(), on_failure=failed.set_result
    )
    await transport.start()
    async with asyncio.timeout(DEADLINE_S):
        assert isinstance(await failed, ZeroDivisionError)
    await transport.close()


async def test_an_exception_of_the_handler_is_loud(asyncio_complaints: list[str]) -> None:
    class Broken(Recorder):
        def receive(self, source: str, message: Any) -> None:
            raise ZeroDivisionError("a bug in the node")

    transport = transport_of(local_node("n1"), "127.0.0.1:0", {"n2": await unused_address()}, Broken())
    await transport.start()
    raw = await RawClient.to(transport.address)
    hello = hello_to_peer(local_node("n2"), "n1")
    raw.send(codec.encode_hello(hello) + codec.encode_message(BEAT))
    await raw.until_closed()
    await transport.close()
    assert any("a bug in the node" in line for line in asyncio_complaints)
    asyncio_complaints.clear()
