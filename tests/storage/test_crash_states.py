"""Everything that storage does, cut off between any two operations in every way, and again while it recovers (S14).

The lives and the judge are the proof's own (``jepsen/crashes``): the same that ``fencepost debug`` runs on a
real disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.jepsen.crashes import judge, life
from fencepost.jepsen.crashes.explore import Explored, Explorer
from fencepost.jepsen.crashes.plan import make_plan
from fencepost.jepsen.proof.mutants import MUTANTS, Mutant
from fencepost.jepsen.proof.planting import planted
from fencepost.storage import segments, snapshot_files, statefiles
from fencepost.storage.spare import Spare

STEPS = 25
KINDS = {"kill", "power", "torn", "drop", "name", "mixed"}
"""Ways to crash. The same behind ``again-``: of a recovery."""


def told(explored: Explored) -> str:
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(explored.kinds.items()))
    return f"{explored.boundaries} boundaries, {explored.states} distinct states, {explored.judged} judged: {kinds}"


def test_s14_a_slice_of_all_crashes_leaves_what_was_promised() -> None:
    explorer = Explorer(every=3, again_every=30)
    for seed in (1, 2):
        explorer.live(seed, STEPS)
    explored = explorer.explored()
    assert explored.problems == []
    assert set(explored.kinds) >= KINDS | {"again-kill", "again-torn", "again-power"}
    assert explored.states > 1_000, told(explored)


@pytest.mark.endure
@pytest.mark.parametrize("first", [1, 11, 21, 31])
def test_s14_every_crash_of_many_lives_leaves_what_was_promised(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A dozen thousand states in each run of it: all that a few lives leave, and all that their recoveries leave."""
    explorer = Explorer()
    seed = first
    while explorer.explored().states < 12_000:
        explorer.live(seed, STEPS)
        seed += 1
    explored = explorer.explored()
    with capsys.disabled():
        print(f"\nseeds {first} to {seed - 1}: {told(explored)}")
    assert explored.problems == []
    # A recovery never leaves two writes unsynced, so none can be missing in front of another.
    assert set(explored.kinds) == KINDS | {f"again-{kind}" for kind in KINDS - {"drop"}}


def test_a_plan_has_something_of_everything() -> None:
    plans = [make_plan(seed, 30) for seed in range(20)]
    kinds = {"Open", "Close", "Seal", "Writes", "Receive", "BreakOff", "Remember", "Claim", "Execute"}
    taking = 0
    for plan in plans:
        steps = {type(step).__name__ for step in plan.steps}
        assert steps >= kinds, plan.seed
        taking += "Take" in steps
    # Nothing can be taken where nothing more was committed since the last snapshot.
    assert taking > 10


def test_segments_are_prepared_and_recycled_in_these_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what is cut off are all the ways in which a segment can begin."""
    became: list[bool] = []
    genuine = Spare.become

    def become(spare: Spare, header: segments.SegmentHeader) -> segments.ActiveSegment:
        became.append(spare._old_seed is not None)
        return genuine(spare, header)

    monkeypatch.setattr(Spare, "become", become)
    explorer = Explorer(every=1_000_000, again_every=0)
    for seed in (1, 2, 3):
        explorer.live(seed, STEPS)
    assert set(became) == {True, False}


# -- planted faults: each must be found by the same exploration --------------------------------------


def _planted(name: str, function: Callable[..., Any], line: str, fault: str) -> Mutant:
    return Mutant(name, "storage", function, line, fault)


FROM_THE_PROOF = (
    "a record is not synced",
    "term and vote are not read back",
    "a truncation is not read back",
    "the checksum of a body is not compared",
    "a new segment is not named in the manifest",
    "a name is not synced",
    "a segment too many is deleted",
    "a snapshot is not synced before it gets its name",
)
FAULTS = (
    *(MUTANTS[name] for name in FROM_THE_PROOF),
    _planted(
        "the name of a new segment is not synced",
        segments.create_segment,
        "disk.sync_directory(directory)",
        "pass",
    ),
    _planted("a recycled segment is not synced before it gets its name", Spare.become, "file.sync_data()", "pass"),
    _planted("a state file gets its name before it is synced", statefiles.write_new_file, "file.sync()", "pass"),
    _planted(
        "the name of a snapshot is not synced",
        snapshot_files.Draft.publish,
        "self._disk.sync_directory(path.parent)",
        "pass",
    ),
)


def hunt(seeds: range, steps: int) -> list[str]:
    explorer = Explorer(every=2, again_every=50, problems_max=1)
    for seed in seeds:
        try:
            explorer.live(seed, steps)
        except Exception as error:
            return [f"the life itself fails: {error!r}"]
        if problems := explorer.explored().problems:
            return problems
    return []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_exploration_finds(fault: Mutant) -> None:
    with planted(fault.function, fault.line, fault.fault):
        assert hunt(range(1, 6), STEPS), fault.name


@pytest.mark.parametrize(
    ("function", "line", "fault"),
    [
        (life.Life._on_durable, "while self._acknowledged < sequence:", "while self._acknowledged <= sequence:"),
        (judge.known_after, "plan.states[acknowledged :", "plan.states[acknowledged + 1 :"),
    ],
)
def test_a_judge_who_expects_more_than_there_is_complains(function: Callable[..., Any], line: str, fault: str) -> None:
    with planted(function, line, fault):
        assert hunt(range(1, 2), STEPS)
