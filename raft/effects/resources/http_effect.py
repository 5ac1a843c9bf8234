"""The requests of an HTTP resource: templates checked once, filled from payloads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

from ...core.errors import ConfigurationError
from ...ports import Attempt
from .payload_template import NotBindable, Template, Values

METHODS = ("POST", "PUT", "PATCH", "DELETE")
KEY_CHARACTERS_MAX = 255


@dataclass(frozen=True, slots=True)
class HttpEffect:
    """One effect: a request. ``path``, ``body`` and ``query`` may hold names of the payload in braces; without
    ``body`` it is the payload. ``query`` is a path that says with GET whether an operation was applied."""

    path: str
    method: str = "POST"
    body: str = ""
    content_type: str = "application/json"
    query: str = ""


class Request(NamedTuple):
    path: str
    """Encoded, with the query string if there is one."""
    body: bytes


class RequestTemplate:
    """Raises :class:`ConfigurationError` for an effect that can never work."""

    def __init__(self, resource: str, effect: str, definition: HttpEffect) -> None:
        self.method = definition.method
        self.content_type = definition.content_type
        where = f"resource {resource!r}, effect {effect!r}"
        fix = f"correct it under [resources.{resource}.effects.{effect}]"
        if self.method not in METHODS:
            raise ConfigurationError(f"{where}: method {self.method!r} is none of {', '.join(METHODS)}", next_step=fix)
        try:
            self._path = _path_template(definition.path)
            self._query = _path_template(definition.query) if definition.query else None
            self._body = Template(definition.body or "{payload}")
        except ValueError as error:
            raise ConfigurationError(f"{where}: the request is not usable: {error}", next_step=fix) from error

    @property
    def can_ask(self) -> bool:
        return self._query is not None

    def bind(self, attempt: Attempt) -> Request:
        """Raises :class:`NotBindable`."""
        values = Values(attempt)
        return Request(_filled(self._path, values), self._body.bytes(values))

    def question(self, attempt: Attempt) -> str:
        """The path to ask. Raises :class:`NotBindable`."""
        if self._query is None:
            raise AssertionError("asked without a query")
        return _filled(self._query, Values(attempt))


def _path_template(path: str) -> Template:
    if not path.startswith("/") or re.search(r"[\s#\\]", path):
        raise ValueError(f"{path!r} is no path such as /accounts/{{account}}")
    return Template(path)


def _filled(template: Template, values: Values) -> str:
    path = template.escaped(values, _escape)
    parts = path.partition("?")[0].split("/")[1:]
    # A value must name one thing, and not lead to another.
    if "." in parts or ".." in parts or "" in parts[:-1]:
        raise NotBindable(f"{path[:80]!r} is no path with these values")
    return path


def _escape(value: str) -> str:
    return quote(value, safe="")


def key_of(operation_id: str, *, quotes: bool) -> str:
    """The value of the Idempotency-Key header: a structured-field string, or the bare id.

    Raises :class:`NotBindable` for an id that no header can carry.
    """
    if len(operation_id) > KEY_CHARACTERS_MAX or not re.fullmatch(
        r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?", operation_id
    ):
        raise NotBindable(f"the operation id {operation_id[:80]!r} cannot be sent as a key: it is not printable ASCII")
    if not quotes:
        return operation_id
    escaped = operation_id.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
