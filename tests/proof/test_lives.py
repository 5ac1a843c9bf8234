"""Lives of whole clusters: a few seeds, one of them twice in other processes, and one that is made to fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.jepsen.proof.faults import KINDS
from fencepost.jepsen.proof.hard_states import HARD_STATES
from fencepost.jepsen.proof.plan import Fault, Plan
from fencepost.jepsen.proof.replay import replay_command, run_plan, shrink
from fencepost.jepsen.proof.schedule import SHORT, Scale, plan_of
from fencepost.raft.core.options import SECOND

ROOT = Path(__file__).resolve().parents[2]
BRIEF = Scale(safety_ns=6 * SECOND, quiet_heartbeats=6)

DIGESTS = """
from fencepost.jepsen.proof.replay import run_plan
from fencepost.jepsen.proof.schedule import SHORT, plan_of
for seed in (3, 4):
    result, life = run_plan(plan_of(seed, SHORT))
    print(result.digest, result.events, result.virtual_ns, sorted(result.faults.items()), result.failure)
"""


def digests(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS], env=environment, capture_output=True, text=True, check=True, timeout=100
    )
    return done.stdout


def test_a_seed_is_the_same_run_in_another_process_with_other_hashes() -> None:
    assert digests("1") == digests("2") != ""


@pytest.mark.parametrize("seed", range(1, 4))
def test_seeds(seed: int) -> None:
    result, _ = run_plan(plan_of(seed, SHORT))
    assert result.failure is None, result.failure and result.failure.text
    assert result.histories
    assert result.operations


@pytest.mark.endure
@pytest.mark.parametrize("name", sorted(HARD_STATES))
def test_every_beginning_is_one_that_a_cluster_gets_out_of(name: str) -> None:
    plan = plan_of(11, BRIEF)._replace(hard_state=name, faults=())
    needs = [each for each in HARD_STATES[name].needs if each not in str(plan.settings["resources"])]
    settings = {**plan.settings, "resources": " ".join([str(plan.settings["resources"]), *needs])}
    result, _ = run_plan(plan._replace(settings=settings))
    assert result.failure is None, result.failure and result.failure.text


def one_fault(kind: str) -> Plan:
    """A plan with a fault of this kind, as some seed has it."""
    for seed in range(1, 2000):
        plan = plan_of(seed, BRIEF)
        places = [place for place, fault in enumerate(plan.faults) if fault.kind == kind]
        if places:
            fault = plan.faults[places[0]]
            return plan._replace(hard_state="", faults=(Fault(3 * SECOND, kind, fault.parameters),))
    raise AssertionError(f"no seed has {kind}")


@pytest.mark.endure
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_fault_alone_is_survived(kind: str) -> None:
    result, _ = run_plan(one_fault(kind))
    assert result.failure is None, result.failure and result.failure.text


def test_leaving_a_fault_out_leaves_the_rest_as_it_was() -> None:
    """Until it would have happened, a run without it is the same run."""
    plan = plan_of(5, BRIEF)
    late = plan.faults[-1].at_ns
    _, whole = run_plan(plan._replace(safety_ns=late - 1, quiet_ns=0, faults=plan.faults[:-1]))
    _, without = run_plan(plan.keeping(range(len(plan.faults) - 1))._replace(safety_ns=late - 1, quiet_ns=0))
    assert whole.world.trace.digest() == without.world.trace.digest()


def test_a_failing_seed_is_shrunk_to_a_command_that_fails_alike() -> None:
    """A mutant makes it fail; what is left of the plan is all that is needed for that."""
    mutant = "resources are not claimed"
    plan = plan_of(4, SHORT)
    result, _ = run_plan(plan, mutant=mutant)
    assert result.failure is not None
    small = shrink(plan, result.failure, mutant=mutant, tries_max=15)
    assert small.failure.about == result.failure.about == "activation barrier"
    assert len(small.plan.faults) < len(plan.faults)
    assert "--faults none" in replay_command(small.plan, mutant=mutant)
    again, _ = run_plan(small.plan, mutant=mutant)
    assert again.failure == small.failure
