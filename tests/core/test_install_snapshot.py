"""The follower's side of a snapshot, and both together (thesis section 5.3)."""

from __future__ import annotations

import pytest

from fencepost.jepsen.cores.parts import SnapshotTimes
from fencepost.jepsen.cores.world import World
from fencepost.raft.core.configuration import Configuration, encode_configuration
from fencepost.raft.core.entry import Entry, EntryKind, Snapshot
from fencepost.raft.core.events import (
    Accepted,
    ChunkStored,
    Role,
    SnapshotReceived,
    SnapshotTaken,
    SnapshotUnusable,
    StoreChunk,
)
from fencepost.raft.core.messages import (
    AppendEntries,
    AppendEntriesResponse,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    RequestVoteResponse,
)
from fencepost.raft.core.options import MILLISECOND, SECOND, Options

from .lone import THREE, Lone, entries, entry, label

FIVE_FOUR = Configuration(("n1", "n4", "n5"))
GIVEN = label(10, 3, FIVE_FOUR, configuration_index=8, size_bytes=10, checksum=7)
PLAIN = GIVEN._replace(configuration=Configuration(THREE), configuration_index=0)
"""Of a cluster that has always had the same members."""


def part(
    lone: Lone, offset: int, data: bytes, snapshot: Snapshot = GIVEN, *, term: int = 3, sent_at: int = 7
) -> list[Message]:
    return lone.receive("n2", InstallSnapshot(term, snapshot, offset, data, sent_at))


def stored(lone: Lone, offset: int, snapshot: Snapshot = GIVEN) -> list[Message]:
    start = len(lone.visible)
    lone.step(ChunkStored(lone.now, snapshot, offset))
    return [send.message for send in lone.visible[start:]]


def received(lone: Lone, snapshot: Snapshot = GIVEN) -> list[Message]:
    start = len(lone.visible)
    lone.step(SnapshotReceived(lone.now, snapshot))
    return [send.message for send in lone.visible[start:]]


def partial(offset: int, sent_at: int = 7, term: int = 3, last_index: int = 10) -> InstallSnapshotResponse:
    return InstallSnapshotResponse(term, last_index, offset, False, sent_at, SECOND)


def behind(*terms: int, commit_index: int = 0, options: Options | None = None) -> Lone:
    return Lone(term=3, log=entries(*terms), commit_index=commit_index, options=options)


def test_parts_are_stored_one_after_another_and_answered_when_they_are() -> None:
    lone = behind()
    assert part(lone, 0, b"0123") == []
    assert stored(lone, 4) == [partial(4)]
    assert part(lone, 4, b"4567", sent_at=8) == []
    assert stored(lone, 8) == [partial(8, sent_at=8)]
    assert part(lone, 8, b"89", sent_at=9) == []
    assert lone.stores == [
        StoreChunk(GIVEN, 0, b"0123", False),
        StoreChunk(GIVEN, 4, b"4567", False),
        StoreChunk(GIVEN, 8, b"89", True),
    ]
    assert received(lone) == [InstallSnapshotResponse(3, 10, 10, True, 9, SECOND)]
    assert lone.restored == [GIVEN]
    raft = lone.raft
    assert (raft.commit_index, raft.apply_reported, raft.durable_index) == (10, 10, 10)
    assert (raft.log.previous_index, raft.log.last_index, raft.configuration) == (10, 10, FIVE_FOUR)
    assert lone.configurations == [FIVE_FOUR]
    assert lone.writes[-1].reset == GIVEN
    assert raft.incoming is None


def test_a_part_that_is_no_longer_or_not_yet_wanted_is_answered_with_the_place_that_is() -> None:
    lone = behind()
    assert part(lone, 4, b"4567") == [partial(0)]  # Begun before this node was started.
    assert lone.stores == []
    part(lone, 0, b"0123")
    assert part(lone, 0, b"0123", sent_at=8) == []  # Being stored; its answer will do for both.
    assert stored(lone, 4) == [partial(4, sent_at=8)]
    assert part(lone, 0, b"0123", sent_at=9) == [partial(4, sent_at=9)]
    assert part(lone, 8, b"89", sent_at=10) == [partial(4, sent_at=10)]
    assert len(lone.stores) == 1


def test_another_leader_goes_on_with_the_same_snapshot() -> None:
    lone = behind()
    part(lone, 0, b"0123")
    lone.receive("n3", InstallSnapshot(4, GIVEN, 0, b"0123", 70))
    lone.settle()
    assert stored(lone, 4) == [partial(4, sent_at=70, term=4)]
    assert lone.visible[-1].to == "n3"


