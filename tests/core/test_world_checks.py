"""The checks of the world of cores: each one fails on what it is for."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import pytest

from fencepost.jepsen.cores.checks import ClusterChecks
from fencepost.jepsen.cores.disk import Disk
from fencepost.jepsen.cores.machine import Machine
from fencepost.jepsen.cores.members import MemberChecks
from fencepost.jepsen.cores.parts import Node, Violation
from fencepost.jepsen.cores.reads import Reads
from fencepost.jepsen.cores.snapshot_disk import SnapshotDisk
from fencepost.jepsen.cores.spoken import check_spoken
from fencepost.jepsen.cores.world import World
from fencepost.raft.core.configuration import Configuration, encode_configuration
from fencepost.raft.core.entry import Entry, EntryKind, HardState
from fencepost.raft.core.events import Persist, ReadReady, ReadRefused, Role
from fencepost.raft.core.invariants import summarize
from fencepost.raft.core.messages import (
    AppendEntriesResponse,
    InstallSnapshotResponse,
    Message,
    RequestVote,
    RequestVoteResponse,
)
from fencepost.raft.core.options import SECOND
from fencepost.raft.core.state import RaftState

from .lone import THREE, Lone, entries, entry, label


def nodes_of(names: Iterable[str] = THREE) -> dict[str, Node]:
    return {name: Node(name, Configuration(THREE)) for name in names}


def leader() -> RaftState:
    """n1 leads term 3 with three committed entries and two more."""
    lone = Lone(term=2, log=entries(1, 2), commit_index=2)
    lone.become_leader()
    lone.propose(b"x", b"y")
    lone.settle()
    lone.acknowledge("n2", 3)
    return lone.raft


def see(checks: ClusterChecks, name: str, raft: RaftState, was: Role, commit_was: int = 0) -> None:
    before = summarize(raft)._replace(role=was, commit_index=commit_was)
    checks.after_step(name, before, raft, raft.log.slice(1, raft.log.last_index))


def test_votes_are_looked_for_on_the_disks() -> None:
    nodes = nodes_of()
    checks = ClusterChecks(nodes)
    nodes["n1"].disk.votes[3] = "n1"
    with pytest.raises(AssertionError, match=r"n1 leads term 3 with votes on the disks of \['n1'\] only"):
        see(checks, "n1", leader(), Role.CANDIDATE)
    nodes["n2"].disk.votes[3] = "n1"
    see(checks, "n1", leader(), Role.CANDIDATE)
    assert [item.index for item in checks.committed] == [1, 2, 3]


def test_two_leaders_lost_and_conflicting_entries_are_seen() -> None:
    nodes = nodes_of()
    checks = ClusterChecks(nodes)
    for name in ("n1", "n3"):
        nodes[name].disk.votes |= {3: "n1", 8: "n2"}
    see(checks, "n1", leader(), Role.CANDIDATE)
    with pytest.raises(AssertionError, match="election safety: n2 and n1 both led term 3"):
        see(checks, "n2", leader(), Role.CANDIDATE)
    with pytest.raises(AssertionError, match="log matching"):
        checks.after_step("n2", summarize(leader()), leader(), [entry(5, 3, b"other")])
    short = Lone(voters=("n1",), term=7, log=entries(1))
    short.campaign()
    short.durable()
    assert short.raft.role is Role.LEADER
    with pytest.raises(AssertionError, match="leader completeness: n2 leads term 8 without"):
        checks.after_step("n2", summarize(short.raft)._replace(role=Role.CANDIDATE), short.raft, [])
    short.settle()
    with pytest.raises(AssertionError, match="state machine safety: n2 committed"):
        checks.after_step("n2", summarize(short.raft), short.raft, [])
    with pytest.raises(AssertionError, match=r"n3 applied .*, which is not committed"):
        checks.check_applied("n3", entry(4, 3))


def test_copies_are_looked_for_on_the_disks_of_both_halves() -> None:
    nodes = nodes_of(("n1", "n2", "n3", "n4"))
    checks = ClusterChecks(nodes)
    raft = leader()
    nodes["n1"].disk.entries = raft.log.slice(1, 5)
    with pytest.raises(AssertionError, match=r"n1 committed 3 of term 3, which is on the disks of \['n1'\] only"):
        see(checks, "n1", raft, Role.LEADER, commit_was=2)
    nodes["n2"].snapshots.kept = [(label(3, 3), b"")]  # In a snapshot is safe, too.
    see(checks, "n1", raft, Role.LEADER, commit_was=2)
    joint = Configuration(("n1", "n4"), outgoing=THREE)
    before = summarize(raft)._replace(commit_index=2, configuration=joint)
    with pytest.raises(AssertionError, match=r"only, of the voters \('n1', 'n4'\)"):
        checks.after_step("n1", before, raft, [])


def test_a_node_that_lost_what_it_had_applied_is_seen() -> None:
    nodes = nodes_of()
    checks = ClusterChecks(nodes)
    checks.committed = entries(1, 1, 1)
    for item in checks.committed:
        checks.check_applied("n1", item)
    nodes["n1"].raft = Lone(log=entries(1, 1)).raft
    with pytest.raises(AssertionError, match="n1 had applied 3 and starts with a log to 2"):
        checks.restarted(nodes["n1"])
    nodes["n1"].raft = Lone(log=entries(1, 1, 2)).raft
    with pytest.raises(AssertionError, match=r"n1 had applied .* and starts with"):
        checks.restarted(nodes["n1"])


def test_a_snapshot_of_what_nobody_has_committed_is_seen() -> None:
    checks = ClusterChecks(nodes_of())
    raft = Lone(snapshot=label(5, 1), previous=(5, 1)).raft
    with pytest.raises(AssertionError, match="committed 5 by a snapshot of what nobody has committed"):
        checks.after_step("n1", summarize(raft)._replace(commit_index=0), raft, [])


@pytest.mark.parametrize("what", ["ahead", "term", "time", "state", "configuration"])
def test_a_label_that_is_not_of_the_history_is_seen(what: str) -> None:
    checks = ClusterChecks(nodes_of())
    checks.members.began = Configuration(THREE)
    four = Configuration(("n1", "n2", "n3", "n4"))
    checks.committed = [
        entry(1, 1),
        Entry(2, 1, EntryKind.CONFIGURATION, 5, encode_configuration(four)),
        Entry(3, 2, EntryKind.EMBEDDED, 9, b"x"),
    ]
    machine = Machine()
    for item in checks.committed:
        machine.apply(item)
        checks.digests.append(machine.digest)
        checks.members.check_committed(item)
    good = label(3, 2, four, last_time_ns=9, configuration_index=2)
    checks.check_label("n1", good, machine)
    bad = {
        "ahead": good._replace(last_index=4),
        "term": good._replace(last_term=1),
        "time": good._replace(last_time_ns=5),
        "state": good,
        "configuration": good._replace(configuration=Configuration(THREE)),
    }[what]
    if what == "state":
        machine.apply(entry(4, 2))
    with pytest.raises(AssertionError, match="n1 has"):
        checks.check_label("n1", bad, machine)


# -- members --------------------------------------------------------------------------------------------


def configuration_entry(index: int, term: int, *voters: str) -> Entry:
    return Entry(index, term, EntryKind.CONFIGURATION, 0, encode_configuration(Configuration(voters)))


def test_two_changes_at_once_and_one_before_the_term_has_begun_are_seen() -> None:
    checks = MemberChecks()
    first, second = configuration_entry(2, 2, "n1", "n2"), configuration_entry(3, 2, "n1")
    one = Lone(term=2, log=[entry(1, 2), first, second], commit_index=1)
    checks.check_appended("n1", first, one.raft)
    with pytest.raises(AssertionError, match="n1 changed the members at 2 and 3 at once"):
        checks.check_appended("n1", second, one.raft)
    early = Lone(term=2, log=[entry(1, 1), entry(2, 2), configuration_entry(3, 2, "n1", "n2")], commit_index=1)
    with pytest.raises(AssertionError, match="before it had committed in 2"):
        checks.check_appended("n1", early.raft.log.entry(3), early.raft)


def test_members_that_come_back_and_quorums_that_do_not_meet_are_seen() -> None:
    checks = MemberChecks()
    checks.began = Configuration(THREE)
    checks.check_committed(configuration_entry(1, 1, "n1", "n2"))
    with pytest.raises(AssertionError, match=r"\['n3'\] were removed and are members again at 2"):
        checks.check_committed(configuration_entry(2, 1, "n1", "n2", "n3"))
    other = MemberChecks()
    other.began = Configuration(THREE)
    with pytest.raises(AssertionError, match="decide in"):
        other.check_committed(configuration_entry(1, 1, "n3", "n4", "n5"))


# -- disks ----------------------------------------------------------------------------------------------


def test_a_disk_remembers_its_votes_and_takes_no_second_one() -> None:
    disk = Disk()
    disk.ask(Persist(1, HardState(4, "n3"), 0, [], 0))
    disk.complete()
    disk.ask(Persist(2, HardState(4, "n2"), 0, [], 0))
    with pytest.raises(AssertionError, match="voted for n2 and n3 in term 4"):
        disk.complete()
    disk.ask(Persist(3, HardState(3, ""), 0, [], 0))
    with pytest.raises(AssertionError, match="term 3 written over 4"):
        disk.complete()


def test_a_disk_resets_and_compacts() -> None:
    disk = Disk()
    disk.ask(Persist(1, None, 0, entries(1, 1, 1), 2))
    disk.ask(Persist(2, None, 0, [entry(4, 2)], 3, compact_to=3))
    disk.complete()
    disk.complete()
    disk.compact()
    assert (disk.previous_index, disk.previous_term, disk.entries) == (3, 1, [entry(4, 2)])
    assert [disk.term_at(index) for index in (2, 3, 4, 5)] == [-1, 1, 2, -1]
    disk.ask(Persist(3, None, 0, [entry(10, 3)], 9, reset=label(9, 2)))
    disk.complete()
    assert (disk.previous_index, disk.previous_term, disk.entries) == (9, 2, [entry(10, 3)])
    disk.ask(Persist(4, None, 9, [], 9))
    with pytest.raises(AssertionError, match="truncation at 9"):
        disk.complete()
    disk.ask(Persist(5, None, 0, [entry(12, 3)], 9))
    with pytest.raises(AssertionError, match="written after"):
        disk.complete()


@pytest.mark.parametrize("kept", range(5))
def test_a_torn_write_keeps_its_first_parts(kept: int) -> None:
    disk = Disk()
    disk.entries = entries(1, 1)
    disk.ask(Persist(1, HardState(5, "n2"), 2, [entry(2, 5)], 2))
    answers = iter([0, 1, kept])
    disk.crash(lambda low, high: next(answers))
    terms = [item.term for item in disk.entries]
    assert (terms, disk.hard_state.term, disk.commit_index) == (
        [1] if 0 < kept < 4 else [1, 1] if kept == 0 else [1, 5],
        5 if kept > 2 else 0,
        0,
    )


def test_a_snapshot_is_kept_whole_or_not_at_all() -> None:
    disk = SnapshotDisk()
    data = b"0123456789"
    whole = label(7, 2, size_bytes=10, checksum=zlib.crc32(data))
    assert disk.store(whole, 0, data[:4]) == 4
    assert disk.store(whole, 6, data[6:]) == 4  # Another place than the next one.
    assert disk.take_partial(whole) is None
    assert disk.store(whole, 0, data) == 10
    assert disk.take_partial(whole) == data
    assert disk.take_partial(whole) is None
    disk.store(whole, 0, b"0123456780")
    assert disk.take_partial(whole) is None  # Damaged.
    disk.publish(whole, data, keep=1)
    assert (disk.newest, disk.last_index, disk.contents(whole)) == (whole, 7, data)
    disk.publish(label(5, 2), b"", keep=1)
    assert disk.newest == whole
    disk.store(label(9, 2), 0, b"x")
    disk.publishing = (label(9, 2), b"x")
    disk.crash(published=False)
    assert (disk.newest, disk.partial) == (whole, None)


@pytest.mark.parametrize(
    "message",
    [
        RequestVote(5, 0, 0, False),
        RequestVoteResponse(5, True, ""),
        AppendEntriesResponse(4, True, 3, 0, 0, 0),
        AppendEntriesResponse(6, False, 3, 0, 0, 0),
        InstallSnapshotResponse(4, 3, 10, True, 0),
    ],
)
def test_words_that_the_disk_does_not_back(message: Message) -> None:
    disk = Disk()
    disk.hard_state = HardState(4, "n3")
    disk.entries = entries(1, 4)
    with pytest.raises(AssertionError, match="on its disk"):
        check_spoken("n1", "n2", message, disk)
    check_spoken("n1", "n2", AppendEntriesResponse(4, True, 2, 0, 0, 0), disk)
    check_spoken("n1", "n2", InstallSnapshotResponse(4, 3, 10, True, 0), disk, snapshot_index=3)


# -- reads and leases -----------------------------------------------------------------------------------


def test_stale_reads_and_answers_that_nobody_waits_for_are_seen() -> None:
    checks = ClusterChecks(nodes_of())
    checks.committed = entries(1, 1, 1)
    reads = Reads()
    request_id = reads.begin("n1", checks)
    with pytest.raises(AssertionError, match="stale read: n1 reads at 2"):
        reads.answered("n1", leader(), [ReadReady(request_id, 2)])
    with pytest.raises(AssertionError, match="which nobody waits for"):
        reads.answered("n1", leader(), [ReadReady(request_id, 3)])
    checks.leaders[4] = "n2"
    request_id = reads.begin("n1", checks)
    with pytest.raises(AssertionError, match="leader of term 3, confirmed a read"):
        reads.answered("n1", leader(), [ReadReady(request_id, 3)])
    request_id = reads.begin("n1", checks)
    with pytest.raises(AssertionError, match="n1 keeps the reads"):
        reads.check_kept("n1", leader())
    reads.answered("n1", leader(), [ReadRefused(request_id, "NOT_LEADER", "")])
    reads.check_kept("n1", leader())
    assert (reads.ready, reads.refused) == (2, 1)


def test_an_old_leader_with_a_lease_is_seen() -> None:
    world = World()
    world.elect("n1")
    world.run_for(2 * SECOND)
    world.raft("n2").current_term = 9
    with pytest.raises(AssertionError, match="n2 leads term 9 while n1 holds the lease of term 1"):
        world._check_leases(world.nodes["n2"])


def test_a_state_that_differs_in_the_end_is_seen() -> None:
    machine = Machine()
    machine.apply(entry(1, 1))
    with pytest.raises(AssertionError, match="entry 3 applied to the state of 1"):
        machine.apply(entry(3, 1))
    other = Machine()
    other.restore(machine.contents())
    assert (other.last_index, other.digest) == (1, machine.digest)
    other.apply(entry(2, 1))
    machine.apply(entry(2, 2))
    assert other.digest != machine.digest


def test_clocks_drift_and_come_back_to_the_same_time() -> None:
    node = Node("n1", Configuration(THREE))
    for ppm in (0, 25_000, -25_000):
        node.clock_ppm, node.clock_offset = ppm, 12345
        for time in (0, 1, 999_999, 7 * SECOND + 13):
            assert node.clock(node.time_of(node.clock(time))) == node.clock(time)
            assert node.time_of(node.clock(time)) <= time
    assert node.clock(SECOND) == 12345 + SECOND - SECOND // 40


def test_a_world_starts_what_it_adds_as_nobodys_member() -> None:
    world = World()
    world.add("n4")
    assert world.raft("n4").configuration == Configuration(())
    world.run_for(5 * SECOND)
    assert (world.raft("n4").current_term, world.raft("n4").log.last_index) == (0, 0)
    with pytest.raises(Violation, match="not within"):
        world.run_until(lambda: False, within=1, what="never")
