"""Faults planted in the running code, each of which one property sees that looks on from outside.

Only such as the invariants of the single core do not see: it believes of itself what the fault makes it believe.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from fencepost.jepsen.invariants import PropertyViolated, all_properties, final_scan
from fencepost.jepsen.proof.planting import planted
from fencepost.jepsen.sim.load import Load, LoadSettings
from fencepost.jepsen.sim.resource import ResourceSpec
from fencepost.jepsen.sim.settings import ResourceSettings
from fencepost.jepsen.sim.world import World
from fencepost.raft.core import election, read_index
from fencepost.raft.core.events import Role
from fencepost.raft.core.options import Options
from fencepost.raft.core.state import RaftState
from fencepost.raft.effects.authority import Authority
from fencepost.raft.effects.coordinator import EffectsCoordinator
from fencepost.raft.effects.dispatcher import Dispatcher
from fencepost.raft.effects.resources import ledger
from fencepost.raft.effects.resources.memory import FakeResource
from fencepost.raft.node.carrying import EffectsCarrier
from fencepost.raft.node.service import _SubmissionSink
from fencepost.raft.outbox import snapshot
from fencepost.storage.segments import ActiveSegment

from .scene import MILLISECOND, SECOND, come_to_rest, scene

SLOW = ResourceSettings(way_spread_ns=400 * MILLISECOND)


def trouble(seed: int) -> None:
    """A cluster whose leaders are cut off, killed, stopped and told to hand over, one after another, under load."""
    options = Options(snapshot_entries=25, retained_entries=5)
    with World(seed, 3, options=options, resources=[ResourceSpec(settings=SLOW, concurrency=2)]) as world:
        all_properties(world)
        world.start_all()
        load = Load(world, LoadSettings(clients=3, think_ns=100 * MILLISECOND, reads=0.3))
        load.start()
        for turn in range(10):
            world.run_for(1300 * MILLISECOND)
            leader = world.leader()
            if leader is not None:
                strike(world, leader.name, turn)
            world.run_for(2600 * MILLISECOND)
            world.network.heal()
            for node in world.up():
                if node.process.paused:
                    world.resume(node.name)
            world.start_all()
        come_to_rest(world, load)
        final_scan(world)


def strike(world: World, leader: str, turn: int) -> None:
    match turn % 5:
        case 0:
            world.network.isolate(leader)
        case 1:
            world.cut_power(leader)
        case 2:
            world.pause(leader)
        case 3:
            world.kill(leader)
        case 4:
            world.transfer(at=leader)


# -- scenes in which one thing happens ------------------------------------------------------------------


def a_node_left_behind_campaigns() -> None:
    with scene() as it:
        world, behind = it.world, it.follower.name
        world.network.isolate(behind)
        it.submit("while it is away")
        world.network.heal()
        world.kill(it.leader.name)
        for _ in range(40):
            world.campaign(behind)
            world.run_for(100 * MILLISECOND)


def a_node_loses_power() -> None:
    with scene() as it:
        it.world.cut_power(it.follower.name)
        it.world.start(it.follower.name)
        it.world.run_for(3 * SECOND)
        final_scan(it.world)


def a_node_does_not_hear_its_leader() -> None:
    with scene() as it:
        it.world.run_for(3 * SECOND)
        it.world.network.cut(it.leader.name, it.follower.name)
        it.world.run_for(3 * SECOND)


def a_leader_hands_over_and_does_not_hear_of_it() -> None:
    with scene() as it:
        world, old, new = it.world, it.leader.name, it.follower
        world.transfer(new.name)
        world.run_until(lambda: new.raft.role is Role.CANDIDATE)
        world.network.isolate(old)
        world.run_until(lambda: it.ledger.commit is not None and it.ledger.commit.term > 1)
        job = world.client().read("r", at=old)
        world.run_for(100 * MILLISECOND)
        assert job.tries[0].node == old


def a_call_arrives_when_another_leads() -> None:
    with scene() as it:
        world, resource = it.world, it.world.resources["ledger"]
        usual, resource.settings = resource.settings, SLOW._replace(way_min_ns=5 * SECOND)
        world.client().submit("late", at=it.leader.name)
        world.run_until(lambda: it.leader.node.resources["ledger"].under_way)
        resource.settings = usual
        world.network.isolate(it.leader.name)
        world.run_for(6 * SECOND)
        assert resource.zombies


def effects_are_held_up_while_the_leader_changes() -> None:
    with scene() as it:
        world, leader = it.world, it.leader
        leader.node.resources["ledger"]._thread.block(4 * SECOND)
        world.client().submit("late", at=leader.name)
        world.run_for(100 * MILLISECOND)
        world.step_down(leader.name)
        world.run_for(5 * SECOND)


def a_leader_is_elected() -> None:
    with scene():
        pass


class Fault(NamedTuple):
    name: str
    function: Callable[..., Any]
    line: str
    fault: str
    property_name: str
    happens: Callable[[], None] | None = None
    """Where it shows; None: in the trouble of some seed."""


FAULTS = (
    Fault(
        "half of the voters elect",
        election._count_votes,
        "if result is VoteResult.WON:",
        "if result is not VoteResult.LOST:",
        "election safety",
    ),
    Fault(
        "a candidate's log is not compared",
        election._vote_refusal,
        "if not state.log.is_up_to_date(last_log_index, last_log_term):",
        "if False:",
        "leader completeness",
        a_node_left_behind_campaigns,
    ),
    Fault(
        "what waits for a write is sent at once",
        EffectsCarrier._carry_out,
        "if send.after > self._durable_sequence:",
        "if False:",
        "durable before said",
    ),
    Fault(
        "a write is not synced",
        ActiveSegment.append,
        "self._file.sync_data()",
        "pass",
        "disks",
        a_node_loses_power,
    ),
    Fault(
        "peers count as heard of whatever they say",
        RaftState.note_contact,
        "peer: progress.contact_at for peer, progress",
        "peer: self.now for peer, progress",
        "authority",
    ),
    Fault(
        "whoever has heard a leader votes for another",
        RaftState.has_live_leader,
        "return self.now - self.last_leader_contact < self.options.election_timeout",
        "return False",
        "lease",
        a_node_does_not_hear_its_leader,
    ),
    Fault(
        "reads are answered without asking anybody",
        read_index.confirm_reads,
        "while pending and pending[0].begun_at <= contact:",
        "while pending:",
        "reads",
        a_leader_hands_over_and_does_not_hear_of_it,
    ),
    Fault(
        "cluster time is not in a snapshot",
        snapshot._load_head,
        "state.cluster_time_ns = head.cluster_time_ns",
        "pass",
        "snapshot equals replay",
    ),
    Fault(
        "resources are claimed before the no-op is applied",
        EffectsCoordinator.role_changed,
        "if self._drains:",
        "if self._tenure.entries_applied(1 << 60) or self._drains:",
        "activation barrier",
        a_leader_is_elected,
    ),
    Fault(
        "more effects run at once than the resource takes",
        Dispatcher.pump,
        "self._running + others < self._concurrency()",
        "True",
        "bounded concurrency",
    ),
    Fault(
        "an office that has ended is still one",
        Authority.revoke,
        "self._revoked = True",
        "pass",
        "activation barrier",
        effects_are_held_up_while_the_leader_changes,
    ),
    Fault(
        "a command is called done when it is taken in",
        _SubmissionSink.accepted,
        "if wait == Wait.ACCEPTED:",
        "if True:",
        "acknowledged",
    ),
    Fault(
        "a lower token is let in",
        ledger.check_fence,
        "if token < stored.token:",
        "if token < stored.token:\n        return False\n    if False:",
        "F1 token order",
        a_call_arrives_when_another_leads,
    ),
    Fault(
        "an operation that is known is carried out once more",
        FakeResource._apply,
        "if known is not None and self.guarantee is not Guarantee.NAKED:",
        "if False:",
        "F2 effect once",
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_is_seen_by_its_property(fault: Fault) -> None:
    seen: list[str] = []
    tries = [fault.happens] if fault.happens is not None else [partial(trouble, seed) for seed in range(1, 7)]
    with planted(fault.function, fault.line, fault.fault):
        for happens in tries:
            seen += properties_broken_by(happens)
            if fault.property_name in seen:
                return
    pytest.fail(f"{fault.property_name} has not seen it, but {seen}")


def properties_broken_by(happens: Callable[[], None]) -> list[str]:
    try:
        happens()
    except AssertionError as error:
        causes: list[BaseException] = [error]
        while causes[-1].__cause__ is not None:
            causes.append(causes[-1].__cause__)
        return [each.property_name for each in causes if isinstance(each, PropertyViolated)] or [str(error)[:200]]
    return []


@pytest.mark.parametrize(
    "happens",
    [
        partial(trouble, 1),
        a_node_left_behind_campaigns,
        a_node_loses_power,
        a_node_does_not_hear_its_leader,
        a_leader_hands_over_and_does_not_hear_of_it,
        a_call_arrives_when_another_leads,
        effects_are_held_up_while_the_leader_changes,
    ],
    ids=["trouble", "left behind", "no power", "deaf", "handed over", "late call", "held up"],
)
def test_none_is_seen_where_there_is_none(happens: Callable[[], None]) -> None:
    happens()
