"""Cancelled, scheduled, expired, in doubt, redriven and discarded: every arrow beside dispatch and outcome."""

from __future__ import annotations

import pytest

from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.errors import CommandInvalid, UnknownEntry
from fencepost.raft.core.token import FencingToken
from fencepost.raft.outbox.codec import (
    Cancel,
    Command,
    Discard,
    Expiry,
    Redrive,
    Resolve,
    Tick,
    check_command,
    decode,
    encode,
)
from fencepost.raft.outbox.machine import OutboxMachine
from fencepost.raft.outbox.operation import Operation, OperationState
from fencepost.raft.outbox.transitions import Finding, Verdict

from .script import RESOURCE, Script


def leading(term: int = 3, guarantee: str = "fenced") -> Script:
    script = Script()
    script.activate(term, guarantee=guarantee)
    return script


def cancel(script: Script, operation: Operation, *, absent: bool = False, token: FencingToken | None = None) -> str:
    script.write(Cancel(operation.operation_id, token or script.token, absent, "no longer wanted"))
    return operation.state.value


# -- cancel -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["fenced", "keyed", "naked"])
def test_what_was_never_dispatched_is_cancelled_for_certain(guarantee: str) -> None:
    script = leading(guarantee=guarantee)
    operation = script.submit("a")
    assert cancel(script, operation) == "cancelled"
    assert operation.error == "no longer wanted"
    assert operation.finished_ns == script.time_ns
    assert script.dispatch((operation, 1)) == []
    assert script.succeed(operation, 1) == []


def test_what_waits_for_its_next_attempt_is_cancelled_for_certain() -> None:
    script = leading()
    operation = script.submit("a")
    script.dispatch((operation, 1))
    script.outcome(operation, 1, Verdict.RETRY, error="503", next_try_ns=99)
    assert cancel(script, operation) == "cancelled"
    assert operation.next_try_ns == 0


def test_at_a_fenced_resource_what_an_earlier_leader_may_have_sent_is_asked_about_first() -> None:
    """An effect runs beside its dispatch there, and a dispatch that was never committed left no trace."""
    script = leading()
    operation = script.submit("a")
    script.activate(4)
    assert cancel(script, operation) == "committed"
    assert operation.cancel_ns
    assert script.dispatch((operation, 1)) == [operation]


def test_what_an_earlier_leader_may_have_sent_while_the_resource_was_fenced_is_not_cancelled_for_certain() -> None:
    """It promises less now, and the dispatch that its effect ran beside may be lost all the same."""
    script = leading()
    operation = script.submit("a")
    script.activate(4, guarantee="keyed")
    later = script.submit("b")
    assert cancel(script, later) == "cancelled"
    assert cancel(script, operation) == "in-doubt"


def test_what_the_resource_does_not_know_behind_the_fence_is_cancelled() -> None:
    script = leading()
    operation = script.submit("a")
    script.dispatch((operation, 1))
    script.activate(4)
    assert cancel(script, operation, absent=True) == "cancelled"


def test_what_was_lost_is_heard_of_when_the_resource_refuses_the_next_attempt() -> None:
    """Behind the claim of a later leader: what had been applied it would have recognised."""
    script = leading()
    operation = script.submit("a")
    script.dispatch((operation, 1))
    script.activate(4)
    script.dispatch((operation, 2))
    script.outcome(operation, 2, Verdict.RETRY, error="503", next_try_ns=99)
    assert (operation.lost, cancel(script, operation)) == (1, "cancelled")


def test_what_was_lost_is_not_heard_of_when_the_next_attempt_did_not_reach_the_resource() -> None:
    script = leading()
    operation = script.submit("a")
    script.dispatch((operation, 1))
    script.activate(4)
    script.dispatch((operation, 2))
    script.outcome(operation, 2, Verdict.UNHEARD)
    assert cancel(script, operation) == "committed"


def test_an_attempt_of_the_same_leader_that_was_not_heard_of_may_wake_after_the_answer() -> None:
    """It bears the token that is let in: that the resource does not know it yet says nothing."""
    script = leading()
    operation = script.submit("a")
    script.dispatch((operation, 1))
    script.outcome(operation, 1, Verdict.UNHEARD, error="no answer", next_try_ns=99)
    assert operation.failures == 0
    assert cancel(script, operation, absent=True) == "retry-wait"


