"""Clusters of transports for tests: handlers that remember, in memory and on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fencepost.raft.core.messages import Message
from fencepost.raft.ports import PeerHandler, Transport
from fencepost.transport.backoff import SystemRandomness
from fencepost.transport.handshake import LocalNode
from fencepost.transport.peer_link import PeerLimits
from fencepost.transport.peers import PeerTransport

from .memory import MemoryNetwork
from .samples import local_node
from .world import DEADLINE_S, Changes, Lines, Proxy, unused_address

LIMITS = PeerLimits(connect_timeout_s=1.0, ping_s=0.05, missed_pings_max=4, backoff_first_s=0.005, backoff_most_s=0.05)
"""Short intervals, so that what takes seconds takes a fraction of one. No test asserts how long."""


class Recorder:
    """A :class:`PeerHandler` that remembers."""

    def __init__(self) -> None:
        self.received: list[tuple[str, Message]] = []
        self.unreachable_peers: list[str] = []
        self.changes = Changes()

    def receive(self, source: str, message: Message) -> None:
        self.received.append((source, message))
        self.changes.notify()

    def unreachable(self, peer: str) -> None:
        self.unreachable_peers.append(peer)
        self.changes.notify()

    def of(self, source: str) -> list[Message]:
        return [message for sender, message in self.received if sender == source]


class Cluster(Protocol):
    """What the conformance suite needs of a cluster of n1, n2, n3."""

    handlers: Mapping[str, Recorder]

    def transport(self, node_id: str) -> Transport: ...

    async def connected(self) -> None: ...

    async def until(self, holds: Callable[[], Any], what: str) -> None: ...

    async def cut(self, one: str, other: str) -> None: ...

    async def heal(self, one: str, other: str) -> None: ...


class MemoryCluster:
    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.handlers = {name: Recorder() for name in ("n1", "n2", "n3")}
        self._transports = {name: self.network.attach(name, handler) for name, handler in self.handlers.items()}

    async def __aenter__(self) -> MemoryCluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def transport(self, node_id: str) -> Transport:
        return self._transports[node_id]

    async def connected(self) -> None:
        return None

    async def until(self, holds: Callable[[], Any], what: str) -> None:
        while not holds():
            assert self.network.deliver(), f"{what} did not come to hold, and nothing is under way"

    async def cut(self, one: str, other: str) -> None:
        self.network.cut(one, other)
        self.network.deliver()

    async def heal(self, one: str, other: str) -> None:
        self.network.heal(one, other)


class SocketCluster:
    """Real transports. Every link goes through a proxy of its own, so that it can be cut or frozen."""

    def __init__(self, nodes: int = 3, **arguments: Any) -> None:
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.handlers = {name: Recorder() for name in self.names}
        self.lines = Lines()
        self.proxies: dict[tuple[str, str], Proxy] = {}
        self.transports: dict[str, PeerTransport] = {}
        self._arguments = {"limits": LIMITS, "log": self.lines, **arguments}

    async def __aenter__(self) -> SocketCluster:
        targets: dict[str, str] = {}
        for name in self.names:
            targets[name] = await unused_address()
        for name in self.names:
            peers = {}
            for peer in self.names:
                if peer != name:
                    proxy = Proxy(targets[peer])
                    await proxy.__aenter__()
                    self.proxies[name, peer] = proxy
                    peers[peer] = proxy.address
            self.transports[name] = PeerTransport(
                local_node(name),
                targets[name],
                peers,
                self.handlers[name],
                randomness=SystemRandomness(1),
                **self._arguments,
            )
        for transport in self.transports.values():
            await transport.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        async with asyncio.timeout(DEADLINE_S):
            for transport in self.transports.values():
                await transport.close()
            for proxy in self.proxies.values():
                await proxy.__aexit__()

    def transport(self, node_id: str) -> PeerTransport:
        return self.transports[node_id]

    def is_connected(self, one: str, other: str) -> bool:
        return self.transports[one].links()[other].connected and self.transports[other].links()[one].connected

    async def connected(self) -> None:
        links = [transport.links for transport in self.transports.values()]
        await until(lambda: all(link.connected for of in links for link in of().values()), "all connected")

    async def until(self, holds: Callable[[], Any], what: str) -> None:
        await until(holds, what)

    async def cut(self, one: str, other: str) -> None:
        for source, to in ((one, other), (other, one)):
            handler = self.handlers[source]
            before = handler.unreachable_peers.count(to)
            self.proxies[source, to].refuse = True
            self.proxies[source, to].reset()
            await until(lambda: handler.unreachable_peers.count(to) > before, f"{source} told")  # noqa: B023

    async def heal(self, one: str, other: str) -> None:
        for pair in ((one, other), (other, one)):
            self.proxies[pair].refuse = False
        await until(lambda: self.is_connected(one, other), f"{one} and {other} connected again")


async def until(holds: Callable[[], Any], what: str) -> None:
    """Wait for what no fake announces (the state inside a transport): look at it on every loop turn."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not holds():  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0)
    except TimeoutError:
        raise AssertionError(f"{what} did not come to hold") from None


def transport_of(
    node: LocalNode, listen: str, others: dict[str, str], handler: PeerHandler | None = None, **arguments: Any
) -> PeerTransport:
    """One transport, not started."""
    return PeerTransport(
        node,
        listen,
        others,
        handler if handler is not None else Recorder(),
        **{"limits": LIMITS, "log": Lines(), **arguments},
    )


class FakeResolver:
    """Names from a table; a name that is not in it does not resolve."""

    def __init__(self) -> None:
        self.table: dict[str, list[tuple[str, int]]] = {}
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        self.asked.append(host)
        if host == "127.0.0.1":
            return [(host, port)]
        if host not in self.table:
            raise OSError(f"{host} does not resolve")
        return self.table[host]
