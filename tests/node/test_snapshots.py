"""Snapshots of whole nodes: taken while the node serves, sent beside heartbeats, restored whole or not at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import pairwise

import pytest

from fencepost.raft.core.entry import Snapshot
from fencepost.raft.core.errors import StorageError, StorageFormatUnknown, StorageFull
from fencepost.raft.core.messages import AppendEntries, InstallSnapshot, Message
from fencepost.raft.core.options import Options
from fencepost.raft.node.runner import Completion
from fencepost.raft.outbox.machine import OutboxMachine
from fencepost.raft.ports import AnswerStatus, Wait

from .world import ELECTION_S, OPTIONS, FakeConnection, SimNode, World

SMALL = dataclasses.replace(OPTIONS, snapshot_entries=20, retained_entries=5, chunk_bytes=500)
HEARTBEAT_S = SMALL.heartbeat_interval / 1e9


class Network:
    """Stands in for the network and notes what passes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._carry = world.carry
        self.seen: list[tuple[float, str, str, Message]] = []
        self.drops: Callable[[str, str, Message], bool] = lambda source, to, message: False
        world.carry = self.carry  # type: ignore[method-assign]

    def carry(self, source: str, to: str, message: Message) -> None:
        self.seen.append((self._world.loop.time(), source, to, message))
        if not self.drops(source, to, message):
            self._carry(source, to, message)

    def snapshots_begun(self) -> list[Snapshot]:
        return [each.snapshot for *_, each in self.seen if isinstance(each, InstallSnapshot) and each.offset == 0]

    def longest_silence(self, source: str, to: str) -> float:
        """The longest time between two appends on a link."""
        times = [at for at, a, b, each in self.seen if (a, b) == (source, to) and isinstance(each, AppendEntries)]
        return max(after - before for before, after in pairwise(times))


def work(world: World, node: SimNode, first: int, count: int) -> None:
    world.done(node, *[f"op{number}" for number in range(first, first + count)])


def left_behind(world: World, *, count: int = 40) -> tuple[SimNode, SimNode]:
    """(leader, follower): the follower is cut off, and what it lacks is gone from the leader's log."""
    leader = world.active_leader()
    follower = next(node for node in world.up() if node is not leader)
    work(world, leader, 0, 3)
    world.settle()
    world.isolate(follower.name)
    for start in range(3, count, 5):
        work(world, leader, start, 5)
    world.until(lambda: leader.raft.log.previous_index > follower.raft.log.last_index, what="a compacted log")
    return leader, follower


def recovered(world: World, name: str) -> SimNode:
    world.crash(name)
    return world.start(name)


def test_a_node_starts_from_its_snapshot_and_what_follows_it() -> None:
    with World(seed=1, options=SMALL) as world:
        leader = world.active_leader()
        for start in range(0, 60, 5):
            work(world, leader, start, 5)
        world.settle()
        for name in world.voters:
            disk = world.disks[name]
            snapshot = disk.snapshots[-1][0]
            assert snapshot.last_index - SMALL.retained_entries == disk.previous_index > 20
            before = world.nodes[name].machine.state_hash()
            node = recovered(world, name)
            assert node.applier.last_applied == snapshot.last_index
            assert node.raft.configuration.voters == world.voters
            world.settle()
            assert node.machine.state_hash() != b""
            assert before == node.machine.state_hash() or node.applier.last_applied > snapshot.last_index
        leader = world.active_leader()
        work(world, leader, 60, 5)
        world.settle()
        world.check_equal()
        world.check_store()
        (again,) = world.done(leader, "op0")
        assert again.replayed, "dedupe survives (S33)"


def test_s15_s36_a_follower_far_behind_gets_one_snapshot_and_nobody_misses_a_heartbeat() -> None:
    """The disk is slow and the snapshot comes in many parts, and meanwhile the leader serves."""
    with World(seed=2, options=SMALL) as world:
        leader, follower = left_behind(world)
        other = next(node for node in world.up() if node not in (leader, follower))
        for node in world.up():
            node.runner.delay_s = 0.02
        term = leader.raft.current_term
        network = Network(world)
        world.heal()
        world.until(lambda: follower.applier.last_applied >= leader.raft.term_start_index + 10, within_s=30.0)
        parts = sum(isinstance(each, InstallSnapshot) for *_, each in network.seen)
        assert parts > 10
        assert follower.store.finished == 1
        assert len(network.snapshots_begun()) == 1
        for peer in (follower, other):
            assert network.longest_silence(leader.name, peer.name) < 2 * HEARTBEAT_S
        world.settle()
        assert leader.raft.current_term == term
        assert leader.leads
        world.check_equal()
        work(world, leader, 100, 3)
        world.settle()
        assert len(network.snapshots_begun()) == 1, "an endless loop of snapshots"
        world.check_store()


