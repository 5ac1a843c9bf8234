"""The link to one peer: dialled for ever, one task, two bounded lanes, deadlines of its own.

Nothing is shared between links but the loop, so that a peer that is silent, slow or gone costs the
others nothing (scenario S35).
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple, Protocol

import structlog

from ..raft.core.errors import FencepostError, FrameInvalid, HandshakeRefused, TransportError
from ..raft.ports import Clock, PeerHandler, Randomness
from .address import Resolver, describe_failure, parse_address
from .backoff import Backoff
from .codec import MESSAGE_TYPES, FrameType, Hello, Welcome, encode_hello, error_of
from .connection import FramedConnection
from .outgoing import OutgoingLanes, Wire

_WELCOME = int(FrameType.WELCOME)
_REFUSE = int(FrameType.REFUSE)

_log: structlog.stdlib.BoundLogger = structlog.get_logger("fencepost.transport")


class PeerLimits(NamedTuple):
    """The bounds of every peer link. Seconds, bytes, counts."""

    connect_timeout_s: float = 1.0
    """To resolve, connect and shake hands."""
    ping_s: float = 0.5
    missed_pings_max: int = 4
    """Intervals in a row without a byte from the peer after which the link is closed."""
    queue_bytes_max: int = 8 * 1024 * 1024
    queue_count_max: int = 1024
    write_buffer_bytes: int = 1024 * 1024
    """Above this the operating system takes no more, and messages wait in the queue."""
    backoff_first_s: float = 0.05
    backoff_most_s: float = 1.0
    connections_max: int = 128
    """On the peer port, handshakes under way included."""
    handshake_sweeps: int = 6
    """Ping intervals within which a stranger on the peer port must finish the handshake."""

    def lanes(self, wire: Wire) -> OutgoingLanes:
        """What waits for one connection."""
        return OutgoingLanes(wire, bytes_max=self.queue_bytes_max, count_max=self.queue_count_max)


class LinkStatus(NamedTuple):
    """One peer's link, for ``status``."""

    connected: bool
    client_address: str
    """Where clients reach the peer, as it last said; empty when it never did."""
    since_ns: int
    """Monotonic nanoseconds at which ``connected`` last changed."""
    dropped: int
    """Messages that were not sent: no link, or no room."""
    queued_bytes: int
    last_error: str


class LinkOwner(Protocol):
    handler: PeerHandler

    def hello_to(self, peer: str) -> Hello: ...

    def welcomed(self, peer: str, welcome: Welcome) -> None:
        """Judge the peer. Raises :class:`HandshakeRefused`."""

    def told(self, error: FencepostError) -> None:
        """Why the peer does not let this node in."""

    def link_broke(self, peer: str) -> None:
        """What was sent to the peer may be lost."""


class DialledConnection(FramedConnection):
    """The outgoing connection of a link: after the handshake it carries this node's messages, and the
    peer's where that has no link of its own."""

    def __init__(self, link: PeerLink) -> None:
        super().__init__()
        self._link = link
        self.lanes = link.limits.lanes(self)
        self.ready: asyncio.Future[None] = self._loop.create_future()

    def opened(self) -> None:
        self.limit_writes(self._link.limits.write_buffer_bytes)
        self.write(encode_hello(self._link.owner.hello_to(self._link.peer)))

    def received(self, frame_type: int, body: Any) -> None:
        if self.ready.done():
            if frame_type not in MESSAGE_TYPES:
                raise FrameInvalid(f"a {FrameType(frame_type).name} frame out of place on a dialled connection")
            self._link.owner.handler.receive(self._link.peer, body)
            return
        if frame_type not in (_WELCOME, _REFUSE):
            raise FrameInvalid(f"a {FrameType(frame_type).name} frame before the handshake")
        if frame_type == _REFUSE:
            error = error_of(body)
            self._fail(error)
            self._link.owner.told(error)
            return
        try:
            self._link.owner.welcomed(self._link.peer, body)
        except FencepostError as error:
            self._fail(error)
            return
        self._link.client_address = body.client_address
        self._link.takes_digests = body.state_digests
        self.shaken_hands()
        self.ready.set_result(None)

    def invalid(self, error: FrameInvalid) -> None:
        self._fail(error)

    def _fail(self, error: FencepostError) -> None:
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()
        self.abort(error.message)

    def drained(self) -> None:
        self.lanes.drained()

    def ponged(self, number: int) -> None:
        self.lanes.ponged(number)

    def ended(self) -> None:
        if not self.ready.done():
            self.ready.set_exception(TransportError(f"connection lost in the handshake ({self.why})"))
            self.ready.exception()
        self._link.lost(self)


