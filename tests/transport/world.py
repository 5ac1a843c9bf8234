"""Fakes around real sockets: a node's request handler, and a proxy that does what networks do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Self, cast

from fencepost.raft.core.errors import FencepostError
from fencepost.raft.outbox.codec import Command, decode_submission
from fencepost.raft.ports import Answer, AnswerStatus, Connection, ProposeRequest, SubmitRequest
from fencepost.transport.listener import ClientListener

from .samples import local_node

DEADLINE_S = 20.0
"""Bounds a failing test only."""


class Changes:
    """Wait for a condition on something that says when it has changed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        self._event.set()

    async def until(self, holds: Callable[[], Any], what: str = "condition") -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not holds():
                    self._event.clear()
                    await self._event.wait()
        except TimeoutError:
            raise AssertionError(f"{what} did not come to hold") from None


class Ledger:
    """What the cluster has executed: shared by all fake nodes, deduplicated by operation id."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self._indexes: dict[str, int] = {}

    def execute(self, command: Command) -> tuple[int, bool]:
        """The command's index, and whether it had been executed before."""
        replayed = command.operation_id in self._indexes
        if not replayed:
            self.effects.append(command.operation_id)
            self._indexes[command.operation_id] = len(self.effects)
        return self._indexes[command.operation_id], replayed


Script = Callable[["FakeNode", Connection, SubmitRequest], Answer | None]


def done(node: FakeNode, connection: Connection, request: SubmitRequest) -> Answer | None:
    """A leader: executes and answers."""
    index, replayed = node.ledger.execute(decode_submission(request.data))
    return Answer(request.request_id, AnswerStatus.DONE, index, node.term, replayed, "succeeded", b"{}", "", "")


def follow(node: FakeNode, connection: Connection, request: SubmitRequest) -> Answer | None:
    """A follower: names the leader it knows."""
    return answer(request, AnswerStatus.RETRY, "NOT_LEADER", node.hint, term=node.term)


def silent(node: FakeNode, connection: Connection, request: SubmitRequest) -> Answer | None:
    """Takes it and never answers."""
    node.ledger.execute(decode_submission(request.data))
    return None


def answering(status: AnswerStatus, code: str, detail: str = "") -> Script:
    return lambda node, connection, request: answer(request, status, code, detail)


def answer(request: SubmitRequest, status: AnswerStatus, code: str, detail: str = "", *, term: int = 0) -> Answer:
    return Answer(request.request_id, status, 0, term, False, "", b"", code, detail)


class FakeNode:
    """A node behind a real :class:`ClientListener`. ``script`` answers each submission; scripts put in
    ``once`` are used up first."""

    def __init__(self, node_id: str = "n1", *, ledger: Ledger | None = None, script: Script = done) -> None:
        self.node_id = node_id
        self.ledger = ledger if ledger is not None else Ledger()
        self.script = script
        self.once: list[Script] = []
        self.hint = ""
        self.term = 9
        self.role = "follower"
        self.leader = ""
        self.frames: list[list[Any]] = []
        self.proposals: list[bytes] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.gone: list[Connection] = []
        self.answer_calls = True
        self.silent_about: set[str] = set()
        """Methods that are taken and never answered."""
        self.changes = Changes()
        self.listener = self.make_listener("127.0.0.1:0")

    def make_listener(self, listen: str, **limits: Any) -> ClientListener:
        return ClientListener(listen, self, local_node(self.node_id), **limits)

    @property
    def address(self) -> str:
        return self.listener.address

    @property
    def submissions(self) -> list[SubmitRequest]:
        return [request for frame in self.frames for request in frame]

    async def __aenter__(self) -> Self:
        await self.listener.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.listener.close()

    # -- RequestHandler -----------------------------------------------------------------------------

    def submit(self, connection: Connection, requests: list[SubmitRequest]) -> None:
        self.frames.append(requests)
        answers = []
        for request in requests:
            script = self.once.pop(0) if self.once else self.script
            found = script(self, connection, request)
            if found is not None:
                answers.append(found)
        connection.answer(answers)
        self.changes.notify()

    def propose(self, connection: Connection, requests: list[ProposeRequest]) -> None:
        answers = []
        for request in requests:
            self.proposals.append(request.data)
            script = self.once.pop(0) if self.once else None
            as_submit = SubmitRequest(request.request_id, 0, request.data)
            if script is not None:
                found = script(self, connection, as_submit)
            else:
                found = answer(as_submit, AnswerStatus.DONE, "")
            if found is not None:
                answers.append(found)
        connection.answer(answers)
        self.changes.notify()

    def call(self, connection: Connection, request_id: int, method: str, parameters: dict[str, Any]) -> None:
        self.calls.append((method, parameters))
        self.changes.notify()
        if not self.answer_calls or method in self.silent_about:
            return
        if method == "status":
            connection.reply(
                request_id,
                {
                    "node_id": self.node_id,
                    "role": self.role,
                    "term": self.term,
                    "leader": self.leader,
                    "leader_client_address": self.hint,
                },
            )
        elif method == "fail":
            connection.reply_error(request_id, FencepostError("failed on purpose", next_step="nothing"))
        else:
            connection.reply(request_id, {"method": method, "parameters": parameters, "node_id": self.node_id})

    def closed(self, connection: Connection) -> None:
        self.gone.append(connection)
        self.changes.notify()


