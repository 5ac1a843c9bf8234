"""Rows of operations that the cluster has forgotten are given up, on real files and servers."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Protocol, cast

import pytest

from fencepost.raft.core.errors import ResourceUnavailable, StaleLeader
from fencepost.raft.effects.resources.audit import check_ledger
from fencepost.raft.effects.resources.ledger import Ledger
from fencepost.raft.effects.resources.postgres import Dedupe
from fencepost.raft.effects.resources.pruning import Row, sift
from fencepost.raft.effects.resources.sqlite import SqliteEffect, SqliteResource
from fencepost.raft.ports import AttemptStatus, PrunableResource, Resource

from ...servers.postgres import PostgresServer, postgres, postgres_server
from .server_subjects import PostgresSubject
from .subjects import MAIL, SCHEMA, SqliteSubject, attempt, token

__all__ = ["postgres", "postgres_server"]


class Subject(Protocol):
    def node(self, name: str = "ledger", cluster_id: str = "cluster") -> Resource: ...

    def world(self, name: str = "ledger") -> list[str]: ...

    def ledger(self) -> Ledger: ...


def kept(subject: Subject, name: str = "ledger") -> list[str]:
    return [each.operation_id for each in subject.ledger().operations if each.resource == name]


@asynccontextmanager
async def claimed(*resources: Resource, term: int = 1) -> AsyncIterator[list[PrunableResource]]:
    async with AsyncExitStack() as closing_all:
        opened = []
        for resource in resources:
            assert isinstance(resource, PrunableResource)
            await resource.open()
            closing_all.push_async_callback(resource.close)
            await resource.claim(token(term), "n1")
            opened.append(resource)
        yield opened


async def all_forgotten(resource: PrunableResource, below: int, limit: int, term: int = 1) -> int:
    """How many rounds it took."""
    rounds = 1
    while await resource.forget(token(term), "n1", below, limit):
        rounds += 1
    return rounds


async def check_forgetting(subject: Subject) -> None:
    async with claimed(subject.node("ledger"), subject.node("mail")) as (ledger, mail):
        for number in range(1, 21):
            await ledger.execute(token(1), "n1", [attempt(f"a{number}", number * 10)])
            await mail.execute(token(1), "n1", [attempt(f"m{number}", number * 10 + 1)])
        names = [f"a{number}" for number in range(1, 21)]
        assert await ledger.forget(token(1), "n1", 10, 4) is False, "nothing is below the first"
        assert kept(subject) == names
        assert await ledger.forget(token(1), "n1", 60, 1) is True
        assert kept(subject) == names[1:], "one at a time, where that is asked for"
        await all_forgotten(ledger, 60, 3)
        assert kept(subject) == names[5:], "what stands at 60 is not below it"
        await all_forgotten(ledger, 60, 3)
        await all_forgotten(ledger, 40, 3)
        assert kept(subject) == names[5:]
        known, forgotten = await ledger.execute(token(1), "n1", [attempt("a6", 60), attempt("a5", 50)])
        assert (known.replayed, forgotten.replayed) == (True, False), "why only those go that nobody attempts again"
        await all_forgotten(ledger, 10_000, 3)
        assert kept(subject) == ["a5"], "the newest stays: the order of acceptance counts on from it"
        await ledger.execute(token(1), "n1", [attempt("b", 210)])
        await all_forgotten(ledger, 10_000, 256)
        assert kept(subject) == ["b"]
        assert kept(subject, "mail") == [f"m{number}" for number in range(1, 21)]
        assert check_ledger(subject.ledger()) == []
        await ledger.claim(token(2), "n1")
        await ledger.execute(token(2), "n1", [attempt("c", 220)])
        assert check_ledger(subject.ledger()) == []


async def check_fence_and_incarnation(subject: Subject) -> None:
    async with claimed(subject.node(), subject.node()) as (old, new):
        await old.execute(token(1), "n1", [attempt("a", 1), attempt("b", 2)])
        await new.claim(token(2), "n2")
        with pytest.raises(StaleLeader):
            await old.forget(token(1), "n1", 100, 256)
        assert kept(subject) == ["a", "b"]
        assert [each.token for each in subject.ledger().refusals] == [token(1)]
        # Restored from a backup: what it did before is no longer in its log, and its indexes begin anew.
        restored = token(1, incarnation=2)
        await new.claim(restored, "n2")
        await new.execute(restored, "n2", [attempt("c", 1), attempt("d", 2), attempt("e", 3)])
        assert await new.forget(restored, "n2", 100, 256) is False
        assert kept(subject) == ["a", "b", "e"]
        (again,) = await new.execute(restored, "n2", [attempt("b", 50)])
        assert (again.status, again.replayed) == (AttemptStatus.SUCCEEDED, True)


async def test_sqlite(tmp_path: Path) -> None:
    await check_forgetting(SqliteSubject(tmp_path))


async def test_sqlite_fence(tmp_path: Path) -> None:
    await check_fence_and_incarnation(SqliteSubject(tmp_path))


@pytest.mark.servers
async def test_postgres(postgres: PostgresServer) -> None:
    await check_forgetting(PostgresSubject(postgres, Dedupe.TABLE))


@pytest.mark.servers
@pytest.mark.endure
async def test_postgres_fence(postgres: PostgresServer) -> None:
    await check_fence_and_incarnation(PostgresSubject(postgres, Dedupe.TABLE))


@pytest.mark.servers
@pytest.mark.endure
async def test_postgres_lanes_keep_what_their_marks_say(postgres: PostgresServer) -> None:
    subject = PostgresSubject(postgres, Dedupe.ORDERED_LANE)
    async with claimed(subject.node()) as (resource,):
        for number in range(1, 6):
            batch = [attempt(f"k{number}", number * 10, lane="k"), attempt(f"a{number}", number * 10 + 1)]
            await resource.execute(token(1), "n1", batch)
        await all_forgotten(resource, 1000, 4)
        assert kept(subject) == ["k1", "k2", "k3", "k4", "k5", "a5"]


async def test_a_file_that_somebody_holds_forgets_later(tmp_path: Path) -> None:
    subject = SqliteSubject(tmp_path)
    resource = SqliteResource(
        "ledger",
        subject.path,
        {"credit": SqliteEffect(MAIL)},
        cluster_id="cluster",
        schema=SCHEMA,
        busy_timeout_ms=1,
    )
    async with claimed(cast(Resource, resource)) as (forgetful,):
        await forgetful.execute(token(1), "n1", [attempt(f"a{number}", number) for number in range(1, 6)])
        with closing(sqlite3.connect(subject.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(ResourceUnavailable):
                await forgetful.forget(token(1), "n1", 4, 256)
            other.execute("ROLLBACK")
        assert len(kept(subject)) == 5
        await forgetful.forget(token(1), "n1", 4, 256)
        assert kept(subject) == ["a4", "a5"]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_order_and_the_limit_everything_below_goes_and_nothing_else(seed: int) -> None:
    """Operations are accepted nearly in the order of the log: lanes wait, letters are redriven."""
    chance = random.Random(seed)
    indexes = sorted(range(1, 200), key=lambda index: index + chance.choice([0, 0, 0, 20, 60]))
    rows = {place: Row(place, chance.random() < 0.8, index) for place, index in enumerate(indexes, 1)}
    begin, below = 0, 0
    while below < 300:
        below += chance.randint(1, 40)
        more = True
        while more:
            limit = chance.randint(100, 150)
            window = [rows[place] for place in sorted(rows) if place > begin][:limit]
            before = (begin, len(rows))
            sifted = sift(window, below=below, newest=max(rows), begin=begin, limit=limit)
            for place in sifted.gone:
                assert rows[place].ours
                assert rows.pop(place).index < below
            begin, more = sifted.begin, sifted.more
            assert not more or (begin, len(rows)) != before, "it goes on for ever"
        left = [row.accepted for row in rows.values() if row.ours and row.index < below]
        assert set(left) <= {max(rows)}