@pytest.mark.parametrize(
    ("verdict", "state"),
    [
        (Verdict.RETRY, "cancelled"),
        (Verdict.NOT_ATTEMPTED, "cancelled"),
        (Verdict.FAILED, "failed"),
        (Verdict.DEAD, "dead"),
        (Verdict.UNANSWERED, "in-doubt"),
        (Verdict.SUCCEEDED, "succeeded"),
    ],
)
def test_a_wish_is_granted_when_the_attempt_under_way_was_not_applied(verdict: Verdict, state: str) -> None:
    script = leading(guarantee="keyed")
    operation = script.submit("a")
    script.dispatch((operation, 1))
    assert cancel(script, operation) == "dispatched"
    assert operation.history[-1].note == "asked to be cancelled: no longer wanted"
    error = "" if verdict is Verdict.SUCCEEDED else "503"
    script.outcome(operation, 1, verdict, error=error, next_try_ns=99 if verdict is Verdict.RETRY else 0)
    assert operation.state == state


def test_a_wish_at_a_fenced_resource_outlives_an_attempt_that_was_not_heard_of() -> None:
    """The resource recognises it: another attempt tells, and nothing is left in doubt."""
    script = leading()
    operation = script.submit("a")
    script.dispatch((operation, 1))
    cancel(script, operation)
    script.outcome(operation, 1, Verdict.UNHEARD, error="no answer")
    assert operation.state is OperationState.COMMITTED
    script.dispatch((operation, 2))
    script.succeed(operation, 2)
    assert operation.state is OperationState.SUCCEEDED


@pytest.mark.parametrize("verdict", [Verdict.UNANSWERED, None])
def test_what_may_have_been_applied_is_in_doubt_and_not_cancelled(verdict: Verdict | None) -> None:
    script = leading(guarantee="keyed")
    operation = script.submit("a")
    script.dispatch((operation, 1))
    if verdict is None:
        script.activate(4, guarantee="keyed")
    else:
        script.outcome(operation, 1, verdict, error="no answer", next_try_ns=99)
    assert operation.unsure
    assert cancel(script, operation) == "in-doubt"
    script.write(Resolve("a", Finding.ABSENT, 1, script.token, b"", ""))
    assert operation.state is OperationState.CANCELLED


def test_the_next_leader_of_a_keyed_resource_does_not_repeat_what_is_not_wanted() -> None:
    script = leading(guarantee="keyed")
    operation = script.submit("a")
    script.dispatch((operation, 1))
    cancel(script, operation)
    script.activate(4, guarantee="keyed")
    assert operation.state is OperationState.IN_DOUBT


def test_s47_a_cancel_of_a_leader_that_is_one_no_longer_is_void() -> None:
    script = leading()
    operation = script.submit("a")
    script.activate(4)
    assert cancel(script, operation, token=FencingToken(1, 3)) == "committed"
    assert not operation.cancel_ns


def test_cancelling_what_has_ended_or_is_not_known_changes_nothing() -> None:
    script = leading()
    operation = script.submit("a")
    script.succeed(operation, 1)
    assert cancel(script, operation) == "succeeded"
    assert script.write(Cancel("nobody", script.token, False, "")) == []


# -- times ------------------------------------------------------------------------------------------------


def test_nothing_is_dispatched_before_its_time() -> None:
    script = leading()
    due_ns = script.time_ns + 1000
    operation = script.write(Command("a", RESOURCE, "credit", "", b"{}", due_ns)).operation
    assert script.dispatch((operation, 1)) == []
    script.time_ns = due_ns - 2
    assert script.dispatch((operation, 1)) == []
    assert script.dispatch((operation, 1)) == [operation]


def test_what_was_not_dispatched_by_its_deadline_is_a_dead_letter() -> None:
    script = leading()
    deadline_ns = script.time_ns + 1000
    operation = script.write(Command("a", RESOURCE, "credit", "", b"{}", 0, deadline_ns)).operation
    script.write(Expiry(RESOURCE, script.token, [operation.index]))
    assert operation.state is OperationState.COMMITTED
    script.time_ns = deadline_ns
    assert script.dispatch((operation, 1)) == []
    script.write(Expiry(RESOURCE, FencingToken(1, 2), [operation.index]))
    assert operation.state is OperationState.COMMITTED
    script.write(Expiry(RESOURCE, script.token, [operation.index]))
    assert (operation.state, operation.error) == ("dead", "its deadline passed before attempt 1")
    assert script.machine.dead[RESOURCE] == {operation.index: operation}


def test_a_deadline_says_nothing_about_an_attempt_that_is_under_way() -> None:
    script = leading()
    operation = script.write(Command("a", RESOURCE, "credit", "", b"{}", 0, script.time_ns + 10)).operation
    script.dispatch((operation, 1))
    script.time_ns += 100
    script.write(Expiry(RESOURCE, script.token, [operation.index]))
    assert operation.state is OperationState.DISPATCHED


