"""The transport between nodes: every node dials every other, and sends on what it dialled.

So there are two connections between two nodes, one for each direction; neither has to be agreed on,
and each end finds out for itself whether it reaches the other. To a node that it does not dial, for
want of its address, a node sends on the connection on which that one came, if it came.

Whom to dial may change at any time (:meth:`PeerTransport.set_peers`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..raft.core.errors import AcknowledgedLost, FencepostError
from ..raft.core.messages import AppendEntries, InstallSnapshot, Message, StateDigest
from ..raft.ports import Clock, PeerHandler, Randomness
from .acquaintances import Acquaintances
from .address import Resolver, ThreadResolver, parse_address
from .backoff import SystemRandomness
from .codec import Hello, Welcome, encode_message
from .handshake import LocalNode, hello_to_peer
from .peer_link import DialledConnection, LinkStatus, PeerLimits, PeerLink
from .peer_port import PeerConnection
from .ratelimit import RateLimitedLog
from .server import ConnectionTable, Port


class _SystemClock:
    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def time_ns(self) -> int:
        return time.time_ns()


class PeerTransport:
    """Sends and receives Raft messages (:class:`fencepost.raft.ports.Transport`).

    ``listen`` and the values of ``peers`` are ``host:port``. ``known_instances`` are the instance ids
    by which peers were met before, and ``remember_instance(node_id, instance_id)`` makes a new one
    durable before the peer is admitted (scenario S21). ``on_failure`` hears of what ends the node: a
    task that died, which is a bug (without it the event loop's exception handler hears of that), and a
    disk that failed under ``remember_instance``. Raises :class:`ConfigurationError` when what is given
    for a peer is no address.
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
        for address in peers.values():
            parse_address(address)
        self.node = node
        self.handler = handler
        self._acquaintances = Acquaintances(node, known_instances or {}, remember_instance, on_failure)
        self._addresses: dict[str, str] = {}
        self._name(peers)
        self._randomness = randomness if randomness is not None else SystemRandomness()
        self._clock: Clock = clock if clock is not None else _SystemClock()
        self._resolver = resolver if resolver is not None else ThreadResolver()
        self._limits = limits if limits is not None else PeerLimits()
        self._on_failure = on_failure
        self._listen = listen
        self._log = log
        self._port: Port[PeerConnection] | None = None
        self._links: dict[str, PeerLink] = {}
        self._leaving: list[DialledConnection] = []
        """Connections to former peers, until what was written has gone out."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrived: dict[str, PeerConnection] = {}
        self._turned_away: dict[str, AcknowledgedLost] = {}
        """What a peer is to hear when it comes the next time."""
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._encoded: Message | None = None
        self._frame = b""
        self._heartbeat = False

    # -- the port -----------------------------------------------------------------------------------

    def send(self, to: str, message: Message) -> None:
        """Queue a message for a peer. Never blocks; drops when there is no link or no room.

        The same message object sent to several peers is encoded once. A part of a snapshot goes behind
        everything else, and a newer one takes the place of one that waits. Raises
        :class:`TransportError` for a message that is larger than a frame may be.
        """
        link = self._links.get(to)
        path: PeerLink | PeerConnection
        if link is not None:
            if link.connection is None:
                link.dropped += 1
                return
            path = link
        else:
            arrived = self._arrived.get(to)
            if arrived is None or arrived.closed:
                return
            path = arrived
        if type(message) is InstallSnapshot:
            path.send_bulk(encode_message(message))  # For one peer, and too large to be kept here.
            return
        if type(message) is StateDigest and not path.takes_digests:
            return  # Of a version before these: it would take the frame for garbage.
        if message is not self._encoded:
            self._frame = encode_message(message)
            self._encoded = message
            self._heartbeat = type(message) is AppendEntries and not message.entries
        path.send(self._frame, heartbeat=self._heartbeat)

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
        port = Port(self._listen, lambda server: PeerConnection(server, self, limits), table, resolver=self._resolver)
        await port.start()
        self._port = port
        for peer, address in self._addresses.items():
            self._dial(peer, address)
        self._timer = loop.call_later(limits.ping_s, self._sweep)

    def _dial(self, peer: str, address: str) -> PeerLink:
        link = PeerLink(
            peer,
            address,
            self,
            limits=self._limits,
            clock=self._clock,
            randomness=self._randomness,
            resolver=self._resolver,
        )
        self._links[peer] = link
        task = link.start()
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return link

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
        for connection in self._leaving:
            connection.sweep()
        self._leaving = [connection for connection in self._leaving if not connection.over.done()]

    async def close(self) -> None:
        """Close every connection and stop listening. Bounded; may be called twice."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in self._leaving:
            connection.abort("this node is closing")
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
        known: PeerLink | PeerConnection | None = self._links.get(peer) or self._arrived.get(peer)
        return "" if known is None else known.client_address

    # -- peers that come and go ---------------------------------------------------------------------

    def set_peers(self, addresses: Mapping[str, str], *, retired: Collection[str] | None = None) -> None:
        """Dial these from now on, and nobody else; ``addresses`` are ``host:port`` by node id.

        To be called on the event loop, whenever the members or their addresses change; also before
        ``start``. This node itself may be among them. A peer whose address has changed is dialled anew,
        and what was written to a peer that is gone still goes out; of both the handler is told that they
        are unreachable. What is no address at all is a peer that is down: its link says so.

        ``retired`` are node ids that were removed for good; they are refused in the handshake
        (:class:`~.handshake.NotAMember`) until they are named again. Give those of the *committed*
        configuration: one that is not may yet be undone, and a node that lags must not refuse a leader
        over it. Without it, whoever leaves the list by this call counts as removed.
        """
        if self._closing:
            return
        before = self._addresses
        self._name(addresses)
        known = self._acquaintances
        if retired is None:
            known.retired = (known.retired | set(before)) - set(self._addresses)
        else:
            known.retired = frozenset(retired)
        if self._port is None:
            return  # ``start`` dials them.
        stopped = {
            peer: self._hang_up(link)
            for peer, link in list(self._links.items())
            if self._addresses.get(peer) != link.address
        }
        for peer, address in self._addresses.items():
            if peer not in self._links:
                link = self._dial(peer, address)
                if peer in stopped:
                    link.succeed(stopped[peer])
        for peer, connection in list(self._arrived.items()):
            if peer in known.retired and peer not in self._addresses:
                connection.abort(f"{peer} was removed from the cluster")

    def _hang_up(self, link: PeerLink) -> PeerLink:
        del self._links[link.peer]
        why = "its address has changed" if link.peer in self._addresses else "it is no peer any more"
        connection = link.stop(why)
        if connection is not None:
            self._leaving.append(connection)
            self.link_broke(link.peer)
        return link

    def _name(self, addresses: Mapping[str, str]) -> None:
        self._addresses = {peer: address for peer, address in addresses.items() if peer != self.node.node_id}
        self._acquaintances.peers = self._addresses.keys()

    # -- what links and connections ask -------------------------------------------------------------

    def hello_to(self, peer: str) -> Hello:
        return hello_to_peer(self.node, peer)

    def welcomed(self, peer: str, welcome: Welcome) -> None:
        self._acquaintances.welcomed(peer, welcome)

    def greeted(self, hello: Hello) -> None:
        self._acquaintances.greeted(hello)
        error = self._turned_away.pop(hello.node_id, None)
        if error is not None:
            raise error

    def told(self, error: FencepostError) -> None:
        if isinstance(error, AcknowledgedLost) and self._on_failure is not None:
            # This node has forgotten what others rest on: it must not vote, nor acknowledge anything.
            self._on_failure(error)

    def turn_away(self, peer: str, error: AcknowledgedLost) -> None:
        """Close the connections with a peer, and refuse it once with ``error`` when it dials again: by that it
        hears why, and stops. If it has come to its senses until then, it is let in the next time."""
        self._turned_away[peer] = error
        link, arrived = self._links.get(peer), self._arrived.get(peer)
        if link is not None and link.connection is not None:
            link.connection.abort(error.message)
        if arrived is not None:
            arrived.abort(error.message)

    def arrived(self, connection: PeerConnection) -> None:
        before = self._arrived.get(connection.peer)
        self._arrived[connection.peer] = connection
        if before is not None:
            # Half-open: the peer would not have dialled again if it still used the old one.
            before.abort(f"{connection.peer} dialled again")
        link = self._links.get(connection.peer)
        if link is not None:
            link.client_address = connection.client_address
            link.hurry()

    def departed(self, connection: PeerConnection) -> None:
        if self._arrived.get(connection.peer) is connection:
            del self._arrived[connection.peer]

    def link_broke(self, peer: str) -> None:
        if not self._closing:
            # Not from within ``send``: the node is in the middle of carrying out effects there.
            asyncio.get_running_loop().call_soon(self.handler.unreachable, peer)
