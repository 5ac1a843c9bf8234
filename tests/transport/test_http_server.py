"""The small HTTP server: what it reads, what it refuses, and that nothing of it is without a bound."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import pytest

from fencepost.raft.core.errors import ConfigurationError
from fencepost.transport import http_server
from fencepost.transport.address import parse_address
from fencepost.transport.http_problem import HttpAnswer, json_answer
from fencepost.transport.http_server import HttpRequest, HttpServer

from ..core.planting import planted
from ..waiting import eventually_async


class Told(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


async def echo(request: HttpRequest) -> HttpAnswer:
    if request.path == "/raises":
        raise RuntimeError("planted")
    if request.path == "/nothing":
        return HttpAnswer(204, headers=(("X-Name", "\N{EURO SIGN}"),))
    return json_answer({"method": request.method, "path": request.path, "body": request.body.decode()})


@asynccontextmanager
async def serving(**settings: int) -> AsyncIterator[HttpServer]:
    server = HttpServer("127.0.0.1:0", echo, **settings)  # type: ignore[arg-type]
    await server.start()
    try:
        yield server
    finally:
        await server.close()


async def read_answer(reader: asyncio.StreamReader, *, body: bool = True) -> Told:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *lines = head.strip().split("\r\n")
    headers = dict(each.lower().split(": ", 1) for each in lines)
    length = int(headers.get("content-length", "0")) if body else 0
    return Told(int(line.split()[1]), headers, await reader.readexactly(length))


async def send(server: HttpServer, data: bytes) -> tuple[Told, bytes]:
    """The first answer, and what came after it until the connection was closed."""
    reader, writer = await asyncio.open_connection(*parse_address(server.address))
    try:
        writer.write(data)
        told = await read_answer(reader)
        return told, await reader.read() if told.headers.get("connection") == "close" else b""
    finally:
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def connected(server: HttpServer) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*parse_address(server.address))
    try:
        yield reader, writer
    finally:
        await gone(writer)


async def over(server: HttpServer) -> bool:
    return not server._connections


async def gone(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):  # The server has cut it.
        await writer.wait_closed()


async def test_requests_of_one_connection_are_answered_in_order_however_they_arrive() -> None:
    async with serving(body_bytes_max=100) as server:
        reader, writer = await asyncio.open_connection(*parse_address(server.address))
        first = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
        second = b"GET /b?c=d HTTP/1.1\r\nHost: x\r\n\r\n"
        for byte in first + second:
            writer.write(bytes([byte]))
            await writer.drain()
        writer.write(first + second)
        answers = [await read_answer(reader) for _ in range(4)]
        assert [json.loads(each.body)["path"] for each in answers] == ["/a", "/b", "/a", "/b"]
        assert [json.loads(each.body)["body"] for each in answers] == ["hello", "", "hello", ""]
        writer.write(b"HEAD /b HTTP/1.1\r\nHost: x\r\n\r\n" + second)
        assert (await read_answer(reader, body=False)).headers["content-length"] != "0"
        assert (await read_answer(reader)).status == 200
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"get / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\nA: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\na", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX-Fencepost-Token: 1.1\r\nX-Fencepost-Token: 1.2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: x\r\nExpect: more\r\n\r\n", 417),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 100 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * http_server.HEAD_BYTES_MAX, 431),
    ],
)
async def test_what_cannot_be_read_in_one_way_only_is_refused_and_the_connection_closed(
    data: bytes, status: int
) -> None:
    async with serving(body_bytes_max=100) as server:
        told, rest = await send(server, data)
        assert (told.status, rest) == (status, b"")
        assert told.headers["connection"] == "close"
        assert told.headers["content-type"] == "application/problem+json"
        assert json.loads(told.body)["code"] == "FRAME_INVALID"


async def test_who_sends_too_much_hears_so_while_still_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing on what was not read would be a reset, which takes the refusal from the client as well."""
    monkeypatch.setattr(http_server, "LINGER_S", 30.0)
    async with serving(body_bytes_max=100) as server:
        async with connected(server) as (reader, writer):
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n" + b"x" * 20_000_000)
            await writer.drain()
            assert (await read_answer(reader)).status == 413
            assert await reader.read() == b""
        await eventually_async(partial(over, server), within_s=5, what="the connection is over")


