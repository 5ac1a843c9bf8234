"""The shrinker, on failures that are made up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.jepsen.proof.plan import Fault, Plan, command, from_json, to_json
from fencepost.jepsen.proof.schedule import plan_of
from fencepost.jepsen.proof.shrink import Failure, Shrinker
from fencepost.raft.core.options import SECOND

FAULTS = tuple(Fault(number * SECOND, f"kind-{number}", {"number": number}) for number in range(20))
WHOLE = Plan(7, 5, 4, "figure-8", {}, 20 * SECOND, 300 * SECOND, FAULTS)


def shrunk(fails: Callable[[Plan], bool], plan: Plan = WHOLE, *, about: str = "it", tries_max: int = 200) -> Plan:
    tried: list[Plan] = []

    def attempt(smaller: Plan) -> Failure | None:
        tried.append(smaller)
        if fails(smaller):
            return Failure(about, min(smaller.safety_ns, 15 * SECOND), "")
        # Another fault, which is there whatever is left out: it must not be taken for the one that is looked for.
        return Failure("another", 0, "")

    found = Shrinker(attempt, tries_max=tries_max).shrink(plan, Failure("it", 15 * SECOND, ""))
    assert found.tries == len(tried) <= tries_max
    return found.plan


def has(plan: Plan, *numbers: int) -> bool:
    return set(numbers) <= {fault.parameters["number"] for fault in plan.faults}


def test_only_the_faults_that_are_needed_are_left_and_named_by_their_numbers() -> None:
    small = shrunk(lambda plan: has(plan, 3, 11))
    assert small.kept == (3, 11)
    assert [fault.kind for fault in small.faults] == ["kind-3", "kind-11"]
    assert (small.nodes, small.clients, small.hard_state, small.quiet_ns) == (3, 1, "", 0)


def test_what_is_needed_beside_the_faults_is_kept() -> None:
    small = shrunk(lambda plan: has(plan, 5) and plan.nodes == 5 and plan.clients >= 3 and bool(plan.hard_state))
    assert (small.kept, small.nodes, small.clients, small.hard_state) == ((5,), 5, 3, "figure-8")


def test_the_run_is_no_longer_than_it_has_to_be() -> None:
    small = shrunk(lambda plan: has(plan, 2) and plan.safety_ns >= 4 * SECOND)
    assert 4 * SECOND <= small.safety_ns <= 8 * SECOND


def test_a_failure_that_needs_no_fault_is_left_without_any() -> None:
    assert shrunk(lambda plan: True).faults == ()


def test_another_failure_is_not_taken_for_the_one_that_is_looked_for() -> None:
    assert shrunk(lambda plan: True, about="something else") == WHOLE


def test_the_bound_on_tries_is_kept_and_what_was_found_by_then_is_the_answer() -> None:
    small = shrunk(lambda plan: has(plan, 3, 11, 17), tries_max=6)
    assert has(small, 3, 11, 17)
    assert len(small.faults) < len(FAULTS) or small.quiet_ns == 0


def test_a_plan_is_replayed_by_one_command() -> None:
    assert command(WHOLE, WHOLE) == "fencepost jepsen replay 7"
    small = WHOLE.keeping([3, 11])._replace(nodes=3, hard_state="", safety_ns=4500 * SECOND // 1000, quiet_ns=0)
    assert command(small, WHOLE, mutant="a mutant") == (
        "fencepost jepsen replay 7 --nodes 3 --from-boot --faults 3,11 --safety 4.5 --quiet-for 0 --mutant 'a mutant'"
    )
    assert "--faults none" in command(WHOLE.keeping([]), WHOLE)


def test_a_part_of_a_part_keeps_the_numbers_of_the_whole() -> None:
    assert WHOLE.keeping([3, 5, 11, 13]).keeping([1, 2]).kept == (5, 11)


def test_a_plan_is_a_text_and_back() -> None:
    for seed in range(1, 30):
        plan = plan_of(seed)
        assert from_json(to_json(plan)) == plan
    small = WHOLE.keeping([1, 4])
    assert from_json(to_json(small)) == small
    with pytest.raises(ValueError, match="no plan"):
        from_json('{"seed": 7}')
