"""What a proxy does with one request: let it pass, refuse it, answer it from memory, or say that nobody knows.

The order: mark durably, send, keep the answer durably, answer. A request is sent at most once, unless the API
recognises its key. A token that rises waits until everything under way with a lower one has ended: so at the API, too,
nothing of a former leader comes after something of its successor, except what the API itself goes on with after the
proxy has given up on an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import sqlite3
import time
from collections.abc import Callable
from functools import partial

import structlog

from ...raft.core.errors import (
    Busy,
    CommandInvalid,
    FenceError,
    FencepostError,
    NotFound,
    OperationIdReused,
    OutcomeUnknown,
    ResourceUnavailable,
    TokenMissing,
    WrongCluster,
)
from ...raft.core.token import FencingToken
from ...raft.effects.modes import FenceMode
from ...raft.effects.resources.http_client import HttpClient, NoAnswer, NotSent, Reply
from ...transport.http_problem import HttpAnswer, json_answer, problem_of
from ...transport.http_server import HttpRequest
from .marks import Bearer, Marks, MarkState, Stored
from .writer import Writer

_LOG = structlog.get_logger("fencepost.proxy")

PROXY_HEADER = "X-Fencepost-Proxy"
"""Only on answers of the proxy's own: the code of what it says. The API's own are never taken for one of these."""
OWN_PATH = "/.fencepost/"
"""What is asked of the proxy itself. Never passed on."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
NOT_DONE = frozenset({401, 407, 408, 425, 429})
"""An API that says one of these has certainly not done it: the same id may be sent again."""

_TOKEN = re.compile(r"([0-9]{1,19})\.([0-9]{1,19})")
_HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "upgrade"),
        *("transfer-encoding", "host", "content-length", "expect", "accept-encoding"),
    }
)
_DROPPED_FROM_ANSWERS = _HOP_BY_HOP | {"content-type", "date", "server", PROXY_HEADER.lower()}
_KEPT = frozenset({"authorization", "content-type", "content-encoding", "idempotency-key"})
"""What no caller can have taken out on the way by naming it in Connection: the API would see another request."""
_NO_ANSWER = "it was sent, and no whole answer came: the API may have done it, or may be doing it still"


