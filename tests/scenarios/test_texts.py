"""Every scenario text happens as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.raft.core import membership

from ..core.planting import planted
from .texts import FOLDER, differences, parse

TEXTS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", TEXTS, ids=[path.stem for path in TEXTS])
def test_text(path: Path) -> None:
    found = differences(path.read_text())
    assert not found, f"{path.name}, {found[0]}"


def test_there_are_texts_and_each_says_something() -> None:
    assert len(TEXTS) >= 10
    for path in TEXTS:
        parts = parse(path.read_text())
        assert len(parts) >= 5, path.name
        assert any(part.expected != ["ok"] for part in parts), path.name


def test_a_text_sees_a_planted_fault() -> None:
    text = (FOLDER / "s23_two_changes_from_one_base.txt").read_text()
    assert not differences(text)
    with planted(membership._why_not_now, "state.commit_index < state.term_start_index", "False"):
        assert differences(text)


def test_a_directive_without_its_line_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse("\ncluster n1\n")
