"""The rules of operation ids and of the life of a command (docs/concepts.md), one test a rule."""

from __future__ import annotations

import pytest

from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.errors import UnknownEntry
from fencepost.raft.core.token import FencingToken
from fencepost.raft.outbox.codec import (
    Activation,
    Command,
    Dispatch,
    DispatchRow,
    Election,
    StageSeconds,
    canonical_json,
    encode,
)
from fencepost.raft.outbox.invariants import lane_violations
from fencepost.raft.outbox.machine import HISTORY_ROWS_MAX, OutboxMachine
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.outbox.state import EVENTS_KEPT
from fencepost.raft.outbox.transitions import Verdict

from .script import RESOURCE, Script

FAILURES = [Verdict.FAILED, Verdict.DEAD, Verdict.RETRY, Verdict.NOT_ATTEMPTED, Verdict.IN_DOUBT]


@pytest.fixture
def script() -> Script:
    return Script()


# -- submission ---------------------------------------------------------------------------------------


def test_a_command_is_committed_where_it_stands_in_the_log(script: Script) -> None:
    script.submit("a")
    operation = script.submit("b", b'{"cents":1}', lane="alice")
    assert (operation.state, operation.index, operation.term, operation.lane) == ("committed", 2, 1, "alice")
    assert list(script.machine.pending[RESOURCE]) == [1, 2]
    assert script.machine.by_index[2] is script.machine.operations["b"] is operation


def test_same_id_and_payload_joins_the_one_that_is_pending(script: Script) -> None:
    """S34 (ii): sent to two nodes at once, it stands in the log twice and is one operation."""
    first = script.submit_result("k", b"1")
    second = script.submit_result("k", b"1")
    assert second.operation is first.operation
    assert (second.replayed, second.reused) == (True, False)
    assert len(script.machine.pending[RESOURCE]) == 1


def test_same_id_after_the_outcome_gives_the_first_result(script: Script) -> None:
    """S31: the client heard "unknown" and asks again under the same id."""
    operation = script.submit("k", b"1")
    script.dispatch((operation, 1))
    script.succeed(operation, 1, b'{"rows":1}')
    script.activate(2)
    again = script.submit_result("k", b"1")
    assert (again.replayed, again.operation.state, again.operation.result) == (True, "succeeded", b'{"rows":1}')
    assert not script.machine.pending[RESOURCE]


@pytest.mark.parametrize(
    "other",
    [
        Command("k", RESOURCE, "credit", "", b"2"),
        Command("k", RESOURCE, "credit", "lane", b"1"),
        Command("k", RESOURCE, "debit", "", b"1"),
        Command("k", "mail", "credit", "", b"1"),
    ],
    ids=["payload", "lane", "effect", "resource"],
)
def test_same_id_for_another_command_is_refused(script: Script, other: Command) -> None:
    """S34 (i)."""
    first = script.submit("k", b"1")
    result = script.write(other)
    assert (result.replayed, result.reused, result.operation) == (False, True, first)
    assert len(script.machine.operations) == 1


def test_reordered_json_keys_are_the_same_request(script: Script) -> None:
    """S34 (iii): by the canonical form, which is made before submission."""
    script.submit("k", canonical_json({"b": 1, "a": 2}))
    assert script.submit_result("k", canonical_json({"a": 2, "b": 1})).replayed


def test_names_that_run_into_each_other_are_different_commands(script: Script) -> None:
    script.write(Command("k", "ab", "c", "", b""))
    assert script.write(Command("k", "a", "bc", "", b"")).reused


def test_ten_thousand_others_do_not_push_an_operation_out() -> None:
    """S33: nothing forgets by count or by a clock."""
    machine = OutboxMachine()
    for index in range(1, 10_002):
        data = encode(Command(f"op-{index}", RESOURCE, "credit", "", b"1"))
        machine.apply(Entry(index, 1, EntryKind.OUTBOX, index, data))
    again = encode(Command("op-1", RESOURCE, "credit", "", b"1"))
    result = machine.apply(Entry(20_000, 2, EntryKind.OUTBOX, 1 << 62, again))
    assert (result.replayed, result.operation.index) == (True, 1)


# -- dispatch -----------------------------------------------------------------------------------------


