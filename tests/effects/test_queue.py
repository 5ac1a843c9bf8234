"""The order in which commands may start, against a model that is too simple to be wrong."""

from __future__ import annotations

import random

import pytest

from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.policy import RetryPolicy, age_ns, judge
from fencepost.raft.effects.queue import DispatchQueue
from fencepost.raft.outbox.operation import TERMINAL, HistoryRow, Operation, OperationState
from fencepost.raft.outbox.transitions import Verdict
from fencepost.raft.ports import AttemptOutcome, AttemptStatus, Guarantee


def operation(index: int, lane: str = "", effect: str = "credit") -> Operation:
    return Operation(f"op{index}", "ledger", effect, lane, b"", b"", index, 1, 0, place=index)


def taken(queue: DispatchQueue, limit: int = 100) -> list[int]:
    return [each.index for each in queue.take(limit)]


def test_without_lanes_it_is_log_order() -> None:
    queue = DispatchQueue(frozenset({"credit"}))
    for index in range(1, 6):
        queue.offer(operation(index))
    assert taken(queue, 2) == [1, 2]
    assert taken(queue) == [3, 4, 5]
    assert not queue.has_ready


def test_s52_a_lane_is_busy_from_take_to_release() -> None:
    queue = DispatchQueue(frozenset({"credit"}))
    for index in range(1, 5):
        queue.offer(operation(index, "k"))
    assert taken(queue, 2) == [1, 2]
    queue.offer(operation(5, "k"))
    assert not queue.has_ready
    queue.release_lane("k", [])
    assert taken(queue) == [3, 4, 5]
    queue.release_lane("k", [])
    assert not queue.has_ready
    queue.offer(operation(6, "k"))
    assert taken(queue) == [6]


def test_s52_what_comes_back_goes_to_the_front_and_waits_its_time() -> None:
    queue = DispatchQueue(frozenset({"credit"}))
    operations = [operation(index, "k") for index in (1, 2, 3)]
    for each in operations:
        queue.offer(each)
    assert taken(queue, 2) == [1, 2]
    operations[0].state = OperationState.RETRY_WAIT
    operations[0].next_try_ns = 50
    queue.release_lane("k", operations[:2])
    assert not queue.has_ready
    assert queue.next_wake_ns() == 50
    queue.wake(49)
    assert not queue.has_ready
    queue.wake(50)
    assert queue.next_wake_ns() == 0
    assert taken(queue) == [1, 2, 3]


def test_s52_a_run_stops_at_what_has_to_wait_or_cannot_start() -> None:
    queue = DispatchQueue(frozenset({"credit"}))
    waiting, doubtful = operation(2, "k"), operation(4, "m")
    waiting.state, waiting.next_try_ns = OperationState.RETRY_WAIT, 9
    doubtful.state = OperationState.IN_DOUBT
    for each in (
        operation(1, "k"),
        waiting,
        operation(3, "m"),
        doubtful,
        operation(5, "m"),
        operation(6, "n", "other"),
    ):
        queue.offer(each)
    assert taken(queue) == [1, 3]
    queue.release_lane("k", [])
    queue.release_lane("m", [])
    queue.wake(8)
    assert not queue.has_ready
    queue.wake(9)
    assert taken(queue) == [2]


@pytest.mark.parametrize("dead_blocks", [True, False])
def test_s52_what_died_behind_a_head_that_stands_is_redriven_behind_everything(dead_blocks: bool) -> None:
    """It was in doubt together with the head, and is still where it stood when it gets its new place."""
    queue = DispatchQueue(frozenset({"credit"}), dead_blocks=dead_blocks)
    head, letter, last = (operation(index, "k") for index in (1, 2, 3))
    head.state = letter.state = OperationState.IN_DOUBT
    for each in (head, letter, last):
        queue.offer(each)
    letter.state = OperationState.DEAD
    queue.changed(letter)
    letter.state, letter.place = OperationState.COMMITTED, 10
    queue.redriven(letter)
    assert taken(queue) == []
    head.state = OperationState.SUCCEEDED
    queue.changed(head)
    assert taken(queue) == [3, 2]
    queue.release_lane("k", [])
    assert taken(queue) == []


