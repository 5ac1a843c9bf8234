"""The commands of a Redis resource: templates checked once, filled from payloads by name."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

import msgspec

from ...core.errors import ConfigurationError
from ...outbox.codec import canonical_json
from ...ports import Attempt
from .redis_script import KEY_PREFIX, unpack

BUILT_IN = frozenset({"operation_id", "lane", "log_index", "payload"})
"""Names that every template has besides the keys of the payload, which they win over."""

COMMANDS = frozenset(
    {
        *("SET", "SETNX", "SETEX", "PSETEX", "GETSET", "GETDEL", "APPEND", "SETRANGE", "SETBIT"),
        *("INCR", "INCRBY", "INCRBYFLOAT", "DECR", "DECRBY"),
        *("HSET", "HSETNX", "HINCRBY", "HINCRBYFLOAT", "HDEL"),
        *("LPUSH", "RPUSH", "LPUSHX", "RPUSHX", "LPOP", "RPOP", "LREM", "LSET", "LTRIM", "LINSERT"),
        *("SADD", "SREM", "SPOP", "ZADD", "ZINCRBY", "ZREM", "ZPOPMIN", "ZPOPMAX"),
        *("ZREMRANGEBYSCORE", "ZREMRANGEBYRANK", "XADD", "XDEL", "XTRIM", "PFADD", "GEOADD"),
        *("EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT", "PERSIST", "DEL", "UNLINK"),
        *("GET", "STRLEN", "EXISTS", "TYPE", "TTL", "PTTL", "HGET", "HMGET", "HGETALL", "HLEN", "HEXISTS"),
        *("LLEN", "LRANGE", "LINDEX", "SCARD", "SISMEMBER", "SMEMBERS", "ZSCORE", "ZRANK", "ZCARD", "XLEN"),
    }
)
"""Commands of one key, which is their first argument: what is put back when a later one fails is known then."""

_ONE_KEY_ONLY = frozenset({"DEL", "UNLINK", "EXISTS"})


@dataclass(frozen=True, slots=True)
class RedisEffect:
    """One effect: commands whose words may hold names of the payload in braces,
    ``(("HINCRBY", "account:{account}", "cents", "{cents}"),)``. A brace of its own is written twice."""

    commands: Sequence[Sequence[str]]


class NotBindable(Exception):
    """This payload does not fit these commands, and never will."""


class Template:
    """An effect's commands. Raises :class:`ConfigurationError` for those that can never work."""

    def __init__(self, resource: str, effect: str, commands: Sequence[Sequence[str]]) -> None:
        self._resource = resource
        self._effect = effect
        if not commands:
            raise self._error("there is no command")
        self._commands = [self._parse(words) for words in commands]
        self._needs_payload = any(
            name is not None and name not in BUILT_IN
            for command in self._commands
            for word in command
            for _, name in word
        )

    def _error(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"resource {self._resource!r}, effect {self._effect!r}: the commands are not usable: {why}",
            next_step=f"correct commands under [resources.{self._resource}.effects.{self._effect}]",
        )

    def _parse(self, words: Sequence[str]) -> list[list[tuple[str, str | None]]]:
        shown = " ".join(words)
        name = words[0].upper() if words else ""
        if name not in COMMANDS:
            raise self._error(f"{name or 'an empty one'} is none of the commands for one key of data: {shown!r}")
        if len(words) < 2 or (name in _ONE_KEY_ONLY and len(words) != 2):
            raise self._error(f"{name} takes one key here: {shown!r}")
        parsed: list[list[tuple[str, str | None]]] = [[(name, None)]]
        for word in words[1:]:
            parts: list[tuple[str, str | None]] = []
            try:
                for literal, field, form, conversion in Formatter().parse(word):
                    if literal:
                        parts.append((literal, None))
                    if field is not None:
                        if form or conversion or not field.isidentifier():
                            raise ValueError(f"{{{field}}} is no name")
                        parts.append(("", field))
            except ValueError as error:
                raise self._error(f"{word!r}: {error} (a brace of its own is written twice)") from error
            parsed.append(parts)
        return parsed

    def bind(self, attempt: Attempt) -> list[list[bytes]]:
        """The commands, filled. Raises :class:`NotBindable`, naming what is missing."""
        values = _decode_object(attempt.payload) if self._needs_payload else {}
        filled = [
            [b"".join(_word(text, name, values, attempt) for text, name in word) for word in command]
            for command in self._commands
        ]
        for command in filled:
            if command[1].startswith(KEY_PREFIX):
                raise NotBindable(f"the key {command[1].decode(errors='replace')!r} is one of fencepost's own")
        return filled


def _word(text: str, name: str | None, values: dict[str, Any], attempt: Attempt) -> bytes:
    if name is None:
        return text.encode()
    if name == "operation_id":
        return attempt.operation_id.encode()
    if name == "lane":
        return attempt.lane.encode()
    if name == "log_index":
        return str(attempt.index).encode()
    if name == "payload":
        return attempt.payload
    if name not in values:
        known = ", ".join(sorted(values)) or "no keys"
        raise NotBindable(f"the payload has no {name!r}, which the commands need as {{{name}}} (it has {known})")
    value = values[name]
    if isinstance(value, str):
        return value.encode()
    if value is None:
        raise NotBindable(f"{name!r} is null, for which Redis has no word")
    return canonical_json(value)


def _decode_object(payload: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(payload)
    except msgspec.DecodeError as error:
        raise NotBindable(f"the payload is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise NotBindable(f"the payload is JSON but no object: {type(value).__name__}")
    return value


def result_json(packed: bytes) -> bytes:
    """What the commands answered, as JSON: ``{"replies": [...]}``; ``null`` where it was too large to keep."""
    if not packed:
        return b"null"
    return bytes(msgspec.json.encode({"replies": _text(unpack(packed))}))


def _text(reply: Any) -> Any:
    if isinstance(reply, list):
        return [_text(each) for each in reply]
    if isinstance(reply, bytes):
        try:
            return reply.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(reply).decode()}
    # Redis says nil and false with the same word, and means nil.
    return None if reply is False else reply
