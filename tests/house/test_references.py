"""What comments refer to is there to be read."""

from __future__ import annotations

import re

from .tree import ROOT, files_of_the_tests, module_files

REFERENCE = re.compile(r"\(concepts: ([A-Z][^);]+)")


def test_comments_name_headings_that_concepts_has() -> None:
    page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^#+ (.+)$", page, re.MULTILINE))
    named: dict[str, str] = {}
    for path in [*module_files(), *files_of_the_tests()]:
        for heading in REFERENCE.findall(path.read_text(encoding="utf-8")):
            named[" ".join(heading.split())] = path.relative_to(ROOT).as_posix()
    assert named
    assert {heading: place for heading, place in named.items() if heading not in headings} == {}
