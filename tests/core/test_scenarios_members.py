"""The failures of docs/scenarios.md about changing members, each played by whole clusters of cores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fencepost.jepsen.cores.world import World
from fencepost.raft.core.configuration import Change, ChangeKind, Configuration, encode_configuration
from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.events import Accepted, Refused, Role, Transition
from fencepost.raft.core.messages import PreVoteResponse, RequestVote, RequestVoteResponse
from fencepost.raft.core.options import MILLISECOND, Options

from .lone import FIVE, THREE, Lone, entries

VOTER, LEARNER, REMOVE = ChangeKind.ADD_VOTER, ChangeKind.ADD_LEARNER, ChangeKind.REMOVE
TIMEOUT = 150 * MILLISECOND
QUICK = Options(
    election_timeout=TIMEOUT,
    heartbeat_interval=40 * MILLISECOND,
    stall_bound=TIMEOUT,
    commit_notice_delay=5 * MILLISECOND,
    transfer_timeout=TIMEOUT,
)


def cluster(*names: str, seed: int = 1) -> World:
    return World(names or THREE, seed=seed, options=QUICK)


def commit(world: World, leader: str, outcome: Accepted | Refused) -> int:
    """Wait until the leader has committed what it took; its index."""
    assert isinstance(outcome, Accepted), outcome
    index = outcome.first_index
    world.run_until(lambda: world.raft(leader).commit_index >= index, within=5 * TIMEOUT, what=f"{index} is committed")
    return index


def configured(index: int, term: int, configuration: Configuration) -> Entry:
    return Entry(index, term, EntryKind.CONFIGURATION, 0, encode_configuration(configuration))


# -- S02 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [LEARNER, REMOVE])
def test_s02_node_that_was_demoted_or_removed_while_away_comes_back_quietly(change: ChangeKind) -> None:
    world = cluster()
    for _ in range(2):
        world.elect("n1")
        world.run_for(TIMEOUT)
        if world.raft("n1").current_term < 2:
            world.step_down("n1")
    world.isolate("n3")
    commit(world, "n1", world.change("n1", Change(change, "n3")))
    commit(world, "n1", world.propose("n1", b"x"))
    world.run_for(80 * TIMEOUT)  # At least forty timeouts of its own.
    assert world.raft("n3").configuration == Configuration(THREE)  # It has heard nothing of it.
    term = world.raft("n1").current_term
    world.heal()
    world.run_for(10 * TIMEOUT)
    assert world.leader() == "n1"
    assert max(world.raft(name).current_term for name in THREE) <= term + 1
    if change is LEARNER:
        assert world.raft("n3").configuration.learners == ("n3",)
        assert world.raft("n3").log.last_index == world.raft("n1").log.last_index
    else:
        assert world.raft("n3").removed
        spoken = []
        world.on_message = lambda source, to, message: spoken.append(message) if source == "n3" else None
        world.run_for(40 * TIMEOUT)
        assert spoken == []


def test_s02_removed_node_that_hears_of_it_stops_by_itself() -> None:
    world = cluster()
    world.elect("n1")
    commit(world, "n1", world.change("n1", Change(REMOVE, "n3")))
    world.run_for(5 * TIMEOUT)
    assert world.raft("n3").committed_configuration() == Configuration(("n1", "n2"), retired=("n3",))
    assert world.raft("n1").departing == {}
    spoken = []
    world.on_message = lambda source, to, message: spoken.append(message) if source == "n3" else None
    world.run_for(40 * TIMEOUT)
    assert (spoken, world.leader()) == ([], "n1")


# -- S23 ------------------------------------------------------------------------------------------------


def test_s23_changes_of_two_terms_from_one_base_do_not_both_commit() -> None:
    world = World(("n1", "n2", "n3", "n4"), seed=3, options=QUICK)
    world.add("n5")
    world.elect("n1")
    world.run_for(TIMEOUT)
    for name in ("n2", "n3", "n4"):
        world.cut(name, "n1")
        world.cut("n1", name)
    assert isinstance(world.change("n1", Change(VOTER, "n5"), unchecked=True), Accepted)
    world.run_for(50 * MILLISECOND)
    assert world.raft("n5").configuration.voters == FIVE
    # Another one leads the rest, and is asked before its no-op is committed.
    world.run_until(lambda: world.leader() not in (None, "n1"), within=10 * TIMEOUT, what="another leads")
    second = world.leader()
    assert second is not None
    third, fourth = [name for name in ("n2", "n3", "n4") if name != second]
    refused = world.change(second, Change(REMOVE, "n1"))
    assert refused == Refused("BUSY", second, "the leader has not committed in its term yet")
    world.elect()
    world.run_for(TIMEOUT // 3)
    world.cut(second, fourth)
    commit(world, second, world.change(second, Change(REMOVE, "n1"), unchecked=True))
    # n1 campaigns with the fourth and n5: the fourth has the no-op of the second's term and refuses.
    world.partition(("n1", fourth, "n5"), (second, third))
    answers = []
    world.on_message = lambda source, to, message: (
        answers.append((source, message.granted))
        if isinstance(message, PreVoteResponse | RequestVoteResponse) and to == "n1"
        else None
    )
    world.run_for(2 * TIMEOUT)
    world.campaign("n1")
    world.run_for(20 * TIMEOUT)
    assert ("n5", True) in answers
    assert (fourth, True) not in answers
    assert world.leader() == second
    world.heal()
    world.run_for(10 * TIMEOUT)
    assert [world.raft(name).configuration.voters for name in ("n2", "n3", "n4")] == [("n2", "n3", "n4")] * 3


# -- S24 ------------------------------------------------------------------------------------------------

OLD, NEW = THREE, ("n1", "n4", "n5")


REPLACE = (Change(REMOVE, "n2"), Change(REMOVE, "n3"), Change(VOTER, "n4"), Change(VOTER, "n5"))


def replacing() -> World:
    """{1,2,3} is asked to become {1,4,5}; nothing has been sent yet."""
    world = cluster(*OLD, seed=2)
    for name in ("n4", "n5"):
        world.add(name)
    world.elect("n1")
    for name in ("n4", "n5"):
        commit(world, "n1", world.change("n1", Change(LEARNER, name)))
    world.run_for(TIMEOUT)
    assert isinstance(world.change("n1", *REPLACE), Accepted)
    assert world.raft("n1").configuration.is_joint
    return world


def is_settled(world: World) -> bool:
    """Somebody leads who has committed in its term and knows of no unfinished change."""
    leader = world.leader()
    if leader is None or world.raft(leader).commit_index < world.raft(leader).term_start_index:
        return False
    configuration = world.raft(leader).committed_configuration()
    return configuration == world.raft(leader).configuration and not configuration.is_joint


def settle(world: World, what: str) -> None:
    world.run_until(lambda: is_settled(world), within=15 * TIMEOUT, what=what)


def steps_of_a_replacement() -> int:
    world = replacing()
    first = world.steps
    settle(world, "the change is over")
    return world.steps - first


STEPS = steps_of_a_replacement()
"""So many events there are from the change to its end, and at each of them the leader may go."""


def kill(world: World) -> None:
    leader = world.leader()
    assert leader is not None
    world.crash(leader)
    world.after(3 * TIMEOUT, lambda: world.start(leader))


def depose(world: World) -> None:
    leader = world.leader()
    assert leader is not None
    world.step_down(leader)


def cut_off(world: World) -> None:
    leader = world.leader()
    assert leader is not None
    world.isolate(leader)
    world.after(3 * TIMEOUT, world.heal)


@pytest.mark.parametrize("trouble", [kill, depose, cut_off])
def test_s24_joint_configuration_is_ended_whatever_becomes_of_the_leader(trouble: Callable[[World], None]) -> None:
    """At every step of the change. The world sees to it that both majorities have the joint entry on their
    disks before it counts, and that there is one change at a time."""
    assert STEPS > 20
    ends = []
    for step in range(STEPS):
        world = replacing()
        until = world.steps + step
        while world.steps < until:
            world.next()
        trouble(world)
        world.run_for(4 * TIMEOUT)
        settle(world, f"no change is under way, from step {step}")
        leader = world.leader()
        assert leader is not None
        ends.append(world.raft(leader).configuration.voters)
        if ends[-1] == OLD:  # The leader took it with it: whoever asked for it asks again.
            commit(world, leader, world.change(leader, *REPLACE, unchecked=True))
            settle(world, f"the second attempt, from step {step}")
        history = [configuration for _, configuration in world.checks.members.history[2:]]
        assert [configuration.is_joint for configuration in history] == [True, False]
        assert history[-1].voters == NEW
    # From some step on the joint configuration is there for good; before that it is lost if what was
    # sent does not arrive.
    assert ends == sorted(ends)
    assert (OLD in ends) is (trouble is cut_off)


def test_s24_joint_entry_is_committed_by_both_majorities_only() -> None:
    for silent in (("n2", "n3"), ("n4", "n5")):
        world = replacing()
        index = world.raft("n1").log.last_index
        world.partition(tuple(name for name in FIVE if name not in silent), silent)
        world.run_for(TIMEOUT - 1)
        together = [name for name in FIVE if name not in silent]
        assert all(world.raft(name).log.last_index == index for name in together)
        assert all(world.raft(name).commit_index == index - 1 for name in together)
        world.run_for(20 * TIMEOUT)
        # None of these is elected either: they would need some of the others.
        assert world.leader() not in together


def test_s24_second_exit_is_refused_with_an_answer() -> None:
    world = cluster()
    world.elect("n1")
    commit(world, "n1", world.change("n1", Change(REMOVE, "n3"), transition=Transition.EXPLICIT))
    first = world.change("n1")
    assert isinstance(first, Accepted)
    assert world.change("n1") == Refused("BUSY", "n1", "the change at index 3 is not committed yet")
    commit(world, "n1", first)
    refused = world.change("n1")
    assert refused == Refused("CHANGE_REFUSED", "n1", "there is no joint configuration to leave")
    world.run_for(5 * TIMEOUT)
    assert len(world.checks.members.history) == 2


# -- S25 ------------------------------------------------------------------------------------------------


def test_s25_restart_keeps_a_configuration_that_is_not_committed_and_loses_it_when_it_is_overwritten() -> None:
    five = Configuration(FIVE)
    log = [*entries(1, 1), configured(3, 1, five)]
    lone = Lone(term=1, log=log, commit_index=2)
    assert (lone.raft.configuration, lone.raft.configuration_index) == (five, 3)
    lone.become_candidate()
    lone.durable()
    assert [send.to for send in lone.visible if isinstance(send.message, RequestVote)] == ["n2", "n3", "n4", "n5"]
    lone.receive("n2", RequestVoteResponse(2, True, ""))
    assert lone.raft.role is Role.CANDIDATE  # Two of five.
    lone.append(3, (2, 1), entries(3, start=3))
    assert (lone.raft.configuration, lone.raft.configuration_index) == (Configuration(THREE), 0)
    lone.settle()
    assert Lone(term=3, log=lone.raft.log.slice(1, 3)).raft.configuration == Configuration(THREE)


def test_s25_cluster_goes_on_after_a_restart_between_appending_and_committing() -> None:
    world = cluster()
    world.add("n4")
    world.elect("n1")
    world.run_for(TIMEOUT)
    world.cut("n2", "n1")
    world.cut("n3", "n1")
    assert isinstance(world.change("n1", Change(VOTER, "n4"), unchecked=True), Accepted)
    world.run_for(20 * MILLISECOND)
    for name in world.nodes:
        world.crash(name)
    world.heal()
    for name in world.nodes:
        world.start(name)
    four = ("n1", "n2", "n3", "n4")
    assert [world.raft(name).configuration.voters for name in ("n1", "n2", "n3")] == [four] * 3
    world.elect()
    assert [configuration.voters for _, configuration in world.checks.members.history] == [four]


# -- S26 ------------------------------------------------------------------------------------------------


def test_s26_voter_that_does_not_know_that_it_is_one_votes() -> None:
    """n4 and n5 were promoted, but n4 missed its own; n1 and n2 die: n3, n4 and n5 are a quorum."""
    world = cluster()
    world.elect("n1")
    for name in ("n4", "n5"):
        world.add(name)
        commit(world, "n1", world.change("n1", Change(LEARNER, name)))
    world.run_for(TIMEOUT)
    commit(world, "n1", world.change("n1", Change(VOTER, "n5")))
    world.run_for(TIMEOUT)
    world.isolate("n4")
    commit(world, "n1", world.change("n1", Change(VOTER, "n4")))
    world.run_for(TIMEOUT // 2)
    world.crash("n1")
    world.crash("n2")
    world.heal()
    assert world.raft("n4").configuration.learners == ("n4",)
    assert world.raft("n3").configuration.voters == FIVE
    assert world.elect() in ("n3", "n5")
    world.run_for(TIMEOUT)
    assert world.raft("n4").configuration.voters == FIVE


# -- S28 ------------------------------------------------------------------------------------------------


def test_s28_voter_that_never_starts_costs_no_quorum() -> None:
    world = cluster()
    world.elect("n1")
    world.run_for(TIMEOUT)
    world.crash("n3")
    refused = world.change("n1", Change(VOTER, "n4"))
    assert refused == Refused("NOT_CAUGHT_UP", "n1", "n4 is no learner: add it as one first")
    commit(world, "n1", world.change("n1", Change(LEARNER, "n4")))
    for number in range(5):
        commit(world, "n1", world.propose("n1", b"%d" % number))
    refused = world.change("n1", Change(VOTER, "n4"))
    assert refused == Refused("NOT_CAUGHT_UP", "n1", "n4 is behind by 7, last seen never")
    world.run_for(10 * TIMEOUT)
    assert world.leader() == "n1"


def test_s28_learner_that_lags_is_promoted_once_it_has_caught_up() -> None:
    world = World(THREE, seed=1, options=replace(QUICK, promotion_lag_max=3, append_bytes_max=1, in_flight_max=1))
    world.elect("n1")
    for number in range(20):
        commit(world, "n1", world.propose("n1", b"%d" % number))
    commit(world, "n1", world.change("n1", Change(LEARNER, "n4")))
    world.add("n4")
    world.run_until(lambda: world.raft("n4").log.last_index > 5, within=TIMEOUT, what="n4 has begun to catch up")
    refused = world.change("n1", Change(VOTER, "n4"))
    assert refused[0] == "NOT_CAUGHT_UP"
    assert isinstance(refused, Refused)
    assert refused.detail.endswith("at most 3 is allowed")
    world.run_for(5 * TIMEOUT)
    commit(world, "n1", world.change("n1", Change(VOTER, "n4")))
    assert world.raft("n4").log.last_index >= 22


def test_s28_voter_that_answers_does_not_go_while_the_rest_is_silent() -> None:
    world = cluster()
    world.elect("n1")
    world.crash("n3")
    world.run_for(2 * TIMEOUT)
    refused = world.change("n1", Change(REMOVE, "n2"))
    assert refused[:2] == ("NOT_CAUGHT_UP", "n1")
    commit(world, "n1", world.change("n1", Change(REMOVE, "n3")))
    world.run_for(10 * TIMEOUT)
    assert (world.leader(), world.raft("n1").current_term) == ("n1", 1)
    # With two voters left, the silent one may be the only other.
    assert world.raft("n1").configuration.voters == ("n1", "n2")


# -- leaders that go ------------------------------------------------------------------------------------


def test_a_leader_that_removes_itself_hands_the_cluster_to_the_others() -> None:
    world = cluster()
    world.elect("n1")
    world.run_for(TIMEOUT)
    commit(world, "n1", world.change("n1", Change(REMOVE, "n1")))
    assert world.raft("n1").role is Role.FOLLOWER
    world.run_until(lambda: world.leader() in ("n2", "n3"), within=5 * TIMEOUT, what="another leads")
    world.run_for(10 * TIMEOUT)
    assert world.leader() in ("n2", "n3")
    assert world.raft("n1").role is Role.FOLLOWER


@pytest.mark.parametrize("change", [REMOVE, LEARNER])
def test_a_removed_leader_with_the_longest_log_is_elected_once_more(change: ChangeKind) -> None:
    """Two voters: the other one cannot be elected without it, and its log is shorter."""
    world = cluster("n1", "n2")
    world.elect("n1")
    world.run_for(TIMEOUT)
    world.cut("n1", "n2")
    assert isinstance(world.change("n1", Change(change, "n1")), Accepted)
    world.run_for(3 * TIMEOUT)
    assert world.leader() is None
    world.heal()
    world.run_until(lambda: world.leader() == "n2", within=20 * TIMEOUT, what="n2 leads alone")
    world.elect()
    assert world.raft("n2").committed_configuration().voters == ("n2",)