class _Side(asyncio.Protocol):
    """One of the two sockets of a proxied connection."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None
        self.early: list[bytes] = []
        self.to_server = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no instances of it
        self.proxy.sides.add(self)

    def data_received(self, data: bytes) -> None:
        self.proxy.arrived(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.proxy.sides.discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.abort()


class Proxy:
    """Stands between a client and a server: forwards, goes silent both ways, or eats replies."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._server: asyncio.Server | None = None
        self.sides: set[_Side] = set()
        self.frozen = False
        """Nothing passes in either direction, and nothing is closed: a stopped process, a dropping firewall."""
        self.reset_on_reply = False
        """The next bytes of the server are dropped and the connection is reset."""
        self.hold = False
        """Connections are accepted and nothing more happens to them."""
        self.refuse = False
        """New connections are reset."""
        self.trickle = 0
        """When not 0: bytes to the server are kept, and so many of them pass with each ``drip``."""
        self.connections = 0
        self.swallowed = 0
        self.changes = Changes()
        self._tasks: set[asyncio.Task[None]] = set()
        self._kept: list[tuple[_Side, bytes]] = []

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.get_running_loop().create_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        self._kept.clear()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self) -> _Side:
        side = _Side(self)
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._dial(side))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.changes.notify()
        return side

    async def _dial(self, near: _Side) -> None:
        if self.hold:
            return
        if self.refuse:
            if near.transport is not None:
                near.transport.abort()
            return
        try:
            _, far = await asyncio.get_running_loop().create_connection(lambda: _Side(self), *self._target)
        except OSError:
            if near.transport is not None:
                near.transport.abort()
            return
        near.other, far.other = far, near
        near.to_server = True
        for data in near.early:
            self.arrived(near, data)
        near.early.clear()

    def arrived(self, side: _Side, data: bytes) -> None:
        if side.other is None:
            side.early.append(data)
            return
        if self.frozen or (self.trickle and side.to_server):
            self.swallowed += len(data)
            self._kept.append((side, data))
            self.changes.notify()
            return
        if self.reset_on_reply and not side.to_server:
            self.reset_on_reply = False
            self.reset()
            return
        if side.other.transport is not None:
            side.other.transport.write(data)

    def thaw(self) -> None:
        """Everything that was held back arrives, late."""
        self.frozen = False
        kept, self._kept = self._kept, []
        for side, data in kept:
            self.arrived(side, data)

    def drip(self) -> None:
        """Let ``trickle`` bytes of what was kept pass, in order."""
        room = self.trickle
        while self._kept and room:
            side, data = self._kept[0]
            rest = data[room:]
            self._kept[:1] = [(side, rest)] if rest else []
            if side.other is not None and side.other.transport is not None:
                side.other.transport.write(data[:room])
            room -= len(data) - len(rest)

    def stop_reading(self) -> None:
        """Leave what arrives in the kernel's buffers, as a stopped process does."""
        for side in self.sides:
            if side.transport is not None:
                side.transport.pause_reading()

    def read_again(self) -> None:
        for side in self.sides:
            if side.transport is not None:
                side.transport.resume_reading()

    def reset(self) -> None:
        for side in list(self.sides):
            if side.transport is not None:
                side.transport.abort()


class RawClient(asyncio.Protocol):
    """A bare socket: sends what it is told and remembers what came."""

    def __init__(self) -> None:
        self.data = b""
        self.lost = asyncio.get_running_loop().create_future()
        self.changes = Changes()
        self.transport: asyncio.Transport | None = None

    @classmethod
    async def to(cls, address: str) -> RawClient:
        host, _, port = address.rpartition(":")
        _, raw = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        return raw

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no instances of it

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.changes.notify()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)

    def send(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    async def until_closed(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.shield(self.lost)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class Lines:
    """A log that remembers its warnings."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def names(self) -> list[str]:
        return [event for event, _ in self.events]


def command(operation_id: str = "op-1", payload: bytes = b'{"cents":5}') -> Command:
    return Command(operation_id, "ledger", "credit", "", payload)


async def unused_address() -> str:
    """An address of this machine where nobody listens, and nobody will who asks for any port.

    Below the range from which the system takes ports by itself, and never the same one twice.
    """
    while True:
        port = _PORTS.pop()
        try:
            server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", port)
        except OSError:
            continue
        server.close()
        await server.wait_closed()
        return f"127.0.0.1:{port}"


_PORTS = random.sample(range(20_000, 32_000), 4_000)
