"""What a node's process has of the network: ``ports.Transport``, and the real judgement of peers.

Whom the node has met, and whom it lets in, is the real :class:`Acquaintances`; sending goes to the
simulated links. As in the real transport, a node sends on the connection that it dialled, and to a node
that it does not dial on the one that came from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from ...raft.core.errors import AcknowledgedLost, FencepostError
from ...raft.core.messages import Message
from ...raft.ports import PeerHandler
from ...transport.acquaintances import Acquaintances
from ...transport.codec import Hello, Welcome
from ...transport.handshake import LocalNode, hello_to_peer, welcome_to_peer
from .link import Link
from .process import Process

if TYPE_CHECKING:
    from .network import Network


class SimTransport:
    """The transport of one process."""

    def __init__(
        self,
        network: Network,
        process: Process,
        local: LocalNode,
        acquaintances: Acquaintances,
        handler: PeerHandler,
        on_failure: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self.name = local.node_id
        self.process = process
        self.loop = process.loop
        self.handler = handler
        self._network = network
        self._carry = network.carry
        self._local = local
        self._acquaintances = acquaintances
        self._on_failure = on_failure
        self._turned_away: dict[str, AcknowledgedLost] = {}
        self._links: dict[str, Link] = {}
        self._client_addresses: dict[str, str] = {}

    def start(self) -> None:
        """Listen. Whom to dial, ``set_peers`` says."""
        self._network.dialling.joined(self)

    def set_peers(self, addresses: Mapping[str, str], *, retired: Collection[str] | None = None) -> None:
        """Dial these nodes and no others; ``retired`` are turned away. An address is nothing but a name here."""
        dialling = self._network.dialling
        acquaintances = self._acquaintances
        names = [name for name in addresses if name != self.name]
        gone = [name for name in self._links if name not in names]
        acquaintances.peers = names
        if retired is not None:
            acquaintances.retired = frozenset(retired)
        else:
            acquaintances.retired = (acquaintances.retired | set(gone)) - set(names)
        for name in gone:
            dialling.hang_up(self._links.pop(name), self)
        for name in names:
            if name not in self._links:
                link = self._links[name] = self._network.link(self.name, name)
                dialling.begin(link, self)

    def send(self, to: str, message: Message) -> None:
        link = self._links.get(to)
        if link is None:
            link = self._network.links.get((self.name, to))
            if link is None or link.lender is None:
                return
        if link.up:
            self._carry(link, message)
        else:
            link.dropped += 1

    def links(self) -> dict[str, dict[str, Any]]:
        """As the node's ``status`` shows them."""
        return {
            peer: {
                "connected": link.up,
                "client_address": self.client_address(peer),
                "dropped": link.dropped,
                "queued_bytes": 0,
                "last_error": link.cause,
            }
            for peer, link in self._links.items()
        }

    def client_address(self, peer: str) -> str:
        return self._client_addresses.get(peer, "")

    # -- handshakes ---------------------------------------------------------------------------------

    def hello_to(self, peer: str) -> Hello:
        return hello_to_peer(self._local, peer)

    def greeted(self, hello: Hello) -> Welcome:
        """Raises what turns the peer away."""
        self._acquaintances.greeted(hello)
        error = self._turned_away.pop(hello.node_id, None)
        if error is not None:
            raise error
        self._client_addresses[hello.node_id] = hello.client_address
        return welcome_to_peer(self._local)

    def welcomed(self, peer: str, welcome: Welcome) -> None:
        """Raises what makes this end hang up."""
        self._acquaintances.welcomed(peer, welcome)
        self._client_addresses[peer] = welcome.client_address

    def told(self, error: FencepostError) -> None:
        """Why the other end does not let this node in."""
        if isinstance(error, AcknowledgedLost):
            self._on_failure(error)

    def turn_away(self, peer: str, error: AcknowledgedLost) -> None:
        """As the real one: close the connections, and say why when the peer comes again."""
        self._turned_away[peer] = error
        for ends in ((self.name, peer), (peer, self.name)):
            link = self._network.links.get(ends)
            if link is not None and link.up:
                self._network.dialling.broke(link, error.message)
