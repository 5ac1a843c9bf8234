"""Every file in examples/ is shown word for word on a page, and the pages are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from .documents import blocks
from .tree import ROOT

EXAMPLES = sorted(path for path in (ROOT / "examples").rglob("*") if path.suffix in {".py", ".toml"})
SHOWN = {block.text for page in (ROOT / "docs").rglob("*.md") for block in blocks(page, ROOT) if block.file}


def test_there_are_examples() -> None:
    assert any(path.suffix == ".py" for path in EXAMPLES)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_example_is_the_one_that_a_page_runs(path: Path) -> None:
    assert path.read_text(encoding="utf-8") in SHOWN