def test_s36_a_snapshot_goes_on_where_a_cut_stopped_it() -> None:
    with World(seed=3, options=SMALL) as world:
        leader, follower = left_behind(world)
        network = Network(world)
        world.heal()
        world.until(lambda: follower.raft.incoming is not None and follower.raft.incoming.offset >= 3 * 500)
        world.isolate(follower.name)
        world.advance(0.5 * ELECTION_S)
        world.heal()
        world.settle()
        assert len(network.snapshots_begun()) == 1
        assert leader.leads
        world.check_equal()


def test_s19_what_is_applied_while_a_snapshot_is_written_is_not_in_it() -> None:
    with World(seed=4, options=SMALL) as world:
        leader = world.active_leader()
        for node in world.up():
            node.runner.delay_s = 0.2
        for start in range(0, 60, 2):
            work(world, leader, start, 2)
        world.until(lambda: leader.store.written >= 2)
        snapshot, contents = world.disks[leader.name].snapshots[-1]
        assert leader.applier.last_applied > snapshot.last_index + 2, "nothing was applied meanwhile"
        assert snapshot.last_term == leader.raft.log.term_at(snapshot.last_index)
        state = leader.applier.prepare([contents]).by_kind[2]
        assert state.last_applied <= snapshot.last_index
        assert all(operation.index <= snapshot.last_index for operation in state.operations.values())
        rows = [row for operation in state.operations.values() for row in operation.history]
        assert max(row.index for row in rows) <= snapshot.last_index
        # Restored, and continued with what follows the label, it is the state of the others (S19).
        machine = OutboxMachine()
        machine.adopt(state)
        for entry in leader.raft.log.slice(snapshot.last_index + 1, leader.applier.last_applied):
            if entry.kind == 2:
                machine.apply(entry)
        assert machine.state_hash() == leader.machine.state_hash()


@pytest.mark.parametrize("moment", range(0, 60, 3))
def test_s20_a_crash_at_any_moment_of_a_snapshot_keeps_state_and_index_together(moment: int) -> None:
    """Taking, publishing, compacting; receiving, publishing, resetting: after it the node goes on as the others."""
    with World(seed=5, options=SMALL) as world:
        leader, follower = left_behind(world)
        for node in world.up():
            node.runner.delay_s = 0.003
            node.log_store.delay_s = 0.003
        world.heal()
        world.submit(leader, *[f"more{number}" for number in range(25)], wait=Wait.COMMITTED)
        world.advance(0.002 * moment)
        for victim in (follower, leader):
            world.crash(victim.name, keep_some=bool(moment % 2))
            disk = world.disks[victim.name]
            newest = disk.snapshots[-1][0].last_index if disk.snapshots else 0
            assert disk.previous_index <= newest, "entries are gone that no snapshot holds (S14)"
            node = world.start(victim.name)
            assert node.applier.last_applied == newest
        world.active_leader()
        world.settle()
        world.check_equal()
        world.check_store()


def test_the_log_that_was_not_told_of_a_published_snapshot_is_repaired_at_the_next_start() -> None:
    with World(seed=6, options=SMALL) as world:
        _, follower = left_behind(world)
        follower.log_store.stick()
        world.heal()
        world.until(lambda: follower.store.finished == 1)
        world.advance(0.01)
        disk = world.disks[follower.name]
        assert disk.previous_index < disk.snapshots[-1][0].last_index
        again = recovered(world, follower.name)
        assert again.raft.log.previous_index == disk.snapshots[-1][0].last_index
        world.advance(0.05)
        assert disk.previous_index == disk.snapshots[-1][0].last_index
        world.settle()
        world.check_equal()


def test_s12_a_disk_that_fails_under_a_snapshot_ends_the_node() -> None:
    with World(seed=7, options=SMALL) as world:
        leader = world.active_leader()
        error = StorageError("fsync failed")
        leader.store.fails = error
        requests = world.submit(leader, *[f"op{number}" for number in range(30)])
        world.until(leader.loop.failed.done)
        assert leader.loop.failed.result() is error
        assert not leader.leads
        assert not leader.loop.holds_lease()
        world.until(lambda: world.answered(requests))
        world.crash(leader.name)
        world.done(world.active_leader(other_than=leader.name), "op1")


