"""Configurations as values: what follows from what, and how they are written into the log."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations

import pytest

from fencepost.raft.core.configuration import (
    Change,
    ChangeKind,
    Configuration,
    ConfigurationInvalid,
    change_simply,
    check_configuration,
    decode_configuration,
    encode_configuration,
    enter_joint,
    leave_joint,
)
from fencepost.raft.core.errors import UnknownEntry
from fencepost.raft.core.quorum import VoteResult, quorum_value, vote_result

from .lone import FIVE, THREE

VOTER, LEARNER, REMOVE, UPDATE = ChangeKind.ADD_VOTER, ChangeKind.ADD_LEARNER, ChangeKind.REMOVE, ChangeKind.UPDATE
THREE_VOTERS = Configuration(THREE)


def joint(*changes: Change, of: Configuration = THREE_VOTERS) -> Configuration:
    return enter_joint(of, changes, auto_leave=True)


# -- one voter at a time ------------------------------------------------------------------------------


def test_one_voter_is_added_and_one_is_removed() -> None:
    four = change_simply(THREE_VOTERS, [Change(VOTER, "n4")])
    assert four == Configuration(("n1", "n2", "n3", "n4"))
    assert four.quorum == 3
    assert change_simply(four, [Change(REMOVE, "n1")]) == Configuration(("n2", "n3", "n4"), retired=("n1",))


def test_a_learner_is_no_voter_until_it_is_made_one() -> None:
    learning = change_simply(THREE_VOTERS, [Change(LEARNER, "n4"), Change(LEARNER, "n5")])
    assert (learning.voters, learning.learners) == (THREE, ("n4", "n5"))
    assert learning.members == FIVE
    assert not learning.is_voter("n4")
    promoted = change_simply(learning, [Change(VOTER, "n4")])
    assert (promoted.voters, promoted.learners) == (("n1", "n2", "n3", "n4"), ("n5",))
    assert change_simply(promoted, [Change(LEARNER, "n4")]) == learning


def test_two_voters_at_once_are_refused_without_a_joint_configuration() -> None:
    for changes in (
        [Change(VOTER, "n4"), Change(VOTER, "n5")],
        [Change(REMOVE, "n1"), Change(VOTER, "n4")],
        [Change(REMOVE, "n1"), Change(LEARNER, "n2")],
    ):
        with pytest.raises(ConfigurationInvalid, match="more than one voter"):
            change_simply(THREE_VOTERS, changes)


def test_the_last_voter_stays() -> None:
    for change in (Change(REMOVE, "n1"), Change(LEARNER, "n1")):
        with pytest.raises(ConfigurationInvalid, match="no voter left"):
            change_simply(Configuration(("n1",)), [change])
        with pytest.raises(ConfigurationInvalid, match="no voter left"):
            joint(change, of=Configuration(("n1",)))


# -- several --------------------------------------------------------------------------------------------


def test_joint_configuration_holds_both_and_is_left_for_the_new_one() -> None:
    through = joint(Change(REMOVE, "n2"), Change(REMOVE, "n3"), Change(VOTER, "n4"), Change(VOTER, "n5"))
    assert (through.voters, through.outgoing) == (("n1", "n4", "n5"), THREE)
    assert through.is_joint
    assert through.members == FIVE
    assert all(through.is_voter(name) for name in FIVE)
    assert leave_joint(through) == Configuration(("n1", "n4", "n5"), retired=("n2", "n3"))


def test_a_voter_that_becomes_a_learner_votes_until_the_joint_configuration_is_left() -> None:
    through = joint(Change(LEARNER, "n3"), Change(VOTER, "n4"))
    assert (through.learners, through.learners_next) == ((), ("n3",))
    assert through.is_voter("n3")
    assert leave_joint(through) == Configuration(("n1", "n2", "n4"), learners=("n3",))


def test_what_is_joint_takes_no_change_and_what_is_not_cannot_be_left() -> None:
    through = joint(Change(VOTER, "n4"))
    with pytest.raises(ConfigurationInvalid, match="leave it first"):
        change_simply(through, [Change(VOTER, "n5")])
    with pytest.raises(ConfigurationInvalid, match="joint already"):
        joint(Change(VOTER, "n5"), of=through)
    with pytest.raises(ConfigurationInvalid, match="no joint configuration"):
        leave_joint(THREE_VOTERS)
    with pytest.raises(ConfigurationInvalid, match="nothing to join"):
        joint(Change(VOTER, "n1"), of=Configuration(()))


# -- retired ids ----------------------------------------------------------------------------------------


def test_who_is_removed_is_retired_and_who_never_was_a_member_is_not() -> None:
    assert change_simply(THREE_VOTERS, [Change(REMOVE, "n9")]) == THREE_VOTERS
    assert change_simply(THREE_VOTERS, [Change(LEARNER, "n4"), Change(REMOVE, "n4")]) == THREE_VOTERS
    learning = Configuration(THREE, learners=("n4",))
    assert change_simply(learning, [Change(REMOVE, "n4")]).retired == ("n4",)
    assert joint(Change(REMOVE, "n3"), Change(REMOVE, "n2")).retired == ("n2", "n3")


@pytest.mark.parametrize("again", [VOTER, LEARNER])
def test_who_is_removed_and_added_in_one_change_is_a_member_and_not_retired(again: ChangeKind) -> None:
    through = joint(Change(REMOVE, "n3"), Change(again, "n3"), Change(VOTER, "n4"))
    assert through.retired == ()
    assert "n3" in leave_joint(through).members


# -- addresses ------------------------------------------------------------------------------------------


def test_an_address_stays_as_long_as_its_node_has_to_be_reached() -> None:
    four = change_simply(THREE_VOTERS, [Change(VOTER, "n4", "host4:7000")])
    assert four.address("n4") == "host4:7000"
    assert four.address("n1") == ""
    through = joint(Change(REMOVE, "n4"), Change(VOTER, "n5", "host5:7000"), of=four)
    assert through.is_voter("n4")
    assert through.address("n4") == "host4:7000"  # The joint configuration needs its vote.
    assert leave_joint(through).addresses == (("n5", "host5:7000"),)
    assert change_simply(four, [Change(REMOVE, "n4")]).addresses == ()


def test_an_address_changes_and_nothing_else() -> None:
    moved = change_simply(THREE_VOTERS, [Change(UPDATE, "n2", "elsewhere:7000")])
    assert moved == THREE_VOTERS._replace(addresses=(("n2", "elsewhere:7000"),))
    assert change_simply(moved, [Change(UPDATE, "n2")]) == moved
    with pytest.raises(ConfigurationInvalid, match="n9 is no member"):
        change_simply(THREE_VOTERS, [Change(UPDATE, "n9", "elsewhere:7000")])


# -- what no configuration is ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "contradiction",
    [
        Configuration(()),
        Configuration(THREE, learners=("n3",)),
        Configuration(THREE, outgoing=("n4",), learners=("n4",)),
        Configuration(THREE, learners_next=("n4",)),
        Configuration(THREE, outgoing=("n3", "n4"), learners_next=("n3",)),
        Configuration(THREE, auto_leave=True),
    ],
)
def test_contradictions_are_refused(contradiction: Configuration) -> None:
    with pytest.raises(ConfigurationInvalid):
        check_configuration(contradiction)


@pytest.mark.parametrize("word", ["", "n 4", "n4\n", "\tn4", "n4\x00", "n4\u2028", "\ud800"])
def test_an_id_or_address_that_the_log_could_not_hold_is_refused(word: str) -> None:
    """Committed, it would stop every node that reads it, at every start."""
    with pytest.raises(ConfigurationInvalid, match="one word"):
        change_simply(THREE_VOTERS, [Change(VOTER, word)])
    if word:
        with pytest.raises(ConfigurationInvalid, match="one word"):
            joint(Change(VOTER, "n4", word))


# -- in the log -----------------------------------------------------------------------------------------


def test_the_text_in_the_log_is_fixed() -> None:
    """Files of this version hold it: another text is another format."""
    through = enter_joint(
        Configuration(("n1", "n2", "n3", "n4"), learners=("n6",), retired=("n0",), addresses=(("n4", "host4:7000"),)),
        [Change(REMOVE, "n2"), Change(LEARNER, "n3"), Change(VOTER, "n5", "[::1]:7000")],
        auto_leave=True,
    )
    assert encode_configuration(through) == (
        b"voters n1 n4 n5\noutgoing n1 n2 n3 n4\nlearners n6\nlearners_next n3\nretired n0 n2\nauto_leave\n"
        b"address n4 host4:7000\naddress n5 [::1]:7000"
    )
    assert encode_configuration(Configuration(("n1",))) == b"voters n1"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"voters",
        b"voters ",
        b"voters n1\n",
        b"voters n1\nvoters n2",
        b"voters n2 n1",
        b"voters n1 n1",
        b"voters n1  n2",
        b"learners n1",
        b"outgoing n1\nvoters n1",
        b"voters n1\nlearners n1",
        b"voters n1\nauto_leave",
        b"voters n1\noutgoing n2\nauto_leave now",
        b"voters n1\noutgoing n2\nauto_leave\nauto_leave",
        b"voters n1\naddress n1",
        b"voters n1\naddress n1 here there",
        b"voters n1\naddress n1 here\naddress n1 there",
        b"voters n1\nwitnesses n2",
        b"voters n1\nVOTERS n1",
        b"voters \xff",
        b"voters n\x00",
    ],
)
def test_anything_else_is_no_configuration(data: bytes) -> None:
    with pytest.raises(UnknownEntry):
        decode_configuration(data)


def test_damaged_text_is_refused_or_another_configuration_but_never_raises_otherwise() -> None:
    good = encode_configuration(joint(Change(LEARNER, "n3"), Change(VOTER, "n4", "host4:7000")))
    chance = random.Random(1)
    for _ in range(2000):
        data = bytearray(good)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            made = decode_configuration(bytes(data))
        except UnknownEntry:
            continue
        assert encode_configuration(made) == bytes(data)


# -- properties over random changes ---------------------------------------------------------------------


def walk(seed: int, steps: int, names: int) -> Iterator[tuple[Configuration, Configuration]]:
    """Random legal changes, one after another: (configuration, the next one)."""
    chance = random.Random(seed)
    configuration = Configuration(tuple(f"n{number}" for number in range(1, chance.randint(1, names) + 1)))
    while steps:
        changes = [
            Change(chance.choice(list(ChangeKind)), f"n{chance.randint(1, names)}", chance.choice(("", "here:1")))
            for _ in range(chance.randint(1, names))
        ]
        try:
            if configuration.is_joint:
                made = leave_joint(configuration)
            elif chance.random() < 0.5:
                made = change_simply(configuration, changes[:2])
            else:
                made = enter_joint(configuration, changes, auto_leave=chance.random() < 0.5)
        except ConfigurationInvalid:
            continue
        steps -= 1
        yield configuration, made
        configuration = made


def is_quorum(configuration: Configuration, those: tuple[str, ...]) -> bool:
    return vote_result(configuration, dict.fromkeys(those, True)) is VoteResult.WON


def disjoint_quorums(one: Configuration, other: Configuration) -> tuple[str, ...] | None:
    """A quorum of ``one`` whose complement is a quorum of ``other``, by looking at every set of voters."""
    voters = sorted({*one.voters, *one.outgoing, *other.voters, *other.outgoing})
    for size in range(len(voters) + 1):
        for those in combinations(voters, size):
            if is_quorum(one, those) and is_quorum(other, tuple(name for name in voters if name not in those)):
                return those
    return None


@pytest.mark.parametrize("names", [3, 5, 10])
def test_quorums_of_consecutive_configurations_always_meet(names: int) -> None:
    seen: set[tuple[Configuration, Configuration]] = set()
    for seed in range(8):
        for before, after in walk(seed, 25 if names < 10 else 3, names):
            bare = (Configuration(before.voters, before.outgoing), Configuration(after.voters, after.outgoing))
            if bare not in seen:
                seen.add(bare)
                assert disjoint_quorums(*bare) is None, f"{before} -> {after}"
    assert any(len({*after.voters, *after.outgoing}) >= names for _, after in seen)


def test_five_voters_are_replaced_by_five_others_with_quorums_that_meet() -> None:
    others = ("n6", "n7", "n8", "n9", "n99")
    changes = [*(Change(REMOVE, name) for name in FIVE), *(Change(VOTER, name) for name in others)]
    five = Configuration(FIVE)
    through = joint(*changes, of=five)
    after = leave_joint(through)
    assert disjoint_quorums(five, through) is None
    assert disjoint_quorums(through, through) is None
    assert disjoint_quorums(through, after) is None
    assert disjoint_quorums(five, after) is not None  # Hence the joint configuration between them.


def test_two_voters_at_once_would_have_quorums_that_do_not_meet() -> None:
    """The brute force sees what it is for."""
    assert disjoint_quorums(Configuration(("n1", "n2")), Configuration(("n1", "n3", "n4"))) is not None
    assert disjoint_quorums(THREE_VOTERS, Configuration(FIVE)) is not None


def test_random_changes_keep_every_promise() -> None:
    for seed in range(40):
        gone: set[str] = set()
        for before, after in walk(seed, 30, 6):
            check_configuration(after)
            assert decode_configuration(encode_configuration(after)) == after
            stay = {*after.voters, *after.learners, *after.learners_next}
            gone = (gone | set(before.members)) - stay
            assert set(after.retired) >= gone
            assert {name for name, _ in after.addresses} <= set(after.members)
            if after.is_joint:
                assert after.outgoing == before.voters
                assert leave_joint(after).voters == after.voters


def test_joint_decisions_need_both_majorities() -> None:
    through = joint(Change(REMOVE, "n2"), Change(REMOVE, "n3"), Change(VOTER, "n4"), Change(VOTER, "n5"))
    assert quorum_value(through, {"n1": 9, "n4": 9, "n5": 9}) == 0
    assert quorum_value(through, {"n1": 9, "n2": 7, "n4": 8}) == 7
    assert vote_result(through, {"n1": True, "n4": True, "n5": True}) is VoteResult.PENDING
    assert vote_result(through, {"n1": True, "n2": False, "n3": False}) is VoteResult.LOST
    assert vote_result(through, {"n1": True, "n2": True, "n4": True}) is VoteResult.WON
