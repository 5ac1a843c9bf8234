"""The leader's side of a snapshot: part by part, one at a time (thesis section 5.3)."""

from __future__ import annotations

import pytest

from fencepost.raft.core.entry import Snapshot
from fencepost.raft.core.events import (
    ChunkUnavailable,
    Role,
    SnapshotTaken,
)
from fencepost.raft.core.messages import (
    AppendEntries,
    InstallSnapshot,
    InstallSnapshotResponse,
)
from fencepost.raft.core.options import MILLISECOND, SECOND, Options
from fencepost.raft.core.progress import ProgressState

from .lone import Lone, label

HEARTBEAT = 100 * MILLISECOND
CHUNKS = Options(chunk_bytes=4, chunk_timeout=300 * MILLISECOND, retained_entries=0)
HELD = label(6, 3, size_bytes=10, checksum=7)
"""What the leader has instead of its first six entries."""


def leader(snapshot: Snapshot = HELD, options: Options = CHUNKS) -> Lone:
    """n1 leads term 4; its log has the no-op, at 7, behind ``snapshot``. n2 has everything."""
    lone = Lone(term=3, snapshot=snapshot, previous=(snapshot.last_index, snapshot.last_term), options=options)
    lone.become_leader()
    lone.acknowledge("n2", snapshot.last_index + 1)
    lone.take()
    return lone


def sending() -> Lone:
    """n3 turns out to have nothing of the log: the first part is asked for."""
    lone = leader()
    lone.refuse("n3", 6, (0, 0))
    return lone


def answer(lone: Lone, offset: int, *, sent_at: int | None = None, last_index: int = 6) -> None:
    """n3 answers the part that was sent last."""
    at = lone.chunks[-1].message.sent_at if sent_at is None else sent_at
    lone.receive("n3", InstallSnapshotResponse(4, last_index, offset, False, at))


def parts(lone: Lone) -> list[tuple[int, int]]:
    """(offset, length) of what was asked to be read and sent since last asked."""
    found = [(chunk.message.offset, chunk.length) for chunk in lone.chunks]
    lone.chunks.clear()
    return found


def test_a_follower_that_lacks_what_is_gone_gets_the_snapshot_in_parts_and_then_the_log() -> None:
    lone = sending()
    (chunk,) = lone.chunks
    assert (chunk.to, chunk.length, chunk.after) == ("n3", 4, 0)
    assert chunk.message == InstallSnapshot(4, HELD, 0, b"", lone.now)
    answer(lone, 4)
    answer(lone, 8)
    assert parts(lone) == [(0, 4), (4, 4), (8, 2)]
    assert lone.take("n3") == []
    lone.propose(b"x")
    assert lone.take("n3") == []  # No entries meanwhile.
    lone.receive("n3", InstallSnapshotResponse(4, 6, 10, True, lone.now))
    progress = lone.raft.progress["n3"]
    assert (progress.state, progress.match_index) == (ProgressState.REPLICATE, 6)
    (message,) = lone.take("n3")
    assert isinstance(message, AppendEntries)
    assert (message.prev_log_index, message.prev_log_term) == (6, 3)
    assert [item.index for item in message.entries] == [7, 8]


def test_an_empty_snapshot_is_one_part() -> None:
    lone = leader(HELD._replace(size_bytes=0))
    lone.refuse("n3", 6, (0, 0))
    assert parts(lone) == [(0, 0)]


def test_one_part_at_a_time_and_only_its_own_answer_brings_the_next() -> None:
    lone = sending()
    first = lone.chunks[0].message.sent_at
    lone.acknowledge("n3", 0)  # Answers to heartbeats.
    lone.refuse("n3", 6, (0, 0))
    answer(lone, 4, last_index=5)
    answer(lone, 4, sent_at=first - 1)
    assert parts(lone) == [(0, 4)]
    lone.now += 1
    answer(lone, 4, sent_at=first)
    answer(lone, 4, sent_at=first)  # It came twice.
    assert parts(lone) == [(4, 4)]


def test_a_part_that_is_not_answered_is_sent_again_by_a_heartbeat() -> None:
    lone = sending()
    answer(lone, 4)
    parts(lone)
    lone.advance(2 * HEARTBEAT)
    lone.acknowledge("n2", 7)
    assert parts(lone) == []
    lone.advance(2 * HEARTBEAT)
    assert parts(lone) == [(4, 4)]


def test_a_part_that_takes_longer_than_its_timeout_is_taken_for_answered_all_the_same() -> None:
    """The first part of a large snapshot waits for all of it to be verified, and a link may be slow: were only
    the newest asking answered, and each is overtaken by the next, it would never get on."""
    lone = sending()
    for _ in range(8):
        lone.advance(HEARTBEAT)
        lone.acknowledge("n2", 7)
    asked = [chunk.message.sent_at for chunk in lone.chunks]
    assert parts(lone) == [(0, 4)] * 3
    answer_to_first, *late = asked
    answer(lone, 4, sent_at=answer_to_first)
    assert parts(lone) == [(4, 4)]
    for sent_at in late:
        answer(lone, 4, sent_at=sent_at)  # Nor does one part bring three.
    assert parts(lone) == []


