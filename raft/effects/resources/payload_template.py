"""Texts with names of the payload in braces, ``"accounts/{account}"``: parsed once, filled from payloads."""

from __future__ import annotations

from string import Formatter
from typing import Any

import msgspec

from ...outbox.codec import canonical_json
from ...ports import Attempt

BUILT_IN = frozenset({"operation_id", "lane", "log_index", "payload"})
"""Names that every template has besides the keys of the payload, which they win over."""


class NotBindable(Exception):
    """This payload does not fit this effect, and never will."""


class Values:
    """The names of one attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._object: dict[str, Any] | None = None

    def bytes(self, name: str) -> bytes:
        """As it stands in a text: a text as it is, anything else as JSON. Raises :class:`NotBindable`."""
        if name == "payload":
            return self._attempt.payload
        value = self.value(name)
        return value.encode() if isinstance(value, str) else canonical_json(value)

    def value(self, name: str) -> Any:
        """As JSON has it; a payload that is none is its text. Raises :class:`NotBindable`, naming what is missing."""
        attempt = self._attempt
        if name == "operation_id":
            return attempt.operation_id
        if name == "lane":
            return attempt.lane
        if name == "log_index":
            return attempt.index
        if name == "payload":
            return _decode(attempt.payload)
        if self._object is None:
            self._object = _decode_object(attempt.payload)
        if name not in self._object:
            known = ", ".join(sorted(self._object)) or "no keys"
            raise NotBindable(f"the payload has no {name!r}, which the effect needs as {{{name}}} (it has {known})")
        return self._object[name]


class Template:
    """Raises ValueError for a text that can never be filled."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts: list[tuple[str, str | None]] = []
        for literal, name, form, conversion in Formatter().parse(text):
            if literal:
                self._parts.append((literal, None))
            if name is not None:
                if form or conversion or not name.isidentifier():
                    raise ValueError(f"{{{name}}} is no name (a brace of its own is written twice)")
                self._parts.append(("", name))

    def bytes(self, values: Values) -> bytes:
        return b"".join(literal.encode() if name is None else values.bytes(name) for literal, name in self._parts)

    def fill(self, values: Values) -> str:
        try:
            return self.bytes(values).decode()
        except UnicodeDecodeError:
            raise NotBindable("the payload is no text") from None

    def value(self, values: Values) -> Any:
        """The value itself, with its type, where the text is one name and nothing else."""
        if len(self._parts) == 1 and self._parts[0][1] is not None:
            return values.value(self._parts[0][1])
        return self.fill(values)

    def escaped(self, values: Values, escape: Any) -> str:
        """The text with every value passed through ``escape``, which takes and gives a text."""
        found = []
        for literal, name in self._parts:
            try:
                found.append(literal if name is None else escape(values.bytes(name).decode()))
            except UnicodeDecodeError:
                raise NotBindable("the payload is no text") from None
        return "".join(found)


def _decode(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            return payload.decode()
        except UnicodeDecodeError:
            raise NotBindable("the payload is neither JSON nor text") from None


def _decode_object(payload: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotBindable(f"the payload is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise NotBindable(f"the payload is JSON but no object: {type(value).__name__}")
    return value
