"""The demo is honest: it succeeds when every promise holds, and fails, naming what is wrong, when one
is broken on purpose.

The runs take their time waiting for elections and thinking, so they are played side by side, once.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fencepost.cli.demo.command import run
from fencepost.cli.demo.evidence import Evidence, committed_entries, committed_index, replay
from fencepost.cli.demo.narrator import PlainNarrator
from fencepost.cli.demo.proof import Finding, failures, prove
from fencepost.cli.local_cluster import node_command
from fencepost.cli.output import Renderer
from fencepost.raft.core.entry import Entry, HardState
from fencepost.raft.core.errors import CheckFailed
from fencepost.raft.core.token import FencingToken
from fencepost.storage.recovery import Recovered

from ..cli.running import environment

pytestmark = pytest.mark.servers

NODES = ("n1", "n2", "n3")

NO_FENCE = """
from fencepost.raft.effects.resources import sqlite
# Whatever token comes is stored and passes.
sqlite.check_fence = lambda name, stored, cluster, token, holder: stored is None or token != stored.token
"""

QUIET_FENCE = """
from fencepost.raft.effects.resources import sqlite
# The fence still only rises, and lets a lower token pass.
sqlite.check_fence = lambda name, stored, cluster, token, holder: stored is None or token > stored.token
"""

NO_DEDUPE = """
import os
os.environ["FENCEPOST_RAFT_ELECTION_TIMEOUT"] = "500ms"  # Four elections: this one would be last to end.
from fencepost.raft.effects.resources import sqlite_tables
sqlite_tables.SCHEMA = tuple(text.replace("CREATE UNIQUE INDEX", "CREATE INDEX") for text in sqlite_tables.SCHEMA)
from fencepost.raft.effects.resources import sqlite
sqlite.SqliteResource._known = lambda self, connection, attempts: {}
"""


class Run(NamedTuple):
    code: int
    text: str
    folder: Path

    @property
    def flat(self) -> str:
        """The text without its line breaks."""
        return " ".join(self.text.split())


async def _play(folder: Path, scenario: str, prelude: str) -> Run:
    if not prelude:
        return await _command(folder, "demo", "--plain", "--scenario", scenario, "--keep", str(folder))
    lines: list[str] = []
    code = await run(Renderer(), PlainNarrator(lines.append), scenario, 3, 7, folder, node_command(prelude))
    return Run(code, "\n".join(lines), folder)


async def _command(folder: Path, *arguments: str) -> Run:
    """The command as a user types it."""
    process = await asyncio.create_subprocess_exec(
        *node_command(), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=environment()
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return Run(process.returncode, output.decode(), folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    stories = {
        "sound": ("stale-leader", ""),
        "no fence": ("stale-leader", NO_FENCE),
        "quiet fence": ("stale-leader", QUIET_FENCE),
        "no dedupe": ("crash-loop", NO_DEDUPE),
    }

    async def play_all() -> list[Run]:
        return await asyncio.gather(
            *(_play(tmp_path_factory.mktemp("demo") / "kept", *story) for story in stories.values())
        )

    return dict(zip(stories, asyncio.run(play_all()), strict=True))


def test_a_frozen_leaders_late_write_is_refused_and_proven_s47(runs: dict[str, Run]) -> None:
    sound = runs["sound"]
    assert sound.code == 0, sound.text
    assert "verdict: a former leader's late write was refused" in sound.flat
    assert "the ledger refuses it: STALE_LEADER" in sound.flat
    assert "exactly once (guarantee: fenced)" in sound.flat
    for stage in ("detect", "elect", "catch-up", "fence", "reconcile", "first-effect"):
        assert f"            {stage} " in sound.text
    assert "Try next" in sound.flat


@pytest.mark.endure
@pytest.mark.parametrize("nodes", ["3", "5"])
@pytest.mark.parametrize(
    ("scenario", "shown"),
    [
        ("stale-leader", "late write of"),
        ("crash-loop", "tried again and recognised as done already"),
        ("rolling", "times a node was asked to stop, and it ended by itself with 0"),
    ],
)
async def test_every_scenario_with_three_and_five_nodes_s47_s50_s58(
    tmp_path: Path, nodes: str, scenario: str, shown: str
) -> None:
    played = await _command(tmp_path, "demo", "--plain", "--nodes", nodes, "--scenario", scenario)
    assert played.code == 0, played.text
    assert shown in played.flat


def test_without_the_fence_the_verdict_fails_and_names_the_fence(runs: dict[str, Run]) -> None:
    broken = runs["no fence"]
    assert broken.code == 8, broken.text
    assert "verdict: FAILED" in broken.flat
    assert "the fence went from 1.2 to 1.1" in broken.flat
    assert "not shown" in broken.flat


def test_a_fence_that_lets_the_late_write_in_quietly_is_not_taken_for_a_refusal(runs: dict[str, Run]) -> None:
    """The dedupe catches the late write, so every sum is right: nothing was shown all the same."""
    broken = runs["quiet fence"]
    assert broken.code == 8, broken.text
    assert "the ledger has no record of refusing it" in broken.flat


def test_without_dedupe_the_verdict_fails_and_names_the_payment(runs: dict[str, Run]) -> None:
    broken = runs["no dedupe"]
    assert broken.code == 8, broken.text
    assert "took effect 2 times" in broken.flat
    assert "was accepted twice" in broken.flat


def test_no_process_outlives_a_demo(runs: dict[str, Run]) -> None:
    commands = [_command_line(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    assert not [line for line in commands for played in runs.values() if str(played.folder) in line]


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


async def test_a_scenario_that_is_not_there_yet_says_so(tmp_path: Path) -> None:
    refused = await _command(tmp_path, "demo", "--scenario", "partition")
    assert refused.code == 2
    assert "the scenario partition is not there yet" in refused.flat
    assert "nothing was started" in refused.flat


async def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    refused = await _command(tmp_path, "demo", "--keep", str(tmp_path))
    assert refused.code == 2
    assert "is not empty" in refused.flat
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


# -- the proof itself, on evidence that was tampered with ----------------------------------------------


@pytest.fixture(scope="module")
def evidence(runs: dict[str, Run]) -> Evidence:
    return Evidence.read(runs["sound"].folder, NODES)


def _wrong(evidence: Evidence) -> str:
    return "\n".join(failures(prove(evidence)))


def test_sound_evidence_proves_everything(evidence: Evidence) -> None:
    assert all(finding.holds for finding in prove(evidence))
    assert len(evidence.submitted) > 50
    assert not Finding("x", ["y"]).holds


def test_a_payment_missing_in_the_ledger(evidence: Evidence) -> None:
    gone = evidence.entries[5].payment
    wrong = _wrong(replace(evidence, entries=[entry for entry in evidence.entries if entry.payment != gone]))
    assert f"{gone} took effect 0 times" in wrong
    assert "are in the ledger" in wrong


def test_a_payment_twice_in_the_ledger(evidence: Evidence) -> None:
    assert f"{evidence.entries[3].payment} took effect 2 times" in _wrong(
        replace(evidence, entries=[*evidence.entries, evidence.entries[3]])
    )


def test_a_payment_nobody_submitted(evidence: Evidence) -> None:
    foreign = evidence.entries[0]._replace(payment="pay-9999")
    assert "'pay-9999' stands in the ledger and was never submitted" in _wrong(
        replace(evidence, entries=[*evidence.entries, foreign])
    )


def test_cents_that_changed(evidence: Evidence) -> None:
    changed = evidence.entries[0]._replace(cents=evidence.entries[0].cents + 1)
    assert f"{changed.payment} was submitted as" in _wrong(replace(evidence, entries=[changed, *evidence.entries[1:]]))


def test_a_lower_token_after_a_higher_one(evidence: Evidence) -> None:
    last = evidence.ledger.operations[-1]
    ledger = evidence.ledger._replace(
        operations=[*evidence.ledger.operations[:-1], last._replace(token=FencingToken(1, last.token.term - 1))]
    )
    assert f"was accepted under token 1.{last.token.term - 1}" in _wrong(replace(evidence, ledger=ledger))


@pytest.mark.parametrize("change", [{"digest": b"other"}, {"log_index": 1}, {"result": b"other"}])
def test_a_ledger_row_that_is_not_what_the_log_says(evidence: Evidence, change: dict[str, Any]) -> None:
    row = evidence.ledger.operations[10]
    operations = [*evidence.ledger.operations]
    operations[10] = row._replace(**change)
    assert row.operation_id in _wrong(replace(evidence, ledger=evidence.ledger._replace(operations=operations)))


def test_an_accepted_row_that_was_never_committed(evidence: Evidence) -> None:
    last = evidence.ledger.operations[-1]
    foreign = last._replace(accepted=last.accepted + 1, operation_id="foreign")
    ledger = evidence.ledger._replace(operations=[*evidence.ledger.operations, foreign])
    assert "the ledger accepted foreign" in _wrong(replace(evidence, ledger=ledger))


def test_an_unrecorded_refusal(evidence: Evidence) -> None:
    assert "not shown" in _wrong(replace(evidence, ledger=evidence.ledger._replace(refusals=[])))


def test_a_refusal_that_the_node_never_heard_of(evidence: Evidence) -> None:
    assert "never wrote down" in _wrong(replace(evidence, node_logs={node: [] for node in NODES}))


def test_a_client_that_heard_nothing(evidence: Evidence) -> None:
    name = evidence.submitted[0].operation_id
    answers = {key: state for key, state in evidence.answers.items() if key != name}
    assert f"{name}: its client heard no answer" in _wrong(replace(evidence, answers=answers))


def test_logs_that_disagree(evidence: Evidence) -> None:
    log = evidence.logs["n2"]
    entries = [*log.entries]
    entries[7] = entries[7]._replace(data=b"other")
    wrong = _wrong(replace(evidence, logs={**evidence.logs, "n2": log._replace(entries=entries)}))
    assert "disagree about the committed entry 8" in wrong


def test_a_node_that_was_killed_instead_of_stopping(evidence: Evidence) -> None:
    assert "n1 ended with -9" in _wrong(replace(evidence, exit_codes=[("n1", -9)]))


# -- what three logs prove to be committed --------------------------------------------------------------


def _log(terms: list[int], commit_index: int = 0) -> Recovered:
    entries = [Entry(index, term, 0, 0, b"") for index, term in enumerate(terms, 1)]
    return Recovered(HardState(terms[-1], ""), entries, commit_index, 0)


@pytest.mark.parametrize(
    ("logs", "index"),
    [
        # Only what a majority holds of the highest term there is.
        (([1, 1, 2, 2], [1, 1, 2], [1, 1]), 3),
        (([1, 1, 2], [1, 1, 2], [1, 1, 1, 1, 1]), 3),
        # An entry of an older term on a majority may still be overwritten (Raft thesis figure 3.7).
        (([1, 2], [1, 2], [1, 3]), 0),
        (([1, 1], [1], [1]), 1),
    ],
)
def test_what_is_committed_by_the_logs_alone(logs: tuple[list[int], ...], index: int) -> None:
    found = {node: _log(terms) for node, terms in zip(NODES, logs, strict=True)}
    assert committed_index(found) == index
    assert len(committed_entries(found)[0]) == index


def test_a_recorded_commit_index_counts() -> None:
    logs = {"n1": _log([1, 2], 1), "n2": _log([1, 2]), "n3": _log([1, 3])}
    assert committed_index(logs) == 1


def _compacted(log: Recovered, previous_index: int) -> Recovered:
    kept, previous = log.entries[previous_index:], log.entries[previous_index - 1]
    return log._replace(entries=kept, previous_index=previous_index, previous_term=previous.term)


def test_logs_that_begin_behind_a_snapshot() -> None:
    """What one gave up another still has; what nobody has cannot be replayed, and that is said."""
    whole = _log([1, 1, 2, 2], 3)
    logs = {"n1": _compacted(whole, 3), "n2": _compacted(whole, 2), "n3": _log([1, 1, 2])}
    assert committed_index(logs) == 4
    assert committed_entries(logs) == (whole.entries, [])
    logs["n1"] = _compacted(whole, 4)
    assert committed_entries(logs) == (whole.entries, [])
    logs["n3"] = _log([1])
    with pytest.raises(CheckFailed, match="no log holds entry 2 any more"):
        replay(committed_entries(logs)[0])


def test_a_committed_entry_that_the_most_up_to_date_log_lacks() -> None:
    logs = {"n1": _log([1, 1, 1], 3), "n2": _log([1, 1, 1]), "n3": _log([1, 2])}
    assert any("index 3 was committed" in problem for problem in committed_entries(logs)[1])