@pytest.mark.parametrize("seed", range(80))
def test_random_use_against_a_model(seed: int) -> None:
    """Nothing is lost, nothing twice under way, lanes in order and one at a time."""
    chance = random.Random(seed)
    queue = DispatchQueue(frozenset({"credit"}))
    operations: list[Operation] = []
    under_way: list[list[Operation]] = []
    now = 0
    for _ in range(200):
        move = chance.random()
        if move < 0.4 and len(operations) < 60:
            operations.append(operation(len(operations) + 1, chance.choice(["", "k", "m"])))
            queue.offer(operations[-1])
        elif move < 0.7:
            queue.wake(now)
            ready = queue.has_ready
            batch = queue.take(chance.randint(1, 4))
            assert bool(batch) == ready
            busy = [each for other in under_way for each in other]
            for each in batch:
                assert each not in busy
                assert each.state in (OperationState.COMMITTED, OperationState.RETRY_WAIT)
                assert each.state is OperationState.COMMITTED or each.next_try_ns <= now
                if each.lane:
                    assert each.lane not in {other.lane for other in busy}
                    before = [other for other in operations[: each.index - 1] if other.lane == each.lane]
                    assert all(other.state in TERMINAL or other in batch for other in before)
            assert [each.index for each in batch if each.lane == "k"] == sorted(
                each.index for each in batch if each.lane == "k"
            )
            if batch:
                under_way.append(batch)
        elif under_way:
            batch = under_way.pop(chance.randrange(len(under_way)))
            failed: set[str] = set()
            returned: dict[str, list[Operation]] = {}
            for each in batch:
                if each.lane and each.lane in failed:
                    each.state = OperationState.COMMITTED
                elif chance.random() < 0.3:
                    each.state = OperationState.RETRY_WAIT
                    each.next_try_ns = now + chance.randint(0, 20)
                    failed.add(each.lane)
                else:
                    each.state = OperationState.SUCCEEDED
                if each.lane:
                    returned.setdefault(each.lane, [])
                    if each.state not in TERMINAL:
                        returned[each.lane].append(each)
                elif each.state not in TERMINAL:
                    queue.offer(each)
            for lane, back in returned.items():
                queue.release_lane(lane, back)
        now += chance.randint(0, 5)
    # All come to their end.
    for batch in under_way:
        for each in batch:
            each.state = OperationState.SUCCEEDED
        for lane in {each.lane for each in batch if each.lane}:
            queue.release_lane(lane, [])
    for _ in range(200):
        queue.wake(now + 1000)
        for each in (batch := queue.take(3)):
            assert each.state not in TERMINAL
            each.state = OperationState.SUCCEEDED
        for lane in {each.lane for each in batch if each.lane}:
            queue.release_lane(lane, [])
    assert all(each.state is OperationState.SUCCEEDED for each in operations)
    assert not queue._lanes
    assert not queue._busy


# -- the judgement of an attempt ------------------------------------------------------------------


class Highest:
    """``ports.Randomness`` without chance: always the largest."""

    def between(self, low: int, high: int) -> int:
        assert low == 0
        return high


POLICY = RetryPolicy(max_attempts=3, backoff_ns=100, backoff_max_ns=1000)


@pytest.mark.parametrize(
    ("status", "guarantee", "failures", "verdict", "pause"),
    [
        (AttemptStatus.SUCCEEDED, Guarantee.FENCED, 0, Verdict.SUCCEEDED, None),
        (AttemptStatus.FAILED, Guarantee.FENCED, 0, Verdict.FAILED, None),
        (AttemptStatus.RETRY, Guarantee.FENCED, 0, Verdict.RETRY, 100),
        (AttemptStatus.RETRY, Guarantee.NAKED, 1, Verdict.RETRY, 200),
        (AttemptStatus.RETRY, Guarantee.FENCED, 2, Verdict.DEAD, None),
        (AttemptStatus.UNKNOWN, Guarantee.FENCED, 1, Verdict.UNANSWERED, 200),
        (AttemptStatus.UNKNOWN, Guarantee.KEYED, 0, Verdict.UNANSWERED, 100),
        (AttemptStatus.RETRY, Guarantee.KEYED, 2, Verdict.DEAD, None),
        (AttemptStatus.UNKNOWN, Guarantee.KEYED, 2, Verdict.IN_DOUBT, None),
        (AttemptStatus.UNKNOWN, Guarantee.FENCED, 2, Verdict.IN_DOUBT, None),
        (AttemptStatus.UNKNOWN, Guarantee.NAKED, 0, Verdict.IN_DOUBT, None),
        (AttemptStatus.UNKNOWN, Guarantee.NAKED, 2, Verdict.IN_DOUBT, None),
        (AttemptStatus.DOUBT, Guarantee.KEYED, 0, Verdict.IN_DOUBT, None),
        (AttemptStatus.DOUBT, Guarantee.FENCED, 0, Verdict.IN_DOUBT, None),
        (AttemptStatus.NOT_ATTEMPTED, Guarantee.FENCED, 2, Verdict.NOT_ATTEMPTED, 100),
    ],
)
def test_verdicts(
    status: AttemptStatus, guarantee: Guarantee, failures: int, verdict: Verdict, pause: int | None
) -> None:
    judged = operation(7)
    judged.failures = failures
    row = judge(
        judged,
        1,
        AttemptOutcome(status, b"result", "why", False),
        guarantee=guarantee,
        policy=POLICY,
        cluster_time_ns=5000,
        randomness=Highest(),
    )
    assert (row.index, row.attempt, row.verdict) == (7, 1, verdict)
    assert row.next_try_ns == (0 if pause is None else 5000 + pause)
    assert row.result == (b"result" if verdict is Verdict.SUCCEEDED else b"")


