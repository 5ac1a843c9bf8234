"""Who is in the minority with its state, and when nobody can tell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import Entry
from fencepost.raft.node import digests
from fencepost.raft.node.applier import Applier
from fencepost.raft.node.digests import DigestLedger, Finding, Standing

from ..core.planting import planted

A, B, C = b"\x01aaaa", b"\x01bbbb", b"\x01cccc"
THREE = Configuration(("n1", "n2", "n3"))
TWO = Configuration(("n1", "n2"))


def standings(found: list[Finding]) -> list[tuple[Standing, tuple[str, ...]]]:
    return [(finding.standing, finding.holders) for finding in found]


def test_equal_digests_are_agreed_on_once_a_majority_has_them() -> None:
    ledger = DigestLedger("n1")
    assert ledger.reached(1000, {2: A}, THREE) == []
    assert ledger.agreed_index == 0
    assert ledger.heard("n2", 1000, {2: A}) == []
    assert (ledger.agreed_index, ledger.differences) == (1000, 0)
    assert ledger.newest == (1000, {2: A})


def test_a_majority_on_the_other_side_outvotes_this_node_in_whichever_order_it_hears() -> None:
    for own_first in (False, True):
        ledger = DigestLedger("n1")
        found = [] if not own_first else ledger.reached(1000, {2: A}, THREE)
        found += ledger.heard("n2", 1000, {2: B})
        found += ledger.heard("n3", 1000, {2: B})
        found += [] if own_first else ledger.reached(1000, {2: A}, THREE)
        assert found[-1] == Finding(Standing.OUTVOTED, 1000, 2, A, B, ("n2", "n3"))


def test_the_one_that_is_alone_outvotes_nobody() -> None:
    ledger = DigestLedger("n1")
    ledger.reached(1000, {2: A}, THREE)
    assert ledger.heard("n2", 1000, {2: A}) == []
    assert standings(ledger.heard("n3", 1000, {2: B})) == [(Standing.DIFFERS, ("n3",))]
    assert ledger.agreed_index == 1000


def test_one_against_one_and_three_of_which_each_has_another_state_stop_nobody() -> None:
    two = DigestLedger("n1")
    two.reached(1000, {2: A}, TWO)
    assert standings(two.heard("n2", 1000, {2: B})) == [(Standing.DIFFERS, ("n2",))]
    three = DigestLedger("n1")
    three.reached(1000, {2: A}, THREE)
    three.heard("n2", 1000, {2: B})
    assert standings(three.heard("n3", 1000, {2: C})) == [(Standing.DIFFERS, ("n3",))]
    assert three.differences == 2


def test_a_learner_stops_by_the_voters_word_and_has_none() -> None:
    configuration = Configuration(("n1", "n2", "n3"), learners=("n4",))
    learner = DigestLedger("n4")
    learner.reached(1000, {2: A}, configuration)
    learner.heard("n1", 1000, {2: B})
    assert standings(learner.heard("n2", 1000, {2: B})) == [(Standing.OUTVOTED, ("n1", "n2"))]
    voter = DigestLedger("n1")
    voter.reached(1000, {2: A}, configuration)
    voter.heard("n2", 1000, {2: B})
    assert standings(voter.heard("n4", 1000, {2: B})) == [(Standing.DIFFERS, ("n2", "n4"))]


def test_a_joint_configuration_outvotes_with_both_majorities() -> None:
    joint = Configuration(("n1", "n4", "n5"), outgoing=("n1", "n2", "n3"))
    ledger = DigestLedger("n1")
    ledger.reached(1000, {2: A}, joint)
    ledger.heard("n4", 1000, {2: B})
    assert standings(ledger.heard("n5", 1000, {2: B})) == [(Standing.DIFFERS, ("n4", "n5"))]
    ledger.heard("n2", 1000, {2: B})
    assert standings(ledger.heard("n3", 1000, {2: B})) == [(Standing.OUTVOTED, ("n2", "n3", "n4", "n5"))]


def test_a_difference_is_found_once() -> None:
    ledger = DigestLedger("n1")
    ledger.reached(1000, {2: A}, TWO)
    assert ledger.heard("n2", 1000, {2: B})
    assert ledger.heard("n2", 1000, {2: B}) == []
    assert ledger.reached(2000, {2: A}, TWO) == []
    assert ledger.heard("n2", 2000, {2: B})


def test_what_was_made_in_another_way_or_of_machines_that_only_one_has_is_not_compared() -> None:
    ledger = DigestLedger("n1")
    ledger.reached(1000, {2: A, 3: A}, TWO)
    assert ledger.heard("n2", 1000, {2: b"\x02" + A[1:], 4: B}) == []
    assert ledger.agreed_index == 0


def test_machines_are_compared_one_by_one() -> None:
    ledger = DigestLedger("n1")
    ledger.reached(1000, {2: A, 3: A}, TWO)
    assert [finding.kind for finding in ledger.heard("n2", 1000, {2: A, 3: B})] == [3]


def test_a_node_that_is_far_behind_hears_of_its_points_later_and_remembers_the_newest() -> None:
    ledger = DigestLedger("n1", kept=3)
    for index in range(1000, 6000, 1000):
        ledger.heard("n2", index, {2: B})
        ledger.heard("n3", index, {2: B})
    assert ledger.reached(1000, {2: A}, THREE) == []
    assert standings(ledger.reached(4000, {2: A}, THREE)) == [(Standing.OUTVOTED, ("n2", "n3"))]
    assert (ledger.own(1000), ledger.own(4000)) == ({2: A}, {2: A})
    for index in range(5000, 9000, 1000):
        ledger.reached(index, {2: A}, THREE)
    assert ledger.own(4000) is None


def test_what_was_before_a_restored_snapshot_is_forgotten() -> None:
    ledger = DigestLedger("n1")
    ledger.reached(1000, {2: A}, THREE)
    ledger.heard("n2", 1000, {2: B})
    ledger.forget()
    assert ledger.heard("n3", 1000, {2: B}) == []
    assert ledger.newest is None
    assert ledger.reached(2000, {2: B}, THREE) == []


class Counter:
    """A machine whose digest is how much it was given."""

    def __init__(self) -> None:
        self.bytes = 0

    def apply(self, entry: Entry) -> int:
        self.bytes += len(entry.data)
        return self.bytes

    def snapshot(self) -> list[bytes]:
        return []

    def restore(self, chunks: Iterable[bytes]) -> None: ...

    def state_digest(self) -> bytes:
        return b"\x01%d" % self.bytes


def test_digests_are_taken_at_the_points_however_the_entries_come() -> None:
    entries = [Entry(index, 1, 3, 0, b"x" * (index % 7)) for index in range(1, 101)]
    points = [(index, {3: b"\x01%d" % sum(each % 7 for each in range(1, index + 1))}) for index in range(10, 101, 10)]
    for batch in (1, 3, 7, 10, 35, 100):
        applier = Applier({3: Counter(), 4: NoDigest()}, point_entries=10)
        results = []
        for start in range(0, 100, batch):
            results += applier.apply(entries[start : start + batch])
        assert applier.take_points() == points
        assert applier.take_points() == []
        assert (len(results), results[-1], applier.last_applied) == (100, sum(len(each.data) for each in entries), 100)


class NoDigest:
    """The machine of an embedder who gave it none."""

    def apply(self, entry: Entry) -> None: ...

    def snapshot(self) -> list[bytes]:
        return []

    def restore(self, chunks: Iterable[bytes]) -> None: ...


def all_of_them() -> None:
    for name, test in list(globals().items()):
        if name.startswith("test_") and name != "test_a_planted_fault_is_seen":
            test()


@pytest.mark.parametrize(
    ("function", "line", "fault"),
    [
        (digests._is_majority, "dict.fromkeys(nodes, True)", "dict.fromkeys(configuration.members, True)"),
        (DigestLedger._judge, "and digest[:1] == own[kind][:1]", ""),
        (DigestLedger._differences, "if (index, kind, holders) in self._told:", "if False:"),
        (DigestLedger.forget, "self._own.clear()", "pass"),
        (Applier.apply, "entries[len(results) : point - first + 1]", "entries[len(results) :]"),
        (digests._keep_highest, "del points[min(points)]", "del points[max(points)]"),
    ],
    ids=[
        "anybody is a majority",
        "compared all the same",
        "found again",
        "not forgotten",
        "at another index",
        "the newest forgotten",
    ],
)
def test_a_planted_fault_is_seen(function: Any, line: str, fault: str) -> None:
    with planted(function, line, fault), pytest.raises(AssertionError):
        all_of_them()
