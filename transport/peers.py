"""The transport between nodes: every node dials every other, and sends on what it dialled.

So there are two connections between two nodes, one for each direction; neither has to be agreed on,
and each end finds out for itself whether it reaches the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..raft.core.errors import FencepostError, FrameInvalid, HandshakeRefused, StorageError, TransportError
from ..raft.core.messages import AppendEntries, Message
from ..raft.ports import Clock, PeerHandler, Randomness
from .address import Resolver, ThreadResolver
from .backoff import SystemRandomness
from .codec import MESSAGE_TYPES, FrameType, Hello, Welcome, encode_message, encode_refuse, encode_welcome
from .framing import BODY_BYTES_MAX, HEADER_BYTES
from .handshake import LocalNode, check_peer_hello, check_welcome, hello_to_peer, welcome_of
from .peer_link import LinkStatus, PeerLimits, PeerLink
from .ratelimit import RateLimitedLog
from .server import AcceptedConnection, ConnectionTable, Port

_HELLO = int(FrameType.HELLO)


class _SystemClock:
    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def time_ns(self) -> int:
        return time.time_ns()


class PeerConnection(AcceptedConnection):
    """A connection that a peer dialled: its messages to this node."""

    def __init__(self, server: ConnectionTable, transport: PeerTransport) -> None:
        super().__init__(server)
        self._peers = transport
        self._receive = transport.handler.receive
        self.peer = ""

    def received(self, frame_type: int, body: Any) -> None:
        if self.known and frame_type in MESSAGE_TYPES:
            self._receive(self.peer, body)
        elif not self.known and frame_type == _HELLO:
            self._greet(body)
        else:
            raise FrameInvalid(f"a {FrameType(frame_type).name} frame out of place on the peer port")

    def _greet(self, hello: Hello) -> None:
        try:
            self._peers.greeted(hello)
        except FencepostError as error:
            self._server.log.warning(
                "peer_refused", remote=self.remote_address(), reason=error.message, next_step=error.next_step
            )
            self.write(encode_refuse(error))
            self.finish(error.message)
            return
        self.peer = hello.node_id
        self._server.admitted(self)
        self.shaken_hands()
        self.write(encode_welcome(welcome_of(self._peers.node)))
        self._peers.arrived(self, hello)

    def invalid(self, error: FrameInvalid) -> None:
        self._server.log.warning(
            "frame_invalid",
            port="peer",
            remote=self.remote_address(),
            reason=error.message,
            next_step=error.next_step,
        )
        super().invalid(error)

    def overflowed(self) -> None:
        self.abort("the peer does not read its pongs")

    def gone(self) -> None:
        self._peers.departed(self)


class PeerTransport:
    """Sends and receives Raft messages (:class:`fencepost.raft.ports.Transport`).

    ``listen`` and the values of ``peers`` are ``host:port``. ``known_instances`` are the instance ids
    by which peers were met before, and ``remember_instance(node_id, instance_id)`` makes a new one
    durable before the peer is admitted (scenario S21). ``on_failure`` hears of what ends the node: a
    task that died, which is a bug (without it the event loop's exception handler hears of that), and a
    disk that failed under ``remember_instance``.
    """

    def __init__(
        self,
        node: LocalNode,
        listen: str,
        peers: Mapping[str, str],
        handler: PeerHandler,
        *,
        known_instances: Mapping[str, str] | None = None,
        remember_instance: Callable[[str, str], None] | None = None,
        randomness: Randomness | None = None,
        clock: Clock | None = None,
        resolver: Resolver | None = None,
        limits: PeerLimits | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
        log: Any = None,
    ) -> None:
        self.node = node
        self.handler = handler
        self._addresses = {peer: address for peer, address in peers.items() if peer != node.node_id}
        self._known_instances = dict(known_instances or {})
        self._remember_instance = remember_instance
        self._randomness = randomness if randomness is not None else SystemRandomness()
        self._clock: Clock = clock if clock is not None else _SystemClock()
        self._resolver = resolver if resolver is not None else ThreadResolver()
        self._limits = limits if limits is not None else PeerLimits()
        self._on_failure = on_failure
        self._listen = listen
        self._log = log
        self._port: Port[PeerConnection] | None = None
        self._links: dict[str, PeerLink] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrived: dict[str, PeerConnection] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._encoded: Message | None = None
        self._frame = b""
        self._heartbeat = False

    # -- the port -----------------------------------------------------------------------------------

    def send(self, to: str, message: Message) -> None:
        """Queue a message for a peer. Never blocks; drops when there is no link or no room.

        The same message object sent to several peers is encoded once.
        """
        link = self._links.get(to)
        if link is None or link.connection is None:
            if link is not None:
                link.dropped += 1
            return
        if message is not self._encoded:
            frame = encode_message(message)
            if len(frame) > BODY_BYTES_MAX + HEADER_BYTES:
                raise TransportError(f"message of {len(frame)} bytes; the limit is {BODY_BYTES_MAX} bytes")
            self._frame = frame
            self._encoded = message
            self._heartbeat = type(message) is AppendEntries and not message.entries
        link.send(self._frame, heartbeat=self._heartbeat)

    # -- life ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, and begin to dial. Does not wait for any peer.

        Raises :class:`ConfigurationError` when the listening address cannot be had.
        """
        loop = asyncio.get_running_loop()
        limits = self._limits
        table = ConnectionTable(
            most=limits.connections_max,
            sweep_s=limits.ping_s,
            handshake_sweeps=limits.handshake_sweeps,
            silent_sweeps=limits.missed_pings_max + 1,
            log=RateLimitedLog(loop.time, log=self._log),
            port_kind="peer",
        )
        port = Port(self._listen, lambda server: PeerConnection(server, self), table, resolver=self._resolver)
        await port.start()
        self._port = port
        for peer, address in self._addresses.items():
            link = PeerLink(
                peer,
                address,
                self,
                limits=limits,
                clock=self._clock,
                randomness=self._randomness,
                resolver=self._resolver,
            )
            self._links[peer] = link
            task = loop.create_task(link.run(), name=f"fencepost-peer-{peer}")
            self._tasks.add(task)
            task.add_done_callback(self._task_ended)
        self._timer = loop.call_later(limits.ping_s, self._sweep)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        # A link's task ends by cancellation alone: whatever else ends it must not go unseen (S41).
        error = task.exception() or RuntimeError(f"{task.get_name()} ended")
        if self._on_failure is not None:
            self._on_failure(error)
        else:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "the task of a peer link died", "exception": error, "task": task}
            )

    def _sweep(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._limits.ping_s, self._sweep)
        for link in self._links.values():
            link.sweep()

    async def close(self) -> None:
        """Close every connection and stop listening. Bounded; may be called twice."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            # They only abort their sockets; the bound is for what should not happen.
            await asyncio.wait(tasks, timeout=2.0)
        if self._port is not None:
            await self._port.close()

    @property
    def address(self) -> str:
        """``host:port`` as bound; the real port where 0 was asked for."""
        return self._listen if self._port is None else self._port.address

    def links(self) -> dict[str, LinkStatus]:
        """The state of the link to every peer."""
        return {peer: link.status() for peer, link in self._links.items()}

    def client_address(self, peer: str) -> str:
        """Where clients reach ``peer``, as it last said in a handshake; empty when unknown."""
        link = self._links.get(peer)
        return "" if link is None else link.client_address

    # -- what links and connections ask -------------------------------------------------------------

    def hello_to(self, peer: str) -> Hello:
        return hello_to_peer(self.node, peer)

    def welcomed(self, peer: str, welcome: Welcome) -> None:
        check_welcome(self.node, peer, welcome, known_instances=self._known_instances)
        self._remember(peer, welcome.instance_id)

    def greeted(self, hello: Hello) -> None:
        """Judge a peer that dialled. Raises :class:`HandshakeRefused`, or an error of the storage."""
        check_peer_hello(self.node, hello, peers=self._addresses, known_instances=self._known_instances)
        self._remember(hello.node_id, hello.instance_id)

    def _remember(self, peer: str, instance_id: str) -> None:
        if self._known_instances.get(peer) == instance_id:
            return
        if self._remember_instance is not None:
            try:
                self._remember_instance(peer, instance_id)
            except StorageError as error:
                if type(error) is StorageError and self._on_failure is not None:
                    # A failed write or sync is final for the process (S12): tried again at the next
                    # dial it might pass, and the disk still not know the peer. No space is not final.
                    self._on_failure(error)
                raise
            except OSError as error:
                raise HandshakeRefused(f"the instance of {peer} could not be recorded: {error}") from error
        self._known_instances[peer] = instance_id

    def arrived(self, connection: PeerConnection, hello: Hello) -> None:
        before = self._arrived.get(connection.peer)
        self._arrived[connection.peer] = connection
        if before is not None:
            # Half-open: the peer would not have dialled again if it still used the old one.
            before.abort(f"{connection.peer} dialled again")
        link = self._links.get(connection.peer)
        if link is not None:
            link.client_address = hello.client_address
            link.hurry()

    def departed(self, connection: PeerConnection) -> None:
        if self._arrived.get(connection.peer) is connection:
            del self._arrived[connection.peer]

    def link_broke(self, peer: str) -> None:
        if not self._closing:
            # Not from within ``send``: the node is in the middle of carrying out effects there.
            asyncio.get_running_loop().call_soon(self.handler.unreachable, peer)