class FencedProxy:
    """The handler of an ``HttpServer``."""

    def __init__(
        self,
        marks: Marks,
        client: HttpClient,
        *,
        upstream: str,
        upstream_keyed: bool,
        horizon_ns: int,
        answer_bytes_max: int,
        authorization: str = "",
        time_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._marks = marks
        self._client = client
        self._upstream = upstream.rstrip("/")
        self._keyed = upstream_keyed
        self._again_ns = horizon_ns if upstream_keyed else 0
        self._answer_bytes_max = answer_bytes_max
        self._authorization = authorization
        self._time_ns = time_ns
        self._durably = Writer(marks)
        self._under_way: dict[asyncio.Future[None], FencingToken] = {}
        self._sent: set[str] = set()
        """Operations whose mark this process has made and not settled."""
        self._stopping = False

    async def drain(self, within_s: float) -> None:
        """Take no more changes, and let those under way be answered: cut off, each would be in doubt for ever."""
        self._stopping = True
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=within_s)

    async def close(self) -> None:
        await self._client.close()
        await self._durably.close()

    # -- one request ------------------------------------------------------------------------------------

    async def __call__(self, request: HttpRequest) -> HttpAnswer:
        try:
            if request.path.startswith(OWN_PATH):
                return await self._own(request)
            if not {".", ".."}.isdisjoint(request.path.split("/")):
                # Whoever resolves it leaves the path that every other is added to.
                raise CommandInvalid("a path with . or .. is not passed on")
            if request.method in SAFE_METHODS:
                return await self._pass(request)
            return await self._change(request)
        except FencepostError as error:
            if isinstance(error, FenceError):
                _LOG.warning("refused at the fence", code=error.code, method=request.method, reason=error.message)
                with contextlib.suppress(sqlite3.Error):  # It is refused whether or not it can be counted.
                    await self._durably(self._marks.refused)
            return _refusal(error)
        except sqlite3.Error as error:
            # Only what comes before sending raises it: what comes after is told as unknown.
            _LOG.error("fence file fails", error=str(error))
            return _refusal(ResourceUnavailable(f"the proxy cannot write its fence file, nothing was sent: {error}"))

    async def _own(self, request: HttpRequest) -> HttpAnswer:
        what = (request.method, request.path.removeprefix(OWN_PATH))
        if what == ("GET", "status"):
            status = dict(await self._durably(self._marks.status))
            return json_answer({**status, "upstream_keyed": self._keyed, "under_way": len(self._under_way)})
        if what == ("POST", "claim"):
            bearer = _bearer(request)
            if bearer is None:
                raise TokenMissing("a claim shows a token")
            before = await self._durably(lambda: self._marks.claim(bearer, self._time_ns()))
            await self._after_lower(bearer.token)
            counts = await self._durably(self._marks.counts)
            _LOG.info("fence claimed", token=str(bearer.token), holder=bearer.holder)
            previous = None if before is None or before.token.term == 0 else before
            return json_answer(
                {
                    "upstream_keyed": self._keyed,
                    "mode": self._marks.mode.value,
                    **counts,
                    "previous": None if previous is None else _dotted(previous.token),
                    "previous_holder": "" if previous is None else previous.holder,
                }
            )
        raise NotFound(f"here are GET {OWN_PATH}status and POST {OWN_PATH}claim")

    async def _pass(self, request: HttpRequest) -> HttpAnswer:
        """A request that is not fenced. Nothing of it is kept."""
        try:
            reply = await self._send(request)
        except NotSent as error:
            raise ResourceUnavailable(f"the API cannot be reached: {error}") from error
        except NoAnswer as error:
            raise OutcomeUnknown(f"{_NO_ANSWER} ({error})") from error
        return _answer_of(self._stored(reply))

    async def _change(self, request: HttpRequest) -> HttpAnswer:
        if self._stopping:
            raise ResourceUnavailable("the proxy is being stopped", next_step="ask again with the same id")
        bearer = _bearer(request)
        if bearer is None:
            if self._marks.mode is FenceMode.ENFORCE:
                raise TokenMissing(
                    f"{request.method} changes something, and shows no token",
                    next_step="send X-Fencepost-Cluster, X-Fencepost-Token, X-Fencepost-Holder and Idempotency-Key",
                )
            await self._durably(lambda: self._marks.unfenced(self._time_ns()))
            return await self._pass(request)
        # From here on a claim of a higher token waits for it: either its mark comes behind that claim, and is refused,
        # or the claim is answered when this is over.
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way[done] = bearer.token
        try:
            return await self._marked(request, bearer, _operation_id(request))
        finally:
            del self._under_way[done]
            done.set_result(None)

    async def _marked(self, request: HttpRequest, bearer: Bearer, operation_id: str) -> HttpAnswer:
        digest = _digest(request)
        mark = await self._durably(
            lambda: self._marks.mark(bearer, operation_id, digest, self._time_ns(), again_ns=self._again_ns)
        )
        if mark.state is MarkState.ANSWERED and mark.stored is not None:
            return _answer_of(mark.stored, replayed=True)
        if mark.state is MarkState.MARKED and operation_id in self._sent:
            raise Busy(f"{operation_id!r} is under way", next_step="ask again with the same id")
        if mark.state is not None:
            raise OutcomeUnknown(
                f"{operation_id!r} was sent before, and its answer never arrived: it is not sent again",
                next_step="ask the API whether it was done",
            )
        self._sent.add(operation_id)
        try:
            await self._after_lower(bearer.token)
            return await self._forward(request, operation_id)
        finally:
            self._sent.discard(operation_id)

    async def _forward(self, request: HttpRequest, operation_id: str) -> HttpAnswer:
        """A request that was just marked. Its mark is settled before anybody hears of it."""
        settle: Callable[[], None]
        try:
            reply = await self._send(request)
        except NotSent as error:
            await self._settled(operation_id, lambda: self._marks.released(operation_id))
            raise ResourceUnavailable(f"the API cannot be reached, nothing was sent: {error}") from error
        except NoAnswer as error:
            await self._settled(operation_id, lambda: self._marks.lost(operation_id))
            raise OutcomeUnknown(f"{_NO_ANSWER} ({error})", next_step="ask the API whether it was done") from error
        stored = self._stored(reply)
        if reply.status in NOT_DONE:
            settle = partial(self._marks.released, operation_id)
        elif self._keyed and (reply.status == 409 or reply.status >= 500):
            # The API knows of the key what we do not: its next answer under it is as good as this one.
            settle = partial(self._marks.lost, operation_id)
        else:
            settle = partial(self._marks.answered, operation_id, stored, self._time_ns())
        await self._settled(operation_id, settle)
        return _answer_of(stored)

    async def _settled(self, operation_id: str, settle: Callable[[], None]) -> None:
        try:
            await self._durably(settle)
        except sqlite3.Error as error:
            # It stays marked, and nobody has it under way: in doubt for whoever asks next.
            _LOG.error("mark not settled", operation=operation_id, error=str(error))
            raise OutcomeUnknown(f"what became of {operation_id!r} could not be kept: {error}") from error

    async def _after_lower(self, token: FencingToken) -> None:
        """What is under way with a lower token has been answered or given up. Whatever comes after this is refused: the
        fence stands higher already. Bounded, as each of them is."""
        lower = [done for done, each in self._under_way.items() if each < token]
        if lower:
            await asyncio.wait(lower)

    # -- the other side -----------------------------------------------------------------------------------

    async def _send(self, request: HttpRequest) -> Reply:
        lines = [value for name, value in request.headers if name == "connection"]
        named = {each.strip().lower() for each in ",".join(lines).split(",")} - _KEPT
        headers: dict[str, str] = {}
        for name, value in request.headers:
            if name not in _HOP_BY_HOP and (name not in named or name.startswith("x-fencepost-")):
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
        if self._authorization:
            headers["authorization"] = self._authorization
        return await self._client.request(
            request.method, self._upstream + request.target, headers=headers, content=request.body or None, whole=False
        )

    def _stored(self, reply: Reply) -> Stored:
        # The bytes as they came, which the library has read as what they could be.
        encoding = getattr(reply.headers, "encoding", "latin-1")
        all_headers = [(name, value.encode(encoding).decode("latin-1")) for name, value in reply.headers.items()]
        named = {each.strip().lower() for each in reply.headers.get("Connection", "").split(",")}
        dropped = _DROPPED_FROM_ANSWERS | named
        headers = [(name, value) for name, value in all_headers if name.lower() not in dropped]
        kind = next((value for name, value in all_headers if name.lower() == "content-type"), "")
        headers.append(("Content-Type", kind or "application/octet-stream"))
        if len(reply.body) >= self._answer_bytes_max:
            headers.append(("X-Fencepost-Cut", "true"))
        return Stored(reply.status, headers, reply.body)


