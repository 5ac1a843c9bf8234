"""Reading the resources that are servers: their address, and where its secret is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ..raft.core.errors import ConfigurationError
from ..raft.effects.resources.postgres_tables import Dedupe
from .config_resources import (
    PostgresEffectConfiguration,
    PostgresResourceConfiguration,
    RedisEffectConfiguration,
    RedisResourceConfiguration,
)
from .settings import Document, did_you_mean, format_duration

POSTGRES_SCHEMES = ("postgresql", "postgres")
REDIS_SCHEMES = ("redis", "rediss", "unix")

ServerConfiguration = PostgresResourceConfiguration | RedisResourceConfiguration


def read_postgres(
    document: Document, name: str, table: Mapping[str, Any], path: list[str]
) -> PostgresResourceConfiguration | None:
    effects: dict[str, PostgresEffectConfiguration] = {}
    tables = document.table(table, [*path, "effects"])
    for effect in tables:
        at = [*path, "effects", effect]
        read = document.section(PostgresEffectConfiguration, document.table(tables, at), at, name=effect)
        if read is not None:
            effects[effect] = read
    if not tables:
        document.problem([*path, "effects"], f'no effect; add [{".".join(path)}.effects.NAME] with sql = "…"')
    found = document.section(
        PostgresResourceConfiguration, table, path, also=("kind", "effects"), name=name, effects=effects
    )
    _check_address(document, table, path, POSTGRES_SCHEMES, "postgresql://user@host:5432/database")
    if found is not None:
        _check_bounds(document, found, table, path)
    return found


def _check_bounds(
    document: Document, found: PostgresResourceConfiguration, table: Mapping[str, Any], path: list[str]
) -> None:
    if found.lock_timeout_ns <= found.idle_timeout_ns:
        idle, lock = format_duration(found.idle_timeout_ns), format_duration(found.lock_timeout_ns)
        document.problem(
            [*path, "lock_timeout"],
            f"{lock} is not longer than idle_timeout, {idle}: a new leader would give up waiting before the server "
            "ends a frozen one",
        )
    if found.dedupe is Dedupe.ORDERED_LANE and found.lane_results < found.batch_limit:
        document.problem(
            [*path, "lane_results"],
            f"{found.lane_results} is less than batch_limit, {found.batch_limit}: what one batch did in a lane would "
            "not all be recognised after a crash",
        )
    if found.dedupe is Dedupe.TABLE and "lane_results" in table:
        document.problem([*path, "lane_results"], 'only with dedupe = "ordered-lane"; a table keeps every result')


def read_redis(
    document: Document, name: str, table: Mapping[str, Any], path: list[str]
) -> RedisResourceConfiguration | None:
    effects: dict[str, RedisEffectConfiguration] = {}
    tables = document.table(table, [*path, "effects"])
    for effect in tables:
        at = [*path, "effects", effect]
        read = document.section(RedisEffectConfiguration, document.table(tables, at), at, name=effect)
        if read is not None:
            effects[effect] = read
    if not tables:
        document.problem(
            [*path, "effects"], f'no effect; add [{".".join(path)}.effects.NAME] with commands = [["INCR", "…"]]'
        )
    _check_address(document, table, path, REDIS_SCHEMES, "redis://host:6379/0")
    return document.section(
        RedisResourceConfiguration, table, path, also=("kind", "effects"), name=name, effects=effects
    )


def _check_address(
    document: Document, table: Mapping[str, Any], path: list[str], schemes: Sequence[str], example: str
) -> None:
    url = table.get("url")
    if "url_env" in table and "url" in table:
        document.problem([*path, "url"], "url and url_env are two places for one thing; remove one")
    elif "url_env" not in table and "url" not in table:
        document.problem(
            [*path, "url_env"], f'missing: the environment variable that holds the address, or url = "{example}"'
        )
    if not isinstance(url, str):
        return
    why = address_problem(url, schemes)
    if why:
        document.problem([*path, "url"], why)


def address_problem(url: str, schemes: Sequence[str]) -> str:
    """What is wrong with an address in a file, in words that do not repeat a secret; empty if nothing is."""
    try:
        parts = urlsplit(url)
        secret = parts.password is not None or "password=" in parts.query
    except ValueError:
        return "not an address"
    if parts.scheme not in schemes:
        return f"must begin with {schemes[0]}://" + did_you_mean(parts.scheme, schemes)
    return "holds a password; put the whole address into an environment variable and name that: url_env" * secret


def address_of(resource: ServerConfiguration, environment: Mapping[str, str]) -> str:
    """The address to connect to. Raises :class:`ConfigurationError` where its variable is not set."""
    if not resource.url_env:
        return resource.url
    url = environment.get(resource.url_env, "")
    if not url:
        raise ConfigurationError(
            f"resource {resource.name!r}: the environment variable {resource.url_env} is not set",
            next_step=f"set {resource.url_env} to the address where the node runs; it is never logged",
        )
    schemes = POSTGRES_SCHEMES if isinstance(resource, PostgresResourceConfiguration) else REDIS_SCHEMES
    if urlsplit(url).scheme not in schemes:
        raise ConfigurationError(
            f"resource {resource.name!r}: what {resource.url_env} holds does not begin with {schemes[0]}://",
            next_step=f"correct {resource.url_env} where the node runs",
        )
    return url
