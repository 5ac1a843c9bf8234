"""Writes to a guarded PostgreSQL database beside fencepost: seen, counted, refused (requirements 103, 110, 112)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from fencepost.raft.core.errors import ConfigurationError, ModeRefused, ResourceUnavailable, StaleLeader
from fencepost.raft.effects.modes import FenceMode, ModalResource, ModeReport
from fencepost.raft.effects.resources import postgres_connection, postgres_guard
from fencepost.raft.effects.resources.postgres import Dedupe, PostgresBounds, PostgresResource
from fencepost.raft.effects.resources.postgres_tables import SCHEMA as FIRST_SCHEMA
from fencepost.raft.effects.resources.postgres_tables import WRITE_FORMAT
from fencepost.raft.ports import AttemptStatus

from ...servers.postgres import PostgresServer, postgres, postgres_server
from ...waiting import eventually
from .server_subjects import MS, PostgresSubject
from .subjects import attempt, attempt_of, token

__all__ = ["postgres", "postgres_server"]

pytestmark = pytest.mark.servers

DAY = 86_400_000_000_000
SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (account text, cents bigint);
CREATE TABLE IF NOT EXISTS "Totals" (account text PRIMARY KEY, cents bigint);
CREATE TABLE IF NOT EXISTS notes (text text);
CREATE OR REPLACE FUNCTION add_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO "Totals" VALUES (NEW.account, NEW.cents)
        ON CONFLICT (account) DO UPDATE SET cents = "Totals".cents + excluded.cents;
    RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS add_up ON entries;
CREATE TRIGGER add_up AFTER INSERT ON entries FOR EACH ROW EXECUTE FUNCTION add_up();
"""
CREDIT = "INSERT INTO entries VALUES (:account, :cents)"
TOTALS = 'public."Totals"'
ENTRIES = "public.entries"


class Ledger:
    """A resource, and other programs that reach the same database."""

    def __init__(self, server: PostgresServer, dedupe: Dedupe) -> None:
        self.server = server
        self.subject = PostgresSubject(server, dedupe)
        self.now_ns = 100 * DAY
        self.opened: list[PostgresResource] = []
        self.programs: list[Any] = []
        self.resource = self.node()
        self.index = 0

    def node(self, name: str = "ledger", **options: Any) -> PostgresResource:
        given = {"schema": SCHEMA, "effects": {"credit": CREDIT}, "time_ns": lambda: self.now_ns, **options}
        self.opened.append(self.subject.node(name, **given))
        return self.opened[-1]

    async def program(self, role: str = "owner", name: str = "") -> Any:
        """A connection of another program, which ends with the test."""
        url = self.server.url.replace("owner@", f"{role}@")
        self.programs.append(await asyncpg.connect(url, server_settings={"application_name": name}))
        return self.programs[-1]

    async def close(self) -> None:
        for program in self.programs:
            await program.close(timeout=5)
        for resource in self.opened:
            await resource.close()

    async def credit(self, term: int = 1, resource: PostgresResource | None = None) -> AttemptStatus:
        self.index += 1
        made = attempt_of({"account": "a", "cents": 1}, f"op{self.index}", self.index)
        (outcome,) = await (resource or self.resource).execute(token(term), f"n{term}", [made])
        return AttemptStatus(outcome.status)

    async def to(self, mode: FenceMode, *, term: int = 1, quiet_ns: int = 0) -> ModeReport:
        return await self.resource.set_mode(token(term), f"n{term}", mode, quiet_ns)

    def beside(self, sql: str) -> list[Any]:
        """Another program, one that knows nothing of fencepost."""
        return self.server.query(sql)

    def refused(self, sql: str) -> str:
        with pytest.raises(asyncpg.PostgresError) as caught:
            self.beside(sql)
        return f"{caught.value.sqlstate} {caught.value}"


@pytest_asyncio.fixture(params=[Dedupe.TABLE])
async def ledger(postgres: PostgresServer, request: pytest.FixtureRequest) -> AsyncIterator[Ledger]:
    made = Ledger(postgres, request.param)
    await made.resource.open()
    await made.resource.claim(token(1), "n1")
    yield made
    await made.close()


