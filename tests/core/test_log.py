"""The log, quorums and options: the small parts everything else stands on."""

from __future__ import annotations

import pytest

from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.errors import ConfigurationError
from fencepost.raft.core.log import ENTRIES_PER_MESSAGE_MAX, RaftLog
from fencepost.raft.core.options import MILLISECOND, SECOND, Options
from fencepost.raft.core.quorum import VoteResult, quorum_value, vote_result

from .lone import FIVE, THREE, Lone, entries, entry


def test_empty_log_ends_at_index_and_term_zero() -> None:
    log = RaftLog([])
    assert (log.first_index, log.last_index, log.last_term, log.last_time_ns) == (1, 0, 0, 0)
    assert (log.term_at(0), log.term_at(1), log.term_at(-1)) == (0, -1, -1)
    assert log.matches(0, 0)
    assert not log.matches(1, 0)


def test_log_that_begins_after_a_prefix() -> None:
    log = RaftLog(entries(4, 5, start=11), previous_index=10, previous_term=3)
    assert (log.first_index, log.last_index) == (11, 12)
    assert [log.term_at(index) for index in range(9, 14)] == [-1, 3, 4, 5, -1]
    assert log.entry(12) == entry(12, 5)
    assert log.slice(11, 11) == [entry(11, 4)]
    log.append([entry(13, 5)])
    log.truncate_from(12)
    assert log.last_index == 11
    assert RaftLog([], 10, 3).last_term == 3


@pytest.mark.parametrize(
    ("start", "bytes_max", "count"), [(1, 1, 1), (1, 6, 2), (1, 8, 2), (1, 9, 3), (2, 99, 3), (4, 1, 1), (5, 9, 0)]
)
def test_slice_by_bytes(start: int, bytes_max: int, count: int) -> None:
    log = RaftLog(entries(1, 1, 1, 1))  # Three bytes each.
    expected = log.slice(start, start + count - 1)
    assert log.slice_bytes(start, bytes_max) == (expected, 3 * len(expected))


def test_a_slice_of_entries_without_payload_is_bounded_too() -> None:
    count = ENTRIES_PER_MESSAGE_MAX + 5
    log = RaftLog([Entry(index, 1, EntryKind.EMBEDDED, 0, b"") for index in range(1, count + 1)])
    assert log.slice_bytes(1, 1)[0] == log.slice(1, ENTRIES_PER_MESSAGE_MAX)
    assert log.slice_bytes(ENTRIES_PER_MESSAGE_MAX, 1)[0] == log.slice(ENTRIES_PER_MESSAGE_MAX, count)


@pytest.mark.parametrize("terms", [(), (1,), (1, 1, 2, 2, 2, 5, 5, 9), (3, 3, 3), (2, 7)])
def test_last_place_with_a_term_at_most_is_what_a_search_from_the_end_finds(terms: tuple[int, ...]) -> None:
    for previous_index, previous_term in ((0, 0), (10, 1)):
        log = RaftLog(entries(*terms, start=previous_index + 1), previous_index, previous_term)
        for index in range(previous_index, log.last_index + 3):
            for term in range(11):
                expected = min(index, log.last_index)
                while expected > previous_index and log.term_at(expected) > term:
                    expected -= 1
                assert log.last_index_with_term_at_most(index, term) == expected


@pytest.mark.parametrize(("last", "expected"), [((3, 2), True), ((2, 2), False), ((1, 3), True), ((9, 1), False)])
def test_up_to_date_compares_terms_before_indexes(last: tuple[int, int], expected: bool) -> None:
    assert RaftLog(entries(1, 2, 2)).is_up_to_date(*last) is expected


@pytest.mark.parametrize(("voters", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_quorum_is_a_majority(voters: int, quorum: int) -> None:
    assert Configuration(tuple(f"n{number}" for number in range(voters))).quorum == quorum


@pytest.mark.parametrize(
    ("values", "expected"),
    [((5, 5, 5), 5), ((9, 5, 1), 5), ((9, 1), 1), ((9,), 0), ((1, 2, 3), 2)],
)
def test_quorum_value_is_what_a_majority_has_reached(values: tuple[int, ...], expected: int) -> None:
    assert quorum_value(Configuration(THREE), dict(zip(THREE, values, strict=False))) == expected
    assert quorum_value(Configuration(THREE), {"x": 99, "y": 99}) == 0


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ({}, VoteResult.PENDING),
        ({"n1": True, "n2": True}, VoteResult.PENDING),
        ({"n1": True, "n2": True, "n3": True}, VoteResult.WON),
        ({"n1": True, "n2": False, "n3": False}, VoteResult.PENDING),
        ({"n2": False, "n3": False, "n4": False}, VoteResult.LOST),
        ({"n1": True, "x": True, "y": True}, VoteResult.PENDING),
    ],
)
def test_votes_of_five(votes: dict[str, bool], expected: VoteResult) -> None:
    assert vote_result(Configuration(FIVE), votes) is expected


def test_even_cluster_is_lost_with_half_of_the_votes_refused() -> None:
    four = Configuration(FIVE[:4])
    assert vote_result(four, {"n1": False, "n2": False}) is VoteResult.LOST


def test_default_options_are_accepted() -> None:
    options = Options()
    assert (options.election_timeout, options.pre_vote, options.check_quorum) == (SECOND, True, True)


def test_options_that_cannot_work_together_are_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigurationError, match="below three heartbeats") as caught:
        Options(election_timeout=150 * MILLISECOND)
    assert "heartbeat" in caught.value.next_step
    Options(election_timeout=150 * MILLISECOND, heartbeat_interval=50 * MILLISECOND)
    with pytest.raises(ConfigurationError, match="stall bound"):
        Options(stall_bound=99 * MILLISECOND)
    with pytest.raises(ConfigurationError, match="negative"):
        Options(commit_notice_delay=-1)
    with pytest.raises(ConfigurationError, match="heartbeat interval"):
        Options(heartbeat_interval=0)


def test_limits_are_positive() -> None:
    with pytest.raises(ConfigurationError, match="positive"):
        Options(append_bytes_max=0)
    with pytest.raises(ConfigurationError, match="positive"):
        Options(in_flight_max=0)
    with pytest.raises(ConfigurationError, match="positive"):
        Options(uncommitted_bytes_max=0)


def test_log_shorter_than_what_was_committed_is_no_log_to_start_with() -> None:
    with pytest.raises(AssertionError, match="past the log's end"):
        Lone(term=1, log=entries(1), commit_index=2)
