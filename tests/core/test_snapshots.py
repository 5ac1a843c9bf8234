"""Taking snapshots, cutting the log off, and starting with both (thesis section 5.1)."""

from __future__ import annotations

import pytest

from fencepost.raft.core.configuration import Change, ChangeKind, Configuration, encode_configuration
from fencepost.raft.core.entry import Entry, EntryKind, HardState, Snapshot
from fencepost.raft.core.events import ChunkUnavailable, SnapshotNotTaken, SnapshotTaken
from fencepost.raft.core.log import OlderEntries
from fencepost.raft.core.messages import AppendEntries, AppendEntriesResponse
from fencepost.raft.core.options import SECOND, Options
from fencepost.raft.core.progress import ProgressState
from fencepost.raft.core.step import Raft

from .lone import THREE, Lone, entries, entry, label

FOUR = Configuration(("n1", "n2", "n3", "n4"))
EVERY_FIVE = Options(snapshot_entries=5, retained_entries=2)


def follower(*terms: int, options: Options = EVERY_FIVE) -> Lone:
    """A follower of n2 with these entries, all of them committed and applied."""
    lone = Lone(term=1, options=options)
    lone.append(max(terms), (0, 0), entries(*terms), commit=len(terms))
    lone.settle()
    return lone


def taken(lone: Lone, wanted: Snapshot | None = None) -> Snapshot:
    """The newest snapshot that was asked for has become durable."""
    snapshot = (wanted or lone.wanted[-1])._replace(size_bytes=10, checksum=7)
    lone.step(SnapshotTaken(lone.now, snapshot))
    return snapshot


# -- when one is wanted ---------------------------------------------------------------------------------


def test_a_snapshot_is_wanted_after_so_many_entries_and_not_again_before_it_is_taken() -> None:
    lone = follower(1, 1, 1, 1)
    assert lone.wanted == []
    lone.append(1, (4, 1), entries(1, 1, start=5), commit=6)
    lone.settle()
    assert lone.wanted == [label(6, 1)]
    lone.append(1, (6, 1), entries(*[1] * 9, start=7), commit=15)
    lone.settle()
    assert len(lone.wanted) == 1
    taken(lone)
    lone.append(1, (15, 1), entries(1, start=16), commit=16)
    lone.settle()
    assert [wanted.last_index for wanted in lone.wanted] == [6, 16]
    taken(lone)
    lone.append(1, (16, 1), entries(*[1] * 4, start=17), commit=20)
    lone.settle()
    assert len(lone.wanted) == 2
    lone.append(1, (20, 1), entries(1, start=21), commit=21)
    lone.settle()
    assert lone.wanted[2].last_index == 21


def test_a_snapshot_is_wanted_after_so_many_bytes() -> None:
    lone = Lone(term=1, options=Options(snapshot_bytes=100, retained_entries=0))
    lone.append(1, (0, 0), [entry(1, 1, b"x" * 99)], commit=1)
    lone.settle()
    assert lone.wanted == []
    lone.append(1, (1, 1), [entry(2, 1, b"x")], commit=2)
    lone.settle()
    assert lone.wanted == [label(2, 1)]
    lone.append(1, (2, 1), [entry(3, 1, b"x" * 60)], commit=3)
    lone.settle()
    taken(lone)  # Of 2: the sixty bytes since then count on.
    lone.append(1, (3, 1), [entry(4, 1, b"x" * 39)], commit=4)
    lone.settle()
    assert len(lone.wanted) == 1
    lone.append(1, (4, 1), [entry(5, 1, b"x")], commit=5)
    lone.settle()
    assert lone.wanted[1:] == [label(5, 1)]


def test_none_is_wanted_unless_that_is_configured() -> None:
    lone = follower(*[1] * 100, options=Options())
    assert lone.wanted == []


def test_one_that_could_not_be_taken_is_wanted_again_after_a_while() -> None:
    lone = follower(*[1] * 5)
    lone.step(SnapshotNotTaken(lone.now))
    lone.append(1, (5, 1), entries(1, start=6), commit=6)
    lone.settle()
    assert len(lone.wanted) == 1
    lone.now += SECOND
    lone.append(1, (6, 1), entries(1, start=7), commit=7)
    lone.settle()
    assert [wanted.last_index for wanted in lone.wanted] == [5, 7]
    assert lone.raft.log.first_index == 1


