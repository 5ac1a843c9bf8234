"""One direction between two nodes, as the one that sends sees it: a connection, or none.

The connection is made by the real handshake (:class:`PeerTransport` judges, on both sides), so a node
with a wiped disk is turned away as it is in a real cluster. Messages on it travel as objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...raft.core.messages import Message
from .loop import SimLoop

if TYPE_CHECKING:
    from .bytestream import ByteStream
    from .network import Network
    from .transport import SimTransport


class Link:
    """The dialled connection from ``source`` to ``to``, over all processes that these nodes ever have."""

    __slots__ = (
        "arrived_at_ns",
        "attempt",
        "backoff_ns",
        "blocked",
        "cause",
        "dialled_by",
        "dialling",
        "dropped",
        "epoch",
        "half_open",
        "lender",
        "looks",
        "loop",
        "reached",
        "receive",
        "source",
        "stream",
        "to",
        "troubled",
        "up",
    )

    def __init__(self, network: Network, source: str, to: str) -> None:
        self.looks = network.hooks.on_delivered
        self.source = source
        self.to = to
        self.up = False
        """The sender has a connection, and believes in it."""
        self.epoch = 0
        """Counts connections; what was sent on an earlier one never arrives."""
        self.attempt = 0
        """Counts attempts to connect; the answer to an earlier one is not listened to."""
        self.dialling = False
        """An attempt is under way."""
        self.backoff_ns = 0
        self.blocked = False
        """Nothing that is sent arrives, in this direction."""
        self.half_open = False
        """Nothing that is sent arrives, and nobody ever finds out."""
        self.troubled = False
        """Each message needs a second look."""
        self.dialled_by: SimTransport | None = None
        """The process that sends; None while none runs."""
        self.reached: SimTransport | None = None
        """The process at the other end of the connection."""
        self.loop: SimLoop = network.outside
        """The thread that receives there."""
        self.receive: Callable[[str, Message], None] = _nobody
        self.lender: Link | None = None
        """The connection that the other end dialled and this direction goes back on, having none of its own."""
        self.arrived_at_ns = 0
        """When the last message sent on this connection arrives."""
        self.stream: ByteStream | None = None
        """Set when the connection carries bytes, because some of them were damaged."""
        self.dropped = 0
        self.cause = ""
        """Why there is no connection."""

    def deliver(self, epoch: int, message: Message) -> None:
        """A message reaches the process that it was sent to, on its thread."""
        if epoch != self.epoch or self.blocked or self.half_open:
            return
        for look in self.looks:
            look(self.source, self.to, message)
        self.receive(self.source, message)

    def __repr__(self) -> str:
        return f"{self.source}->{self.to}"


def _nobody(source: str, message: Message) -> None:
    raise AssertionError(f"{message} of {source} arrives where nothing was ever connected")
