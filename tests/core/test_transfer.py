"""Handing leadership over (thesis section 3.10)."""

from __future__ import annotations

import pytest

from fencepost.jepsen.cores.world import World
from fencepost.raft.core.configuration import Change, ChangeKind, Configuration
from fencepost.raft.core.entry import EntryKind
from fencepost.raft.core.events import Accepted, Propose, Refused, Role, TransferBegun, TransferEnded
from fencepost.raft.core.messages import Message, PreVote, RequestVote, RequestVoteResponse, TimeoutNow
from fencepost.raft.core.options import MILLISECOND, SECOND, Options

from .lone import FIVE, THREE, Lone, entries

TIMEOUT = 150 * MILLISECOND
QUICK = Options(
    election_timeout=TIMEOUT,
    heartbeat_interval=40 * MILLISECOND,
    stall_bound=TIMEOUT,
    commit_notice_delay=5 * MILLISECOND,
    transfer_timeout=TIMEOUT,
)


def leader(configuration: Configuration | None = None, *, match: int = 1) -> Lone:
    """n1 leads term 2; its no-op, the entry at 1, is committed; everybody is at ``match``."""
    lone = Lone(configuration=configuration or Configuration(THREE), term=1)
    lone.become_leader()
    for peer in lone.raft.peers:
        lone.acknowledge(peer, match)
    lone.take()
    return lone


def told(lone: Lone, to: str) -> int:
    """How often ``to`` was told to campaign since last asked."""
    found = [send for send in lone.visible if send.to == to and isinstance(send.message, TimeoutNow)]
    lone.visible = [send for send in lone.visible if send.to != to]
    return len(found)


# -- the leader -----------------------------------------------------------------------------------------


def test_a_target_that_has_everything_is_told_at_once() -> None:
    lone = leader()
    assert lone.transfer("n2") == TransferBegun("n2", lone.now + SECOND)
    assert lone.take("n2") == [TimeoutNow(2)]


def test_a_target_that_lags_catches_up_first_and_nothing_new_is_admitted_meanwhile() -> None:
    lone = leader()
    lone.propose(b"x")
    lone.transfer("n2")
    assert told(lone, "n2") == 0
    refused = lone.propose(b"y")
    assert refused == Refused("BUSY", "n1", "leadership is being handed over to n2")
    assert lone.raft.is_busy
    # What the leader itself has to finish comes in until the target is told, and never after.
    internal = Propose(lone.now, 0, [(int(EntryKind.OUTBOX), b"outcome")], internal=True)
    assert isinstance(lone.step(internal).proposed, Accepted)
    lone.acknowledge("n2", 2)
    assert told(lone, "n2") == 0
    lone.acknowledge("n2", 3)
    assert told(lone, "n2") == 1
    assert isinstance(lone.step(internal).proposed, Refused)
    assert lone.raft.log.last_index == 3


def test_word_that_may_be_lost_is_repeated_every_heartbeat() -> None:
    lone = leader()
    lone.transfer("n2")
    lone.take()
    lone.acknowledge("n2", 1)
    assert told(lone, "n2") == 0
    for _ in range(3):
        lone.advance(100 * MILLISECOND)
        lone.acknowledge("n2", 1)
        assert told(lone, "n2") == 1


def test_without_a_target_it_is_the_voter_that_has_most_of_the_log() -> None:
    lone = leader(Configuration(("n1", "n2", "n3"), learners=("n4",)))
    lone.propose(b"x")
    lone.acknowledge("n2", 1)
    lone.acknowledge("n3", 2)
    lone.acknowledge("n4", 2)
    assert lone.transfer()[0] == "n3"
    # A voter that is going is no choice, but may be asked for.
    joint = leader(Configuration(("n1", "n3"), outgoing=THREE))
    assert joint.transfer()[0] == "n3"
    assert leader(Configuration(("n1", "n3"), outgoing=THREE)).transfer("n2")[0] == "n2"


def test_the_same_transfer_again_changes_nothing_and_another_one_is_refused() -> None:
    lone = leader()
    lone.propose(b"x")
    begun = lone.transfer("n2")
    lone.now += SECOND // 2
    assert lone.transfer("n2") == begun
    assert lone.transfer("n3") == Refused("TRANSFER_REFUSED", "n1", "leadership is being handed over to n2")


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("n1", "n1 leads already"),
        ("n4", "n4 is no voter"),
        ("n9", "n9 is no voter"),
        ("n3", "n3 was not heard of lately"),
    ],
)
def test_targets_that_cannot_take_over_are_refused(target: str, why: str) -> None:
    lone = leader(Configuration(THREE, learners=("n4",)))
    lone.now += SECOND // 2
    lone.acknowledge("n2", 1)
    lone.now += SECOND // 2
    assert lone.transfer(target) == Refused("TRANSFER_REFUSED", "n1", why)
    assert isinstance(lone.propose(b"x"), Accepted)


