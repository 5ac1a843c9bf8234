"""What a batch reads of a ledger that has grown, and that the server has not counted yet."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.raft.effects.resources import postgres as resource_module
from fencepost.raft.effects.resources import postgres_tables
from fencepost.raft.effects.resources.postgres import Dedupe
from fencepost.raft.ports import AttemptStatus

from ...servers.postgres import PostgresServer, postgres, postgres_server
from ...waiting import eventually
from .server_subjects import PostgresSubject
from .subjects import attempt, token

__all__ = ["postgres", "postgres_server"]

pytestmark = pytest.mark.servers

ROWS = 20_000
BATCHES = 12
BATCH = 64
LANE_RESULTS = 32
"""So that lanes are made to forget, with every batch."""

GROW = (
    # Nobody analyzes it behind the test's back, as nobody does in the first minute of a busy ledger.
    "ALTER TABLE fencepost.operations SET (autovacuum_enabled = off)",
    "ALTER TABLE fencepost.lanes SET (autovacuum_enabled = off)",
    f"""INSERT INTO fencepost.operations (resource, operation_id, digest, effect, lane, log_index, incarnation, term,
            holder, attempt, result, applied_ns)
        SELECT 'ledger', 'old' || n, '', 'credit', 'old' || n, n, 1, 1, 'n1', 1, '', 0
        FROM generate_series(1, {ROWS}) AS n""",
    f"""INSERT INTO fencepost.lanes (resource, lane, incarnation, log_index)
        SELECT 'ledger', 'old' || n, 1, n FROM generate_series(1, {ROWS}) AS n""",
)
READ = """SELECT (SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables WHERE schemaname = 'fencepost')
    + (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE schemaname = 'fencepost') AS rows,
    (SELECT n_tup_ins FROM pg_stat_user_tables WHERE schemaname = 'fencepost' AND relname = 'operations') AS written"""


async def rows_read(server: PostgresServer, dedupe: Dedupe, lanes: int) -> int:
    """Of the tables of the fence, by ``BATCHES`` batches behind a ledger that grew after as many."""
    subject = PostgresSubject(server, dedupe)
    counted: list[int] = []
    for half in range(2):
        resource = subject.node(lane_results=LANE_RESULTS)
        await resource.open()
        if not half:
            await resource.execute(token(1), "n1", [attempt("first", 1)])
        for batch in range(BATCHES):
            first = (half * BATCHES + batch) * BATCH + 2
            attempts = [
                attempt(f"op{index}", ROWS + index, lane=f"k{index % lanes}" if lanes else "")
                for index in range(first, first + BATCH)
            ]
            outcomes = await resource.execute(token(1), "n1", attempts)
            assert [each.status for each in outcomes] == [AttemptStatus.SUCCEEDED] * BATCH
            if batch == BATCHES // 2 - 1 and half:
                # The statements are planned, and their plans kept, when the ledger is still small.
                for sql in GROW:
                    server.query(sql)
        await resource.close()  # A session that ends has told the server what it has read.
        written = 1 + (half + 1) * BATCHES * BATCH + half * ROWS

        def told(written: int = written) -> Any:
            row = server.query(READ)[0]
            return row if row["written"] >= written else None

        counted.append(int(eventually(told, within_s=30, what=f"{written} rows told of")["rows"]))
    return counted[1] - counted[0]


BOUND = ROWS
"""One reading of the whole ledger. Its own come to half of that where lanes forget, and else to a hundred."""

FREE, LANE_EACH, FEW_LANES = 0, BATCH, 4
WAYS = [(dedupe, lanes) for dedupe in Dedupe for lanes in (FREE, LANE_EACH, FEW_LANES)]


@pytest.mark.parametrize(("dedupe", "lanes"), WAYS)
async def test_a_batch_reads_what_is_its_own_of_a_ledger_that_nobody_has_counted(
    postgres: PostgresServer, dedupe: Dedupe, lanes: int
) -> None:
    assert await rows_read(postgres, dedupe, lanes) < BOUND


@pytest.mark.parametrize(
    ("name", "before", "after", "way"),
    [
        ("READ_OPERATIONS", " OFFSET 0", " AND resource = $2", (Dedupe.TABLE, FREE)),
        ("READ_KNOWN", "$1::text[]) OFFSET 0", "$1::text[]) AND resource = $2", (Dedupe.TABLE, FEW_LANES)),
        (
            "READ_KNOWN",
            " AND lanes.lane = wanted.lane OFFSET 0\n        ) AS mark",
            " OFFSET 0) AS mark WHERE mark.lane = wanted.lane",
            (Dedupe.TABLE, LANE_EACH),
        ),
        ("LOCK_FENCE", f", {postgres_tables.ONLY_BY_INDEX}", "", (Dedupe.TABLE, FREE)),
        ("LOCK_FENCE", f", {postgres_tables.ONLY_BY_INDEX}", "", (Dedupe.ORDERED_LANE, FEW_LANES)),
        ("FORGET_LANES", "cut AS MATERIALIZED", "cut AS", (Dedupe.ORDERED_LANE, FEW_LANES)),
    ],
)
async def test_the_count_tells_a_plan_that_reads_the_whole_ledger(
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    before: str,
    after: str,
    way: tuple[Dedupe, int],
) -> None:
    sql = getattr(postgres_tables, name)
    if before not in sql:
        pytest.fail(f"{before!r} is not in {name}")
    monkeypatch.setattr(resource_module, name, sql.replace(before, after))
    assert await rows_read(postgres, *way) > BOUND


@pytest.mark.parametrize("setting", ["on", "off"])
@pytest.mark.parametrize("lane", ["", "k"])
async def test_effects_are_planned_as_their_session_says(postgres: PostgresServer, setting: str, lane: str) -> None:
    effects = {
        "credit": "INSERT INTO entries (ledger, operation, cents) "
        "VALUES (current_setting('enable_seqscan'), :operation_id, 1)"
    }
    url = f"{postgres.url}{'&' if '?' in postgres.url else '?'}options=-c%20enable_seqscan%3D{setting}"
    resource = PostgresSubject(postgres).node(effects=effects, url=url)
    await resource.open()
    for index in range(1, 4):
        (outcome,) = await resource.execute(token(1), "n1", [attempt(f"op{index}", index, lane=lane)])
        assert outcome.status is AttemptStatus.SUCCEEDED, outcome.error
    await resource.close()
    rows = postgres.query("SELECT ledger, operation FROM entries ORDER BY place")
    assert [(row["ledger"], row["operation"]) for row in rows] == [(setting, f"op{index}") for index in range(1, 4)]
