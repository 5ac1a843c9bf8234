"""The demo's own application: payments into a ledger, and one client that keeps submitting them.

The client writes down what it is about to submit, and what it was answered, in ``submitted.jsonl``:
the proof afterwards compares that file with the ledger and with the nodes' logs.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple

from ...raft.core.errors import FencepostError
from ...raft.outbox.codec import Command, canonical_json
from ...raft.ports import Answer
from ...transport.client import Client
from ..local_cluster import until

RESOURCE = "ledger"
LEDGER_FILE = "ledger.db"
JOURNAL_FILE = "submitted.jsonl"
THINK_S = 1.5
PAUSE_S = 0.02
"""Between two payments of the client."""

DEFINITIONS = f"""
[resources.{RESOURCE}]
kind = "sqlite"                  # fenced: fence, dedupe and effect are one transaction
path = "{LEDGER_FILE}"
# No unique key: nothing in this table keeps a payment from standing in it twice.
schema = "CREATE TABLE IF NOT EXISTS entries(payment TEXT, account TEXT, cents INTEGER, memo TEXT)"
[resources.{RESOURCE}.effects.pay]
sql = "INSERT INTO entries VALUES (:operation_id, :account, :cents, :memo)"
# The same with a declared think time, so that there is a moment in which to freeze or kill its leader.
[resources.{RESOURCE}.effects.pay_slowly]
sql = "INSERT INTO entries VALUES (:operation_id, :account, :cents, :memo)"
think = "{THINK_S * 1000:.0f}ms"
"""

_ACCOUNTS = ("alice", "bob", "carol", "dave", "erin")
_MEMOS = ("rent", "lunch", "books", "tram", "coffee", "theatre")


class Payment(NamedTuple):
    operation_id: str
    account: str
    cents: int
    memo: str

    def command(self, effect: str) -> Command:
        body = {"account": self.account, "cents": self.cents, "memo": self.memo}
        return Command(self.operation_id, RESOURCE, effect, "", canonical_json(body))


class Journal:
    """What the client did, one JSON line each; read again by the proof."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("x", encoding="utf-8")

    def write(self, kind: str, **fields: Any) -> None:
        self._file.write(json.dumps({"kind": kind, **fields}) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class Payments:
    """Submits a payment every :data:`PAUSE_S`, whatever becomes of the ones before.

    An async context manager; the client runs from :meth:`begin` to :meth:`finish`.
    """

    def __init__(self, client: Client, folder: Path, seed: int) -> None:
        self.submitted = 0
        self.answered = 0
        self.longest_gap_s = 0.0
        """The longest time without any answer, while payments were being submitted."""
        self._client = client
        self._journal = Journal(folder / JOURNAL_FILE)
        self._randomness = random.Random(seed)
        self._under_way: set[asyncio.Task[Answer | None]] = set()
        self._submitter: asyncio.Task[None] | None = None
        self._last_answer_at = 0.0

    async def __aenter__(self) -> Payments:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = [*self._under_way, *([self._submitter] if self._submitter is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._journal.close()

    def begin(self) -> None:
        self._last_answer_at = time.monotonic()
        self._submitter = asyncio.create_task(self._keep_submitting())

    async def _keep_submitting(self) -> None:
        while True:
            self.pay()
            await asyncio.sleep(PAUSE_S)

    def pay(self, effect: str = "pay") -> Payment:
        """Submit one payment without waiting for its answer."""
        self.submitted += 1
        choose = self._randomness.choice
        payment = Payment(
            f"pay-{self.submitted:04}", choose(_ACCOUNTS), self._randomness.randint(1, 99_999), choose(_MEMOS)
        )
        self._journal.write("submit", effect=effect, **payment._asdict())
        task = asyncio.create_task(self._submit(payment.command(effect)))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return payment

    async def _submit(self, command: Command) -> Answer | None:
        try:
            answer = await self._client.submit(command)
        except FencepostError as error:
            self._journal.write("error", operation_id=command.operation_id, code=error.code, message=error.message)
            return None
        now = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now - self._last_answer_at)
        self._last_answer_at = now
        self.answered += 1
        self._journal.write("answer", operation_id=command.operation_id, state=answer.state, index=answer.index)
        return answer

    def note(self, kind: str, **fields: Any) -> None:
        """Put down what the proof is to look for."""
        self._journal.write(kind, **fields)

    def measure_anew(self) -> None:
        """Begin a new measurement of the longest gap."""
        self.longest_gap_s = 0.0
        self._last_answer_at = time.monotonic()

    async def answered_more(self, count: int, *, within_s: float = 30.0) -> None:
        """Wait until ``count`` more payments are answered."""
        goal = self.answered + count

        async def look() -> bool:
            return self.answered >= goal

        await until(look, within_s=within_s, what=f"{count} more answered payments")

    async def finish(self) -> None:
        """Submit no more, and wait for every answer. Bounded by the client's timeout."""
        if self._submitter is not None:
            self._submitter.cancel()
            await asyncio.gather(self._submitter, return_exceptions=True)
            self._submitter = None
        if self._under_way:
            await asyncio.gather(*self._under_way)
