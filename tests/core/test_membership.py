"""Changes of the members: when one is taken, what is in force, and who goes (thesis chapter 4)."""

from __future__ import annotations

import pytest

from fencepost.jepsen.cores.world import World
from fencepost.raft.core.configuration import (
    Change,
    ChangeKind,
    Configuration,
    decode_configuration,
    encode_configuration,
)
from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.errors import UnknownEntry
from fencepost.raft.core.events import Accepted, Role, Transition
from fencepost.raft.core.messages import (
    AppendEntries,
    InstallSnapshotResponse,
    PreVote,
    PreVoteResponse,
    RequestVote,
    RequestVoteResponse,
    TimeoutNow,
)
from fencepost.raft.core.options import MILLISECOND, SECOND, Options
from fencepost.raft.core.progress import ProgressState

from .lone import FIVE, THREE, Lone, entries, label

VOTER, LEARNER, REMOVE = ChangeKind.ADD_VOTER, ChangeKind.ADD_LEARNER, ChangeKind.REMOVE
HEARTBEAT = 100 * MILLISECOND
FOUR = ("n1", "n2", "n3", "n4")


def configured(index: int, term: int, configuration: Configuration) -> Entry:
    return Entry(index, term, EntryKind.CONFIGURATION, 0, encode_configuration(configuration))


def leading(
    configuration: Configuration | None = None, *, committed: bool = True, options: Options | None = None
) -> Lone:
    """n1 leads term 2; its no-op, the entry at 1, is committed by the other voters."""
    lone = Lone(configuration=configuration or Configuration(THREE), term=1, options=options)
    lone.become_leader()
    if committed:
        for peer in lone.raft.voting_peers:
            lone.acknowledge(peer, 1)
    lone.take()
    return lone


def sent(lone: Lone, to: str) -> list[AppendEntries]:
    """Appends that have left for ``to`` since last asked."""
    found = [send.message for send in lone.visible if send.to == to and isinstance(send.message, AppendEntries)]
    lone.visible = [send for send in lone.visible if send.to != to]
    return found


def commit(lone: Lone, *peers: str) -> None:
    """Everything becomes durable here and at ``peers``."""
    lone.settle()
    for peer in peers:
        if lone.raft.role is Role.LEADER:
            lone.acknowledge(peer, lone.raft.log.last_index)


# -- in force as soon as it is in the log ---------------------------------------------------------------


def test_a_change_is_in_force_at_once_and_its_new_member_gets_the_log() -> None:
    lone = leading()
    assert lone.change(Change(LEARNER, "n4", "host4:7000")) == Accepted(2, 2)
    after = Configuration(THREE, learners=("n4",), addresses=(("n4", "host4:7000"),))
    assert lone.raft.configuration == after
    assert lone.configurations == [after]
    assert lone.raft.committed_configuration() == Configuration(THREE)
    (entry,) = lone.writes[-1].entries
    assert (entry.kind, decode_configuration(entry.data)) == (EntryKind.CONFIGURATION, after)
    (probe,) = sent(lone, "n4")
    assert (probe.prev_log_index, probe.entries) == (1, [entry])
    lone.refuse("n4", 1, (0, 0))
    assert [item.index for item in sent(lone, "n4")[0].entries] == [1, 2]


def test_a_follower_follows_the_configuration_in_its_log_and_goes_back_when_that_is_overwritten() -> None:
    lone = Lone(term=1)
    four = Configuration(FOUR)
    lone.append(1, (0, 0), [configured(1, 1, four)])
    assert lone.raft.configuration == four
    lone.append(2, (0, 0), entries(2), source="n3")
    assert lone.raft.configuration == Configuration(THREE)
    assert lone.configurations == [four, Configuration(THREE)]


def test_a_configuration_of_another_version_stops_the_node() -> None:
    lone = Lone(term=1)
    strange = Entry(1, 1, EntryKind.CONFIGURATION, 0, b"voters n1 n2 n3\nwitnesses n4")
    with pytest.raises(UnknownEntry, match="witnesses"):
        lone.append(1, (0, 0), [strange])
    with pytest.raises(UnknownEntry):
        Lone(term=1, log=[strange])


