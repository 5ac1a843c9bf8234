"""What a user installs: the wheel, built through the sdist as an index would have it."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from .tree import FOLDERS, ROOT, copy_sources, package_files

RUN_AGAINST_WHEEL = (
    *("tests/core/test_scenarios.py", "tests/core/test_election.py"),
    *("tests/outbox/test_machine.py", "tests/outbox/test_snapshot.py"),
    *("tests/storage/test_contract.py", "tests/transport/test_framing.py", "tests/transport/test_codec.py"),
)
"""Something of every folder below the command line, quick enough to run twice."""

STEP_TIMEOUT_S = 240

OWNERS_MODULES = ("raft", "storage", "transport", "cli", "jepsen", "tests")
"""Names that an owner may well use himself."""


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run to the end and return what it printed; fail with all of it when it failed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**kept, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=STEP_TIMEOUT_S,
    )
    if done.returncode != 0:
        pytest.fail(f"{command[0]} {command[1]} ... exited with {done.returncode}:\n{done.stdout}", pytrace=False)
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, with the setuptools at hand, so that no index is needed."""
    place = tmp_path_factory.mktemp("build")
    sources = copy_sources(place / "sources")
    # Without --wheel or --sdist, `build` makes the wheel from the sdist and not from the tree.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", place / "dist", sources, cwd=place)
    (built,) = (place / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="session")
def owner(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel in it, beside the owner's own modules. Its interpreter."""
    place = tmp_path_factory.mktemp("owner") / "venv"
    venv.create(place, with_pip=True, symlinks=True)
    python = place / "bin" / "python"
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=place).strip())
    for name in OWNERS_MODULES:
        (packages / f"{name}.py").write_text("OWNER = 'not fencepost'\n")
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=place)
    # The dependencies are lent by the environment that runs the tests. A line in a .pth file adds a
    # folder without reading the .pth files in it, so an editable fencepost there stays out of reach.
    (packages / "lent.pth").write_text("".join(f"{path}\n" for path in site.getsitepackages()))
    return python


def test_the_wheel_holds_the_modules_of_the_folders_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}
    information = {name for name in names if name.split("/")[0] == "fencepost-0.1.0.dist-info"}
    assert information
    assert names - information == package_files()


def test_pytest_finds_its_plugin_in_the_wheel(wheel: Path) -> None:
    declared = zipfile.ZipFile(wheel).read("fencepost-0.1.0.dist-info/entry_points.txt").decode()
    assert "[pytest11]\nfencepost = fencepost.jepsen.contracts.plugin" in declared


def test_the_owners_modules_and_ours_do_not_collide(owner: Path, tmp_path: Path) -> None:
    program = "\n".join(
        [
            *(f"import {name}; assert {name}.OWNER == 'not fencepost', {name}" for name in OWNERS_MODULES),
            "import importlib, pathlib, sys, fencepost",
            *(f"importlib.import_module('fencepost.{folder}')" for folder in FOLDERS),
            "home = pathlib.Path(fencepost.__file__).resolve()",
            "assert home.is_relative_to(pathlib.Path(sys.prefix).resolve()), home",
        ]
    )
    run(owner, "-c", program, cwd=tmp_path)


def test_every_module_of_the_wheel_can_be_imported(owner: Path, tmp_path: Path) -> None:
    names = sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in package_files()
        if name.endswith(".py") and not name.endswith("__main__.py")
    )
    run(owner, "-c", f"import importlib\nfor name in {names!r}: importlib.import_module(name)", cwd=tmp_path)


UNWANTED = (
    *("click", "rich", "uvloop", "prometheus_client", "opentelemetry", "textual"),
    *("asyncpg", "redis"),
    *("http.server", "http.client", "urllib.request", "aiohttp", "h11", "httptools"),
    *("fencepost.cli", "fencepost.jepsen"),
)


def loaded_after(statement: str, python: Path, cwd: Path) -> set[str]:
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    return set(run(python, "-c", program, cwd=cwd).split())


def test_import_fencepost_loads_no_command_line_http_metrics_or_tui_library(owner: Path, tmp_path: Path) -> None:
    before = loaded_after("", owner, tmp_path)
    loaded = loaded_after("import fencepost", owner, tmp_path) - before
    assert "fencepost" in loaded
    assert not loaded & set(UNWANTED)


def test_the_command_is_installed(owner: Path, tmp_path: Path) -> None:
    assert "0.1.0" in run(owner.parent / "fencepost", "--version", cwd=tmp_path)


def test_a_selection_of_tests_passes_against_the_wheel(owner: Path, tmp_path: Path) -> None:
    """With the sources out of reach: only the tests are copied."""
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    pytest_options = ("-o", "pythonpath=", "-p", "no:cacheprovider", "-q")
    printed = run(owner, "-m", "pytest", *pytest_options, *RUN_AGAINST_WHEEL, cwd=tmp_path)
    assert " passed" in printed.splitlines()[-1], printed


@pytest.mark.endure
def test_the_wheel_installs_with_what_it_asks_for(wheel: Path, tmp_path: Path) -> None:
    """Nothing lent: the dependencies come from the index, as they do for a user."""
    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    run(python, "-m", "pip", "check", cwd=tmp_path)
    assert "0.1.0" in run(python.parent / "fencepost", "--version", cwd=tmp_path)
