"""Addresses: ``host:port`` as text, and names turned into numbers without the default executor.

Names are kept, never the numbers they once had: every attempt to connect resolves again, and a name
that does not resolve is a peer that is down, not an error of the program (scenario S39).

``loop.getaddrinfo`` would run in the loop's default thread pool, where other people's sleeping calls
make connects time out (scenario S43). Look-ups here have threads of their own: one per name that is
being looked up, daemonic, so that a name server that does not answer delays neither another name nor
the end of the process.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable
from typing import Protocol

from ..raft.core.errors import ConfigurationError


def parse_address(text: str) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port`` as (host, port). Raises :class:`ConfigurationError`."""
    host, colon, port_text = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigurationError(f"address {text!r} is ambiguous", next_step="write an IPv6 address as [address]:port")
    if not colon or not host or not port_text.isascii() or not port_text.isdigit() or int(port_text) > 65535:
        raise ConfigurationError(f"{text!r} is no address", next_step="write it as host:port, such as 127.0.0.1:7101")
    return host, int(port_text)


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Resolver(Protocol):
    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        """Numeric addresses of ``host`` in the order to try. Raises :class:`OSError` when there are none."""


Lookup = Callable[[str, int], list[tuple[str, int]]]


def _lookup(host: str, port: int) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for _family, _kind, _protocol, _name, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        numeric = (str(address[0]), int(address[1]))
        if numeric not in found:
            found.append(numeric)
    return found


class ThreadResolver:
    """The system's resolver, in threads of its own. Must be used from one event loop."""

    def __init__(self, lookup: Lookup = _lookup) -> None:
        self._lookup = lookup
        self._running: dict[tuple[str, int], asyncio.Future[list[tuple[str, int]]]] = {}

    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        try:
            return [(str(ipaddress.ip_address(host)), port)]
        except ValueError:
            pass
        # Joining a look-up of the same name that is under way bounds the threads by the names.
        future = self._running.get((host, port))
        if future is None:
            future = self._start(host, port)
        # Shielded: one who gives up must not cancel it for the others.
        return await asyncio.shield(future)

    def _start(self, host: str, port: int) -> asyncio.Future[list[tuple[str, int]]]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[tuple[str, int]]] = loop.create_future()
        self._running[host, port] = future

        def finish(found: list[tuple[str, int]], error: OSError | None) -> None:
            self._running.pop((host, port), None)
            if future.done():
                return
            if error is None:
                future.set_result(found)
            else:
                future.set_exception(error)
                future.exception()  # Nobody may be waiting any more; that is no error of the program.

        def work() -> None:
            found: list[tuple[str, int]] = []
            failure: OSError | None = None
            try:
                found = self._lookup(host, port)
                if not found:
                    failure = OSError(f"{host} has no address")
            except OSError as error:
                failure = error
            except (UnicodeError, ValueError) as error:
                # A label too long for the idna codec, or a NUL in the name.
                failure = OSError(f"{host!r} is no host name: {error}")
            try:
                loop.call_soon_threadsafe(finish, found, failure)
            except RuntimeError:
                return  # The loop was closed meanwhile; there is nobody left to tell.

        threading.Thread(target=work, name=f"fencepost-resolve-{host}", daemon=True).start()
        return future


def describe_failure(error: BaseException) -> str:
    """Why a connect failed, in the few words that belong in a line of ``tried``."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return f"name does not resolve ({error.strerror or error})"
    if isinstance(error, OSError):
        return (error.strerror or str(error) or type(error).__name__).lower()
    return str(error) or type(error).__name__