class PeerLink:
    """Sends to one peer. ``run`` is its task; everything else returns at once."""

    def __init__(
        self,
        peer: str,
        address: str,
        owner: LinkOwner,
        *,
        limits: PeerLimits,
        clock: Clock,
        randomness: Randomness,
        resolver: Resolver,
    ) -> None:
        self.peer = peer
        self.address = address
        self.owner = owner
        self.limits = limits
        self.client_address = ""
        self.takes_digests = False
        """The peer takes ``StateDigest``, by its last handshake."""
        self.connection: DialledConnection | None = None
        """Usable: the handshake is done and the connection stands."""
        self.dropped = 0
        self.last_error = ""
        self._clock = clock
        self._resolver = resolver
        self._since_ns = clock.monotonic_ns()
        self._backoff = Backoff(randomness, first_s=limits.backoff_first_s, most_s=limits.backoff_most_s)
        self._dialling: DialledConnection | None = None
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # -- sending ------------------------------------------------------------------------------------

    def send(self, frame: bytes, *, heartbeat: bool) -> None:
        connection = self.connection
        if connection is None:
            self.dropped += 1
        elif lost := connection.lanes.send(frame, heartbeat=heartbeat):
            self.dropped += lost
            self.last_error = f"{lost} messages dropped: {self.peer} does not read"
            self.owner.link_broke(self.peer)

    def send_bulk(self, frame: bytes) -> None:
        """Send a part of a snapshot, behind everything else. Dropped when a newer one comes first."""
        connection = self.connection
        self.dropped += 1 if connection is None else connection.lanes.send_bulk(frame)

    def sweep(self) -> None:
        """One ping interval has passed."""
        connection = self.connection
        if connection is None:
            return
        silent = connection.sweep()
        if silent >= self.limits.missed_pings_max:
            connection.abort(f"{silent} pings in a row without an answer")
        elif not connection.full:
            # A ping behind megabytes that do not leave would only be one more thing that waits.
            connection.lanes.ping()

    # -- connecting ---------------------------------------------------------------------------------

    def start(self) -> asyncio.Task[None]:
        """Begin to dial. The task is the caller's to watch; ``stop`` or a cancellation ends it."""
        task = asyncio.get_running_loop().create_task(self.run(), name=f"fencepost-peer-{self.peer}")
        self._task = task
        return task

    def stop(self, why: str) -> DialledConnection | None:
        """End the task. What was written still goes out: the connection, if there is one, is closing and
        the caller's to sweep."""
        connection, self.connection = self.connection, None
        if self._task is not None:
            self._task.cancel()
        if connection is not None:
            self.dropped += connection.lanes.clear()
            connection.finish(why)
            _log.info("peer_lost", peer=self.peer, address=self.address, reason=why)
        return connection

    def succeed(self, before: PeerLink) -> None:
        """Go on where the link to the peer's former address ended."""
        self.client_address = before.client_address
        self.dropped = before.dropped

    def hurry(self) -> None:
        """The peer has just dialled this node: it is there, so do not sit out the back-off."""
        if self.connection is None:
            self._hurry.set()

    async def run(self) -> None:
        """Dial, stay connected, dial again, for ever. Ends by cancellation alone."""
        try:
            while True:
                self._hurry.clear()
                try:
                    connection = await self._dial()
                except (OSError, TimeoutError, FencepostError) as error:
                    self._failed(error)
                else:
                    self._backoff.reset()
                    # Shielded: whoever else waits for the end must not lose it with this task.
                    await asyncio.shield(connection.over)
                    self._hurry.clear()
                try:
                    async with asyncio.timeout(self._backoff.next_s()):
                        await self._hurry.wait()
                except TimeoutError:
                    pass  # The back-off is over.
        finally:
            for connection_left in (self.connection, self._dialling):
                if connection_left is not None:
                    connection_left.abort("this node is closing")

    async def _dial(self) -> DialledConnection:
        """One attempt. The name is resolved anew each time (scenario S39)."""
        loop = asyncio.get_running_loop()
        # Parsed here: an address that came with a change of members may be none, and that is a peer
        # that is down, too.
        name, number = parse_address(self.address)
        failure: OSError = OSError(f"{name} has no address")
        async with asyncio.timeout(self.limits.connect_timeout_s):
            for host, port in await self._resolver.resolve(name, number):
                try:
                    _, connection = await loop.create_connection(lambda: DialledConnection(self), host, port)
                except OSError as error:
                    failure = error
                    continue
                self._dialling = connection
                try:
                    await connection.ready
                except BaseException:
                    # Out of time or cancelled as well: the socket must not outlive the attempt.
                    connection.abort("the handshake was given up")
                    raise
                finally:
                    self._dialling = None
                self._connected(connection)
                return connection
        raise failure

    def _connected(self, connection: DialledConnection) -> None:
        if connection.closed:
            raise TransportError(f"connection lost ({connection.why})")
        self.connection = connection
        self._since_ns = self._clock.monotonic_ns()
        self.last_error = ""
        _log.info("peer_connected", peer=self.peer, address=self.address)

    def _failed(self, error: BaseException) -> None:
        text = error.message if isinstance(error, FencepostError) else describe_failure(error)
        if text != self.last_error:
            # Said once, not at every try of a peer that stays away.
            next_step = error.next_step if isinstance(error, FencepostError) else ""
            say = _log.warning if isinstance(error, HandshakeRefused | FrameInvalid) else _log.info
            say("peer_not_reached", peer=self.peer, address=self.address, reason=text, next_step=next_step)
        self.last_error = text

    def lost(self, connection: DialledConnection) -> None:
        if connection is not self.connection:
            return
        self.connection = None
        self._since_ns = self._clock.monotonic_ns()
        self.dropped += connection.lanes.clear()
        self.last_error = f"connection lost ({connection.why})"
        _log.info("peer_lost", peer=self.peer, address=self.address, reason=connection.why)
        self.owner.link_broke(self.peer)

    def status(self) -> LinkStatus:
        connection = self.connection
        return LinkStatus(
            connected=connection is not None,
            client_address=self.client_address,
            since_ns=self._since_ns,
            dropped=self.dropped,
            queued_bytes=0 if connection is None else connection.lanes.queued_bytes + connection.waiting_bytes,
            last_error=self.last_error,
        )
