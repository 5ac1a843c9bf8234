"""Random worlds: every seed is a cluster with faults, checked after each step, that must recover."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fencepost.jepsen.cores.chaos import run
from fencepost.jepsen.cores.profiles import PROFILES
from fencepost.jepsen.cores.world import World
from fencepost.raft.core.options import SECOND

SEEDS = 160
BATCH = 40
PROVE_SEEDS = 8000


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_seeds(first: int) -> None:
    for seed in range(first, first + BATCH):
        run(seed)


@pytest.mark.prove
@pytest.mark.parametrize("batch", range(50))
def test_many_seeds(batch: int) -> None:
    count = PROVE_SEEDS // 50
    first = SEEDS + batch * count
    for seed in range(first, first + count):
        run(seed)


def test_the_same_seed_is_the_same_run() -> None:
    one, two = run(7), run(7)
    assert one.world.trace.story() == two.world.trace.story()
    assert (one.world.steps, one.world.checks.committed) == (two.world.steps, two.world.checks.committed)
    assert one.world.trace.story() != run(7 + len(PROFILES)).world.trace.story()


@pytest.mark.parametrize("profile", range(len(PROFILES)))
def test_every_profile_does_work_and_most_force_elections(profile: int) -> None:
    """A world in which nothing happens would find nothing."""
    runs = [run(seed) for seed in range(profile, 5 * len(PROFILES), len(PROFILES))]
    assert all(chaos.profile is PROFILES[profile] for chaos in runs)
    assert sum(len(chaos.world.checks.committed) for chaos in runs) > 100
    if PROFILES[profile].faults:
        assert sum(len(chaos.world.checks.leaders) for chaos in runs) > len(runs)
    terms = [sorted(chaos.world.checks.leaders) for chaos in runs]
    assert all(before < after for those in terms for before, after in pairwise(those))


def test_what_a_deposed_leader_accepted_is_sometimes_lost() -> None:
    """Conflicting logs are the dangerous case: it has to occur."""
    runs = [run(seed) for seed in range(16)]
    assert sum(chaos.accepted for chaos in runs) > sum(len(chaos.world.checks.committed) for chaos in runs) + 50


def test_quiet_world_elects_once() -> None:
    for seed in range(10):
        world = World(seed=seed)
        world.run_for(60 * SECOND)
        assert len(world.checks.leaders) == 1
        assert world.steps < 8000  # Heartbeats and their answers, no more.