def test_dispatch_spends_an_attempt(script: Script) -> None:
    operation = script.submit("a")
    assert script.dispatch((operation, 1)) == [operation]
    assert (operation.state, operation.attempt, operation.token) == ("dispatched", 1, script.token)


@pytest.mark.parametrize("attempt", [0, 2, 7])
def test_dispatch_of_any_attempt_but_the_next_is_a_no_op(script: Script, attempt: int) -> None:
    operation = script.submit("a")
    assert script.dispatch((operation, attempt)) == []
    assert operation.state is OperationState.COMMITTED


def test_the_same_row_twice_dispatches_once(script: Script) -> None:
    operation = script.submit("a")
    assert script.dispatch((operation, 1), (operation, 1)) == [operation]
    assert script.dispatch((operation, 1)) == []


def test_dispatch_carried_into_a_later_term_is_a_no_op(script: Script) -> None:
    """S47: the entry's own term and its token disagree, so another leader appended it."""
    operation = script.submit("a")
    script.term = 5
    assert script.dispatch((operation, 1), token=FencingToken(1, 4)) == []
    assert operation.state is OperationState.COMMITTED


def test_dispatch_of_an_older_incarnation_is_a_no_op(script: Script) -> None:
    operation = script.submit("a")
    script.term = 3
    script.write(Activation(RESOURCE, FencingToken(2, 3), "n3", "fenced"))
    assert script.dispatch((operation, 1), token=FencingToken(1, 3)) == []


def test_dispatch_for_another_resource_does_not_touch_the_operation(script: Script) -> None:
    operation = script.submit("a")
    script.submit("b", resource="mail")
    assert script.write(Dispatch("mail", script.token, [DispatchRow(operation.index, 1)])) == []
    assert operation.attempt == 0


# -- outcomes -----------------------------------------------------------------------------------------


def test_the_first_success_wins(script: Script) -> None:
    operation = script.submit("a")
    script.dispatch((operation, 1))
    assert script.succeed(operation, 1, b"first") == [operation]
    assert script.succeed(operation, 1, b"second") == []
    assert (operation.state, operation.result) == ("succeeded", b"first")


def test_success_counts_before_its_dispatch_was_applied(script: Script) -> None:
    """At a fenced resource the effect runs beside its dispatch entry, which may be lost."""
    operation = script.submit("a")
    assert script.succeed(operation, 1) == [operation]
    assert (operation.state, operation.attempt) == ("succeeded", 1)
    assert script.dispatch((operation, 1)) == []


def test_success_of_an_earlier_attempt_counts(script: Script) -> None:
    operation = script.submit("a")
    script.dispatch((operation, 1))
    script.outcome(operation, 1, Verdict.RETRY, error="timeout", next_try_ns=5)
    script.dispatch((operation, 2))
    assert script.succeed(operation, 1) == [operation]
    assert (operation.state, operation.error, operation.attempt) == ("succeeded", "", 2)
    assert operation.history[-1].note == "outcome of attempt 1"


def test_success_told_by_a_former_leader_counts(script: Script) -> None:
    """Success is a fact, whoever says it: the resource had accepted the effect under that token."""
    operation = script.submit("a")
    script.dispatch((operation, 1))
    old = script.token
    script.activate(2)
    assert script.succeed(operation, 1, token=old) == [operation]


@pytest.mark.parametrize("verdict", FAILURES)
def test_failure_told_by_a_former_leader_is_a_no_op(script: Script, verdict: Verdict) -> None:
    """S47: "mark #9 failed, term 4" appended in term 5."""
    script.activate(4)
    operation = script.submit("nine")
    script.dispatch((operation, 1))
    old = script.token
    script.term = 5
    assert script.outcome(operation, 1, verdict, token=old) == []
    script.activate(5)
    assert script.outcome(operation, 1, verdict, token=old) == []
    script.dispatch((operation, 2))
    assert script.outcome(operation, 1, verdict, token=old) == []
    assert (operation.state, operation.attempt, operation.failures) == ("dispatched", 2, 0)


@pytest.mark.parametrize("verdict", FAILURES)
def test_failure_of_an_attempt_that_is_not_under_way_is_a_no_op(script: Script, verdict: Verdict) -> None:
    operation = script.submit("a")
    assert script.outcome(operation, 1, verdict) == []
    script.dispatch((operation, 1))
    assert script.outcome(operation, 2, verdict) == []
    script.outcome(operation, 1, Verdict.RETRY, next_try_ns=9)
    assert script.outcome(operation, 1, verdict) == []
    assert (operation.state, operation.failures) == ("retry-wait", 1)


