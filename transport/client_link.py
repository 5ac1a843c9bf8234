"""A client's side of one connection, and what it knows about the endpoint behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from ..raft.core.errors import FencepostError, FrameInvalid, HandshakeRefused, TransportError
from ..raft.ports import Answer, Randomness
from .address import Resolver, describe_failure, parse_address
from .backoff import Backoff
from .codec import FrameType, Welcome, encode_call, encode_hello, error_of
from .connection import FramedConnection
from .handshake import hello_of_client

_ANSWER = int(FrameType.ANSWER)
_REPLY = int(FrameType.REPLY)
_REPLY_ERROR = int(FrameType.REPLY_ERROR)
_WELCOME = int(FrameType.WELCOME)
_REFUSE = int(FrameType.REFUSE)

UNSENT_BYTES_MAX = 4 * 1024 * 1024
"""Requests that may wait for a node to read them before more are held back."""


class LinkLost(TransportError):
    """The connection ended while a call was under way on it; never seen outside the client."""

    code = "CONNECTION_LOST"


class LinkOwner(Protocol):
    """Whoever uses links: told what arrives and when one is gone."""

    def answered(self, link: ClientLink, answers: list[Answer]) -> None: ...

    def link_lost(self, link: ClientLink) -> None: ...

    def link_drained(self, link: ClientLink) -> None: ...

    def welcomed(self, link: ClientLink, welcome: Welcome) -> None:
        """Judge the node that was reached. Raises :class:`HandshakeRefused`."""


class ClientLink(FramedConnection):
    """One connection to one node. Usable once ``ready`` has a result."""

    def __init__(self, endpoint: Endpoint, owner: LinkOwner, cluster_id: str) -> None:
        super().__init__()
        self.endpoint = endpoint
        self._owner = owner
        self._cluster_id = cluster_id
        self.ready: asyncio.Future[Welcome] = self._loop.create_future()
        self.outstanding = 0
        """Requests and calls sent here and not answered: silence matters only while there are some."""
        self.calls: dict[int, asyncio.Future[Any]] = {}
        self.incarnation = 0
        """Of the cluster that the node belongs to."""

    def opened(self) -> None:
        self.limit_writes(UNSENT_BYTES_MAX)
        self.write(encode_hello(hello_of_client(self._cluster_id)))

    def received(self, frame_type: int, body: Any) -> None:
        if frame_type == _ANSWER and self.ready.done():
            self._owner.answered(self, body)
        elif frame_type in (_REPLY, _REPLY_ERROR) and self.ready.done():
            self._replied(frame_type, body)
        elif frame_type == _WELCOME and not self.ready.done():
            try:
                self._owner.welcomed(self, body)
            except HandshakeRefused as error:
                self._fail(error)
                return
            self.shaken_hands()
            self.ready.set_result(body)
        elif frame_type == _REFUSE and not self.ready.done():
            self._fail(error_of(body))
        else:
            raise FrameInvalid(f"a {FrameType(frame_type).name} frame out of place")

    def _replied(self, frame_type: int, body: Any) -> None:
        future = self.calls.pop(body.request_id, None)
        self.outstanding -= 1
        if future is None or future.done():
            return
        if frame_type == _REPLY:
            future.set_result(body.body)
        else:
            future.set_exception(error_of(body.error))

    def call(self, request_id: int, method: str, parameters: dict[str, Any]) -> asyncio.Future[Any]:
        """Ask the node. The future ends with the body of the reply, its error, or :class:`LinkLost`."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.calls[request_id] = future
        self.outstanding += 1
        self.write(encode_call(request_id, method, parameters))
        return future

    def invalid(self, error: FrameInvalid) -> None:
        self._fail(error)

    def drained(self) -> None:
        self._owner.link_drained(self)

    def ended(self) -> None:
        if not self.ready.done():
            self.ready.set_exception(TransportError(f"connection lost in the handshake ({self.why})"))
            self.ready.exception()
        calls, self.calls = self.calls, {}
        for future in calls.values():
            if not future.done():
                future.set_exception(LinkLost(f"{self.endpoint.address}: {self.why}"))
        self._owner.link_lost(self)

    def _fail(self, error: FencepostError) -> None:
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()
        self.abort(error.message)


