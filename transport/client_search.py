"""The search for the endpoint that leads: links made, lost and silent, hints followed, questions asked.

It holds no request. Whoever does (:class:`~.client_engine.Engine`) asks it for a link to send on, tells
it what the nodes answered, and is told when it is worth asking again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from ..raft.core.errors import HandshakeRefused, TransportError
from ..raft.ports import Answer, Randomness
from .address import Resolver
from .alarm import Alarm
from .backoff import jittered_s
from .client_endpoints import Endpoints
from .client_link import ClientLink, Endpoint, LinkOwner
from .client_requests import last_leader_of

SWEEP_S = 0.25
SILENT_SWEEPS = 4
"""A link that owes answers and gives no byte for so many sweeps (a second) is given up. Its node may
be stopped with its sockets open, and only silence tells."""
HEDGE_S = 0.3
"""When a connect takes longer, the next endpoint is tried beside it."""

_S = 1_000_000_000


class SearchOwner(LinkOwner, Protocol):
    """Whoever has requests to send."""

    closed: bool

    @property
    def waiting(self) -> bool:
        """There is something to send."""

    def may_send(self) -> None:
        """An endpoint has come, gone or been found to lead: look again at what waits."""

    def refused_by_all(self, refusal: HandshakeRefused) -> None:
        """Every endpoint says that this client does not belong there: waiting will not change it."""

    def call_on(self, link: ClientLink, method: str, parameters: dict[str, Any]) -> asyncio.Future[Any]: ...


class LeaderSearch:
    """The endpoints, and the guess which of them leads. ``wake`` is set to when it is worth asking again."""

    def __init__(
        self,
        addresses: Sequence[str],
        owner: SearchOwner,
        *,
        cluster_id: str,
        connect_timeout_s: float,
        now_ns: Callable[[], int],
        randomness: Randomness,
        resolver: Resolver,
        wake: Alarm,
    ) -> None:
        self._owner = owner
        self._cluster_id = cluster_id
        self._connect_timeout_s = connect_timeout_s
        self._now = now_ns
        self._randomness = randomness
        self._resolver = resolver
        self._wake_alarm = wake
        self.endpoints = Endpoints(addresses, self._new_endpoint)
        self._hold_until_ns = 0
        self._redirects = 0
        self._leaderless_sweeps = 0

    def _new_endpoint(self, address: str, listed: bool) -> Endpoint:
        return Endpoint(
            address,
            listed=listed,
            randomness=self._randomness,
            resolver=self._resolver,
            connect_timeout_s=self._connect_timeout_s,
            cluster_id=self._cluster_id,
        )

    # -- a link to send on --------------------------------------------------------------------------

    def link(self) -> ClientLink | None:
        """The link of the endpoint that is thought to lead, or None while one is looked for."""
        link = self.endpoints.target.link
        if link is None or self._hold_until_ns:
            now = self._now()
            if now < self._hold_until_ns:
                self._wake_alarm.set(self._hold_until_ns)
                return None
            self._hold_until_ns = 0
            if link is None:
                self._seek(now)
                link = self.endpoints.target.link
        return link

    def _seek(self, now: int) -> None:
        """There is work and the target has no link: use another live one, or connect."""
        order = self.endpoints.rotation()
        for endpoint in order:
            if endpoint.link is not None:
                self.endpoints.target = endpoint
                return
            if endpoint.connecting:
                hedge_at = endpoint.attempt_since_ns + int(HEDGE_S * _S)
                if now < hedge_at:
                    self._wake_alarm.set(hedge_at)
                    return
            elif endpoint.not_before_ns <= now:
                self.endpoints.target = endpoint
                endpoint.connect(self._owner, now, self._connected)
                self._wake_alarm.set(now + int(HEDGE_S * _S))
                return
        later = [endpoint.not_before_ns for endpoint in order if not endpoint.connecting]
        if later:
            self._wake_alarm.set(min(later))

    # -- links --------------------------------------------------------------------------------------

    def connect(self, endpoint: Endpoint) -> asyncio.Task[ClientLink]:
        """Connect, whatever the endpoint's back-off says; joins an attempt that is under way."""
        return endpoint.connect(self._owner, self._now(), self._connected)

    def _connected(self, endpoint: Endpoint, error: BaseException | None) -> None:
        if self._owner.closed:
            if endpoint.link is not None:
                endpoint.link.abort("the client was closed")
            return
        if error is None:
            endpoint.backoff.reset()
            endpoint.not_before_ns = 0
            endpoint.refusal = None
            endpoint.said = "up"
            if self.endpoints.target.link is None:
                self.endpoints.target = endpoint
        else:
            self._gone(endpoint, error)
            refusal = self.endpoints.common_refusal()
            if refusal is not None:
                self._owner.refused_by_all(refusal)
        self._owner.may_send()

    def _gone(self, endpoint: Endpoint, error: BaseException) -> None:
        endpoint.failed(error, self._now() + int(endpoint.backoff.next_s() * _S))
        self.endpoints.move_on_from(endpoint)

    def lost(self, link: ClientLink) -> bool:
        """A link has ended. False if it was not the one in use."""
        endpoint = link.endpoint
        if endpoint.link is not link:
            return False
        endpoint.link = None
        self._gone(endpoint, TransportError(f"connection lost ({link.why})"))
        return True

    def sweep_links(self, sweep_s: float) -> None:
        """One interval of ``sweep_s`` seconds has passed: give up what has been silent for too long."""
        for endpoint in self.endpoints:
            link = endpoint.link
            if link is None:
                continue
            if link.outstanding <= 0:
                link.heard = True  # It owes nothing; its silence means nothing.
            silent = link.sweep()
            if silent >= SILENT_SWEEPS:
                link.abort(f"no answer for {sweep_s * SILENT_SWEEPS:g} s")
                # The operating system reports the end of an aborted connection a turn later.
                self._owner.link_lost(link)
                # It may be named as the leader by followers that have not noticed yet.
                endpoint.not_before_ns = self._now() + 2 * _S
            elif silent:
                link.ping(silent)

    @property
    def owed(self) -> bool:
        """An answer is due on some link."""
        return any(endpoint.link is not None and endpoint.link.outstanding for endpoint in self.endpoints)

    # -- what the nodes say -------------------------------------------------------------------------

    def executed_by(self, endpoint: Endpoint) -> None:
        """It executed something: if it is the target, the search has found what it looked for."""
        if endpoint is self.endpoints.target:
            self._redirects = 0
            self._leaderless_sweeps = 0

    def not_the_leader(self, endpoint: Endpoint, answer: Answer) -> None:
        """Follow the hint, unless it leads in circles or to an endpoint that has just failed."""
        hint = answer.detail
        if endpoint.probed_term != answer.term:  # What it said when asked for its status tells more.
            term = f" in term {answer.term}" if answer.term else ""
            endpoint.said = f"up, not the leader{term}, " + (f"names {hint}" if hint else "knows no leader")
        if endpoint is not self.endpoints.target or self._hold_until_ns:
            return
        now = self._now()
        leader = self.endpoints.at(hint) if hint else None
        if leader is not None and leader is not endpoint and leader.not_before_ns <= now:
            self.endpoints.target = leader
            self._redirects += 1
            if self._redirects <= 2:
                return
        else:
            self.endpoints.move_on_from(endpoint)
        # Nobody leads, or they name one another: an election is under way. Ask again, but not in a storm.
        self._hold_until_ns = now + int(jittered_s(self._randomness, 0.05, 0.2) * _S)

    # -- asking -------------------------------------------------------------------------------------

    def probe(self, now: int) -> None:
        """While requests wait for a leader, ask everybody how they stand: it finds a leader that
        nobody names yet, and gives the error its lines if there is none."""
        if not self._owner.waiting and not self._hold_until_ns:
            self._leaderless_sweeps = 0
            return
        self._leaderless_sweeps += 1
        if self._leaderless_sweeps < 2:
            return
        for endpoint in self.endpoints:
            if endpoint.link is None:
                if not endpoint.connecting and endpoint.not_before_ns <= now:
                    endpoint.connect(self._owner, now, self._connected)
            elif not endpoint.probing:
                endpoint.probing = True
                future = self._owner.call_on(endpoint.link, "status", {})
                future.add_done_callback(partial(self._probed, endpoint))

    def _probed(self, endpoint: Endpoint, future: asyncio.Future[Any]) -> None:
        endpoint.probing = False
        if future.cancelled() or future.exception() is not None or self._owner.closed:
            return
        status = future.result()
        if not isinstance(status, dict):
            return
        leader = status.get("leader")
        endpoint.probed_term = status.get("term")
        leadership = f"leader {leader}" if leader else last_leader_of(status)
        endpoint.said = f"up, {status.get('role')} in term {status.get('term')}, {leadership}"
        if status.get("role") == "leader" and self._owner.waiting:
            self.endpoints.target = endpoint
            self._owner.may_send()
