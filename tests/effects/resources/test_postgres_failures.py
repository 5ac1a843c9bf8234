"""PostgreSQL at its worst: frozen holders, cut connections, servers that restart, freeze, or forget."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from fencepost.raft.core.errors import Outcome, ResourceUnavailable, StaleLeader
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.resources.audit import check_ledger
from fencepost.raft.effects.resources.postgres import PostgresBounds, PostgresEffect, PostgresResource
from fencepost.raft.ports import AttemptStatus, Fence, Guarantee

from ...servers.cutting import way_to
from ...servers.postgres import PostgresServer, make_postgres_server, postgres, postgres_server
from ...waiting import eventually, eventually_async
from .child_postgres import SCHEMA, SQL, attempt_at
from .server_subjects import MS, PostgresSubject
from .subjects import attempt, token

__all__ = ["postgres", "postgres_server"]

pytestmark = pytest.mark.servers

SOURCES = Path(__file__).resolve().parents[3] / "src"
CHILD = Path(__file__).with_name("child_postgres.py")


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """One that tests may stop and start with other settings."""
    with make_postgres_server() as server:
        server.start()
        yield server


@pytest.fixture
def restartable(own_server: PostgresServer) -> Iterator[PostgresServer]:
    own_server.query("DROP SCHEMA IF EXISTS fencepost CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public;")
    yield own_server
    own_server.stop()
    own_server.start()


class Frozen:
    """A leader of term 1, stopped by SIGSTOP inside its transaction."""

    def __init__(self, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD), url, "1", "n1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
        )

    def freeze(self) -> None:
        assert [self.hears(), self.hears()] == ["claimed", "between"]
        self.process.send_signal(signal.SIGSTOP)

    def hears(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        assert self.process.stdin is not None
        self.process.stdin.write("\n\n")
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def frozen(postgres: PostgresServer) -> Iterator[Frozen]:
    child = Frozen(postgres.url)
    yield child
    child.close()


def world(server: PostgresServer) -> list[str]:
    return [row["operation"] for row in server.query("SELECT operation FROM entries ORDER BY place")]


async def test_a_holder_frozen_inside_its_transaction_is_in_the_way_no_longer_than_its_bound(
    postgres: PostgresServer, frozen: Frozen
) -> None:
    """S47, with a real SIGSTOP: the server ends the session that stands still, and its row lock with it."""
    frozen.freeze()
    successor = PostgresResource(
        "ledger", postgres.url, {"run": PostgresEffect(SQL)}, cluster_id="cluster", schema=SCHEMA
    )
    await successor.open()
    began = time.monotonic()
    assert await successor.claim(token(2), "n2") == Fence(token(1), "n1")
    # The holder's idle bound is 0.5 s, and the successor's own wait for a lock 4 s.
    assert time.monotonic() - began < 3.5
    assert world(postgres) == []
    frozen.wake()
    assert frozen.hears() == "RESOURCE_UNAVAILABLE unknown"  # Its COMMIT met a closed connection.
    assert frozen.hears() == "STALE_LEADER refused"
    outcomes = await successor.execute(token(2), "n2", [attempt_at(index) for index in range(1, 11)])
    await successor.close()
    assert {(outcome.status, outcome.replayed) for outcome in outcomes} == {(AttemptStatus.SUCCEEDED, False)}
    assert world(postgres) == [f"a{index}" for index in range(1, 11)]


async def test_a_wait_for_the_fence_is_bounded_and_says_so(postgres: PostgresServer) -> None:
    """Somebody else's session, without our bounds, holds the row for as long as it likes."""
    subject = PostgresSubject(postgres)
    resource = subject.node(bounds=PostgresBounds(lock_ns=200 * MS, idle_ns=100 * MS))
    await resource.open()
    await resource.claim(token(1), "n1")
    other = await asyncpg.connect(postgres.url)
    await other.execute("BEGIN; SELECT 1 FROM fencepost.fence FOR UPDATE")
    with pytest.raises(ResourceUnavailable, match="55P03") as caught:
        await resource.execute(token(1), "n1", [attempt("a")])
    assert caught.value.outcome is Outcome.RETRY
    assert "pg_locks" in caught.value.next_step
    await other.close()
    (outcome,) = await resource.execute(token(1), "n1", [attempt("a")])
    assert outcome.status is AttemptStatus.SUCCEEDED
    await resource.close()


