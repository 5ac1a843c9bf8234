"""A node whose state machine does something else than the others' is found out by its digest, and stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.jepsen.sim.jobs import Fate
from fencepost.jepsen.sim.node import POINT_ENTRIES, SimNode
from fencepost.jepsen.sim.violation import Violation
from fencepost.jepsen.sim.world import World
from fencepost.raft.core.entry import Entry
from fencepost.raft.core.errors import StateDiverged
from fencepost.raft.node.applier import Applier
from fencepost.raft.node.divergence import DivergenceWatch

from ..core.planting import planted
from .watching import MILLISECOND, SECOND, begun


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, BaseException]]:
    """Why nodes end by themselves, instead of the end of the run."""
    found: list[tuple[str, BaseException]] = []
    monkeypatch.setattr(World, "judge_end", lambda world, node, error: found.append((node.name, error)))
    return found


def go_astray(node: SimNode, at: int) -> None:
    """From entry ``at`` on the node counts one entry more than it was given."""
    apply: Callable[[Entry], Any] = node.registers.apply

    def wrong(entry: Entry) -> Any:
        if entry.index >= at and not node.registers.values.get("wrong"):
            node.registers.values["wrong"] = True
        return apply(entry)

    node.applier._apply[3] = wrong


def work(world: World, entries: int) -> None:
    """So many plain proposals, one after another, at whoever leads."""
    client = world.client()
    for number in range(entries):
        job = client.propose(f"w{number}", b'["write","key",%d]' % number)
        while job.fate is Fate.OPEN:  # It ends as unknown where a leader ends.
            world.run_for(10 * MILLISECOND)


def point_of(node: SimNode) -> dict[str, Any]:
    ledger = node.divergence.ledger
    return {"agreed": ledger.agreed_index, "differences": ledger.differences}


def test_healthy_nodes_agree_at_every_point(ends: list[tuple[str, BaseException]]) -> None:
    with begun() as world:
        world.elect()
        work(world, 3 * POINT_ENTRIES)
        world.run_for(SECOND)
        for node in world.up():
            newest = node.divergence.ledger.newest
            assert newest is not None
            assert newest[0] == node.applier.last_applied // POINT_ENTRIES * POINT_ENTRIES >= 3 * POINT_ENTRIES
            assert sorted(newest[1]) == [2, 3]
            assert point_of(node) == {"agreed": newest[0], "differences": 0}
        assert ends == []


@pytest.mark.parametrize("leads", [False, True])
def test_the_node_that_is_alone_with_its_state_stops_and_the_others_go_on(
    ends: list[tuple[str, BaseException]], leads: bool
) -> None:
    with begun() as world:
        leader = world.elect()
        stray = leader if leads else next(node for node in world.up() if node is not leader)
        go_astray(stray, at=1)
        work(world, 2 * POINT_ENTRIES)
        world.run_for(SECOND)
        assert [name for name, _ in ends] == [stray.name]
        error = ends[0][1]
        assert isinstance(error, StateDiverged)
        assert f"after entry {POINT_ENTRIES}" in error.message
        assert not stray.leads
        assert stray.process.dead
        # What it said last may be lost with its process.
        assert {point_of(node)["differences"] for node in world.up()} <= {0, 1}
        assert all(point_of(node)["agreed"] >= 2 * POINT_ENTRIES for node in world.up())


def test_it_stops_again_when_it_is_started_again_and_has_the_same_state(
    ends: list[tuple[str, BaseException]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with begun() as world:
        leader = world.elect()
        name = next(node.name for node in world.up() if node is not leader)
        go_astray(world.node(name), at=1)
        work(world, 2 * POINT_ENTRIES)
        world.run_for(SECOND)
        assert [each for each, _ in ends] == [name]
        # The defect is in what it computes, so it computes the same from the same log.
        started = world.hooks.node_started
        started.append(lambda node: go_astray(node, at=1) if node.name == name else None)
        world.start(name)
        world.run_for(20 * SECOND)  # Nothing new is proposed meanwhile.
        assert [each for each, _ in ends] == [name, name]


def test_a_node_that_was_away_hears_of_what_the_others_compared_without_it(
    ends: list[tuple[str, BaseException]],
) -> None:
    with begun() as world:
        leader = world.elect()
        stray = next(node for node in world.up() if node is not leader)
        world.network.isolate(stray.name)
        go_astray(stray, at=1)
        work(world, 2 * POINT_ENTRIES)
        world.run_for(10 * SECOND)
        assert ends == []
        world.network.heal()
        world.run_for(20 * SECOND)
        assert [name for name, _ in ends] == [stray.name]


def test_one_against_one_is_told_loudly_and_stops_nobody(ends: list[tuple[str, BaseException]]) -> None:
    with begun(nodes=2) as world:
        leader = world.elect()
        stray = next(node for node in world.up() if node is not leader)
        go_astray(stray, at=1)
        work(world, 2 * POINT_ENTRIES)
        world.run_for(SECOND)
        assert ends == []
        assert all(point_of(node)["differences"] >= 2 for node in world.up())
        assert all(point_of(node)["agreed"] == 0 for node in world.up())


def test_a_run_in_which_a_node_diverges_fails() -> None:
    with begun() as world:
        leader = world.elect()
        go_astray(next(node for node in world.up() if node is not leader), at=1)
        with pytest.raises(Violation, match="StateDiverged"):
            work(world, 2 * POINT_ENTRIES)


@pytest.mark.parametrize(
    ("function", "line", "fault", "sees"),
    [
        (
            DivergenceWatch.before_turn_ends,
            "if newest is not None:",
            "if False:",
            test_a_node_that_was_away_hears_of_what_the_others_compared_without_it,
        ),
        (
            Applier.apply,
            "self._points.append((point, self.digests()))",
            "pass",
            test_healthy_nodes_agree_at_every_point,
        ),
    ],
    ids=["told once", "no points"],
)
def test_a_planted_fault_is_seen(
    function: Any, line: str, fault: str, sees: Any, ends: list[tuple[str, BaseException]]
) -> None:
    with planted(function, line, fault), pytest.raises((AssertionError, Violation)):
        sees(ends)
