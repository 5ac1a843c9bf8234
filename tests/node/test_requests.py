"""Whoever waits for anything of a leader hears one thing, and in time, whatever becomes of the leader (S44)."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.raft.core.configuration import Change, ChangeKind
from fencepost.raft.core.events import ReadReady, ReadRefused, Refused, Role, RoleChange, TransferEnded
from fencepost.raft.core.messages import AppendEntries
from fencepost.raft.node.requests import NEVER, Reads, Transfers
from fencepost.raft.ports import Wait

from .test_snapshots import Network
from .world import ELECTION_S, FakeConnection, World


class Sink:
    """``ReadSink``, ``TransferSink`` and ``ChangeSink`` that collects; hearing twice is an error."""

    def __init__(self) -> None:
        self.heard = ""

    def _hear(self, what: str) -> None:
        assert not self.heard, f"heard {self.heard}, then {what}"
        self.heard = what

    def ready(self) -> None:
        self._hear("ready")

    def refused(self, why: Any) -> None:
        self._hear(f"refused {why.code if isinstance(why, Refused) else why}".rstrip())

    def expired(self) -> None:
        self._hear("expired")

    def done(self, leader: str, term: int) -> None:
        self._hear(f"done {leader} {term}")

    def ended(self, reason: str) -> None:
        self._hear(f"ended {reason}")

    def unknown(self) -> None:
        self._hear("unknown")

    def committed(self, index: int, term: int) -> None:
        self._hear("committed")

    def lost(self) -> None:
        self._hear("lost")


# -- the whole node -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["term", "cut off", "step down", "disk", "stop"])
def test_s44_five_proposals_two_reads_a_transfer_and_a_change_all_end(how: str) -> None:
    with World(seed=1) as world:
        old = world.active_leader()
        world.settle()
        network = Network(world)
        # Nothing of this leader arrives any more: nothing is confirmed, nothing is committed.
        network.drops = lambda source, to, message: source == old.name
        connection = FakeConnection()
        proposals = world.submit(old, *"abcde", wait=Wait.COMMITTED, connection=connection)
        reads, transfer, change = [Sink(), Sink()], Sink(), Sink()
        world.advance(0.001)
        for read in reads:
            old.loop.read(read)
        victim = next(name for name in world.voters if name != old.name)
        old.loop.change_configuration([Change(ChangeKind.REMOVE, victim)], change)
        old.loop.transfer_leadership("", transfer)
        world.advance(0.002)
        waiting = [*reads, transfer, change]
        assert not [sink.heard for sink in waiting if sink.heard]
        assert not connection.answers
        match how:
            case "term":
                term = old.raft.current_term + 1
                old.loop.receive(victim, AppendEntries(term, 0, 0, 0, 0, []))
            case "cut off":
                world.isolate(old.name)
            case "step down":
                old.loop.step_down("for the test")
            case "disk":
                old.log_store.stick()
            case "stop":
                old.loop.stop()
        world.until(lambda: all(sink.heard for sink in waiting), within_s=8 * ELECTION_S, what="an end for everybody")
        world.until(lambda: all(request in connection.answers for request in proposals), within_s=4 * ELECTION_S)
        assert {sink.heard.split()[0] for sink in reads} == {"refused"}
        assert change.heard in ("unknown", "lost")
        assert transfer.heard.split()[0] in ("done", "unknown")
        for request in proposals:
            assert connection.only(request).code in ("OUTCOME_UNKNOWN", "LEADERSHIP_LOST")
        world.advance(4 * ELECTION_S)
        assert (len(old.loop.waiters), len(old.loop.reads), len(old.loop.transfers)) == (0, 0, 0)


def test_s44_step_downs_leave_nothing_behind_at_a_node() -> None:
    with World(voters=("n1",), seed=2) as world:
        leader = world.active_leader()
        sinks: list[Sink] = []
        for number in range(100):
            world.until(lambda: leader.leads)
            world.submit(leader, f"op{number}", wait=Wait.COMMITTED)
            for ask in (
                leader.loop.read,
                lambda sink: leader.loop.transfer_leadership("", sink),
                lambda sink: leader.loop.change_configuration([Change(ChangeKind.REMOVE, "n9")], sink),
            ):
                sinks.append(Sink())
                ask(sinks[-1])
            leader.loop.step_down("for the test")
            world.until(lambda: not leader.leads)
        world.until(lambda: leader.leads)
        world.advance(2.0)
        assert all(sink.heard for sink in sinks)
        assert (len(leader.loop.waiters), len(leader.loop.reads), len(leader.loop.transfers)) == (0, 0, 0)
        assert not leader.raft.pending_reads
        assert not leader.loop._inbox
        assert not leader.raft.forwarded_reads


def test_questions_to_a_node_that_has_stopped_are_refused_at_once() -> None:
    with World(seed=3) as world:
        leader = world.active_leader()
        leader.loop.stop()
        sinks = [Sink(), Sink(), Sink()]
        leader.loop.read(sinks[0])
        leader.loop.transfer_leadership("", sinks[1])
        leader.loop.change_configuration([], sinks[2])
        assert [sink.heard for sink in sinks] == ["refused", "refused NOT_LEADER", "refused NOT_LEADER"]


def test_questions_that_a_node_has_not_put_yet_when_it_stops_are_refused() -> None:
    with World(seed=4) as world:
        leader = world.active_leader()
        sinks = [Sink(), Sink(), Sink()]
        leader.loop.read(sinks[0])
        leader.loop.transfer_leadership("", sinks[1])
        leader.loop.change_configuration([], sinks[2])
        leader.loop.stop()
        assert [sink.heard for sink in sinks] == ["refused", "refused NOT_LEADER", "refused NOT_LEADER"]


# -- the waiters alone --------------------------------------------------------------------------------


def test_s44_ten_thousand_step_downs_leave_no_read_and_no_transfer_behind() -> None:
    reads, transfers = Reads(), Transfers()
    sinks: list[Sink] = []
    for number in range(10_000):
        asked = [Sink() for _ in range(4)]
        for read in asked[:3]:
            reads.ask(read, lease=False, expires_at=number + 5)
        transfers.begun(asked[3], number + 5)
        sinks += asked
        answered, confirmed, _ = reads.take_asked(False)
        reads.answered([ReadRefused(answered, "NOT_LEADER", ""), ReadReady(confirmed, 2 * number + 2)], 2 * number)
        match number % 3:
            case 0:
                transfers.role_changed(RoleChange(Role.FOLLOWER, number, "n2", ""), "n1")
                reads.applied(2 * number + 2)
            case 1:
                transfers.role_changed(RoleChange(Role.FOLLOWER, number, "", ""), "n1")
        reads.expire(number)
        transfers.expire(number)
        assert len(reads) <= 20
        assert len(transfers) <= 10
    reads.applied(100_000)
    reads.expire(20_000)
    transfers.expire(20_000)
    assert (len(reads), len(transfers)) == (0, 0)
    assert (reads.deadline(), transfers.deadline()) == (NEVER, NEVER)
    assert not reads._confirmed
    assert all(sink.heard for sink in sinks)


def test_a_read_is_ready_once_its_index_is_applied_and_not_before() -> None:
    reads = Reads()
    early, late, never = Sink(), Sink(), Sink()
    for sink in (early, late, never):
        reads.ask(sink, lease=False, expires_at=100)
    one, two, three = reads.take_asked(False)
    assert reads.take_asked(False) == []
    reads.answered([ReadReady(one, 5), ReadReady(two, 7)], 5)
    assert (early.heard, late.heard) == ("ready", "")
    reads.applied(6)
    assert late.heard == ""
    reads.applied(7)
    assert late.heard == "ready"
    assert reads.deadline() == 100
    reads.expire(99)
    assert never.heard == ""
    reads.expire(100)
    assert never.heard == "expired"
    reads.answered([ReadReady(three, 1)], 7)  # Too late: nobody waits.
    assert never.heard == "expired"


def test_a_read_that_expires_while_it_waits_for_its_index_is_not_ready_later() -> None:
    reads, sink = Reads(), Sink()
    reads.ask(sink, lease=True, expires_at=100)
    assert reads.take_asked(False) == []
    (request_id,) = reads.take_asked(True)
    reads.answered([ReadReady(request_id, 9)], 5)
    reads.expire(100)
    reads.applied(9)
    assert sink.heard == "expired"
    assert not reads._confirmed


def test_a_read_asked_within_another_ones_answer_is_one_of_its_own() -> None:
    reads, inner = Reads(), Sink()

    class Asking(Sink):
        def ready(self) -> None:
            super().ready()
            reads.ask(inner, lease=False, expires_at=200)

    for sink in (Asking(), Sink()):
        reads.ask(sink, lease=False, expires_at=100)
    first, second = reads.take_asked(False)
    reads.answered([ReadReady(first, 1), ReadReady(second, 1)], 1)
    (third,) = reads.take_asked(False)
    reads.answered([ReadReady(third, 1)], 1)
    assert inner.heard == "ready"


@pytest.mark.parametrize(
    ("change", "heard"),
    [
        (RoleChange(Role.FOLLOWER, 4, "n2", ""), "done n2 4"),
        (RoleChange(Role.LEADER, 4, "n1", ""), "ended nobody else was elected"),
        (RoleChange(Role.PRE_CANDIDATE, 4, "", ""), ""),
    ],
)
def test_a_transfer_ends_with_whoever_leads(change: RoleChange, heard: str) -> None:
    transfers, sink = Transfers(), Sink()
    transfers.begun(sink, 100)
    transfers.role_changed(change, "n1")
    assert sink.heard == heard


def test_all_who_wait_for_a_transfer_hear_of_its_end_each_by_its_own_deadline() -> None:
    transfers, one, other = Transfers(), Sink(), Sink()
    transfers.begun(one, 50)
    transfers.begun(other, 100)
    assert transfers.deadline() == 50
    transfers.expire(50)
    assert (one.heard, other.heard) == ("unknown", "")
    transfers.ended(TransferEnded("n2", "too slow"))
    assert other.heard == "ended too slow"
