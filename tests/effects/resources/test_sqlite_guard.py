"""Writes to a guarded database beside fencepost: seen, counted, refused (requirements 103, 110, 112)."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fencepost.raft.core.errors import ConfigurationError, ModeRefused, ResourceUnavailable, StaleLeader
from fencepost.raft.effects.modes import FenceMode, ModalResource, ModeReport
from fencepost.raft.effects.resources import sqlite_connection
from fencepost.raft.effects.resources.sqlite import SqliteEffect, SqliteResource
from fencepost.raft.effects.resources.sqlite_guard import Guard
from fencepost.raft.ports import AttemptStatus

from .subjects import attempt_of, token

S = 1_000_000_000
DAY = 86_400 * S
SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (account, cents);
CREATE TABLE IF NOT EXISTS totals (account PRIMARY KEY, cents);
CREATE TABLE IF NOT EXISTS notes (text);
CREATE TRIGGER IF NOT EXISTS add_up AFTER INSERT ON entries BEGIN
    INSERT INTO totals VALUES (NEW.account, NEW.cents)
        ON CONFLICT (account) DO UPDATE SET cents = cents + excluded.cents;
END;
"""


class Ledger:
    """A resource, and other programs that reach the same file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now_ns = 100 * DAY
        self.resource = self.node()
        self.opened = [self.resource]
        self.index = 0

    def node(self, schema: str = SCHEMA) -> SqliteResource:
        effects = {"credit": SqliteEffect("INSERT INTO entries VALUES (:account, :cents)")}
        return SqliteResource(
            "ledger", self.path, effects, cluster_id="c", schema=schema, busy_timeout_ms=50, time_ns=lambda: self.now_ns
        )

    async def credit(self, term: int = 1) -> AttemptStatus:
        self.index += 1
        attempt = attempt_of({"account": "a", "cents": 1}, f"op{self.index}", self.index)
        (outcome,) = await self.resource.execute(token(term), f"n{term}", [attempt])
        return AttemptStatus(outcome.status)

    async def to(self, mode: FenceMode, *, term: int = 1, quiet_ns: int = 0) -> ModeReport:
        return await self.resource.set_mode(token(term), f"n{term}", mode, quiet_ns)

    def beside(self, sql: str) -> list[Any]:
        """Another program, one that knows nothing of fencepost."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(sql).fetchall()


@pytest_asyncio.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    made = Ledger(tmp_path / "ledger.db")
    await made.resource.open()
    await made.resource.claim(token(1), "n1")
    yield made
    for resource in made.opened:
        await resource.close()


async def test_off_nobody_looks(ledger: Ledger) -> None:
    assert isinstance(ledger.resource, ModalResource)
    assert (await ledger.resource.mode()).mode is FenceMode.OFF
    ledger.beside("INSERT INTO entries VALUES ('x', 1)")
    await ledger.credit()
    assert ledger.beside("SELECT name FROM sqlite_schema WHERE name LIKE 'fencepost_guard%'") == []
    assert (await ledger.resource.mode()).unfenced == 0


async def test_observing_applies_and_counts_what_shows_no_token_row_by_row(ledger: Ledger) -> None:
    report = await ledger.to(FenceMode.OBSERVE)
    assert (report.mode, report.guarded, report.unguarded) == (FenceMode.OBSERVE, ["entries", "totals"], [])
    for _ in range(3):
        assert await ledger.credit() is AttemptStatus.SUCCEEDED
    assert (await ledger.resource.mode()).unfenced == 0
    ledger.beside("INSERT INTO notes VALUES ('not ours')")
    assert (await ledger.resource.mode()).unfenced == 0
    ledger.beside("INSERT INTO totals VALUES ('x', 1), ('y', 2)")
    ledger.beside("UPDATE totals SET cents = 5 WHERE account = 'x'")
    ledger.beside("DELETE FROM totals WHERE account IN ('x', 'y')")
    report = await ledger.resource.mode()
    assert (report.unfenced, report.would_reject) == (5, 5)
    assert report.last_unfenced_ns > 0
    # What a trigger of the application writes along counts as well: it shows no token either.
    ledger.beside("INSERT INTO entries VALUES ('z', 1)")
    assert (await ledger.resource.mode()).unfenced == 7
    await ledger.credit()
    assert ledger.resource.mode_seen.unfenced == 7
    assert ledger.beside("SELECT cents FROM totals WHERE account = 'a'") == [(4,)]


async def test_enforcing_refuses_what_shows_no_token_and_nothing_else(ledger: Ledger) -> None:
    await ledger.to(FenceMode.OBSERVE)
    await ledger.to(FenceMode.ENFORCE)
    for sql in (
        "INSERT INTO entries VALUES ('x', 1)",
        "REPLACE INTO totals VALUES ('a', 9)",
        "UPDATE totals SET cents = 9",
        "DELETE FROM entries",
    ):
        assert await ledger.credit() is AttemptStatus.SUCCEEDED
        with pytest.raises(sqlite3.IntegrityError, match="a write without a token: resource ledger enforces"):
            ledger.beside(sql)
    ledger.beside("INSERT INTO notes VALUES ('not ours')")
    assert ledger.beside("SELECT cents FROM totals") == [(4,)]
    # And a stale leader is what it always was.
    await ledger.resource.claim(token(2), "n2")
    with pytest.raises(StaleLeader):
        await ledger.credit(term=1)


