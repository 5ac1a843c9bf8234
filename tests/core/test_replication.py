"""The leader's side: windows, probes, heartbeats, commit notices, limits."""

from __future__ import annotations

import pytest

from fencepost.raft.core.entry import EntryKind
from fencepost.raft.core.events import Accepted, Propose, Role
from fencepost.raft.core.messages import AppendEntries, AppendEntriesResponse
from fencepost.raft.core.options import MILLISECOND, Options
from fencepost.raft.core.progress import Progress, ProgressState

from .lone import Lone, entries

HEARTBEAT = 100 * MILLISECOND
SMALL = Options(append_bytes_max=8, in_flight_max=3)


def leader(log: int = 0, options: Options | None = None) -> Lone:
    """A leader of term 2 with ``log`` entries of term 1 and its no-op after them."""
    lone = Lone(term=1, log=entries(*[1] * log), options=options)
    lone.become_leader()
    return lone


def appends(lone: Lone, to: str) -> list[tuple[int, list[int]]]:
    """What was sent to ``to`` since last asked: (previous index, indexes)."""
    sent = [send.message for send in lone.visible if send.to == to]
    lone.visible = [send for send in lone.visible if send.to != to]
    return [
        (message.prev_log_index, [item.index for item in message.entries])
        for message in sent
        if isinstance(message, AppendEntries)
    ]


def test_followers_at_the_same_place_get_the_same_object() -> None:
    lone = leader()
    lone.acknowledge("n2", 1)
    lone.acknowledge("n3", 1)
    lone.take()
    lone.propose(b"x")
    first, second = lone.take()
    assert first is second


def test_entries_leave_beside_the_leaders_own_write() -> None:
    lone = leader()
    lone.acknowledge("n2", 1)
    lone.propose(b"x")
    assert appends(lone, "n2") == [(1, [2])]
    assert len(lone.pending) == 1


def test_pipeline_runs_ahead_to_its_window_and_no_further() -> None:
    lone = leader(options=SMALL)
    lone.acknowledge("n2", 1)
    lone.take()
    for _ in range(5):
        lone.propose(b"12345678")
    assert appends(lone, "n2") == [(1, [2]), (2, [3]), (3, [4])]
    lone.acknowledge("n2", 3)  # One answer for two messages.
    assert appends(lone, "n2") == [(4, [5]), (5, [6])]


def test_messages_are_cut_by_bytes_and_one_large_entry_still_goes() -> None:
    lone = leader(options=SMALL)
    lone.acknowledge("n2", 1)
    lone.take()
    lone.propose(b"1234", b"5678", b"9", b"x" * 100, b"y")
    assert appends(lone, "n2") == [(1, [2, 3]), (3, [4]), (4, [5])]


def test_probing_sends_one_message_at_a_time() -> None:
    lone = leader()
    lone.propose(b"x")
    lone.propose(b"y")
    assert appends(lone, "n2") == []  # The no-op is under way as the probe.
    lone.acknowledge("n2", 1)
    assert appends(lone, "n2") == [(1, [2, 3])]


def test_hint_finds_the_place_in_one_step() -> None:
    lone = leader(log=1000)
    lone.refuse("n2", 1000, (400, 1))
    assert appends(lone, "n2")[0][0] == 400
    lone.refuse("n2", 1000, (300, 1))  # A repetition of the refusal that was answered.
    assert appends(lone, "n2") == []
    assert lone.raft.progress["n2"].next_index == 401


def test_hint_of_a_later_term_skips_what_cannot_agree() -> None:
    lone = Lone(term=4, log=entries(1, 1, 2, 2, 4, 4))
    lone.become_leader()
    lone.refuse("n2", 6, (6, 1))  # The follower has nothing above term 1 up to 6: nor may we.
    assert appends(lone, "n2")[0][0] == 2


def test_lost_message_is_found_by_the_next_one() -> None:
    lone = leader()
    lone.acknowledge("n2", 1)
    lone.propose(b"lost")
    lone.propose(b"x")
    lone.take()
    lone.refuse("n2", 2, (1, 2))
    assert appends(lone, "n2") == [(1, [2, 3])]
    assert lone.raft.progress["n2"].state is ProgressState.PROBE
    lone.acknowledge("n2", 3)
    assert lone.raft.progress["n2"].state is ProgressState.REPLICATE