endure = pytest.mark.endure
both_designs = pytest.mark.parametrize(
    "ledger", [Dedupe.TABLE, pytest.param(Dedupe.ORDERED_LANE, marks=endure)], indirect=True
)


@endure
async def test_off_nobody_looks(ledger: Ledger) -> None:
    assert isinstance(ledger.resource, ModalResource)
    assert (await ledger.resource.mode()).mode is FenceMode.OFF
    ledger.beside("INSERT INTO entries VALUES ('x', 1)")
    await ledger.credit()
    assert ledger.beside("SELECT tgname FROM pg_trigger WHERE tgname LIKE 'fencepost%'") == []
    assert (await ledger.resource.mode()).unfenced == 0


@both_designs
async def test_observing_applies_and_counts_what_shows_no_token_statement_by_statement(ledger: Ledger) -> None:
    report = await ledger.to(FenceMode.OBSERVE)
    assert (report.mode, report.guarded, report.unguarded) == (FenceMode.OBSERVE, [ENTRIES], [])
    for _ in range(3):
        assert await ledger.credit() is AttemptStatus.SUCCEEDED
    report = await ledger.resource.mode()
    # What the application's own trigger writes to is known once it has.
    assert (report.guarded, report.unguarded, report.unfenced) == ([TOTALS, ENTRIES], [], 0)
    ledger.beside("INSERT INTO notes VALUES ('not ours')")
    assert (await ledger.resource.mode()).unfenced == 0
    ledger.beside("INSERT INTO \"Totals\" VALUES ('x', 1), ('y', 2)")
    ledger.beside("UPDATE \"Totals\" SET cents = 5 WHERE account = 'x'")
    ledger.beside("DELETE FROM \"Totals\" WHERE account = 'nobody'")
    ledger.beside("TRUNCATE entries")
    report = await ledger.resource.mode()
    assert (report.unfenced, report.would_reject) == (4, 4)
    (now,) = ledger.beside("SELECT extract(epoch FROM now()) AS s")
    assert abs(report.last_unfenced_ns / 1e9 - float(now["s"])) < 60
    await ledger.credit()
    assert ledger.resource.mode_seen.unfenced == 4
    assert [tuple(row) for row in ledger.beside("SELECT cents FROM \"Totals\" WHERE account = 'a'")] == [(4,)]


async def test_what_is_rolled_back_counts_nothing_and_nobody_waits_for_anybody(ledger: Ledger) -> None:
    ledger.beside("DROP TRIGGER add_up ON entries")
    await ledger.to(FenceMode.OBSERVE)
    others = [await ledger.program(name=f"job {n}") for n in "ab"]
    for other in others:
        await other.execute("BEGIN; SET LOCAL lock_timeout = '2s'; INSERT INTO entries VALUES ('x', 1)")
    await others[0].execute("INSERT INTO entries VALUES ('x', 2); ROLLBACK")
    assert (await ledger.resource.mode()).unfenced == 0
    assert await ledger.credit() is AttemptStatus.SUCCEEDED
    await others[1].execute("COMMIT")
    assert (await ledger.resource.mode()).unfenced == 1
    await ledger.resource.claim(token(2), "n2")
    assert ledger.beside("SELECT count(*) AS n FROM fencepost.unfenced")[0]["n"] == 0
    assert (await ledger.resource.mode()).unfenced == 1
    (row,) = ledger.beside(f"SELECT * FROM fencepost.writers WHERE relation = '{ENTRIES}'")
    assert (row["role"], row["application"], row["statements"]) == ("owner", "job b", 1)