class Endpoint:
    """One address of the cluster: its link, if there is one, and what it last said."""

    def __init__(
        self,
        address: str,
        *,
        listed: bool,
        randomness: Randomness,
        resolver: Resolver,
        connect_timeout_s: float,
        cluster_id: str,
    ) -> None:
        self.address = address
        self.listed = listed
        """Given by the user, rather than learned from an answer."""
        self.host, self.port = parse_address(address)
        self.link: ClientLink | None = None
        self.said = "not tried"
        """One line for ``tried``: what this endpoint answered last."""
        self.refusal: HandshakeRefused | None = None
        self.node_id = ""
        self.not_before_ns = 0
        """Not worth connecting to, nor believing a hint about, before this time."""
        self.attempt_since_ns = 0
        self.probing = False
        self.probed_term: object = None
        """The term of the status that ``said`` comes from."""
        self.backoff = Backoff(randomness, first_s=0.05, most_s=1.0)
        self._attempt: asyncio.Task[ClientLink] | None = None
        self._resolver = resolver
        self._connect_timeout_s = connect_timeout_s
        self._cluster_id = cluster_id

    @property
    def connecting(self) -> bool:
        return self._attempt is not None

    def live_link(self) -> ClientLink | None:
        """``link`` as it is now, for callers that awaited since they last looked."""
        return self.link

    def line(self) -> str:
        """One line of ``tried``."""
        return f"{self.address}  {self.said}"

    def connect(
        self, owner: LinkOwner, now_ns: int, finished: Callable[[Endpoint, BaseException | None], None]
    ) -> asyncio.Task[ClientLink]:
        """The attempt to connect that is under way, or a new one. ``finished`` is told of its end,
        before anyone who waits for the task."""
        if self._attempt is not None:
            return self._attempt
        attempt = asyncio.get_running_loop().create_task(self._connect(owner), name=f"fencepost-connect-{self.address}")
        self._attempt = attempt
        self.attempt_since_ns = now_ns

        def done(task: asyncio.Task[ClientLink]) -> None:
            self._attempt = None
            if task.cancelled():
                finished(self, TransportError("the client was closed"))
                return
            error = task.exception()
            if error is None:
                link = task.result()
                if link.closed:
                    error = TransportError(f"connection lost ({link.why})")
                else:
                    self.link = link
            finished(self, error)

        attempt.add_done_callback(done)
        return attempt

    async def _connect(self, owner: LinkOwner) -> ClientLink:
        loop = asyncio.get_running_loop()
        failure: BaseException = OSError("no address")
        async with asyncio.timeout(self._connect_timeout_s):
            for host, port in await self._resolver.resolve(self.host, self.port):
                try:
                    _, link = await loop.create_connection(
                        lambda: ClientLink(self, owner, self._cluster_id), host, port
                    )
                except OSError as error:
                    failure = error
                    continue
                try:
                    welcome = await link.ready
                except BaseException:
                    # Cancelled or out of time as well: the socket must not outlive the attempt.
                    link.abort("the handshake was given up")
                    raise
                self.node_id = welcome.node_id
                return link
        raise failure

    def failed(self, error: BaseException, not_before_ns: int) -> None:
        self.probed_term = None
        self.refusal = error if isinstance(error, HandshakeRefused) else None
        if isinstance(error, FencepostError):
            self.said = f"refused: {error.message}" if self.refusal else error.message
        else:
            self.said = describe_failure(error)
        self.not_before_ns = not_before_ns

    async def stop(self) -> None:
        """End the attempt and the link. Bounded: nothing here waits for the other end."""
        if self._attempt is not None:
            attempt = self._attempt
            attempt.cancel()
            await asyncio.wait({attempt}, timeout=1.0)
        if self.link is not None:
            link, self.link = self.link, None
            link.abort("the client was closed")
            await asyncio.wait({link.over}, timeout=1.0)