class Broken(RuntimeError):
    pass


def _raise(*_: object, **__: object) -> object:
    raise Broken


@pytest.mark.parametrize("where", ["capture", "write", "taken", "read", "store", "prepare", "adopt", "observer"])
def test_s41_whatever_raises_in_the_work_with_snapshots_ends_the_node_loudly(where: str) -> None:
    with World(seed=14, options=SMALL) as world:
        leader, follower = left_behind(world)
        giving: dict[str, tuple[object, str]] = {
            "capture": (leader.applier, "capture"),
            "write": (leader.store, "write"),
            "taken": (leader.loop.snapshots, "_taken"),
            "read": (leader.store, "read"),
        }
        taking: dict[str, tuple[object, str]] = {
            "store": (follower.store, "store_chunk"),
            "prepare": (follower.applier, "prepare"),
            "adopt": (follower.applier, "adopt"),
            "observer": (follower.service, "restored"),
        }
        victim = leader if where in giving else follower
        part, name = (giving | taking)[where]
        setattr(part, name, _raise)
        world.heal()
        if victim is leader and where != "read":
            world.submit(leader, *[f"more{number}" for number in range(30)], wait=Wait.COMMITTED)
        world.until(victim.loop.failed.done, what="failure")
        assert isinstance(victim.loop.failed.result(), Broken)
        assert not victim.loop.holds_lease()


def test_s11_without_room_for_a_snapshot_the_node_serves_on_and_tries_again() -> None:
    with World(seed=8, options=SMALL) as world:
        leader = world.active_leader()
        for node in world.up():
            node.store.fails = StorageFull("no space left")
        for start in range(0, 60, 5):
            work(world, leader, start, 5)
        assert leader.leads
        assert len(world.logged("snapshot not taken")) > 2
        assert leader.raft.log.previous_index == 0
        for node in world.up():
            node.store.fails = None
        world.advance(2 * ELECTION_S)
        work(world, leader, 60, 1)
        world.until(lambda: leader.store.written == 1)
        world.until(lambda: leader.raft.log.previous_index > 0)


@pytest.mark.parametrize("trouble", ["damaged", "full"])
def test_s11_s33_a_snapshot_that_arrives_damaged_or_finds_no_room_is_sent_anew(trouble: str) -> None:
    with World(seed=9, options=SMALL) as world:
        leader, follower = left_behind(world)
        before = follower.machine.state_hash()
        network = Network(world)
        if trouble == "damaged":
            follower.store.damages = 1
        else:
            follower.store.fails = StorageFull("no space left")
        world.heal()
        logged = "snapshot damaged on its way" if trouble == "damaged" else "snapshot not stored"
        world.until(lambda: world.logged(logged))
        assert follower.machine.state_hash() == before
        assert not world.disks[follower.name].snapshots
        follower.store.fails = None
        world.settle()
        assert follower.store.finished == 1
        assert len(network.snapshots_begun()) >= 2
        assert leader.leads
        world.check_equal()


def test_a_snapshot_that_is_not_kept_any_more_is_replaced_by_the_newest() -> None:
    with World(seed=10, options=SMALL) as world:
        leader, follower = left_behind(world)
        network = Network(world)
        world.heal()
        world.until(lambda: follower.raft.incoming is not None and follower.raft.incoming.offset)
        first = network.snapshots_begun()[0]
        world.disks[leader.name].snapshots = [
            (snapshot, contents) for snapshot, contents in world.disks[leader.name].snapshots if snapshot != first
        ]
        work(world, leader, 200, 30)
        world.settle()
        begun = network.snapshots_begun()
        assert begun[-1].last_index > first.last_index
        assert follower.store.finished == 1
        world.check_equal()