def test_what_is_committed_and_not_durable_here_is_in_no_snapshot() -> None:
    lone = Lone(term=1, options=EVERY_FIVE)
    lone.append(1, (0, 0), entries(1, 1, 1), commit=3)
    lone.append(1, (3, 1), entries(1, 1, 1, start=4), commit=6)
    lone.durable(1)
    assert (lone.raft.commit_index, lone.applied_to, lone.wanted) == (6, 3, [])
    lone.durable()
    assert lone.wanted == [label(6, 1)]


def test_a_node_that_joins_labels_nothing_before_it_knows_the_members() -> None:
    """Its label would say that the cluster has no voters, and whoever got the snapshot would believe it."""
    lone = Lone(configuration=Configuration(()), term=1, options=EVERY_FIVE)
    lone.append(1, (0, 0), entries(*[1] * 7), commit=7)
    lone.settle()
    assert (lone.applied_to, lone.wanted) == (7, [])
    joining = Configuration(THREE, learners=("n9",))
    lone.append(1, (7, 1), [Entry(8, 1, EntryKind.CONFIGURATION, 0, encode_configuration(joining))], commit=8)
    lone.settle()
    assert lone.wanted == [label(8, 1, joining, configuration_index=8)]


# -- labels ---------------------------------------------------------------------------------------------


def test_s19_label_is_that_of_the_applied_index_and_not_of_a_later_one() -> None:
    """Terms, times and members go on while the state is captured; the label does not."""
    lone = Lone(term=1, options=EVERY_FIVE)
    changed = Entry(3, 1, EntryKind.CONFIGURATION, 30, encode_configuration(FOUR))
    later = Entry(6, 2, EntryKind.CONFIGURATION, 60, encode_configuration(Configuration(THREE, retired=("n4",))))
    log = [entry(1, 1), entry(2, 1), changed, entry(4, 1), Entry(5, 2, EntryKind.EMBEDDED, 50, b"x"), later]
    lone.append(2, (0, 0), log, commit=5)
    lone.settle()
    assert lone.applied_to == 5
    assert lone.wanted == [Snapshot(5, 2, 50, FOUR, 3)]
    lone.append(2, (6, 2), commit=6)
    assert lone.wanted == [Snapshot(5, 2, 50, FOUR, 3)]
    snapshot = taken(lone)
    assert lone.raft.snapshot == snapshot
    assert lone.raft.configuration == Configuration(THREE, retired=("n4",))
    assert lone.raft.configuration_at(5) == (3, FOUR)


# -- cutting off ----------------------------------------------------------------------------------------


def test_the_log_is_cut_off_behind_the_snapshot_except_for_what_is_retained() -> None:
    lone = follower(1, 1, 1, 2, 2, 2)
    taken(lone)
    assert (lone.raft.log.first_index, lone.raft.log.previous_term) == (5, 2)
    write = lone.writes[-1]
    assert (write.compact_to, write.entries, write.truncate_from) == (4, [], 0)
    lone.settle()
    # Below the commit index there is nothing to compare with, and no need to.
    assert lone.append(2, (3, 1), commit=6) == [AppendEntriesResponse(2, True, 3, 0, 0, 7, SECOND)]
    assert lone.append(2, (2, 1), entries(1, 2, 2, 2, 2, start=3)) == []
    assert lone.writes[-1].entries == entries(2, start=7)
    assert lone.durable() == [AppendEntriesResponse(2, True, 7, 0, 0, 7, SECOND)]


def large(first: int, count: int, size: int = 10) -> list[Entry]:
    return [entry(index, 1, b"x" * size) for index in range(first, first + count)]


@pytest.mark.parametrize(
    ("retained_entries", "retained_bytes", "first_index"),
    [
        (4, 0, 17),
        (4, 1000, 17),  # The bytes would do for all of them.
        (4, 25, 19),  # Two of them.
        (4, 40, 17),
        (4, 5, 21),
        (0, 1000, 21),
        (1000, 50, 16),
    ],
)
def test_of_entries_and_bytes_to_retain_the_smaller_counts(
    retained_entries: int, retained_bytes: int, first_index: int
) -> None:
    options = Options(snapshot_entries=20, retained_entries=retained_entries, retained_bytes=retained_bytes)
    lone = Lone(term=1, options=options)
    for first in range(1, 21):
        lone.append(1, (first - 1, int(first > 1)), large(first, 1), commit=first)
        lone.settle()
    lone.append(1, (20, 1), large(21, 9), commit=29)  # Behind the snapshot: this counts against nothing.
    lone.settle()
    taken(lone)
    assert lone.raft.snapshot is not None
    assert lone.raft.snapshot.last_index == 20
    assert lone.raft.log.first_index == first_index


