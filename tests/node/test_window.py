"""Nodes that keep few entries in memory: slow followers and restarts are served from the disk (S36, S40)."""

from __future__ import annotations

import dataclasses

import pytest

from fencepost.raft.core.errors import NotFound, StorageCorrupt
from fencepost.raft.core.events import SnapshotNotTaken
from fencepost.raft.node import applying
from fencepost.raft.ports import AnswerStatus, Wait

from .world import OPTIONS, FakeConnection, SimNode, World

WINDOW = 8
SMALL = dataclasses.replace(OPTIONS, window_entries=WINDOW, append_bytes_max=400)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many pieces and chunks as a log of millions has."""
    monkeypatch.setattr(applying, "PIECE_ENTRIES", 3)
    monkeypatch.setattr(applying, "CHUNK_ENTRIES", 10)


def work(world: World, node: SimNode, first: int, count: int) -> None:
    world.done(node, *[f"op{number}" for number in range(first, first + count)])


def in_memory(node: SimNode) -> int:
    log = node.raft.log
    return log.last_index - log.window_start + 1


def follower_of(world: World, leader: SimNode) -> SimNode:
    return next(node for node in world.up() if node is not leader)


def readings(node: SimNode) -> int:
    assert node.loop.entries is not None
    return node.loop.entries.readings


def test_a_follower_that_was_away_is_brought_up_from_the_leaders_disk() -> None:
    with World(seed=1, options=SMALL) as world:
        leader = world.active_leader()
        follower = follower_of(world, leader)
        world.isolate(follower.name)
        for start in range(0, 60, 5):
            work(world, leader, start, 5)
        assert leader.raft.log.window_start > follower.raft.log.last_index + 50
        assert in_memory(leader) < 4 * WINDOW
        assert readings(leader) == 0
        world.heal()
        world.until(lambda: follower.applier.last_applied >= leader.raft.commit_index, what="caught up")
        assert readings(leader) > 5
        world.settle()
        world.check_equal()
        world.check_store()


def test_a_start_holds_a_window_and_applies_the_rest_from_the_disk() -> None:
    with World(seed=2, options=SMALL) as world:
        leader = world.active_leader()
        follower = follower_of(world, leader)
        for start in range(0, 60, 5):
            work(world, leader, start, 5)
        world.settle()
        applied, state = follower.applier.last_applied, follower.machine.state_hash()
        world.crash(follower.name)
        again = world.start(follower.name)
        assert in_memory(again) <= 2 * WINDOW < 60 < applied
        world.until(lambda: again.applier.last_applied >= applied, what="everything applied again")
        if again.applier.last_applied == applied:
            assert again.machine.state_hash() == state
        world.settle()
        world.check_equal()


def test_s29_a_node_that_still_applies_what_it_has_on_disk_does_not_say_that_its_state_is_new() -> None:
    with World(seed=2, options=SMALL) as world:
        leader = world.active_leader()
        follower = follower_of(world, leader)
        for start in range(0, 60, 5):
            work(world, leader, start, 5)
        world.settle()
        world.crash(follower.name)
        again = world.start(follower.name)
        again.entry_runner.delay_s = 0.4
        world.until(lambda: again.raft.leader, what="the leader is heard")
        world.advance(0.1)
        assert again.raft.commit_index == leader.raft.commit_index > again.applier.last_applied + 20
        assert again.loop.stale_read_age_ns() is None
        world.settle()
        assert again.loop.stale_read_age_ns() is not None


def test_s54_a_leader_that_still_applies_what_it_has_on_disk_starts_no_effect() -> None:
    """All three start anew, and the one that leads first has the slowest disk."""
    with World(seed=3, options=SMALL) as world:
        leader = world.active_leader()
        for start in range(0, 60, 5):
            work(world, leader, start, 5)
        world.settle()
        for name in world.voters:
            world.crash(name)
        nodes = [world.start(name) for name in world.voters]
        for node in nodes:
            node.entry_runner.delay_s = 0.4
        world.until(lambda: any(node.leads for node in nodes), what="somebody leads")
        leader = next(node for node in nodes if node.leads)
        connection = FakeConnection()
        (request,) = world.submit(leader, "new", connection=connection, wait=Wait.DONE)
        world.advance(0.2)
        term_start = leader.raft.term_start_index
        assert leader.raft.commit_index >= term_start > leader.applier.last_applied
        assert not leader.resource.batches
        assert not connection.answers
        world.until(lambda: request in connection.answers, within_s=60.0, what="an answer")
        assert connection.only(request).status == AnswerStatus.DONE
        assert leader.applier.last_applied > term_start
        world.settle()
        world.check_equal()
        world.check_store()


def test_a_snapshot_is_taken_of_its_index_on_the_way_through_what_is_on_disk() -> None:
    options = dataclasses.replace(SMALL, retained_entries=2)
    with World(seed=4, options=options) as world:
        leader = world.active_leader()
        for start in range(0, 60, 5):
            work(world, leader, start, 5)
        world.settle()
        world.options = dataclasses.replace(options, snapshot_entries=20)
        follower = follower_of(world, leader)
        world.crash(follower.name)
        again = world.start(follower.name)
        label = again.raft.commit_index
        again.entry_runner.delay_s = 0.05
        work(world, leader, 60, 10)
        world.until(lambda: again.raft.snapshot is not None, what="a snapshot")
        assert again.raft.snapshot is not None
        assert again.raft.snapshot.last_index == label
        world.settle()
        world.crash(follower.name)
        world.start(follower.name)
        world.settle()
        world.check_equal()


def test_a_received_snapshot_overtakes_what_is_read_and_what_was_to_be_taken() -> None:
    """The follower reads its own log slowly, and the leader has compacted what comes behind it."""
    options = dataclasses.replace(SMALL, retained_entries=2)
    with World(seed=5, options=options) as world:
        leader = world.active_leader()
        follower = follower_of(world, leader)
        for start in range(0, 40, 5):
            work(world, leader, start, 5)
        world.settle()
        world.crash(follower.name)
        for name in [node.name for node in world.up()]:
            world.options = dataclasses.replace(options, snapshot_entries=10)
            world.crash(name)
            world.start(name)
        leader = world.active_leader()
        for start in range(40, 80, 5):
            work(world, leader, start, 5)
        world.until(lambda: leader.raft.log.previous_index > 50, what="compacted")
        again = world.start(follower.name)
        again.entry_runner.delay_s = 1.0
        seen: list[object] = []
        feed = again.loop.feed
        again.loop.feed = lambda event: (seen.append(event), feed(event))[1]  # type: ignore[method-assign, func-returns-value]
        world.until(lambda: again.applier.last_applied > 50, within_s=30.0, what="restored")
        assert again.store.finished == 1
        assert any(isinstance(event, SnapshotNotTaken) for event in seen)
        world.settle()
        world.check_equal()


@pytest.mark.parametrize("error", [StorageCorrupt("damaged"), NotFound("compacted")])
def test_a_disk_that_does_not_give_back_what_is_to_be_applied_ends_the_node(error: Exception) -> None:
    with World(seed=6, options=SMALL) as world:
        leader = world.active_leader()
        follower = follower_of(world, leader)
        for start in range(0, 40, 5):
            work(world, leader, start, 5)
        world.settle()
        world.crash(follower.name)
        again = world.start(follower.name)

        def read(start: int, end: int, bytes_max: int) -> None:
            raise error

        again.log_store.read = read  # type: ignore[assignment, method-assign]
        world.until(again.loop.failed.done, what="the end of the node")
        failed = again.loop.failed.result()
        assert failed is error or (isinstance(error, NotFound) and isinstance(failed, AssertionError))
        assert again.raft.failed == isinstance(error, StorageCorrupt)
        assert again.applier.last_applied == 0


def test_a_leader_whose_disk_fails_while_it_reads_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """S12: a failed read is as final as a failed write."""
    with World(seed=7, options=SMALL) as world:
        leader = world.active_leader()
        follower = follower_of(world, leader)
        world.isolate(follower.name)
        for start in range(0, 60, 5):
            work(world, leader, start, 5)

        def read(start: int, end: int, bytes_max: int) -> None:
            raise StorageCorrupt("damaged")

        monkeypatch.setattr(leader.log_store, "read", read)
        world.heal()
        world.until(leader.loop.failed.done, what="the end of the node")
        assert isinstance(leader.loop.failed.result(), StorageCorrupt)
        assert leader.raft.failed
        world.active_leader(other_than=leader.name)
