"""Whether effects can be carried out: their SQL, tried on an empty database with the declared schema,
their Python handlers, imported, and what a server will be told, read."""

from __future__ import annotations

import os
import sqlite3
from importlib.util import find_spec
from typing import Any

from ..raft.core.errors import ConfigurationError
from ..raft.effects.resources.postgres_effect import Statement
from ..raft.effects.resources.python import load_handler
from ..raft.effects.resources.redis_effect import Template
from .config import (
    NodeConfiguration,
    PostgresEffectConfiguration,
    PostgresResourceConfiguration,
    PythonResourceConfiguration,
    RedisResourceConfiguration,
    SqliteResourceConfiguration,
    StoreConfiguration,
)
from .config_servers import address_of
from .stores import check_store


class _Anything(dict[str, Any]):
    """Binds every parameter, so that a statement can be prepared without a payload."""

    def __missing__(self, name: str) -> None:
        return None


def check_definitions(configuration: NodeConfiguration) -> tuple[list[str], list[str]]:
    """Problems and warnings, each a line. Opens no file of the configuration."""
    problems: list[str] = []
    warnings: list[str] = []
    for name, resource in configuration.resources.items():
        if isinstance(resource, SqliteResourceConfiguration):
            _check_sqlite(name, resource, problems, warnings)
        elif isinstance(resource, PythonResourceConfiguration):
            _check_handlers(name, resource, warnings)
        elif isinstance(resource, StoreConfiguration):
            check_store(name, resource, os.environ, problems, warnings)
        else:
            _check_server(name, resource, problems, warnings)
    return problems, warnings


def _check_server(
    name: str,
    resource: PostgresResourceConfiguration | RedisResourceConfiguration,
    problems: list[str],
    warnings: list[str],
) -> None:
    """What can be said of it without asking the server."""
    for effect in resource.effects.values():
        try:
            if isinstance(effect, PostgresEffectConfiguration):
                Statement(name, effect.name, effect.sql)
            else:
                Template(name, effect.name, effect.commands)
        except ConfigurationError as error:
            key = "sql" if isinstance(effect, PostgresEffectConfiguration) else "commands"
            problems.append(f"resources.{name}.effects.{effect.name}.{key}: {error.message}")
    library = "asyncpg" if resource.kind == "postgres" else "redis"
    if find_spec(library) is None:
        warnings.append(f"resources.{name}: {library} is not installed:  pip install 'fencepost[{resource.kind}]'")
    try:
        address_of(resource, os.environ)
    except ConfigurationError as error:
        # The node may run in another environment than this check.
        warnings.append(f"resources.{name}.url_env: {error.message}")


def _check_handlers(name: str, resource: PythonResourceConfiguration, warnings: list[str]) -> None:
    """A warning only: the node may run with another PYTHONPATH, or another user, than this check."""
    try:
        if resource.claim:
            load_handler(resource.claim)
    except ValueError as error:
        warnings.append(f"resources.{name}: claim {resource.claim!r}: {error}")
    for effect in resource.effects.values():
        for what, function in (("handler", effect.handler), ("query", effect.query)):
            try:
                if function:
                    load_handler(function)
            except ValueError as error:
                warnings.append(f"resources.{name}.effects.{effect.name}: {what} {function!r}: {error}")


def _check_sqlite(name: str, resource: SqliteResourceConfiguration, problems: list[str], warnings: list[str]) -> None:
    if not resource.path.parent.is_dir():
        warnings.append(f"resources.{name}.path: the folder {resource.path.parent} does not exist yet")
    database = sqlite3.connect(":memory:")
    try:
        for _ in range(2):
            # Twice: it is run at every start of every node.
            try:
                database.executescript(resource.schema)
            except sqlite3.Error as error:
                problems.append(f"resources.{name}.schema: {error} (it is run at every start: use IF NOT EXISTS)")
                return
        for effect in resource.effects.values():
            where = f"resources.{name}.effects.{effect.name}.sql"
            try:
                database.execute(f"EXPLAIN {effect.sql}", _Anything())
            except (sqlite3.Error, sqlite3.Warning) as error:
                if not resource.schema and "no such table" in str(error):
                    warnings.append(f"{where}: not checked, because no schema is declared ({error})")
                else:
                    problems.append(f"{where}: {error}")
    finally:
        database.close()