def test_the_answer_goes_to_the_present_leader_or_to_nobody() -> None:
    lone = behind()
    part(lone, 0, b"0123")
    lone.append(4, (0, 0), source="n3")
    lone.settle()
    lone.take()
    assert stored(lone, 4) == []
    assert received(lone) == []
    assert lone.restored == [GIVEN]  # It is the cluster's, whoever has sent it.


def test_another_snapshot_takes_the_place_of_one_that_is_under_way() -> None:
    lone = behind()
    newer = GIVEN._replace(last_index=20)
    part(lone, 0, b"0123")
    assert part(lone, 4, b"4567", newer) == [partial(0, last_index=20)]
    part(lone, 0, b"abcd", newer)
    assert stored(lone, 4) == []  # Of the one before.
    assert stored(lone, 4, newer) == [partial(4, last_index=20)]


def test_the_end_of_one_snapshot_does_not_stop_the_next() -> None:
    lone = behind()
    newer = GIVEN._replace(last_index=20)
    part(lone, 0, b"0123456789")
    part(lone, 0, b"abcd", newer)
    assert received(lone) == []
    assert lone.restored == [GIVEN]
    assert stored(lone, 4, newer) == [partial(4, last_index=20)]


def test_a_damaged_snapshot_begins_anew() -> None:
    lone = behind()
    part(lone, 0, b"0123456789")
    lone.step(SnapshotUnusable(lone.now, GIVEN._replace(last_index=9)))
    assert lone.raft.incoming is not None
    lone.step(SnapshotUnusable(lone.now, GIVEN))
    assert lone.raft.incoming is None
    assert part(lone, 8, b"89") == [partial(0)]
    part(lone, 0, b"0123")
    assert len(lone.stores) == 2


def test_answers_of_the_store_that_come_too_late_change_nothing() -> None:
    lone = behind()
    part(lone, 0, b"0123")
    lone.step(SnapshotUnusable(lone.now, GIVEN))
    assert stored(lone, 4) == []
    lone.step(SnapshotUnusable(lone.now, GIVEN))
    assert (lone.raft.incoming, lone.restored) == (None, [])
    assert received(lone) == []  # Nobody asked for an answer, but it is there, whole and newer than all here.
    assert lone.restored == [GIVEN]


def test_a_late_part_of_an_earlier_snapshot_does_not_stop_the_one_that_is_under_way() -> None:
    lone = behind(*[1] * 5, commit_index=5)
    earlier = label(4, 1, size_bytes=10)
    part(lone, 0, b"0123")
    assert part(lone, 4, b"4567", earlier) == [InstallSnapshotResponse(3, 4, 10, True, 7, SECOND)]
    assert stored(lone, 4) == [partial(4)]
    # What the log has caught up with meanwhile is let go.
    lone.append(3, (5, 1), entries(*[3] * 6, start=6), commit=11)
    lone.settle()
    part(lone, 4, b"4567")
    assert lone.raft.incoming is None


def test_a_newer_snapshot_takes_the_place_of_the_one_that_is_here() -> None:
    lone = Lone(
        term=3, snapshot=label(4, 1), previous=(4, 1), log=entries(1, 1, start=5), options=Options(snapshot_bytes=100)
    )
    lone.append(3, (6, 1), [entry(7, 3, b"x" * 60)], commit=7)
    lone.settle()
    part(lone, 0, b"0123456789")
    received(lone)
    assert (lone.raft.snapshot, lone.restored) == (GIVEN, [GIVEN])
    lone.append(3, (10, 3), [entry(11, 3, b"x" * 60)], commit=11)
    lone.settle()
    assert lone.wanted == []  # What was applied before the snapshot is in it.


@pytest.mark.parametrize("term", [3, 4])
def test_a_part_makes_a_follower_of_its_source(term: int) -> None:
    lone = behind()
    lone.campaign()
    part(lone, 0, b"0123", term=term)
    assert (lone.raft.role, lone.raft.leader, lone.raft.current_term) == (Role.FOLLOWER, "n2", term)
    part(lone, 0, b"0123", term=term + 1)  # It was elected once more.
    assert (lone.raft.leader, lone.raft.current_term) == ("n2", term + 1)
    lone.receive("n3", InstallSnapshot(term + 2, GIVEN, 0, b"0123", 7))
    assert lone.raft.leader == "n3"


def test_a_part_of_a_later_term_ends_a_leadership() -> None:
    lone = Lone(term=1)
    lone.become_leader()
    part(lone, 0, b"0123", term=3)
    assert (lone.raft.role, lone.raft.leader) == (Role.FOLLOWER, "n2")
    assert len(lone.stores) == 1