def test_a_voter_that_has_not_answered_in_this_term_is_no_target() -> None:
    lone = Lone(term=1)
    lone.become_leader()
    lone.acknowledge("n2", 1)
    assert lone.transfer("n3") == Refused("TRANSFER_REFUSED", "n1", "n3 was not heard of lately")
    assert lone.transfer()[0] == "n2"


def test_with_nobody_there_is_nobody_to_hand_over_to() -> None:
    lone = leader(Configuration(("n1",)))
    assert lone.transfer() == Refused("TRANSFER_REFUSED", "n1", "no other voter was heard of lately")
    follower = Lone(term=1)
    follower.append(1, (0, 0), source="n3")
    assert follower.transfer("n3") == Refused("NOT_LEADER", "n3")


def test_a_transfer_that_takes_too_long_ends_and_the_leader_serves_on() -> None:
    lone = leader()
    lone.propose(b"x")
    lone.settle()
    lone.transfer("n2")
    for _ in range(9):
        lone.advance(100 * MILLISECOND)
        lone.acknowledge("n3", 2)
    assert lone.propose(b"y")[0] == "BUSY"
    lone.advance(100 * MILLISECOND)
    assert lone.transfers[1:] == [TransferEnded("n2", "n2 did not take over in time")]
    assert (lone.raft.role, lone.raft.is_busy) == (Role.LEADER, False)
    assert isinstance(lone.propose(b"y"), Accepted)
    lone.acknowledge("n2", 3)
    assert told(lone, "n2") == 0


def test_who_is_on_the_way_out_is_no_target() -> None:
    lone = leader(Configuration(FIVE))
    lone.change(Change(ChangeKind.REMOVE, "n2"))
    assert lone.transfer("n2") == Refused("TRANSFER_REFUSED", "n1", "n2 is no voter")


def test_a_transfer_dies_with_the_term() -> None:
    lone = leader()
    lone.transfer("n2")
    lone.receive("n2", RequestVote(3, 1, 2, True))
    assert lone.durable() == [RequestVoteResponse(3, True, "")]
    assert (lone.raft.role, lone.raft.transfer, lone.raft.lease_forfeited) == (Role.FOLLOWER, None, False)
    assert not lone.raft.is_busy


def test_no_authority_while_it_is_being_given_away() -> None:
    lone = leader()
    assert lone.raft.holds_lease(lone.now)
    lone.transfer("n2")
    assert not lone.raft.holds_lease(lone.now)


# -- the target -----------------------------------------------------------------------------------------


def target() -> Lone:
    lone = Lone(term=2, log=entries(2))
    lone.append(2, (1, 2), source="n2")
    lone.take()
    return lone


def test_s08_target_campaigns_at_once_without_asking_first_and_says_why() -> None:
    lone = target()
    assert lone.receive("n2", TimeoutNow(2)) == []
    assert lone.raft.role is Role.CANDIDATE
    assert lone.durable() == [RequestVote(3, 1, 2, True), RequestVote(3, 1, 2, True)]
    # A heartbeat of the old leader's term does not knock it out of that.
    lone.append(2, (1, 2), source="n2")
    assert (lone.raft.role, lone.raft.current_term) == (Role.CANDIDATE, 3)
    # If it does not win, its next attempt is an election like any other.
    lone.take()
    lone.advance(2 * SECOND)
    (question, *_) = lone.take()
    assert isinstance(question, PreVote)


def test_word_of_another_term_from_another_node_or_to_no_voter_is_late() -> None:
    for source, message in (("n2", TimeoutNow(1)), ("n2", TimeoutNow(3)), ("n3", TimeoutNow(2))):
        lone = target()
        lone.receive(source, message)
        assert (lone.raft.role, lone.raft.current_term) == (Role.FOLLOWER, 2)
    lone = target()
    lone.campaign()
    lone.receive("n2", TimeoutNow(2))  # It has gone its own way since.
    assert lone.raft.role is Role.PRE_CANDIDATE
    learner = Lone(configuration=Configuration(("n2", "n3"), learners=("n1",)), term=2)
    learner.append(2, (0, 0), source="n2")
    learner.receive("n2", TimeoutNow(2))
    assert learner.raft.role is Role.FOLLOWER


