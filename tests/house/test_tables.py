"""docs/scenarios.md and docs/requirements.md: complete, and every test they name exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from .tree import ROOT

SCENARIOS = [f"S{number:02d}" for number in range(1, 60)]
REQUIREMENTS = [str(number) for number in range(1, 134)]

_TEST = re.compile(r"tests/[\w./-]+\.py(?:::\w+){0,2}")


def rows(page: str) -> list[list[str]]:
    """The body rows of every table of a page, cells stripped."""
    found = []
    for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not re.fullmatch(r"[|\s:-]+", line):
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return [row for row in found if row[0] not in {"id", "no."}]


@cache
def names_in(path: Path) -> frozenset[str]:
    """`test_name` and `TestClass::test_name` of a file, and the classes themselves."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
            names |= {f"{node.name}::{method.name}" for method in methods}
    return frozenset(names)


def missing(reference: str) -> str | None:
    """Why a reference leads nowhere; None when it leads to a test."""
    file, _, name = reference.partition("::")
    path = ROOT / file
    if not path.is_file():
        return f"{reference}: no such file"
    # A conformance suite is a contract.py, or the like, beside the test files that run it.
    if not Path(file).name.startswith("test_") and not Path(file).name.endswith("contract.py"):
        return f"{reference}: not a test file"
    if name and (name not in names_in(path) or not name.split("::")[-1].startswith(("test_", "Test"))):
        return f"{reference}: no such test in {file}"
    return None


@pytest.mark.parametrize(("page", "ids"), [("scenarios.md", SCENARIOS), ("requirements.md", REQUIREMENTS)])
def test_every_item_is_listed_once_and_in_order(page: str, ids: list[str]) -> None:
    assert [row[0] for row in rows(page)] == ids


@pytest.mark.parametrize("page", ["scenarios.md", "requirements.md"])
def test_every_item_has_an_answer(page: str) -> None:
    """The last cell names tests, or says plainly that there is none."""
    for row in rows(page):
        answer = row[-1]
        assert _TEST.search(answer) or answer.startswith(("not yet", "partly", "not ours: ", "page: ")), row


@pytest.mark.parametrize("page", ["scenarios.md", "requirements.md"])
def test_every_named_test_exists(page: str) -> None:
    found = [why for row in rows(page) for reference in _TEST.findall(row[-1]) if (why := missing(reference))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", ["requirements.md"])
def test_every_named_place_exists(page: str) -> None:
    for row in rows(page):
        for place in re.findall(r"`((?:raft|storage|transport|cli|jepsen|docs|tests|benchmarks)/[\w./-]*)`", row[-2]):
            assert (ROOT / place).exists(), f"{row[0]}: {place} does not exist"


@pytest.mark.parametrize(
    "reference",
    ["tests/house/test_none.py", "tests/house/test_tables.py::test_none", "tests/house/tree.py::copy_sources"],
)
def test_a_reference_that_leads_nowhere_is_found(reference: str) -> None:
    assert missing(reference)


def test_a_reference_that_leads_somewhere_is_not() -> None:
    assert missing(f"tests/house/test_tables.py::{test_every_named_test_exists.__name__}") is None
