"""The client port of a node: frames to requests, answers to frames.

The node gets a frame's requests as one list and gives back answers as lists; nothing here is done
per request. A client that sends without reading is told BUSY at a bound of unanswered requests, and
closed when its answers pile up: it can slow itself, not the node (scenario S35).
"""

from __future__ import annotations

import asyncio
from typing import Any

from ..raft.core.errors import FencepostError, FrameInvalid, HandshakeRefused
from ..raft.ports import Answer, AnswerStatus, ProposeRequest, RequestHandler, SubmitRequest
from .address import Resolver
from .codec import (
    FrameType,
    Hello,
    encode_answers,
    encode_refuse,
    encode_reply,
    encode_reply_error,
    encode_welcome,
)
from .framing import BODY_BYTES_MAX
from .handshake import LocalNode, check_client_hello, welcome_to_client
from .ratelimit import RateLimitedLog
from .server import AcceptedConnection, ConnectionTable, Port

CONNECTIONS_MAX = 1024
UNANSWERED_MAX = 16_384
"""Requests of one connection that may wait for their answers; more are answered BUSY."""
UNREAD_BYTES_MAX = 16 * 1024 * 1024
"""Answers of one connection that may wait to be read; more close it."""
SWEEP_S = 0.5
HANDSHAKE_SWEEPS = 6
SILENT_SWEEPS = 600
"""A connection that says nothing for five minutes is closed; a client that waits pings."""

_SUBMIT = int(FrameType.SUBMIT)
_PROPOSE = int(FrameType.PROPOSE)
_CALL = int(FrameType.CALL)
_HELLO = int(FrameType.HELLO)


class ClientConnection(AcceptedConnection):
    """One client, as the node sees it (:class:`fencepost.raft.ports.Connection`)."""

    def __init__(self, server: ConnectionTable, listener: ClientListener) -> None:
        super().__init__(server)
        self._listener = listener
        self._handler = listener.handler
        self._unanswered = 0

    # -- from the client ----------------------------------------------------------------------------

    def opened(self) -> None:
        self.limit_writes(self._listener.unread_bytes_max)
        super().opened()

    def received(self, frame_type: int, body: Any) -> None:
        if not self.known:
            if frame_type != _HELLO:
                raise FrameInvalid(f"a {FrameType(frame_type).name} frame before the handshake")
            self._greet(body)
        elif frame_type == _SUBMIT:
            if self._room_for(body):
                self._handler.submit(self, body)
        elif frame_type == _PROPOSE:
            if self._room_for(body):
                self._handler.propose(self, body)
        elif frame_type == _CALL:
            self._handler.call(self, body.request_id, body.method, body.parameters)
        else:
            raise FrameInvalid(f"a {FrameType(frame_type).name} frame from a client")

    def _greet(self, hello: Hello) -> None:
        local = self._listener.node
        try:
            check_client_hello(local, hello)
        except HandshakeRefused as error:
            self._server.log.warning(
                "client_refused", remote=self.remote_address(), reason=error.message, next_step=error.next_step
            )
            self.write(encode_refuse(error))
            self.finish(error.message)
            return
        self._server.admitted(self)
        self.shaken_hands()
        self.write(encode_welcome(welcome_to_client(local)))

    def _room_for(self, requests: list[SubmitRequest] | list[ProposeRequest]) -> bool:
        unanswered = self._unanswered + len(requests)
        self._unanswered = unanswered
        if unanswered <= self._listener.unanswered_max:
            return True
        self.answer(
            [
                Answer(
                    request.request_id, AnswerStatus.RETRY, 0, 0, False, "", b"", "BUSY",
                    f"{unanswered} requests of this connection wait for an answer",
                )
                for request in requests
            ]
        )  # fmt: skip
        return False

    def invalid(self, error: FrameInvalid) -> None:
        self._server.log.warning(
            "frame_invalid",
            port="client",
            remote=self.remote_address(),
            reason=error.message,
            next_step=error.next_step,
        )
        super().invalid(error)

    def overflowed(self) -> None:
        self._server.log.warning("client_does_not_read", remote=self.remote_address())
        self.abort("the client does not read its answers")

    def gone(self) -> None:
        if self.known:
            self._handler.closed(self)

    # -- from the node ------------------------------------------------------------------------------

    def answer(self, answers: list[Answer]) -> None:
        """Send these answers in one frame. Dropped when the connection has closed."""
        if self.closed or not answers:
            return
        self._unanswered -= len(answers)
        self.write(encode_answers(answers))

    def reply(self, request_id: int, body: Any) -> None:
        """Answer a call with ``body``, which is made of what JSON knows (and bytes)."""
        if self.closed:
            return
        frame = encode_reply(request_id, body)
        if len(frame) > BODY_BYTES_MAX:
            self.reply_error(
                request_id,
                FencepostError(
                    f"the reply has {len(frame)} bytes; the limit is {BODY_BYTES_MAX}",
                    next_step="ask for less at once (limit, after_index)",
                ),
            )
            return
        self.write(frame)

    def reply_error(self, request_id: int, error: FencepostError) -> None:
        if not self.closed:
            self.write(encode_reply_error(request_id, error))


class ClientListener:
    """Accepts clients on ``listen`` and gives their requests to ``handler``.

    ``node`` is what clients are told about this node. The limits are those of the constants above:
    bytes, counts, and seconds between two sweeps.
    """

    def __init__(
        self,
        listen: str,
        handler: RequestHandler,
        node: LocalNode,
        *,
        resolver: Resolver | None = None,
        connections_max: int = CONNECTIONS_MAX,
        unanswered_max: int = UNANSWERED_MAX,
        unread_bytes_max: int = UNREAD_BYTES_MAX,
        sweep_s: float = SWEEP_S,
        handshake_sweeps: int = HANDSHAKE_SWEEPS,
        silent_sweeps: int = SILENT_SWEEPS,
        log: Any = None,
    ) -> None:
        self.handler = handler
        self.node = node
        self.unanswered_max = unanswered_max
        self.unread_bytes_max = unread_bytes_max
        self._listen = listen
        self._resolver = resolver
        self._log = log
        self._limits = {
            "most": connections_max,
            "handshake_sweeps": handshake_sweeps,
            "silent_sweeps": silent_sweeps,
        }
        self._sweep_s = sweep_s
        self._port: Port[ClientConnection] | None = None

    async def start(self) -> None:
        """Bind and accept. Raises :class:`ConfigurationError` when the address cannot be had."""
        loop = asyncio.get_running_loop()
        table = ConnectionTable(
            sweep_s=self._sweep_s, log=RateLimitedLog(loop.time, log=self._log), port_kind="client", **self._limits
        )
        port = Port(self._listen, lambda server: ClientConnection(server, self), table, resolver=self._resolver)
        await port.start()
        self._port = port

    @property
    def address(self) -> str:
        """``host:port`` as bound; the real port where 0 was asked for."""
        return self._listen if self._port is None else self._port.address

    @property
    def connections(self) -> int:
        """How many connections are open, handshake done or not."""
        return 0 if self._port is None else len(self._port.table.connections)

    async def close(self) -> None:
        """Stop accepting and close every connection. Bounded; may be called twice."""
        if self._port is not None:
            await self._port.close()