def test_a_deadline_leaves_in_doubt_what_may_have_been_applied() -> None:
    script = leading(guarantee="keyed")
    operation = script.write(Command("a", RESOURCE, "credit", "", b"{}", 0, script.time_ns + 10)).operation
    script.dispatch((operation, 1))
    script.outcome(operation, 1, Verdict.UNANSWERED, error="no answer", next_try_ns=99)
    script.time_ns += 100
    script.write(Expiry(RESOURCE, script.token, [operation.index]))
    assert operation.state is OperationState.IN_DOUBT


@pytest.mark.parametrize(
    ("verdict", "state"), [(None, "in-doubt"), (Verdict.UNHEARD, "in-doubt"), (Verdict.RETRY, "dead")]
)
def test_a_deadline_leaves_in_doubt_what_was_lost_at_a_fenced_resource(verdict: Verdict | None, state: str) -> None:
    """A dead letter was certainly not applied. What its resource would recognise may have been, until that is heard."""
    script = leading()
    operation = script.write(Command("a", RESOURCE, "credit", "", b"{}", 0, script.time_ns + 10)).operation
    script.dispatch((operation, 1))
    script.activate(4)
    if verdict is not None:
        script.dispatch((operation, 2))
        script.outcome(operation, 2, verdict, error="no room")
    script.time_ns += 100
    script.write(Expiry(RESOURCE, script.token, [operation.index]))
    assert operation.state == state


def test_a_deadline_that_passed_in_doubt_counts_as_soon_as_the_resource_says_that_it_was_not_applied() -> None:
    script = leading(guarantee="keyed")
    operation = script.write(Command("a", RESOURCE, "credit", "", b"{}", 0, script.time_ns + 10)).operation
    script.dispatch((operation, 1))
    script.outcome(operation, 1, Verdict.IN_DOUBT, error="no answer")
    script.time_ns += 100
    script.write(Resolve("a", Finding.ABSENT, 1, script.token, b"", ""))
    assert operation.state is OperationState.DEAD
    assert operation.error == "its deadline passed while it was in doubt; its resource says not applied"


def test_times_are_no_part_of_what_a_command_is() -> None:
    """The same line of a script, run again, joins: the first times count."""
    script = leading()
    first = script.write(Command("a", RESOURCE, "credit", "", b"{}", script.time_ns + 1000)).operation
    again = script.write(Command("a", RESOURCE, "credit", "", b"{}", script.time_ns + 2000))
    assert (again.operation, again.replayed, again.reused) == (first, True, False)


def test_a_tick_moves_nothing_but_the_time() -> None:
    script = leading()
    script.submit("a")
    script.time_ns += 5_000
    assert script.write(Tick()) is None
    assert script.machine.cluster_time_ns == script.time_ns


@pytest.mark.parametrize("times", [(-1, 0), (0, 1 << 62), (20, 20), (20, 10)])
def test_impossible_times_are_refused(times: tuple[int, int]) -> None:
    with pytest.raises(CommandInvalid):
        check_command(Command("a", RESOURCE, "credit", "", b"{}", *times))


def test_a_command_without_times_is_written_as_it_always_was() -> None:
    plain = Command("a", RESOURCE, "credit", "", b"{}")
    assert encode(plain) == b"\x01\x01\x95\xa1a\xa6ledger\xa6credit\xa0\xc4\x02{}"
    assert decode(encode(plain)) == plain
    timed = plain._replace(not_before_ns=5, deadline_ns=9)
    assert decode(encode(timed)) == timed


# -- dead letters -----------------------------------------------------------------------------------------


def dead(script: Script, name: str = "a", lane: str = "k") -> Operation:
    operation = script.submit(name, lane=lane)
    script.dispatch((operation, 1))
    script.outcome(operation, 1, Verdict.DEAD, error="503")
    assert operation.state is OperationState.DEAD
    return operation


def test_a_redriven_command_keeps_its_id_and_history_and_takes_a_new_place_in_its_lane() -> None:
    script = leading()
    operation = dead(script)
    follower = script.submit("b", lane="k")
    script.write(Redrive("a", "mended"))
    assert operation.state is OperationState.COMMITTED
    assert operation.place == script.index > follower.place
    assert list(script.machine.pending[RESOURCE].values()) == [follower, operation]
    assert [row.note for row in operation.history[-2:]] == ["503", "redriven: mended"]
    assert (operation.failures, operation.attempt, operation.finished_ns) == (0, 1, 0)
    assert script.dispatch((operation, 2)) == [operation]
    script.succeed(operation, 2)
    restored = OutboxMachine()
    restored.restore(script.machine.snapshot())
    assert restored.state_hash() == script.machine.state_hash()


