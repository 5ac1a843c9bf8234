"""How frames leave: one write a loop turn; how silence is counted; what a resolver may not hold up."""

from __future__ import annotations

import asyncio
from typing import Any

from fencepost.transport.codec import encode_ping, encode_pong
from fencepost.transport.connection import GATHERED_BYTES_MAX, STUCK_FRAME_SWEEPS, FramedConnection
from fencepost.transport.framing import encode_frame


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closing = False
        self.aborted = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def get_write_buffer_size(self) -> int:
        return 0


class Sink(FramedConnection):
    def __init__(self) -> None:
        super().__init__()
        self.got: list[Any] = []

    def received(self, frame_type: int, body: Any) -> None:
        self.got.append(body)
        if len(self.got) == 2:
            self.abort("enough")

    def ponged(self, number: int) -> None:
        self.got.append(f"pong {number}")


def connected() -> tuple[Sink, FakeTransport]:
    connection, transport = Sink(), FakeTransport()
    connection.connection_made(transport)
    return connection, transport


async def a_turn() -> None:
    await asyncio.sleep(0)


async def test_the_first_frame_leaves_at_once_and_the_rest_of_the_turn_together() -> None:
    connection, transport = connected()
    for frame in (b"a", b"b", b"c"):
        connection.write(frame)
    assert transport.writes == [b"a"]
    assert connection.waiting_bytes == 2
    await a_turn()
    assert transport.writes == [b"a", b"bc"]
    await a_turn()
    connection.write(b"d")
    assert transport.writes[-1] == b"d"


async def test_what_is_gathered_is_bounded() -> None:
    connection, transport = connected()
    big = b"x" * (GATHERED_BYTES_MAX // 2)
    for _ in range(10):
        connection.write(big)
    assert connection.waiting_bytes <= GATHERED_BYTES_MAX + len(big)
    await a_turn()
    assert b"".join(transport.writes) == big * 10


async def test_closing_sends_what_was_gathered_and_aborting_does_not() -> None:
    connection, transport = connected()
    connection.write(b"a")
    connection.write(b"b")
    connection.finish("bye")
    assert transport.writes == [b"a", b"b"]
    connection.write(b"c")
    connection, other = connected()
    connection.write(b"a")
    connection.write(b"b")
    connection.abort("bye")
    await a_turn()
    assert other.writes == [b"a"]
    assert transport.writes == [b"a", b"b"]


async def test_a_connection_that_does_not_finish_closing_is_aborted_by_the_next_sweep() -> None:
    connection, transport = connected()
    connection.finish("bye")
    assert not transport.aborted
    connection.sweep()
    assert transport.aborted


async def test_pings_are_answered_and_the_rest_is_passed_on_until_closed() -> None:
    connection, transport = connected()
    call = encode_frame(35, b"\x93\x01\xa1m\x80")
    connection.data_received(encode_ping(7) + call * 5)
    assert transport.writes == [encode_pong(7)]
    assert len(connection.got) == 2
    connection.data_received(call)
    assert len(connection.got) == 2


async def test_a_peer_that_pings_and_does_not_read_gets_one_pong_when_it_does() -> None:
    connection, transport = connected()
    connection.pause_writing()
    for number in range(1, 1000):
        connection.data_received(encode_ping(number))
    assert transport.writes == []
    assert connection.waiting_bytes == 0
    connection.resume_writing()
    await a_turn()
    assert transport.writes == [encode_pong(999)]
    connection.data_received(encode_ping(1000))
    await a_turn()
    assert transport.writes == [encode_pong(999), encode_pong(1000)]


async def test_pongs_are_told_of_in_their_place() -> None:
    connection, _ = connected()
    connection.data_received(encode_pong(3) + encode_frame(35, b"\x93\x01\xa1m\x80"))
    assert [item if isinstance(item, str) else "frame" for item in connection.got] == ["pong 3", "frame"]


async def test_silence_is_counted_in_sweeps() -> None:
    connection, _ = connected()
    assert [connection.sweep() for _ in range(4)] == [0, 1, 2, 3]
    connection.data_received(b"F")
    assert [connection.sweep() for _ in range(2)] == [0, 1]


async def test_a_frame_that_is_never_finished_ends_the_connection() -> None:
    connection, transport = connected()
    frame = encode_frame(35, b"x" * 10_000)
    for at in range(STUCK_FRAME_SWEEPS + 2):
        connection.data_received(frame[at : at + 1])
        connection.sweep()
    assert transport.aborted
    assert connection.why == "a frame was begun and not finished"
