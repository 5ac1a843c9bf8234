"""Where the sources lie, for the tests that look at their form."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fencepost"
FOLDERS = ("raft", "storage", "transport", "cli", "jepsen")
"""The real folders behind the links in src/fencepost."""

FRONT_DOORS = ("__init__.py", "testing.py")
"""The modules that lie in src/fencepost itself and give out names."""

BUILD_FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


def module_files() -> Iterator[Path]:
    """Every module of the package by its real path, the front doors left out."""
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


def files_of_the_tests() -> Iterator[Path]:
    """Every Python file of the tests."""
    yield from sorted((ROOT / "tests").rglob("*.py"))


def package_files() -> set[str]:
    """What a wheel must hold, as paths below site-packages."""
    found = {f"fencepost/{path.relative_to(ROOT).as_posix()}" for path in module_files()}
    return found | {f"fencepost/{name}" for name in (*FRONT_DOORS, "py.typed")}


def copy_sources(target: Path) -> Path:
    """Copy what a build needs, links as links, so that a build leaves nothing in the repository."""
    target.mkdir(parents=True)
    for name in BUILD_FILES:
        shutil.copy(ROOT / name, target / name)
    litter = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*FOLDERS, "src"):
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=litter)
    return target
