"""Where the processor time of one command goes, stage by stage, without network, disk or other processes.

    python -m benchmarks.stages [--batch 256] [--rounds 200]

Every stage is the real code, called with whole batches as a busy node calls it, in this one process.
Figures are microseconds of processor time a command: they say what is dear and what is not, not how
fast a cluster is.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import structlog

from fencepost.cli.payload import new_operation_id
from fencepost.cli.process import settle_process
from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import EntryKind, HardState
from fencepost.raft.core.events import Campaign, Durable, Propose, Receive
from fencepost.raft.core.messages import AppendEntriesResponse, RequestVoteResponse
from fencepost.raft.core.options import Options
from fencepost.raft.core.step import Raft
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.resources.sqlite import SqliteResource
from fencepost.raft.effects.resources.sqlite_effect import SqliteEffect
from fencepost.raft.outbox.codec import (
    Command,
    Dispatch,
    DispatchRow,
    Outcome,
    OutcomeRow,
    decode_submission,
    encode,
)
from fencepost.raft.outbox.machine import OutboxMachine
from fencepost.raft.outbox.operation import Operation
from fencepost.raft.outbox.transitions import Verdict
from fencepost.raft.ports import Answer, Attempt, SubmitRequest, Wait
from fencepost.transport.codec import FrameType, decode_body, encode_answers, encode_message, encode_submit

HEADER_BYTES = 16
PAYLOAD = b'{"account":"acct-0001","cents":12345,"memo":"' + b"x" * 160 + b'"}'
TOKEN = FencingToken(1, 1)
T = TypeVar("T")


class Meter:
    """Processor time by stage, in the order in which the stages were first measured."""

    def __init__(self, commands: int) -> None:
        self._commands = commands
        self._seconds: dict[str, float] = {}

    def measure(self, stage: str, work: Callable[[], T]) -> T:
        before = time.process_time()
        result = work()
        self.add(stage, time.process_time() - before)
        return result

    def add(self, stage: str, seconds: float) -> None:
        self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds

    def show(self) -> None:
        for stage, seconds in self._seconds.items():
            print(f"{seconds / self._commands * 1e6:8.2f} us  {stage}")


def leading_raft() -> Raft:
    raft = Raft(
        node_id="n1",
        configuration=Configuration(("n1", "n2", "n3")),
        hard_state=HardState(0, ""),
        entries=[],
        commit_index=0,
        options=Options(window_entries=50_000, check_quorum=False, pre_vote=False),
        between=lambda low, high: low,
        now=0,
    )
    raft.step(Campaign(1))
    raft.step(Durable(1, raft.write_sequence))
    raft.step(Receive(1, "n2", RequestVoteResponse(raft.current_term, True, "")))
    commit(raft)
    return raft


def commit(raft: Raft) -> None:
    raft.step(Durable(1, raft.write_sequence))
    for peer in ("n2", "n3"):
        raft.step(Receive(1, peer, AppendEntriesResponse(raft.current_term, True, raft.log.last_index, 0, 0, 1)))


def commit_through_log(meter: Meter, raft: Raft, machine: OutboxMachine, commands: list[Command]) -> list[Operation]:
    """From the client's commands to applied operations."""
    data = meter.measure("client: encode commands", lambda: [encode(command) for command in commands])
    numbered = [SubmitRequest(at, Wait.COMMITTED, item) for at, item in enumerate(data)]
    frame = meter.measure("client: encode frame", lambda: encode_submit(numbered))
    requests = meter.measure("leader: decode frame", lambda: decode_body(FrameType.SUBMIT, frame[HEADER_BYTES:]))
    meter.measure("leader: check submissions", lambda: [decode_submission(request.data) for request in requests])
    first = raft.log.last_index + 1
    proposals = [(int(EntryKind.OUTBOX), item) for item in data]
    effects = meter.measure("leader: core step, two sends", lambda: raft.step(Propose(1, 1, proposals)))
    append = meter.measure("leader: encode AppendEntries", lambda: encode_message(effects.sends[0].message))
    body = append[HEADER_BYTES:]
    meter.measure("follower: decode AppendEntries", lambda: decode_body(FrameType.APPEND_ENTRIES, body))
    meter.measure("leader: core steps that commit", lambda: commit(raft))
    entries = raft.log.slice(first, raft.log.last_index)
    results = meter.measure("every node: apply commands", lambda: [machine.apply(entry) for entry in entries])
    operations = [result.operation for result in results]
    answers = [
        Answer(at, 0, each.index, each.term, False, "committed", b"", "", "") for at, each in enumerate(operations)
    ]
    meter.measure("leader: encode answers", lambda: encode_answers(answers))
    return operations


async def carry_out(
    meter: Meter, raft: Raft, machine: OutboxMachine, ledger: SqliteResource, operations: list[Operation]
) -> None:
    """From applied operations to applied outcomes."""
    attempts = [
        Attempt(each.operation_id, each.index, each.term, each.effect, each.lane, each.payload, each.digest, 1)
        for each in operations
    ]
    before = time.process_time()
    outcomes = await ledger.execute(TOKEN, "n1", attempts)
    meter.add("leader: SQLite transaction", time.process_time() - before)
    rows = [
        OutcomeRow(operation.index, 1, Verdict.SUCCEEDED, outcome.result, "", 0)
        for operation, outcome in zip(operations, outcomes, strict=True)
    ]
    bodies = (
        encode(Dispatch("ledger", TOKEN, [DispatchRow(each.index, 1) for each in operations])),
        encode(Outcome("ledger", TOKEN, rows)),
    )
    first = raft.log.last_index + 1
    raft.step(Propose(1, 1, [(int(EntryKind.OUTBOX), body) for body in bodies]))
    commit(raft)
    entries = raft.log.slice(first, raft.log.last_index)
    meter.measure("every node: apply dispatch and outcome", lambda: [machine.apply(entry) for entry in entries])


async def run(batch: int, rounds: int, directory: Path) -> None:
    meter = Meter(batch * rounds)
    raft, machine = leading_raft(), OutboxMachine()
    ledger = SqliteResource(
        "ledger",
        directory / "ledger.db",
        {"credit": SqliteEffect("INSERT INTO entries(account, cents) VALUES (:account, :cents)")},
        cluster_id="stages",
        schema="CREATE TABLE IF NOT EXISTS entries(account TEXT NOT NULL, cents INTEGER NOT NULL)",
    )
    await ledger.open()
    await ledger.claim(TOKEN, "n1")
    settle_process()
    for _ in range(rounds):
        commands = [Command(new_operation_id(), "ledger", "credit", "", PAYLOAD) for _ in range(batch)]
        operations = commit_through_log(meter, raft, machine, commands)
        await carry_out(meter, raft, machine, ledger, operations)
    await ledger.close()
    print(f"batches of {batch} commands of {len(PAYLOAD)} bytes, {rounds} rounds")
    meter.show()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory(prefix="fencepost-stages-") as directory:
        asyncio.run(run(arguments.batch, arguments.rounds, Path(directory)))


if __name__ == "__main__":
    main()