def test_a_target_whose_disk_is_stalled_leaves_it_to_others() -> None:
    lone = target()
    lone.append(2, (1, 2), entries(2, start=2), source="n2")
    lone.now += 2 * SECOND
    lone.append(2, (2, 2), source="n2")
    lone.receive("n2", TimeoutNow(2))
    assert lone.raft.role is Role.FOLLOWER


def test_s08_only_a_marked_request_passes_by_leader_stickiness() -> None:
    lone = Lone(term=2, log=entries(2))
    lone.append(2, (1, 2), source="n2")
    assert lone.receive("n3", RequestVote(3, 1, 2, False)) == [RequestVoteResponse(2, False, "leader-alive")]
    assert lone.receive("n3", RequestVote(3, 0, 0, True)) == []
    assert lone.durable() == [RequestVoteResponse(3, False, "log-behind")]  # The log decides all the same.
    lone.receive("n3", RequestVote(4, 1, 2, True))
    assert lone.durable() == [RequestVoteResponse(4, True, "")]


# -- together -------------------------------------------------------------------------------------------


def writing(world: World, outcomes: list[Accepted | Refused]) -> None:
    """A client that writes to whoever leads, every few milliseconds."""

    def write() -> None:
        leader = world.leader()
        if leader is not None:
            outcomes.append(world.propose(leader, b"%d" % len(outcomes)))
        world.after(4 * MILLISECOND, write)

    write()


@pytest.mark.parametrize("seed", range(8))
def test_s08_transfer_under_steady_writes(seed: int) -> None:
    world = World(seed=seed, options=QUICK)
    world.elect("n1")
    outcomes: list[Accepted | Refused] = []
    writing(world, outcomes)
    world.run_for(2 * TIMEOUT)
    assert isinstance(world.transfer("n1", "n2"), TransferBegun)
    world.run_until(lambda: world.leader() == "n2", within=2 * TIMEOUT, what="n2 leads")
    world.run_for(TIMEOUT)
    assert (world.leader(), world.raft("n2").current_term) == ("n2", 2)
    # Nothing was lost, and what was not taken was refused for now.
    taken = [outcome for outcome in outcomes if isinstance(outcome, Accepted)]
    assert {outcome.code for outcome in outcomes if isinstance(outcome, Refused)} <= {"BUSY", "NOT_LEADER"}
    for outcome in taken[:-5]:
        assert world.checks.committed[outcome.first_index - 1].term == outcome.term
    assert isinstance(outcomes[-1], Accepted)


def test_s08_transfer_that_fails_costs_no_more_than_a_timeout() -> None:
    world = World(seed=1, options=QUICK)
    world.elect("n1")
    outcomes: list[Accepted | Refused] = []
    writing(world, outcomes)
    world.run_for(2 * TIMEOUT)
    world.cut("n1", "n2")  # n2 hears nothing, and does not know that it is the target.
    assert isinstance(world.transfer("n1", "n2"), TransferBegun)
    begun = world.now
    outcomes.clear()
    world.run_until(
        lambda: bool(outcomes) and isinstance(outcomes[-1], Accepted),
        within=TIMEOUT + 10 * MILLISECOND,
        what="n1 serves on",
    )
    assert world.now >= begun + TIMEOUT
    assert {outcome.code for outcome in outcomes if isinstance(outcome, Refused)} == {"BUSY"}
    assert (world.leader(), world.raft("n1").current_term) == ("n1", 1)


def test_s08_late_word_after_a_transfer_that_was_given_up_is_a_transfer_all_the_same() -> None:
    """The target acts when the leader has long gone on serving: the term ends, and nothing is lost."""
    world = World(seed=1, options=QUICK)
    world.elect("n1")
    world.run_for(TIMEOUT)
    late: list[Message] = []
    world.on_message = lambda source, to, message: late.append(message) if isinstance(message, TimeoutNow) else None
    world.cut("n1", "n2")
    world.transfer("n1", "n2")
    world.run_for(TIMEOUT + 5 * MILLISECOND)
    assert late
    world.heal()
    world.run_for(20 * MILLISECOND)
    outcome = world.propose("n1", b"x")
    assert isinstance(outcome, Accepted)
    world.run_for(20 * MILLISECOND)
    assert world.raft("n1").commit_index == outcome.first_index
    world._delivery("n1", world.nodes["n2"], late[0])()
    world.run_until(lambda: world.leader() == "n2", within=TIMEOUT, what="n2 leads")
    world.run_for(5 * TIMEOUT)
    assert [len(world.checks.leaders), world.leader()] == [2, "n2"]
