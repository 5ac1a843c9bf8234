"""Resources that keep the latest operations only, asked about older ones, and given them again at a new place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from fencepost.raft.effects.resources.postgres import Dedupe
from fencepost.raft.ports import Answered, AttemptStatus, Found, QueryableResource

from ...servers.postgres import PostgresServer, postgres, postgres_server
from ...servers.redis import RedisServer, redis, redis_server
from ...servers.s3 import S3Server, s3, s3_server
from .file_subjects import FileSubject
from .s3_subjects import S3Subject
from .server_subjects import PostgresSubject, RedisSubject
from .subjects import MemorySubject, SqliteSubject, Subject, attempt, token

__all__ = ["postgres", "postgres_server", "redis", "redis_server", "s3", "s3_server"]

UNKNOWN = Answered(Found.UNKNOWN)
NOT_APPLIED = Answered(Found.NOT_APPLIED)
KEPT = 4


@asynccontextmanager
async def after_ten(resource: object) -> AsyncIterator[QueryableResource]:
    """A leader that has claimed, and ten commands of one lane at every tenth index."""
    async with AsyncExitStack() as closing:
        opened = cast(QueryableResource, resource)
        await opened.open()
        closing.push_async_callback(opened.close)
        await opened.claim(token(2), "n2")
        for number in range(1, 11):
            await opened.execute(token(2), "n2", [attempt(f"k{number}", number * 10, cents=number, lane="k")])
        yield opened


async def forgets(subject: Subject, resource: object) -> None:
    async with after_ten(resource) as opened:
        assert opened.dedupes_by_place
        assert (await opened.query(attempt("k10", 100, cents=10, lane="k"))).found is Found.APPLIED
        assert await opened.query(attempt("k2", 20, cents=2, lane="k")) == UNKNOWN
        assert await opened.query(attempt("never", 25, lane="k")) == UNKNOWN, (
            "below, it is the same as what was applied"
        )
        assert await opened.query(attempt("never", 95, lane="k")) == NOT_APPLIED
        assert await opened.query(attempt("never", 110, lane="k")) == NOT_APPLIED
        (again,) = await opened.execute(token(2), "n2", [attempt("k2", 20, cents=2, lane="k", number=2)])
        assert again.status is AttemptStatus.DOUBT
        # At a new place it is a new command: why nobody may redrive what may have been applied.
        (moved,) = await opened.execute(token(2), "n2", [attempt("k2", 120, cents=2, lane="k", number=3)])
        assert (moved.status, moved.replayed) == (AttemptStatus.SUCCEEDED, False)
        assert subject.world().count("k2") == 2
        # An index of another incarnation says nothing about the place of what was forgotten.
        await opened.claim(token(1, incarnation=2), "n2")
        assert await opened.query(attempt("never", 130, lane="k")) == UNKNOWN
        assert (await opened.query(attempt("k10", 100, cents=10, lane="k"))).found is Found.APPLIED


async def keeps(subject: Subject, resource: object) -> None:
    async with after_ten(resource) as opened:
        assert not opened.dedupes_by_place
        assert (await opened.query(attempt("k2", 20, cents=2, lane="k"))).found is Found.APPLIED
        assert await opened.query(attempt("never", 25, lane="k")) == NOT_APPLIED
        (moved,) = await opened.execute(token(2), "n2", [attempt("k2", 120, cents=2, lane="k", number=2)])
        assert (moved.status, moved.replayed) == (AttemptStatus.SUCCEEDED, True)
        assert subject.world().count("k2") == 1
        await opened.claim(token(1, incarnation=2), "n2")
        assert await opened.query(attempt("never", 25, lane="k")) == NOT_APPLIED


async def test_a_file_resource_forgets(tmp_path: Path) -> None:
    subject = FileSubject(tmp_path)
    await forgets(subject, subject.node(kept=KEPT, batch_limit=KEPT))


@pytest.mark.servers
@pytest.mark.endure
async def test_an_s3_resource_forgets(s3: S3Server) -> None:
    subject = S3Subject(s3)
    await forgets(subject, subject.node(kept=KEPT, batch_limit=KEPT))


@pytest.mark.servers
@pytest.mark.endure
async def test_a_postgres_resource_with_ordered_lanes_forgets(postgres: PostgresServer) -> None:
    subject = PostgresSubject(postgres, Dedupe.ORDERED_LANE)
    await forgets(subject, subject.node(lane_results=KEPT, batch_limit=KEPT))


async def test_a_resource_in_memory_keeps_everything() -> None:
    subject = MemorySubject()
    await keeps(subject, subject.node())


async def test_a_sqlite_resource_keeps_everything(tmp_path: Path) -> None:
    subject = SqliteSubject(tmp_path)
    await keeps(subject, subject.node())


@pytest.mark.servers
@pytest.mark.endure
async def test_a_postgres_resource_with_a_table_keeps_everything(postgres: PostgresServer) -> None:
    subject = PostgresSubject(postgres, Dedupe.TABLE)
    await keeps(subject, subject.node())


@pytest.mark.servers
async def test_a_redis_resource_keeps_everything(redis: RedisServer) -> None:
    subject = RedisSubject(redis)
    await keeps(subject, subject.node())


@pytest.mark.servers
async def test_a_redis_resource_that_forgets_after_a_while_says_of_nothing_that_it_was_not_applied(
    redis: RedisServer,
) -> None:
    subject = RedisSubject(redis)
    resource = subject.node(forget_after_ns=10_000_000_000)
    async with after_ten(resource) as opened:
        assert (opened.absence_is_final, opened.dedupes_by_place) == (False, True)
        assert await opened.query(attempt("never", 110, lane="k")) == UNKNOWN
        assert (await opened.query(attempt("k10", 100, cents=10, lane="k"))).found is Found.APPLIED


@pytest.mark.servers
async def test_what_a_redis_server_may_forget_it_does_not_call_final(redis: RedisServer) -> None:
    resource = RedisSubject(redis).node()
    await resource.open()
    redis.call("CONFIG", "SET", "appendfsync", "everysec")
    try:
        await resource.claim(token(1), "n1")
        assert not resource.absence_is_final
        assert await resource.query(attempt("a")) == NOT_APPLIED
    finally:
        redis.call("CONFIG", "SET", "appendfsync", "always")
        await resource.close()
