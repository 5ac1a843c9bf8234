"""A follower that has lost what it had acknowledged (S21), and a leader that lacks what was committed."""

from __future__ import annotations

import pytest

from fencepost.raft.core.entry import Entry
from fencepost.raft.core.errors import CommittedConflict
from fencepost.raft.core.events import LostEntries
from fencepost.raft.core.messages import AppendEntries, AppendEntriesResponse
from fencepost.raft.core.options import MILLISECOND

from .lone import FIVE, Lone, entries, entry

HEARTBEAT = 100 * MILLISECOND


def leader(log: int = 0) -> Lone:
    """A leader of term 2 with ``log`` entries of term 1 and its no-op after them."""
    lone = Lone(term=1, log=entries(*[1] * log))
    lone.become_leader()
    return lone


def sent(lone: Lone, peer: str) -> list[AppendEntries]:
    """What has been sent to ``peer`` and was not looked at yet."""
    found = [send.message for send in lone.visible if send.to == peer and isinstance(send.message, AppendEntries)]
    lone.visible = []
    return found


def question(lone: Lone, peer: str = "n2") -> AppendEntries:
    """What the leader sends next to a follower whose acknowledgement has come."""
    lone.take()
    lone.advance(HEARTBEAT)
    return sent(lone, peer)[-1]


def refuse(lone: Lone, message: AppendEntries, hint: tuple[int, int], peer: str = "n2") -> list[LostEntries]:
    answer = AppendEntriesResponse(2, False, message.prev_log_index, hint[0], hint[1], message.sent_at)
    lone.receive(peer, answer)
    return lone.raft.out.lost_entries


def test_s21_follower_that_refuses_what_it_had_acknowledged_is_reported_and_counts_for_nothing() -> None:
    lone = Lone(term=1, log=entries(1, 1, 1), voters=FIVE)
    lone.become_leader()
    lone.acknowledge("n2", 4)
    asked = question(lone)
    assert asked.prev_log_index == 4
    assert refuse(lone, asked, (2, 1)) == [LostEntries("n2", 4, 2)]
    # n1 and n3 have the no-op; with n2's former word it would be a majority of five.
    lone.acknowledge("n3", 4)
    assert lone.raft.commit_index == 0
    lone.acknowledge("n4", 4)
    assert lone.raft.commit_index == 4
    # Nothing that it takes in from here on counts, and it is asked again and again.
    lone.acknowledge("n2", 3)
    assert lone.raft.progress["n2"].match_index == 0
    again = question(lone)
    assert again.prev_log_index == 4
    assert refuse(lone, again, (2, 1)) == [LostEntries("n2", 4, 2)]


def test_s21_follower_that_has_it_all_again_counts_again() -> None:
    """Its directory was put back as it was."""
    lone = leader(log=3)
    lone.acknowledge("n2", 4)
    assert refuse(lone, question(lone), (2, 1))
    asked = question(lone)
    lone.acknowledge("n2", 4, sent_at=asked.sent_at)
    assert lone.raft.progress["n2"].match_index == 4
    lone.propose(b"x")
    assert [item.index for item in sent(lone, "n2")[-1].entries] == [5]
    lone.settle()
    lone.acknowledge("n2", 5)
    assert lone.raft.commit_index == 5


def test_s21_late_refusals_are_no_loss() -> None:
    """Whatever was sent before the acknowledgement had come may have been refused before it was given."""
    lone = leader(log=3)
    lone.acknowledge("n2", 3)
    lone.propose(b"x")
    before = sent(lone, "n2")
    assert before
    beat = question(lone)
    lone.acknowledge("n2", 5)
    for message in [*before, beat]:
        assert refuse(lone, message, (2, 1)) == []
    # Nor is a refusal of a place that it never acknowledged, or of another message than the one that was asked.
    asked = question(lone)
    assert asked.prev_log_index == 5
    assert refuse(lone, asked._replace(sent_at=asked.sent_at - 1), (2, 1)) == []
    assert refuse(lone, asked._replace(prev_log_index=4), (2, 1)) == []
    assert lone.raft.progress["n2"].match_index == 5


def test_s21_messages_of_the_moment_in_which_the_acknowledgement_came_prove_nothing() -> None:
    """Of two that were sent at one time behind one entry, the refused one may be the one that came too early."""
    lone = leader(log=3)
    lone.acknowledge("n2", 4)
    lone.take()
    lone.now += 1
    lone.propose(b"x")
    lone.propose(b"y")
    early = sent(lone, "n2")[-1]
    assert early.prev_log_index == 5
    lone.acknowledge("n2", 5)
    lone.unreachable("n2")
    lone.propose(b"z")
    later = sent(lone, "n2")[-1]
    assert (later.prev_log_index, later.sent_at) == (5, early.sent_at)
    assert refuse(lone, early, (4, 2)) == []
    # A moment later the same refusal is proof.
    assert refuse(lone, question(lone), (4, 2)) == [LostEntries("n2", 5, 4)]


def test_s21_a_new_leader_holds_nobody_to_what_an_earlier_one_was_told() -> None:
    lone = leader(log=3)
    lone.acknowledge("n2", 4)
    asked = question(lone)
    lone.append(3, (4, 2), source="n3")
    lone.become_leader()
    for index in (4, 3, 2):
        lone.refuse("n2", index, (0, 0))
        assert lone.raft.out.lost_entries == []
    lone.receive("n2", AppendEntriesResponse(4, False, 4, 2, 1, asked.sent_at))
    assert lone.raft.out.lost_entries == []


# -- the other way round: what is committed here is not what the leader has ----------------------------


@pytest.mark.parametrize(
    ("prev", "came"),
    [
        ((0, 0), [entry(1, 1), entry(2, 3)]),  # Among the entries.
        ((2, 3), [entry(3, 3)]),  # Before them.
        ((2, 3), []),  # A heartbeat.
    ],
)
def test_s21_a_leader_without_what_is_committed_ends_this_node_and_is_not_followed(
    prev: tuple[int, int], came: list[Entry]
) -> None:
    """It was elected by a node that had forgotten. To go on as if nothing were would be two histories."""
    lone = Lone(term=2, log=entries(1, 1, 2), commit_index=2)
    with pytest.raises(CommittedConflict, match="entry 2 of term 1 is committed here, and n2") as caught:
        lone.append(3, prev, came)
    assert caught.value.code == "COMMITTED_CONFLICT"
    assert lone.raft.log.slice(1, 3) == entries(1, 1, 2)


def test_s21_late_and_repeated_entries_below_the_commit_index_are_no_conflict() -> None:
    lone = Lone(term=2, log=entries(1, 1, 2), commit_index=3)
    for start in range(3):
        lone.append(3, (start, [0, 1, 1][start]), entries(1, 1, 2)[start:])
    lone.append(3, (3, 2))
    assert lone.raft.log.last_index == 3
