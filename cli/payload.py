"""Payloads and operation ids, as a submitter makes them."""

from __future__ import annotations

import json
import os
import shlex
import time
import uuid
from collections import Counter
from datetime import datetime
from typing import Any, NoReturn

from ..raft.core.errors import CommandInvalid
from ..raft.outbox.codec import canonical_json
from .settings import parse_duration


def new_operation_id() -> str:
    """A UUIDv7 (RFC 9562): it carries the time, so that an expired one is known from a new one."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & (1 << 48) - 1) << 80 | 7 << 76 | (random >> 68) << 64 | 2 << 62 | random & (1 << 62) - 1
    return str(uuid.UUID(int=value))


def quoted(operation_id: str) -> str:
    """An operation id in a command to type next: it may hold whatever can be printed, and a shell reads it."""
    return shlex.quote(operation_id)


def parse_json(text: str) -> Any:
    """JSON, strictly: no NaN, no key twice. Raises :class:`CommandInvalid`; nothing was sent."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}" if "\n" in text.strip() else f"column {error.colno}"
        raise CommandInvalid(f"the payload is not JSON: {error.msg} at {where}; nothing was committed") from error
    except RecursionError as error:
        raise CommandInvalid("the payload is nested too deeply; nothing was committed") from error
    except ValueError as error:
        raise CommandInvalid(f"the payload is not JSON: {error}; nothing was committed") from error


def canonical(value: Any) -> bytes:
    """The canonical bytes of a payload. Raises :class:`CommandInvalid`."""
    try:
        return canonical_json(value)
    except UnicodeEncodeError as error:
        raise CommandInvalid("the payload has a lone surrogate, no valid text; nothing was committed") from error
    except ValueError as error:
        raise CommandInvalid(f"the payload cannot be encoded: {error}; nothing was committed") from error


def parse_time(text: str, now_ns: int) -> int:
    """A moment in nanoseconds since the Unix epoch: ``+10m`` from now, or ISO 8601 with its zone. Raises ValueError."""
    if text.startswith("+"):
        return now_ns + parse_duration(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time; write +10m, or 2027-01-31T08:00Z") from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no zone; write {text}Z for UTC, or {text}+01:00")
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"key {twice!r} stands twice in one object")
    return found