def test_what_a_start_finds_in_the_log_counts_as_retained() -> None:
    options = Options(snapshot_entries=5, retained_entries=100, retained_bytes=55)
    log = large(3, 8)
    lone = Lone(term=1, snapshot=label(7, 1), previous=(2, 1), log=log, commit_index=7, options=options)
    lone.append(1, (10, 1), large(11, 2), commit=12)
    lone.settle()
    taken(lone)
    assert lone.raft.log.first_index == 8  # From 8 to 12: five of them.


@pytest.mark.parametrize(("retained_bytes", "goes_to"), [(75, 0), (45, 4), (25, 6), (9, 7)])
def test_what_a_start_leaves_on_disk_counts_as_retained_by_groups(retained_bytes: int, goes_to: int) -> None:
    raft = Raft(
        node_id="n1",
        configuration=Configuration(THREE),
        hard_state=HardState(1, ""),
        entries=large(7, 4),
        commit_index=7,
        options=Options(retained_bytes=retained_bytes),
        between=lambda low, high: low,
        now=0,
        snapshot=label(7, 1),
        previous_index=2,
        previous_term=1,
        older=OlderEntries(6, 0, [(3, 1)], [], [(4, 20), (6, 20)]),
    )
    assert raft.sizes.cut(7) == goes_to


def test_nothing_is_cut_off_before_the_snapshot_is_durable() -> None:
    lone = follower(*[1] * 8)
    assert lone.wanted
    assert lone.raft.log.first_index == 1
    assert all(write.compact_to == 0 for write in lone.writes)


def test_a_log_may_be_cut_off_completely() -> None:
    lone = follower(*[1] * 5, options=Options(snapshot_entries=5, retained_entries=0))
    taken(lone)
    lone.settle()
    assert (lone.raft.log.first_index, lone.raft.log.last_index, lone.raft.log.last_term) == (6, 5, 1)
    assert lone.raft.log.slice(6, 5) == []
    with pytest.raises(AssertionError, match="entries from 5 on"):
        lone.raft.log.slice(5, 5)


def test_a_smaller_snapshot_than_the_newest_changes_nothing() -> None:
    lone = follower(*[1] * 9)
    first = lone.wanted[-1]
    newest = taken(lone)
    taken(lone, first._replace(last_index=5))
    assert lone.raft.snapshot == newest


def test_a_leader_keeps_what_a_follower_will_need_after_its_snapshot() -> None:
    """Or it would need the next one as soon as it has this one, and so on."""
    lone = Lone(term=1, log=entries(*[1] * 10), previous=(0, 0), commit_index=10, options=EVERY_FIVE)
    lone.become_leader()
    lone.acknowledge("n2", 11)
    taken(lone)
    assert lone.raft.log.previous_index == 8
    lone.refuse("n3", 10, (0, 0))
    assert lone.raft.progress["n3"].state is ProgressState.SNAPSHOT
    for _ in range(3):
        lone.now += 5 * SECOND  # Its snapshot does not get on, but it is alive: it answers heartbeats.
        for peer, match in (("n2", lone.raft.log.last_index), ("n3", 0)):
            lone.acknowledge(peer, match)
        lone.propose(*[b"x"] * 5)
        lone.settle()
        lone.acknowledge("n2", lone.raft.log.last_index)
        taken(lone)
        lone.settle()
    assert lone.raft.snapshot is not None
    assert (lone.raft.snapshot.last_index, lone.raft.log.previous_index) == (26, 10)
    lone.take()
    lone.acknowledge("n3", 10)
    (message,) = lone.take("n3")
    assert isinstance(message, AppendEntries)
    assert message.prev_log_index == 10
    lone.propose(*[b"x"] * 5)
    lone.settle()
    lone.acknowledge("n2", 31)
    taken(lone)
    assert lone.raft.log.previous_index == 29


