"""What has ended is forgotten by whole clusters: over changes of leader, snapshots and settings (S33)."""

from __future__ import annotations

import dataclasses
from uuid import UUID

import pytest

from fencepost.raft.core.errors import NotFound
from fencepost.raft.effects.due import DueTimes
from fencepost.raft.outbox.codec import Retention
from fencepost.raft.outbox.retention import FORGOTTEN_AT_ONCE
from fencepost.raft.ports import AnswerStatus

from ..core.planting import planted
from .world import OPTIONS, SimNode, World

S = 1_000_000_000
SMALL = dataclasses.replace(OPTIONS, snapshot_entries=20, retained_entries=5, chunk_bytes=2000)


def work(world: World, node: SimNode, prefix: str, count: int) -> None:
    """So many commands, with ends of their own."""
    for number in range(count):
        world.done(node, f"{prefix}{number}")


def test_s33_a_leader_that_dies_while_it_forgets_is_followed_by_one_that_goes_on() -> None:
    total = FORGOTTEN_AT_ONCE + 20
    with World(seed=1, retention=Retention(20 * S, 0)) as world:
        leader = world.active_leader()
        work(world, leader, "op", total)
        world.until(lambda: 0 < leader.machine.forgotten < total, within_s=60, what="the first of them is forgotten")
        before = leader.machine.forgotten
        world.crash(leader.name)
        successor = world.active_leader(other_than=leader.name)
        assert before < total
        world.until(lambda: successor.machine.forgotten == total, within_s=60, what="all are forgotten")
        # Who was away replays the same entries, and forgets the same.
        again = world.start(leader.name)
        world.until(lambda: again.machine.forgotten == total, within_s=20)
        world.settle_log()
        world.check_equal()
        assert not again.machine.operations
        assert isinstance(world.error(successor, "command.get", id="op0"), NotFound)


def test_s33_a_snapshot_from_the_middle_of_forgetting_is_gone_on_from_by_whoever_starts_or_was_away() -> None:
    total = 100
    with World(seed=2, options=SMALL, retention=Retention(5 * S, 0)) as world:
        leader = world.active_leader()
        other, away = (node for node in world.up() if node is not leader)
        world.settle_log()
        world.isolate(away.name)
        for number in range(total):
            world.done(leader, f"op{number}")
            world.advance(0.1)
        assert 0 < leader.machine.forgotten < total
        assert leader.raft.log.previous_index > away.raft.log.last_index, "what it lacks is in a snapshot only"
        world.crash(other.name)
        other = world.start(other.name)
        snapshot = other.store.newest()
        assert snapshot is not None
        assert other.applier.last_applied == snapshot.last_index
        assert 0 < other.machine.forgotten < leader.machine.forgotten, "it starts in the middle"
        world.heal()
        world.until(lambda: away.store.finished > 0, within_s=20, what="a snapshot was received")
        assert 0 < away.machine.forgotten < total
        world.crash(leader.name)
        successor = world.active_leader(other_than=leader.name)
        world.start(leader.name)
        world.until(lambda: successor.machine.forgotten == total, within_s=120)
        world.settle_log()
        world.check_equal()
        world.check_store()


def test_s33_an_id_that_bears_its_time_is_refused_by_every_node_once_it_may_have_been_forgotten() -> None:
    with World(seed=3, options=SMALL, retention=Retention(5 * S, 0)) as world:
        leader = world.active_leader()
        name = str(UUID(int=(leader.loop.cluster_time_ns() // 1_000_000) << 80 | 7 << 76 | 2 << 62 | 1))
        world.done(leader, name)
        (again,) = world.done(leader, name)
        assert again.replayed
        world.until(lambda: leader.machine.forgotten == 1, within_s=60)
        work(world, leader, "op", 20)  # So that there is a snapshot, and the leader starts from that.
        world.crash(leader.name)
        world.start(leader.name)
        leader = world.lead(leader.name)
        answer = world.answer(world.submit(leader, name)[0])
        assert (answer.status, answer.code) == (AnswerStatus.REFUSED, "OPERATION_ID_EXPIRED")
        effects = [operation_id for _, operation_id in world.specs[0].store.effects]
        assert effects.count(name) == 1


def setting_changed() -> None:
    with World(seed=4, retention=Retention()) as world:
        leader = world.active_leader()
        work(world, leader, "op", 3)
        world.advance(60)
        assert leader.machine.forgotten == 0
        # The files are changed, and the nodes started again one by one, the leader last.
        world.retention = Retention(20 * S, 0)
        for node in [*(each for each in world.up() if each is not leader), leader]:
            world.crash(node.name)
            world.start(node.name)
            world.leader()
        leader = world.active_leader()
        assert leader.machine.retention == Retention(20 * S, 0)
        world.until(lambda: leader.machine.forgotten == 3, within_s=20)
        world.settle_log()
        assert {node.machine.retention for node in world.up()} == {Retention(20 * S, 0)}
        # Longer again: what comes is remembered for longer, and what is gone stays gone.
        world.retention = Retention(3600 * S, 0)
        world.crash(leader.name)
        world.start(leader.name)
        leader = world.lead(leader.name)
        world.done(leader, "later")
        world.advance(60)
        assert (leader.machine.forgotten, list(leader.machine.operations)) == (3, ["later"])
        world.settle_log()
        world.check_equal()


def test_the_setting_changes_with_the_leader_that_has_another_and_on_all_nodes_alike() -> None:
    setting_changed()
    with (
        planted(DueTimes.settle, "if self._machine.retention != wanted:", "if not any(self._machine.retention):"),
        pytest.raises(AssertionError),
    ):
        setting_changed()


def test_a_leader_whose_setting_is_in_force_appends_nothing_for_it() -> None:
    with World(seed=5, retention=Retention(20 * S, 0)) as world:
        leader = world.active_leader()
        world.settle_log()
        before = leader.raft.log.last_index
        successor = world.lead(next(node.name for node in world.up() if node is not leader))
        world.settle_log()
        # Each term that began has a no-op, an activation and a record of its election.
        terms = successor.raft.current_term - leader.raft.log.term_at(before)
        assert successor.raft.log.last_index - before <= 3 * terms
