"""The mutants: each names a line that is there, and the checks that see some of them do."""

from __future__ import annotations

import pytest

from fencepost.jepsen.proof.mutants import MUTANTS, Mutant
from fencepost.jepsen.proof.planting import NotPlanted, planted
from fencepost.jepsen.proof.runner import Task, hunt
from fencepost.jepsen.proof.schedule import SHORT
from fencepost.raft.core import quorum
from fencepost.raft.core.configuration import Configuration

AREAS = {"protocol", "storage", "transport", "outbox", "effects", "resource", "checkers", "invariants"}


def test_there_are_enough_of_them_in_every_area() -> None:
    assert len(MUTANTS) >= 45
    assert {mutant.area for mutant in MUTANTS.values()} == AREAS


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda mutant: mutant.name)
def test_the_line_is_there_and_the_fault_is_code(mutant: Mutant) -> None:
    before = mutant.function.__code__
    with mutant.plant():
        assert mutant.function.__code__ is not before
    assert mutant.function.__code__ is before


CHECKED = [mutant for mutant in MUTANTS.values() if mutant.area == "checkers"]


@pytest.mark.parametrize("mutant", CHECKED, ids=lambda mutant: mutant.name)
def test_a_fault_in_a_checker_is_seen(mutant: Mutant) -> None:
    assert mutant.sees is not None
    mutant.sees()
    with mutant.plant(), pytest.raises(AssertionError):
        mutant.sees()


def test_a_hunt_ends_with_the_seed_that_catches_it() -> None:
    trial = hunt(Task(1, SHORT, "answers do not wait for term and vote"))
    assert trial is not None
    assert trial.caught
    assert trial.seeds <= 5


def test_planting_needs_exactly_one_place_of_a_function() -> None:
    with pytest.raises(NotPlanted, match="0 times"), planted(quorum.majority_value, "no such line", ""):
        pass
    with pytest.raises(NotPlanted, match="no function"), planted(Configuration, "voters", ""):
        pass
    before = Configuration.quorum.fget.__code__  # type: ignore[attr-defined]
    with planted(Configuration.quorum.fget, "// 2 + 1", "// 3 + 1"):  # type: ignore[attr-defined]
        assert Configuration(("a", "b", "c", "d", "e")).quorum == 2
    assert Configuration.quorum.fget.__code__ is before  # type: ignore[attr-defined]
