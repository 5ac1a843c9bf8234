"""What an HTTP resource hears from a `fencepost proxy` in front of its API (resources: A proxy in front of an API)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ...core.errors import DuplicateGeneration, FenceError, Outcome, ResourceUnavailable, StaleLeader, WrongCluster
from ...core.token import FencingToken
from ...ports import AttemptOutcome, AttemptStatus, Fence, Guarantee
from ..modes import OFF, FenceMode, ModeReport
from .http_client import HttpClient, NoAnswer, NotSent, Reply
from .outcomes import failed

PROXY_HEADER = "X-Fencepost-Proxy"
"""On every answer that is the proxy's own, and on none of the API's."""

_FENCE_ERRORS: dict[str, type[FenceError]] = {
    error.code: error for error in (StaleLeader, DuplicateGeneration, WrongCluster)
}
_KEYED_REASON = (
    "the proxy refuses stale tokens and repeats, and its API recognises no keys: what the proxy missed the answer of "
    "is put in doubt"
)
_FENCED_REASON = "by the proxy, for whatever reaches the API through it"


def fence_headers(cluster_id: str, token: FencingToken, holder: str) -> dict[str, str]:
    return {
        "X-Fencepost-Cluster": cluster_id,
        "X-Fencepost-Token": f"{token.incarnation}.{token.term}",
        "X-Fencepost-Holder": holder,
    }


class ProxyLink:
    """The proxy's own side: claims, and what its refusals mean."""

    def __init__(self, name: str, url: str, client: HttpClient) -> None:
        parts = urlsplit(url)
        self._name = name
        self._claim_url = f"{parts.scheme}://{parts.netloc}/.fencepost/claim"
        self._status_url = f"{parts.scheme}://{parts.netloc}/.fencepost/status"
        self._client = client
        self.seen = OFF
        self.guarantee = Guarantee.KEYED
        self.guarantee_reason = "the proxy has not been asked yet"

    async def claim(self, headers: Mapping[str, str]) -> Fence | None:
        """Durable at the proxy, and everything of lower tokens has ended there. The fence before it.

        Raises :class:`FenceError` or :class:`ResourceUnavailable`.
        """
        try:
            reply = await self._client.request("POST", self._claim_url, headers=headers, whole=False)
        except (NotSent, NoAnswer) as error:
            raise ResourceUnavailable(f"resource {self._name!r}: its proxy does not answer: {error}") from error
        self.raise_for(reply)
        said = _json(reply)
        if reply.status != 200 or "upstream_keyed" not in said:
            raise ResourceUnavailable(
                f"resource {self._name!r}: {self._claim_url} is no fencepost proxy's: HTTP {reply.status}",
                next_step=f"correct url under [resources.{self._name}], or set proxied = false",
            )
        self.seen = _report(said)
        # A proxy that only observes lets a stale leader pass.
        fenced = said["upstream_keyed"] is True and said.get("mode") == "enforce"
        self.guarantee = Guarantee.FENCED if fenced else Guarantee.KEYED
        self.guarantee_reason = (
            _FENCED_REASON
            if fenced
            else _KEYED_REASON
            if said.get("mode") == "enforce"
            else "the proxy only observes: it counts stale tokens and refuses none"
        )
        previous = said.get("previous")
        if not isinstance(previous, str):
            return None
        incarnation, _, term = previous.partition(".")
        return Fence(FencingToken(int(incarnation), int(term)), str(said.get("previous_holder", "")))

    async def mode(self, headers: Mapping[str, str]) -> ModeReport:
        """What the proxy counts. Raises :class:`ResourceUnavailable`."""
        try:
            reply = await self._client.request("GET", self._status_url, headers=headers, whole=False)
        except (NotSent, NoAnswer) as error:
            raise ResourceUnavailable(f"resource {self._name!r}: its proxy does not answer: {error}") from error
        said = _json(reply)
        if reply.status != 200 or "would_reject" not in said:
            raise ResourceUnavailable(
                f"resource {self._name!r}: {self._status_url} is no fencepost proxy's: HTTP {reply.status}",
                next_step=f"correct url under [resources.{self._name}], or set proxied = false",
            )
        self.seen = _report(said)
        return self.seen

    def raise_for(self, reply: Reply) -> None:
        """Raises the :class:`FenceError` that the proxy has answered with."""
        kind = _FENCE_ERRORS.get(reply.headers.get(PROXY_HEADER, ""))
        if kind is not None:
            raise kind(f"resource {self._name!r}: its proxy says: {_json(reply).get('detail', '')}")

    def outcome(self, reply: Reply) -> AttemptOutcome | None:
        """What the proxy itself said of an attempt; None for an answer of the API.

        Raises :class:`FenceError`, or :class:`ResourceUnavailable` where the proxy does not reach the API.
        """
        code = reply.headers.get(PROXY_HEADER, "")
        if not code:
            return None
        self.raise_for(reply)
        why = f"{code}: {_json(reply).get('detail', '')}"
        if code == "OUTCOME_UNKNOWN":
            if self.guarantee is Guarantee.FENCED:
                return AttemptOutcome(AttemptStatus.UNKNOWN, b"", why, False)  # Sent again within its horizon.
            return AttemptOutcome(AttemptStatus.DOUBT, b"", why, False)
        if code == "BUSY":
            return AttemptOutcome(AttemptStatus.UNKNOWN, b"", why, False, 1_000_000_000)
        if code == "RESOURCE_UNAVAILABLE":
            raise ResourceUnavailable(f"resource {self._name!r}: its proxy says: {why}", outcome=Outcome.RETRY)
        return failed(why)


def _report(said: Mapping[str, Any]) -> ModeReport:
    """Everything that reaches the API through the proxy is looked at, so there is no list of it."""

    def number(name: str) -> int:
        value = said.get(name)
        return value if isinstance(value, int) else 0

    return OFF._replace(
        mode=FenceMode(said.get("mode", FenceMode.OFF)),
        observed_ns=number("observed_ns"),
        unfenced=number("unfenced"),
        would_reject=number("would_reject"),
        last_unfenced_ns=number("last_unfenced_ns"),
    )


def _json(reply: Reply) -> dict[str, Any]:
    try:
        said = msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return said if isinstance(said, dict) else {}
