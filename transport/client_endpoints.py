"""The endpoints a client knows, and its guess which of them leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..raft.core.errors import FencepostError, HandshakeRefused
from .client_link import Endpoint

ENDPOINTS_MAX = 64
"""Given and learned ones together: hints come from outside, so they are bounded."""


class Endpoints:
    """Those that were given, in their order, then those that were learned from hints."""

    def __init__(self, addresses: Sequence[str], make: Callable[[str, bool], Endpoint]) -> None:
        self._make = make
        self._by_address: dict[str, Endpoint] = {}
        for address in addresses:
            if address not in self._by_address:
                self._by_address[address] = make(address, True)
        self.target = next(iter(self._by_address.values()))
        """The endpoint that is thought to lead."""

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(list(self._by_address.values()))

    def at(self, address: str) -> Endpoint | None:
        """The endpoint of an address, learned if need be; None for what is no address."""
        endpoint = self._by_address.get(address)
        if endpoint is None and len(self._by_address) < ENDPOINTS_MAX:
            try:
                endpoint = self._make(address, False)
            except FencepostError:
                return None
            self._by_address[address] = endpoint
        return endpoint

    def rotation(self) -> list[Endpoint]:
        """Every endpoint once, beginning with the target."""
        endpoints = list(self._by_address.values())
        at = endpoints.index(self.target)
        return endpoints[at:] + endpoints[:at]

    def move_on_from(self, endpoint: Endpoint) -> None:
        """Stop taking ``endpoint`` for the leader."""
        if endpoint is self.target:
            order = self.rotation()
            self.target = order[1 % len(order)]

    @property
    def any_up(self) -> bool:
        return any(endpoint.link is not None for endpoint in self._by_address.values())

    def common_refusal(self) -> HandshakeRefused | None:
        """A refusal, if every endpoint refused the handshake: waiting will not change that."""
        refusals = [endpoint.refusal for endpoint in self._by_address.values()]
        return refusals[0] if all(refusals) else None

    def tried(self) -> list[str]:
        """One line for each endpoint that was given or tried."""
        return [e.line() for e in self._by_address.values() if e.listed or e.said != "not tried"]