def test_two_snapshots_that_are_complete_within_one_turn_are_both_taken_in() -> None:
    """The one that a follower was about to finish is kept no more, and the next one comes in a single part:
    where its loop is held up, it hears of both at once."""
    with World(seed=15, options=SMALL) as world:
        leader, follower = left_behind(world, count=80)
        (older, its_contents), (newer, contents) = world.disks[leader.name].snapshots
        assert follower.raft.commit_index < older.last_index
        jobs: list[tuple[Callable[[], object], Completion]] = []
        follower.runner.run = lambda work, done: jobs.append((work, done))  # type: ignore[method-assign]
        term = leader.raft.current_term
        for label, data in ((older, its_contents), (newer, contents)):
            follower.loop.receive(leader.name, InstallSnapshot(term, label, 0, data, 1))
        world.until(lambda: len(jobs) == 2)
        for work_, done in jobs:
            follower.process.call_soon(done, work_(), None)
        world.until(lambda: follower.applier.last_applied == newer.last_index)
        assert not follower.loop.failed.done()
        world.heal()
        world.settle()
        world.check_equal()


def test_s36_whoever_leads_no_more_sends_no_part_that_was_still_being_read() -> None:
    """It would keep followers from electing another one."""
    with World(seed=16, options=SMALL) as world:
        leader, follower = left_behind(world)
        network = Network(world)
        leader.runner.delay_s = 0.1 * ELECTION_S
        world.heal()
        world.until(lambda: follower.raft.incoming is not None and follower.raft.incoming.offset)
        world.until(lambda: bool(leader.runner._jobs))
        leader.loop.step_down("test")
        world.until(lambda: not leader.leads)
        network.seen.clear()
        world.until(lambda: not leader.runner._jobs)
        world.advance(HEARTBEAT_S)
        assert not [
            each for _, source, _, each in network.seen if source == leader.name and isinstance(each, InstallSnapshot)
        ]
        leader.runner.delay_s = 0.002
        world.settle()
        world.check_equal()


def test_s55_a_snapshot_of_a_later_version_stops_the_node_with_the_state_that_it_had() -> None:
    with World(seed=11, options=SMALL) as world:
        leader, follower = left_behind(world)
        before, applied = follower.machine.state_hash(), follower.applier.last_applied

        def later(contents: object) -> object:
            raise StorageFormatUnknown("node snapshot of format 2")

        follower.applier.prepare = later  # type: ignore[method-assign, assignment]
        world.heal()
        world.until(follower.loop.failed.done)
        assert isinstance(follower.loop.failed.result(), StorageFormatUnknown)
        assert (follower.machine.state_hash(), follower.applier.last_applied) == (before, applied)
        assert world.disks[follower.name].previous_index == 0, "the log is as it was"
        work(world, leader, 100, 3)


def test_s44_those_who_wait_for_what_came_as_a_snapshot_hear_of_it() -> None:
    """A leader is cut off with commands under way; when it is back the others have gone on so far that it
    gets their snapshot: what became of its entries it never learns, of its commands it does."""
    with World(seed=12, options=SMALL) as world:
        old = world.active_leader()
        old.resource.hold_before = True
        waiting = FakeConnection()
        (done,) = world.submit(old, "shared", wait=Wait.DONE, connection=waiting)
        world.until(lambda: old.resource.held)
        world.settle_log()
        world.isolate(old.name)
        (lost,) = world.submit(old, "alone", wait=Wait.COMMITTED, connection=waiting)
        new = world.active_leader(other_than=old.name)
        # No bound of time ends the waiting in this test.
        old.loop.waiters.expire = lambda now: None  # type: ignore[method-assign]
        old.service._end_done_waiters = lambda detail: None  # type: ignore[method-assign]
        for start in range(0, 60, 5):
            work(world, new, start, 5)
        world.until(lambda: new.raft.log.previous_index > old.raft.log.last_index)
        assert done not in waiting.answers
        assert lost not in waiting.answers
        world.heal()
        world.until(lambda: old.store.finished == 1)
        world.until(lambda: done in waiting.answers and lost in waiting.answers)
        assert waiting.only(done).status == AnswerStatus.DONE
        assert waiting.only(lost).status == AnswerStatus.UNKNOWN
        assert len(old.loop.waiters) == 0
        old.resource.hold_before = False
        old.resource.release()
        world.settle()
        world.check_equal()
        world.check_store()


def test_a_node_that_keeps_no_snapshots_must_not_be_asked_for_any() -> None:
    with World(seed=13, options=SMALL) as world:
        leader = world.active_leader()
        leader.loop.snapshots = None
        world.submit(leader, *[f"op{number}" for number in range(30)])
        world.until(leader.loop.failed.done)
        assert isinstance(leader.loop.failed.result(), AssertionError)


def test_the_default_options_take_no_snapshot() -> None:
    assert Options().snapshot_entries == Options().snapshot_bytes == 0