def test_quorums_are_those_of_the_configuration_in_force() -> None:
    lone = leading(Configuration(THREE, learners=("n4", "n5")))
    lone.propose(b"x")
    commit(lone, "n4", "n5")
    assert lone.raft.commit_index == 1  # Learners are counted in no quorum.
    commit(lone, "n2")
    assert lone.raft.commit_index == 2
    lone.change(Change(VOTER, "n4"))
    commit(lone, "n2")
    assert lone.raft.commit_index == 2  # Three of four.
    commit(lone, "n4")
    assert lone.raft.commit_index == 3


# -- when a change is taken -----------------------------------------------------------------------------


def test_only_a_leader_takes_changes() -> None:
    lone = Lone(term=1)
    assert lone.change(Change(LEARNER, "n4"))[:2] == ("NOT_LEADER", "")
    lone.append(1, (0, 0), source="n3")
    assert lone.change(Change(LEARNER, "n4"))[:2] == ("NOT_LEADER", "n3")
    assert lone.raft.log.last_index == 0


def test_one_change_at_a_time() -> None:
    lone = leading()
    assert isinstance(lone.change(Change(LEARNER, "n4")), Accepted)
    assert lone.change(Change(LEARNER, "n5")) == (
        "BUSY",
        "n1",
        "the change at index 2 is not committed yet",
    )
    commit(lone, "n2")
    assert lone.change(Change(LEARNER, "n5")) == Accepted(3, 2)


def test_no_change_while_leadership_is_handed_over() -> None:
    lone = leading()
    lone.transfer("n2")
    assert lone.change(Change(LEARNER, "n4"))[0] == "BUSY"


def test_changes_that_lead_nowhere_are_refused_and_use_no_index() -> None:
    lone = leading(Configuration(("n1", "n2"), retired=("n9",)))
    for changes in (
        [],
        [Change(VOTER, "n9")],
        [Change(LEARNER, "n9")],
        [Change(REMOVE, "n1"), Change(REMOVE, "n2")],
        [Change(LEARNER, "n 3")],
    ):
        assert lone.change(*changes, unchecked=True)[0] == "CHANGE_REFUSED"
    assert (lone.raft.log.last_index, lone.raft.configuration_index) == (1, 0)


def test_an_id_that_was_removed_never_comes_back() -> None:
    lone = leading(Configuration(FOUR))
    lone.change(Change(REMOVE, "n4"))
    commit(lone, "n2", "n3")
    for change in (Change(VOTER, "n4"), Change(LEARNER, "n4")):
        refused = lone.change(change, unchecked=True)
        assert refused == ("CHANGE_REFUSED", "n1", "n4 was removed, and ids are not used again: give it a new one")
    # Nor through a joint configuration, beside others.
    assert lone.change(Change(VOTER, "n5"), Change(VOTER, "n4"), unchecked=True)[0] == "CHANGE_REFUSED"


# -- who may become a voter -----------------------------------------------------------------------------


def test_a_voter_has_been_a_learner_that_was_heard_of_lately_and_has_caught_up() -> None:
    lone = leading(Configuration(THREE, learners=("n4",)), options=Options(promotion_lag_max=3))
    assert lone.change(Change(VOTER, "n5")) == ("NOT_CAUGHT_UP", "n1", "n5 is no learner: add it as one first")
    assert lone.change(Change(VOTER, "n4")) == ("NOT_CAUGHT_UP", "n1", "n4 is behind by 1, last seen never")
    lone.propose(*[b"x"] * 4)
    commit(lone, "n2", "n3")
    lone.acknowledge("n4", 1)
    refused = lone.change(Change(VOTER, "n4"))
    assert refused == ("NOT_CAUGHT_UP", "n1", "n4 is behind by 4, at most 3 is allowed")
    lone.acknowledge("n4", 2)
    heard_at = lone.now
    lone.now += SECOND - 1
    lone.acknowledge("n2", 5)
    lone.now = heard_at + SECOND
    refused = lone.change(Change(VOTER, "n4"))
    assert refused == ("NOT_CAUGHT_UP", "n1", "n4 is behind by 3, last seen 1.0 s ago")
    lone.acknowledge("n4", 2)
    assert isinstance(lone.change(Change(VOTER, "n4")), Accepted)