@both_designs
async def test_enforcing_refuses_what_shows_no_token_and_nothing_else(ledger: Ledger) -> None:
    await ledger.to(FenceMode.OBSERVE)
    await ledger.credit()
    assert (await ledger.to(FenceMode.ENFORCE)).guarded == [TOTALS, ENTRIES]
    for sql in (
        "INSERT INTO entries VALUES ('x', 1)",
        "INSERT INTO \"Totals\" VALUES ('a', 9) ON CONFLICT (account) DO UPDATE SET cents = 9",
        'UPDATE "Totals" SET cents = 9',
        "DELETE FROM entries",
        "TRUNCATE entries",
        "SET fencepost.pass = '7'; DELETE FROM entries;",
    ):
        assert await ledger.credit() is AttemptStatus.SUCCEEDED
        told = ledger.refused(sql)
        assert told.startswith("FP001 fencepost: TOKEN_MISSING: ")
        assert "shows no token, and resource ledger enforces its fence" in told
    ledger.beside("INSERT INTO notes VALUES ('not ours')")
    assert [tuple(row) for row in ledger.beside('SELECT * FROM "Totals"')] == [("a", 7)]
    # And a stale leader is what it always was.
    await ledger.resource.claim(token(2), "n2")
    with pytest.raises(StaleLeader):
        await ledger.credit(term=1)


@endure
async def test_whoever_writes_needs_no_right_to_what_the_guards_use(ledger: Ledger) -> None:
    ledger.beside(
        "DROP ROLE IF EXISTS job; CREATE ROLE job LOGIN; GRANT USAGE ON SCHEMA public TO job;"
        'GRANT ALL ON entries, "Totals" TO job;'
    )
    try:
        await ledger.to(FenceMode.OBSERVE)
        job = await ledger.program("job")
        # Whatever it puts before the catalog is not what the guard calls.
        await job.execute("CREATE TEMP TABLE unfenced (x int); SET search_path = pg_temp, public")
        await job.execute("INSERT INTO public.entries VALUES ('x', 1)")
        assert (await ledger.resource.mode()).unfenced == 1
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await job.execute("DELETE FROM fencepost.unfenced")
        await ledger.to(FenceMode.ENFORCE)
        with pytest.raises(asyncpg.PostgresError, match="TOKEN_MISSING"):
            await job.execute("INSERT INTO public.entries VALUES ('x', 1)")
        rows = ledger.beside("SELECT DISTINCT role FROM fencepost.writers")
        assert [row["role"] for row in rows] == ["job"]
    finally:
        ledger.beside("DROP OWNED BY job; DROP ROLE job;")


# -- programs that show a token ----------------------------------------------------------------------------


async def shown(ledger: Ledger, term: int, *, cluster: str = "cluster", then: str = "COMMIT") -> None:
    other = await ledger.program()
    await other.execute(
        f"BEGIN; SAVEPOINT s; SELECT fencepost.show_token('ledger', '{cluster}', 1, {term}); RELEASE s; "
        f"INSERT INTO entries VALUES ('x', 1); {then}"
    )


async def test_another_program_may_show_the_token_that_it_was_given(ledger: Ledger) -> None:
    ledger.beside("DROP TRIGGER add_up ON entries")
    await ledger.to(FenceMode.OBSERVE)
    await shown(ledger, 1)
    assert (await ledger.resource.mode()).would_reject == 0
    await ledger.resource.claim(token(2), "n2")
    for term, cluster in ((1, "cluster"), (3, "cluster"), (2, "another")):
        await shown(ledger, term, cluster=cluster)
    report = await ledger.resource.mode()
    assert (report.unfenced, report.would_reject, report.last_unfenced_ns) == (0, 3, 0)
    # What was shown ends with its transaction.
    await shown(ledger, 2, then="COMMIT; INSERT INTO entries VALUES ('late', 1)")
    report = await ledger.resource.mode()
    assert (report.unfenced, report.would_reject) == (1, 4)
    await ledger.to(FenceMode.ENFORCE, term=2)
    await shown(ledger, 2)
    with pytest.raises(asyncpg.PostgresError, match=r"STALE_LEADER: resource ledger has accepted another") as caught:
        await shown(ledger, 1)
    assert caught.value.sqlstate == "FP002"


@endure
async def test_a_token_shown_too_low_before_the_step_is_refused_after_it(ledger: Ledger) -> None:
    await ledger.to(FenceMode.OBSERVE)
    other = await ledger.program()
    await other.execute("BEGIN; SELECT fencepost.show_token('ledger', 'cluster', 1, 0)")
    await ledger.to(FenceMode.ENFORCE)
    with pytest.raises(asyncpg.PostgresError, match=r"STALE_LEADER: INSERT of public\.entries") as caught:
        await other.execute("INSERT INTO entries VALUES ('x', 1)")
    assert caught.value.sqlstate == "FP002"


