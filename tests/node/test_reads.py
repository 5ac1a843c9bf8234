"""Reads that see everything committed before them, on any node, or that say how old they are (S29, S30)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fencepost.raft.core.errors import FencepostError, NotLeader
from fencepost.raft.core.messages import AppendEntries, ReadIndex
from fencepost.raft.node.reads import Consistency
from fencepost.raft.ports import AnswerStatus, Wait

from .test_snapshots import Network
from .world import ELECTION_S, OPTIONS, FakeConnection, SimNode, World


class Asked:
    """One read, and what it heard."""

    def __init__(
        self, world: World, node: SimNode, operation_id: str, consistency: Consistency = Consistency.LINEARIZABLE
    ) -> None:
        self.heard: list[tuple[bool | None, BaseException | None]] = []
        self.world = world
        self.node = node

        def query() -> bool:
            return operation_id in node.machine.operations

        node.process.call_soon(
            node.service.reads.read, query, lambda result, error: self.heard.append((result, error)), consistency
        )

    def answer(self, *, within_s: float = 5.0) -> bool | str:
        """What was read, or the code of the error."""
        self.world.until(lambda: self.heard, within_s=within_s, what="an answer to a read")
        ((result, error),) = self.heard
        if error is None:
            assert result is not None
            return result
        assert isinstance(error, FencepostError)
        return error.code


def follower_of(world: World, leader: SimNode) -> SimNode:
    return next(node for node in world.up() if node is not leader)


def test_s29_a_follower_reads_what_was_acknowledged_a_moment_ago() -> None:
    """It has not even been told that this is committed when the read comes."""
    with World(seed=1) as world:
        leader = world.active_leader()
        world.settle()
        follower = follower_of(world, leader)
        (request,) = world.submit(leader, "a", wait=Wait.COMMITTED)
        world.answer(request)
        assert "a" not in follower.machine.operations
        stale, fresh = Asked(world, follower, "a", Consistency.STALE), Asked(world, follower, "a")
        assert stale.answer() is False
        assert fresh.answer() is True
        assert len(follower.loop.reads) == 0


def test_s29_a_new_leader_answers_only_after_its_barrier() -> None:
    """Committed and acknowledged by a leader that is gone; its successor does not know that it is committed."""
    with World(seed=2) as world:
        old = world.active_leader()
        world.settle()
        network = Network(world)
        # The followers take the entries, and never hear that they are committed.
        known = old.raft.commit_index
        network.drops = lambda source, to, message: (
            source == old.name and isinstance(message, AppendEntries) and message.leader_commit > known
        )
        (request,) = world.submit(old, "a", wait=Wait.COMMITTED)
        world.answer(request)
        world.crash(old.name)
        world.until(lambda: any(node.leads for node in world.up()))
        new = next(node for node in world.up() if node.leads)
        assert new.applier.last_applied < new.raft.term_start_index
        assert "a" not in new.machine.operations
        early = Asked(world, new, "a")
        world.advance(0.0005)
        assert not early.heard
        assert early.answer() is True
        assert new.applier.last_applied >= new.raft.term_start_index


def test_s29_after_a_restart_of_everything_nothing_old_is_read() -> None:
    with World(seed=3) as world:
        world.done(world.active_leader(), "a")
        for name in world.voters:
            world.crash(name)
        nodes = [world.start(name) for name in world.voters]
        asked = [Asked(world, node, "a") for node in nodes]
        # Nobody leads yet: refused at once, and told so, or the truth.
        assert {each.answer() for each in asked} <= {"NOT_LEADER", True}
        world.active_leader()
        assert {Asked(world, node, "a").answer() for node in nodes} == {True}


def test_s30_a_leader_that_was_cut_off_with_a_minority_does_not_answer() -> None:
    """{n1 leads, n2} | {n3, n4, n5}: the others commit; here nobody hears the old value as if it were new."""
    with World(voters=("n1", "n2", "n3", "n4", "n5"), seed=4) as world:
        old = world.lead("n1")
        companion = world.nodes["n2"]
        world.settle()
        for name in ("n1", "n2"):
            for other in ("n3", "n4", "n5"):
                world.blocked |= {(name, other), (other, name)}
        early = [Asked(world, node, "x") for node in (old, companion)]
        new = next(node for node in [world.active_leader(other_than="n1")] if node.name not in ("n1", "n2"))
        world.done(new, "x")
        late = [Asked(world, node, "x") for node in (old, companion)]
        for each in (*early, *late):
            assert each.answer() == "NOT_LEADER"
        assert Asked(world, old, "x", Consistency.STALE).answer() is False, "asked for by name"
        status = reply(world, old, "status")
        assert status["confirmed"] is False
        assert status["read"]["consistency"] == "stale"
        assert status["read"]["age_s"] is None or status["read"]["age_s"] > ELECTION_S
        assert len(old.loop.reads) == len(companion.loop.reads) == 0
        world.heal()
        world.settle()
        assert Asked(world, old, "x").answer() is True


def test_many_reads_of_one_turn_cost_one_round() -> None:
    with World(seed=5) as world:
        leader = world.active_leader()
        world.settle()
        network = Network(world)
        asked = [Asked(world, leader, "none") for _ in range(50)]
        asked_elsewhere = [Asked(world, follower_of(world, leader), "none") for _ in range(50)]
        world.advance(0.01)
        assert {each.answer() for each in (*asked, *asked_elsewhere)} == {False}
        assert sum(isinstance(each, AppendEntries) for *_, each in network.seen) <= 4
        assert sum(isinstance(each, ReadIndex) for *_, each in network.seen) == 1


def test_s29_a_question_that_is_lost_ends_by_its_deadline() -> None:
    with World(seed=6) as world:
        leader = world.active_leader()
        world.settle()
        follower = follower_of(world, leader)
        network = Network(world)
        network.drops = lambda source, to, message: isinstance(message, ReadIndex)
        asked = Asked(world, follower, "a")
        assert asked.answer(within_s=5 * ELECTION_S) == "NOT_LEADER"
        assert len(follower.loop.reads) == 0
        # And where even the core would forget it.
        follower.loop.raft.forwarded_reads.clear()
        asked = Asked(world, follower, "a")
        world.advance(0.0005)
        follower.loop.raft.forwarded_reads.clear()
        assert asked.answer(within_s=6 * ELECTION_S) == "NOT_LEADER"


def test_a_confirmed_read_waits_until_its_index_is_applied_or_ends() -> None:
    """A follower knows where to read, but its log does not get there."""
    with World(seed=7) as world:
        leader = world.active_leader()
        world.settle()
        follower = follower_of(world, leader)
        network = Network(world)
        network.drops = lambda source, to, message: (
            to == follower.name and isinstance(message, AppendEntries) and bool(message.entries)
        )
        (request,) = world.submit(leader, "a", wait=Wait.COMMITTED)
        world.answer(request)
        first, second = Asked(world, follower, "a"), Asked(world, follower, "a")
        world.advance(ELECTION_S)
        assert not first.heard
        network.drops = lambda source, to, message: False
        assert first.answer() is second.answer() is True
        network.drops = lambda source, to, message: (
            to == follower.name and isinstance(message, AppendEntries) and bool(message.entries)
        )
        (request,) = world.submit(leader, "b", wait=Wait.COMMITTED)
        world.answer(request)
        assert Asked(world, follower, "b").answer(within_s=6 * ELECTION_S) == "NOT_LEADER"
        assert len(follower.loop.reads) == 0


def test_reads_of_a_node_that_stops_are_answered() -> None:
    with World(seed=8) as world:
        leader = world.active_leader()
        world.isolate(leader.name)
        asked = Asked(world, leader, "a")
        world.advance(0.01)
        assert not asked.heard
        leader.loop.stop()
        assert asked.answer() == "NOT_LEADER"
        assert Asked(world, leader, "a").answer() == "NOT_LEADER"
        assert len(leader.loop.reads) == 0


def test_what_a_question_raises_is_told_and_ends_no_node() -> None:
    with World(seed=9) as world:
        leader = world.active_leader()
        heard: list[Any] = []

        def broken() -> None:
            raise KeyError("bug")

        leader.service.reads.read(broken, lambda result, error: heard.append(error))
        world.until(lambda: heard)
        assert isinstance(heard[0], KeyError)
        world.done(leader, "a")


def test_an_embedder_awaits_his_reads() -> None:
    with World(seed=10) as world:
        leader = world.active_leader()
        world.done(leader, "a")

        async def read(node: SimNode) -> int:
            return await node.service.reads.ask(lambda: len(node.machine.operations))

        tasks = [world.loop.create_task(read(node)) for node in world.up()]
        world.until(lambda: all(task.done() for task in tasks))
        assert [task.result() for task in tasks] == [1, 1, 1]
        world.isolate(leader.name)
        refused = world.loop.create_task(read(leader))
        world.until(refused.done)
        assert isinstance(refused.exception(), NotLeader)
        given_up = world.loop.create_task(read(follower_of(world, leader)))
        world.loop.call_soon(given_up.cancel)
        world.advance(2.0)
        assert given_up.cancelled()


def test_stale_answers_say_how_old_they_are() -> None:
    with World(seed=11) as world:
        leader = world.active_leader()
        world.done(leader, "a")
        world.settle()
        follower = follower_of(world, leader)
        for node in (leader, follower):
            label = reply(world, node, "command.get", id="a", consistency="stale")["read"]
            assert label["consistency"] == "stale"
            assert 0 <= label["age_s"] < 0.2
            assert label["applied_index"] == node.applier.last_applied
        assert reply(world, follower, "command.get", id="a")["read"]["consistency"] == "linearizable"
        assert reply(world, follower, "command.list")["read"]["consistency"] == "linearizable"
        assert reply(world, follower, "status", consistency="linearizable")["read"]["consistency"] == "linearizable"
        world.isolate(follower.name)
        world.advance(0.8 * ELECTION_S)
        assert 0.6 * ELECTION_S < reply(world, follower, "status")["read"]["age_s"] < ELECTION_S
        world.advance(5 * ELECTION_S)
        assert reply(world, follower, "status")["read"]["age_s"] is None, "it follows nobody"


@pytest.mark.parametrize("lease_reads", [False, True])
def test_a_read_from_the_lease_asks_nobody_where_that_is_allowed(lease_reads: bool) -> None:
    options = dataclasses.replace(OPTIONS, lease_reads=lease_reads)
    with World(seed=12, options=options) as world:
        leader = world.active_leader()
        world.done(leader, "a")
        world.settle()
        asked = Asked(world, leader, "a", Consistency.LEASE)
        world.advance(0.0005)
        assert bool(asked.heard) is lease_reads
        assert asked.answer() is True
        assert reply(world, leader, "command.get", id="a", consistency="lease")["read"]["consistency"] == "lease"


def test_a_read_through_a_follower_whose_leader_dies_is_refused_and_may_be_asked_again() -> None:
    with World(seed=13) as world:
        leader = world.active_leader()
        world.done(leader, "a")
        world.settle()
        follower = follower_of(world, leader)
        world.crash(leader.name)
        asked = Asked(world, follower, "a")
        assert asked.answer(within_s=5 * ELECTION_S) == "NOT_LEADER"
        world.active_leader(other_than=leader.name)
        assert Asked(world, follower, "a").answer() is True


def reply(world: World, node: SimNode, method: str, **parameters: Any) -> Any:
    request = world.call(node, method, **parameters)
    world.until(lambda: request in world.connection.replies or request in world.connection.errors)
    return world.connection.replies[request]


def test_calls_of_a_connection_that_has_gone_end_no_node() -> None:
    with World(seed=14) as world:
        leader = world.active_leader()
        connection = FakeConnection()
        leader.process.call_soon(leader.service.call, connection, 1, "command.get", {"id": "a"})
        leader.process.call_soon(leader.service.closed, connection)
        world.advance(0.1)
        assert connection.errors[1].code == "NOT_FOUND"
        assert world.answer(world.submit(leader, "b")[0]).status == AnswerStatus.DONE
