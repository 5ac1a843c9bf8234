"""The kit inside pytest, as a user has it: a run of its own over a file of the user's."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE = "fencepost.jepsen.contracts.plugin"

WORLD = """
    import threading
    import pytest
    from fencepost import Permanent
    from fencepost.testing import World

    class Notes(World):
        refused_payload = b'{"cents":-1}'
        def __init__(self):
            self.notes = []
        def node(self):
            return self.note
        def note(self, context, payload):
            if payload["cents"] < 0:
                raise Permanent("no")
            self.notes.append(context.operation_id)
        def effects(self):
            return self.notes
"""


def run_pytest(folder: Path, text: str, *options: str) -> str:
    (folder / "test_notes.py").write_text(textwrap.dedent(WORLD) + textwrap.dedent(text))
    # By its name where the installed package is older than the plugin.
    installed = {each.value for found in distributions() for each in found.entry_points if each.group == "pytest11"}
    named = () if MODULE in installed else ("-p", MODULE)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", *named, *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout + run.stderr


def test_the_fixture_fails_where_the_contract_is_violated_and_sums_up(tmp_path: Path) -> None:
    printed = run_pytest(
        tmp_path,
        """
        def test_naked(effect_contract):
            assert effect_contract(Notes, "naked").shown == "naked"

        def test_keyed(effect_contract):
            effect_contract(Notes, "keyed")
        """,
    )
    assert "1 failed, 1 passed" in printed
    assert "violated      the same id twice" in printed
    assert "Notes: naked declared, naked shown; 3 held" in printed
    assert "Notes: keyed declared, naked shown;" in printed


def test_the_marker_makes_one_test_of_each_cell(tmp_path: Path) -> None:
    printed = run_pytest(
        tmp_path,
        """
        @pytest.mark.effect_contract(Notes, "keyed")
        def test_notes(contract_cell):
            assert contract_cell.verdict == "held"
        """,
        *("-rA", "-k", "one-effect or same-id-twice or query"),
    )
    assert "PASSED test_notes.py::test_notes[one-effect]" in printed
    assert "ERROR test_notes.py::test_notes[same-id-twice]" in printed
    assert "not promised: no query is declared" in printed
    assert "1 passed, 2 skipped" in printed


def test_a_test_of_cells_without_the_marker_is_told_so(tmp_path: Path) -> None:
    printed = run_pytest(tmp_path, "def test_notes(contract_cell): pass")
    assert "has no @pytest.mark.effect_contract(make, guarantee)" in printed


def test_the_plugin_loads_nothing_before_it_is_used() -> None:
    program = (
        f"import sys, pytest; before = set(sys.modules); import {MODULE};"
        "print(*sorted(name for name in set(sys.modules) - before))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) == {"fencepost", "fencepost.jepsen", "fencepost.jepsen.contracts", MODULE}


@pytest.mark.parametrize("name", ["CellReport", "ContractViolated", "NotShown", "Report", "Verdict", "World"])
def test_every_public_name_of_testing_is_documented(name: str) -> None:
    import fencepost.testing

    assert name in fencepost.testing.__all__
    assert getattr(fencepost.testing, name).__doc__