@pytest.mark.parametrize("delivered", [True, False])
async def test_a_connection_lost_at_commit_is_unknown_and_the_repeat_decides(
    postgres: PostgresServer, delivered: bool
) -> None:
    """S50: nobody can say whether COMMIT arrived but the ledger itself."""
    subject = PostgresSubject(postgres)
    async with way_to(postgres.port) as way:
        url = postgres.url.replace(str(postgres.port), str(way.port))
        resource = subject.node(url=url)
        await resource.open()
        await resource.claim(token(1), "n1")
        way.cut_at(b"COMMIT\0", delivered=delivered)
        with pytest.raises(ResourceUnavailable) as caught:
            await resource.execute(token(1), "n1", [attempt("a")])
        assert (caught.value.outcome, way.cuts) == (Outcome.UNKNOWN, 1)
        (outcome,) = await resource.execute(token(1), "n1", [attempt("a")])
        assert (outcome.status, outcome.replayed) == (AttemptStatus.SUCCEEDED, delivered)
        assert subject.world() == ["a"]
        await resource.close()


async def test_the_server_asks_after_a_machine_that_says_nothing(postgres: PostgresServer) -> None:
    """In the middle of a request no bound of a statement or a transaction ends the wait for its rest."""
    resource = PostgresSubject(postgres).node(bounds=PostgresBounds(idle_ns=5_000 * MS))
    await resource.open()
    connection = resource._connection._connection
    found = [await connection.fetchval(f"SHOW tcp_keepalives_{each}") for each in ("idle", "interval", "count")]
    await resource.close()
    assert found == ["5", "1", "3"]


async def test_a_connection_lost_before_commit_is_certainly_not_applied(postgres: PostgresServer) -> None:
    subject = PostgresSubject(postgres)
    async with way_to(postgres.port) as way:
        resource = subject.node(url=postgres.url.replace(str(postgres.port), str(way.port)))
        await resource.open()
        await resource.claim(token(1), "n1")
        way.cut_at(b"BEGIN", delivered=True)
        with pytest.raises(ResourceUnavailable) as caught:
            await resource.execute(token(1), "n1", [attempt("a")])
        assert (caught.value.outcome, way.cuts) == (Outcome.RETRY, 1)
        assert subject.world() == []
        await resource.close()


async def test_a_frozen_server_is_given_up_and_used_again_when_it_wakes(postgres: PostgresServer) -> None:
    subject = PostgresSubject(postgres)
    resource = subject.node(bounds=PostgresBounds(statement_ns=200 * MS, connect_ns=500 * MS))
    await resource.open()
    await resource.claim(token(1), "n1")
    (row,) = postgres.query("SELECT pid FROM pg_stat_activity WHERE application_name = 'fencepost ledger'")
    os.kill(row["pid"], signal.SIGSTOP)
    try:
        with pytest.raises(ResourceUnavailable) as caught:
            await resource.execute(token(1), "n1", [attempt("a")])
    finally:
        os.kill(row["pid"], signal.SIGCONT)
    assert caught.value.outcome is Outcome.RETRY
    (outcome,) = await resource.execute(token(1), "n1", [attempt("a")])
    assert (outcome.status, outcome.replayed) == (AttemptStatus.SUCCEEDED, False)
    await resource.close()


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, id="fast", marks=pytest.mark.endure), pytest.param(signal.SIGQUIT, id="crash")],
)
async def test_restarts_under_load_heal(restartable: PostgresServer, number: signal.Signals) -> None:
    subject = PostgresSubject(restartable)
    resource = subject.node(bounds=PostgresBounds(connect_ns=1000 * MS))
    await resource.open()
    await resource.claim(token(1), "n1")
    done: list[int] = []
    troubles: list[ResourceUnavailable] = []

    async def load() -> None:
        for index in range(1, 201):
            while True:
                try:
                    (outcome,) = await resource.execute(token(1), "n1", [attempt(f"a{index}", index, lane="k")])
                    break
                except ResourceUnavailable as error:
                    troubles.append(error)
                    await asyncio.sleep(0)
            assert outcome.status is AttemptStatus.SUCCEEDED
            done.append(index)

    async def reached(count: int) -> bool:
        return len(done) >= count

    running = asyncio.create_task(load())
    for count in (30, 90):
        await eventually_async(lambda count=count: reached(count), within_s=30, what=f"{count} are done")  # type: ignore[misc]
        await asyncio.to_thread(restartable.stop, number)
        await asyncio.to_thread(restartable.start)
    await running
    await resource.close()
    assert troubles, "the server was away, and nobody noticed"
    assert subject.world() == [f"a{index}" for index in range(1, 201)]
    assert check_ledger(subject.ledger()) == []


async def test_a_database_put_back_to_an_earlier_state_is_claimed_before_use(postgres: PostgresServer) -> None:
    subject = PostgresSubject(postgres)
    resource = subject.node()
    await resource.open()
    await resource.claim(token(1), "n1")
    before = postgres.query("SELECT * FROM fencepost.fence")
    await resource.claim(token(2), "n1")
    postgres.query("UPDATE fencepost.fence SET term = $1", before[0]["term"])
    with pytest.raises(ResourceUnavailable, match=r"remembers token 1\.1, and had accepted 1\.2"):
        await resource.execute(token(2), "n1", [attempt("a")])
    postgres.query("DELETE FROM fencepost.fence WHERE resource = $1", "ledger")
    with pytest.raises(ResourceUnavailable, match="remembers no token at all"):
        await resource.execute(token(2), "n1", [attempt("a")])
    assert await resource.claim(token(2), "n1") is None
    (outcome,) = await resource.execute(token(2), "n1", [attempt("a")])
    assert outcome.status is AttemptStatus.SUCCEEDED
    await resource.close()


