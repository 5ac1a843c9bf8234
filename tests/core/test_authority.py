"""Who may speak as a leader: nobody without contact with a quorum, whatever happens (thesis section 6.2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.raft.core.configuration import Change, ChangeKind, Configuration
from fencepost.raft.core.events import (
    Campaign,
    ChangeConfiguration,
    ChunkUnavailable,
    Durable,
    Event,
    Propose,
    Read,
    ReadReady,
    ReadRefused,
    Refused,
    Role,
    SnapshotNotTaken,
    Tick,
    TransferLeadership,
    Unreachable,
)
from fencepost.raft.core.messages import (
    AppendEntries,
    AppendEntriesResponse,
    InstallSnapshotResponse,
    Message,
    PreVote,
    PreVoteResponse,
    ReadIndex,
    RequestVote,
    RequestVoteResponse,
    TimeoutNow,
)
from fencepost.raft.core.options import MILLISECOND, SECOND, Options
from fencepost.raft.core.progress import ProgressState

from .lone import FIVE, THREE, Lone, entries, label


def leader(configuration: Configuration | None = None, options: Options | None = None) -> Lone:
    """n1 leads term 2; everybody else has answered now, and the no-op at 11 is committed."""
    lone = Lone(
        configuration=configuration or Configuration(THREE),
        term=1,
        snapshot=label(10, 1, configuration),
        previous=(10, 1),
        options=options,
    )
    lone.become_leader()
    for peer in lone.raft.peers:
        lone.acknowledge(peer, 11)
    lone.take()
    return lone


def cut_off(lone: Lone) -> None:
    """Nothing has come for an election timeout; the timer has not been looked at yet."""
    lone.now += lone.raft.options.election_timeout


def renews(lone: Lone) -> bool:
    return bool(lone.chunks) or any(isinstance(message, AppendEntries) for message in lone.take())


EVENTS: dict[str, Callable[[int], Event]] = {
    "tick": Tick,
    "proposal": lambda now: Propose(now, 0, [(3, b"x")]),
    "durable": lambda now: Durable(now, 2),
    "broken link": lambda now: Unreachable(now, "n2"),
    "read": lambda now: Read(now, [7]),
    "lease read": lambda now: Read(now, [7], lease=True),
    "change": lambda now: ChangeConfiguration(now, [Change(ChangeKind.ADD_LEARNER, "n4")]),
    "transfer": lambda now: TransferLeadership(now, "n2"),
    "campaign": Campaign,
    "chunk gone": lambda now: ChunkUnavailable(now, "n2"),
    "no snapshot": SnapshotNotTaken,
}


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS.keys())
def test_s30_leader_without_a_quorum_gives_up_at_whatever_comes_first(event: Callable[[int], Event]) -> None:
    lone = leader()
    lone.propose(b"x")
    lone.take()
    cut_off(lone)
    effects = lone.step(event(lone.now))
    assert lone.raft.role is not Role.LEADER
    assert effects.role_changes[0].reason == "no contact with a quorum"
    assert not renews(lone)
    assert (effects.proposed is not None) is isinstance(event(0), Propose | ChangeConfiguration)
    for answer in (effects.proposed, effects.transfer):
        assert answer is None or (isinstance(answer, Refused) and answer.code == "NOT_LEADER")
    assert all(isinstance(read, ReadRefused) for read in effects.reads)


MESSAGES: dict[str, Message] = {
    "old answer": AppendEntriesResponse(2, True, 12, 0, 0, 5),
    "old answer that commits": AppendEntriesResponse(2, True, 14, 0, 0, 5),
    "refusal": AppendEntriesResponse(2, False, 12, 11, 2, 5),
    "snapshot answer": InstallSnapshotResponse(2, 10, 4, False, 5),
    "installed": InstallSnapshotResponse(2, 10, 4, True, 5),
    "read of a follower": ReadIndex(2, 99),
    "pre-vote": PreVote(3, 99, 2, 1),
    "pre-vote answer": PreVoteResponse(2, True, 1, ""),
    "vote request": RequestVote(3, 99, 2, False),
    "vote answer": RequestVoteResponse(2, True, ""),
    "told to campaign": TimeoutNow(2),
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES.keys())
def test_s30_message_that_does_not_help_renews_nobody_and_the_timer_ends_it(message: Message) -> None:
    lone = leader(options=Options(append_bytes_max=1, in_flight_max=1))
    for data in (b"x", b"y", b"z"):
        lone.propose(data)
    lone.settle()
    if not isinstance(message, ReadIndex):  # The first read is what asks for heartbeats.
        lone.read(7)
    lone.take()
    cut_off(lone)
    lone.receive("n3", message)
    assert lone.raft.role is Role.LEADER
    assert not renews(lone)
    assert lone.raft.deadline() <= lone.now
    lone.advance(0)
    assert lone.raft.role is not Role.LEADER


def test_s30_joint_configuration_is_not_left_without_a_quorum() -> None:
    joint = Configuration(("n1", "n4", "n5"), outgoing=THREE, auto_leave=True)
    lone = Lone(configuration=joint, term=1)
    lone.become_leader()
    for peer in ("n2", "n4"):
        lone.acknowledge(peer, 0)
    lone.take()
    cut_off(lone)
    for peer in ("n2", "n4"):  # They had got the no-op long ago; the answers come now.
        lone.acknowledge(peer, 1, sent_at=5)
    assert (lone.raft.commit_index, lone.raft.configuration.is_joint) == (1, True)
    assert not renews(lone)


def test_messages_come_before_timers() -> None:
    """The answer was in the socket when the process was stopped: it is heard, and authority is back."""
    lone = leader()
    cut_off(lone)
    lone.acknowledge("n2", 11, sent_at=lone.now - MILLISECOND)
    lone.tick()
    assert lone.raft.role is Role.LEADER
    assert lone.raft.quorum_contact == lone.now - MILLISECOND


def test_contact_is_when_it_was_asked_and_not_when_it_was_answered() -> None:
    lone = leader()
    lone.now += SECOND // 2
    lone.acknowledge("n2", 11, sent_at=lone.now - SECOND // 4)
    lone.now += SECOND * 3 // 4 - 1
    lone.tick()
    assert lone.raft.role is Role.LEADER
    lone.now += 1
    lone.tick()
    assert lone.raft.role is Role.FOLLOWER


def test_an_echo_of_what_was_never_sent_and_an_older_one_than_the_newest_are_no_contact() -> None:
    lone = leader()
    lone.now += MILLISECOND
    lone.acknowledge("n2", 11)
    contact = lone.raft.quorum_contact
    lone.acknowledge("n2", 11, sent_at=lone.now + SECOND)
    lone.acknowledge("n2", 11, sent_at=lone.now - 1)
    assert lone.raft.quorum_contact == contact == lone.now


def test_learners_departing_and_unknown_nodes_are_no_quorum() -> None:
    lone = leader(Configuration(("n1", "n2", "n3", "n5"), learners=("n4",)))
    lone.change(Change(ChangeKind.REMOVE, "n5"))
    lone.settle()
    for _ in range(12):
        lone.advance(100 * MILLISECOND)
        for peer in ("n4", "n5", "n9"):
            lone.acknowledge(peer, 11)
    assert lone.raft.role is Role.FOLLOWER


def test_both_halves_of_a_joint_configuration_have_to_follow() -> None:
    joint = Configuration(("n1", "n4", "n5"), outgoing=THREE)
    for silent in (("n2", "n3"), ("n4", "n5")):
        lone = leader(joint)
        for _ in range(12):
            lone.advance(100 * MILLISECOND)
            for peer in lone.raft.peers:
                if peer not in silent:
                    lone.acknowledge(peer, 11)
        assert lone.raft.role is Role.FOLLOWER
    lone = leader(joint)
    for _ in range(12):
        lone.advance(100 * MILLISECOND)
        for peer in ("n2", "n5"):
            lone.acknowledge(peer, 11)
    assert lone.raft.role is Role.LEADER


def test_the_only_voter_needs_nobody() -> None:
    lone = leader(Configuration(("n1",), learners=("n2",)))
    lone.advance(60 * SECOND)
    assert lone.raft.role is Role.LEADER
    assert lone.raft.holds_lease(lone.now)


def test_without_check_quorum_a_leader_stays_and_a_vote_is_free() -> None:
    lone = leader(options=Options(check_quorum=False))
    lone.advance(60 * SECOND)
    assert lone.raft.role is Role.LEADER
    assert not lone.raft.holds_lease(lone.now)
    lone.receive("n2", RequestVote(9, 99, 9, False))
    assert lone.raft.current_term == 9


@pytest.mark.parametrize("own", [SECOND, 3 * SECOND])
@pytest.mark.parametrize("theirs", [SECOND // 2, SECOND, 4 * SECOND])
def test_s49_with_different_election_timeouts_the_shortest_one_ends_the_lease(own: int, theirs: int) -> None:
    """Who answers gives its vote to nobody for as long as its own setting says, whatever the leader's is."""
    lone = leader(options=Options(election_timeout=own, lease_reads=True, clock_drift_ppm=0))
    lone.acknowledge("n2", 11, promise=theirs)
    asked_at = lone.now
    lone.now = asked_at + min(own, theirs) - 1
    assert lone.raft.holds_lease(lone.now)
    assert lone.read(1, lease=True) == [ReadReady(1, 11)]
    lone.now += 1
    assert not lone.raft.holds_lease(lone.now)
    assert lone.read(2, lease=True) in ([], [ReadRefused(2, "NOT_LEADER", "")])


