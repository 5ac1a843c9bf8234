"""What is PostgreSQL's own: types, contention, deferred constraints, tables that come later, lanes that forget."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from fencepost.raft.core.errors import ConfigurationError, ResourceUnavailable, StorageFormatUnknown
from fencepost.raft.effects.resources.audit import check_ledger
from fencepost.raft.effects.resources.postgres import Dedupe, PostgresBounds, PostgresEffect, PostgresResource
from fencepost.raft.effects.resources.postgres_errors import Cause, cause_of
from fencepost.raft.ports import AttemptOutcome, AttemptStatus

from ...servers.postgres import PostgresServer, postgres, postgres_server
from .server_subjects import MS, PostgresSubject
from .subjects import attempt, attempt_of, token

__all__ = ["postgres", "postgres_server"]

pytestmark = pytest.mark.servers

SUCCEEDED = AttemptStatus.SUCCEEDED
FAILED = AttemptStatus.FAILED
RETRY = AttemptStatus.RETRY
NOT_ATTEMPTED = AttemptStatus.NOT_ATTEMPTED


async def run(server: PostgresServer, effects: dict[str, str], *attempts: Any, **options: Any) -> list[AttemptOutcome]:
    resource = PostgresSubject(server).node(effects=effects, **options)
    try:
        await resource.open()
        return await resource.execute(token(1), "n1", list(attempts))
    finally:
        await resource.close()


# -- types ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "result"),
    [
        ("int", 5, 5),
        ("bigint", 2**63 - 1, 2**63 - 1),
        ("bool", True, True),
        ("text", "ä€😀", "ä€😀"),
        ("text", {"b": 1, "a": [2]}, '{"a":[2],"b":1}'),
        ("numeric", 0.1, "0.1"),
        ("numeric", "12345678901234567890.123456789", "12345678901234567890.123456789"),
        ("float8", 0.5, 0.5),
        ("float8", 2, 2.0),
        ("timestamptz", "2026-02-03T04:05:06+02:00", "2026-02-03 02:05:06+00"),
        ("date", "2026-02-03", "2026-02-03"),
        ("interval", "1 day", "P1D"),
        ("uuid", "5f2b4a3e-0000-4000-8000-000000000000", "5f2b4a3e-0000-4000-8000-000000000000"),
        ("jsonb", {"b": [1, None]}, {"b": [1, None]}),
        ("jsonb", "text", "text"),
        ("bytea", "ab", "YWI="),
        ("int[]", [1, 2], [1, 2]),
        ("inet", "10.0.0.1", "10.0.0.1"),
        ("text", None, None),
    ],
)
async def test_a_json_value_is_taken_as_the_type_that_the_sql_wants(
    postgres: PostgresServer, kind: str, value: Any, result: Any
) -> None:
    (outcome,) = await run(postgres, {"echo": f"SELECT :v::{kind} AS v"}, attempt_of({"v": value}, effect="echo"))
    assert (outcome.status, outcome.error) == (SUCCEEDED, "")
    assert json.loads(outcome.result) == {"v": result}


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        ("int", 2**31, "'v' is 2147483648, which does not fit into int4"),
        ("int", "5", "'v' is \"5\", and the SQL takes a value of type int4 there"),
        ("int", True, "'v' is true, and the SQL takes a value of type int4 there"),
        ("text", 5, "'v' is 5, and the SQL takes a value of type text there"),
        ("bool", 1, "'v' is 1, and the SQL takes a value of type bool there"),
        ("text", "a\0b", "NUL"),
        ("date", "yesterday-ish", "invalid input syntax for type date"),
        ("numeric", "many", "invalid input syntax for type numeric"),
        ("int[]", 5, "invalid input"),
    ],
)
async def test_a_value_that_does_not_fit_fails_alone(
    postgres: PostgresServer, kind: str, value: Any, says: str
) -> None:
    outcomes = await run(
        postgres,
        {"echo": f"SELECT :v::{kind} AS v", "credit": "SELECT 1 AS one"},
        attempt("before", 1),
        attempt_of({"v": value}, "misfit", 2, effect="echo"),
        attempt("after", 3),
    )
    assert [outcome.status for outcome in outcomes] == [SUCCEEDED, FAILED, SUCCEEDED]
    assert says in outcomes[1].error


async def test_what_every_statement_knows_of_its_operation(postgres: PostgresServer) -> None:
    sql = "SELECT :operation_id::text AS id, :lane::text AS lane, :log_index::bigint AS at, :payload::jsonb AS body"
    (outcome,) = await run(postgres, {"look": sql}, attempt_of({"x": 1}, "op", 7, lane="k", effect="look"))
    assert json.loads(outcome.result) == {"id": "op", "lane": "k", "at": 7, "body": {"x": 1}}


async def test_rows_are_counted_and_several_are_a_list(postgres: PostgresServer) -> None:
    outcomes = await run(
        postgres,
        {
            "none": "UPDATE entries SET cents = 1 WHERE false",
            "two": "INSERT INTO entries (ledger, operation, cents) SELECT 'l', 'o', n FROM generate_series(1, 2) AS n",
            "shown": "UPDATE entries SET cents = cents + 1 RETURNING cents",
        },
        attempt("a", 1, effect="none"),
        attempt("b", 2, effect="two"),
        attempt("c", 3, effect="shown"),
    )
    assert [outcome.result for outcome in outcomes] == [b'{"rows":0}', b'{"rows":2}', b'[{"cents":2},{"cents":3}]']


async def test_a_result_that_is_too_large_undoes_its_effect(postgres: PostgresServer) -> None:
    sql = "INSERT INTO entries (ledger, operation, cents) VALUES ('ledger', 'x', 1) RETURNING repeat('x', 70000) AS x"
    (outcome,) = await run(postgres, {"big": sql}, attempt("a", effect="big"))
    assert outcome.status is FAILED
    assert postgres.query("SELECT 1 FROM entries") == []


# -- contention and failure -------------------------------------------------------------------------------

RAISE = """CREATE OR REPLACE FUNCTION fail(code text) RETURNS int LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = code; END $$"""


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("40001", RETRY),
        ("40P01", RETRY),
        ("55P03", RETRY),
        ("57014", RETRY),
        ("23505", FAILED),
        ("22012", FAILED),
        ("P0001", FAILED),
        ("45000", FAILED),
        ("42P01", NOT_ATTEMPTED),
        ("42501", NOT_ATTEMPTED),
    ],
)
async def test_each_class_of_error_is_judged_by_its_code(
    postgres: PostgresServer, code: str, status: AttemptStatus
) -> None:
    outcomes = await run(
        postgres,
        {"fail": "SELECT fail(:code)", "credit": "SELECT 1 AS one"},
        attempt("before", 1),
        attempt_of({"code": code}, "bad", 2, effect="fail"),
        attempt("after", 3),
        schema=RAISE,
    )
    assert [outcome.status for outcome in outcomes] == [SUCCEEDED, status, SUCCEEDED]


@pytest.mark.parametrize("code", ["53100", "57P01", "58030", "XX000", "25006"])
async def test_what_is_about_the_server_is_about_no_attempt(postgres: PostgresServer, code: str) -> None:
    with pytest.raises(ResourceUnavailable, match=code):
        await run(
            postgres, {"fail": "SELECT fail(:code)"}, attempt_of({"code": code}, "bad", effect="fail"), schema=RAISE
        )


def test_an_error_without_a_code_is_about_the_server() -> None:
    assert cause_of(ConnectionResetError()) is Cause.SERVER


async def test_an_effect_that_meets_another_writer_is_tried_again_and_holds_nobody_up(
    postgres: PostgresServer,
) -> None:
    subject = PostgresSubject(postgres)
    effects = {
        "credit": "INSERT INTO entries (ledger, operation, cents) VALUES ('ledger', :operation_id, 1)",
        "touch": "UPDATE entries SET cents = cents + 1 WHERE operation = 'held'",
        "sleep": "SELECT pg_sleep(30)",
    }
    bounds = PostgresBounds(lock_ns=200 * MS, idle_ns=100 * MS, statement_ns=400 * MS)
    resource = subject.node(effects=effects, bounds=bounds)
    await resource.open()
    await resource.execute(token(1), "n1", [attempt("held")])
    other = await asyncpg.connect(postgres.url)
    await other.execute("BEGIN; SELECT 1 FROM entries FOR UPDATE")
    batch = [attempt("t", 2, effect="touch"), attempt("s", 3, effect="sleep"), attempt("free", 4)]
    outcomes = await resource.execute(token(1), "n1", batch)
    assert [outcome.status for outcome in outcomes] == [RETRY, RETRY, SUCCEEDED]
    assert "lock timeout" in outcomes[0].error
    assert "statement timeout" in outcomes[1].error
    await other.close()
    (outcome,) = await resource.execute(token(1), "n1", [attempt("t", 2, effect="touch")])
    assert outcome.status is SUCCEEDED
    await resource.close()
    assert subject.world() == ["held", "free"]


async def test_a_deferred_constraint_fails_the_one_attempt_that_broke_it(postgres: PostgresServer) -> None:
    schema = """CREATE TABLE IF NOT EXISTS accounts (id int PRIMARY KEY);
        CREATE TABLE IF NOT EXISTS moves (account int REFERENCES accounts DEFERRABLE INITIALLY DEFERRED);
        INSERT INTO accounts VALUES (1) ON CONFLICT DO NOTHING"""
    outcomes = await run(
        postgres,
        {"move": "INSERT INTO moves VALUES (:account)"},
        attempt_of({"account": 1}, "a", 1, lane="k", effect="move"),
        attempt_of({"account": 2}, "b", 2, lane="k", effect="move"),
        attempt_of({"account": 1}, "c", 3, lane="k", effect="move"),
        attempt_of({"account": 1}, "d", 4, effect="move"),
        schema=schema,
    )
    assert [outcome.status for outcome in outcomes] == [SUCCEEDED, FAILED, NOT_ATTEMPTED, SUCCEEDED]
    assert "foreign key" in outcomes[1].error
    assert len(postgres.query("SELECT 1 FROM moves")) == 2


# -- statements and tables --------------------------------------------------------------------------------


async def test_an_effect_waits_for_its_table(postgres: PostgresServer) -> None:
    subject = PostgresSubject(postgres)
    resource = subject.node(effects={"later": "INSERT INTO later VALUES (:operation_id)", "credit": "SELECT 1 AS one"})
    with capture_logs() as logs:
        await resource.open()
    assert [log["effect"] for log in logs if log["event"] == "effect waits for its table"] == ["later"]
    waits, other = await resource.execute(token(1), "n1", [attempt("a", 1, effect="later"), attempt("b", 2)])
    assert (waits.status, other.status) == (NOT_ATTEMPTED, SUCCEEDED)
    assert 'relation "later" does not exist' in waits.error
    postgres.query("CREATE TABLE later (operation text)")
    (outcome,) = await resource.execute(token(1), "n1", [attempt("a", 1, effect="later")])
    assert outcome.status is SUCCEEDED
    await resource.close()


async def test_a_table_that_is_altered_costs_one_new_connection(postgres: PostgresServer) -> None:
    resource = PostgresSubject(postgres).node(effects={"all": "SELECT * FROM entries"})
    await resource.open()
    await resource.execute(token(1), "n1", [attempt("a", 1, effect="all")])
    postgres.query("ALTER TABLE entries ADD COLUMN more int")
    with pytest.raises(ResourceUnavailable):
        await resource.execute(token(1), "n1", [attempt("b", 2, effect="all")])
    (outcome,) = await resource.execute(token(1), "n1", [attempt("b", 2, effect="all")])
    assert outcome.status is SUCCEEDED
    await resource.close()


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT 1; SELECT 2", "multiple commands"),
        ("SELECT :a", None),
        ("SELEC 1", "must be one statement that starts with"),
        ("SELECT 1 FRM entries x y", "syntax error"),
        ("COMMIT", "must be one statement that starts with"),
        ("DELETE FROM fencepost.operations", "the schema of the fence"),
        ('DELETE FROM "fencepost".operations', "the schema of the fence"),
        ("WITH x AS (DELETE FROM fencepost.fence RETURNING 1) SELECT 1", "the schema of the fence"),
    ],
)
async def test_sql_that_can_never_work_is_refused_when_it_is_opened(
    postgres: PostgresServer, sql: str, says: str | None
) -> None:
    if says is None:
        assert (await run(postgres, {"echo": sql}, attempt_of({"a": "x"}, effect="echo")))[0].status is SUCCEEDED
        return
    with pytest.raises(ConfigurationError, match=says):
        await run(postgres, {"bad": sql})


async def test_a_schema_that_fails_names_itself(postgres: PostgresServer) -> None:
    with pytest.raises(ConfigurationError, match="its schema fails"):
        await run(
            postgres, {"credit": "SELECT 1 AS one"}, schema="CREATE TABLE entries (x int); CREATE TABLE entries ()"
        )
    assert postgres.query("SELECT to_regclass('entries') AS found")[0]["found"] is None


async def test_tables_of_a_later_format_are_left_alone(postgres: PostgresServer) -> None:
    await run(postgres, {"credit": "SELECT 1 AS one"})
    postgres.query("UPDATE fencepost.format SET version = $1", 99)
    with pytest.raises(StorageFormatUnknown, match="format 99"):
        await run(postgres, {"credit": "SELECT 1 AS one"})


@pytest.mark.parametrize("url", ["postgresql://owner:hunter2@127.0.0.1:1/x", "postgresql://owner:hunter2@[::1/x"])
async def test_a_secret_is_in_no_error_and_no_log(postgres: PostgresServer, url: str) -> None:
    resource = PostgresResource("ledger", url, {"one": PostgresEffect("SELECT 1 AS one")}, cluster_id="cluster")
    with capture_logs() as logs, pytest.raises((ResourceUnavailable, ConfigurationError)) as caught:
        await resource.open()
    assert "hunter2" not in f"{caught.value} {caught.value.as_dict()} {logs}"


# -- ordered-lane -----------------------------------------------------------------------------------------


async def test_a_lane_keeps_its_latest_results_and_no_more(postgres: PostgresServer) -> None:
    subject = PostgresSubject(postgres, Dedupe.ORDERED_LANE)
    resource = subject.node(lane_results=3, batch_limit=3)
    await resource.open()
    lane = [attempt(f"k{index}", index * 10, lane="k") for index in range(1, 21)]
    results = [await resource.execute(token(1), "n1", [each]) for each in lane]
    await resource.execute(token(1), "n1", [attempt("free1", 1), attempt("free2", 2), attempt("j", 3, lane="j")])
    kept = [each.operation_id for each in subject.ledger().operations]
    assert kept == ["k18", "k19", "k20", "free1", "free2", "j"]
    # Within what is kept: the first result. Between two of it: it was passed over. Before it: nobody can say.
    (again,) = await resource.execute(token(2), "n2", [lane[17]])
    assert (again.replayed, again.result) == (True, results[17][0].result)
    (between,) = await resource.execute(token(2), "n2", [attempt("never", 185, lane="k")])
    assert between.status is FAILED
    assert "LANE_SUPERSEDED" in between.error
    for old in (lane[16], attempt("never", 165, lane="k")):
        (before,) = await resource.execute(token(2), "n2", [old])
        assert before.status is AttemptStatus.DOUBT
        assert "LANE_FORGOTTEN" in before.error
    assert check_ledger(subject.ledger()) == []
    assert len(subject.world()) == 23
    await resource.close()


async def test_a_table_keeps_everything(postgres: PostgresServer) -> None:
    subject = PostgresSubject(postgres)
    resource = subject.node(lane_results=3)
    await resource.open()
    lane = [attempt(f"k{index}", index, lane="k") for index in range(1, 21)]
    await resource.execute(token(1), "n1", lane)
    assert all(outcome.replayed for outcome in await resource.execute(token(2), "n2", lane))
    assert len(subject.ledger().operations) == 20
    await resource.close()