def test_the_follower_says_where_to_go_on_whatever_was_sent() -> None:
    """It started again, or another leader has sent it a part of the same snapshot."""
    lone = sending()
    answer(lone, 8)
    answer(lone, 0)
    answer(lone, 99)
    assert parts(lone) == [(0, 4), (8, 2), (0, 4), (10, 0)]


def test_heartbeats_go_on_during_a_snapshot_and_prove_no_more_than_they_know() -> None:
    lone = sending()
    for _ in range(5):
        lone.advance(HEARTBEAT)
        lone.acknowledge("n2", 7)
    heartbeats = [message for message in lone.take("n3") if isinstance(message, AppendEntries)]
    assert [(message.prev_log_index, message.prev_log_term, message.entries) for message in heartbeats] == [
        (0, 0, [])
    ] * 5


def test_a_link_that_breaks_costs_the_part_that_was_under_way() -> None:
    lone = sending()
    answer(lone, 4)
    parts(lone)
    lone.unreachable("n3")
    lone.advance(HEARTBEAT)
    assert parts(lone) == [(4, 4)]


def test_a_snapshot_that_is_not_kept_any_more_gives_way_to_the_newest() -> None:
    lone = sending()
    newer = label(7, 4, size_bytes=6)
    lone.step(SnapshotTaken(lone.now, newer))
    lone.settle()
    answer(lone, 4)
    assert lone.chunks[-1].message.snapshot == HELD  # What has begun goes on while it is there.
    lone.step(ChunkUnavailable(lone.now, "n3"))
    lone.step(ChunkUnavailable(lone.now, "n9"))
    lone.step(ChunkUnavailable(lone.now, "n2"))
    assert [progress.state for progress in lone.raft.progress.values()] == [
        ProgressState.REPLICATE,
        ProgressState.PROBE,
    ]
    parts(lone)
    lone.propose(b"x")
    assert parts(lone) == []  # Not before it has answered again.
    lone.advance(HEARTBEAT)
    lone.acknowledge("n3", 0)
    assert lone.chunks[-1].message.snapshot == newer
    assert parts(lone) == [(0, 4)]


def test_an_answer_about_a_snapshot_that_is_not_being_sent_is_late() -> None:
    lone = leader()
    lone.acknowledge("n3", 7)
    lone.receive("n3", InstallSnapshotResponse(4, 6, 4, False, lone.now))
    assert (lone.chunks, lone.raft.progress["n3"].state) == ([], ProgressState.REPLICATE)


def test_a_follower_that_catches_up_otherwise_needs_no_snapshot() -> None:
    lone = sending()
    lone.acknowledge("n3", 5)
    assert lone.raft.progress["n3"].state is ProgressState.SNAPSHOT
    lone.acknowledge("n3", 7)  # A late answer to an earlier term's entries cannot come; a longer log can.
    progress = lone.raft.progress["n3"]
    assert (progress.state, progress.next_index, progress.snapshot) == (ProgressState.REPLICATE, 8, None)


def test_answers_to_parts_count_as_contact_and_a_later_term_in_them_is_followed() -> None:
    lone = sending()
    lone.now += SECOND - 1
    asked = lone.now
    lone.acknowledge("n2", 7, sent_at=asked - SECOND)
    lone.receive("n3", InstallSnapshotResponse(4, 6, 4, False, asked))
    assert lone.raft.quorum_contact == asked
    lone.receive("n3", InstallSnapshotResponse(9, 6, 0, False, asked))
    assert (lone.raft.role, lone.raft.current_term) == (Role.FOLLOWER, 9)
    lone.receive("n3", InstallSnapshotResponse(4, 6, 10, True, asked))


def test_a_leader_that_has_no_snapshot_of_what_is_gone_says_so() -> None:
    lone = leader()
    lone.raft.snapshot = label(5, 3)
    with pytest.raises(AssertionError, match="entries up to 6 are gone"):
        lone.refuse("n3", 6, (0, 0))


def test_a_follower_that_does_not_get_on_holds_up_no_snapshot() -> None:
    options = Options(chunk_bytes=4, chunk_timeout=100 * MILLISECOND, retained_entries=0, snapshot_entries=1)
    lone = leader(options=options)
    newest = HELD

    def taken() -> bool:
        """Whether another one was wanted after the next entry; it is taken then."""
        nonlocal newest
        lone.propose(b"x")
        lone.settle()
        lone.acknowledge("n2", lone.raft.log.last_index)
        if not lone.wanted:
            return False
        newest = lone.wanted.pop()._replace(size_bytes=10)
        lone.step(SnapshotTaken(lone.now, newest))
        lone.settle()
        return True

    lone.acknowledge("n2", 7)
    lone.wanted.clear()
    lone.raft.snapshot_wanted = False
    lone.refuse("n3", 6, (0, 0))
    assert lone.chunks[-1].message.snapshot == HELD
    assert taken()  # Beside the one that is being sent there is room for one.
    assert not taken()
    lone.now += 350 * MILLISECOND
    answer(lone, 4)
    lone.now += 350 * MILLISECOND
    lone.acknowledge("n2", lone.raft.log.last_index)
    assert not taken()  # It got on.
    answer(lone, 0)  # What it had is damaged: it begins anew, which is no getting on.
    lone.now += 50 * MILLISECOND
    answer(lone, 4)
    assert taken()
    lone.step(ChunkUnavailable(lone.now, "n3"))
    assert taken()
