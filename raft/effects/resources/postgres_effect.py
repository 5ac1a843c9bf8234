"""The statements of a PostgreSQL resource: prepared once a connection, bound to payloads by name."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from ...core.errors import ConfigurationError
from ...outbox.codec import canonical_json
from ...ports import Attempt
from .named_parameters import number_parameters
from .outcomes import RESULT_BYTES_MAX
from .postgres_connection import JSON_TYPES
from .postgres_run import Runs
from .postgres_tables import SCHEMA_NAME

BUILT_IN = frozenset({"operation_id", "lane", "log_index", "payload"})
"""Parameters that every statement has besides the keys of the payload, which they win over."""

_STATEMENTS = ("INSERT", "UPDATE", "DELETE", "MERGE", "SELECT", "WITH")
_INTEGERS = {"int2": 16, "int4": 32, "int8": 64}
_STRINGS = frozenset({"text", "varchar", "bpchar", "name", "uuid"})
_DECODER = msgspec.json.Decoder(float_hook=Decimal)
"""Decimal: 0.1 stays 0.1 on its way into a numeric column."""


@dataclass(frozen=True, slots=True)
class PostgresEffect:
    """One effect: a statement with named parameters, ``INSERT INTO entries VALUES (:account, :cents)``."""

    sql: str


class NotBindable(Exception):
    """This payload does not fit this statement, and never will."""


class Statement:
    """An effect's statement, and what the server makes of it on one connection.

    Raises :class:`ConfigurationError` where it can be seen without a server that it will never do.
    """

    def __init__(self, resource: str, effect: str, sql: str) -> None:
        self.resource = resource
        self.effect = effect
        try:
            numbered = number_parameters(sql)
        except ValueError as error:
            raise ConfigurationError(
                f"resource {resource!r}, effect {effect!r}: the SQL is not usable: {error}", next_step=self._next_step()
            ) from error
        self.sql = numbered.sql
        self._names = numbered.names
        self._needs_payload = not BUILT_IN.issuperset(numbered.names)
        self._prepared: Any = None
        self._prepared_on = 0
        self._types: tuple[tuple[str, str], ...] = ()
        self._returns = False
        self.runs = Runs(numbered)
        """The same statement for many attempts at once."""
        if not numbered.words or numbered.words[0].upper() not in _STATEMENTS:
            # Anything else could end the transaction that fence, dedupe and effect share.
            raise self.error(f"it must be one statement that starts with {', '.join(_STATEMENTS)}")
        if SCHEMA_NAME in numbered.words:
            raise self.error(f"it names {SCHEMA_NAME}, the schema of the fence")

    def error(self, why: object) -> ConfigurationError:
        return ConfigurationError(
            f"resource {self.resource!r}, effect {self.effect!r}: the SQL is not usable: {why}",
            tried=(self.sql.strip(),),
            next_step=self._next_step(),
        )

    def _next_step(self) -> str:
        return f"correct sql under [resources.{self.resource}.effects.{self.effect}]"

    def is_prepared(self, opened: int) -> bool:
        """Whether it is on this connection, the ``opened``-th."""
        return self._prepared is not None and self._prepared_on == opened

    async def prepare(self, connection: Any, opened: int) -> None:
        """Let the server parse it, if it has not on this connection. Raises its errors."""
        if self.is_prepared(opened):
            return
        self._prepared = None
        prepared = await connection.prepare(self.sql)
        self._types = tuple((kind.name, kind.kind) for kind in prepared.get_parameters())
        self._returns = bool(prepared.get_attributes())
        self._prepared, self._prepared_on = prepared, opened

    async def targets(self, connection: Any) -> set[tuple[str, str]]:
        """Schema and name of the tables that it changes itself; what triggers and functions change is in no plan.
        Raises the server's errors."""
        sql = f"EXPLAIN (FORMAT JSON, VERBOSE) {self.sql}"
        return set(_changed(msgspec.json.decode(await connection.fetchval(sql, *[None] * len(self._types)))))

    def bind(self, attempt: Attempt) -> list[Any]:
        """The values of ``$1``, ``$2`` … Raises :class:`NotBindable`, naming what is missing or does not fit."""
        values = _decode_object(attempt.payload) if self._needs_payload else {}
        return [
            _fit(name, _value(name, values, attempt), *kind)
            for name, kind in zip(self._names, self._types, strict=True)
        ]

    async def run(self, parameters: list[Any]) -> bytes:
        """Run once and return the result as JSON: the row of a RETURNING, or ``{"rows": count}``."""
        rows = await self._prepared.fetch(*parameters)
        if not self._returns:
            count = self._prepared.get_statusmsg().rpartition(" ")[2]
            return b'{"rows":%d}' % int(count if count.isdigit() else 0)
        return _result([dict(row) for row in rows])

    async def run_all(self, values: Sequence[list[Any]]) -> list[bytes]:
        """Run once for each set of parameters, in order, in one exchange: :meth:`run`'s results."""
        found = await self.runs.send(values)
        return [_result(rows) if self._returns else b'{"rows":%d}' % len(rows) for rows in found]


