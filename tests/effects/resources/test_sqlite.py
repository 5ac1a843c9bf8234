"""What is SQLite's own: statements, transactions that fail in parts, files that go away."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fencepost.raft.core.errors import (
    ConfigurationError,
    Outcome,
    ResourceUnavailable,
    StaleLeader,
    StorageFormatUnknown,
)
from fencepost.raft.effects.resources.audit import check_ledger, read_ledger
from fencepost.raft.effects.resources.sqlite import SqliteEffect, SqliteResource
from fencepost.raft.ports import AttemptOutcome, AttemptStatus, Fence

from .subjects import attempt_of, token

SUCCEEDED = AttemptStatus.SUCCEEDED
FAILED = AttemptStatus.FAILED
NOT_ATTEMPTED = AttemptStatus.NOT_ATTEMPTED

TABLE = "CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY, account TEXT UNIQUE, cents CHECK (cents <> 13));"
INSERT = "INSERT INTO entries (account, cents) VALUES (:account, :cents)"

Open = Callable[..., Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest_asyncio.fixture
async def open_ledger(path: Path) -> AsyncIterator[Open]:
    """Opens a resource with one effect ``run`` of the given SQL; all are closed at the end."""
    opened: list[SqliteResource] = []

    async def make(sql: str = INSERT, *, schema: str = TABLE, think_ns: int = 0, **options: Any) -> SqliteResource:
        effects = options.pop("effects", {"run": SqliteEffect(sql, think_ns)})
        options.setdefault("busy_timeout_ms", 50)
        resource = SqliteResource(
            "ledger", options.pop("path", path), effects, cluster_id="cluster", schema=schema, **options
        )
        opened.append(resource)
        await resource.open()
        return resource

    yield make
    for resource in opened:
        await resource.close()
    if path.exists():
        assert check_ledger(read_ledger(path)) == []


async def run(resource: SqliteResource, *payloads: Any, start: int = 1, lane: str = "") -> list[AttemptOutcome]:
    """Executes one attempt a payload under token 1, with ids a1, a2 …"""
    batch = [
        attempt_of(payload, f"a{index}", index, lane=lane, effect="run")
        for index, payload in enumerate(payloads, start)
    ]
    return await resource.execute(token(1), "n1", batch)


def query(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def write(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(sql)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


# -- parameters and results ---------------------------------------------------------------------------


async def test_keys_of_the_payload_are_bound_by_name(open_ledger: Open, path: Path) -> None:
    resource = await open_ledger()
    (outcome,) = await run(resource, {"account": "alice", "cents": 5, "unused": True})
    assert outcome == AttemptOutcome(SUCCEEDED, b'{"rows":1}', "", False)
    assert query(path, "SELECT account, cents FROM entries") == [("alice", 5)]


@pytest.mark.parametrize(
    ("value", "bound"),
    [
        (5, 5),
        (-(1 << 63), -(1 << 63)),
        (1.5, 1.5),
        ("ü", "ü"),
        (None, None),
        (True, 1),
        ([1, {"b": 2, "a": 1}], '[1,{"a":1,"b":2}]'),
        ({"k": "ü"}, '{"k":"ü"}'),
    ],
)
async def test_what_a_value_is_bound_as(open_ledger: Open, path: Path, value: Any, bound: Any) -> None:
    resource = await open_ledger()
    (outcome,) = await run(resource, {"account": "a", "cents": value})
    assert outcome.status is SUCCEEDED
    assert query(path, "SELECT cents FROM entries") == [(bound,)]


async def test_parameters_of_fencepost_win_over_the_payload(open_ledger: Open) -> None:
    resource = await open_ledger("SELECT :operation_id AS o, :lane AS l, :log_index AS i, :payload AS p")
    payload = {"operation_id": "x", "lane": "x", "log_index": 0, "payload": "x"}
    (outcome,) = await run(resource, payload, start=7, lane="k")
    assert json.loads(outcome.result) == {"o": "a7", "l": "k", "i": 7, "p": json.dumps(payload)}


async def test_a_payload_that_is_no_json_can_be_stored_whole(open_ledger: Open) -> None:
    resource = await open_ledger("SELECT typeof(:payload) AS kind")
    text, blob = await run(resource, b"no json", b"\xff\x00")
    assert (text.result, blob.result) == (b'{"kind":"text"}', b'{"kind":"blob"}')


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"cents": 1}, r"no 'account', which the SQL needs as :account \(it has cents\)"),
        ({}, "it has no keys"),
        (["account"], "no object: list"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        ({"account": "a", "cents": 1 << 63}, "does not fit into 64 bits"),
        ({"account": "a", "cents": 10**30}, "64 bits"),
        ({"account": "a", "cents": 13}, "CHECK constraint"),
    ],
)
async def test_a_payload_that_does_not_fit_fails_for_good_and_alone(
    open_ledger: Open, path: Path, payload: Any, why: str
) -> None:
    resource = await open_ledger()
    before, outcome, after = await run(resource, {"account": "b", "cents": 1}, payload, {"account": "c", "cents": 1})
    assert (before.status, outcome.status, after.status) == (SUCCEEDED, FAILED, SUCCEEDED)
    assert re.search(why, outcome.error)
    assert query(path, "SELECT account FROM entries") == [("b",), ("c",)]


@pytest.mark.parametrize(
    ("sql", "result"),
    [
        ("INSERT INTO entries (account) VALUES ('x') RETURNING id, account", {"id": 3, "account": "x"}),
        ("UPDATE entries SET cents = 9", {"rows": 2}),
        ("UPDATE entries SET cents = 9 WHERE account = 'nobody'", {"rows": 0}),
        ("UPDATE entries SET cents = 9 WHERE account = 'nobody' RETURNING id", {"rows": 0}),
        ("UPDATE entries SET cents = 9 RETURNING account", [{"account": "a"}, {"account": "b"}]),
        ("SELECT x'00ff' AS blob, 1.5 AS f, NULL AS n", {"blob": "AP8=", "f": 1.5, "n": None}),
        ("WITH x AS (SELECT 1) DELETE FROM entries WHERE account = 'a'", {"rows": 1}),
    ],
)
async def test_results(open_ledger: Open, sql: str, result: Any) -> None:
    resource = await open_ledger(sql, schema=f"{TABLE} INSERT OR IGNORE INTO entries (account) VALUES ('a'), ('b');")
    (outcome,) = await run(resource, {})
    assert json.loads(outcome.result) == result


async def test_a_result_that_is_too_large_undoes_its_effect(open_ledger: Open, path: Path) -> None:
    resource = await open_ledger("INSERT INTO entries (account) VALUES (:account) RETURNING hex(zeroblob(:size)) AS h")
    large, small = await run(resource, {"account": "a", "size": 40_000}, {"account": "b", "size": 4})
    assert (large.status, small.status) == (FAILED, SUCCEEDED)
    assert query(path, "SELECT account FROM entries") == [("b",)]


# -- what open() says -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("INSRT INTO entries VALUES (1)", "must be one statement that starts with"),
        ("INSERT INTO entries VALUES (:a", "incomplete input"),
        ("INSERT INTO entries (account) VALUES (:a); DELETE FROM entries", "more than one statement"),
        ("INSERT INTO entries (account) VALUES (?)", "must have names"),
        ("COMMIT", "must be one statement that starts with"),
        ("/* INSERT */ PRAGMA foreign_keys = ON", "must be one statement that starts with"),
        ("", "must be one statement that starts with"),
        ("DELETE FROM fencepost_operations", "table of fencepost's own"),
        ("UPDATE Fencepost_Fence SET term = 0", "table of fencepost's own"),
        ("SELECT unheard_of(:a)", "no such function"),
    ],
)
async def test_sql_that_can_never_work_is_refused_at_open(open_ledger: Open, sql: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        await open_ledger(sql)
    assert "'ledger'" in caught.value.message
    assert "'run'" in caught.value.message
    assert "resources.ledger.effects.run" in caught.value.next_step


async def test_a_comment_before_the_statement_is_fine(open_ledger: Open) -> None:
    await open_ledger(f"-- adds\n  /* an entry */ {INSERT} -- done")


async def test_missing_directory(open_ledger: Open, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"directory .*nowhere does not exist"):
        await open_ledger(path=tmp_path / "nowhere" / "ledger.db")


async def test_a_file_that_is_no_database_is_left_as_it_is(open_ledger: Open, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("these are my notes, and they are long enough to be looked at\n" * 40)
    before = other.read_bytes()
    with pytest.raises(ConfigurationError, match="not a SQLite database"):
        await open_ledger(path=other)
    assert other.read_bytes() == before


async def test_schema_that_fails(open_ledger: Open) -> None:
    with pytest.raises(ConfigurationError, match=r"schema fails: .*syntax error"):
        await open_ledger(schema="CREATE TABEL entries (a)")


async def test_schema_runs_at_every_open(open_ledger: Open, path: Path) -> None:
    for _ in range(3):
        await (await open_ledger()).close()
    assert query(path, "SELECT count(*) FROM entries") == [(0,)]


async def test_tables_of_a_later_version_are_left_alone(open_ledger: Open, path: Path) -> None:
    await (await open_ledger()).close()
    write(path, "UPDATE fencepost_format SET version = 3")
    with pytest.raises(StorageFormatUnknown, match="format 3"):
        await open_ledger()


async def test_many_nodes_open_a_new_file_at_once(open_ledger: Open) -> None:
    resources = await asyncio.gather(*(open_ledger(busy_timeout_ms=5_000) for _ in range(5)))
    assert [await resource.fence() for resource in resources] == [None] * 5


async def test_it_is_durable_and_readable_beside_the_writer(open_ledger: Open, path: Path) -> None:
    resource = await open_ledger("SELECT (SELECT synchronous FROM pragma_synchronous) AS s")
    (outcome,) = await run(resource, {})
    assert outcome.result == b'{"s":2}', "an acknowledged effect must survive a power cut"
    assert query(path, "PRAGMA journal_mode") == [("wal",)]


def test_no_cluster_no_fence(path: Path) -> None:
    with pytest.raises(ConfigurationError):
        SqliteResource("ledger", path, {}, cluster_id="")


# -- tables that are not there ----------------------------------------------------------------------------


async def test_commands_wait_for_a_table_that_comes_later(open_ledger: Open, path: Path) -> None:
    resource = await open_ledger(schema="")
    waiting, behind = await run(resource, {"account": "a", "cents": 1}, {"account": "b", "cents": 1}, lane="k")
    assert waiting == AttemptOutcome(NOT_ATTEMPTED, b"", "no such table: entries", False)
    assert behind.status is NOT_ATTEMPTED
    write(path, TABLE)
    outcomes = await run(resource, {"account": "a", "cents": 1}, {"account": "b", "cents": 1}, lane="k")
    assert [outcome.status for outcome in outcomes] == [SUCCEEDED, SUCCEEDED]
    assert query(path, "SELECT account FROM entries") == [("a",), ("b",)]


async def test_commands_wait_for_a_table_that_was_dropped(open_ledger: Open, path: Path) -> None:
    resource = await open_ledger()
    await run(resource, {"account": "a", "cents": 1})
    write(path, "DROP TABLE entries")
    (waiting,) = await run(resource, {"account": "b", "cents": 1}, start=2)
    assert (waiting.status, waiting.error) == (NOT_ATTEMPTED, "no such table: entries")
    write(path, TABLE)
    (done,) = await run(resource, {"account": "b", "cents": 1}, start=2)
    assert done.status is SUCCEEDED


async def test_a_statement_that_fails_on_its_data_does_not_wait(open_ledger: Open) -> None:
    resource = await open_ledger("INSERT INTO entries (account) VALUES (json_extract(:text, '$.a'))")
    (outcome,) = await run(resource, {"text": "{"})
    assert (outcome.status, outcome.error) == (FAILED, "malformed JSON")


# -- transactions that fail in parts ----------------------------------------------------------------------


@pytest.mark.parametrize("conflict", ["ABORT", "FAIL", "ROLLBACK"])
async def test_each_attempt_fails_alone_whatever_it_does_to_the_transaction(
    open_ledger: Open, path: Path, conflict: str
) -> None:
    """FAIL leaves half a statement behind, ROLLBACK takes fence and neighbours along."""
    sql = f"INSERT OR {conflict} INTO entries (account, cents) SELECT value, 1 FROM json_each(:accounts)"
    resource = await open_ledger(sql)
    batches = [["a"], ["b", "a", "c"], ["d"], ["a"], ["e"]]
    outcomes = await run(resource, *({"accounts": accounts} for accounts in batches))
    assert [outcome.status for outcome in outcomes] == [SUCCEEDED, FAILED, SUCCEEDED, FAILED, SUCCEEDED]
    assert "UNIQUE constraint" in outcomes[1].error
    assert query(path, "SELECT account FROM entries") == [("a",), ("d",), ("e",)]
    assert [each.operation_id for each in read_ledger(path).operations] == ["a1", "a3", "a5"]
    assert await resource.fence() == Fence(token(1), "n1")


async def test_a_trigger_that_rolls_back(open_ledger: Open, path: Path) -> None:
    trigger = """CREATE TRIGGER IF NOT EXISTS no_debt BEFORE INSERT ON entries WHEN new.cents < 0
        BEGIN SELECT RAISE(ROLLBACK, 'no debts'); END;"""
    resource = await open_ledger(schema=TABLE + trigger)
    outcomes = await run(resource, *({"account": str(cents), "cents": cents} for cents in (1, -1, 2, -2)))
    assert [outcome.error for outcome in outcomes] == ["", "no debts", "", "no debts"]
    assert query(path, "SELECT cents FROM entries") == [(1,), (2,)]


async def test_a_constraint_that_speaks_up_at_commit(open_ledger: Open, path: Path) -> None:
    schema = """PRAGMA foreign_keys = ON; CREATE TABLE IF NOT EXISTS accounts (name PRIMARY KEY);
        INSERT OR IGNORE INTO accounts VALUES ('a');
        CREATE TABLE IF NOT EXISTS postings (account REFERENCES accounts DEFERRABLE INITIALLY DEFERRED);"""
    resource = await open_ledger("INSERT INTO postings VALUES (:account)", schema=schema)
    outcomes = await run(resource, {"account": "a"}, {"account": "nobody"}, {"account": "a"}, lane="k")
    assert [outcome.status for outcome in outcomes] == [SUCCEEDED, FAILED, NOT_ATTEMPTED]
    assert "FOREIGN KEY" in outcomes[1].error
    assert query(path, "SELECT account FROM postings") == [("a",)]


async def test_disk_full_applies_nothing_and_recovers(open_ledger: Open, path: Path) -> None:
    resource = await open_ledger()
    await run(resource, {"account": "first", "cents": 1})
    (pages,) = query(path, "PRAGMA page_count")[0]
    await resource.close()
    full = await open_ledger(schema=f"PRAGMA max_page_count = {pages}")
    with pytest.raises(ResourceUnavailable, match="full") as caught:
        await run(full, {"account": "second", "cents": "x" * 100_000}, start=2)
    assert caught.value.outcome is Outcome.RETRY
    await full.close()
    assert [each.operation_id for each in read_ledger(path).operations] == ["a1"]
    assert query(path, "SELECT account FROM entries") == [("first",)]
    (outcome,) = await run(await open_ledger(), {"account": "second", "cents": "x" * 100_000}, start=2)
    assert outcome.status is SUCCEEDED


# -- files and locks --------------------------------------------------------------------------------------


async def test_a_lock_of_somebody_else_is_waited_for_and_then_reported(open_ledger: Open, path: Path) -> None:
    resource = await open_ledger()
    with locked(path):
        for call in (lambda: run(resource, {"account": "a", "cents": 1}), lambda: resource.claim(token(1), "n1")):
            with pytest.raises(ResourceUnavailable, match="no write lock after 50 ms") as caught:
                await call()
            assert caught.value.outcome is Outcome.RETRY
        assert await resource.fence() is None, "reading needs no lock"
    (outcome,) = await run(resource, {"account": "a", "cents": 1})
    assert outcome.status is SUCCEEDED


async def test_a_lock_while_opening(open_ledger: Open, path: Path) -> None:
    await (await open_ledger()).close()
    with locked(path), pytest.raises(ResourceUnavailable):
        await open_ledger()


async def test_a_file_moved_away_is_not_made_anew(open_ledger: Open, path: Path) -> None:
    """An empty ledger would have forgotten its fence: it lives and dies with the data."""
    resource = await open_ledger()
    await resource.claim(token(5), "n1")
    away = path.with_name("away.db")
    os.rename(path, away)
    for _ in range(2):
        with pytest.raises(ResourceUnavailable):
            await resource.execute(token(5), "n1", [attempt_of({"account": "a", "cents": 1}, effect="run")])
        with pytest.raises(ResourceUnavailable):
            await resource.claim(token(5), "n1")
        with pytest.raises(ResourceUnavailable):
            await resource.fence()
        assert not path.exists()
    os.rename(away, path)
    (outcome,) = await resource.execute(token(5), "n1", [attempt_of({"account": "a", "cents": 1}, effect="run")])
    assert outcome.status is SUCCEEDED
    assert query(path, "SELECT account FROM entries") == [("a",)]


async def test_a_file_replaced_by_its_backup_must_be_claimed_first(open_ledger: Open, path: Path) -> None:
    resource = await open_ledger()
    await resource.claim(token(1), "n1")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(path.with_name("backup.db"))) as backup:
        source.backup(backup)
    await run(resource, {"account": "a", "cents": 1})
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    os.replace(path.with_name("backup.db"), path)
    for _ in range(2):
        with pytest.raises(ResourceUnavailable, match=r"no longer the file|has not been claimed"):
            await run(resource, {"account": "b", "cents": 1}, start=2)
    assert await resource.claim(token(2), "n1") == Fence(token(1), "n1")
    (outcome,) = await resource.execute(
        token(2), "n1", [attempt_of({"account": "b", "cents": 1}, "a2", 2, effect="run")]
    )
    assert outcome.status is SUCCEEDED


async def test_a_file_put_back_in_place_must_be_claimed_first(open_ledger: Open, path: Path) -> None:
    """`.restore` of the sqlite3 shell writes into the file that is there: the same file, and an old fence."""
    resource = await open_ledger()
    await resource.claim(token(1), "n1")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(path.with_name("backup.db"))) as backup:
        source.backup(backup)
        await resource.claim(token(2), "n1")
        backup.backup(source)
    with pytest.raises(ResourceUnavailable, match="put back to an earlier state"):
        await resource.execute(token(2), "n1", [attempt_of({"account": "a", "cents": 1}, effect="run")])
    assert await resource.claim(token(2), "n1") == Fence(token(1), "n1")
    (outcome,) = await resource.execute(token(2), "n1", [attempt_of({"account": "a", "cents": 1}, effect="run")])
    assert outcome.status is SUCCEEDED


async def test_a_file_overwritten_with_garbage(open_ledger: Open, path: Path) -> None:
    resource = await open_ledger()
    await resource.close()
    path.write_bytes(b"garbage" * 1000)
    with pytest.raises(ConfigurationError):
        await resource.open()
    path.unlink()


async def test_reopening_after_close_does_not_create(open_ledger: Open, path: Path) -> None:
    resource = await open_ledger()
    await resource.close()
    for each in path.parent.iterdir():
        each.unlink()
    with pytest.raises(ResourceUnavailable):
        await resource.open()
    assert not path.exists()


async def test_closed_is_closed(open_ledger: Open) -> None:
    resource = await open_ledger()
    await resource.close()
    await resource.close()
    for call in (resource.fence(), resource.claim(token(1), "n1"), run(resource, {})):
        with pytest.raises(ResourceUnavailable, match="not open"):
            await call


async def test_a_batch_beyond_the_limit_is_a_bug_of_the_caller(open_ledger: Open) -> None:
    resource = await open_ledger(batch_limit=2)
    with pytest.raises(AssertionError):
        await run(resource, {}, {}, {})


# -- the pause and the thread -----------------------------------------------------------------------------


async def test_a_leader_that_sleeps_in_its_effect_is_refused_when_it_wakes(open_ledger: Open, path: Path) -> None:
    """S47, the demonstration: the pause holds no lock, and a newer leader passes in it."""
    newer = await open_ledger()
    loop = asyncio.get_running_loop()

    def frozen(seconds: float) -> None:
        assert seconds == 2.0
        asyncio.run_coroutine_threadsafe(newer.claim(token(2), "n2"), loop).result()
        batch = [attempt_of({"account": "a", "cents": 1}, "a1", 1, effect="run")]
        asyncio.run_coroutine_threadsafe(newer.execute(token(2), "n2", batch), loop).result()

    old = await open_ledger(think_ns=2_000_000_000, pause=frozen)
    await old.claim(token(1), "n1")
    with pytest.raises(StaleLeader):
        await run(old, {"account": "a", "cents": 1})
    assert query(path, "SELECT account FROM entries") == [("a",)]
    (refusal,) = read_ledger(path).refusals
    assert (refusal.token, refusal.operations) == (token(1), ["a1"])


async def test_one_pause_a_batch_and_the_longest(open_ledger: Open) -> None:
    pauses: list[float] = []
    effects = {
        "run": SqliteEffect(INSERT, 1_000_000_000),
        "slow": SqliteEffect(INSERT, 3_000_000_000),
        "none": SqliteEffect(INSERT),
    }
    resource = await open_ledger(effects=effects, pause=pauses.append)
    batch = [
        attempt_of({"account": str(index), "cents": 1}, f"a{index}", index, effect=effect)
        for index, effect in enumerate(["run", "slow", "none", "run"], 1)
    ]
    await resource.execute(token(1), "n1", batch)
    await resource.execute(token(1), "n1", [attempt_of({"account": "x", "cents": 1}, "x", 9, effect="none")])
    assert pauses == [3.0]


async def test_each_resource_blocks_only_its_own_thread(open_ledger: Open, tmp_path: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()
    names: list[str] = []

    def block(_: float) -> None:
        names.append(threading.current_thread().name)
        entered.set()
        assert go_on.wait(30)

    slow = await open_ledger(think_ns=1, pause=block)
    other = await open_ledger(path=tmp_path / "other.db")
    under_way = asyncio.ensure_future(run(slow, {"account": "a", "cents": 1}))
    await asyncio.get_running_loop().run_in_executor(None, entered.wait, 30)
    (outcome,) = await run(other, {"account": "a", "cents": 1})
    assert outcome.status is SUCCEEDED
    assert not under_way.done()
    go_on.set()
    await under_way
    assert names[0].startswith("resource-ledger")


async def test_a_cancelled_wait_leaves_no_half_effect(open_ledger: Open, path: Path) -> None:
    """Authority is lost while an effect is under way: it ends whole, and the ledger knows it."""
    entered, go_on = threading.Event(), threading.Event()

    def block(_: float) -> None:
        entered.set()
        assert go_on.wait(30)

    resource = await open_ledger(think_ns=1, pause=block)
    under_way = asyncio.ensure_future(run(resource, {"account": "a", "cents": 1}))
    await asyncio.get_running_loop().run_in_executor(None, entered.wait, 30)
    under_way.cancel()
    with pytest.raises(asyncio.CancelledError):
        await under_way
    go_on.set()
    (outcome,) = await run(resource, {"account": "a", "cents": 1})
    assert outcome.replayed
    assert query(path, "SELECT account FROM entries") == [("a",)]


async def test_a_refusal_stands_even_if_it_cannot_be_recorded(open_ledger: Open, path: Path) -> None:
    resource = await open_ledger()
    await resource.claim(token(5), "n1")
    write(path, "DROP TABLE fencepost_refusals; CREATE TABLE fencepost_refusals (other);")
    with pytest.raises(StaleLeader):
        await run(resource, {"account": "a", "cents": 1})
    await resource.close()
    path.unlink()