def test_s49_a_follower_says_for_how_long_it_keeps_its_vote() -> None:
    lone = Lone(term=1, options=Options(election_timeout=3 * SECOND))
    assert [answer.promise for answer in lone.append(1, (0, 0))] == [3 * SECOND]  # type: ignore[union-attr]
    assert [answer.promise for answer in lone.append(1, (9, 1))] == [3 * SECOND]  # type: ignore[union-attr]
    lone.now += 3 * SECOND - 1
    lone.receive("n3", RequestVote(2, 99, 1, False))
    assert lone.raft.current_term == 1
    lone.now += 1
    lone.receive("n3", RequestVote(2, 99, 1, False))
    assert lone.raft.current_term == 2


def test_the_timer_is_set_to_the_moment_at_which_authority_ends() -> None:
    """Between two heartbeats, not at the next one."""
    lone = leader()
    begun = lone.now
    lone.now += 30 * MILLISECOND
    lone.acknowledge("n2", 11)
    lone.advance(begun + SECOND - lone.now)
    assert lone.raft.deadline() == begun + SECOND + 30 * MILLISECOND
    lone = leader()
    begun = lone.now
    lone.advance(20 * MILLISECOND)
    lone.propose(b"x")
    for _ in range(2):
        lone.advance(490 * MILLISECOND)
        lone.acknowledge("n2", 11)
    assert lone.raft.deadline() == begun + SECOND + 20 * MILLISECOND + 1


