"""Every kind of resource that comes with fencepost is shown to keep what it declares, on real files and servers.

The long runs stop a node at many of its steps; the short ones at a few.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.raft.effects.resources.postgres import Dedupe
from fencepost.testing import Report, World, effect_contract

from ..servers.http_api import HttpApi, http_api, http_api_server
from ..servers.postgres import PostgresServer, postgres, postgres_server
from ..servers.redis import RedisServer, redis, redis_server
from ..servers.s3 import S3Server, s3, s3_server
from .worlds import FileWorld, HttpWorld, PostgresWorld, RedisWorld, S3World, SqliteWorld

__all__ = [
    "http_api",
    "http_api_server",
    "postgres",
    "postgres_server",
    "redis",
    "redis_server",
    "s3",
    "s3_server",
]

FEW = 2
MANY = 40
STEPS = [FEW, pytest.param(MANY, marks=pytest.mark.endure)]


def shown_to_be_fenced(make: Callable[[], World], steps_max: int) -> Report:
    report = effect_contract(make, "fenced", ordered=True, queryable=True, steps_max=steps_max)
    report.check(complete=True)
    assert report.shown == "fenced"
    return report


@pytest.mark.parametrize("steps_max", STEPS)
def test_sqlite(tmp_path: Path, steps_max: int) -> None:
    shown_to_be_fenced(lambda: SqliteWorld(tmp_path / "world"), steps_max)


@pytest.mark.endure
def test_file(tmp_path: Path) -> None:
    shown_to_be_fenced(lambda: FileWorld(tmp_path / "world"), MANY)


@pytest.mark.servers
@pytest.mark.endure
@pytest.mark.parametrize("dedupe", list(Dedupe))
def test_postgres(postgres: PostgresServer, dedupe: Dedupe) -> None:
    shown_to_be_fenced(lambda: PostgresWorld(postgres, dedupe), 20)


@pytest.mark.servers
@pytest.mark.endure
def test_redis(redis: RedisServer) -> None:
    shown_to_be_fenced(lambda: RedisWorld(redis), MANY)


@pytest.mark.servers
@pytest.mark.endure
def test_s3(s3: S3Server) -> None:
    shown_to_be_fenced(lambda: S3World(s3), 12)


@pytest.mark.servers
@pytest.mark.endure
def test_http(http_api: HttpApi) -> None:
    report = effect_contract(lambda: HttpWorld(http_api), "keyed", queryable=True, steps_max=MANY)
    report.check(complete=True)
    assert report.shown == "keyed", "a stale leader is harmless there, and is not refused"
