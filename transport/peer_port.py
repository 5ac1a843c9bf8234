"""What arrives at the peer port: the connections that peers dialled, and the way back on them.

A node sends on what it dialled. A peer whose address it does not have it cannot dial, though that
peer may have good reason to talk to it: a node that joins, or one that was away while others joined,
is reached by members it has never heard of. Their questions are answered on the connection on which
they came.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..raft.core.errors import FencepostError, FrameInvalid
from ..raft.ports import PeerHandler
from .codec import MESSAGE_TYPES, FrameType, Hello, encode_refuse, encode_welcome
from .handshake import LocalNode, welcome_to_peer
from .outgoing import OutgoingLanes
from .peer_link import PeerLimits
from .server import AcceptedConnection, ConnectionTable

_HELLO = int(FrameType.HELLO)


class ArrivalOwner(Protocol):
    node: LocalNode
    handler: PeerHandler

    def greeted(self, hello: Hello) -> None:
        """Judge a peer that dialled. Raises :class:`HandshakeRefused`, or an error of the storage."""

    def arrived(self, connection: PeerConnection) -> None: ...

    def departed(self, connection: PeerConnection) -> None: ...

    def link_broke(self, peer: str) -> None:
        """What was sent to the peer may be lost."""


class PeerConnection(AcceptedConnection):
    """A connection that a peer dialled: its messages to this node."""

    def __init__(self, server: ConnectionTable, owner: ArrivalOwner, limits: PeerLimits) -> None:
        super().__init__(server)
        self._owner = owner
        self._receive = owner.handler.receive
        self._limits = limits
        self._lanes: OutgoingLanes | None = None
        """The way back; None as long as nothing was sent on it."""
        self.peer = ""
        self.client_address = ""
        self.takes_digests = False
        """The peer takes ``StateDigest``."""

    def received(self, frame_type: int, body: Any) -> None:
        if self.known and frame_type in MESSAGE_TYPES:
            self._receive(self.peer, body)
        elif not self.known and frame_type == _HELLO:
            self._greet(body)
        else:
            raise FrameInvalid(f"a {FrameType(frame_type).name} frame out of place on the peer port")

    def _greet(self, hello: Hello) -> None:
        try:
            self._owner.greeted(hello)
        except FencepostError as error:
            self._server.log.warning(
                "peer_refused", remote=self.remote_address(), reason=error.message, next_step=error.next_step
            )
            self.write(encode_refuse(error))
            self.finish(error.message)
            return
        self.peer = hello.node_id
        self.client_address = hello.client_address
        self.takes_digests = hello.state_digests
        self._server.admitted(self)
        self.shaken_hands()
        self.write(encode_welcome(welcome_to_peer(self._owner.node)))
        self._owner.arrived(self)

    # -- the way back -------------------------------------------------------------------------------

    def send(self, frame: bytes, *, heartbeat: bool) -> None:
        """Send to the peer on the connection that it dialled."""
        if self._way_back().send(frame, heartbeat=heartbeat):
            self._owner.link_broke(self.peer)

    def send_bulk(self, frame: bytes) -> None:
        self._way_back().send_bulk(frame)

    def _way_back(self) -> OutgoingLanes:
        if self._lanes is None:
            self._lanes = self._limits.lanes(self)
            self.limit_writes(self._limits.write_buffer_bytes)
        return self._lanes

    def ponged(self, number: int) -> None:
        if self._lanes is not None:
            self._lanes.ponged(number)

    def overflowed(self) -> None:
        if self._lanes is None:
            self.abort("the peer does not read its pongs")

    def drained(self) -> None:
        if self._lanes is not None:
            self._lanes.drained()

    # -- ends ---------------------------------------------------------------------------------------

    def invalid(self, error: FrameInvalid) -> None:
        self._server.log.warning(
            "frame_invalid",
            port="peer",
            remote=self.remote_address(),
            reason=error.message,
            next_step=error.next_step,
        )
        super().invalid(error)

    def gone(self) -> None:
        if self._lanes is not None:
            self._lanes.clear()
            self._owner.link_broke(self.peer)
        self._owner.departed(self)