def test_a_follower_that_is_gone_holds_up_no_log() -> None:
    lone = Lone(term=1, log=entries(*[1] * 10), commit_index=10, options=EVERY_FIVE)
    lone.become_leader()
    lone.acknowledge("n2", 11)
    taken(lone)
    lone.settle()
    lone.refuse("n3", 10, (0, 0))
    for _ in range(12):
        lone.advance(SECOND // 10)
        lone.acknowledge("n2", 11)
    lone.propose(*[b"x"] * 9)
    lone.settle()
    lone.acknowledge("n2", 20)
    taken(lone)
    assert lone.raft.log.previous_index == 18
    lone.step(ChunkUnavailable(lone.now, "n3"))  # That snapshot may be gone, too.
    assert lone.raft.progress["n3"].state is ProgressState.PROBE


# -- starting -------------------------------------------------------------------------------------------


def test_a_node_starts_with_its_snapshot_and_the_log_behind_it() -> None:
    snapshot = label(6, 2, FOUR, last_time_ns=60, configuration_index=3)
    lone = Lone(term=2, snapshot=snapshot, previous=(4, 1), log=entries(2, 2, 2, start=5), commit_index=5)
    raft = lone.raft
    assert (raft.commit_index, raft.apply_reported, raft.configuration) == (6, 6, FOUR)
    assert raft.configuration_index == 3
    lone.append(2, (7, 2), commit=7)
    assert lone.applied_to == 7
    assert lone.writes == []


def test_the_log_knows_newer_members_than_the_snapshot_and_no_older_ones() -> None:
    old = Entry(5, 1, EntryKind.CONFIGURATION, 0, encode_configuration(Configuration(("n1", "n2"))))
    new = Entry(7, 2, EntryKind.CONFIGURATION, 0, encode_configuration(FOUR))
    snapshot = label(6, 1, Configuration(("n1", "n2")), configuration_index=5)
    lone = Lone(term=2, snapshot=snapshot, previous=(4, 1), log=[old, entry(6, 1), new], commit_index=6)
    assert (lone.raft.configuration, lone.raft.configuration_index) == (FOUR, 7)
    assert lone.raft.committed_configuration() == Configuration(("n1", "n2"))
    lone.append(3, (6, 1), [entry(7, 3)], source="n3")
    assert (lone.raft.configuration, lone.raft.configuration_index) == (Configuration(("n1", "n2")), 5)


def test_cluster_time_goes_on_from_a_snapshot_behind_which_there_is_nothing() -> None:
    lone = Lone(term=2, snapshot=label(6, 2, last_time_ns=600), previous=(6, 2))
    assert lone.raft.log.last_time_ns == 600
    lone.become_leader()
    lone.propose(b"x")
    assert [item.time_ns for item in lone.raft.log.slice(7, 8)] == [600, 600]


@pytest.mark.parametrize("terms", [(1,) * 4, (1,) * 8])
def test_s15_snapshot_that_the_log_was_not_told_of_replaces_it_at_the_start(
    terms: tuple[int, ...],
) -> None:
    """The power went in between: the log is too short, or conflicts at the snapshot's last index."""
    snapshot = label(6, 2, FOUR, last_time_ns=60, configuration_index=5)
    lone = Lone(term=2, snapshot=snapshot, log=entries(*terms), commit_index=4)
    raft = lone.raft
    assert (raft.log.previous_index, raft.log.last_index, raft.log.last_term) == (6, 6, 2)
    assert (raft.commit_index, raft.apply_reported, raft.configuration) == (6, 6, FOUR)
    assert lone.writes == []
    assert lone.append(3, (6, 2), entries(3, start=7), commit=7) == []
    (write,) = lone.writes
    assert (write.reset, write.hard_state, write.entries) == (snapshot, HardState(3, ""), entries(3, start=7))
    assert lone.durable() == [AppendEntriesResponse(3, True, 7, 0, 0, 7, SECOND)]
    assert lone.applied_to == 7


@pytest.mark.parametrize(("previous", "commit_index"), [((8, 2), 8), ((0, 0), 8), ((7, 2), 7)])
def test_an_older_snapshot_than_the_log_needs_drops_no_committed_entry(
    previous: tuple[int, int], commit_index: int
) -> None:
    """The newest one was lost or damaged, and the one before it is found."""
    log = entries(*[2] * 4, start=previous[0] + 1) if previous[0] else entries(*[1] * 8)
    with pytest.raises(AssertionError, match="the newest one must have been lost"):
        Lone(term=2, snapshot=label(6, 2), previous=previous, log=log, commit_index=commit_index)


def test_a_log_that_begins_behind_nothing_is_refused() -> None:
    with pytest.raises(AssertionError, match="entries up to 4 are gone"):
        Lone(term=2, previous=(4, 1), log=entries(2, start=5), commit_index=4)


def test_a_leader_labels_the_members_of_the_applied_index_while_a_change_is_under_way() -> None:
    lone = Lone(term=1, options=EVERY_FIVE)
    lone.become_leader()
    lone.acknowledge("n2", 1)
    lone.propose(*[b"x"] * 4)
    lone.change(Change(ChangeKind.ADD_LEARNER, "n4"))
    lone.settle()
    lone.acknowledge("n2", 5)
    assert lone.wanted == [label(5, 2)]
    lone.acknowledge("n2", 6)
    taken(lone)
    assert lone.raft.configuration == Configuration(THREE, learners=("n4",))
    assert lone.raft.configuration_at(5)[1] == Configuration(THREE)
