"""The recorded states of etcd-io/raft on its own interaction tests, and this core's on the same."""

from __future__ import annotations

import gc
import importlib.util
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fencepost.raft.core import commitment, election, membership

from ..core.planting import planted
from .adapter import NOT_APPLICABLE, Adapter

FIELDS = ["role", "term", "vote", "commit", "lead", "log", "config"]
POINTS_LEAST = 133
"""So many quiet points there are in the 22 transcripts; fewer would mean that something was left out."""


@pytest.fixture(scope="module")
def replay(conformance_folder: Path) -> Iterator[ModuleType]:
    """The tool that comes with the data."""
    path = list(sys.path)
    spec = importlib.util.spec_from_file_location("conformance_replay", conformance_folder / "replay.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path[:] = path
        sys.dont_write_bytecode = writes


def _compare(replay: ModuleType, conformance_folder: Path, name: str) -> tuple[int, list[str]]:
    transcript = conformance_folder / "transcripts" / f"{name}.txt"
    states = conformance_folder / "states" / f"{name}.jsonl"
    with warnings.catch_warnings():
        # The tool leaves closing its files to the collector.
        warnings.simplefilter("ignore", ResourceWarning)
        points, differences = replay.run(str(transcript), str(states), Adapter, "quiet", FIELDS)
        gc.collect()
    return points, differences


def test_every_transcript_agrees_at_every_quiet_point(replay: ModuleType, conformance_folder: Path) -> None:
    names = sorted(path.stem for path in (conformance_folder / "transcripts").glob("*.txt"))
    assert names
    points = 0
    for name in names:
        if name in NOT_APPLICABLE:
            continue
        compared, differences = _compare(replay, conformance_folder, name)
        assert not differences, "\n".join(differences)
        points += compared
    assert points >= POINTS_LEAST


@pytest.mark.parametrize(
    ("name", "function", "line", "fault"),
    [
        (
            "confchange_v1_remove_leader_stepdown",
            membership.configuration_committed,
            "state.options.step_down_on_removal and",
            "False and",
        ),
        (
            "confchange_v2_add_double_auto",
            membership.configuration_committed,
            "configuration.auto_leave and",
            "False and",
        ),
        ("prevote", election.handle_pre_vote_response, "_count_pre_votes(state)", "pass"),
        ("campaign", commitment.advance_commit_index, "state.commit_index = index", "state.commit_index = index - 1"),
    ],
)
def test_the_comparison_sees_a_planted_fault(
    replay: ModuleType, conformance_folder: Path, name: str, function: object, line: str, fault: str
) -> None:
    with planted(function, line, fault):  # type: ignore[arg-type]
        try:
            _, differences = _compare(replay, conformance_folder, name)
        except AssertionError as error:
            differences = [str(error)]
    assert differences
