"""Recorded histories with verdicts that others have reached; FENCEPOST_HISTORIES names their folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.jepsen.checkers import STEPS_MAX, Status, Verdict, check, read_history

from ..cli.running import run


@pytest.fixture(scope="module")
def verdicts(histories_folder: Path) -> dict[Path, str]:
    rows = (histories_folder / "verdicts.tsv").read_text(encoding="utf-8").splitlines()
    return {histories_folder / file: verdict for file, verdict in (row.split("\t") for row in rows)}


def test_every_verdict_is_theirs(verdicts: dict[Path, str]) -> None:
    assert set(verdicts.values()) == {"ok", "illegal"}
    found = {}
    for path in verdicts:
        history = read_history(path)
        judgement = check(history.operations, history.model)
        found[path] = judgement.verdict.value
        # Far from the bound, so that no verdict hangs on it.
        assert judgement.steps < STEPS_MAX / 10, path
        for explanation in judgement.explanations:
            assert explanation.blocked is not None
    assert found == verdicts


def test_the_verdicts_hold_however_the_lines_are_ordered(verdicts: dict[Path, str]) -> None:
    for path, verdict in verdicts.items():
        history = read_history(path)
        assert check(history.operations[::-1], history.model).verdict == verdict, path


def test_without_the_answers_nothing_is_illegal(verdicts: dict[Path, str]) -> None:
    """So the verdicts come from the answers: the same histories, their operations all of unknown outcome."""
    for path in verdicts:
        history = read_history(path)
        unheard = [operation._replace(status=Status.INFO, out=None) for operation in history.operations]
        assert check(unheard, history.model).verdict is Verdict.OK


def test_the_command_says_the_same(verdicts: dict[Path, str]) -> None:
    chosen = list(verdicts)[:4] + list(verdicts)[-7:]
    result = run("jepsen", "check", *map(str, chosen))
    assert result.stdout.splitlines() == [f"{path} {verdicts[path]}" for path in chosen]
    assert (result.stderr, result.exit_code) == ("", 8)
    legal = [path for path in chosen if verdicts[path] == "ok"]
    assert run("jepsen", "check", *map(str, legal)).exit_code == 0
