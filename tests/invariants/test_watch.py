"""A step that a glance is enough for has changed nothing, and says nothing that had to be looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.jepsen.invariants.observed import ObservedNode
from fencepost.jepsen.invariants.watch import is_settled, state_of, watched
from fencepost.jepsen.sim.load import Load, LoadSettings
from fencepost.jepsen.sim.observer import Observer
from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import HardState, Snapshot
from fencepost.raft.core.events import Effects, Event, ReadChunk, ReadReady, Receive, Refused, Send, Tick, TransferEnded
from fencepost.raft.core.invariants import Summary, check, check_step, summarize
from fencepost.raft.core.messages import AppendEntries, AppendEntriesResponse, InstallSnapshot, PreVote

from .scene import MILLISECOND, SECOND, Scene, persist, scene


class Thorough(Observer):
    """Checks every step, as the glance saves doing."""

    def __init__(self) -> None:
        self.steps = 0

    def on_step(self, node: Any, before: Summary, event: Event, effects: Effects) -> None:
        self.steps += 1
        check_step(before, node.raft, event, effects)
        check(node.raft)


def test_most_steps_of_a_quiet_cluster_need_no_more_than_a_glance() -> None:
    thorough = Thorough()
    with scene(observers=[thorough]) as it:
        looked, steps = it.properties.steps_looked_at, thorough.steps
        it.world.run_for(20 * SECOND)
        assert thorough.steps - steps > 900
        assert it.properties.steps_looked_at == looked


def test_what_is_remembered_of_a_core_is_what_it_is_like() -> None:
    """Under load and faults too: the summary of the last look is as good as a new one."""
    with scene() as it:
        load = Load(it.world, LoadSettings(clients=3, think_ns=100 * MILLISECOND))
        load.start()
        for _ in range(10):
            it.world.run_for(300 * MILLISECOND)
            it.world.kill(it.world.names[len(load.jobs) % 3])
            it.world.run_for(100 * MILLISECOND)
            it.world.start_all()
            for node in it.ledger.nodes.values():
                if node.up and node.state:
                    assert node.before() == summarize(node.raft)
                    assert node.state == state_of(node.raft)
                    assert node.settled is (is_settled(node.raft) and node.restoring is None)
        assert len(it.ledger.leaderships) > 1


class Lookout:
    """Has ``node`` make one step that gives ``effects``, and tells whether that needed more than a glance."""

    def __init__(self, node: ObservedNode) -> None:
        self.node = node
        self.looked = 0

    def step(self, event: Event, effects: Effects, change: Callable[[], None] = lambda: None) -> bool:
        raft = self.node.raft

        def make(event: Event) -> Effects:
            change()
            return effects

        def look(node: ObservedNode, event: Event, effects: Effects) -> None:
            self.looked += 1

        self.node.state, self.node.settled = state_of(raft), is_settled(raft)
        raft.step = make  # type: ignore[method-assign]
        before = self.looked
        watched(self.node, look)(event)
        return self.looked > before


def heartbeat(it: Scene, **parts: Any) -> Send:
    raft = it.leader.raft
    message = AppendEntries(1, raft.log.last_index, raft.log.last_term, raft.commit_index, raft.now, [])
    after = parts.pop("after", 0)
    return Send(it.follower.name, message._replace(**parts), after)


def answer(it: Scene, **parts: Any) -> Send:
    after = parts.pop("after", 0)
    message = AppendEntriesResponse(1, True, it.follower.raft.durable_index, 0, 0, 0)
    return Send(it.leader.name, message._replace(**parts), after)


def test_what_a_leader_sends() -> None:
    with scene() as it:
        out = Lookout(it.leader)
        last = it.leader.raft.log.last_index
        assert not out.step(Tick(0), Effects(sends=[heartbeat(it), heartbeat(it)]))
        assert not out.step(Tick(0), Effects())
        assert not out.step(Receive(0, "n9", heartbeat(it).message), Effects())
        for parts in (
            {"term": 2},
            {"prev_log_index": last - 1},
            {"prev_log_term": 0},
            {"leader_commit": last + 1},
            {"after": 1},
        ):
            assert out.step(Tick(0), Effects(sends=[heartbeat(it), heartbeat(it, **parts)])), parts
        for other in (answer(it), Send("n9", PreVote(2, 1, 1, 1), 0)):
            assert out.step(Tick(0), Effects(sends=[other]))
        it.leader.raft.quorum_contact -= it.world.options.election_timeout
        assert not out.step(Tick(0), Effects())
        assert out.step(Tick(0), Effects(sends=[heartbeat(it)]))


def test_what_a_follower_answers() -> None:
    with scene() as it:
        out, received = Lookout(it.follower), Receive(0, it.leader.name, heartbeat(it).message)
        assert not out.step(received, Effects(sends=[answer(it)]))
        assert not out.step(received, Effects(sends=[answer(it, match_index=1)]))
        for parts in (
            {"term": 2},
            {"match_index": it.follower.raft.durable_index + 1},
            {"success": False},
            {"after": 1},
        ):
            assert out.step(received, Effects(sends=[answer(it, **parts)])), parts
        assert out.step(received, Effects(sends=[heartbeat(it)]))


def test_what_else_a_step_asks_for() -> None:
    with scene() as it:
        out = Lookout(it.leader)
        for effects in (
            Effects(reads=[ReadReady(1, 1)]),
            Effects(proposed=Refused("BUSY", "")),
            Effects(transfer=TransferEnded("n2", "")),
            Effects(chunks=[ReadChunk("n2", InstallSnapshot(1, SNAPSHOT, 0, b"", 0), 1, 0)]),
        ):
            assert out.step(Tick(0), effects)


SNAPSHOT = Snapshot(1, 1, 0, Configuration(("n1",)), 0)


def set_to(raft: Any, name: str, value: object) -> Callable[[], None]:
    return lambda: setattr(raft, name, value)


CHANGES: tuple[tuple[str, object], ...] = (
    ("current_term", 2),
    ("commit_index", 1),
    ("role", "candidate"),
    ("write_sequence", 99),
    ("durable_sequence", 99),
    ("durable_index", 1),
    ("apply_reported", 1),
    ("leader", "n9"),
    ("voted_for", "n9"),
    ("configuration", None),
    ("hard_state_sequence", 99),
    ("failed", True),
    ("snapshot", "one"),
    ("incoming", "one"),
    ("transfer", "one"),
    ("uncommitted_bytes", 1),
    ("term_start_index", 99),
    ("departing", {"n9": 1}),
    ("pending_reads", ["one"]),
    ("progress", {"n9": None}),
    ("uncommitted", [(1, 1)]),
)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_whatever_changes_is_looked_at(role: str) -> None:
    with scene() as it:
        node = it.leader if role == "leader" else it.follower
        raft, out = node.raft, Lookout(node)
        for name, value in CHANGES:
            if role == "leader" and name in ("progress", "uncommitted"):
                continue  # Looked at one by one, and by its bytes.
            kept = getattr(raft, name)
            assert out.step(Tick(0), Effects(), set_to(raft, name, value)), name
            setattr(raft, name, kept)
            assert not out.step(Tick(0), Effects()), name


def test_a_log_that_changes_without_a_write_is_looked_at() -> None:
    with scene() as it:
        log, last = it.follower.raft.log, it.follower.raft.log.last_index
        other = it.next_entry()._replace(index=last)
        out = Lookout(it.follower)
        assert out.step(Tick(0), Effects(), lambda: log.append([it.next_entry()]))
        assert out.step(Tick(0), Effects(), lambda: log.truncate_from(last + 1))

        def replace() -> None:
            log.truncate_from(last)
            log.append([other])

        assert out.step(Tick(0), Effects(), replace)


@pytest.mark.parametrize(
    ("name", "value"),
    [("in_flight", [(1, 1)]), ("in_flight_bytes", 1), ("snapshot", "one"), ("match_index", 99), ("next_index", 99)],
)
def test_what_a_leader_knows_of_each_follower_is_looked_at(name: str, value: object) -> None:
    with scene() as it:
        out = Lookout(it.leader)
        assert not out.step(Tick(0), Effects())
        assert out.step(Tick(0), Effects(), set_to(it.leader.raft.progress[it.follower.name], name, value))


def test_nothing_is_judged_at_a_glance_while_term_or_vote_are_not_durable() -> None:
    with scene() as it:
        raft = it.follower.raft
        raft.hard_state_sequence = raft.durable_sequence + 1
        assert Lookout(it.follower).step(Tick(0), Effects())


def test_a_write_counts_as_durable_when_it_is_synced_and_not_before() -> None:
    with scene() as it:
        node, entry = it.follower, it.next_entry()
        write = persist([entry], hard_state=HardState(4, "n1"))
        node.pending.append(write)
        assert node.disk.last_index == entry.index - 1
        it.properties.on_sync(node.node, write.sequence - 1)
        assert node.disk.last_index == entry.index - 1
        it.properties.on_sync(node.node, write.sequence)
        assert (node.disk.last_index, node.disk.hard_state, node.spoken_term) == (entry.index, (4, "n1"), 4)
        assert (4, "n1") in node.votes
        assert not node.pending


def test_messages_that_say_no_more_than_judged_ones_are_not_judged_again() -> None:
    with scene() as it:
        judged: Counter[str] = Counter()
        it.properties._said.append(lambda node, to, message: judged.update([type(message).__name__]))
        it.world.run_for(20 * SECOND)
        assert judged["AppendEntriesResponse"] == 0
        assert 10 < judged["AppendEntries"] < 80, "each second the contact of a quorum is counted anew"
