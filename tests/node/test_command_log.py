"""The line of a command that has ended: what it holds, who writes it, and what many of them may cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.handlers import Retryable
from fencepost.raft.effects.policy import RetryPolicy
from fencepost.raft.node.command_log import LINES_A_SECOND, LINES_AT_ONCE, TELL_NS, CommandLog, Lines, line_of
from fencepost.raft.outbox.operation import HistoryRow, Operation, OperationState
from fencepost.raft.ports import Attempt, Guarantee, Wait

from .world import ResourceSpec, World

S = 1_000_000_000
TOKEN = FencingToken(1, 3)
END = Entry(15, 3, EntryKind.OUTBOX, 25 * S, b"")
"""The entry that ends what :func:`ended` makes."""


class Loop:
    """Runs nothing by itself."""

    def __init__(self, *, leads: bool = True) -> None:
        self.at = 5 * S
        self.leads = leads
        self.later: list[Callable[[], None]] = []

    def now(self) -> int:
        return self.at

    def holds_lease(self) -> bool:
        return self.leads

    def soon(self, callback: Callable[[], None]) -> None:
        self.later.append(callback)

    def turn(self) -> None:
        later, self.later = self.later, []
        for callback in later:
            callback()

    def turns(self) -> int:
        count = 0
        while self.later:
            self.turn()
            count += 1
        return count


def ended(number: int = 1, state: OperationState = OperationState.SUCCEEDED) -> Operation:
    rows = [
        (0, OperationState.COMMITTED), (1, OperationState.DISPATCHED), (3, OperationState.RETRY_WAIT),
        (7, OperationState.DISPATCHED), (15, state),
    ]  # fmt: skip
    return Operation(
        f"op{number}", "ledger", "credit", "a", b"{}", b"d", number, 3, 10 * S, state, attempt=2, failures=1,
        token=TOKEN, finished_ns=25 * S,
        history=[HistoryRow(at, (10 + at) * S, each, 0, None, "") for at, each in rows],
    )  # fmt: skip


def events(logs: list[Any]) -> list[Any]:
    return [line for line in logs if line["event"] == "command finished"]


def test_the_line_says_where_the_time_went() -> None:
    line = line_of(ended())
    assert (line["committed_s"], line["dispatched_s"], line["retry_wait_s"], line["total_s"]) == (1, 10, 4, 15)
    assert (line["id"], line["state"], line["attempts"], line["failures"]) == ("op1", "succeeded", 2, 1)
    assert line["token"] == "1.3"


def test_it_is_written_after_the_answers_and_only_where_the_leader_is() -> None:
    with capture_logs() as logs:
        for leads in (False, True):
            loop = Loop(leads=leads)
            log = CommandLog(loop, Lines.ALL)
            rows = [None, [ended(), ended(2, OperationState.DISPATCHED)], [ended(3, OperationState.DEAD)]]
            log.applied([END] * len(rows), rows)
            assert events(logs) == []
            loop.turns()
    assert [(line["id"], line["log_level"]) for line in events(logs)] == [("op1", "info"), ("op3", "warning")]


def test_dispatch_and_outcome_that_are_applied_together_make_one_line() -> None:
    """Each entry names the operation, and at the end of both it has ended."""
    loop, operation = Loop(), ended()
    log = CommandLog(loop, Lines.ALL)
    with capture_logs() as logs:
        log.applied([END._replace(index=7), END], [[operation], [operation]])
        loop.turns()
    assert len(events(logs)) == 1


def test_many_take_several_turns_of_the_loop_and_none_is_lost_at_the_end() -> None:
    loop = Loop()
    log = CommandLog(loop, Lines.ALL)
    with capture_logs() as logs:
        log.applied([END], [[ended(number) for number in range(200)]])
        loop.turn()
        assert 0 < len(events(logs)) < 200
        log.stopped()
    assert [line["id"] for line in events(logs)] == [f"op{number}" for number in range(200)]


@pytest.mark.parametrize("state", [OperationState.SUCCEEDED, OperationState.DEAD])
def test_what_went_well_is_bounded_and_what_did_not_is_not(state: OperationState) -> None:
    loop = Loop()
    log = CommandLog(loop, Lines.SOME)
    with capture_logs() as logs:
        log.applied([END], [[ended(number, state) for number in range(LINES_AT_ONCE + 50)]])
        loop.turns()
        good = state is OperationState.SUCCEEDED
        assert len(events(logs)) == LINES_AT_ONCE + (0 if good else 50)
        loop.at += S
        log.applied([END], [[ended(number, state) for number in range(2 * LINES_A_SECOND)]])
        loop.turns()
        assert len(events(logs)) == LINES_AT_ONCE + (LINES_A_SECOND if good else 50 + 2 * LINES_A_SECOND)
        loop.at += TELL_NS
        log.stopped()
    left_out = sum(line["lines"] for line in logs if line["event"] == "commands_left_out")
    assert left_out == (50 + LINES_A_SECOND if good else 0)


def refuse(attempt: Attempt) -> bytes:
    if attempt.operation_id == "dead":
        raise Retryable("503")
    return b"{}"


def test_what_people_decide_ends_in_a_line_as_well() -> None:
    """Of a real cluster: cancelled, given up, and settled after a doubt, each end once and as what it is."""
    policy = RetryPolicy(max_attempts=1)
    spec = ResourceSpec(guarantee=Guarantee.NAKED, effects={"credit": refuse}, policy=policy, batch_limit=1)
    with World(spec, seed=1) as world:
        for node in world.up():
            node.loop.observe(CommandLog(node.loop, Lines.ALL))
        leader = world.active_leader()
        world.submit(leader, "dead", wait=Wait.COMMITTED)
        world.until(lambda: leader.operation("dead").state is OperationState.DEAD)
        world.reply(leader, "command.discard", id="dead")
        leader.resource.hold_after = True
        world.submit(leader, "doubtful", "unwanted", lane="k", wait=Wait.COMMITTED)
        world.until(lambda: leader.resource.held)
        world.reply(leader, "command.cancel", id="unwanted")
        world.settle_log()
        world.crash(leader.name)
        leader = world.active_leader(other_than=leader.name)
        world.until(lambda: leader.operation("doubtful").state is OperationState.IN_DOUBT)
        word: dict[str, Any] = {"as": "done", "note": "seen"}
        world.reply(leader, "command.resolve", id="doubtful", **word)
        world.advance(0.1)
        lines = [(line["id"], line["state"], line["log_level"]) for line in world.logged("command finished")]
    assert lines == [
        ("dead", "dead", "warning"),
        ("dead", "failed", "warning"),
        ("unwanted", "cancelled", "warning"),
        ("doubtful", "succeeded", "info"),
    ]