def test_retry_keeps_count_and_time_over_a_change_of_leader(script: Script) -> None:
    """S51, S53: neither attempts nor back-off are reset by a failover."""
    operation = script.submit("a")
    for attempt in (1, 2, 3):
        script.dispatch((operation, attempt))
        script.outcome(operation, attempt, Verdict.RETRY, error="503", next_try_ns=attempt * 1000)
    script.activate(2)
    assert (operation.state, operation.failures, operation.next_try_ns, operation.error) == (
        "retry-wait",
        3,
        3000,
        "503",
    )
    assert script.dispatch((operation, 4)) == [operation]
    assert operation.next_try_ns == 0


@pytest.mark.parametrize(("verdict", "state"), [(Verdict.FAILED, "failed"), (Verdict.DEAD, "dead")])
def test_definite_failure_ends_the_operation_and_stays(script: Script, verdict: Verdict, state: str) -> None:
    """S51: the head of a lane is out of the way by a committed entry, and its letter is kept."""
    head, follower = script.submit("a", lane="k"), script.submit("b", lane="k")
    script.dispatch((head, 1))
    script.outcome(head, 1, verdict, error="400")
    assert (head.state, head.error, head.finished_ns) == (state, "400", script.time_ns)
    assert list(script.machine.pending[RESOURCE].values()) == [follower]
    assert script.machine.operations["a"] is head
    # A dead letter is not final: somebody may have been mistaken, and success is a fact.
    assert script.succeed(head, 1) == ([head] if verdict is Verdict.DEAD else [])


@pytest.mark.parametrize(("next_try_ns", "state"), [(0, "committed"), (77, "retry-wait")])
def test_not_attempted_is_not_failed(script: Script, next_try_ns: int, state: str) -> None:
    """S50, S53: "we lost leadership" is charged to nobody."""
    operation = script.submit("a")
    script.dispatch((operation, 1))
    script.outcome(operation, 1, Verdict.NOT_ATTEMPTED, error="no table", next_try_ns=next_try_ns)
    assert (operation.state, operation.failures, operation.lost, operation.next_try_ns) == (state, 0, 0, next_try_ns)
    assert script.dispatch((operation, 2)) == [operation]


def test_in_doubt_is_left_only_by_a_success(script: Script) -> None:
    operation = script.submit("a")
    script.dispatch((operation, 1))
    script.outcome(operation, 1, Verdict.IN_DOUBT, error="no answer")
    assert operation.state is OperationState.IN_DOUBT
    assert script.dispatch((operation, 2)) == []
    assert script.outcome(operation, 1, Verdict.RETRY) == []
    assert script.succeed(operation, 1) == [operation]


def test_outcomes_about_unknown_indexes_are_no_ops(script: Script) -> None:
    operation = script.submit("a")
    script.submit("b", resource="mail")
    stranger = script.machine.operations["b"]
    assert script.succeed(stranger, 1) == []
    assert operation.state is stranger.state is OperationState.COMMITTED


# -- activation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guarantee", "state"), [("fenced", "committed"), ("keyed", "committed"), ("naked", "in-doubt")]
)
def test_activation_takes_over_what_was_under_way(script: Script, guarantee: str, state: str) -> None:
    script.activate(1, guarantee=guarantee)
    under_way, untouched, done = script.submit("a"), script.submit("b"), script.submit("c")
    script.dispatch((under_way, 1), (done, 1))
    script.succeed(done, 1)
    assert script.activate(2, guarantee=guarantee) == [under_way]
    assert (under_way.state, under_way.lost, under_way.attempt) == (state, 1, 1)
    assert untouched.lost == 0
    assert script.machine.tokens[RESOURCE].token == FencingToken(1, 2)
    record = script.machine.activations[-1]
    assert (record.returned, record.in_doubt) == ((0, 1) if guarantee == "naked" else (1, 0))


def test_activating_again_in_the_same_term_takes_nothing_over(script: Script) -> None:
    """The resource was away and is claimed anew by the same leader: its own attempts still run."""
    script.activate(2)
    operation = script.submit("a")
    script.dispatch((operation, 1))
    assert script.activate(2) == []
    assert operation.state is OperationState.DISPATCHED


