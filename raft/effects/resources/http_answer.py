"""What the answer of an API says about an attempt."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from ...outbox.codec import canonical_json
from ...ports import AttemptOutcome, AttemptStatus
from .http_client import Reply
from .outcomes import RESULT_BYTES_MAX, failed, waits

PAUSE_NS_MAX = 3_600_000_000_000
"""A pause that is asked for is kept up to an hour."""
REMEMBERED = 10_000
AWAY = frozenset({502, 503, 504})
"""What a gateway says for a server that is not there: it says nothing about what is stored under a key."""
REPLAYED_HEADERS = ("Idempotent-Replayed", "Idempotency-Replayed")


def outcome_of(reply: Reply, body_bytes_max: int, now_ns: int) -> AttemptOutcome:
    """The outcome of one attempt, by the status of its answer.

    409 means that the same key is under way, and 5xx that nobody knows: neither is a failure.
    """
    status = reply.status
    if 200 <= status < 300:
        return AttemptOutcome(AttemptStatus.SUCCEEDED, _result(reply, body_bytes_max), "", is_replay(reply.headers))
    why = _why(reply)
    pause_ns = retry_after_ns(reply.headers, now_ns)
    if status in (408, 425, 429):
        return AttemptOutcome(AttemptStatus.RETRY, b"", why, False, pause_ns)
    if status in (401, 407):
        # It is about us, and the same for every command: who corrects it finds the commands waiting.
        return waits(f"the credentials are refused: {why}")
    if status == 409:
        return AttemptOutcome(AttemptStatus.UNKNOWN, b"", f"under way under the same key: {why}", False, pause_ns)
    if status == 422:
        return failed(f"refused, or its key was used for another request: {why}", replayed=is_replay(reply.headers))
    if 400 <= status < 500:
        return failed(why, replayed=is_replay(reply.headers))
    if 300 <= status < 400:
        return AttemptOutcome(AttemptStatus.UNKNOWN, b"", f"redirects are not followed: {why}", False)
    return AttemptOutcome(AttemptStatus.UNKNOWN, b"", why, False, pause_ns)


def is_replay(headers: Mapping[str, str]) -> bool:
    return any(headers.get(name, "").lower() == "true" for name in REPLAYED_HEADERS)


def retry_after_ns(headers: Mapping[str, str], now_ns: int) -> int:
    """Seconds or a date (RFC 9110, section 10.2.3), in nanoseconds from now; 0 for neither."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return min(int(value[:10]) * 1_000_000_000, PAUSE_NS_MAX)
    try:
        until_ns = int(parsedate_to_datetime(value).timestamp() * 1e9)
    except (ValueError, TypeError, OverflowError):
        return 0
    return max(0, min(until_ns - now_ns, PAUSE_NS_MAX))


def _result(reply: Reply, body_bytes_max: int) -> bytes:
    """Status and body as JSON. The effect is done: a body that cannot be kept does not undo it."""
    body: Any
    try:
        body = msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        body = reply.body.decode(errors="replace") or None
    result = canonical_json({"status": reply.status, "body": body})
    if len(reply.body) >= body_bytes_max or len(result) > RESULT_BYTES_MAX:
        return canonical_json({"status": reply.status, "body": None, "cut": True})
    return result


def _why(reply: Reply) -> str:
    text = " ".join(reply.body[:400].decode(errors="replace").split())
    return f"HTTP {reply.status}{text and f': {text[:200]}'}"


class StoredErrors:
    """Recognises an error that the API keeps under a key, and would answer for ever."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._last: OrderedDict[str, tuple[bytes, int]] = OrderedDict()

    def is_stored(self, operation_id: str, reply: Reply) -> bool:
        """Whether the API says so, or has answered the same ``limit`` times in a row."""
        if reply.status < 500 or reply.status in AWAY:
            self._last.pop(operation_id, None)
            return False
        if is_replay(reply.headers):
            return True
        digest = hashlib.blake2b(b"%d %b" % (reply.status, reply.body), digest_size=16).digest()
        before, times = self._last.pop(operation_id, (b"", 0))
        times = times + 1 if before == digest else 1
        self._last[operation_id] = (digest, times)
        if len(self._last) > REMEMBERED:
            self._last.popitem(last=False)
        return times >= self._limit