def test_lost_message_in_a_quiet_cluster_is_found_by_the_heartbeat() -> None:
    lone = leader()
    lone.acknowledge("n2", 1)
    lone.propose(b"lost")
    lone.take()
    lone.advance(HEARTBEAT)
    assert appends(lone, "n2") == [(2, [])]
    lone.refuse("n2", 2, (1, 2))
    assert appends(lone, "n2") == [(1, [2])]


def test_full_window_of_lost_messages_is_found_by_the_heartbeat() -> None:
    lone = leader(options=SMALL)
    lone.acknowledge("n2", 1)
    for _ in range(6):
        lone.propose(b"12345678")
    assert len(appends(lone, "n2")) == 3
    lone.advance(HEARTBEAT)
    assert appends(lone, "n2") == [(4, [])]
    lone.refuse("n2", 4, (1, 2))
    assert appends(lone, "n2") == [(1, [2])]
    lone.acknowledge("n2", 2)
    assert appends(lone, "n2") == [(2, [3]), (3, [4]), (4, [5])]


def test_full_window_of_lost_answers_is_freed_by_the_heartbeats_answer() -> None:
    lone = leader(options=SMALL)
    lone.acknowledge("n2", 1)
    for _ in range(6):
        lone.propose(b"12345678")
    lone.advance(HEARTBEAT)
    lone.take()
    lone.acknowledge("n2", 4)
    assert appends(lone, "n2") == [(4, [5]), (5, [6]), (6, [7])]


def test_refusal_in_a_pipeline_goes_back_to_the_hint_not_to_the_last_match() -> None:
    lone = leader()
    lone.acknowledge("n2", 1)
    for _ in range(5):
        lone.propose(b"x")
    lone.take()
    lone.refuse("n2", 6, (4, 2))  # It holds 4, not yet durable, and lost 5.
    assert appends(lone, "n2") == [(4, [5, 6])]


def test_refusal_below_the_match_is_late_and_changes_nothing() -> None:
    lone = leader()
    lone.acknowledge("n2", 1)
    lone.propose(b"x")
    lone.acknowledge("n2", 2)
    lone.take()
    for rejected in (1, 2):
        lone.refuse("n2", rejected, (0, 0))
    assert (lone.take(), lone.raft.progress["n2"].state) == ([], ProgressState.REPLICATE)


def test_follower_that_lost_its_log_is_probed_at_heartbeats_only() -> None:
    """It may not come back under its old identity (S21); until it is told so, there is no storm."""
    lone = leader()
    lone.acknowledge("n2", 1)
    lone.unreachable("n2")
    lone.take()
    for _ in range(10):
        lone.refuse("n2", 1, (0, 0))
    assert lone.take() == []
    lone.advance(3 * HEARTBEAT)
    assert appends(lone, "n2") == [(1, [])] * 3


def test_broken_link_sends_again_what_was_in_flight() -> None:
    lone = leader()
    lone.acknowledge("n2", 1)
    lone.propose(b"x")
    lone.propose(b"y")
    lone.unreachable("n2")
    lone.take()
    lone.propose(b"z")
    assert appends(lone, "n2") == [(1, [2, 3, 4])]


def test_broken_link_while_probing_does_not_go_back_to_the_beginning() -> None:
    lone = leader(log=1000)
    for _ in range(3):
        lone.unreachable("n2")
    lone.take()
    lone.propose(b"x")
    assert appends(lone, "n2") == []
    lone.advance(HEARTBEAT)
    assert appends(lone, "n2") == [(1000, [])]


