"""The client port: what strangers cost, what slow clients cost, and how it closes (S35, S37, S45)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencepost.raft.core.errors import ConfigurationError
from fencepost.raft.core.messages import PreVote
from fencepost.raft.ports import Answer, AnswerStatus, SubmitRequest
from fencepost.transport import codec, listener
from fencepost.transport.client import Client
from fencepost.transport.codec import Hello
from fencepost.transport.framing import FrameDecoder, encode_frame
from fencepost.transport.handshake import hello_of_client, hello_to_peer

from ..damage import flipped
from .samples import local_node
from .world import DEADLINE_S, FakeNode, Lines, RawClient, command, silent, unused_address

HELLO = codec.encode_hello(hello_of_client())


def bodies(data: bytes) -> list[Any]:
    return [codec.decode_body(t, b) for t, b in FrameDecoder(1 << 26).feed(data)]


class Guarded(FakeNode):
    """A node with tight limits and a log that is kept."""

    def __init__(self, **limits: Any) -> None:
        self.lines = Lines()
        self.limits = {"sweep_s": 0.02, "log": self.lines, **limits}
        super().__init__()

    def make_listener(self, listen: str, **limits: Any) -> listener.ClientListener:
        return super().make_listener(listen, **{**self.limits, **limits})


STRANGERS = {
    "four bytes of ones": b"\xff\xff\xff\xff",
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "length bomb": b"FP\x01\x01\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00",
    "bad checksum": flipped(HELLO, -1),
    "unknown type": encode_frame(99, b""),
    "deep nesting": encode_frame(1, b"\x81\xa1k" * 5_000),
    "a request before the handshake": codec.encode_call(1, "status", {}),
    "a message of a peer": HELLO + codec.encode_message(PreVote(1, 1, 1, 1)),
    "a second hello": HELLO + HELLO,
    "half a frame after the handshake": HELLO + codec.encode_ping(1) + b"FQ",
}


@pytest.mark.parametrize("sent", STRANGERS.values(), ids=STRANGERS.keys())
async def test_what_is_not_a_client_is_closed_and_others_are_served(sent: bytes) -> None:
    async with Guarded() as node, Client([node.address]) as client:
        raw = await RawClient.to(node.address)
        raw.send(sent)
        await raw.until_closed()
        assert node.lines.names() == ["frame_invalid"]
        assert (await client.submit(command())).index == 1


@pytest.mark.parametrize("sent", [b"", HELLO[:1], HELLO[:16], HELLO[:-1]])
async def test_who_does_not_finish_the_handshake_is_closed_by_the_deadline(sent: bytes) -> None:
    async with Guarded() as node:
        raw = await RawClient.to(node.address)
        raw.send(sent)
        await raw.until_closed()
        assert node.lines.names() == ["handshake_not_finished"]
        assert node.gone == []


async def test_a_byte_now_and_then_does_not_put_off_the_deadline() -> None:
    async with Guarded() as node:
        raw = await RawClient.to(node.address)
        for at in range(len(HELLO) - 1):
            raw.send(HELLO[at : at + 1])
            done, _ = await asyncio.wait({raw.lost}, timeout=0.05)
            if done:
                break
        await raw.until_closed()
        assert node.lines.names() == ["handshake_not_finished"]


async def test_a_flood_of_garbage_leaves_one_line() -> None:
    async with Guarded() as node:
        for _ in range(50):
            raw = await RawClient.to(node.address)
            raw.send(b"GET / HTTP/1.0\r\n\r\n")
            await raw.until_closed()
        assert node.lines.names() == ["frame_invalid"]


async def test_idle_strangers_make_room_for_clients() -> None:
    async with Guarded(connections_max=8, sweep_s=60.0) as node:
        idle = [await RawClient.to(node.address) for _ in range(40)]
        async with Client([node.address]) as client:
            assert (await client.submit(command())).index == 1
            assert node.listener.connections <= 8
            # The first of them had to go.
            await idle[0].until_closed()
        for raw in idle:
            raw.close()


async def test_known_clients_are_not_pushed_out() -> None:
    async with Guarded(connections_max=1) as node, Client([node.address]) as client:
        await client.call("status", {})
        late = await RawClient.to(node.address)
        late.send(HELLO)
        await late.until_closed()
        assert node.lines.names() == ["connection_limit_reached"]
        assert (await client.submit(command())).index == 1


async def test_a_silent_client_is_closed_and_its_handler_told_once() -> None:
    async with Guarded(silent_sweeps=3) as node:
        raw = await RawClient.to(node.address)
        raw.send(HELLO)
        await raw.until_closed()
        await node.changes.until(lambda: node.gone)
        assert len(node.gone) == 1


@pytest.mark.parametrize(
    ("hello", "code", "says"),
    [
        (hello_of_client("cluster-b"), "CLUSTER_MISMATCH", "asks for cluster 'cluster-b'"),
        (hello_to_peer(local_node("n2"), "n1"), "HANDSHAKE_REFUSED", "client port of node n1"),
        (Hello(version=8, role="client"), "HANDSHAKE_REFUSED", "protocol version 8"),
    ],
)
async def test_a_refusal_says_why_and_closes(hello: Hello, code: str, says: str) -> None:
    async with Guarded() as node:
        raw = await RawClient.to(node.address)
        raw.send(codec.encode_hello(hello))
        await raw.until_closed()
        [refusal] = bodies(raw.data)
        assert refusal.code == code
        assert says in refusal.message
        assert node.lines.names() == ["client_refused"]


async def test_too_many_unanswered_requests_are_busy() -> None:
    async with Guarded(unanswered_max=10) as node:
        node.script = silent
        raw = await RawClient.to(node.address)
        requests = [SubmitRequest(n, 2, b"") for n in range(6)]
        node.script = lambda *_: None
        raw.send(HELLO + codec.encode_submit(requests) + codec.encode_submit(requests))
        await raw.changes.until(lambda: len(bodies(raw.data)) == 2)
        welcome, answers = bodies(raw.data)
        assert welcome.node_id == "n1"
        assert [a.request_id for a in answers] == list(range(6))
        assert {(a.status, a.code) for a in answers} == {(AnswerStatus.RETRY, "BUSY")}
        assert len(node.frames) == 1
        raw.close()


async def test_answers_make_room_for_more_requests() -> None:
    async with Guarded(unanswered_max=10) as node, Client([node.address]) as client:
        for number in range(100):
            assert (await client.submit(command(f"op-{number}"))).index == number + 1
        assert len(node.submissions) == 100  # None was turned away and tried again.


async def test_a_client_that_does_not_read_is_closed_and_others_are_served() -> None:
    async with Guarded(unread_bytes_max=64 * 1024, sweep_s=3600.0) as node, Client([node.address]) as client:
        raw = await RawClient.to(node.address)
        raw.send(HELLO + codec.encode_submit([SubmitRequest(1, 2, b"")]))
        node.once = [lambda *_: None]
        [connection] = await self_of(node)
        assert raw.transport is not None
        raw.transport.pause_reading()
        big = Answer(1, AnswerStatus.DONE, 1, 1, False, "", b"x" * 1_000_000, "", "")
        for _ in range(100):
            connection.answer([big])
        await node.changes.until(lambda: node.gone)
        connection.answer([big])  # Dropped: there is nobody any more.
        connection.reply(1, {})
        assert node.lines.names() == ["client_does_not_read"]
        assert (await client.submit(command())).index == 1
        raw.close()


async def self_of(node: FakeNode) -> list[Any]:
    """The connections whose submissions the node has seen."""
    seen: list[Any] = []
    submit = node.submit

    def spy(connection: Any, requests: list[SubmitRequest]) -> None:
        seen.append(connection)
        submit(connection, requests)

    node.submit = spy  # type: ignore[method-assign]
    await node.changes.until(lambda: seen)
    return seen


async def test_a_reply_that_is_too_large_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "BODY_BYTES_MAX", 1000)
    async with FakeNode() as node, Client([node.address]) as client:
        with pytest.raises(Exception, match="the limit is 1000") as caught:
            await client.call("m", {"text": "x" * 2000})
        assert caught.value.next_step  # type: ignore[attr-defined]


async def test_closing_does_not_wait_for_anyone() -> None:
    node = FakeNode()
    await node.listener.start()
    idle = [await RawClient.to(node.address) for _ in range(3)]
    idle[0].send(HELLO)
    await idle[0].changes.until(lambda: idle[0].data)
    idle[1].send(HELLO[:5])
    async with asyncio.timeout(DEADLINE_S):
        await node.listener.close()
        assert node.listener.connections == 0
        assert len(node.gone) == 1
        await node.listener.close()
        for raw in idle:
            await raw.until_closed()


async def test_closing_before_starting_is_nothing() -> None:
    await FakeNode().listener.close()


async def test_an_address_in_use_is_a_configuration_error() -> None:
    async with FakeNode() as node:
        second = node.make_listener(node.address)
        with pytest.raises(ConfigurationError, match="cannot listen") as caught:
            await second.start()
        assert caught.value.next_step
        await second.close()


async def test_the_port_can_be_had_again_at_once() -> None:
    address = await unused_address()
    for _ in range(3):
        node = FakeNode()
        node.listener = node.make_listener(address)
        async with node, Client([address]) as client:
            assert (await client.submit(command())).index == 1