def test_parts_renew_the_leader_and_those_of_an_earlier_term_do_not() -> None:
    lone = behind()
    lone.now += 5 * SECOND
    part(lone, 0, b"0123")
    assert (lone.raft.leader, lone.raft.last_leader_contact) == ("n2", lone.now)
    lone.now += SECOND // 2
    assert part(lone, 4, b"4567", term=2) == [partial(0)]
    assert lone.raft.last_leader_contact == lone.now - SECOND // 2


def test_a_snapshot_of_what_is_committed_here_is_in_place_already() -> None:
    lone = behind(*[1] * 12, commit_index=11)
    assert part(lone, 0, b"0123") == [InstallSnapshotResponse(3, 10, 10, True, 7, SECOND)]
    assert lone.stores == []


def test_what_is_committed_and_not_durable_here_is_in_place_once_it_is() -> None:
    lone = behind()
    lone.append(3, (0, 0), entries(*[1] * 9, 3), commit=10)
    lone.take()
    assert part(lone, 0, b"0123") == []
    assert lone.durable()[-1:] == [InstallSnapshotResponse(3, 10, 10, True, 7, SECOND)]


def test_two_leaders_in_a_term_are_seen() -> None:
    lone = Lone(term=1)
    lone.become_leader()
    with pytest.raises(AssertionError, match="two leaders in term 2"):
        lone.receive("n2", InstallSnapshot(2, GIVEN, 0, b"", 7))


# -- S15, S16, S27 --------------------------------------------------------------------------------------


def test_s15_conflicting_entry_at_the_snapshots_index_goes_with_all_that_follows() -> None:
    lone = behind(*[1] * 9, 2, 2, 2)
    part(lone, 0, b"0123456789")
    assert received(lone) == [InstallSnapshotResponse(3, 10, 10, True, 7, SECOND)]
    assert (lone.raft.log.last_index, lone.raft.log.last_term) == (10, 3)
    assert lone.append(3, (10, 3), entries(3, start=11)) == []
    assert lone.durable() == [AppendEntriesResponse(3, True, 11, 0, 0, 7, SECOND)]


def test_s15_log_that_has_the_snapshots_last_entry_keeps_what_follows() -> None:
    lone = behind(*[1] * 9, 3, 3, 3)
    part(lone, 0, b"0123456789", PLAIN)
    assert received(lone, PLAIN) == [InstallSnapshotResponse(3, 10, 10, True, 7, SECOND)]
    assert (lone.raft.log.first_index, lone.raft.log.last_index) == (1, 12)
    assert (lone.restored, lone.writes) == ([], [])
    assert (lone.raft.commit_index, lone.applied_to, lone.raft.snapshot) == (10, 10, PLAIN)


def test_s15_entries_on_their_way_to_the_disk_are_not_taken_for_what_replaced_them() -> None:
    """Writes from before the snapshot complete after it (S18)."""
    lone = behind()
    lone.append(3, (0, 0), entries(*[1] * 15))
    part(lone, 0, b"0123456789")
    received(lone)
    lone.append(3, (10, 3), entries(3, start=11))
    lone.durable(1)
    assert lone.raft.durable_index == 10
    assert lone.append(3, (11, 3)) == [AppendEntriesResponse(3, True, 10, 0, 0, 7, SECOND)]
    lone.durable(1)
    assert lone.durable(1) == [AppendEntriesResponse(3, True, 11, 0, 0, 7, SECOND)]


def test_s16_follower_commits_no_leftover_entries_behind_a_snapshot() -> None:
    lone = behind(*[1] * 19, *[2] * 6)
    snapshot = label(20, 3, size_bytes=1)
    part(lone, 0, b"x", snapshot)
    received(lone, snapshot)
    lone.append(3, (20, 3), commit=26)
    lone.settle()
    assert (lone.raft.commit_index, lone.applied_to, lone.raft.log.last_index) == (20, 0, 20)


def test_s16_leftover_entries_that_stay_behind_a_snapshot_are_not_committed_by_it() -> None:
    lone = Lone(term=4, log=[*entries(*[1] * 19, 3), *entries(*[3] * 5, start=21)], commit_index=1)
    snapshot = label(20, 3, size_bytes=1)
    part(lone, 0, b"x", snapshot, term=4)
    received(lone, snapshot)
    assert lone.raft.log.last_index == 25
    lone.append(4, (20, 3), commit=26)
    assert (lone.raft.commit_index, lone.applied_to) == (20, 20)


