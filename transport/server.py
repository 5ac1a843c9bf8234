"""A listening socket and the connections it accepted: what the peer port and the client port share.

It bounds what a stranger may cost: so many connections, so long for a handshake, so much memory
before it, one log line a while (scenario S37). And it closes without waiting for anyone: handlers
are closed before the server is waited for, because ``Server.wait_closed`` waits for every connection
since Python 3.12, idle ones included (scenario S45).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from ..raft.core.errors import ConfigurationError
from .address import Resolver, ThreadResolver, describe_failure, format_address, parse_address
from .connection import FramedConnection
from .ratelimit import RateLimitedLog

CLOSE_DEADLINE_S = 2.0

AcceptedT = TypeVar("AcceptedT", bound="AcceptedConnection")


class AcceptedConnection(FramedConnection):
    """A connection that was accepted; ``known`` once its handshake is done."""

    known = False

    def __init__(self, server: ConnectionTable) -> None:
        super().__init__()
        self._server = server

    def opened(self) -> None:
        self._server.entered(self)

    def ended(self) -> None:
        self._server.left(self)
        self.gone()

    def gone(self) -> None:
        """The connection was admitted once, and is gone."""


class ConnectionTable:
    """Every connection of one port, and their shared sweep."""

    def __init__(
        self,
        *,
        most: int,
        sweep_s: float,
        handshake_sweeps: int,
        silent_sweeps: int,
        log: RateLimitedLog,
        port_kind: str,
    ) -> None:
        self._most = most
        self._sweep_s = sweep_s
        self._handshake_sweeps = handshake_sweeps
        self._silent_sweeps = silent_sweeps
        self.log = log
        self.port_kind = port_kind
        self.connections: set[AcceptedConnection] = set()
        self._strangers: dict[AcceptedConnection, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._sweep_s, self._sweep)

    def stop(self) -> None:
        """Sweep no more, and let nobody in any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def entered(self, connection: AcceptedConnection) -> None:
        if self._stopped:
            # The system had accepted it before the port was closed: nobody else would ever close it.
            connection.abort("this node is closing")
            return
        if len(self.connections) >= self._most:
            # Strangers go first: a flood of idle sockets must not lock out those who belong here.
            oldest = next(iter(self._strangers), None)
            victim = connection if oldest is None else oldest
            self.log.warning("connection_limit_reached", port=self.port_kind, limit=self._most)
            victim.abort("too many connections")
            if victim is connection:
                return
            self.left(victim)
        self.connections.add(connection)
        self._strangers[connection] = 0

    def admitted(self, connection: AcceptedConnection) -> None:
        connection.known = True
        self._strangers.pop(connection, None)

    def left(self, connection: AcceptedConnection) -> None:
        self.connections.discard(connection)
        self._strangers.pop(connection, None)

    def _sweep(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._sweep_s, self._sweep)
        for stranger, sweeps in list(self._strangers.items()):
            if sweeps >= self._handshake_sweeps:
                self.log.warning("handshake_not_finished", port=self.port_kind, remote=stranger.remote_address())
                stranger.abort("no handshake in time")
            else:
                self._strangers[stranger] = sweeps + 1
        for connection in list(self.connections):
            heard = connection.heard
            if connection.sweep() > self._silent_sweeps:
                connection.abort("silent for too long")
            elif heard and connection.known and connection.in_mid_frame:
                connection.still_arriving()


async def accept_no_more(server: asyncio.Server) -> None:
    """Whoever has been accepted becomes a connection, and nobody else is accepted.

    Python 3.11 loses a socket that was accepted in the very turn in which its server is closed: nobody
    is ever told of it, and nobody closes it.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    await asyncio.sleep(0)  # What was accepted gets its transport,
    await asyncio.sleep(0)  # and the connection hears of it.


class Port(Generic[AcceptedT]):
    """One listening socket. ``start`` binds it, ``close`` ends it and everything accepted."""

    def __init__(
        self,
        listen: str,
        make: Callable[[ConnectionTable], AcceptedT],
        table: ConnectionTable,
        *,
        resolver: Resolver | None = None,
    ) -> None:
        self._listen = listen
        self._host, self._port = parse_address(listen)
        self._make = make
        self.table = table
        self._resolver = resolver if resolver is not None else ThreadResolver()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """``host:port`` as bound; the real port where 0 was asked for."""
        if self._server is None or not self._server.sockets:
            return self._listen
        name = self._server.sockets[0].getsockname()
        return format_address(self._host, int(name[1]))

    async def start(self) -> None:
        """Bind and accept. Raises :class:`ConfigurationError` when the address cannot be had."""
        loop = asyncio.get_running_loop()
        table = self.table
        make = self._make
        try:
            addresses = await self._resolver.resolve(self._host, self._port)
            self._server = await loop.create_server(
                lambda: make(table), [host for host, _ in addresses], self._port, backlog=256
            )
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {self._listen} ({table.port_kind} port): {describe_failure(error)}",
                tried=[f"{self._listen}  {error}"],
                next_step="stop the program that uses the address, or choose another one in the configuration",
            ) from error
        table.start()

    async def close(self) -> None:
        """Stop accepting, abort what was accepted, and wait for neither longer than a bound."""
        server, self._server = self._server, None
        if server is not None:
            await accept_no_more(server)
            server.close()
        self.table.stop()
        connections = list(self.table.connections)
        for connection in connections:
            connection.abort("this node is closing")
        try:
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                for connection in connections:
                    # Python 3.11's wait_closed does not wait for these, and their handlers are to be told.
                    await connection.over
                if server is not None:
                    await server.wait_closed()
        except TimeoutError:
            self.table.log.warning("close_deadline_passed", port=self.table.port_kind)