def test_the_new_places_survive_a_snapshot() -> None:
    script = leading()
    operation, follower = dead(script), script.submit("b", lane="k")
    script.write(Redrive("a", ""))
    restored = OutboxMachine()
    restored.restore(script.machine.snapshot())
    assert list(restored.pending[RESOURCE]) == [follower.index, operation.index]


def test_a_discarded_dead_letter_has_failed_for_good() -> None:
    script = leading()
    operation = dead(script)
    script.write(Discard("a", "of no use"))
    assert (operation.state, operation.error) == ("failed", "503 (discarded: of no use)")
    assert script.machine.dead[RESOURCE] == {}
    assert script.write(Redrive("a", "")) == []


def test_success_is_a_fact_also_of_a_dead_letter() -> None:
    script = leading()
    operation = dead(script)
    script.succeed(operation, 1, b"7")
    assert (operation.state, operation.result, operation.error) == ("succeeded", b"7", "")
    assert script.machine.dead[RESOURCE] == {}


def test_a_dead_letter_that_was_applied_after_all_has_succeeded_whoever_says_so() -> None:
    for word in (Resolve("a", Finding.DONE, 0, None, b"7", "seen"), None):
        script = leading()
        operation = dead(script)
        own = Resolve("a", Finding.DONE, operation.attempt, script.token, b"7", "seen")
        for other in (
            own._replace(attempt=operation.attempt + 1),
            own._replace(token=FencingToken(1, 99)),
            own._replace(finding=Finding.NOT_DONE),
            own._replace(finding=Finding.ABSENT),
        ):
            assert script.write(other) == []
        assert script.write(word or own) == [operation]
        assert (operation.state, operation.result, operation.error) == ("succeeded", b"7", "")
        assert operation.history[-1].note == ("resolved as done: seen" if word else "its resource says done: seen")
        assert script.machine.dead[RESOURCE] == {}
        assert script.write(Redrive("a", "")) == []


@pytest.mark.parametrize("entry", [Redrive("a", ""), Discard("a", ""), Resolve("a", 0, 0, None, b"", "")])
def test_only_dead_letters_are_redriven_and_only_what_is_in_doubt_is_resolved(
    entry: Redrive | Discard | Resolve,
) -> None:
    script = leading()
    operation = script.submit("a")
    assert script.write(entry) == []
    script.succeed(operation, 1)
    assert script.write(entry) == []


# -- in doubt ---------------------------------------------------------------------------------------------


def doubtful(script: Script) -> Operation:
    operation = script.submit("a")
    script.dispatch((operation, 1))
    script.outcome(operation, 1, Verdict.IN_DOUBT, error="no answer")
    return operation


@pytest.mark.parametrize(
    ("finding", "state", "note"),
    [
        (Finding.DONE, "succeeded", "resolved as done: seen in the books"),
        (Finding.NOT_DONE, "dead", "resolved as failed: seen in the books"),
    ],
)
def test_an_operator_resolves_what_is_in_doubt(finding: Finding, state: str, note: str) -> None:
    script = leading(guarantee="naked")
    operation = doubtful(script)
    script.write(Resolve("a", finding, 0, None, b"", "seen in the books"))
    assert (operation.state, operation.history[-1].note) == (state, note)
    if state == "dead":
        script.write(Redrive("a", ""))
        assert script.dispatch((operation, 2)) == [operation]


@pytest.mark.parametrize(("finding", "state"), [(Finding.DONE, "succeeded"), (Finding.ABSENT, "retry-wait")])
def test_a_resource_resolves_what_is_in_doubt(finding: Finding, state: str) -> None:
    script = leading(guarantee="naked")
    operation = doubtful(script)
    script.activate(4, guarantee="naked")
    script.write(Resolve("a", finding, 1, FencingToken(1, 3), b"7", ""))
    assert operation.state is OperationState.IN_DOUBT
    script.write(Resolve("a", finding, 2, script.token, b"7", ""))
    assert operation.state is OperationState.IN_DOUBT
    script.write(Resolve("a", finding, 1, script.token, b"7", ""))
    assert operation.state == state
    assert operation.result == (b"7" if finding is Finding.DONE else b"")


def test_s55_a_finding_that_this_version_does_not_know_stops_the_node() -> None:
    script = leading()
    with pytest.raises(UnknownEntry):
        script.write(Resolve("a", 9, 0, None, b"", ""))


def test_what_was_given_up_on_without_an_answer_is_a_letter_that_must_be_resolved_first() -> None:
    script = leading(guarantee="naked")
    operation = doubtful(script)
    entry = Entry(script.index + 1, script.term, EntryKind.OUTBOX, script.time_ns, encode(Redrive("a", "")))
    script.index += 1
    assert script.machine.apply(entry) == []
    assert operation.state is OperationState.IN_DOUBT