@endure
async def test_nobody_passes_the_fence_while_a_shown_token_is_written_with(ledger: Ledger) -> None:
    await ledger.to(FenceMode.OBSERVE)
    newer = ledger.node(bounds=PostgresBounds(lock_ns=100 * MS))
    await newer.open()
    other = await ledger.program()
    await other.execute("BEGIN; SELECT fencepost.show_token('ledger', 'cluster', 1, 1)")
    with pytest.raises(ResourceUnavailable, match="lock timeout"):
        await newer.claim(token(2), "n2")
    bound = await other.fetchval("SHOW idle_in_transaction_session_timeout")
    await other.execute("INSERT INTO entries VALUES ('x', 1); COMMIT")
    await newer.claim(token(2), "n2")
    assert (bound, await other.fetchval("SHOW idle_in_transaction_session_timeout")) == ("2s", "0")


# -- steps -----------------------------------------------------------------------------------------------


async def test_one_step_at_a_time_and_none_back(ledger: Ledger) -> None:
    with pytest.raises(ModeRefused, match="nobody knows yet"):
        await ledger.to(FenceMode.ENFORCE)
    assert ledger.beside("SELECT tgname FROM pg_trigger WHERE tgname LIKE 'fencepost%'") == []
    await ledger.to(FenceMode.OBSERVE)
    with pytest.raises(ModeRefused, match="observed for only 0 s, and 86400 s"):
        await ledger.to(FenceMode.ENFORCE, quiet_ns=DAY)
    ledger.beside("INSERT INTO entries VALUES ('x', 1)")
    last_ns = (await ledger.resource.mode()).last_unfenced_ns
    ledger.now_ns = last_ns + DAY // 2
    with pytest.raises(ModeRefused, match="the last write without a token was 43200 s ago"):
        await ledger.to(FenceMode.ENFORCE, quiet_ns=DAY)
    ledger.now_ns = last_ns + DAY
    assert (await ledger.to(FenceMode.ENFORCE, quiet_ns=DAY)).mode is FenceMode.ENFORCE
    for back in (FenceMode.OBSERVE, FenceMode.OFF):
        with pytest.raises(ModeRefused, match="no way back"):
            await ledger.to(back)
    assert (await ledger.to(FenceMode.ENFORCE)).mode is FenceMode.ENFORCE
    for sql in (
        "UPDATE fencepost.modes SET mode = 'observe'",
        "UPDATE fencepost.modes SET resource = 'another'",
        "DELETE FROM fencepost.modes",
        "TRUNCATE fencepost.modes",
    ):
        assert "never goes back" in ledger.refused(sql)


@endure
async def test_only_who_holds_the_fence_changes_the_mode(ledger: Ledger) -> None:
    await ledger.resource.claim(token(2), "n2")
    with pytest.raises(StaleLeader):
        await ledger.to(FenceMode.OBSERVE, term=1)
    assert (await ledger.resource.mode()).mode is FenceMode.OFF
    assert len(ledger.beside("SELECT 1 FROM fencepost.refusals")) == 1
    assert (await ledger.to(FenceMode.OBSERVE, term=2)).mode is FenceMode.OBSERVE


@pytest.mark.parametrize("isolation", [pytest.param("read committed", marks=endure), "repeatable read"])
async def test_a_write_that_began_before_the_step_counts_against_it(ledger: Ledger, isolation: str) -> None:
    """Between reading the counts and refusing nothing slips through, whatever snapshot the other one has."""
    await ledger.to(FenceMode.OBSERVE)
    ledger.now_ns += 2 * DAY
    waiting = "SELECT 1 FROM pg_locks JOIN pg_class ON oid = relation WHERE NOT granted AND relname = 'entries'"
    early, late = [await ledger.program() for _ in range(2)]
    for other in (early, late):
        await other.execute(f"BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM notes")
    await early.execute("INSERT INTO entries VALUES ('early', 1)")
    step = asyncio.create_task(ledger.to(FenceMode.ENFORCE, quiet_ns=DAY))
    await asyncio.to_thread(eventually, lambda: ledger.beside(waiting), within_s=10, what="the step waits")
    ledger.now_ns = 1 << 62  # Any time but one near to the write's: the server's clock is the other one.
    await early.execute("COMMIT")
    assert (await step).mode is FenceMode.ENFORCE
    assert ledger.resource.mode_seen.unfenced == 1
    with pytest.raises(asyncpg.PostgresError, match="TOKEN_MISSING"):
        await late.execute("INSERT INTO entries VALUES ('late', 1)")