async def test_it_promises_no_more_than_the_server_keeps(restartable: PostgresServer) -> None:
    restartable.stop()
    restartable.start(fsync="off")
    resource = PostgresSubject(restartable).node()
    await resource.open()
    assert resource.guarantee is Guarantee.KEYED
    assert resource.guarantee_reason == "the server runs with fsync off: a crash of its machine may undo what it said"
    restartable.stop()
    restartable.start()
    # It is asked again at every new connection.
    with pytest.raises(ResourceUnavailable):
        await resource.fence()
    await resource.open()
    assert (resource.guarantee, resource.guarantee_reason) == (Guarantee.FENCED, "")
    await resource.close()


async def test_a_standby_takes_no_claim(restartable: PostgresServer) -> None:
    with restartable.as_standby():
        resource = PostgresSubject(restartable).node()
        with pytest.raises(ResourceUnavailable, match="is a standby"):
            await resource.open()
        await resource.close()


async def test_commits_are_durable_whatever_the_role_says(postgres: PostgresServer) -> None:
    """And the transaction sees what the lock's last holder committed, whatever isolation is the default."""
    postgres.query(
        "ALTER ROLE owner SET synchronous_commit = off; ALTER ROLE owner SET default_transaction_isolation = "
        "'serializable'; ALTER ROLE owner SET default_transaction_read_only = on;"
    )
    try:
        sql = "SELECT current_setting('synchronous_commit') AS sync, current_setting('transaction_isolation') AS level"
        resource = PostgresSubject(postgres).node(effects={"look": sql})
        await resource.open()
        (outcome,) = await resource.execute(token(1), "n1", [attempt("a", effect="look")])
        await resource.close()
    finally:
        postgres.query("BEGIN READ WRITE; ALTER ROLE owner RESET ALL; COMMIT;")
    assert outcome.result == b'{"sync":"on","level":"read committed"}'


async def test_a_cancelled_call_leaves_nothing_behind(postgres: PostgresServer) -> None:
    """A claim that took too long is cancelled: its transaction must end, and the next call must work."""
    subject = PostgresSubject(postgres)
    resource = subject.node()
    await resource.open()
    await resource.claim(token(1), "n1")
    other = await asyncpg.connect(postgres.url)
    await other.execute("BEGIN; SELECT 1 FROM fencepost.fence FOR UPDATE")
    call = asyncio.create_task(resource.claim(token(2), "n1"))
    waiting = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'fencepost ledger' AND wait_event_type = 'Lock'"
    await asyncio.to_thread(
        eventually, lambda: postgres.query(waiting), within_s=10, what="the claim waits for the row"
    )
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await other.close()
    with pytest.raises(StaleLeader):
        await resource.execute(FencingToken(1, 0), "n1", [])
    assert await resource.fence() == Fence(token(1), "n1")
    await resource.close()


async def test_opening_leaves_no_transaction_and_no_lock(postgres: PostgresServer) -> None:
    """What is only prepared must not keep an operator from altering his tables."""
    resource = PostgresSubject(postgres).node()
    await resource.open()
    (row,) = postgres.query("SELECT pid, state, xact_start FROM pg_stat_activity WHERE application_name LIKE 'fence%'")
    assert (row["state"], row["xact_start"]) == ("idle", None)
    assert postgres.query("SELECT 1 FROM pg_locks WHERE pid = $1", row["pid"]) == []
    await resource.close()


async def test_a_library_that_has_lost_its_own_thread_is_a_lost_connection(postgres: PostgresServer) -> None:
    """When the server hangs up between two steps of one request, asyncpg raises what is no error of PostgreSQL."""

    class Lost:
        def is_closed(self) -> bool:
            return False

        async def execute(self, sql: str) -> str:
            raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")

        def terminate(self) -> None:
            connection.terminate()

    resource = PostgresSubject(postgres).node()
    await resource.open()
    connection, resource._connection._connection = resource._connection._connection, Lost()
    with pytest.raises(ResourceUnavailable) as caught:
        await resource.execute(token(1), "n1", [attempt("a")])
    assert caught.value.outcome is Outcome.RETRY
    (outcome,) = await resource.execute(token(1), "n1", [attempt("a")])
    assert outcome.status is AttemptStatus.SUCCEEDED
    await resource.close()