async def test_the_pass_is_seen_by_nobody_else_and_never_stays(ledger: Ledger) -> None:
    await ledger.to(FenceMode.OBSERVE)
    guard = Guard("ledger")
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as inside:
        inside.execute("BEGIN IMMEDIATE")
        assert guard.enter(inside, frozenset({"entries"}))
        assert inside.execute("SELECT count(*) FROM fencepost_pass").fetchone() == (1,)
        assert ledger.beside("SELECT count(*) FROM fencepost_pass") == [(0,)]
        inside.execute("ROLLBACK")
    await ledger.credit()
    await ledger.resource.claim(token(2), "n2")
    assert ledger.beside("SELECT count(*) FROM fencepost_pass") == [(0,)]


async def test_one_step_at_a_time_and_none_back(ledger: Ledger) -> None:
    with pytest.raises(ModeRefused, match="nobody knows yet"):
        await ledger.to(FenceMode.ENFORCE)
    await ledger.to(FenceMode.OBSERVE)
    with pytest.raises(ModeRefused, match="observed for only 0 s, and 86400 s"):
        await ledger.to(FenceMode.ENFORCE, quiet_ns=DAY)
    ledger.beside("INSERT INTO entries VALUES ('x', 1)")
    (last_ns,) = ledger.beside("SELECT last_unfenced_ns FROM fencepost_modes")[0]
    ledger.now_ns = last_ns + DAY // 2
    with pytest.raises(ModeRefused, match="the last write without a token was 43200 s ago"):
        await ledger.to(FenceMode.ENFORCE, quiet_ns=DAY)
    ledger.now_ns = last_ns + DAY
    assert (await ledger.to(FenceMode.ENFORCE, quiet_ns=DAY)).mode is FenceMode.ENFORCE
    for back in (FenceMode.OBSERVE, FenceMode.OFF):
        with pytest.raises(ModeRefused, match="no way back"):
            await ledger.to(back)
    assert (await ledger.to(FenceMode.ENFORCE)).mode is FenceMode.ENFORCE
    for sql in ("UPDATE fencepost_modes SET mode = 'observe'", "DELETE FROM fencepost_modes"):
        with pytest.raises(sqlite3.IntegrityError, match="never goes back"):
            ledger.beside(sql)


async def test_only_who_holds_the_fence_changes_the_mode(ledger: Ledger) -> None:
    await ledger.resource.claim(token(2), "n2")
    with pytest.raises(StaleLeader):
        await ledger.to(FenceMode.OBSERVE, term=1)
    assert (await ledger.resource.mode()).mode is FenceMode.OFF
    assert ledger.beside("SELECT count(*) FROM fencepost_refusals") == [(1,)]
    assert (await ledger.to(FenceMode.OBSERVE, term=2)).mode is FenceMode.OBSERVE


async def test_a_table_that_was_made_anew_has_its_guards_back_at_the_next_claim(ledger: Ledger) -> None:
    await ledger.to(FenceMode.OBSERVE)
    ledger.beside("DROP TABLE entries")
    ledger.beside("CREATE TABLE entries (account, cents)")
    ledger.beside("INSERT INTO entries VALUES ('x', 1)")
    report = await ledger.resource.mode()
    assert (report.unfenced, report.unguarded) == (0, ["entries"])
    await ledger.resource.claim(token(2), "n2")
    ledger.beside("INSERT INTO entries VALUES ('x', 1)")
    report = await ledger.resource.mode()
    assert (report.unfenced, report.unguarded) == (1, [])


async def test_a_schema_that_puts_rows_in_is_told_what_it_does(ledger: Ledger) -> None:
    await ledger.to(FenceMode.OBSERVE)
    await ledger.to(FenceMode.ENFORCE)
    seeding = ledger.node(SCHEMA + "INSERT OR IGNORE INTO totals VALUES ('a', 0);")
    ledger.opened.append(seeding)
    with pytest.raises(ConfigurationError, match="its schema writes rows without a token"):
        await seeding.open()


async def test_an_older_version_does_not_open_what_it_would_be_refused_in(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ledger.to(FenceMode.OBSERVE)
    monkeypatch.setattr(sqlite_connection, "GUARD_FORMAT", 1)
    older = ledger.node()
    ledger.opened.append(older)
    with pytest.raises(Exception, match="tables of format 2; this version knows 1"):
        await older.open()


async def test_a_file_put_back_is_claimed_before_its_mode_is_changed(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.credit()
    with closing(sqlite3.connect(ledger.path)) as old, closing(sqlite3.connect(tmp_path / "copy")) as new:
        old.backup(new)
    (tmp_path / "copy").rename(ledger.path)
    with pytest.raises(ResourceUnavailable):
        await ledger.to(FenceMode.OBSERVE)  # Finds that it is another file,
    with pytest.raises(ResourceUnavailable, match="not been claimed since"):
        await ledger.to(FenceMode.OBSERVE)  # and then that nobody has claimed it.
    await ledger.resource.claim(token(2), "n2")
    assert (await ledger.to(FenceMode.OBSERVE, term=2)).mode is FenceMode.OBSERVE