@endure
async def test_a_write_that_is_committed_while_the_step_waits_is_a_reason_to_refuse_it(ledger: Ledger) -> None:
    await ledger.to(FenceMode.OBSERVE)
    ledger.now_ns += 2 * DAY
    waiting = "SELECT 1 FROM pg_locks JOIN pg_class ON oid = relation WHERE NOT granted AND relname = 'entries'"
    other = await ledger.program()
    await other.execute("BEGIN; INSERT INTO entries VALUES ('early', 1)")
    step = asyncio.create_task(ledger.to(FenceMode.ENFORCE, quiet_ns=DAY))
    await asyncio.to_thread(eventually, lambda: ledger.beside(waiting), within_s=10, what="the step waits")
    (now,) = await other.fetch("SELECT (extract(epoch FROM now()) * 1000)::bigint AS ms")
    ledger.now_ns = int(now["ms"]) * MS
    await other.execute("COMMIT")
    with pytest.raises(ModeRefused, match="the last write without a token was 0 s ago"):
        await step
    await other.execute("INSERT INTO entries VALUES ('x', 1)")


# -- tables ----------------------------------------------------------------------------------------------


async def test_a_table_that_was_made_anew_has_its_guard_back_at_the_next_claim(ledger: Ledger) -> None:
    await ledger.to(FenceMode.OBSERVE)
    await ledger.credit()
    ledger.beside('DROP TABLE entries, "Totals"; CREATE TABLE entries (account text, cents bigint);')
    ledger.beside('CREATE TABLE "Totals" (account text PRIMARY KEY, cents bigint)')
    ledger.beside("INSERT INTO entries VALUES ('x', 1)")
    report = await ledger.resource.mode()
    assert (report.unfenced, report.guarded, report.unguarded) == (0, [], [TOTALS, ENTRIES])
    # One that a trigger wrote to is remembered by those who come later, too.
    newer = ledger.node(schema="")
    await newer.open()
    await newer.claim(token(2), "n2")
    assert newer.mode_seen.guarded == [TOTALS, ENTRIES]
    ledger.beside("INSERT INTO entries VALUES ('x', 1)")
    assert (await newer.mode()).unfenced == 1


@endure
async def test_a_claim_does_not_wait_long_for_a_guard(ledger: Ledger) -> None:
    await ledger.to(FenceMode.OBSERVE)
    ledger.beside("DROP TABLE entries; CREATE TABLE entries (account text, cents bigint);")
    other = await ledger.program()
    await other.execute("BEGIN; INSERT INTO entries VALUES ('x', 1)")
    bounds = PostgresBounds(lock_ns=30_000 * MS, statement_ns=2_000 * MS)
    newer = ledger.resource = ledger.node(schema="", bounds=bounds)
    await newer.open()
    with capture_logs() as logs:
        await newer.claim(token(2), "n2")
    assert newer.mode_seen.unguarded == [ENTRIES]
    assert ["lock timeout" in log["reason"] for log in logs if log["event"] == "table not guarded"] == [True]
    await other.execute("COMMIT")
    # Asked for again, the same mode is no step, and puts it back.
    assert (await ledger.to(FenceMode.OBSERVE, term=2)).unguarded == []


