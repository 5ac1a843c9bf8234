"""The follower's side of AppendEntries. Conflicts and commitment: test_scenarios, S16 to S18."""

from __future__ import annotations

from fencepost.raft.core.events import Role
from fencepost.raft.core.messages import AppendEntriesResponse
from fencepost.raft.core.options import SECOND

from .lone import Lone, entries, entry


def test_entries_after_the_logs_end_are_appended_in_one_write() -> None:
    lone = Lone(term=1, log=entries(1))
    lone.append(1, (1, 1), entries(1, 1, start=2), commit=1)
    (write,) = lone.writes
    assert (write.hard_state, write.truncate_from, write.commit_index) == (None, 0, 1)
    assert [item.index for item in write.entries] == [2, 3]
    assert lone.durable() == [AppendEntriesResponse(1, True, 3, 0, 0, 7, SECOND)]


def test_gap_is_refused_with_the_end_of_this_log_as_hint() -> None:
    lone = Lone(term=2, log=entries(1, 2))
    assert lone.append(2, (9, 2), entries(2, start=10)) == [AppendEntriesResponse(2, False, 9, 2, 2, 7, SECOND)]
    assert (lone.writes, lone.raft.log.last_index) == ([], 2)


def test_conflict_is_refused_with_the_last_place_that_can_agree() -> None:
    lone = Lone(term=5, log=entries(1, 1, 3, 3, 3))
    # The leader has term 2 at 4: all of term 3 here is certainly not the leader's.
    assert lone.append(5, (4, 2)) == [AppendEntriesResponse(5, False, 4, 2, 1, 7, SECOND)]


def test_refusal_renews_the_leader_all_the_same() -> None:
    lone = Lone(term=2, log=entries(1))
    lone.now += SECOND // 2
    lone.append(2, (9, 2))
    assert (lone.raft.leader, lone.raft.last_leader_contact) == ("n2", lone.now)
    assert lone.raft.deadline() == lone.now + SECOND


def test_earlier_term_is_refused_and_renews_nobody() -> None:
    lone = Lone(term=5, log=entries(5))
    deadline = lone.raft.deadline()
    lone.now += SECOND // 2
    answers = lone.append(4, (1, 5), entries(4, start=2), commit=1)
    assert answers == [AppendEntriesResponse(5, False, 1, 1, 5, 7, SECOND)]
    assert (lone.raft.leader, lone.raft.commit_index, lone.raft.deadline()) == ("", 0, deadline)


def test_leader_of_the_same_term_ends_a_candidacy() -> None:
    lone = Lone(term=1)
    lone.become_candidate()
    lone.append(2, (0, 0), source="n3")
    assert (lone.raft.role, lone.raft.leader, lone.raft.voted_for) == (Role.FOLLOWER, "n3", "n1")


def test_entries_that_do_not_follow_each_other_are_not_looked_at() -> None:
    lone = Lone(term=1)
    assert lone.append(3, (0, 0), [entry(2, 3)]) == []
    assert lone.append(3, (0, 0), [entry(1, 3), entry(3, 3)]) == []
    assert (lone.raft.current_term, lone.writes) == (1, [])


def test_repeated_entries_are_acknowledged_when_their_first_write_is_durable() -> None:
    lone = Lone(term=1)
    assert lone.append(1, (0, 0), entries(1, 1)) == []
    assert lone.append(1, (0, 0), entries(1, 1)) == []
    assert len(lone.writes) == 1
    assert lone.durable() == [AppendEntriesResponse(1, True, 2, 0, 0, 7, SECOND)] * 2


def test_previous_entry_below_the_commit_index_is_not_compared_again() -> None:
    lone = Lone(term=2, log=entries(1, 1, 2), commit_index=3)
    lone.append(2, (1, 1), entries(1, 2, 2, start=2))
    (write,) = lone.writes
    assert write.entries == entries(2, start=4)


def test_heartbeat_moves_the_commit_index_and_apply_waits_for_the_disk() -> None:
    lone = Lone(term=1)
    lone.append(1, (0, 0), entries(1, 1))
    lone.append(1, (2, 1), commit=2)
    assert (lone.raft.commit_index, lone.applied_to) == (2, 0)
    lone.durable()
    assert lone.applied_to == 2


def test_recovered_commit_index_is_applied_at_once() -> None:
    lone = Lone(term=1, log=entries(1, 1, 1), commit_index=2)
    lone.tick()
    assert lone.applied_to == 2
