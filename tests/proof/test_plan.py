"""Plans: made from the seed alone, fit for any number of nodes, with faults of every kind among them."""

from __future__ import annotations

import pytest

from fencepost.jepsen.proof.faults import KINDS
from fencepost.jepsen.proof.hard_states import HARD_STATES
from fencepost.jepsen.proof.schedule import SHORT, plan_of
from fencepost.jepsen.proof.surroundings import options_of
from fencepost.jepsen.sim.streams import stream

SEEDS = range(1, 400)


def test_a_plan_is_made_from_its_seed_alone() -> None:
    for seed in SEEDS:
        assert plan_of(seed) == plan_of(seed)
    assert plan_of(1) != plan_of(2)


def test_another_number_of_nodes_or_another_length_changes_nothing_else() -> None:
    for seed in SEEDS:
        plan = plan_of(seed)
        assert plan_of(seed, nodes=7) == plan._replace(nodes=7)
        assert plan_of(seed, SHORT).faults == plan.faults


def test_plans_have_everything_between_them_and_none_has_all() -> None:
    plans = [plan_of(seed) for seed in SEEDS]
    assert {fault.kind for plan in plans for fault in plan.faults} == set(KINDS)
    assert {plan.hard_state for plan in plans} == {*HARD_STATES, ""}
    assert {plan.nodes for plan in plans} == {3, 5}
    assert all(1 <= len({fault.kind for fault in plan.faults}) <= 8 for plan in plans if plan.faults)
    for plan in plans:
        options_of(plan.settings)  # Raises where they cannot work together.
        assert [fault.at_ns for fault in plan.faults] == sorted(fault.at_ns for fault in plan.faults)
        needs = HARD_STATES[plan.hard_state].needs if plan.hard_state else ()
        assert set(needs) <= set(str(plan.settings["resources"]).split())


@pytest.mark.parametrize("purpose", ["network", "machine n1", "wishes of client1"])
def test_a_stream_is_the_seeds_and_its_own(purpose: str) -> None:
    first, again, other = stream(7, purpose), stream(7, purpose), stream(7, "another")
    drawn = [first.random() for _ in range(5)]
    found = []
    for _ in range(5):
        other.random()
        found.append(again.random())
    assert found == drawn
    assert stream(8, purpose).random() != drawn[0] != stream(7, "another").random()
