"""What a leader knows of a follower's log, and how much it lets be under way (thesis section 10.2.1)."""

from __future__ import annotations

import random

import pytest

from fencepost.raft.core.configuration import Change, ChangeKind
from fencepost.raft.core.entry import Entry
from fencepost.raft.core.log import ENTRIES_PER_MESSAGE_MAX, RaftLog
from fencepost.raft.core.messages import AppendEntries
from fencepost.raft.core.options import MILLISECOND, Options
from fencepost.raft.core.progress import Progress, ProgressState

from .lone import Lone, entries, entry, label

HEARTBEAT = 100 * MILLISECOND
PROBE, REPLICATE, SNAPSHOT = ProgressState.PROBE, ProgressState.REPLICATE, ProgressState.SNAPSHOT


def replicating(match: int = 5) -> Progress:
    progress = Progress(match + 1, 0)
    progress.acknowledged(match)
    return progress


def appends(lone: Lone, to: str) -> list[tuple[int, list[int]]]:
    """What was sent to ``to`` since last asked: (previous index, indexes)."""
    sent = [send.message for send in lone.visible if send.to == to and isinstance(send.message, AppendEntries)]
    lone.visible = [send for send in lone.visible if send.to != to]
    return [(message.prev_log_index, [item.index for item in message.entries]) for message in sent]


# -- progress -------------------------------------------------------------------------------------------


def test_an_answer_frees_all_messages_that_it_covers() -> None:
    progress = replicating()
    for last in (6, 8, 9):
        progress.sent(last, 10)
    assert (progress.next_index, progress.in_flight_bytes) == (10, 30)
    assert progress.acknowledged(8)
    assert (list(progress.in_flight), progress.in_flight_bytes) == ([(9, 10)], 10)
    assert not progress.acknowledged(7)  # No news, and nothing is taken back.
    assert progress.match_index == 8


def test_going_back_to_probing_forgets_what_was_under_way() -> None:
    progress = replicating()
    progress.sent(9, 10)
    progress.become_probe()
    assert (progress.state, progress.next_index, progress.in_flight_bytes, progress.probe_sent) == (PROBE, 6, 0, False)


def test_a_snapshot_ends_with_a_match_at_or_behind_its_end_and_no_earlier() -> None:
    for match, state in ((0, SNAPSHOT), (9, SNAPSHOT), (10, REPLICATE), (12, REPLICATE)):
        progress = replicating()
        progress.sent(9, 10)
        progress.become_snapshot(label(10, 1, size_bytes=5), 0)
        progress.snapshot_offset, progress.chunk_sent_at = 3, 7
        assert (progress.next_index, progress.in_flight_bytes) == (11, 0)
        progress.acknowledged(match)
        assert progress.state is state
        if state is REPLICATE:
            assert (progress.snapshot, progress.snapshot_offset, progress.chunk_sent_at) == (None, 0, 0)
            assert progress.next_index == match + 1
        else:
            assert progress.snapshot_offset == 3


def test_a_refusal_during_a_snapshot_is_late() -> None:
    progress = replicating()
    progress.become_snapshot(label(10, 1), 0)
    for rejected in (8, 10, 11):
        assert not progress.refused(rejected, 0)
    assert (progress.state, progress.next_index) == (SNAPSHOT, 11)


def test_while_probing_only_the_refusal_of_the_probe_itself_moves_it() -> None:
    progress = Progress(10, 0)
    assert not progress.refused(8, 0)
    assert progress.refused(9, 4)
    assert progress.next_index == 5
    assert not progress.refused(9, 3)
    assert progress.refused(4, 9)  # A hint above what was refused is none.
    assert progress.next_index == 4


def test_random_answers_keep_the_books_straight() -> None:
    """Whatever comes in whatever order: match below next, and under way what lies between."""
    for seed in range(200):
        chance = random.Random(seed)
        progress, last = Progress(chance.randint(1, 20), 0), 20
        for _ in range(60):
            match chance.randint(0, 6):
                case 0 | 1:
                    progress.acknowledged(chance.randint(0, last))
                case 2 | 3:
                    progress.refused(chance.randint(0, last), chance.randint(0, last))
                case 4 if progress.state is REPLICATE and progress.next_index <= last:
                    progress.sent(chance.randint(progress.next_index, last), chance.randint(0, 9))
                case 5 if progress.match_index < last:
                    progress.become_snapshot(label(chance.randint(progress.match_index + 1, last), 1), 0)
                case 6:
                    progress.become_probe()
                    last += 1
            assert progress.match_index < progress.next_index <= last + 1
            assert progress.in_flight_bytes == sum(size for _, size in progress.in_flight)
            indexes = [index for index, _ in progress.in_flight]
            assert indexes == sorted(set(indexes))
            assert all(progress.match_index < index < progress.next_index for index in indexes)
            assert (progress.snapshot is not None) is (progress.state is SNAPSHOT)
            assert not indexes or progress.state is REPLICATE


# -- windows --------------------------------------------------------------------------------------------


def leader(log: int = 0, options: Options | None = None) -> Lone:
    """A leader of term 2 with ``log`` entries of term 1 and its no-op behind them."""
    lone = Lone(term=1, log=entries(*[1] * log), options=options)
    lone.become_leader()
    return lone