def test_s27_snapshot_replaces_every_configuration_that_it_covers() -> None:
    """n1 is the scenario's n2: {1,2,3} uncommitted at 12, then a snapshot in which it is a learner."""
    own = Entry(12, 2, EntryKind.CONFIGURATION, 0, encode_configuration(Configuration(THREE)))
    real = Configuration(("n2", "n4", "n5"), learners=("n1",))
    lone = Lone(configuration=Configuration(("n1", "n2")), term=2, log=[*entries(*[1] * 11), own])
    assert lone.raft.configuration == Configuration(THREE)
    snapshot = label(15, 4, real, configuration_index=13, size_bytes=1)
    part(lone, 0, b"x", snapshot, term=4)
    received(lone, snapshot)
    lone.settle()
    assert (lone.raft.configuration, lone.raft.configuration_index) == (real, 13)
    lone.take()
    lone.campaign()
    lone.advance(60 * SECOND)
    assert lone.take() == []
    # Nor after a start with what was durable.
    again = Lone(configuration=Configuration(("n1", "n2")), term=4, snapshot=snapshot, log=[*entries(*[1] * 11), own])
    assert again.raft.configuration == real
    again.campaign()
    assert again.raft.role is Role.FOLLOWER


@pytest.mark.parametrize("role", [Role.PRE_CANDIDATE, Role.CANDIDATE])
def test_s27_candidate_takes_a_snapshot_and_follows_the_members_in_it(role: Role) -> None:
    """Its disk has that snapshot now as its newest; a core with another would offer what is gone."""
    lone = behind()
    part(lone, 0, b"0123456789")
    if role is Role.CANDIDATE:
        lone.become_candidate()
    else:
        lone.advance(2 * SECOND)
    assert lone.raft.role is role
    assert received(lone) == []
    assert (lone.raft.role, lone.raft.snapshot, lone.restored) == (Role.FOLLOWER, GIVEN, [GIVEN])
    lone.receive("n3", RequestVoteResponse(lone.raft.current_term, True, ""))
    assert lone.raft.role is Role.FOLLOWER


def test_a_node_that_was_elected_meanwhile_keeps_its_log_and_its_count() -> None:
    lone = behind(*[1] * 9, 3)
    part(lone, 0, b"0123456789", PLAIN)
    lone.become_leader()
    received(lone, PLAIN)
    assert (lone.raft.role, lone.raft.commit_index, lone.raft.snapshot) == (Role.LEADER, 0, PLAIN)
    assert (lone.raft.log.first_index, lone.restored) == (1, [])
    lone.acknowledge("n2", 11)
    assert (lone.raft.commit_index, lone.applied_to) == (11, 11)


def test_a_node_that_joins_learns_the_members_from_a_snapshot_though_it_has_the_log() -> None:
    """The cluster has the members it began with, and no entry of the log names them."""
    lone = Lone(configuration=Configuration(()), term=3, log=entries(*[1] * 9, 3, 3))
    part(lone, 0, b"0123456789", PLAIN)
    received(lone, PLAIN)
    assert (lone.raft.log.last_index, lone.raft.commit_index) == (11, 10)
    assert lone.raft.configuration == Configuration(THREE)
    assert lone.configurations == [Configuration(THREE)]


def test_one_that_was_taken_here_meanwhile_and_is_newer_stays() -> None:
    lone = behind(*[1] * 9, 3, 3, commit_index=9, options=Options(snapshot_entries=5))
    part(lone, 0, b"0123456789")
    lone.append(3, (11, 3), commit=11)
    newest = lone.wanted[-1]
    assert newest.last_index == 9
    lone.step(SnapshotTaken(lone.now, newest))
    lone.append(3, (11, 3), entries(*[3] * 3, start=12), commit=14)
    lone.settle()
    newest = lone.wanted[-1]
    assert newest.last_index == 14
    lone.step(SnapshotTaken(lone.now, newest))
    received(lone)
    assert (lone.raft.snapshot, lone.restored) == (newest, [])


# -- S36, and everything together -----------------------------------------------------------------------

TIMEOUT = 150 * MILLISECOND
QUICK = Options(
    election_timeout=TIMEOUT,
    heartbeat_interval=40 * MILLISECOND,
    stall_bound=TIMEOUT,
    commit_notice_delay=5 * MILLISECOND,
    chunk_timeout=TIMEOUT,
    chunk_bytes=1,
    snapshot_entries=20,
    retained_entries=0,
)


def behind_a_snapshot(times: SnapshotTimes) -> World:
    """n1 leads and has cut off its log; n3 has missed all of it and is back."""
    world = World(seed=1, options=QUICK)
    world.elect("n1")
    world.isolate("n3")
    for number in range(30):
        assert isinstance(world.propose("n1", b"%d" % number), Accepted)
        world.run_for(5 * MILLISECOND)
    world.run_for(TIMEOUT)
    assert world.raft("n1").log.first_index > world.raft("n3").log.last_index + 1
    world.snapshot_times = times
    world.heal()
    return world


