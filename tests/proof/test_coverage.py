"""A run set that has not reached everything proves nothing, and says so."""

from __future__ import annotations

from collections import Counter

from fencepost.jepsen.proof.coverage import Coverage
from fencepost.jepsen.proof.faults import KINDS
from fencepost.jepsen.proof.hard_states import HARD_STATES
from fencepost.jepsen.proof.life import Result
from fencepost.jepsen.proof.mutants import Trial
from fencepost.jepsen.proof.report import Report
from fencepost.jepsen.proof.shrink import Failure
from fencepost.jepsen.proof.tally import OBSERVED
from fencepost.raft.core.options import SECOND

EVERYTHING = dict.fromkeys((*KINDS, *OBSERVED), 1)


def full() -> Coverage:
    coverage = Coverage()
    names = sorted(HARD_STATES)
    for place in range(2 * len(names)):
        name = names[place] if place < len(names) else ""
        coverage.add(EVERYTHING, name, zombie=place % 3 == 0, membership_partition=place % 4 == 0)
    return coverage


def test_nothing_is_missing_where_everything_happened() -> None:
    assert full().missing(KINDS, HARD_STATES) == []


def test_every_kind_and_every_beginning_is_missed() -> None:
    for name in KINDS:
        coverage = full()
        del coverage.faults[name]
        assert coverage.missing(KINDS, HARD_STATES) == [f"no seed had the fault {name}"]
    for name in HARD_STATES:
        coverage = full()
        del coverage.hard_states[name]
        assert coverage.missing(KINDS, HARD_STATES) == [f"no seed began with {name}"]


def test_shares_below_their_bounds_are_missed() -> None:
    coverage = full()
    coverage.zombie_seeds = int(0.29 * coverage.seeds)
    coverage.membership_partition_seeds = int(0.19 * coverage.seeds)
    assert len(coverage.missing(KINDS, HARD_STATES)) == 2


def result(seed: int = 1, *, nodes: int = 3, failure: Failure | None = None) -> Result:
    return Result(
        seed, nodes, failure, 500 * SECOND, 0.25, 1000, "", Counter(EVERYTHING), "", True, True, 4, 100, 2 * SECOND
    )


def test_a_report_is_a_proof_only_if_all_of_it_was_done() -> None:
    report = Report(full())
    report.add(result())
    report.add(result(nodes=5))
    enough = {"seeds_min": 10, "hours_min": 0.2, "mutants": ["half of the voters elect"]}
    report.add_trial(Trial("half of the voters elect", 0, 3, "election safety"))
    assert report.problems(**enough) == []  # type: ignore[arg-type]
    assert len(report.problems(**{**enough, "seeds_min": 10_000})) == 1  # type: ignore[arg-type]
    assert len(report.problems(**{**enough, "hours_min": 100.0})) == 1  # type: ignore[arg-type]
    assert len(report.problems(**{**enough, "mutants": ["a node votes twice in a term"]})) == 1  # type: ignore[arg-type]
    report.add_trial(Trial("a node votes twice in a term", 0, 100, ""))
    missed = {**enough, "mutants": ["a node votes twice in a term"]}
    assert report.problems(**missed) == ["the mutant was not caught: a node votes twice in a term"]  # type: ignore[arg-type]
    report.add_trial(Trial("a node votes twice in a term", 1, 7, "election safety"))
    assert report.problems(**missed) == []  # type: ignore[arg-type]


def test_a_violation_is_no_proof() -> None:
    report = Report(full())
    report.violated(7, "election safety", "fencepost jepsen replay 7", "")
    assert report.problems(seeds_min=0, hours_min=0, mutants=[]) == ["seed 7 violated election safety"]


def test_the_keys_of_the_report() -> None:
    report = Report(full())
    report.add(result())
    body = report.as_json()
    assert {
        *("seeds", "virtual_hours", "speed_3", "speed_5", "events", "faults", "hard_states", "violations"),
        *("mutants_caught", "mutants_total", "mutants", "histories", "operations", "zombie_share"),
        "membership_partition_share",
    } <= set(body)
    assert body["speed_3"] == 2000
    assert report.lines()