def _result(found: list[dict[str, Any]]) -> bytes:
    if not found:
        return b'{"rows":0}'
    result = msgspec.json.encode(found[0] if len(found) == 1 else found, enc_hook=_encode)
    if len(result) > RESULT_BYTES_MAX:
        raise NotBindable(f"a result of {len(result)} bytes; the limit is {RESULT_BYTES_MAX} bytes")
    return result


def _changed(node: Any) -> Iterator[tuple[str, str]]:
    """PostgreSQL manual, EXPLAIN: a node ModifyTable names one table, or several under "Target Tables"."""
    if isinstance(node, list):
        for each in node:
            yield from _changed(each)
    elif isinstance(node, dict):
        if node.get("Node Type") == "ModifyTable":
            for each in (node, *node.get("Target Tables", ())):
                if "Relation Name" in each and "Schema" in each:
                    yield each["Schema"], each["Relation Name"]
        for key in ("Plan", "Plans"):
            yield from _changed(node.get(key))


def _decode_object(payload: bytes) -> dict[str, Any]:
    try:
        value = _DECODER.decode(payload)
    except msgspec.DecodeError as error:
        raise NotBindable(f"the payload is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise NotBindable(f"the payload is JSON but no object: {type(value).__name__}")
    return value


def _value(name: str, values: dict[str, Any], attempt: Attempt) -> Any:
    if name == "operation_id":
        return attempt.operation_id
    if name == "lane":
        return attempt.lane
    if name == "log_index":
        return attempt.index
    if name == "payload":
        return attempt.payload
    if name not in values:
        known = ", ".join(sorted(values)) or "no keys"
        raise NotBindable(f"the payload has no {name!r}, which the SQL needs as :{name} (it has {known})")
    return values[name]


def _fit(name: str, value: Any, kind: str, category: str) -> Any:
    """A JSON value as the driver takes it for this type. Nothing is converted that would be another value then."""
    if value is None:
        return None
    if kind in JSON_TYPES:
        return value.decode() if isinstance(value, bytes) else canonical_json(_plain(value)).decode()
    if isinstance(value, bytes):  # The payload as it stands.
        return value if kind == "bytea" else _text_of(value)
    if kind == "bytea" and isinstance(value, str):
        return value.encode()
    if kind in _INTEGERS:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _misfit(name, value, kind)
        if not -(1 << (_INTEGERS[kind] - 1)) <= value < 1 << (_INTEGERS[kind] - 1):
            raise NotBindable(f"{name!r} is {value}, which does not fit into {kind}")
        return value
    if kind in ("float4", "float8") and isinstance(value, Decimal):
        return float(value)
    if kind == "bool" and not isinstance(value, bool):
        raise _misfit(name, value, kind)
    if kind in _STRINGS or category == "enum":
        if isinstance(value, dict | list):
            return canonical_json(_plain(value)).decode()
        if not isinstance(value, str):
            raise _misfit(name, value, kind)
        if "\0" in value:
            raise NotBindable(f"{name!r} has a NUL character, which PostgreSQL keeps in no text")
    return value


def _misfit(name: str, value: Any, kind: str) -> NotBindable:
    shown = canonical_json(_plain(value)).decode()
    return NotBindable(
        f"{name!r} is {shown}, and the SQL takes a value of type {kind} there (or a cast, :{name}::type)"
    )


def _text_of(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise NotBindable("the payload is no text, and the SQL takes :payload as one") from error


def _plain(value: Any) -> Any:
    """JSON again, where numbers were read as Decimal."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value


def _encode(value: Any) -> Any:
    """What a column may hold that JSON has no word for."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if hasattr(value, "keys"):  # A composite type.
        return dict(value)
    return str(value)