def test_a_follower_gets_a_snapshot_and_what_follows() -> None:
    world = behind_a_snapshot(SnapshotTimes())
    world.propose("n1", b"after")
    world.run_until(
        lambda: world.nodes["n3"].applied_to == world.raft("n1").log.last_index, within=10 * TIMEOUT, what="n3 has all"
    )
    assert world.nodes["n3"].machine.digest == world.nodes["n1"].machine.digest
    assert world.raft("n3").snapshot == world.raft("n1").snapshot


def test_s36_slow_snapshot_stops_no_heartbeats() -> None:
    """Every part takes a third of a timeout; there are as many as the snapshot has bytes."""
    world = behind_a_snapshot(SnapshotTimes(TIMEOUT // 3, TIMEOUT // 3))
    term = world.raft("n1").current_term
    heard = {"n2": world.now, "n3": world.now}
    gaps: list[int] = []
    offsets: list[int] = []

    def watch(source: str, to: str, message: Message) -> None:
        if source == "n1" and isinstance(message, AppendEntries):
            gaps.append(world.now - heard[to])
            heard[to] = world.now
        if isinstance(message, InstallSnapshot):
            offsets.append(message.offset)

    world.on_message = watch
    world.run_until(lambda: world.nodes["n3"].applied_to > 20, within=60 * TIMEOUT, what="n3 has the snapshot")
    assert offsets == list(range(len(offsets)))
    assert len(offsets) > 10
    assert max(gaps) < 2 * QUICK.heartbeat_interval
    assert (world.leader(), world.raft("n1").current_term) == ("n1", term)
    assert len(world.checks.leaders) == 1


def test_s36_snapshot_goes_on_where_it_was_cut() -> None:
    """A cut of two timeouts, and then another leader: no byte is sent twice but the one under way."""
    world = behind_a_snapshot(SnapshotTimes(1 * MILLISECOND, 1 * MILLISECOND))
    offsets: list[int] = []
    world.on_message = lambda source, to, message: (
        offsets.append(message.offset) if isinstance(message, InstallSnapshot) else None
    )
    world.run_until(lambda: len(offsets) == 5, within=5 * TIMEOUT, what="some parts are sent")
    world.cut("n1", "n3")
    world.run_for(TIMEOUT // 2)
    world.heal()
    world.run_until(lambda: world.nodes["n3"].applied_to > 20, within=20 * TIMEOUT, what="n3 has the snapshot")
    size = world.raft("n3").snapshot
    assert size is not None
    assert sorted(set(offsets)) == list(range(size.size_bytes))
    assert len(offsets) - len(set(offsets)) <= 2


def test_s15_follower_gets_a_snapshot_though_new_ones_are_taken_faster_than_one_can_be_sent() -> None:
    """Two are kept. A third would take the one that is being sent away, again and again."""
    world = World(seed=1, options=QUICK)
    world.snapshots_kept = (2, 2)
    world.elect("n1")
    world.isolate("n3")

    def write() -> None:
        if world.leader() is not None:
            world.propose(world.leader() or "", b"x")
        world.after(4 * MILLISECOND, write)

    write()
    world.run_for(4 * TIMEOUT)
    world.snapshot_times = SnapshotTimes(1 * MILLISECOND, 4 * MILLISECOND)
    world.heal()
    world.run_until(lambda: world.installed == 1, within=10 * TIMEOUT, what="n3 has a snapshot")
    world.run_for(2 * TIMEOUT)
    assert world.raft("n1").log.last_index - world.nodes["n3"].applied_to < 20
    assert world.installed == 1
    taken = world.taken
    world.run_for(2 * TIMEOUT)
    assert world.taken > taken + 3  # And they go on.


def test_s15_exactly_one_snapshot_is_sent() -> None:
    world = behind_a_snapshot(SnapshotTimes())
    sent: set[tuple[str, Snapshot]] = set()
    installed: list[Message] = []

    def watch(source: str, to: str, message: Message) -> None:
        if isinstance(message, InstallSnapshot):
            sent.add((to, message.snapshot))
        if isinstance(message, InstallSnapshotResponse) and message.installed:
            installed.append(message)

    world.on_message = watch
    world.run_for(30 * TIMEOUT)
    assert len(sent) == len(installed) == 1
    assert world.raft("n3").log.last_index == world.raft("n1").log.last_index