def test_a_window_is_full_by_bytes_and_one_message_always_goes() -> None:
    lone = leader(options=Options(append_bytes_max=8, in_flight_bytes_max=16))
    lone.acknowledge("n2", 1)
    for _ in range(4):
        lone.propose(b"12345678")
    assert appends(lone, "n2") == [(1, [2]), (2, [3])]
    lone.acknowledge("n2", 2)
    assert appends(lone, "n2") == [(3, [4])]
    lone.acknowledge("n2", 5)
    lone.propose(b"x" * 100)
    assert appends(lone, "n2")[-1] == (5, [6])
    lone.propose(b"y")
    assert appends(lone, "n2") == []


def test_a_follower_that_was_away_catches_up_in_a_window_not_in_a_flood() -> None:
    lone = leader(options=Options(append_bytes_max=10, in_flight_max=3))
    for _ in range(50):
        lone.propose(b"1234567890")
    lone.acknowledge("n2", 1)
    assert len(appends(lone, "n2")) == 3
    for match in range(2, 49):
        lone.acknowledge("n2", match)
        assert len(appends(lone, "n2")) == 1
    for match in (49, 50, 51):
        lone.acknowledge("n2", match)
        assert appends(lone, "n2") == []
    assert lone.raft.progress["n2"].match_index == 51


def test_entries_without_payload_are_bounded_by_their_number() -> None:
    log = RaftLog([Entry(index, 1, 3, 0, b"") for index in range(1, ENTRIES_PER_MESSAGE_MAX + 10)])
    found, size = log.slice_bytes(1, 1 << 20)
    assert (len(found), size) == (ENTRIES_PER_MESSAGE_MAX, 0)
    assert len(log.slice_bytes(ENTRIES_PER_MESSAGE_MAX, 1 << 20)[0]) == 10


@pytest.mark.parametrize("start", [4, 5, 7])
def test_a_log_that_begins_behind_a_snapshot_is_cut_into_messages_by_index(start: int) -> None:
    log = RaftLog([entry(index, 1, b"12") for index in range(4, 9)], 3, 1)
    found, size = log.slice_bytes(start, 4)
    assert ([item.index for item in found], size) == ([start, start + 1], 4)


# -- behind a snapshot ----------------------------------------------------------------------------------


def cut_off_in_front() -> Lone:
    """A leader of term 3 whose log begins at 7; n2 and n3 are asked at the no-op, 10."""
    lone = Lone(term=2, snapshot=label(8, 2, size_bytes=5), previous=(6, 2), log=entries(2, 2, 2, start=7))
    lone.become_leader()
    return lone


def test_who_has_the_entry_before_the_log_needs_no_snapshot() -> None:
    lone = cut_off_in_front()
    lone.refuse("n2", 9, (6, 2))
    assert appends(lone, "n2") == [(6, [7, 8, 9, 10])]
    assert lone.raft.progress["n2"].state is PROBE
    lone.refuse("n2", 6, (6, 1))  # But of another term.
    assert (appends(lone, "n2"), lone.raft.progress["n2"].state) == ([], SNAPSHOT)
    assert [chunk.to for chunk in lone.chunks] == ["n2"]


@pytest.mark.parametrize("hint", [(0, 0), (3, 1), (5, 2)])
def test_who_lacks_what_is_gone_gets_the_snapshot(hint: tuple[int, int]) -> None:
    lone = cut_off_in_front()
    lone.refuse("n2", 9, hint)
    assert lone.raft.progress["n2"].state is SNAPSHOT
    assert lone.raft.progress["n2"].next_index == 9


def test_a_heartbeat_to_a_place_that_is_gone_asks_at_the_beginning() -> None:
    lone = cut_off_in_front()
    lone.acknowledge("n2", 0)
    lone.unreachable("n2")
    lone.advance(HEARTBEAT)
    assert appends(lone, "n2")[-1] == (0, [])
    # All logs begin alike: the answer proves that n2 is there, and nothing about its log.
    lone.acknowledge("n2", 0)
    assert lone.raft.progress["n2"].state is SNAPSHOT


# -- members --------------------------------------------------------------------------------------------


def test_a_new_member_is_probed_and_an_old_one_keeps_its_place() -> None:
    lone = leader()
    for peer in ("n2", "n3"):
        lone.acknowledge(peer, 1)
    lone.propose(b"x")
    progress = lone.raft.progress["n2"]
    lone.change(Change(ChangeKind.ADD_LEARNER, "n4"))
    assert lone.raft.progress["n2"] is progress
    assert (progress.state, progress.next_index) == (REPLICATE, 4)
    new = lone.raft.progress["n4"]
    assert (new.state, new.next_index, new.probe_sent, new.heard) == (PROBE, 3, True, False)
    lone.propose(b"y")
    assert appends(lone, "n4") == [(2, [3])]


def test_a_learner_that_is_promoted_goes_on_where_it_is() -> None:
    lone = leader()
    lone.acknowledge("n2", 1)
    lone.change(Change(ChangeKind.ADD_LEARNER, "n4"))
    lone.settle()
    lone.acknowledge("n2", 2)
    lone.refuse("n4", 1, (0, 0))
    lone.acknowledge("n4", 2)
    progress = lone.raft.progress["n4"]
    lone.change(Change(ChangeKind.ADD_VOTER, "n4"))
    assert lone.raft.progress["n4"] is progress
    assert appends(lone, "n4")[-1] == (2, [3])
