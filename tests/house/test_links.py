"""The folders at the top, the links to them, and what happens without links."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .tree import FOLDERS, FRONT_DOORS, PACKAGE, ROOT, copy_sources


def test_the_package_holds_front_doors_and_relative_links_only() -> None:
    links = {path.name: os.readlink(path) for path in PACKAGE.iterdir() if path.is_symlink()}
    assert links == {name: f"../../{name}" for name in FOLDERS}
    files = {path.name for path in PACKAGE.iterdir() if not path.is_symlink()} - {"__pycache__"}
    assert files == {*FRONT_DOORS, "py.typed"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_with_modules_is_a_package(folder: str) -> None:
    """A folder without __init__.py would be left out of the wheel without a word."""
    holders = {path.parent for path in (ROOT / folder).rglob("*.py")}
    assert holders
    for holder in holders:
        assert (holder / "__init__.py").is_file(), f"{holder.relative_to(ROOT)} has no __init__.py"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_bare_import_does_not_work_in_tests(folder: str) -> None:
    """`import storage` must fail here as it does for a user, however pytest was started."""
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(folder)


def test_a_bare_import_would_work_with_the_root_on_the_path() -> None:
    """The test above can fail: only the path stands between a test and a bare import."""
    run = subprocess.run([sys.executable, "-c", "import storage"], cwd=ROOT, check=False)
    assert run.returncode == 0


def _without_links(target: Path) -> Path:
    checkout = copy_sources(target)
    for name in FOLDERS:
        link = checkout / "src" / "fencepost" / name
        text = os.readlink(link)
        link.unlink()
        link.write_text(text)  # what git leaves where core.symlinks is false
    return checkout


SENTENCE = "this checkout has no symbolic links"


def test_importing_from_a_checkout_without_links_says_so(tmp_path: Path) -> None:
    checkout = _without_links(tmp_path / "checkout")
    run = subprocess.run(
        [sys.executable, "-c", "import fencepost"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode != 0
    assert run.stderr.splitlines()[-1].startswith(f"ImportError: {SENTENCE}")


def test_building_from_a_checkout_without_links_says_so(tmp_path: Path) -> None:
    checkout = _without_links(tmp_path / "checkout")
    run = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "bdist_wheel"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode != 0
    assert run.stderr.splitlines()[-1].startswith(SENTENCE)
    assert "Traceback" not in run.stderr
    assert not (checkout / "dist").exists()
