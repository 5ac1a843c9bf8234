"""Imports run downhill, and the core is pure (docs/architecture.md)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .imports import complaint, imports_of, module_name
from .tree import ROOT, copy_sources, module_files


def complaints(source: str, module: str, *, is_package: bool = False) -> list[str]:
    found = [(line, complaint(line)) for line in imports_of(source, module, is_package=is_package)]
    return [f"{module}:{line.line}: {why}" for line, why in found if why is not None]


def test_every_import_of_the_package_runs_downhill() -> None:
    found = []
    for path in module_files():
        module = module_name(path, ROOT)
        found += complaints(path.read_text(encoding="utf-8"), module, is_package=path.name == "__init__.py")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("raft.core.step", "import time"),
        ("raft.core.step", "def f():\n    import random"),
        ("raft.core.step", "from asyncio import Queue"),
        ("raft.core.step", "from ..outbox.codec import Command"),
        ("raft.core.step", "from ..ports import Clock"),
        ("raft.core.step", "import structlog"),
        ("raft.ports", "from .outbox.codec import Command"),
        ("raft.outbox.machine", "import time"),
        ("raft.outbox.machine", "import structlog"),
        ("raft.outbox.machine", "from ..ports import Machine"),
        ("raft.node.node", "from ...storage.disk import Disk"),
        ("raft.node.node", "from ..effects.dispatcher import Dispatcher"),
        ("raft.effects.dispatcher", "from ..node.node import Node"),
        ("raft.effects.dispatcher", "import rich"),
        ("storage.log_store", "from ..transport.framing import encode_frame"),
        ("storage.log_store", "from ..raft.outbox.codec import Command"),
        ("storage.log_store", "if TYPE_CHECKING:\n    from ..raft.node.node import Node"),
        ("transport.client", "from ..storage.identity import DataDirectory"),
        ("transport.client", "from ..raft.outbox.machine import OutboxMachine"),
        ("transport.client", "from ..raft.node.node import Node"),
        ("transport.client", "import uvloop"),
        ("transport.client", "from fencepost.raft.core.entry import Entry"),
        ("transport.client", "import fencepost"),
        ("transport.client", "from .. import __version__"),
        ("cli.main", "from ..jepsen.cores import world"),
        ("cli.main", "from ..jepsen.checkers import check"),
        ("cli.commands.jepsen", "from ...jepsen.cores import world"),
        ("cli.commands.jepsen_runs", "from ...jepsen.sim.world import World"),
        ("cli.commands.debug", "from ...jepsen.proof.replay import run_plan"),
    ],
)
def test_a_planted_violation_is_found(module: str, source: str) -> None:
    assert len(complaints(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("raft.core.errors", "from collections.abc import Sequence"),
        ("raft.core.messages", "from .entry import Entry"),
        ("raft.outbox.codec", "from ..core.token import FencingToken\nimport hashlib, json, msgspec"),
        ("raft.effects.resources.sqlite", "from ...core.errors import StaleLeader\nimport sqlite3"),
        ("transport.codec", "from ..raft.outbox.codec import Command"),
        ("storage.log_store", "from ..raft.ports import LogStore\nfrom .disk import Disk\nimport threading"),
        ("cli.compose", "from ..storage import identity\nfrom ..raft.node.node import Node\nimport uvloop"),
        ("cli.commands.jepsen", "def check():\n    from ...jepsen.checkers import check"),
        ("cli.commands.jepsen_runs", "def run():\n    from ...jepsen.proof.replay import run_plan"),
        ("jepsen.cores", "from ..cli.process import run_node"),
    ],
)
def test_what_is_allowed_is_not_complained_about(module: str, source: str) -> None:
    assert complaints(source, module) == []


def lint_imports(sources: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "lint-imports"
    return subprocess.run(
        [str(program), "--no-cache"],
        cwd=sources,
        env={**os.environ, "PYTHONPATH": str(sources / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_import_linter_follows_the_links(tmp_path: Path) -> None:
    """A contract over a package whose links are not followed would be kept whatever the code does."""
    sources = copy_sources(tmp_path / "sources")
    shutil.copy(ROOT / "pyproject.toml", sources)
    assert lint_imports(sources).returncode == 0
    (sources / "storage" / "planted.py").write_text("from ..transport import anything\n")
    planted = lint_imports(sources)
    assert planted.returncode != 0
    assert "fencepost.storage.planted -> fencepost.transport" in " ".join(planted.stdout.split())
