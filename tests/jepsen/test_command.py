"""``fencepost jepsen check``: one line a file, and an exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..cli.running import error_of, run, run_json

GOOD = '{"process": 1, "op": "write", "key": "x", "value": 1, "invoke": 1, "return": 2}\n'
STALE = GOOD + '\n{"process": 2, "op": "read", "key": "x", "out": null, "invoke": 3, "return": 4}\n'
CROWD = "".join(
    json.dumps({"process": n, "op": "write", "key": "k", "value": n, "invoke": 1, "return": 9}) + "\n" for n in range(9)
)
NONE = '{"process": 1}\n'

FILES = {"ok.jsonl": GOOD, "stale.jsonl": STALE, "crowd.jsonl": CROWD, "none.jsonl": NONE, "empty.jsonl": ""}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("names", "lines", "code"),
    [
        (["ok.jsonl"], ["ok.jsonl ok"], 0),
        (["empty.jsonl", "ok.jsonl"], ["empty.jsonl ok", "ok.jsonl ok"], 0),
        (["stale.jsonl"], ["stale.jsonl illegal"], 8),
        (["stale.jsonl", "./ok.jsonl"], ["stale.jsonl illegal", "./ok.jsonl ok"], 8),
        (["ok.jsonl", "stale.jsonl", "ok.jsonl"], ["ok.jsonl ok", "stale.jsonl illegal", "ok.jsonl ok"], 8),
        (["crowd.jsonl"], ["crowd.jsonl unknown"], 1),
        (["crowd.jsonl", "ok.jsonl"], ["crowd.jsonl unknown", "ok.jsonl ok"], 1),
        (["crowd.jsonl", "stale.jsonl"], ["crowd.jsonl unknown", "stale.jsonl illegal"], 8),
        (["none.jsonl"], [], 2),
        (["away.jsonl"], [], 2),
        (["none.jsonl", "stale.jsonl", "ok.jsonl"], ["stale.jsonl illegal", "ok.jsonl ok"], 2),
    ],
)  # fmt: skip
@pytest.mark.parametrize("more", [(), ("-v",), ("-q",)])
def test_one_line_a_file_in_the_order_given(
    names: list[str], lines: list[str], code: int, more: tuple[str, ...]
) -> None:
    result = run("jepsen", "check", *names, "--steps", "5", *more)
    assert result.stdout.splitlines() == lines
    assert result.exit_code == code, result.stderr


def test_a_file_that_is_no_history() -> None:
    result = run("jepsen", "check", "none.jsonl", "away.jsonl")
    assert result.stderr.splitlines() == [
        "error HISTORY_INVALID: none.jsonl:1: field 'op' is missing",
        "  fencepost explain HISTORY_INVALID",
        "error HISTORY_INVALID: cannot read away.jsonl: No such file or directory",
    ]
    error = error_of(run("jepsen", "check", "none.jsonl", "-o", "json"))
    assert (error["code"], error["exit_code"], error["committed"]) == ("HISTORY_INVALID", 2, "no")


def test_why_is_told_on_stderr_with_v() -> None:
    assert run("jepsen", "check", "stale.jsonl").stderr == ""
    assert run("jepsen", "check", "stale.jsonl", "-v").stderr.splitlines() == [
        '  key "x": illegal after 3 steps',
        "    what was answered before can have happened in this order:",
        "      line 1: process 1 write(1) [1, 2]",
        "    which leaves 1; neither this order nor any other has a place for",
        "      line 3: process 2 read() = null [3, 4]",
    ]


def test_an_unknown_verdict_says_what_to_do() -> None:
    result = run("jepsen", "check", "crowd.jsonl", "--steps", "5")
    assert result.stderr == '  key "k": unknown after 6 steps; --steps N lets it search for longer\n'
    assert run("jepsen", "check", "crowd.jsonl", "--steps", "5", "-q").stderr == ""
    assert run("jepsen", "check", "crowd.jsonl").stdout == "crowd.jsonl ok\n"


def row(name: str, verdict: str, operations: int, steps: int, explanations: list[Any]) -> dict[str, Any]:
    return {
        "file": name,
        "verdict": verdict,
        "model": "register",
        "operations": operations,
        "keys": 1,
        "steps": steps,
        "explanations": explanations,
    }


def test_json() -> None:
    code, document = run_json("jepsen", "check", "ok.jsonl", "stale.jsonl")
    assert code == 8
    assert (document["apiVersion"], document["kind"]) == ("fencepost/v1", "HistoryVerdictList")
    ok, stale = document["items"]
    (explanation,) = stale["explanations"]
    text = explanation.pop("text")
    assert text[0] == 'key "x": illegal after 3 steps'
    told = {
        "key": "x",
        "verdict": "illegal",
        "order": [{"line": 1, "operation": "process 1 write(1) [1, 2]"}],
        "state": 1,
        "blocked": {"line": 3, "operation": "process 2 read() = null [3, 4]"},
        "remarks": [],
        "steps": 3,
    }
    assert ok == row("ok.jsonl", "ok", 1, 1, [])
    assert stale == row("stale.jsonl", "illegal", 2, 3, [told])


def test_json_lines_and_tsv() -> None:
    result = run("jepsen", "check", "ok.jsonl", "stale.jsonl", "-o", "jsonl")
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert [document["kind"] for document in documents] == ["HistoryVerdict"] * 2
    assert [document["verdict"] for document in documents] == ["ok", "illegal"]
    result = run("jepsen", "check", "ok.jsonl", "-o", "tsv")
    titles, cells = result.stdout.splitlines()
    assert dict(zip(titles.split("\t"), cells.split("\t"), strict=True)) == {
        name: str(value) for name, value in row("ok.jsonl", "ok", 1, 1, []).items() if name != "explanations"
    }


def test_what_a_file_holds_never_speaks_to_the_terminal() -> None:
    rows = [
        {"process": "\x1b[31m", "op": "write", "key": "\x1b", "value": "\x9b2J\n", "invoke": 1, "return": 2},
        {"process": 2, "op": "read", "key": "\x1b", "out": "\u202e", "invoke": 3, "return": 4},
    ]
    Path("odd.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    result = run("jepsen", "check", "odd.jsonl", "-v")
    assert (result.stdout, result.exit_code) == ("odd.jsonl illegal\n", 8)
    assert all(letter.isprintable() or letter == "\n" for letter in result.stderr)
    code, document = run_json("jepsen", "check", "odd.jsonl")
    assert (code, document["items"][0]["verdict"]) == (8, "illegal")


def test_usage() -> None:
    assert run("jepsen", "check").exit_code == 2
    assert run("jepsen", "check", "ok.jsonl", "--steps", "0").exit_code == 2
    assert run("jepsen").exit_code == 2
