"""The long run over real processes and real resources, made short: it holds, and with a fault planted into the nodes it
does not. `make outbox` is the long one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.cli.local_cluster import node_command
from fencepost.jepsen.cluster.__main__ import conclude
from fencepost.jepsen.cluster.run import Outcome, Settings, run

from ..cli.running import environment
from ..servers.postgres import postgres_programs
from ..servers.program import missing

pytestmark = [pytest.mark.servers, pytest.mark.endure]

OFTEN_S = (0.5, 1.5)

NO_MEMORY = """
from fencepost.raft.effects.resources import sqlite_tables
sqlite_tables.SCHEMA = tuple(text.replace("CREATE UNIQUE INDEX", "CREATE INDEX") for text in sqlite_tables.SCHEMA)
from fencepost.raft.effects.resources import sqlite
sqlite.SqliteResource._known = lambda self, connection, attempts: {}
"""

# The fence still only rises, and lets a lower token pass. What it lets pass is a repeat nearly always, which would be
# recognised, and leave no trace. And a leader that is frozen is nearly always on its way to the file.
NO_FENCE = f"""{NO_MEMORY}
sqlite.check_fence = lambda name, stored, cluster, token, holder: stored is None or token > stored.token
sqlite.SqliteResource._think = lambda self, attempts: self._pause(0.3)
"""

# A leader that is killed has nearly always done something that no log knows of.
NO_DEDUPE = f"""{NO_MEMORY}
execute = sqlite.SqliteResource._execute
def slowly(self, token, holder, attempts):
    outcomes = execute(self, token, holder, attempts)
    self._pause(0.3)
    return outcomes
sqlite.SqliteResource._execute = slowly
"""

HASTE = """
from fencepost.raft.effects import queue
# A lane is not waited for.
queue.DispatchQueue._enter_lane = lambda self, name: None
def offer(self, operation):
    if self.startable(operation):
        self._enter(operation, operation)
queue.DispatchQueue.offer = offer
queue.DispatchQueue.release_lane = lambda self, name, returned: [offer(self, each) for each in returned]
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that the user of the database server may enter."""
    if postgres_programs() is None:
        missing("a PostgreSQL server", "postgresql")
    path = Path(tempfile.mkdtemp(prefix="fencepost-outbox-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


async def play(folder: Path, *, commands: int, seed: int, prelude: str = "") -> Outcome:
    command = node_command(prelude) if prelude else ()
    settings = Settings(commands, seed, rate=150, every_s=OFTEN_S, server_every=3, node_command=command)
    return await run(folder, settings)


async def test_every_command_once_and_in_order_whoever_is_killed_or_frozen_s47_s50_s52(folder: Path) -> None:
    report = (await play(folder, commands=4000, seed=1)).report
    assert report["violated"] == {}
    assert report["kills"] >= 2
    assert report["freezes"] >= 1
    assert report["server_crashes"] >= 1
    assert sum(each["effects"] for each in report["resources"].values()) == 4000
    assert report["repeats_replayed"] == 500


@pytest.mark.parametrize(
    ("prelude", "violated"),
    [(NO_FENCE, "F1 token order"), (NO_DEDUPE, "F2 effect once"), (HASTE, "F6 lane order")],
    ids=["no fence", "no dedupe", "no lanes"],
)
async def test_a_fault_in_the_nodes_is_found(folder: Path, prelude: str, violated: str) -> None:
    outcome = await play(folder, commands=2200, seed=3, prelude=prelude)
    assert violated in outcome.verdict.violations, outcome.report
    assert conclude(outcome, lambda line: None) == 1


def test_the_command_writes_a_report_and_keeps_what_it_was_asked_to(folder: Path) -> None:
    report, kept = folder / "report.json", folder / "kept"
    made = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "fencepost.jepsen.cluster", "run", "--commands", "300", "--rate", "0"),
            *("--seed", "4", "--out", str(report), "--folder", str(kept)),
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    found = json.loads(report.read_text())
    assert (found["commands"], found["violations"], found["holds"]) == (300, 0, True)
    assert (kept / "cluster" / "file.db").exists()
