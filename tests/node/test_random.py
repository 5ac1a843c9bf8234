"""Random lives of whole clusters: crashes, pauses, partitions, held effects, outages. The seed is the bug report."""

from __future__ import annotations

import pytest

from .chaos import Chaos
from .wilder import Wilder
from .world import World


@pytest.mark.parametrize("seed", range(12))
def test_a_random_life_of_three_nodes(seed: int) -> None:
    Chaos(seed).run()


@pytest.mark.parametrize("seed", range(1000, 1004))
def test_a_random_life_of_five_nodes(seed: int) -> None:
    Chaos(seed, nodes=5).run()


@pytest.mark.endure
@pytest.mark.parametrize("seed", range(2000, 2400))
def test_many_random_lives(seed: int) -> None:
    Chaos(seed, nodes=3 if seed % 3 else 5).run()


def test_one_seed_gives_one_life() -> None:
    """Two runs of a seed must be the same run, or the seed is no bug report."""

    def life() -> tuple[int, list[bytes], list[str]]:
        chaos = Chaos(42)
        chaos.run()
        world: World = chaos.world
        return (
            world.loop.now_ns,
            [node.machine.state_hash() for node in world.nodes.values()],
            [each.operation_id for spec in world.specs for each in spec.store.operations],
        )

    assert life() == life()


def test_the_lives_are_wild_enough() -> None:
    """Faults that never happen prove nothing: over a few seeds every kind is seen at work."""
    seen: dict[str, int] = dict.fromkeys(["terms", "refused", "replayed", "retried", "lost", "unknown", "retry"], 0)
    for seed in range(6):
        chaos = Chaos(seed)
        chaos.run()
        machine = next(iter(chaos.world.nodes.values())).machine
        seen["terms"] += next(iter(chaos.world.nodes.values())).raft.current_term
        seen["refused"] += sum(len(spec.store.refusals) for spec in chaos.world.specs)
        seen["replayed"] += sum(answer.replayed for command in chaos.commands for answer in command.heard)
        seen["retried"] += sum(operation.failures for operation in machine.operations.values())
        seen["lost"] += sum(operation.lost for operation in machine.operations.values())
        statuses = [answer.status for command in chaos.commands for answer in command.heard]
        seen["unknown"] += statuses.count(3)
        seen["retry"] += statuses.count(2)
    assert min(seen.values()) > 5, seen


@pytest.mark.parametrize("seed", range(3006, 3009))
def test_a_random_life_of_a_cluster_that_changes(seed: int) -> None:
    Wilder(seed).run()


@pytest.mark.endure
@pytest.mark.parametrize("seed", range(4000, 4400))
def test_many_random_lives_of_clusters_that_change(seed: int) -> None:
    Wilder(seed).run()


def test_the_changing_lives_are_wild_enough() -> None:
    seen: dict[str, int] = dict.fromkeys(["restored", "handed over", "answered", "refused", "elsewhere", "gone"], 0)
    for seed in range(3000, 3006):
        life = Wilder(seed)
        life.run()
        seen["restored"] += life.restored
        seen["handed over"] += life.handed_over
        seen["gone"] += list(life.wanted.values()).count("gone")
        for name, count in life.read.items():
            seen[name] += count
    assert min(seen.values()) > 1, seen
