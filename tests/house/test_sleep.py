"""No test waits by sleeping: what is awaited has an event, a line of output or a clock of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from .tree import ROOT, files_of_the_tests

ALLOWED: dict[str, str] = {
    "tests/waiting.py::eventually": "the one place that polls: other processes give no event to wait for",
    "tests/waiting.py::eventually_async": "the same inside a loop",
    "tests/sim/test_loop.py::work": "on virtual time: that the loop can sleep is what is tested",
    "tests/sim/test_loop.py::other": "the same, by the other task of that test",
    "tests/cluster/test_big_snapshot.py::watch": "looks again and again, to measure gaps; nobody waits by it",
    "tests/node/process.py::_travel": "the resource of the test is as slow as the test says; nobody waits by it",
    "tests/effects/test_isolation.py::slowly": "the same, for some commands, on virtual time",
}
"""`file::function` and the reason. A sleep that *is* the thing under test belongs here as well."""


def sleeps(source: str, file: str) -> Iterator[tuple[str, int]]:
    """Each call of a sleep as (`file::function`, line). `asyncio.sleep(0)` only yields and is none."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, int]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            yields = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
            if name == "sleep" and not yields:
                yield f"{file}::{function}", node.lineno
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function)

    return walk(ast.parse(source), "module")


def test_no_test_sleeps() -> None:
    found: list[str] = []
    for path in files_of_the_tests():
        file = path.relative_to(ROOT).as_posix()
        for place, line in sleeps(path.read_text(encoding="utf-8"), file):
            if place not in ALLOWED:
                found.append(f"{file}:{line} sleeps in {place.split('::')[1]}")
    assert not found, "\n".join(found)


def test_every_allowance_is_used_and_has_a_reason() -> None:
    used = {
        place
        for path in files_of_the_tests()
        for place, _ in sleeps(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
    }
    assert set(ALLOWED) <= used
    assert all(len(reason) > 20 for reason in ALLOWED.values())


@pytest.mark.parametrize(
    "source", ["import time\ntime.sleep(1)", "from time import sleep\nsleep(0.1)", "await asyncio.sleep(x)"]
)
def test_a_planted_sleep_is_found(source: str) -> None:
    assert len(list(sleeps(f"async def f():\n    {source.splitlines()[-1]}", "x.py"))) == 1


def test_yielding_is_no_sleep() -> None:
    assert not list(sleeps("async def f():\n    await asyncio.sleep(0)", "x.py"))