def test_follower_that_is_away_costs_heartbeats_and_no_entries() -> None:
    lone = leader()
    lone.acknowledge("n3", 1)
    lone.take()
    for _ in range(20):
        lone.propose(b"x")
        lone.acknowledge("n3", lone.raft.log.last_index)
        lone.advance(HEARTBEAT // 2)
    assert all(indexes == [] for _, indexes in appends(lone, "n2"))
    lone.acknowledge("n2", 0)  # It is back: its answer to a heartbeat.
    assert appends(lone, "n2") == [(0, list(range(1, 22)))]


def test_late_success_while_probing_is_corrected_by_the_next_refusal() -> None:
    lone = leader(log=100)
    lone.refuse("n2", 100, (50, 1))
    lone.acknowledge("n2", 10)  # Of an earlier message: proves less than where the probe stands.
    lone.take()
    lone.refuse("n2", 101, (40, 1))
    assert appends(lone, "n2")[0][0] == 40


def test_idle_leader_sends_a_heartbeat_each_interval() -> None:
    lone = leader()
    lone.acknowledge("n2", 1)
    lone.acknowledge("n3", 1)
    lone.advance(HEARTBEAT)
    lone.take()
    lone.advance(3 * HEARTBEAT)
    assert appends(lone, "n2") == [(1, [])] * 3


def test_busy_leader_sends_no_heartbeats_beside_its_entries() -> None:
    lone = leader()
    for _ in range(100):
        lone.acknowledge("n2", lone.raft.log.last_index)
        lone.acknowledge("n3", lone.raft.log.last_index)
        lone.advance(HEARTBEAT // 20)
        lone.propose(b"x")
    assert all(indexes for _, indexes in appends(lone, "n2"))


def test_silence_is_never_longer_than_one_and_a_half_intervals() -> None:
    lone = leader()
    lone.acknowledge("n2", 1)
    lone.advance(HEARTBEAT + HEARTBEAT // 2 + 1)
    lone.propose(b"x")  # Just late enough to save the next heartbeat.
    sent = lone.now
    lone.take()
    lone.advance(HEARTBEAT // 2)
    assert appends(lone, "n2") == []
    lone.advance(HEARTBEAT)
    assert appends(lone, "n2") == [(2, [])]
    assert lone.raft.progress["n2"].sent_at - sent <= 3 * HEARTBEAT // 2


def test_idle_follower_hears_of_a_commit_soon_and_once() -> None:
    lone = leader()
    for peer in ("n2", "n3"):
        lone.acknowledge(peer, 1)
    lone.advance(HEARTBEAT)
    lone.propose(b"x")
    lone.durable()
    lone.take()
    for peer in ("n2", "n3"):
        lone.acknowledge(peer, 2)
    assert lone.raft.commit_index == 2
    assert lone.take() == []  # The next entries would carry it; wait a little for them.
    lone.advance(10 * MILLISECOND)
    (notice,) = lone.take("n2")
    assert isinstance(notice, AppendEntries)
    assert (notice.leader_commit, notice.prev_log_index, notice.entries) == (2, 2, [])
    lone.advance(50 * MILLISECOND)
    assert lone.take() == []


def test_tick_at_the_deadline_moves_the_deadline() -> None:
    lone = leader()
    lone.acknowledge("n2", 1)
    lone.propose(b"x")
    lone.acknowledge("n2", 2)
    for _ in range(200):
        lone.now = lone.raft.deadline()
        lone.tick()
        assert lone.raft.deadline() > lone.now


def test_more_uncommitted_bytes_than_allowed_are_refused_before_an_index_is_used() -> None:
    lone = leader(options=Options(uncommitted_bytes_max=10))
    assert isinstance(lone.propose(b"x" * 50), Accepted)  # One is always allowed.
    last = lone.raft.log.last_index
    assert lone.propose(b"y")[:2] == ("BUSY", "n1")
    assert (lone.raft.is_busy, lone.raft.log.last_index) == (True, last)
    internal = Propose(lone.now, 0, [(int(EntryKind.OUTBOX), b"outcome")], internal=True)
    assert isinstance(lone.step(internal).proposed, Accepted)
    lone.settle()
    lone.acknowledge("n2", last + 1)
    assert not lone.raft.is_busy
    assert isinstance(lone.propose(b"y"), Accepted)


def test_follower_refuses_proposals_and_names_its_leader() -> None:
    lone = Lone(term=1)
    assert lone.propose(b"x")[:2] == ("NOT_LEADER", "")
    lone.append(1, (0, 0), source="n3")
    assert lone.propose(b"x")[:2] == ("NOT_LEADER", "n3")
    assert lone.raft.log.last_index == 0


def test_answer_of_an_earlier_term_is_ignored_and_of_a_later_one_followed() -> None:
    lone = leader()
    lone.receive("n2", AppendEntriesResponse(1, True, 1, 0, 0, lone.now))
    assert lone.raft.progress["n2"].match_index == 0
    lone.receive("n9", AppendEntriesResponse(2, True, 1, 0, 0, lone.now))
    assert lone.raft.commit_index == 0
    lone.receive("n2", AppendEntriesResponse(5, False, 1, 0, 0, lone.now))
    assert (lone.raft.role, lone.raft.current_term) == (Role.FOLLOWER, 5)


@pytest.mark.parametrize("rejected", [0, 3, 9])
def test_progress_never_falls_below_its_match(rejected: int) -> None:
    progress = Progress(next_index=10, contact_at=0)
    progress.acknowledged(3)
    progress.refused(rejected, 0)
    assert progress.next_index >= 4
