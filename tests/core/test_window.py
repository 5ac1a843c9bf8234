"""The window of entries in memory: what leaves it, what is still known of that, and how it is read back."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fencepost.raft.core.configuration import Configuration, encode_configuration
from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.errors import ConfigurationError
from fencepost.raft.core.events import SnapshotTaken
from fencepost.raft.core.log import OlderEntries, RaftLog
from fencepost.raft.core.messages import AppendEntries
from fencepost.raft.core.options import Options
from fencepost.raft.core.progress import ProgressState

from .lone import Lone, entries, entry, label

SMALL = Options(window_entries=4, append_bytes_max=9)
"""Payloads of :func:`entry` have three bytes: three entries fit a message."""


def leader(*terms: int, options: Options = SMALL) -> Lone:
    """A leader with these entries and its no-op, all committed with n3, and n2 not heard of yet."""
    lone = Lone(term=max(terms), log=entries(*terms), options=options)
    lone.become_leader()
    lone.acknowledge("n3", lone.raft.log.last_index)
    lone.propose(b"and")
    lone.settle()
    lone.acknowledge("n3", lone.raft.log.last_index)
    lone.settle()
    lone.take()
    return lone


def stands_at(lone: Lone, index: int) -> None:
    """n2 refuses what a new leader tries first, and says that its log ends at ``index``."""
    lone.refuse("n2", lone.raft.progress["n2"].next_index - 1, (index, 1))
    lone.acknowledge("n2", index)
    lone.take()


def sent(lone: Lone, to: str) -> list[tuple[int, int, list[int]]]:
    """(previous index, previous term, indexes) of what has left to ``to``."""
    return [
        (message.prev_log_index, message.prev_log_term, [item.index for item in message.entries])
        for message in lone.take(to)
        if isinstance(message, AppendEntries)
    ]


# -- the log alone --------------------------------------------------------------------------------


@pytest.mark.parametrize("shed", range(1, 9))
def test_terms_are_known_of_what_has_left(shed: int) -> None:
    terms = (1, 1, 2, 4, 4, 4, 7, 7, 9)
    whole, log = RaftLog(entries(*terms)), RaftLog(entries(*terms))
    gone = log.shed(shed, 1, 0)
    assert [item.index for item in gone] == list(range(1, shed + 1))
    assert (log.window_start, log.first_index, log.last_index, log.last_term) == (shed + 1, 1, 9, 9)
    for index in range(-1, 12):
        assert log.term_at(index) == whole.term_at(index)
        for term in range(10):
            assert log.last_index_with_term_at_most(index, term) == whole.last_index_with_term_at_most(index, term)
    with pytest.raises(AssertionError, match="in memory from"):
        log.entry(shed)
    with pytest.raises(AssertionError, match="in memory from"):
        log.slice(shed, 9)
    with pytest.raises(AssertionError, match="in memory from"):
        log.truncate_from(shed)


@pytest.mark.parametrize("compacted", range(10))
@pytest.mark.parametrize("shed", range(10))
def test_compaction_before_in_and_behind_the_window(shed: int, compacted: int) -> None:
    terms = (3, 3, 5, 5, 5, 6, 8, 8, 8)
    whole, log = RaftLog(entries(*terms)), RaftLog(entries(*terms))
    log.shed(shed, 1, 0)
    whole.compact_to(compacted)
    log.compact_to(compacted)
    assert (log.previous_index, log.previous_term) == (whole.previous_index, whole.previous_term)
    assert log.window_start == max(min(shed, 8), compacted) + 1
    assert [log.term_at(index) for index in range(11)] == [whole.term_at(index) for index in range(11)]
    assert (log.last_time_ns, log.last_term) == (whole.last_time_ns, whole.last_term)
    for index, term in ((10, 8), (11, 9)):
        log.append([entry(index, term)])
    assert [item.index for item in log.slice(10, 11)] == [10, 11]


def test_nothing_leaves_above_the_index_and_nothing_while_the_window_is_little_too_large() -> None:
    log = RaftLog(entries(*[1] * 20))
    assert log.shed(20, 18, 0) == []
    assert [item.index for item in log.shed(3, 10, 0)] == [1, 2, 3]
    assert [item.index for item in log.shed(20, 10, 0)] == list(range(4, 11))
    assert log.shed(20, 0, 0) == []
    assert (log.window_start, log.last_index) == (11, 20)


def test_a_window_is_bounded_by_bytes_as_well() -> None:
    log = RaftLog([entry(index, 1, b"x" * 10) for index in range(1, 11)])
    assert log.shed(10, 0, 95) == []
    assert [item.index for item in log.shed(10, 0, 55)] == [1, 2, 3, 4, 5]
    log.truncate_from(8)
    log.append([entry(8, 2, b"y" * 100)])
    assert [item.index for item in log.shed(8, 0, 100)] == [6, 7]
    log.append([entry(9, 2, b"z" * 300)])
    assert [item.index for item in log.shed(9, 0, 100)] == [8, 9], "one entry may be larger than the window"
    assert (log.last_index, log.last_term, log.term_at(8), log.term_at(7)) == (9, 2, 2, 1)


def test_cluster_time_is_known_right_before_the_window() -> None:
    log = RaftLog([Entry(index, 1, EntryKind.EMBEDDED, 10 * index, b"") for index in range(1, 6)])
    log.shed(5, 2, 0)
    assert [log.time_at(index) for index in (3, 4, 5)] == [30, 40, 50]
    log.compact_to(5)
    assert log.last_time_ns == 50


def test_no_window_is_negative() -> None:
    with pytest.raises(ConfigurationError, match="window"):
        Options(window_entries=-1)
    with pytest.raises(ConfigurationError, match="window"):
        Options(window_bytes=-1)


# -- what leaves ----------------------------------------------------------------------------------


def test_only_what_is_durable_committed_and_applied_leaves() -> None:
    lone = Lone(term=1, options=SMALL)
    lone.append(1, (0, 0), entries(*[1] * 20), commit=20)
    assert lone.raft.log.window_start == 1, "nothing is durable"
    lone.settle()
    assert (lone.applied_to, lone.raft.log.window_start) == (20, 1), "it is being applied from memory"
    lone.append(1, (20, 1), entries(*[1] * 10, start=21), commit=22)
    lone.settle()
    assert (lone.applied_to, lone.raft.log.window_start) == (22, 21)
    lone.append(1, (30, 1), commit=23)
    assert lone.raft.log.window_start == 23, "eight that are not committed stay, whatever the bound"
    lone.append(2, (30, 1), commit=30)
    lone.append(2, (30, 1), entries(2, start=31), commit=31)
    lone.settle()
    assert lone.raft.log.window_start == 28


def test_a_late_append_of_what_has_left_is_known() -> None:
    lone = Lone(term=1, options=SMALL)
    lone.append(1, (0, 0), entries(*[1] * 20), commit=20)
    lone.settle()
    lone.append(1, (20, 1), entries(*[1] * 3, start=21), commit=23)
    lone.settle()
    writes = len(lone.writes)
    answers = lone.append(1, (2, 1), entries(*[1] * 5, start=3), commit=23)
    assert [answer.match_index for answer in answers] == [7]  # type: ignore[union-attr]
    assert (len(lone.writes), lone.raft.log.last_index) == (writes, 23)


def test_a_snapshot_is_labelled_right_before_the_window_too() -> None:
    lone = Lone(term=1, options=Options(window_entries=1, snapshot_entries=5, retained_entries=0))
    lone.append(1, (0, 0), entries(*[1] * 4), commit=4)
    lone.settle()
    lone.append(1, (4, 1), entries(1, start=5), commit=5)
    lone.settle()
    assert lone.wanted == [label(5, 1)]


# -- read back for a follower ---------------------------------------------------------------------


def test_a_slow_follower_is_sent_what_was_read_back() -> None:
    lone = leader(*[1] * 20)
    assert lone.raft.log.window_start > 18
    stands_at(lone, 2)
    (reading,) = lone.readings
    assert (reading.to, reading.term, reading.start, reading.bytes_max) == ("n2", 2, 3, 9)
    assert reading.end == lone.raft.log.window_start - 1
    assert sent(lone, "n2") == []
    lone.acknowledge("n2", 2)
    assert len(lone.readings) == 1, "one reading at a time"
    lone.answer(reading, entries(*[1] * 3, start=3))
    assert sent(lone, "n2") == [(2, 1, [3, 4, 5])]
    assert lone.readings[1][2] == 6, "and the next, without waiting for the answer"
    assert list(lone.raft.progress["n2"].in_flight) == [(5, 9)]


def test_behind_what_was_read_back_the_window_follows() -> None:
    lone = leader(*[1] * 20)
    start = lone.raft.log.window_start
    stands_at(lone, start - 3)
    lone.answer(lone.readings[0], entries(1, 1, start=start - 2))
    found = sent(lone, "n2")
    assert found[0] == (start - 3, 1, [start - 2, start - 1])
    assert [index for _, _, indexes in found for index in indexes] == list(range(start - 2, 23))
    assert all(before[2][-1] == behind[0] for before, behind in pairwise(found))
    assert len(lone.readings) == 1


def test_the_flow_control_counts_what_was_read_back() -> None:
    lone = leader(*[1] * 20, options=Options(window_entries=4, append_bytes_max=3, in_flight_max=2))
    stands_at(lone, 0)
    for index in (1, 2):
        lone.answer(lone.readings[-1], entries(1, start=index))
    assert (len(lone.readings), sent(lone, "n2")) == (2, [(0, 0, [1]), (1, 1, [2])])
    lone.acknowledge("n2", 1)
    assert lone.readings[2].start == 3


def test_while_the_place_is_not_known_nothing_is_read() -> None:
    lone = leader(*[1] * 20)
    lone.refuse("n2", 20, (5, 1))
    assert lone.raft.progress["n2"].state is ProgressState.PROBE
    assert (lone.readings, sent(lone, "n2")) == ([], [(5, 1, [])])
    lone.acknowledge("n2", 5)
    assert lone.readings[0].start == 6


def test_what_was_read_for_an_earlier_term_is_not_sent() -> None:
    lone = leader(*[1] * 20)
    stands_at(lone, 2)
    lone.step_down()
    lone.become_leader()
    stands_at(lone, 2)
    lone.take()
    first, second = lone.readings
    assert (first.term, second.term) == (2, 3)
    lone.answer(first, entries(*[1] * 3, start=3))
    assert sent(lone, "n2") == []
    lone.answer(second, entries(*[1] * 3, start=3))
    assert sent(lone, "n2") == [(2, 1, [3, 4, 5])]


def test_what_was_read_for_another_place_is_not_sent() -> None:
    lone = leader(*[1] * 20)
    stands_at(lone, 2)
    lone.acknowledge("n2", 4)  # What another leader had sent.
    lone.answer(lone.readings[0], entries(*[1] * 3, start=3))
    assert sent(lone, "n2") == []
    assert [reading.start for reading in lone.readings] == [3, 5]


def test_what_was_read_for_a_broken_link_is_not_sent_before_the_place_is_known() -> None:
    lone = leader(*[1] * 20)
    stands_at(lone, 2)
    lone.unreachable("n2")
    lone.answer(lone.readings[0], entries(*[1] * 3, start=3))
    assert sent(lone, "n2") == [(2, 1, [])]


def test_what_was_compacted_meanwhile_is_in_the_snapshot() -> None:
    for read in (entries(*[1] * 3, start=3), []):
        lone = leader(*[1] * 20, options=Options(window_entries=4, snapshot_entries=10, retained_entries=0))
        stands_at(lone, 2)
        (reading,) = lone.readings
        snapshot = lone.wanted[0]
        lone.step(SnapshotTaken(lone.now, snapshot))
        assert lone.raft.log.previous_index == snapshot.last_index > 2
        lone.answer(reading, read)
        assert sent(lone, "n2") == []
        assert [chunk.message.snapshot for chunk in lone.chunks] == [snapshot]


def test_what_could_not_be_read_is_asked_for_after_the_next_heartbeat() -> None:
    lone = leader(*[1] * 20)
    stands_at(lone, 2)
    lone.answer(lone.readings[0], [])
    assert len(lone.readings) == 1
    lone.acknowledge("n2", 2)
    assert [reading.start for reading in lone.readings] == [3, 3]


@pytest.mark.parametrize("found", [entries(1, 1, start=4), entries(2, 2, start=3), entries(1, 2, start=3)])
def test_a_disk_that_gives_back_something_else_stops_the_node(found: list[Entry]) -> None:
    lone = leader(*[1] * 20)
    stands_at(lone, 2)
    with pytest.raises(AssertionError, match="read entries"):
        lone.answer(lone.readings[0], found)
    assert sent(lone, "n2") == []


# -- after a start --------------------------------------------------------------------------------

ALONE = Configuration(("n1",))
CHANGED = Entry(3, 1, EntryKind.CONFIGURATION, 0, encode_configuration(ALONE))
OLDER = OlderEntries(6, 60, [(1, 1), (5, 2)], [CHANGED], [(3, 30), (6, 40)])


def started(options: Options = SMALL) -> Lone:
    """A node whose log goes to 8, of which two entries were read in."""
    return Lone(term=2, log=entries(2, 2, start=7), commit_index=7, older=OLDER, options=options)


def test_a_start_knows_terms_and_configurations_of_what_it_left_on_disk() -> None:
    lone = started()
    log = lone.raft.log
    assert [log.term_at(index) for index in range(10)] == [0, 1, 1, 1, 1, 2, 2, 2, 2, -1]
    assert (log.first_index, log.window_start, log.last_index, log.time_at(6)) == (1, 7, 8, 60)
    assert (lone.raft.configuration, lone.raft.configuration_index) == (ALONE, 3)
    lone.tick()
    assert lone.applied_to == 7, "what is before it is for the node to read"


def test_what_a_start_left_on_disk_counts_for_the_next_snapshot() -> None:
    assert (OLDER.bytes_after(0), OLDER.bytes_after(3), OLDER.bytes_after(4), OLDER.bytes_after(6)) == (70, 40, 40, 0)
    for bytes_, wanted in ((73, [7]), (74, [])):
        lone = started(Options(snapshot_bytes=bytes_))
        lone.tick()
        assert [item.last_index for item in lone.wanted] == wanted


def test_a_start_leaves_nothing_on_disk_that_is_not_committed() -> None:
    with pytest.raises(AssertionError, match="left on disk"):
        Lone(term=2, log=entries(2, 2, start=7), commit_index=5, older=OLDER)