def test_s28_a_learner_that_needs_a_snapshot_has_not_caught_up_however_few_entries_it_lacks() -> None:
    held = label(6, 3, size_bytes=10)
    lone = Lone(term=3, snapshot=held, previous=(6, 3), options=Options(retained_entries=0))
    lone.become_leader()
    lone.acknowledge("n2", 7)
    lone.change(Change(LEARNER, "n4"))
    commit(lone, "n2")
    lone.refuse("n4", lone.raft.progress["n4"].next_index - 1, (0, 0))
    assert lone.raft.progress["n4"].state is ProgressState.SNAPSHOT
    refused = lone.change(Change(VOTER, "n4"))
    assert refused == ("NOT_CAUGHT_UP", "n1", "n4 is behind by 8, and needs a snapshot")
    lone.receive("n4", InstallSnapshotResponse(4, 6, 10, True, lone.now))
    assert isinstance(lone.change(Change(VOTER, "n4")), Accepted)


def test_unchecked_takes_a_voter_that_nobody_has_heard_of() -> None:
    lone = leading()
    assert isinstance(lone.change(Change(VOTER, "n4"), unchecked=True), Accepted)
    assert lone.raft.configuration.voters == FOUR


def test_removing_a_voter_that_answers_is_refused_where_the_rest_does_not() -> None:
    """The majority of what is left would be silent, and this leader give up at once."""
    lone = leading()  # n2 and n3 have answered.
    lone.now += SECOND // 2
    lone.acknowledge("n2", 1)
    lone.now += SECOND // 2
    for change in (Change(REMOVE, "n2"), Change(LEARNER, "n2")):
        refused = lone.change(change)
        assert refused == ("NOT_CAUGHT_UP", "n1", "of the voters that there would be, too few were heard of lately")
    assert isinstance(lone.change(Change(REMOVE, "n3")), Accepted)  # The silent one may go.


def test_an_unchecked_change_to_silent_voters_renews_nobody() -> None:
    lone = leading()
    lone.now += SECOND // 2
    lone.acknowledge("n2", 1)
    lone.now += SECOND // 2
    lone.take()
    assert isinstance(lone.change(Change(REMOVE, "n2"), unchecked=True), Accepted)
    assert lone.raft.lost_quorum()
    assert lone.take() == []
    lone.advance(1)
    assert lone.raft.role is Role.FOLLOWER


# -- joint configurations -------------------------------------------------------------------------------


def test_a_joint_configuration_is_left_as_soon_as_it_is_committed_by_both() -> None:
    lone = leading(Configuration(("n1", "n2"), learners=("n3", "n4")))
    for peer in ("n3", "n4"):
        lone.acknowledge(peer, 1)
    assert lone.change(Change(REMOVE, "n2"), Change(VOTER, "n3"), Change(VOTER, "n4")) == Accepted(2, 2)
    assert (lone.raft.configuration.voters, lone.raft.configuration.outgoing) == (("n1", "n3", "n4"), ("n1", "n2"))
    commit(lone, "n3", "n4")
    assert lone.raft.commit_index == 1  # A majority of the new voters is not one of the old.
    lone.acknowledge("n2", 2)
    assert lone.raft.commit_index == 2
    assert lone.raft.configuration == Configuration(("n1", "n3", "n4"), retired=("n2",))
    commit(lone, "n3")
    assert lone.raft.commit_index == 3  # From then on the new ones alone.


def test_one_voter_changes_without_a_joint_configuration_unless_that_is_asked_for() -> None:
    lone = leading()
    lone.change(Change(VOTER, "n4"), unchecked=True)
    assert not lone.raft.configuration.is_joint
    for transition, leaves in ((Transition.IMPLICIT, True), (Transition.EXPLICIT, False)):
        lone = leading()
        lone.change(Change(VOTER, "n4"), transition=transition, unchecked=True)
        assert lone.raft.configuration.outgoing == THREE
        assert lone.raft.configuration.auto_leave is leaves


def test_an_explicit_joint_configuration_is_left_when_that_is_asked_for() -> None:
    lone = leading()
    lone.change(Change(VOTER, "n4"), transition=Transition.EXPLICIT, unchecked=True)
    assert lone.change()[0] == "BUSY"  # Not committed yet.
    commit(lone, "n2", "n4")
    lone.advance(5 * HEARTBEAT)
    assert lone.raft.configuration.is_joint
    assert lone.change(Change(LEARNER, "n5"))[0] == "CHANGE_REFUSED"
    assert lone.change() == Accepted(3, 2)
    assert lone.raft.configuration == Configuration(FOUR)


