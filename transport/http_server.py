"""A small HTTP/1.1 server for what machines ask of a node: bounded, and without a framework.

It reads one request at a time from a connection, whole and within bounds, has it answered, and writes the answer.
What it does not take it refuses with a sentence: bodies without a length, folded headers, requests that two readers
could cut in different places (RFC 9112, section 11).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import unquote

import structlog

from ..raft.core.errors import ConfigurationError
from .address import Resolver, ThreadResolver, describe_failure, format_address, parse_address
from .http_problem import HttpAnswer, problem
from .server import accept_no_more

HEAD_BYTES_MAX = 16 << 10
"""Request line and headers of one request."""
HEADERS_MAX = 100
CONNECTIONS_MAX = 256
REQUEST_TIMEOUT_S = 10.0
"""How long a request may take to arrive, from its first byte; and an answer to be read."""
IDLE_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 2.0
LINGER_S = 2.0
"""How long what a refused client still sends is thrown away: closing on it would take the refusal from it, too."""

_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) (/[!\"$-~]{0,8000}) HTTP/1\.([01])")
"""Without #: a fragment is never sent, and who passes it on may cut the path there."""
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")
_ONCE = frozenset({"host", "content-length", "content-type", "authorization", "idempotency-key"})
"""Headers that a request may have once only: two of them are two opinions."""
_PHRASES = {
    200: "OK", 201: "Created", 202: "Accepted", 204: "No Content", 400: "Bad Request", 403: "Forbidden",
    404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout", 409: "Conflict", 411: "Length Required",
    412: "Precondition Failed", 413: "Content Too Large", 417: "Expectation Failed", 422: "Unprocessable Content",
    428: "Precondition Required", 431: "Request Header Fields Too Large", 500: "Internal Server Error",
    501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}  # fmt: skip

_LOG = structlog.get_logger("fencepost.http")


class HttpRequest(NamedTuple):
    method: str
    path: str
    """Without the query, percent-decoding undone."""
    target: str
    """Path and query as they were sent."""
    headers: list[tuple[str, str]]
    """In order; names in lower case."""
    body: bytes

    def header(self, name: str) -> str:
        """The first one of that (lower-case) name; empty if there is none."""
        return next((value for each, value in self.headers if each == name), "")


Handler = Callable[[HttpRequest], Awaitable[HttpAnswer]]