@pytest.mark.parametrize("guarantee", [Guarantee.KEYED, Guarantee.FENCED])
@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("replayed", [True, False])
@pytest.mark.parametrize("unsure", [True, False])
def test_a_refusal_for_good_is_in_doubt_where_an_earlier_attempt_had_no_answer(
    guarantee: Guarantee, tells: bool, replayed: bool, unsure: bool
) -> None:
    """A 403 at the door of an API says nothing about a request that it may have carried out before."""
    judged = operation(7)
    judged.unsure = unsure
    row = judge(
        judged,
        2,
        AttemptOutcome(AttemptStatus.FAILED, b"", "403", replayed),
        guarantee=guarantee,
        policy=POLICY,
        cluster_time_ns=5000,
        randomness=Highest(),
        refusal_tells=tells,
    )
    certain = not unsure or replayed or (tells and guarantee is Guarantee.FENCED)
    assert row.verdict == (Verdict.FAILED if certain else Verdict.IN_DOUBT)


@pytest.mark.parametrize(("asked", "pause"), [(0, 100), (50, 100), (700, 700)])
def test_a_pause_that_the_other_side_asks_for_is_kept(asked: int, pause: int) -> None:
    row = judge(
        operation(7),
        1,
        AttemptOutcome(AttemptStatus.RETRY, b"", "too many", False, asked),
        guarantee=Guarantee.KEYED,
        policy=POLICY,
        cluster_time_ns=5000,
        randomness=Highest(),
    )
    assert (row.verdict, row.next_try_ns) == (Verdict.RETRY, 5000 + pause)


def test_the_age_of_an_operation_counts_from_its_first_attempt_or_from_earlier() -> None:
    old = operation(7)
    old.place = 7
    old.submitted_ns = 100
    assert age_ns(old, 1000) == 0
    old.attempt, old.lost = 3, 1
    rows = [HistoryRow(place, 200 * place, OperationState.DISPATCHED, place, None, "") for place in (1, 2, 3)]
    old.history += rows
    assert age_ns(old, 1000) == 800
    # What fell out of the middle of a long history may have been the first attempt.
    del old.history[-3]
    assert age_ns(old, 1000) == 900


def test_the_age_of_a_redriven_one_counts_from_its_first_attempt_since() -> None:
    old = operation(7)
    old.submitted_ns, old.attempt, old.place = 100, 1, 20
    old.history += [
        HistoryRow(8, 200, OperationState.DISPATCHED, 1, None, ""),
        HistoryRow(9, 300, OperationState.DEAD, 1, None, "503"),
        HistoryRow(20, 5000, OperationState.COMMITTED, 1, None, "redriven"),
    ]
    assert age_ns(old, 9000) == 0, "however long it has waited since"
    old.attempt, old.lost = 3, 1
    old.history += [
        HistoryRow(21 + number, 6000 + number, OperationState.DISPATCHED, number, None, "") for number in (2, 3)
    ]
    assert age_ns(old, 9000) == 2998
    del old.history[-3:-1]
    assert age_ns(old, 9000) == 8900, "what is lost of its history may have been older"


def test_only_what_may_have_been_applied_has_an_age_and_a_redrive_begins_it_anew() -> None:
    """A key that was certainly not used is not forgotten: a letter that was redriven after a week is tried again."""
    old = operation(7)
    old.history.append(HistoryRow(8, 200, OperationState.DISPATCHED, 1, None, ""))
    old.attempt = 1
    assert age_ns(old, 1000) == 0
    old.lost = 1
    assert age_ns(old, 1000) == 800
    old.history.append(HistoryRow(20, 600, OperationState.COMMITTED, 1, None, "redriven"))
    old.place, old.lost = 20, 0
    assert age_ns(old, 1000) == 0
    old.unsure = True
    assert age_ns(old, 1000) == 400
    old.history.append(HistoryRow(21, 700, OperationState.DISPATCHED, 2, None, ""))
    assert age_ns(old, 1000) == 300


def test_what_only_stood_behind_another_needs_no_pause_nor_what_stands_still_anyway() -> None:
    for error, suspended in (("", False), ("down", True)):
        row = judge(
            operation(7),
            5,
            AttemptOutcome(AttemptStatus.NOT_ATTEMPTED, b"", error, False),
            guarantee=Guarantee.FENCED,
            policy=POLICY,
            cluster_time_ns=5000,
            randomness=Highest(),
            suspended=suspended,
        )
        assert (row.verdict, row.next_try_ns) == (Verdict.NOT_ATTEMPTED, 0)


def test_pauses_grow_to_their_limit_and_errors_are_cut() -> None:
    assert [POLICY.pause_ns(failures, Highest()) for failures in (0, 1, 2, 3, 4, 1000)] == [
        100, 200, 400, 800, 1000, 1000
    ]  # fmt: skip
    row = judge(
        operation(1),
        1,
        AttemptOutcome(AttemptStatus.FAILED, b"", "x" * 5000, False),
        guarantee=Guarantee.FENCED,
        policy=POLICY,
        cluster_time_ns=0,
        randomness=Highest(),
    )
    assert len(row.error) == 1000


def test_tokens_order_by_incarnation_first() -> None:
    assert FencingToken(2, 1) > FencingToken(1, 99) > FencingToken(1, 98)