def test_a_joint_configuration_waits_for_the_end_of_a_transfer_and_is_left_then() -> None:
    lone = leading(options=Options(transfer_timeout=5 * HEARTBEAT))
    lone.change(Change(VOTER, "n4"), transition=Transition.IMPLICIT, unchecked=True)
    lone.settle()
    assert lone.transfer("n2")[0] == "n2"
    commit(lone, "n2", "n4")
    assert (lone.raft.commit_index, lone.raft.configuration.is_joint) == (2, True)
    lone.advance(6 * HEARTBEAT)
    assert lone.raft.configuration == Configuration(FOUR)


# -- who goes -------------------------------------------------------------------------------------------


def test_a_leader_that_is_removed_leads_until_that_is_committed_and_counts_itself_no_more() -> None:
    lone = leading(Configuration(FOUR))
    assert isinstance(lone.change(Change(REMOVE, "n1")), Accepted)
    assert lone.raft.role is Role.LEADER
    assert isinstance(lone.propose(b"x"), Accepted)
    lone.settle()
    lone.acknowledge("n2", 3)
    assert lone.raft.commit_index == 1  # One of n2, n3, n4; its own copy is none.
    lone.take()
    lone.acknowledge("n3", 2)
    assert (lone.raft.commit_index, lone.raft.role) == (2, Role.FOLLOWER)
    # The others hear that it is committed before their leader falls silent.
    assert {message.leader_commit for message in sent(lone, "n4")} == {2}
    assert lone.propose(b"y")[:2] == ("NOT_LEADER", "")
    lone.take()
    lone.advance(20 * SECOND)
    assert lone.take() == []  # It campaigns no more.


def test_a_leader_that_is_removed_has_the_voter_with_most_of_the_log_campaign_at_once() -> None:
    lone = leading(Configuration(FOUR, learners=("n5",)))
    for peer in ("n2", "n3", "n4", "n5"):
        lone.acknowledge(peer, 1)
    lone.change(Change(REMOVE, "n1"))
    lone.propose(b"x")
    lone.settle()
    lone.acknowledge("n5", 3)
    lone.acknowledge("n3", 3)
    lone.take()
    lone.acknowledge("n2", 2)
    assert lone.raft.role is Role.FOLLOWER
    last = [(send.to, send.message) for send in lone.visible if isinstance(send.message, TimeoutNow)]
    assert last == [("n3", TimeoutNow(2))]
    # Whoever campaigns has heard before that the change is committed, and so has everybody else.
    assert lone.visible[-1].message == TimeoutNow(2)


def test_a_removed_leader_tells_nobody_but_the_target_of_a_transfer_to_campaign() -> None:
    lone = leading(Configuration(FOUR))
    for peer in ("n2", "n3", "n4"):
        lone.acknowledge(peer, 1)
    lone.change(Change(REMOVE, "n1"))
    lone.transfer("n2")
    lone.settle()
    lone.acknowledge("n4", 2)
    lone.acknowledge("n2", 2)
    assert lone.raft.role is Role.FOLLOWER
    assert {send.to for send in lone.visible if isinstance(send.message, TimeoutNow)} == {"n2"}


