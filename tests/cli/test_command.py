"""``command list``, ``show`` and ``watch``."""

from __future__ import annotations

import json

import pytest

from .fake_cluster import TOKEN, FakeCluster
from .running import error_of, run, run_json


@pytest.fixture
def filled(cluster: FakeCluster) -> FakeCluster:
    for number in range(5):
        effect = "credit" if number != 3 else "debit"
        if number == 3:
            cluster.failing.add("debit")
        lane = "x" if number % 2 else "y"
        run("submit", "ledger", effect, "--id", f"op-{number}", "--lane", lane, "--endpoints", cluster.endpoints)
    return cluster


def ids(cluster: FakeCluster, *more: str) -> list[str]:
    code, body = run_json("command", "list", "--endpoints", cluster.endpoints, *more)
    assert code == 0
    return [row["id"] for row in body["items"]]


def test_list_follows_pages_and_filters(filled: FakeCluster) -> None:
    assert ids(filled) == [f"op-{number}" for number in range(5)]
    assert ids(filled, "--lane", "x") == ["op-1", "op-3"]
    # The first pages hold nothing that matches; the list goes on.
    assert ids(filled, "--state", "failed") == ["op-3"]
    assert ids(filled, "--resource", "other") == []
    assert ids(filled, "--after-index", "4") == ["op-3", "op-4"]


def test_list_says_that_there_is_more(filled: FakeCluster) -> None:
    result = run("command", "list", "--limit", "3", "--endpoints", filled.endpoints)
    assert result.stdout.splitlines()[-1] == "more: --after-index 4"
    _, body = run_json("command", "list", "--limit", "3", "--endpoints", filled.endpoints)
    assert body["next_after_index"] == 4
    # Rows alone cannot say so themselves.
    for format, lines in (("tsv", 4), ("jsonl", 3)):
        result = run("command", "list", "--limit", "3", "--endpoints", filled.endpoints, "-o", format)
        assert len(result.stdout.splitlines()) == lines
        assert "more: --after-index 4" in result.stderr


def test_times_in_tsv_are_for_programs(filled: FakeCluster) -> None:
    result = run("command", "list", "--limit", "1", "--endpoints", filled.endpoints, "-o", "tsv")
    assert "\t2025-10-09T08:53:20.000Z\t" in result.stdout


def test_a_cell_is_one_line_and_does_not_speak_to_the_terminal(filled: FakeCluster) -> None:
    filled.commands["op-3"]["error"] = "first\nsecond \x1b[2J"
    result = run("command", "show", "op-3", "--endpoints", filled.endpoints)
    assert r"error      first\nsecond \x1b[2J" in result.stdout


def test_show(filled: FakeCluster) -> None:
    result = run("command", "show", "op-1", "--endpoints", filled.endpoints, "--time", "iso")
    shown = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert (shown["state"], shown["token"], shown["submitted"]) == ("succeeded", "1.7", "2025-10-09T08:53:20.000Z")
    code, body = run_json("command", "show", "op-1", "--endpoints", filled.endpoints)
    assert (code, body["result"], "history" in body) == (0, {"rows": 1}, False)


def test_show_history(filled: FakeCluster) -> None:
    result = run("command", "show", "op-3", "--history", "--endpoints", filled.endpoints, "--time", "iso")
    table = result.stdout.split("\n\n")[1].splitlines()
    assert [line.split()[2:5] for line in table] == [
        ["STATE", "ATTEMPT", "TOKEN"], ["committed", "-", "-"], ["dispatched", "1", "1.7"], ["failed", "1", "1.7"],
    ]  # fmt: skip
    _, body = run_json("command", "show", "op-3", "--history", "--endpoints", filled.endpoints)
    assert [row["token"] for row in body["history"]] == [None, TOKEN, TOKEN]
    tsv = run("command", "show", "op-3", "--history", "--endpoints", filled.endpoints, "-o", "tsv").stdout
    assert [line.split("\t")[2] for line in tsv.splitlines()] == ["state", "committed", "dispatched", "failed"]


def test_an_unknown_id_is_7(cluster: FakeCluster) -> None:
    result = run("command", "show", "nobody", "--endpoints", cluster.endpoints, "-o", "json")
    assert (result.exit_code, error_of(result)["code"]) == (7, "NOT_FOUND")
    assert run("command", "watch", "nobody", "--endpoints", cluster.endpoints).exit_code == 7


def test_watch_prints_the_steps_and_ends_with_the_command(filled: FakeCluster) -> None:
    result = run("command", "watch", "op-0", "--endpoints", filled.endpoints, "-o", "jsonl")
    assert result.exit_code == 0
    assert [json.loads(line)["state"] for line in result.stdout.splitlines()] == [
        "committed",
        "dispatched",
        "succeeded",
    ]
    result = run("command", "watch", "op-3", "--endpoints", filled.endpoints)
    assert result.exit_code == 8
    assert "command op-3 was committed and is failed: UNIQUE constraint failed" in result.stderr


def test_watch_gives_up_after_its_timeout(filled: FakeCluster) -> None:
    filled.commands["op-0"]["state"] = "dispatched"
    result = run("command", "watch", "op-0", "--endpoints", filled.endpoints, "--timeout", "300ms")
    assert result.exit_code == 8
    assert "command op-0 is dispatched and did not end in time" in result.stderr
