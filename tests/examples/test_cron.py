"""examples/cron: each tick once, in order, none missing, whoever leads and dies."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import eventually, eventually_async

from .programs import copied, module, running


def ticks(place: Path) -> int:
    """How many were fired."""
    file = place / "runs.db"
    if not file.exists():
        return 0
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5)) as database:
        try:
            return int(database.execute("SELECT count(*) FROM runs").fetchone()[0])
        except sqlite3.OperationalError:  # The table is not there yet.
            return 0


@pytest.mark.endure  # In every run the examples page kills the leader of the same program.
async def test_ticks_are_fired_once_while_leaders_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = copied("cron", tmp_path)
    monkeypatch.chdir(place)
    cron: Any = module(place / "cron.py")
    serving = {name: asyncio.create_task(cron.serve(name)) for name in cron.PEERS}

    async def fired(number: int) -> None:
        async def look() -> bool:
            assert not any(task.done() for task in serving.values()), serving
            return ticks(place) >= number

        await eventually_async(look, within_s=30, what=f"{number} ticks")

    try:
        await fired(4)
        for name in ("n1", "n2", "n3"):  # One of them leads, and then another one.
            leaving = serving.pop(name)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            await fired(ticks(place) + 4)
            serving[name] = asyncio.create_task(cron.serve(name))
        assert "each once, in order, none missing" in cron.check()
    finally:
        for task in serving.values():
            task.cancel()
        await asyncio.gather(*serving.values(), return_exceptions=True)


def test_the_check_finds_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = copied("cron", tmp_path)
    monkeypatch.chdir(place)
    cron: Any = module(place / "cron.py")
    with closing(sqlite3.connect("runs.db")) as database, database:
        database.execute("CREATE TABLE runs(schedule TEXT, tick INTEGER)")
        database.executemany("INSERT INTO runs VALUES (?, ?)", [("report", 1), ("report", 2), ("backup", 1)])
    assert cron.check().startswith("3 ticks")
    for wrong in (("report", 2), ("report", 4)):
        with closing(sqlite3.connect("runs.db")) as database, database:
            database.execute("INSERT INTO runs VALUES (?, ?)", wrong)
        with pytest.raises(AssertionError, match="report"):
            cron.check()
        with closing(sqlite3.connect("runs.db")) as database, database:
            database.execute("DELETE FROM runs WHERE rowid = (SELECT max(rowid) FROM runs)")


@pytest.mark.endure
def test_ticks_are_fired_once_while_leaders_are_killed(tmp_path: Path) -> None:
    place = copied("cron", tmp_path)
    names = ("n1", "n2", "n3")
    with running(place) as processes:
        for name in names:
            processes.start(name, "cron.py", name)

        def leader() -> str | None:
            terms = {}
            for name in names:
                told = [line for line in processes.said(name).splitlines() if line.startswith(("leads in", "follows"))]
                if told and told[-1].startswith("leads"):
                    terms[name] = int(told[-1].split()[-1])
            return max(terms, key=terms.__getitem__) if terms else None

        def six_more() -> None:
            before = ticks(place)
            eventually(lambda: ticks(place) >= before + 6, within_s=60, what="six more ticks")

        for _ in range(4):
            six_more()
            killed = eventually(leader, within_s=60, what="a leader")
            processes.kill(killed)
            (place / f"{killed}.out").unlink()
            six_more()
            processes.start(killed, "cron.py", killed)
        assert "each once, in order, none missing" in processes.run("cron.py", "check")
