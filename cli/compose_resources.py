"""Each resource of a configuration, made. Connects to nothing."""

from __future__ import annotations

from collections.abc import Mapping

from ..raft.effects.resources.postgres import PostgresBounds, PostgresEffect, PostgresResource
from ..raft.effects.resources.python import PythonEffect, PythonResource
from ..raft.effects.resources.redis import RedisEffect, RedisResource
from ..raft.effects.resources.sqlite import SqliteResource
from ..raft.effects.resources.sqlite_effect import SqliteEffect
from ..raft.ports import Resource
from .config import (
    NodeConfiguration,
    PostgresResourceConfiguration,
    RedisResourceConfiguration,
    ResourceConfiguration,
    SqliteResourceConfiguration,
    StoreConfiguration,
)
from .config_servers import address_of
from .stores import make_store


def make_resources(configuration: NodeConfiguration, environment: Mapping[str, str]) -> dict[str, Resource]:
    """By name. Raises :class:`ConfigurationError` where ``environment`` lacks an address, or an effect cannot work."""
    cluster_id = configuration.cluster.id
    return {name: _make(name, each, cluster_id, environment) for name, each in configuration.resources.items()}


def _make(name: str, settings: ResourceConfiguration, cluster_id: str, environment: Mapping[str, str]) -> Resource:
    if isinstance(settings, SqliteResourceConfiguration):
        return SqliteResource(
            name,
            settings.path,
            {effect: SqliteEffect(each.sql, each.think_ns) for effect, each in settings.effects.items()},
            cluster_id=cluster_id,
            schema=settings.schema,
            batch_limit=settings.batch_limit,
        )
    if isinstance(settings, PostgresResourceConfiguration):
        return _make_postgres(name, settings, cluster_id, environment)
    if isinstance(settings, RedisResourceConfiguration):
        return RedisResource(
            name,
            address_of(settings, environment),
            {effect: RedisEffect(each.commands) for effect, each in settings.effects.items()},
            cluster_id=cluster_id,
            batch_limit=settings.batch_limit,
            forget_after_ns=settings.forget_after_ns,
            assume_durable=settings.assume_durable,
            connect_ns=settings.connect_timeout_ns,
            answer_ns=settings.answer_timeout_ns,
        )
    if isinstance(settings, StoreConfiguration):
        return make_store(name, settings, cluster_id, environment)
    return PythonResource(
        name,
        {effect: PythonEffect(each.handler, each.timeout_ns, each.query) for effect, each in settings.effects.items()},
        guarantee=settings.guarantee,
        cluster_id=cluster_id,
        allow_duplicates=settings.allow_duplicates,
        concurrency=settings.concurrency,
        horizon_ns=settings.horizon_ns,
        claim=settings.claim,
    )


def _make_postgres(
    name: str, settings: PostgresResourceConfiguration, cluster_id: str, environment: Mapping[str, str]
) -> PostgresResource:
    return PostgresResource(
        name,
        address_of(settings, environment),
        {effect: PostgresEffect(each.sql) for effect, each in settings.effects.items()},
        cluster_id=cluster_id,
        schema=settings.schema,
        dedupe=settings.dedupe,
        lane_results=settings.lane_results,
        batch_limit=settings.batch_limit,
        bounds=PostgresBounds(
            connect_ns=settings.connect_timeout_ns,
            statement_ns=settings.statement_timeout_ns,
            lock_ns=settings.lock_timeout_ns,
            idle_ns=settings.idle_timeout_ns,
        ),
    )
