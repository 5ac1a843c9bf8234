"""docs/reference.md is what the program would say of itself now, and operations.md has a place for each code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fencepost.cli.explanations import EXPLANATIONS
from fencepost.cli.main import fencepost as root

from . import facts, reference
from .tree import ROOT


def test_the_page_is_the_one_that_would_be_made() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), (
        "docs/reference.md lags behind: python -m tests.house.reference"
    )


def test_a_changed_setting_changes_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    before = reference.page()
    monkeypatch.setattr("fencepost.raft.node.service.PENDING_MAX", 12_345)
    assert "12,345" not in before
    assert "12,345" in reference.page()


def test_every_json_kind_is_described_and_no_other() -> None:
    # The error's kind stands in no call: the renderer writes it by itself.
    assert set(reference.kinds()) | {"Error", "Notice"} == set(facts.KINDS)


def test_every_command_is_there() -> None:
    page = reference.page()
    paths = [path for path, _ in reference.commands(root)]
    assert len(paths) > 10
    assert [path for path in paths if f"### {path}\n" not in page] == []


def test_every_code_has_a_place_in_the_runbook() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^### ([A-Z_]+)$", page, re.MULTILINE)) == sorted(EXPLANATIONS)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made where pages are shown."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_links_into_a_page_lead_to_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            place = (page.parent / target).resolve() if target else page
            assert anchor in anchors(place), f"{page.name} links to {target}#{anchor}"