def test_after_a_leader_is_removed_nobody_waits_for_a_timeout() -> None:
    world = World(FOUR)
    world.elect("n1")
    world.change("n1", Change(REMOVE, "n1"))
    world.run_until(lambda: world.raft("n1").role is not Role.LEADER, within=SECOND, what="n1 steps down")
    world.run_until(lambda: world.leader() is not None, within=SECOND // 2, what="another leads")


def test_a_removed_leader_that_is_told_not_to_step_down_takes_no_proposals() -> None:
    lone = leading(options=Options(step_down_on_removal=False))
    lone.change(Change(REMOVE, "n1"))
    commit(lone, "n2", "n3")
    assert (lone.raft.commit_index, lone.raft.role) == (2, Role.LEADER)
    assert lone.propose(b"x") == ("NOT_LEADER", "", "this leader is no voter any more")


def test_a_removed_member_hears_of_it_and_is_forgotten_then() -> None:
    lone = leading(Configuration(FOUR))
    lone.acknowledge("n4", 1)
    sent(lone, "n4")
    lone.change(Change(REMOVE, "n4"))
    (farewell,) = sent(lone, "n4")
    assert [entry.index for entry in farewell.entries] == [2]
    lone.acknowledge("n4", 2)
    assert "n4" in lone.raft.progress  # It does not know yet that this is committed.
    commit(lone, "n2", "n3")
    lone.advance(HEARTBEAT)
    assert sent(lone, "n4")[-1].leader_commit == 2
    lone.acknowledge("n4", 2)
    assert (sorted(lone.raft.progress), lone.raft.departing) == (["n2", "n3"], {})


def test_a_removed_member_that_was_sent_everything_and_has_not_answered_is_kept() -> None:
    lone = leading(Configuration(FOUR))
    lone.acknowledge("n4", 1)
    lone.change(Change(REMOVE, "n4"))
    commit(lone, "n2", "n3")
    lone.advance(HEARTBEAT)
    commit(lone, "n2", "n3")
    assert lone.raft.progress["n4"].commit_sent == 2
    assert "n4" in lone.raft.departing
    lone.acknowledge("n4", 2)
    assert "n4" not in lone.raft.progress


def test_a_removed_member_that_is_away_is_forgotten_in_the_end() -> None:
    lone = leading(Configuration(FOUR))
    lone.change(Change(REMOVE, "n4"))
    commit(lone, "n2", "n3")
    for _ in range(25):
        lone.advance(HEARTBEAT)
        commit(lone, "n2", "n3")
    assert "n4" not in lone.raft.progress
    sent(lone, "n4")
    lone.advance(5 * HEARTBEAT)
    assert sent(lone, "n4") == []


def test_a_member_is_not_forgotten_before_its_removal_is_committed() -> None:
    lone = leading(Configuration(FOUR))
    lone.change(Change(REMOVE, "n4"))
    lone.settle()
    lone.acknowledge("n4", 2)
    for _ in range(30):
        lone.advance(HEARTBEAT)
        lone.acknowledge("n2", 1)
    assert (lone.raft.role, lone.raft.commit_index) == (Role.LEADER, 1)
    assert "n4" in lone.raft.progress


def test_voters_tell_a_removed_node_so_and_it_stops_asking() -> None:
    voter = Lone(term=2, log=[configured(1, 2, Configuration(("n1", "n2"), retired=("n3",)))], commit_index=1)
    voter.append(2, (1, 2))
    assert voter.receive("n3", PreVote(3, 1, 2, 5)) == [PreVoteResponse(2, False, 5, "removed")]
    removed = Lone(term=2)
    removed.campaign()
    removed.receive("n2", PreVoteResponse(2, False, removed.raft.pre_vote_round, "removed"))
    assert (removed.raft.role, removed.raft.removed) == (Role.FOLLOWER, True)
    removed.take()
    removed.advance(20 * SECOND)
    assert removed.take() == []
    removed.append(2, (0, 0))  # Somebody counts it as a member after all.
    assert not removed.raft.removed


def test_a_removal_that_is_not_committed_is_no_reason_to_tell() -> None:
    voter = Lone(term=2, log=[configured(1, 2, Configuration(("n1", "n2"), retired=("n3",)))])
    assert voter.receive("n3", PreVote(3, 1, 2, 5)) == [PreVoteResponse(2, True, 5, "")]


def test_a_node_that_is_no_voter_does_not_campaign() -> None:
    for configuration in (
        Configuration(("n2", "n3"), learners=("n1",)),
        Configuration(("n2", "n3")),
        Configuration(()),
    ):
        lone = Lone(configuration=configuration, term=1)
        lone.campaign()
        lone.advance(20 * SECOND)
        assert (lone.raft.role, lone.take()) == (Role.FOLLOWER, [])


def test_a_node_campaigns_while_its_removal_is_not_committed_and_does_not_count_itself() -> None:
    """It may have the longest log: then nobody who does not know of its removal is elected without it."""
    joint = Configuration(("n2", "n3"), outgoing=("n1", "n2"), auto_leave=True, retired=("n1",))
    after = Configuration(("n2", "n3"), retired=("n1",))
    log = [configured(1, 1, joint), configured(2, 1, after)]
    lone = Lone(term=1, log=log, commit_index=1)
    lone.campaign()
    assert [send.to for send in lone.visible] == ["n2", "n3"]
    round_ = lone.raft.pre_vote_round
    lone.receive("n2", PreVoteResponse(1, True, round_, ""))
    assert lone.raft.role is Role.PRE_CANDIDATE
    lone.receive("n3", PreVoteResponse(1, True, round_, ""))
    lone.settle()
    lone.receive("n2", RequestVoteResponse(2, True, ""))
    assert lone.raft.role is Role.CANDIDATE
    lone.receive("n3", RequestVoteResponse(2, True, ""))
    assert lone.raft.role is Role.LEADER
    lone.settle()
    for peer in ("n2", "n3"):
        lone.acknowledge(peer, 3)
    assert (lone.raft.commit_index, lone.raft.role) == (3, Role.FOLLOWER)
    lone.take()
    lone.advance(20 * SECOND)  # Now it is committed.
    assert lone.take() == []


def test_a_node_that_was_needed_between_two_configurations_still_campaigns() -> None:
    """Promoted and removed again, of which it knows nothing to be committed: others may have the middle."""
    middle = Configuration(("n1", "n2"))
    log = [configured(1, 1, middle), configured(2, 1, Configuration(("n2",), retired=("n1",)))]
    lone = Lone(configuration=Configuration(("n2",), learners=("n1",)), term=1, log=log)
    assert not lone.raft.is_voter
    lone.campaign()
    assert lone.raft.role is Role.PRE_CANDIDATE


# -- at a new leader ------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable_first", [True, False])
def test_a_new_leader_leaves_a_joint_configuration_once_its_no_op_is_committed(durable_first: bool) -> None:
    joint = Configuration(("n1", "n4", "n5"), outgoing=THREE, auto_leave=True, retired=("n2", "n3"))
    lone = Lone(term=1, log=[configured(1, 1, joint)], commit_index=1)
    lone.become_candidate()
    lone.durable()
    for peer in ("n2", "n4"):
        assert lone.raft.role is Role.CANDIDATE
        lone.receive(peer, RequestVoteResponse(2, True, ""))
    assert lone.raft.role is Role.LEADER
    if durable_first:
        lone.settle()
    lone.acknowledge("n4", 2)
    assert lone.raft.configuration.is_joint  # Half of it.
    lone.acknowledge("n2", 2)
    lone.settle()
    assert lone.raft.commit_index == 2
    assert lone.raft.configuration == Configuration(("n1", "n4", "n5"), retired=("n2", "n3"))
    assert lone.raft.log.last_index == 3  # Once.
    lone.advance(3 * HEARTBEAT)
    assert lone.raft.log.last_index == 3


def test_a_new_leader_leaves_no_joint_configuration_before_its_term_has_begun() -> None:
    joint = Configuration(("n1", "n4"), outgoing=("n1", "n2"), auto_leave=True)
    lone = Lone(term=1, log=[configured(1, 1, joint)], commit_index=1)
    lone.become_leader()
    lone.advance(3 * HEARTBEAT)
    assert (lone.raft.configuration.is_joint, lone.raft.log.last_index) == (True, 2)


def test_votes_are_counted_in_both_halves_of_a_joint_configuration() -> None:
    joint = Configuration(("n1", "n4", "n5"), outgoing=THREE, auto_leave=True)
    lone = Lone(configuration=joint, term=1)
    lone.become_candidate()
    lone.durable()
    for peer in ("n4", "n5"):
        lone.receive(peer, RequestVoteResponse(2, True, ""))
    assert lone.raft.role is Role.CANDIDATE
    lone.receive("n3", RequestVoteResponse(2, True, ""))
    assert lone.raft.role is Role.LEADER
    again = Lone(configuration=joint, term=1)
    again.become_candidate()
    again.durable()
    for peer in ("n2", "n3"):
        again.receive(peer, RequestVoteResponse(2, False, "log-behind"))
    assert again.raft.role is Role.FOLLOWER  # Lost in one is lost.


def test_who_asks_for_a_vote_need_not_be_a_member() -> None:
    """The candidate's configuration decides who counts, not the voter's."""
    lone = Lone(term=1)
    lone.receive("n9", RequestVote(2, 0, 0, False))
    assert lone.durable() == [RequestVoteResponse(2, True, "")]


def test_all_five_of_five_are_peers_of_a_joint_configuration() -> None:
    joint = Configuration(("n1", "n4"), outgoing=THREE, learners=("n5",))
    lone = Lone(configuration=joint, term=1)
    assert lone.raft.voting_peers == ["n2", "n3", "n4"]
    assert ("n1", *lone.raft.peers) == FIVE
