"""Random worlds: every seed is a cluster with faults, checked after each step, that must recover."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

from fencepost.jepsen.cores.chaos import Chaos, run
from fencepost.jepsen.cores.profiles import PROFILES
from fencepost.jepsen.cores.world import World
from fencepost.raft.core.options import SECOND

RUNS = 5
"""Of each profile, the first seeds of all."""
PROVE_SEEDS = 9000
PLACES = range(len(PROFILES))


@cache
def runs(place: int) -> list[Chaos]:
    """The runs of one profile."""
    return [run(place + round_ * len(PROFILES)) for round_ in range(RUNS)]


@pytest.mark.parametrize("place", PLACES, ids=[profile.name for profile in PROFILES])
def test_seeds(place: int) -> None:
    """Every profile recovers; and it does work and forces elections: where nothing happens, nothing is found."""
    profile = PROFILES[place]
    assert all(chaos.profile is profile for chaos in runs(place))
    assert sum(len(chaos.world.checks.committed) for chaos in runs(place)) > 100
    if profile.faults:
        assert sum(len(chaos.world.checks.leaders) for chaos in runs(place)) > RUNS
    terms = [sorted(chaos.world.checks.leaders) for chaos in runs(place)]
    assert all(before < after for those in terms for before, after in pairwise(those))


@pytest.mark.endure
@pytest.mark.parametrize("batch", range(50))
def test_many_seeds(batch: int) -> None:
    count = PROVE_SEEDS // 50
    first = RUNS * len(PROFILES) + batch * count
    for seed in range(first, first + count):
        run(seed)


def everywhere() -> list[Chaos]:
    return [chaos for place in PLACES for chaos in runs(place)]


def test_what_a_deposed_leader_accepted_is_sometimes_lost() -> None:
    """Conflicting logs are the dangerous case: it has to occur."""
    accepted = sum(chaos.accepted for chaos in everywhere())
    assert accepted > sum(len(chaos.world.checks.committed) for chaos in everywhere()) + 50


def test_members_change_and_some_changes_are_lost() -> None:
    changed = sum(chaos.changed for chaos in everywhere())
    history = [entry for chaos in everywhere() for entry in chaos.world.checks.members.history]
    joint = [configuration for _, configuration in history if configuration.is_joint]
    assert len(joint) > 20
    assert any(configuration.learners_next for configuration in joint)
    assert any(len(configuration.voters) >= 5 for _, configuration in history)
    assert any(len(configuration.retired) >= 2 for _, configuration in history)
    assert changed > 50
    assert any(lost_changes(chaos) > 0 for chaos in everywhere())


def lost_changes(chaos: Chaos) -> int:
    """How many changes that a leader took in never got through, at the least."""
    history = chaos.world.checks.members.history
    # A leader leaves a joint configuration by itself.
    left = len([configuration for _, configuration in history if configuration.is_joint and configuration.auto_leave])
    return chaos.changed - (len(history) - left)


def test_leadership_is_handed_over_and_reads_are_answered_and_refused() -> None:
    assert sum(chaos.transferred for chaos in everywhere()) > 30
    assert sum(chaos.world.reads.ready for chaos in everywhere()) > 500
    assert sum(chaos.world.reads.refused for chaos in everywhere()) > 500


def test_snapshots_are_taken_and_installed_at_nodes_that_lag() -> None:
    worlds = [chaos.world for chaos in everywhere()]
    assert sum(world.taken for world in worlds) > 100
    assert sum(world.installed for world in worlds) > 10
    assert sum(world.damaged for world in worlds) > 3


def test_entries_that_left_the_window_are_read_back_for_followers() -> None:
    by_name = {PROFILES[place].name: sum(chaos.world.read_back for chaos in runs(place)) for place in PLACES}
    assert by_name["five"] + by_name["power"] > 100
    assert by_name["all together"] > 10
    assert by_name["lossy"] == 0


def test_the_same_seed_is_the_same_run() -> None:
    for place in (6, len(PROFILES) - 1):
        one, two = run(place), runs(place)[0]
        assert one.world.trace.story() == two.world.trace.story()
        assert (one.world.steps, one.world.checks.committed) == (two.world.steps, two.world.checks.committed)
        assert one.world.trace.story() != runs(place)[1].world.trace.story()


def test_quiet_world_elects_once() -> None:
    for seed in range(3):
        world = World(seed=seed)
        world.run_for(60 * SECOND)
        assert len(world.checks.leaders) == 1
        assert world.steps < 8000  # Heartbeats and their answers, no more.
