"""An HTTP API as a resource that recognises an Idempotency-Key: ``keyed``.

The key is the operation id, as in draft-ietf-httpapi-idempotency-key-header. The API compares no token, so a stale
leader is not refused there. It is harmless as long as the API keeps its keys: after the horizon nothing is sent
again that may have been sent before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec
import structlog

from ...core.errors import ConfigurationError, ModeRefused, Outcome, ResourceUnavailable
from ...core.token import FencingToken
from ...ports import Answered, Attempt, AttemptOutcome, AttemptStatus, Fence, Found, Guarantee
from ..modes import OFF, FenceMode, ModeReport, check_step
from .http_answer import StoredErrors, outcome_of
from .http_client import HttpClient, NoAnswer, NotSent, Reply
from .http_effect import HttpEffect, RequestTemplate, key_of
from .http_proxied import ProxyLink, fence_headers
from .ledger import StoredFence, check_fence
from .outcomes import failed, unknown_effect, waits
from .payload_template import NotBindable

__all__ = ["HttpEffect", "HttpResource"]

_HOUR_NS = 3_600_000_000_000

_log = structlog.get_logger(__name__)


class HttpResource:
    """A resource of kind ``http`` (``raft.ports.Resource``).

    ``url`` is what every path is added to. ``authorization`` is the whole value of that header. ``horizon_ns`` must
    be shorter than the time for which the API keeps its keys. ``stored_errors`` equal answers of 5xx are taken for
    one that the API keeps. Claims are remembered in this process only, unless ``url`` leads through a fencepost proxy
    (``proxied``): then they are made there, durably, and what it can enforce is known once it was claimed.
    """

    kind: ClassVar[str] = "http"
    dedupes_by_place: ClassVar[bool] = False
    refusal_tells: ClassVar[bool] = False  # 429 is said at the door, by whoever has not looked what was done before.

    def __init__(
        self,
        name: str,
        url: str,
        effects: Mapping[str, HttpEffect],
        *,
        cluster_id: str,
        authorization: str = "",
        authorization_header: str = "Authorization",
        key_header: str = "Idempotency-Key",
        key_quotes: bool = True,
        horizon_ns: int = 23 * _HOUR_NS,
        stored_errors: int = 3,
        proxied: bool = False,
        concurrency: int = 16,
        connect_ns: int = 3_000_000_000,
        answer_ns: int = 30_000_000_000,
        answer_bytes_max: int = 32 << 10,
        time_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        if not authorization.isascii() or not authorization.isprintable():
            raise ConfigurationError(f"resource {name!r}: its authorization holds characters that no header may hold")
        self.name = name
        self.effects = frozenset(effects)
        self.batch_limit = 1  # A slow one holds up nothing but its lane.
        self.concurrency = concurrency
        self._url = url.rstrip("/")
        self._cluster_id = cluster_id
        self._templates = {effect: RequestTemplate(name, effect, each) for effect, each in effects.items()}
        self._authorization = {authorization_header: authorization} if authorization else {}
        self._key_header = key_header
        self._key_quotes = key_quotes
        self._horizon_ns = horizon_ns
        self._stored = StoredErrors(stored_errors)
        self._answer_bytes_max = answer_bytes_max
        self._client = HttpClient(
            name,
            self.kind,
            url,
            connect_ns=connect_ns,
            answer_ns=answer_ns,
            connections=concurrency,
            body_bytes_max=answer_bytes_max,
        )
        self._proxy = ProxyLink(name, url, self._client) if proxied else None
        self._time_ns = time_ns
        self._fence: StoredFence | None = None

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.KEYED if self._proxy is None else self._proxy.guarantee

    @property
    def guarantee_reason(self) -> str:
        return "" if self._proxy is None else self._proxy.guarantee_reason

    # -- the port ------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connects to nothing. Raises :class:`ConfigurationError` where the library is missing."""
        self._client.open()

    async def close(self) -> None:
        """What is under way is cut off: it may have been applied. Safe to call twice."""
        await self._client.close()

    async def fence(self) -> Fence | None:
        return None if self._fence is None else Fence(self._fence.token, self._fence.holder)

    async def claim(self, token: FencingToken, holder: str) -> Fence | None:
        before = await self.fence()
        self._pass_fence(token, holder)
        if self._proxy is not None:
            headers = {**self._authorization, **fence_headers(self._cluster_id, token, holder)}
            return await self._proxy.claim(headers)
        return before

    async def execute(self, token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
        if len(attempts) > self.batch_limit:
            raise AssertionError(f"{len(attempts)} attempts for a batch limit of {self.batch_limit}")
        self._pass_fence(token, holder)
        return [await self._attempt(token, holder, attempt) for attempt in attempts]

    # -- modes (``effects.modes.ModalResource``) -----------------------------------------------------

    @property
    def mode_seen(self) -> ModeReport | None:
        """The proxy's. None for an API that has none in front."""
        return None if self._proxy is None else self._proxy.seen

    async def mode(self) -> ModeReport:
        return OFF if self._proxy is None else await self._proxy.mode(self._authorization)

    async def set_mode(self, token: FencingToken, holder: str, mode: FenceMode, quiet_ns: int) -> ModeReport:
        """Raises :class:`ModeRefused` for every step that is one: a proxy has its mode from its own file."""
        self._pass_fence(token, holder)
        report = await self.mode()
        if check_step(self.name, report, mode, quiet_ns, self._time_ns()):
            raise ModeRefused(
                f"resource {self.name!r}: its proxy has its mode from its own file; what it has counted speaks for it",
                next_step=f'set mode = "{mode}" under [proxy] in the file of the proxy, and start it again',
            )
        return report

    # -- the rest of the port ------------------------------------------------------------------------

    @property
    def absence_is_final(self) -> bool:
        """Never: a proxy bars what comes to it from below the claim, and not what it has already sent on."""
        return False

    async def query(self, attempt: Attempt) -> Answered:
        """What the API says of an operation that was left in doubt (``effects.doubts``)."""
        template = self._templates.get(attempt.effect)
        if template is None or not template.can_ask:
            return Answered(Found.UNKNOWN)
        try:
            answer = await self._ask(template, attempt)
        except NotBindable:
            return Answered(Found.UNKNOWN)
        if answer.applied is None:
            return Answered(Found.UNKNOWN)
        return Answered(Found.APPLIED, answer.result) if answer.applied else Answered(Found.NOT_APPLIED)

    def _pass_fence(self, token: FencingToken, holder: str) -> None:
        if check_fence(self.name, self._fence, self._cluster_id, token, holder):
            self._fence = StoredFence(self.name, self._cluster_id, token, holder)

    # -- one attempt -----------------------------------------------------------------------------------

    async def _attempt(self, token: FencingToken, holder: str, attempt: Attempt) -> AttemptOutcome:
        template = self._templates.get(attempt.effect)
        if template is None:
            return unknown_effect(attempt)
        try:
            request = template.bind(attempt)
            key = key_of(attempt.operation_id, quotes=self._key_quotes)
            if attempt.age_ns > self._horizon_ns:
                known = await self._too_old(template, attempt)
                if known is not None:
                    return known
        except NotBindable as reason:
            return failed(reason)
        headers = {
            **self._authorization,
            self._key_header: key,
            "Content-Type": template.content_type,
            # For an API that does compare: it may refuse what is lower than the highest it has seen.
            **fence_headers(self._cluster_id, token, holder),
        }
        try:
            reply = await self._client.request(
                template.method, self._url + request.path, headers=headers, content=request.body, whole=False
            )
        except NotSent as error:
            # Of the endpoint and not of this command: the others are not to find it out one by one (S53).
            raise ResourceUnavailable(
                f"resource {self.name!r}: {self._url} cannot be reached: {error}",
                next_step="nothing: it is tried again",
                outcome=Outcome.RETRY,
            ) from error
        except NoAnswer as error:
            return AttemptOutcome(AttemptStatus.UNKNOWN, b"", f"no answer: {error}", False)
        return await self._judged(template, attempt, reply)

    async def _judged(self, template: RequestTemplate, attempt: Attempt, reply: Reply) -> AttemptOutcome:
        said = None if self._proxy is None else self._proxy.outcome(reply)
        if said is not None:
            return await self._settled_by_asking(template, attempt, said)
        outcome = outcome_of(reply, self._answer_bytes_max, self._time_ns())
        if not self._stored.is_stored(attempt.operation_id, reply):
            return outcome
        why = f"the API keeps this answer under the key: {outcome.error}"
        if template.can_ask:
            answer = await self._ask(template, attempt)
            if answer.applied:
                return AttemptOutcome(AttemptStatus.SUCCEEDED, answer.result, "", True)
            if answer.applied is False:
                return failed(f"{why}, and says that it was not applied", replayed=True)
        return AttemptOutcome(AttemptStatus.DOUBT, b"", why, False)

    async def _settled_by_asking(
        self, template: RequestTemplate, attempt: Attempt, said: AttemptOutcome
    ) -> AttemptOutcome:
        """The proxy will never send it again: if the API can be asked, that decides."""
        if said.status is not AttemptStatus.DOUBT or not template.can_ask:
            return said
        answer = await self._ask(template, attempt)
        return AttemptOutcome(AttemptStatus.SUCCEEDED, answer.result, "", True) if answer.applied else said

    async def _too_old(self, template: RequestTemplate, attempt: Attempt) -> AttemptOutcome | None:
        """What becomes of an attempt past the horizon; None where it may be made: it certainly was not before."""
        hours = attempt.age_ns / _HOUR_NS
        why = f"its first attempt was {hours:.1f} h ago, and the API may have forgotten its key (horizon)"
        if not template.can_ask:
            return AttemptOutcome(AttemptStatus.DOUBT, b"", why, False)
        answer = await self._ask(template, attempt)
        if answer.applied is None:
            if answer.later:
                return waits(f"{why}; it cannot be asked: {answer.why}")
            return AttemptOutcome(AttemptStatus.DOUBT, b"", f"{why}; asked, it says: {answer.why}", False)
        return AttemptOutcome(AttemptStatus.SUCCEEDED, answer.result, "", True) if answer.applied else None

    # -- the query -------------------------------------------------------------------------------------

    async def _ask(self, template: RequestTemplate, attempt: Attempt) -> _Answer:
        """Whether the operation was applied. Raises :class:`NotBindable`."""
        url = self._url + template.question(attempt)
        try:
            reply = await self._client.request("GET", url, headers=self._authorization, whole=False)
        except (NotSent, NoAnswer) as error:
            return _Answer(None, b"", str(error), True)
        if reply.status in (404, 410):
            return _Answer(False, b"", "", False)
        outcome = outcome_of(reply, self._answer_bytes_max, self._time_ns())
        if outcome.status is not AttemptStatus.SUCCEEDED:
            later = reply.status >= 500 or reply.status in (401, 407, 408, 425, 429)
            return _Answer(None, b"", outcome.error, later)
        body = msgspec.json.decode(outcome.result)["body"]
        said = body.get("applied", True) if isinstance(body, dict) else True
        if said is True or said is False:
            return _Answer(said, outcome.result if said else b"", "", False)
        return _Answer(None, b"", f"applied is {str(said)[:60]!r}", False)


class _Answer(msgspec.Struct, frozen=True):
    applied: bool | None
    """None where the API does not know, or could not be asked."""
    result: bytes
    why: str
    later: bool
    """Whether it may be asked again."""