_STATUS: tuple[tuple[type[FencepostError], int], ...] = (
    (TokenMissing, 428),
    (WrongCluster, 403),
    (FenceError, 412),
    (OperationIdReused, 422),
    (Busy, 409),
    (OutcomeUnknown, 504),
    (ResourceUnavailable, 503),
    (NotFound, 404),
)


def _refusal(error: FencepostError) -> HttpAnswer:
    status = next((number for kind, number in _STATUS if isinstance(error, kind)), 400)
    answer = problem_of(error, status)
    more = ((PROXY_HEADER, error.code), *((("Retry-After", "1"),) if status in (409, 503) else ()))
    return answer._replace(headers=more)


def _answer_of(stored: Stored, *, replayed: bool = False) -> HttpAnswer:
    headers = [each for each in stored.headers if each[0] != "Content-Type"]
    if replayed:
        headers = [each for each in headers if each[0].lower() != "idempotent-replayed"]
        headers.append(("Idempotent-Replayed", "true"))
    return HttpAnswer(stored.status, stored.body, dict(stored.headers)["Content-Type"], tuple(headers))


def _bearer(request: HttpRequest) -> Bearer | None:
    """None for a request that shows nothing. Raises :class:`CommandInvalid` for one that shows half of it."""
    shown = [request.header(f"x-fencepost-{name}") for name in ("cluster", "token", "holder")]
    if not any(shown):
        return None
    found = _TOKEN.fullmatch(shown[1])
    if not all(shown) or found is None or max(int(found[1]), int(found[2])) >= 1 << 63:
        raise CommandInvalid(
            "X-Fencepost-Cluster, X-Fencepost-Token (incarnation.term, decimal) and X-Fencepost-Holder belong together"
        )
    return Bearer(shown[0], FencingToken(int(found[1]), int(found[2])), shown[2])


def _operation_id(request: HttpRequest) -> str:
    """The Idempotency-Key, with or without the quotes that its draft asks for."""
    value = request.header("idempotency-key").strip()
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    if not 0 < len(value) <= 512:
        raise CommandInvalid("a request with a token has an Idempotency-Key of 1 to 512 characters")
    return value


def _digest(request: HttpRequest) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in (request.method, request.target, request.header("content-type")):
        digest.update(part.encode("latin-1") + b"\n")
    digest.update(request.body)
    return digest.digest()


def _dotted(token: FencingToken) -> str:
    return f"{token.incarnation}.{token.term}"