def test_stale_activation_is_a_no_op(script: Script) -> None:
    script.activate(5)
    operation = script.submit("a")
    script.dispatch((operation, 1))
    assert script.write(Activation(RESOURCE, FencingToken(1, 4), "n4", "fenced")) == []
    assert script.write(Activation(RESOURCE, FencingToken(1, 5), "impostor", "fenced")) == []
    assert script.machine.tokens[RESOURCE].holder == "n5"
    assert operation.state is OperationState.DISPATCHED
    assert len(script.machine.activations) == 1


def test_a_lane_keeps_its_order_over_retry_and_failover(script: Script) -> None:
    """S52: B never moves past A, whatever happens to A, and no-op entries between them do not matter."""
    a = script.submit("A", lane="k")
    script.index += 3  # Entries of other kinds take indexes too.
    b = script.submit("B", lane="k")
    script.activate(1)
    script.dispatch((a, 1))
    script.outcome(a, 1, Verdict.RETRY, next_try_ns=1)
    script.activate(2)
    assert list(script.machine.pending[RESOURCE].values()) == [a, b]
    script.dispatch((a, 2))
    script.succeed(a, 2)
    assert list(lane_violations(script.machine)) == []
    script.succeed(b, 1)
    assert list(lane_violations(script.machine)) == []


def test_lane_violations_sees_an_overtaking(script: Script) -> None:
    script.submit("A", lane="k")
    b = script.submit("B", lane="k")
    script.succeed(b, 1)
    assert len(list(lane_violations(script.machine))) == 1


# -- the rest -----------------------------------------------------------------------------------------


def test_elections_are_kept_up_to_a_number(script: Script) -> None:
    for term in range(1, EVENTS_KEPT + 6):
        script.term = term
        script.write(Election(f"n{term}", script.token, [StageSeconds("detect", 0.5)]))
    assert len(script.machine.elections) == EVENTS_KEPT
    assert script.machine.elections[-1].election.node == f"n{EVENTS_KEPT + 5}"


def test_history_has_a_bound_and_keeps_its_first_row(script: Script) -> None:
    operation = script.submit("a")
    for attempt in range(1, HISTORY_ROWS_MAX + 5):
        script.dispatch((operation, attempt))
        script.outcome(operation, attempt, Verdict.NOT_ATTEMPTED, error="no table")
    assert len(operation.history) <= HISTORY_ROWS_MAX
    assert operation.history[0].index == operation.index
    assert operation.history[-1].attempt == HISTORY_ROWS_MAX + 4


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x02\x01\x90",
        b"\x01\x63\x90",
        b"\x01\x02\xc1",
        encode(Activation(RESOURCE, FencingToken(1, 1), "n1", "blessed")),
    ],
    ids=["empty", "format", "type", "garbage", "guarantee"],
)
def test_what_is_not_known_stops_the_node_and_changes_nothing(script: Script, data: bytes) -> None:
    """S55: never skipped."""
    script.submit("a")
    before = script.machine.state_hash()
    with pytest.raises(UnknownEntry):
        script.machine.apply(Entry(2, 1, EntryKind.OUTBOX, script.time_ns, data))
    assert script.machine.state_hash() == before


def test_unknown_verdict_stops_the_node_and_changes_nothing(script: Script) -> None:
    operation = script.submit("a")
    script.dispatch((operation, 1))
    before = script.machine.state_hash()
    with pytest.raises(UnknownEntry):
        script.outcome(operation, 1, 99)
    assert script.machine.state_hash() == before


def test_an_entry_is_never_applied_twice(script: Script) -> None:
    """S20: state and applied index are one thing."""
    script.submit("a")
    with pytest.raises(AssertionError):
        script.machine.apply(script.entries[0])


def test_cluster_time_never_goes_backwards() -> None:
    machine = OutboxMachine()
    machine.apply(Entry(1, 1, EntryKind.OUTBOX, 100, encode(Command("a", RESOURCE, "credit", "", b""))))
    machine.apply(Entry(2, 1, EntryKind.OUTBOX, 90, encode(Command("b", RESOURCE, "credit", "", b""))))
    assert machine.cluster_time_ns == 100