@endure
async def test_every_part_of_a_table_is_guarded(ledger: Ledger) -> None:
    ledger.beside(
        "DROP TABLE entries; CREATE TABLE entries (account text, cents bigint) PARTITION BY LIST (account);"
        "CREATE TABLE part_a PARTITION OF entries FOR VALUES IN ('a');"
        "CREATE TABLE part_b PARTITION OF entries FOR VALUES IN ('b');"
    )
    report = await ledger.to(FenceMode.OBSERVE)
    assert report.guarded == [ENTRIES, "public.part_a", "public.part_b"]
    assert await ledger.credit() is AttemptStatus.SUCCEEDED
    for table in ("part_b", "entries"):
        ledger.beside(f"INSERT INTO {table} VALUES ('b', 1)")
    assert (await ledger.resource.mode()).unfenced == 2


@endure
async def test_what_cannot_be_guarded_is_named(ledger: Ledger) -> None:
    await ledger.to(FenceMode.OBSERVE)
    ledger.beside("ALTER TABLE entries DISABLE TRIGGER USER")
    report = await ledger.resource.mode()
    assert (report.guarded, report.unguarded) == ([], [ENTRIES])


@endure
async def test_a_batch_that_is_undone_undoes_its_guards_and_the_next_one_makes_them(ledger: Ledger) -> None:
    """A deferred constraint is what refuses a commit; the guard of a table that a trigger wrote to goes with it."""
    ledger.beside(
        "CREATE TABLE accounts (id text PRIMARY KEY); INSERT INTO accounts VALUES ('a');"
        'ALTER TABLE "Totals" ADD FOREIGN KEY (account) REFERENCES accounts DEFERRABLE INITIALLY DEFERRED;'
    )
    await ledger.to(FenceMode.OBSERVE)
    bad = attempt_of({"account": "nobody", "cents": 1}, "bad", 1)
    (outcome,) = await ledger.resource.execute(token(1), "n1", [bad])
    assert outcome.status is AttemptStatus.FAILED
    assert (await ledger.resource.mode()).guarded == [ENTRIES]
    await ledger.resource.execute(token(1), "n1", [attempt_of({"account": "nobody", "cents": 1}, "worse", 2)])
    assert await ledger.credit() is AttemptStatus.SUCCEEDED
    assert ledger.resource.mode_seen.guarded == [TOTALS, ENTRIES]
    assert (await ledger.resource.mode()).guarded == [TOTALS, ENTRIES]


@endure
async def test_two_resources_of_one_database_may_write_to_the_same_table(ledger: Ledger) -> None:
    """One that nobody observes, and that knows nothing of the other's mode, has passed a fence all the same."""
    second = ledger.node("second")
    await second.open()
    await second.claim(token(1), "n1")
    await ledger.to(FenceMode.OBSERVE)
    await ledger.to(FenceMode.ENFORCE)
    assert await ledger.credit(resource=second) is AttemptStatus.SUCCEEDED
    first = ledger.node("third")
    await first.open()
    # The first time of all: no row of the fence is there to be locked.
    assert await ledger.credit(resource=first) is AttemptStatus.SUCCEEDED
    assert second.mode_seen.mode is FenceMode.OFF


@endure
async def test_a_resource_with_a_long_name_has_guards_of_its_own(ledger: Ledger) -> None:
    long = [ledger.node(name="l" * 60 + last) for last in "12"]
    for ledger.resource in long:
        await ledger.resource.open()
        await ledger.resource.claim(token(1), "n1")
        assert (await ledger.to(FenceMode.OBSERVE)).guarded == [ENTRIES]
    ledger.beside("INSERT INTO entries VALUES ('x', 1)")
    assert [(await each.mode()).unfenced for each in long] == [1, 1]


# -- counting --------------------------------------------------------------------------------------------