async def test_who_never_stops_sending_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "LINGER_S", 0.05)
    async with serving(body_bytes_max=100) as server, connected(server) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n")
        assert (await read_answer(reader)).status == 413
        await eventually_async(partial(over, server), within_s=5, what="the connection is cut")


async def test_an_answer_without_content_has_no_length_and_no_character_breaks_it() -> None:
    async with serving() as server:
        told, _ = await send(server, b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (told.status, told.headers) == (204, {"x-name": "?"})


async def test_a_body_that_waits_to_be_asked_for_is_asked_for() -> None:
    async with serving(body_bytes_max=100) as server:
        reader, writer = await asyncio.open_connection(*parse_address(server.address))
        writer.write(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ok")
        assert json.loads((await read_answer(reader)).body)["body"] == "ok"
        writer.close()
        await writer.wait_closed()


async def test_a_handler_that_raises_costs_one_answer() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection(*parse_address(server.address))
        writer.write(b"GET /raises HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n")
        raised, after = await read_answer(reader), await read_answer(reader)
        assert (raised.status, json.loads(raised.body)["code"], after.status) == (500, "INTERNAL", 200)
        writer.close()
        await writer.wait_closed()


async def test_half_a_request_does_not_stay_and_neither_does_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT_S", 0.05)
    monkeypatch.setattr(http_server, "IDLE_TIMEOUT_S", 0.05)
    async with serving() as server:
        told, rest = await send(server, b"GET / HTTP/1.1\r\nHo")
        assert (told.status, rest) == (408, b"")
        silent, writer = await asyncio.open_connection(*parse_address(server.address))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await silent.readexactly(1)
        await gone(writer)


async def test_idle_connections_cannot_keep_a_probe_out() -> None:
    async with serving(connections_max=3) as server:
        idle = [await asyncio.open_connection(*parse_address(server.address)) for _ in range(3)]

        async def all_in() -> object:
            return len(server._connections) == 3

        await eventually_async(all_in, within_s=5, what="three connections")
        assert (await send(server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))[0].status == 200
        assert len(server._connections) <= 3
        for _, writer in idle:
            await gone(writer)


@pytest.mark.parametrize(("host", "exposed"), [("127.0.0.1", False), ("0.0.0.0", True), ("127.0.0.9", False)])
async def test_it_knows_whether_other_machines_reach_it(host: str, exposed: bool) -> None:
    server = HttpServer(f"{host}:0", echo)
    assert not server.exposed
    await server.start()
    try:
        assert server.exposed is exposed
    finally:
        await server.close()


async def test_an_address_in_use_is_a_sentence_and_closing_does_not_wait_for_idle_clients() -> None:
    async with serving() as server:
        with pytest.raises(ConfigurationError, match="cannot listen on"):
            await HttpServer(server.address, echo).start()
        reader, writer = await asyncio.open_connection(*parse_address(server.address))
        async with asyncio.timeout(1.0):
            await server.close()
            await server.close()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await reader.readexactly(1)
        await gone(writer)


@pytest.mark.parametrize(
    ("function", "line", "fault", "test"),
    [
        (http_server._Connection._read, ", lingers=True", "", test_who_sends_too_much_hears_so_while_still_sending),
        (http_server._Connection._write, "self._arm(LINGER_S)", "pass", test_who_never_stops_sending_is_cut),
        (http_server._Connection._write, "answer.status in (204, 304)", "False",
         test_an_answer_without_content_has_no_length_and_no_character_breaks_it),
    ],
)  # fmt: skip
@pytest.mark.endure
async def test_a_planted_fault_is_seen(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], line: str, fault: str, test: Callable[..., Any]
) -> None:
    more = {"monkeypatch": monkeypatch} if "monkeypatch" in test.__annotations__ else {}
    with planted(function, line, fault), pytest.raises((Exception, pytest.fail.Exception)):
        async with asyncio.timeout(10):
            await test(**more)
