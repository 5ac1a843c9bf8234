"""Settings whose wrong value shows as a green run that looked at nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from .tree import FOLDERS, ROOT, module_files


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    tools: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    return tools


def test_pytest_sees_the_package_and_not_the_folders(settings: dict[str, Any]) -> None:
    options = settings["pytest"]["ini_options"]
    assert options["pythonpath"] == ["src"]
    assert "--import-mode=importlib" in options["addopts"]


def test_mypy_checks_the_package_by_name(settings: dict[str, Any]) -> None:
    assert settings["mypy"]["strict"] is True
    assert settings["mypy"]["packages"] == ["fencepost"]
    assert settings["mypy"]["mypy_path"] == "src"


def test_pyright_is_told_the_real_folders(settings: dict[str, Any]) -> None:
    assert set(FOLDERS) <= set(settings["pyright"]["include"])


def test_coverage_counts_modules_that_nobody_imports(tmp_path: Path) -> None:
    """Measured, not read: a run that imports nothing must list every module of the folders."""
    data = f"--data-file={tmp_path / 'data'}"
    (tmp_path / "nothing.py").write_text("import fencepost\n")
    report = tmp_path / "report.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    coverage = [sys.executable, "-m", "coverage"]
    for command in (["run", data, str(tmp_path / "nothing.py")], ["json", "--quiet", data, "-o", str(report)]):
        run = subprocess.run(
            [*coverage, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr
    counted = set(json.loads(report.read_text())["files"])
    assert {str(path.relative_to(ROOT)) for path in module_files()} <= counted


def test_dependencies_have_their_decision_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "decisions").glob("*.md"))
    extras = [extra for name, extra in project["optional-dependencies"].items() if name != "dev"]
    for requirement in [*project["dependencies"], *(each for extra in extras for each in extra)]:
        name = requirement.split(">=")[0]
        assert f"`{name}`" in pages, f"no page in docs/decisions names `{name}`"
