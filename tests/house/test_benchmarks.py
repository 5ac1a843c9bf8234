"""The benchmarks run and print what they promise. No figure is judged here: the machine is shared."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from .tree import ROOT

pytestmark = pytest.mark.endure


def run(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    finished = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_the_comparison_measures_both_systems_in_one_run(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    text = run("benchmarks.compare", "--rounds", "1", "--seconds", "0.3", "--submitters", "1,16", "--json", str(report))
    rows = json.loads(report.read_text())["rows"]
    # CI installs etcd and h2load; whoever lacks them is told how to get them, by the benchmark itself.
    systems = {"log", "outbox", "done", "etcd"}
    assert {row["what"] for row in rows if row["submitters"] == 16} == systems, (
        "apt-get install etcd-server nghttp2-client"
    )
    assert all(row["rate"] > 0 and 0 < row["p50_ms"] <= row["p99_ms"] for row in rows)
    assert all(row["ratio_to_etcd"] == 1.0 for row in rows if row["what"] == "etcd")
    assert "x etcd" in text


@pytest.mark.servers
def test_commands_are_measured_into_each_database_and_counted_there(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = ("benchmarks.outbox", "--rounds", "1", "--seconds", "0.3", "--submitters", "1,16")
    text = run(*command, "--json", str(report))
    found = json.loads(report.read_text())
    assert len(found["rows"]) == 10, "apt-get install --no-install-recommends postgresql"
    assert all(row["rate"] > 0 and 0 < row["p50_ms"] <= row["p99_ms"] for row in found["rows"])
    assert [row["ratio_to_log"] for row in found["rows"] if row["what"].startswith("plain")] == [1.0, 1.0]
    # Of each database four measurements at least, each with its warm-up.
    assert all(count > 2 * 50 for count in found["exactly_once"].values())
    assert set(found["exactly_once"]) == {"sqlite", "table", "ordered"}
    assert "x log" in text


def test_what_is_not_there_exactly_once_fails_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    outbox = importlib.import_module("benchmarks.outbox")
    (tmp_path / "cluster").mkdir()
    with closing(sqlite3.connect(tmp_path / "cluster" / "ledger.db", isolation_level=None)) as ledger:
        ledger.execute("CREATE TABLE entries (operation_id TEXT)")
        ledger.execute("INSERT INTO entries VALUES ('a'), ('b')")
        (tmp_path / "acknowledged-sqlite").write_text("a\nb\n")
        assert asyncio.run(outbox.check(tmp_path, ["sqlite"], "")) == {"sqlite": 2}
        ledger.execute("INSERT INTO entries VALUES ('b')")
        with pytest.raises(RuntimeError, match=r"sqlite: 0 acknowledged .* 1 rows"):
            asyncio.run(outbox.check(tmp_path, ["sqlite"], ""))
        ledger.execute("DELETE FROM entries WHERE operation_id = 'b'")
        with pytest.raises(RuntimeError, match=r"sqlite: 1 acknowledged .* 0 rows"):
            asyncio.run(outbox.check(tmp_path, ["sqlite"], ""))


def test_the_stages_of_a_command_are_all_measured() -> None:
    text = run("benchmarks.stages", "--batch", "8", "--rounds", "3")
    for stage in ("check submissions", "apply commands", "SQLite transaction", "apply dispatch and outcome"):
        assert stage in text


def test_the_log_is_measured_beside_the_bare_disk(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = ("benchmarks.storage", "--rounds", "2", "--seconds", "0.1", "--entries", "20000", "--batches", "1,16")
    text = run(*command, "--json", str(report))
    found = json.loads(report.read_text())
    rows = found["appending"]
    assert [(row["batch"], row["style"]) for row in rows] == [
        (1, "one at a time"), (1, "pipelined"), (16, "one at a time"), (16, "pipelined"),
    ]  # fmt: skip
    assert all(row["batches_per_s"] > 0 and row["raw_per_s"] > 0 and row["ratio_to_raw"] > 0 for row in rows)
    assert all(row["entries_per_s"] == row["batch"] * row["batches_per_s"] for row in rows)
    assert found["recovery"]["entries"] == 20_000
    assert found["recovery"]["entries_per_s"] > 0
    assert "x raw" in text