def test_a_new_leader_has_a_timeout_to_be_heard() -> None:
    lone = Lone(voters=FIVE, term=1)
    lone.become_leader()
    lone.advance(SECOND - 1)
    assert lone.raft.role is Role.LEADER
    lone.advance(1)
    assert lone.raft.role is Role.FOLLOWER


def test_s46_after_a_suspend_no_authority_is_trusted_whatever_wakes_the_node() -> None:
    for event in EVENTS.values():
        lone = leader(options=Options(lease_reads=True))
        assert lone.raft.holds_lease(lone.now)
        lone.now += 3600 * SECOND
        assert not lone.raft.holds_lease(lone.now)
        effects = lone.step(event(lone.now))
        assert not any(type(read) is not ReadRefused for read in effects.reads)
        assert lone.raft.role is not Role.LEADER


def test_s07_leader_whose_disk_is_stalled_gives_up_though_a_quorum_follows() -> None:
    lone = leader()
    lone.propose(b"x")
    for _ in range(11):
        lone.advance(100 * MILLISECOND)
        for peer in ("n2", "n3"):
            lone.acknowledge(peer, 11)
    assert lone.raft.role is Role.FOLLOWER


def test_a_snapshot_goes_on_only_with_a_quorum() -> None:
    lone = leader()
    lone.raft.snapshot = label(10, 1, size_bytes=1 << 20)
    lone.unreachable("n3")
    lone.raft.progress["n3"].match_index = 0
    lone.raft.progress["n3"].become_probe()
    lone.acknowledge("n3", 0)
    assert lone.raft.progress["n3"].state is ProgressState.SNAPSHOT
    sent_at = lone.chunks[-1].message.sent_at
    lone.chunks.clear()
    cut_off(lone)
    lone.receive("n3", InstallSnapshotResponse(2, 10, 4, False, sent_at))
    assert lone.chunks == []