@endure
async def test_counts_are_added_up_and_none_is_lost_or_told_apart_for_ever(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_guard, "FOLD_AT", 10)
    await ledger.to(FenceMode.OBSERVE)
    ledger.beside(
        "DROP TRIGGER add_up ON entries; DO $$ BEGIN FOR n IN 1..1500 LOOP "
        "PERFORM set_config('application_name', 'job ' || n, true); "
        "INSERT INTO entries VALUES ('x', n); END LOOP; END $$;"
    )
    assert (await ledger.resource.mode()).unfenced == 1500
    await ledger.credit()
    assert ledger.beside("SELECT 1 FROM fencepost.unfenced") == []
    ledger.beside(
        "DO $$ BEGIN FOR n IN 1..20 LOOP PERFORM set_config('application_name', 'more ' || n, true); "
        "INSERT INTO entries VALUES ('x', n); END LOOP; END $$;"
    )
    await ledger.credit()
    assert ledger.resource.mode_seen.unfenced == 1520
    (row,) = ledger.beside("SELECT * FROM fencepost.writers WHERE application = ''")
    assert row["statements"] == 20


# -- formats ---------------------------------------------------------------------------------------------


async def test_tables_of_an_earlier_version_get_what_is_new_with_the_first_step(postgres: PostgresServer) -> None:
    postgres.query(f"{FIRST_SCHEMA}; {WRITE_FORMAT};")
    ledger = Ledger(postgres, Dedupe.TABLE)
    await ledger.resource.open()
    await ledger.resource.claim(token(1), "n1")
    assert await ledger.credit() is AttemptStatus.SUCCEEDED
    assert (await ledger.resource.mode()).mode is FenceMode.OFF
    assert [row["version"] for row in postgres.query("SELECT version FROM fencepost.format")] == [1]
    assert (await ledger.to(FenceMode.OBSERVE)).guarded == [ENTRIES]
    assert [row["version"] for row in postgres.query("SELECT version FROM fencepost.format")] == [1, 2]
    await ledger.close()


@endure
async def test_a_role_that_may_not_is_told_what_it_lacks(postgres: PostgresServer) -> None:
    postgres.query(
        f"{FIRST_SCHEMA}; {WRITE_FORMAT}; CREATE ROLE small LOGIN; GRANT USAGE ON SCHEMA fencepost, public TO small;"
        "GRANT ALL ON ALL TABLES IN SCHEMA fencepost TO small; CREATE TABLE entries (account text, cents bigint);"
        "GRANT INSERT ON entries TO small;"
    )
    ledger = Ledger(postgres, Dedupe.TABLE)
    ledger.resource = ledger.node(url=postgres.url.replace("owner@", "small@"), schema="")
    try:
        await ledger.resource.open()
        await ledger.resource.claim(token(1), "n1")
        assert await ledger.credit() is AttemptStatus.SUCCEEDED
        with pytest.raises(ConfigurationError, match="denies what its mode needs"):
            await ledger.to(FenceMode.OBSERVE)
        assert await ledger.credit() is AttemptStatus.SUCCEEDED
    finally:
        await ledger.close()
        postgres.query("DROP OWNED BY small; DROP ROLE small;")


@endure
async def test_a_schema_that_puts_rows_in_is_told_what_it_does(ledger: Ledger) -> None:
    await ledger.to(FenceMode.OBSERVE)
    await ledger.to(FenceMode.ENFORCE)
    seeding = ledger.node(schema="INSERT INTO entries VALUES ('a', 0)")
    with pytest.raises(ConfigurationError, match="its schema writes rows without a token"):
        await seeding.open()


@endure
async def test_an_older_version_does_not_open_what_it_would_be_refused_in(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ledger.to(FenceMode.OBSERVE)
    monkeypatch.setattr(postgres_connection, "GUARD_FORMAT", 1)
    with pytest.raises(Exception, match="tables of format 2; this version knows 1"):
        await ledger.node().open()


@endure
async def test_an_effect_that_cannot_be_planned_yet_is_guarded_once_it_ran(ledger: Ledger) -> None:
    effects = {"credit": "INSERT INTO later VALUES (:operation_id)"}
    waits = ledger.node(effects=effects)
    await waits.open()
    await waits.claim(token(1), "n1")
    assert (await waits.set_mode(token(1), "n1", FenceMode.OBSERVE, 0)).guarded == []
    ledger.beside("CREATE TABLE later (operation text)")
    (outcome,) = await waits.execute(token(1), "n1", [attempt("a", 1)])
    assert outcome.status is AttemptStatus.SUCCEEDED
    assert waits.mode_seen.guarded == ["public.later"]
