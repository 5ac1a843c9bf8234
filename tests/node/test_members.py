"""Members come, catch up, become voters and go, asked for through the calls of a node (chapter 4, S02, S26-S28)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fencepost.raft.core.configuration import Change, ChangeKind
from fencepost.raft.core.errors import Outcome
from fencepost.raft.core.events import Refused, Transition
from fencepost.raft.core.messages import AppendEntries
from fencepost.raft.ports import AnswerStatus, Wait

from .test_snapshots import SMALL, Network, work
from .world import ELECTION_S, SimNode, World


def voters(world: World) -> set[tuple[str, ...]]:
    return {node.raft.configuration.voters for node in world.up()}


def add(world: World, leader: SimNode, node: str, **others: Any) -> Any:
    return world.reply(leader, "member.add", node=node, address=f"{node}:7001", **others)


def test_a_new_node_catches_up_as_a_learner_and_becomes_a_voter_by_itself() -> None:
    with World(seed=1) as world:
        leader = world.active_leader()
        world.done(leader, "a", "b")
        world.join("n4")
        body = add(world, leader, "n4")
        assert body["node"] == "n4"
        assert body["configuration"]["voters"] == ["n1", "n2", "n3", "n4"]
        assert body["configuration"]["quorum"] == 3
        assert body["configuration"]["addresses"] == {"n4": "n4:7001"}
        world.settle()
        assert voters(world) == {("n1", "n2", "n3", "n4")}
        world.check_equal()
        # Four voters, one gone: it counts.
        world.crash(next(node.name for node in world.up() if node is not leader and node.name != "n4"))
        world.done(leader, "c")
        world.lead("n4")
        world.done(world.nodes["n4"], "d")


def test_a_learner_stays_one_if_that_is_asked_for_and_is_promoted_later() -> None:
    with World(seed=2) as world:
        leader = world.active_leader()
        world.join("n4")
        body = add(world, leader, "n4", learner=True)
        assert (body["configuration"]["voters"], body["configuration"]["learners"]) == (["n1", "n2", "n3"], ["n4"])
        world.done(leader, "a")
        world.settle()
        listed = {each["node"]: each for each in world.reply(leader, "member.list")["members"]}
        assert [listed[name]["part"] for name in sorted(listed)] == ["voter", "voter", "voter", "learner"]
        assert listed["n4"]["address"] == "n4:7001"
        assert listed["n4"]["behind"] == 0
        assert listed["n4"]["last_contact_s"] < 1
        world.advance(10 * ELECTION_S)
        assert not world.nodes["n4"].leads
        assert world.nodes["n4"].raft.current_term == leader.raft.current_term
        body = world.reply(leader, "member.promote", node="n4")
        assert body["configuration"]["voters"] == ["n1", "n2", "n3", "n4"]


def test_s28_a_voter_that_never_starts_becomes_a_learner_and_costs_nobody_the_quorum() -> None:
    with World(seed=3) as world:
        leader = world.active_leader()
        world.crash(next(node.name for node in world.up() if node is not leader))
        request = world.call(leader, "member.add", node="n4", address="n4:7001", timeout_s=3.0)
        world.advance(1.0)
        assert leader.raft.configuration.learners == ("n4",)
        assert not world.heard(request), "given up although it may come"
        world.done(leader, "a", "b", "c")
        world.until(lambda: world.heard(request))
        error = world.connection.errors[request]
        assert error.outcome is Outcome.RETRY
        assert "n4 was added as a learner and is no voter yet" in error.message
        assert "last seen never" in error.message
        assert "behind by " in error.message
        assert error.next_step == "fencepost member promote n4"
        world.done(leader, "d")
        assert leader.raft.configuration.voters == ("n1", "n2", "n3")
        error = world.error(leader, "member.promote", node="n4", timeout_s=0.5)
        assert error.outcome is Outcome.RETRY
        assert "last seen never" in error.message
        listed = {each["node"]: each for each in world.reply(leader, "member.list")["members"]}
        assert (listed["n4"]["match_index"], listed["n4"]["last_contact_s"]) == (0, None)


def test_a_member_far_behind_is_promoted_once_it_has_caught_up_by_a_snapshot() -> None:
    options = dataclasses.replace(SMALL, promotion_lag_max=3)
    with World(seed=4, options=options) as world:
        leader = world.active_leader()
        for start in range(0, 60, 5):
            work(world, leader, start, 5)
        new = world.join("n4")
        assert new.raft.configuration.members == ()
        add(world, leader, "n4", timeout_s=20)
        assert new.store.finished >= 1
        world.settle()
        assert new.raft.configuration.voters == ("n1", "n2", "n3", "n4")
        world.check_equal()
        # After a restart it knows the cluster by what it has on its disk (S25, S57).
        world.crash("n4")
        again = world.start("n4")
        assert again.raft.configuration.voters == ("n1", "n2", "n3", "n4")
        world.done(world.active_leader(), "more")


def test_s02_a_removed_node_disturbs_nobody_and_its_id_is_not_used_again() -> None:
    with World(seed=5) as world:
        leader = world.active_leader()
        gone = next(node for node in world.up() if node is not leader)
        world.isolate(gone.name)
        world.advance(10 * ELECTION_S)
        term = leader.raft.current_term
        body = world.reply(leader, "member.remove", node=gone.name)
        assert gone.name not in body["configuration"]["voters"]
        assert body["configuration"]["retired"] == [gone.name]
        world.heal()
        world.advance(40 * ELECTION_S)
        assert leader.leads
        assert leader.raft.current_term <= term + 1
        world.done(leader, "a")
        error = world.error(leader, "member.add", node=gone.name, address="elsewhere:7001")
        assert error.outcome is Outcome.REFUSED
        assert "was removed, and ids are not used again" in error.message
        assert "removed already" in world.error(leader, "member.remove", node=gone.name).message


def test_a_leader_that_removes_itself_is_answered_and_leads_no_more() -> None:
    with World(seed=6) as world:
        leader = world.active_leader()
        world.done(leader, "a")
        body = world.reply(leader, "member.remove", node=leader.name)
        assert leader.name not in body["configuration"]["voters"]
        world.until(lambda: not leader.leads)
        new = world.active_leader(other_than=leader.name)
        world.done(new, "b")
        world.advance(10 * ELECTION_S)
        assert new.leads


@pytest.mark.parametrize(
    ("method", "parameters", "words"),
    [
        ("member.add", {"node": "n2", "address": "x:1"}, "n2 is a member of this cluster already"),
        ("member.add", {"node": "n4", "address": "x"}, "is no address"),
        ("member.add", {"node": "n4", "address": "a b:1"}, "is no address"),
        ("member.add", {"node": "n4"}, "is no address"),
        ("member.add", {"node": "n 4", "address": "x:1"}, "is no id of a node"),
        ("member.add", {"address": "x:1"}, "is no id of a node"),
        ("member.add", {"node": "n4", "address": "n2:7001"}, "is the address of n2"),
        ("member.add", {"node": "n4", "address": "x:1", "timeout_s": -1}, "timeout_s"),
        ("member.add", {"node": "n4", "address": "x:1", "timeout_s": "soon"}, "parameters of member.add"),
        ("member.promote", {"node": "n2"}, "is a voter already"),
        ("member.promote", {"node": "n9"}, "is no learner"),
        ("member.remove", {"node": "n9"}, "is no member"),
    ],
)
def test_what_can_never_be_is_refused_at_once_with_the_reason(
    method: str, parameters: dict[str, Any], words: str
) -> None:
    with World(seed=7) as world:
        leader = world.active_leader()
        before = leader.raft.log.last_index
        error = world.error(leader, method, within_s=0.01, **parameters)
        assert words in error.message
        assert error.outcome is Outcome.REFUSED
        assert leader.raft.log.last_index == before


def test_the_last_voter_cannot_be_removed() -> None:
    with World(voters=("n1",), seed=8) as world:
        leader = world.active_leader()
        assert "no voter left" in world.error(leader, "member.remove", node="n1").message
        assert leader.leads


def test_a_learner_that_is_one_already_is_to_be_promoted() -> None:
    with World(seed=9) as world:
        leader = world.active_leader()
        add(world, leader, "n4", learner=True)
        error = world.error(leader, "member.add", node="n4", address="n4:7001")
        assert (error.outcome, error.next_step) == (Outcome.REFUSED, "fencepost member promote n4")


def test_only_the_leader_changes_members_and_says_where_it_is() -> None:
    with World(seed=10) as world:
        leader = world.active_leader()
        world.settle()
        follower = next(node for node in world.up() if node is not leader)
        calls: list[tuple[str, dict[str, Any]]] = [
            ("member.add", {"node": "n4", "address": "x:1"}),
            ("member.remove", {"node": leader.name}),
            ("cluster.transfer_leader", {}),
            ("cluster.step_down", {}),
        ]
        for method, parameters in calls:
            error = world.error(follower, method, **parameters)
            assert error.code == "NOT_LEADER"
            assert f"{leader.name} leads, at address-of-{leader.name}" in error.message


def test_a_dry_run_says_what_would_be_and_changes_nothing() -> None:
    with World(seed=11) as world:
        leader = world.active_leader()
        before = leader.raft.log.last_index
        body = world.reply(leader, "member.remove", node="n2", dry_run=True)
        assert (body["dry_run"], body["configuration"]["voters"]) == (True, ["n1", "n3"])
        body = world.reply(leader, "member.add", node="n4", address="x:1", dry_run=True)
        assert body["configuration"]["voters"] == ["n1", "n2", "n3", "n4"]
        assert leader.raft.log.last_index == before


def test_what_is_not_yet_is_tried_until_it_may_be() -> None:
    """A change before the leader has committed in its term (S23), or while another is not committed."""
    with World(seed=12) as world:
        old = world.active_leader()
        world.settle()
        world.join("n4")
        world.join("n5")
        world.crash(old.name)
        world.until(lambda: any(node.leads for node in world.up()))
        new = next(node for node in world.up() if node.leads)
        assert new.raft.commit_index < new.raft.term_start_index
        requests = [
            world.call(new, "member.add", node=node, address=f"{node}:1", learner=True) for node in ("n4", "n5")
        ]
        world.until(lambda: all(map(world.heard, requests)))
        assert not world.connection.errors
        assert new.raft.configuration.learners == ("n4", "n5")


def test_s44_a_change_whose_leader_is_cut_off_ends_as_unknown_and_another_leader_decides_it() -> None:
    with World(seed=13) as world:
        old = world.active_leader()
        world.settle()
        world.isolate(old.name)
        request = world.call(old, "member.remove", node="n3" if old.name != "n3" else "n2")
        world.until(lambda: world.heard(request))
        error = world.connection.errors[request]
        assert (error.code, error.outcome) == ("OUTCOME_UNKNOWN", Outcome.UNKNOWN)
        world.active_leader(other_than=old.name)
        world.heal()
        world.settle()
        assert voters(world) == {("n1", "n2", "n3")}, "what was not committed was in force for a while only"


def test_a_call_ends_by_its_own_deadline_and_what_it_began_goes_on() -> None:
    with World(seed=14) as world:
        leader = world.active_leader()
        world.settle()
        for name in world.voters:
            if name != leader.name:
                world.nodes[name].log_store.delay_s = 0.5
        error = world.error(leader, "member.remove", node="n3" if leader.name != "n3" else "n2", timeout_s=0.2)
        assert error.code == "OUTCOME_UNKNOWN"
        world.until(lambda: len(leader.raft.committed_configuration().voters) == 2)


def test_s26_a_voter_that_has_not_heard_of_its_promotion_votes_all_the_same() -> None:
    """Five nodes; d and e were promoted and d missed it; two voters die; the rest is a quorum on paper."""
    with World(seed=15) as world:
        leader = world.lead("n1")
        for name in ("n4", "n5"):
            world.join(name)
            add(world, leader, name, learner=True)
        world.settle()
        network = Network(world)
        network.drops = lambda source, to, message: (
            to == "n4" and isinstance(message, AppendEntries) and bool(message.entries)
        )
        for name in ("n4", "n5"):
            world.reply(leader, "member.promote", node=name)
        world.advance(0.1)
        assert "n4" not in world.nodes["n4"].raft.configuration.voters
        network.drops = lambda source, to, message: False
        world.crash("n1")
        world.crash("n2")
        new = world.active_leader(within_s=10.0)
        assert new.name in ("n3", "n5")
        world.done(new, "a")
        assert world.nodes["n4"].raft.configuration.voters == ("n1", "n2", "n3", "n4", "n5")


def test_s27_a_restored_configuration_replaces_the_nodes_own_and_a_learner_never_campaigns() -> None:
    """It holds an uncommitted configuration of its own; the snapshot that it gets makes it a learner."""
    with World(seed=16, options=SMALL) as world:
        old = world.lead("n2")
        world.settle()
        world.isolate("n2")
        # In its own log, and nowhere else.
        world.call(old, "member.remove", node="n3")
        world.advance(0.01)
        assert old.raft.configuration.voters == ("n1", "n2")
        new = world.active_leader(other_than="n2")
        heard = _Heard()
        new.loop.change_configuration([Change(ChangeKind.ADD_LEARNER, "n2")], heard)
        world.until(lambda: heard.what)
        assert heard.what == ["committed"]
        for start in range(0, 60, 5):
            work(world, new, start, 5)
        world.until(lambda: new.raft.log.previous_index > old.raft.log.last_index)
        world.heal()
        world.settle()
        assert old.store.finished == 1
        assert (old.raft.configuration.voters, old.raft.configuration.learners) == (("n1", "n3"), ("n2",))
        term = new.raft.current_term
        world.isolate("n2")
        world.advance(20 * ELECTION_S)
        assert old.raft.role.value == "follower"
        assert old.raft.current_term == term
        world.heal()
        world.check_equal()


class _Heard:
    """``ChangeSink`` that collects."""

    def __init__(self) -> None:
        self.what: list[str] = []

    def refused(self, refusal: Refused) -> None:
        self.what.append(refusal.detail or refusal.code)

    def committed(self, index: int, term: int) -> None:
        self.what.append("committed")

    def lost(self) -> None:
        self.what.append("lost")

    def unknown(self) -> None:
        self.what.append("unknown")


def test_several_voters_change_through_a_joint_configuration() -> None:
    with World(seed=17) as world:
        leader = world.lead("n1")
        for name in ("n4", "n5"):
            world.join(name)
            add(world, leader, name, learner=True)
        heard = _Heard()
        changes = [
            Change(ChangeKind.ADD_VOTER, "n4"),
            Change(ChangeKind.ADD_VOTER, "n5"),
            Change(ChangeKind.REMOVE, "n2"),
            Change(ChangeKind.REMOVE, "n3"),
        ]
        leader.loop.change_configuration(changes, heard, transition=Transition.AUTO)
        world.until(lambda: leader.raft.committed_configuration().voters == ("n1", "n4", "n5"))
        world.until(lambda: not leader.raft.committed_configuration().is_joint)
        assert heard.what == ["committed"]
        world.crash("n2")
        world.crash("n3")
        world.done(leader, "a")
        (request,) = world.submit(leader, "b", wait=Wait.DONE)
        assert world.answer(request).status == AnswerStatus.DONE


def test_a_promotion_whose_leader_is_lost_says_that_the_node_is_a_learner_now() -> None:
    with World(seed=18) as world:
        leader = world.active_leader()
        request = world.call(leader, "member.add", node="n4", address="n4:7001", timeout_s=10.0)
        world.until(lambda: leader.raft.committed_configuration().learners == ("n4",))
        world.advance(0.2)
        leader.loop.step_down("for the test")
        world.until(lambda: world.heard(request))
        error = world.connection.errors[request]
        assert (error.code, error.outcome) == ("NOT_CAUGHT_UP", Outcome.RETRY)
        assert "this node does not lead any more" in error.message
        assert error.next_step == "fencepost member promote n4"


def test_whoever_never_came_is_told_of_as_that_whenever_the_time_is_over() -> None:
    """Not as unknown, because it was just being tried once more."""
    with World(seed=20) as world:
        leader = world.active_leader()
        added = world.call(leader, "member.add", node="n4", address="n4:7001", learner=True, timeout_s=10.0)
        world.until(lambda: world.heard(added))
        requests = [
            world.call(leader, "member.promote", node="n4", timeout_s=0.5 + 0.0001 * number) for number in range(2000)
        ]
        world.until(lambda: all(world.heard(request) for request in requests))
        assert {world.connection.errors[request].code for request in requests} == {"NOT_CAUGHT_UP"}


def test_a_change_waits_until_a_joint_configuration_has_been_left() -> None:
    with World(seed=19) as world:
        leader = world.active_leader()
        world.settle()
        world.join("n4")
        changes = [Change(ChangeKind.ADD_LEARNER, "n4"), Change(ChangeKind.REMOVE, "n9")]
        leader.loop.change_configuration(changes, _Heard(), transition=Transition.IMPLICIT)
        world.until(lambda: leader.raft.configuration.is_joint)
        body = world.reply(leader, "member.promote", node="n4")
        assert body["configuration"]["voters"] == ["n1", "n2", "n3", "n4"]