def test_a_follower_says_nothing_that_would_keep_a_leader_it_does_not_follow() -> None:
    lone = Lone(term=3, log=entries(3))
    assert lone.append(2, (1, 2), source="n2") == [AppendEntriesResponse(3, False, 1, 0, 0, 7, SECOND)]
    assert lone.raft.leader == ""


def test_an_answer_that_claims_more_than_there_is_is_not_believed() -> None:
    lone = leader()
    lone.propose(b"x")
    lone.settle()
    lone.acknowledge("n2", 13)
    assert (lone.raft.commit_index, lone.raft.progress["n2"].match_index) == (11, 11)


def test_how_old_a_state_may_be() -> None:
    lone = leader()
    lone.now += 5 * MILLISECOND
    assert lone.raft.stale_age(lone.now) == 5 * MILLISECOND
    assert leader(Configuration(("n1",))).raft.stale_age(lone.now) == 0
    follower = Lone(term=3, log=entries(3))
    assert follower.raft.stale_age(follower.now) is None
    follower.append(3, (1, 3), source="n2")
    follower.now += 7 * MILLISECOND
    assert follower.raft.stale_age(follower.now) == 7 * MILLISECOND


def test_s29_how_old_a_state_may_be_is_not_known_while_it_lacks_what_its_leader_has_committed() -> None:
    follower = Lone(term=3, log=entries(3))
    follower.append(3, (50, 3), commit=40)
    assert follower.raft.leader == "n2"
    assert follower.raft.stale_age(follower.now) is None


def test_a_node_whose_storage_has_failed_refuses_everything_at_once() -> None:
    lone = leader()
    lone.storage_failed()
    assert lone.propose(b"x") == Refused("NOT_LEADER", "")
    assert lone.change(Change(ChangeKind.ADD_LEARNER, "n4")) == Refused("NOT_LEADER", "")
    assert lone.transfer("n2") == Refused("NOT_LEADER", "")
    assert lone.read(1, 2) == [ReadRefused(1, "NOT_LEADER", ""), ReadRefused(2, "NOT_LEADER", "")]
    assert lone.raft.stale_age(lone.now) is None
    lone.advance(60 * SECOND)
    assert (lone.take(), lone.raft.role) == ([], Role.FOLLOWER)


def test_a_node_that_votes_for_another_gives_up_its_own_attempt() -> None:
    lone = Lone(term=3)
    lone.campaign()
    assert lone.raft.role is Role.PRE_CANDIDATE
    lone.receive("n2", RequestVote(3, 0, 0, False))
    assert (lone.raft.role, lone.raft.voted_for) == (Role.FOLLOWER, "n2")
