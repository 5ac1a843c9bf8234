"""Signs worth a second look: long files, long functions, a table that lags behind the tests.

Printed by `make verify`; never a failure.
"""

from __future__ import annotations

import ast
import re

from .tree import ROOT, files_of_the_tests, module_files

FILE_LINES = 400
FUNCTION_LINES = 70


def signs() -> list[tuple[int, str]]:
    found = []
    for path in [*module_files(), *files_of_the_tests()]:
        name = path.relative_to(ROOT).as_posix()
        source = path.read_text(encoding="utf-8")
        lines = source.count("\n")
        if lines > FILE_LINES:
            found.append((lines, f"{name}: {lines} lines"))
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES:
                    found.append((length, f"{name}:{node.lineno} {node.name}: {length} lines"))
    return sorted(found, reverse=True)


def unlisted() -> list[str]:
    """Scenarios that a test names while the table still says that there is no test."""
    table = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    untested = set(re.findall(r"^\| (S\d\d) \|.*\| not yet \|$", table, re.MULTILINE))
    found = []
    for path in files_of_the_tests():
        if path.name.startswith("test_") and path.parent.name != "house":
            named = untested & set(re.findall(r"\bS\d\d\b", path.read_text(encoding="utf-8")))
            found += [f"{name} is named in {path.relative_to(ROOT).as_posix()}" for name in named]
    return sorted(found)


if __name__ == "__main__":
    for _, sign in signs():
        print(f"worth a second look: {sign}")
    for line in unlisted():
        print(f"docs/scenarios.md says not yet: {line}")