class Malformed(Exception):
    """This request cannot be read, and what comes after it neither: it is answered, and the connection closed."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class _Head(NamedTuple):
    request: HttpRequest
    body_bytes: int
    keeps: bool
    expects: bool


def read_head(head: bytes, body_bytes_max: int) -> _Head:
    """Request line and headers, without the empty line at their end. Raises :class:`Malformed`."""
    line, *lines = head.split(b"\r\n")
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        raise Malformed(400, "the request line is not METHOD /path HTTP/1.1")
    if len(lines) > HEADERS_MAX:
        raise Malformed(431, f"{len(lines)} headers; the limit is {HEADERS_MAX}")
    headers: list[tuple[str, str]] = []
    seen: set[str] = set()
    for each in lines:
        header = _HEADER.fullmatch(each)
        if header is None:
            raise Malformed(400, "a header is not NAME: VALUE")
        name = header[1].decode("ascii").lower()
        if name in seen and (name in _ONCE or name.startswith("x-fencepost-")):
            raise Malformed(400, f"the header {name} is there twice")
        seen.add(name)
        headers.append((name, header[2].decode("latin-1")))
    values = dict(headers)
    if found[3] == b"1" and "host" not in values:
        raise Malformed(400, "a request of HTTP/1.1 has a Host header")
    target = found[2].decode("ascii")
    request = HttpRequest(found[1].decode("ascii"), unquote(target.partition("?")[0]), target, headers, b"")
    keeps = found[3] == b"1" and "close" not in values.get("connection", "").lower()
    expects = values.get("expect", "").lower()
    if expects not in ("", "100-continue"):
        raise Malformed(417, "only Expect: 100-continue is known")
    return _Head(request, _body_bytes(values, body_bytes_max), keeps, bool(expects))


def _body_bytes(values: dict[str, str], most: int) -> int:
    if "transfer-encoding" in values:
        raise Malformed(411, "send the body with a Content-Length; transfer encodings are not read here")
    length = values.get("content-length", "0")
    if not (length.isascii() and length.isdigit() and len(length) < 20):
        raise Malformed(400, "the Content-Length is no number")
    if int(length) > most:
        raise Malformed(413, f"a body of {length} bytes; the limit is {most}")
    return int(length)


class _Connection(asyncio.Protocol):
    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ending = False
        self.over: asyncio.Future[None] = self._loop.create_future()

    # -- from the socket ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.entered(self)
        self._arm(REQUEST_TIMEOUT_S)

    def data_received(self, data: bytes) -> None:
        if self._ending:
            return
        if not self._buffer and self._head is None and self._task is None:
            self._arm(REQUEST_TIMEOUT_S)
        self._buffer += data
        if self._task is None:
            self._read()
        elif len(self._buffer) > HEAD_BYTES_MAX and self._transport is not None:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        return self._task is not None  # Who has said all may still wait for the answer.

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._ending = True
        if self._timer is not None:
            self._timer.cancel()
        self._server.left(self)
        if not self.over.done():
            self.over.set_result(None)

    # -- one request ----------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Nothing is being answered."""
        return self._task is None

    def _read(self) -> None:
        try:
            head = self._head or self._read_head()
            if head is None or len(self._buffer) < head.body_bytes:
                return
        except Malformed as error:
            self._ending = True
            self._buffer.clear()
            self._write(problem(error.status, "FRAME_INVALID", error.why), keeps=False, body=True, lingers=True)
            return
        body = bytes(self._buffer[: head.body_bytes])
        del self._buffer[: head.body_bytes]
        self._head = None
        if self._timer is not None:
            self._timer.cancel()
        self._task = self._loop.create_task(self._answer(head, head.request._replace(body=body)))

    def _read_head(self) -> _Head | None:
        end = self._buffer.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX + 4)
        if end < 0:
            if len(self._buffer) > HEAD_BYTES_MAX:
                raise Malformed(431, f"the headers are longer than {HEAD_BYTES_MAX} bytes")
            return None
        head = read_head(bytes(self._buffer[:end]), self._server.body_bytes_max)
        del self._buffer[: end + 4]
        self._head = head
        if head.expects and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return head

    async def _answer(self, head: _Head, request: HttpRequest) -> None:
        try:
            answer = await self._server.handler(request)
        except Exception as error:  # A bug in one answer ends neither the node nor the connection.
            _LOG.error("http handler raised", method=request.method, path=request.path, exc_info=error)
            answer = problem(500, "INTERNAL", f"{type(error).__name__} while answering")
        self._task = None
        self._write(answer, keeps=head.keeps, body=request.method != "HEAD")
        if self._transport is None or self._ending:
            return
        self._transport.resume_reading()
        if self._buffer:
            self._arm(REQUEST_TIMEOUT_S)
            self._read()

    def _write(self, answer: HttpAnswer, *, keeps: bool, body: bool, lingers: bool = False) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        headers = [*answer.headers]
        if answer.status in (204, 304):
            body = False  # RFC 9110, section 8.6: and no length either.
        elif body or answer.body:
            # Of what is left out of an answer to HEAD, only if it is known.
            headers.append(("Content-Length", str(len(answer.body))))
        if answer.body:
            headers.append(("Content-Type", answer.content_type))
        if not keeps:
            headers.append(("Connection", "close"))
        lines = [f"HTTP/1.1 {answer.status} {_PHRASES.get(answer.status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in headers]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
        transport.write(head + (answer.body if body else b""))
        if keeps:
            # An answer that is not read does not stay in memory for long.
            self._arm(REQUEST_TIMEOUT_S if transport.get_write_buffer_size() else IDLE_TIMEOUT_S)
            return
        self._ending = True
        if lingers and transport.can_write_eof():
            transport.write_eof()
            self._arm(LINGER_S)
        else:
            transport.close()
            self._arm(REQUEST_TIMEOUT_S)

    # -- its end --------------------------------------------------------------------------------------

    def _arm(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._late)

    def _late(self) -> None:
        transport = self._transport
        if self._task is not None or transport is None:
            return
        if (self._buffer or self._head is not None) and not self._ending:
            self._ending = True
            self._write(problem(408, "FRAME_INVALID", "the request did not arrive in time"), keeps=False, body=True)
        else:
            transport.abort()

    def abort(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()


class HttpServer:
    """Serves ``handler`` on ``listen`` (host:port). ``body_bytes_max`` bounds the body of a request."""

    def __init__(
        self,
        listen: str,
        handler: Handler,
        *,
        body_bytes_max: int = 0,
        connections_max: int = CONNECTIONS_MAX,
        resolver: Resolver | None = None,
    ) -> None:
        self.handler = handler
        self.body_bytes_max = body_bytes_max
        self._listen = listen
        self._host, self._port = parse_address(listen)
        self._connections_max = connections_max
        self._resolver = resolver if resolver is not None else ThreadResolver()
        self._server: asyncio.Server | None = None
        self._connections: dict[_Connection, None] = {}

    @property
    def address(self) -> str:
        """``host:port`` as bound; the real port where 0 was asked for."""
        if self._server is None or not self._server.sockets:
            return self._listen
        return format_address(self._host, int(self._server.sockets[0].getsockname()[1]))

    @property
    def exposed(self) -> bool:
        """Whether it is bound to an address that is not of this machine alone."""
        sockets = () if self._server is None else self._server.sockets
        return any(not ip_address(each.getsockname()[0].partition("%")[0]).is_loopback for each in sockets)

    async def start(self) -> None:
        """Bind and accept. Raises :class:`ConfigurationError` when the address cannot be had."""
        loop = asyncio.get_running_loop()
        try:
            addresses = await self._resolver.resolve(self._host, self._port)
            self._server = await loop.create_server(
                lambda: _Connection(self), [host for host, _ in addresses], self._port, backlog=128
            )
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {self._listen} (HTTP): {describe_failure(error)}",
                tried=[f"{self._listen}  {error}"],
                next_step="stop the program that uses the address, or choose another one in the configuration",
            ) from error

    async def close(self) -> None:
        """Stop accepting and cut every connection. Bounded; may be called twice."""
        server, self._server = self._server, None
        if server is None:
            return
        await accept_no_more(server)
        server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.abort()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                for connection in connections:
                    await connection.over
                await server.wait_closed()
        except TimeoutError:
            _LOG.warning("close_deadline_passed", port="http")

    def entered(self, connection: Any) -> None:
        if len(self._connections) >= self._connections_max:
            # An idle one goes first: whoever keeps sockets open must not keep a probe out.
            victim = next((each for each in self._connections if each.idle), connection)
            _LOG.warning("connection_limit_reached", port="http", limit=self._connections_max)
            victim.abort()
            self.left(victim)
            if victim is connection:
                return
        self._connections[connection] = None

    def left(self, connection: Any) -> None:
        self._connections.pop(connection, None)
