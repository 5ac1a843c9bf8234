"""The state of one index for whoever saves it, and the log for whoever looks at it; the node goes on (S19, S29)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fencepost.raft.core.configuration import decode_configuration
from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.node.applier import Applier
from fencepost.raft.node.backup import IDLE_S, PART_BYTES, SESSIONS_MAX
from fencepost.raft.node.log_calls import PAGE_ENTRIES
from fencepost.raft.node.plainlog import PlainLog
from fencepost.raft.node.reading import ReadingCalls
from fencepost.raft.outbox.machine import OutboxMachine
from fencepost.raft.ports import Wait

from .process import as_event_loop
from .snapshot_parts import SimRunner
from .world import OPTIONS, SimNode, World, client_address


def serve(node: SimNode, *, prefix: str = "p") -> ReadingCalls:
    """Let the node answer these calls, as the composed one does."""
    calls = ReadingCalls(
        node.loop,
        as_event_loop(node.process),
        SimRunner(node.process),
        read_log=node.log_store.read,
        identity={"cluster_id": "c1", "incarnation": 1, "node_id": node.name, "version": "0"},
        session_prefix=f"{prefix}-{node.name}",
        leader_address=client_address,
    )
    node.service.desk.slow_queries.update(calls.methods())
    return calls


def draw(world: World, node: SimNode, session: str) -> bytes:
    pieces: list[bytes] = []
    while True:
        part = world.reply(node, "snapshot.next", session=session, sequence=len(pieces))
        pieces.append(part["data"])
        if part["last"]:
            world.reply(node, "snapshot.end", session=session)
            return b"".join(pieces)


def state_of(contents: bytes, last_index: int) -> OutboxMachine:
    machine = OutboxMachine()
    applier = Applier({EntryKind.OUTBOX: machine, EntryKind.EMBEDDED: PlainLog()})
    applier.adopt(applier.prepare([contents]), last_index)
    return machine


def replayed(node: SimNode, last_index: int) -> OutboxMachine:
    """The state that the log itself leads to."""
    machine = OutboxMachine()
    for entry in node.raft.log.slice(1, last_index):
        if entry.kind == EntryKind.OUTBOX:
            machine.apply(entry)
    return machine


def test_s19_what_is_saved_is_the_state_of_one_index_while_the_node_goes_on() -> None:
    with World(seed=1) as world:
        leader = world.active_leader()
        serve(leader)
        world.done(leader, *(f"before-{number}" for number in range(20)))
        begun = world.reply(leader, "snapshot.begin")
        at = begun["last_index"]
        # Old operations change no more, but the counts do; new ones come.
        world.done(leader, *(f"after-{number}" for number in range(20)))
        machine = state_of(draw(world, leader, begun["session"]), at)
        assert machine.state_hash() == replayed(leader, at).state_hash()
        assert sorted(machine.operations) == sorted(f"before-{number}" for number in range(20))
        entry = leader.raft.log.entry(at)
        assert (begun["last_term"], begun["last_time_ns"]) == (entry.term, entry.time_ns)
        assert decode_configuration(begun["configuration"]) == leader.raft.configuration


def test_s29_a_follower_that_is_asked_saves_what_was_acknowledged_a_moment_ago() -> None:
    with World(seed=2) as world:
        leader = world.active_leader()
        world.settle()
        follower = next(node for node in world.up() if node is not leader)
        serve(follower)
        (request,) = world.submit(leader, "a", wait=Wait.COMMITTED)
        world.answer(request)
        assert "a" not in follower.machine.operations
        begun = world.reply(follower, "snapshot.begin")
        assert "a" in state_of(draw(world, follower, begun["session"]), begun["last_index"]).operations


def test_s29_a_leader_that_is_cut_off_saves_nothing() -> None:
    with World(seed=3) as world:
        leader = world.active_leader()
        serve(leader)
        world.isolate(leader.name)
        assert world.error(leader, "snapshot.begin").code == "NOT_LEADER"


def test_a_machine_that_gives_its_state_in_one_chunk_is_saved_in_parts_that_a_frame_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with World(seed=12) as world:
        leader = world.active_leader()
        serve(leader)
        whole = bytes(range(256)) * (PART_BYTES // 64)
        monkeypatch.setattr(leader.applier, "capture", lambda: iter([b"head", whole, b"", b"tail"]))
        session = world.reply(leader, "snapshot.begin")["session"]
        parts = [world.reply(leader, "snapshot.next", session=session, sequence=0)]
        while not parts[-1]["last"]:
            parts.append(world.reply(leader, "snapshot.next", session=session, sequence=len(parts)))
        assert b"".join(part["data"] for part in parts) == b"head" + whole + b"tail"
        assert max(len(part["data"]) for part in parts) <= 2 * PART_BYTES


def test_an_answer_that_was_lost_is_given_again_and_none_is_skipped() -> None:
    with World(seed=4) as world:
        leader = world.active_leader()
        serve(leader)
        world.done(leader, "a")
        session = world.reply(leader, "snapshot.begin")["session"]
        first = world.reply(leader, "snapshot.next", session=session, sequence=0)
        assert world.reply(leader, "snapshot.next", session=session, sequence=0) == first
        assert world.error(leader, "snapshot.next", session=session, sequence=2).code == "COMMAND_INVALID"


def test_sessions_are_few_end_by_themselves_and_are_of_one_process() -> None:
    with World(seed=5) as world:
        leader = world.active_leader()
        serve(leader)
        sessions = [world.reply(leader, "snapshot.begin")["session"] for _ in range(SESSIONS_MAX)]
        assert len(set(sessions)) == SESSIONS_MAX
        assert world.error(leader, "snapshot.begin").code == "BUSY"
        assert len(leader.machine._captures.drawing) == SESSIONS_MAX
        world.advance(IDLE_S / 2)
        world.reply(leader, "snapshot.next", session=sessions[0], sequence=0)
        world.advance(IDLE_S / 2 + 1)
        assert world.error(leader, "snapshot.next", session=sessions[1], sequence=0).code == "NOT_FOUND"
        world.reply(leader, "snapshot.next", session=sessions[0], sequence=0)
        world.advance(IDLE_S + 1)
        world.reply(leader, "snapshot.begin")
        serve(leader, prefix="another-process")
        assert world.error(leader, "snapshot.next", session=sessions[0], sequence=0).code == "NOT_FOUND"


def test_a_session_that_was_given_up_costs_the_machine_nothing_more() -> None:
    with World(seed=6) as world:
        leader = world.active_leader()
        serve(leader)
        world.reply(leader, "snapshot.begin")
        world.advance(IDLE_S + 1)
        world.done(leader, "a", "b")
        assert leader.machine._captures.drawing == []


# -- the log ----------------------------------------------------------------------------------------


def rows(body: dict[str, Any]) -> list[Entry]:
    return [Entry(*row) for row in body["entries"]]


def test_committed_entries_are_given_page_by_page() -> None:
    with World(seed=7) as world:
        leader = world.active_leader()
        serve(leader)
        world.done(leader, *(f"op-{number}" for number in range(10)))
        world.settle()
        committed = leader.raft.commit_index
        everything = leader.raft.log.slice(1, committed)
        body = world.reply(leader, "log.entries")
        assert (rows(body), body["first_index"], body["commit_index"]) == (everything, 1, committed)
        assert rows(world.reply(leader, "log.entries", last=3)) == everything[-3:]
        assert rows(world.reply(leader, "log.entries", after_index=2, limit=2)) == everything[2:4]
        assert rows(world.reply(leader, "log.entries", after_index=committed)) == []
        assert rows(world.reply(leader, "log.entries", limit=PAGE_ENTRIES * 9)) == everything
        assert world.error(leader, "log.entries", limit=-1).code == "COMMAND_INVALID"
        assert world.error(leader, "log.entries", after_index="x").code == "COMMAND_INVALID"


def test_what_is_not_committed_is_not_shown() -> None:
    with World(seed=8) as world:
        leader = world.active_leader()
        serve(leader)
        world.settle()
        committed = leader.raft.commit_index
        for node in world.up():
            if node is not leader:
                world.pause(node.name)
        world.submit(leader, "a", wait=Wait.COMMITTED)
        world.advance(0.05)
        assert leader.raft.log.last_index > committed
        assert rows(world.reply(leader, "log.entries"))[-1].index == committed


@pytest.mark.parametrize("seed", [9, 10])
def test_entries_that_have_left_the_memory_are_read_from_disk(seed: int) -> None:
    with World(seed=seed, options=dataclasses.replace(OPTIONS, window_entries=8)) as world:
        leader = world.active_leader()
        serve(leader)
        world.done(leader, *(f"op-{number}" for number in range(40)))
        world.settle()
        assert leader.raft.log.window_start > 20
        found = rows(world.reply(leader, "log.entries"))
        assert [entry.index for entry in found] == list(range(1, leader.raft.commit_index + 1))
        assert sum(entry.kind == EntryKind.NO_OP for entry in found) >= 1


def test_s17_what_is_committed_and_not_yet_on_this_disk_is_not_read_from_it() -> None:
    """A follower's disk still holds what a deposed leader appended; what took its place waits to be written."""
    with World(seed=11, options=dataclasses.replace(OPTIONS, window_entries=8)) as world:
        old = world.active_leader()
        world.done(old, *(f"op-{number}" for number in range(40)))
        world.settle()
        world.isolate(old.name)
        world.submit(old, *(f"lost-{number}" for number in range(5)), wait=Wait.COMMITTED)
        world.advance(0.05)
        leader = world.active_leader(other_than=old.name)
        world.done(leader, *(f"new-{number}" for number in range(5)))
        right = {entry.index: entry for entry in world.disks[leader.name].entries}
        serve(old)
        world.heal()
        world.until(lambda: old.disk.hard_state.term == leader.raft.current_term, what="the new term is durable")
        old.log_store.stick()
        world.until(lambda: old.raft.commit_index > old.raft.durable_index, what="committed before it is durable")
        assert any(right.get(entry.index, entry) != entry for entry in world.disks[old.name].entries)
        found = rows(world.reply(old, "log.entries"))
        assert len(found) > 20
        assert [entry for entry in found if entry != right[entry.index]] == []
