"""A leader in a process of its own that stands still inside its transaction.

    python child_postgres.py URL TERM HOLDER

Says ``claimed``, then ``between`` where the effect is written and not committed, and goes on at the next line of
input. Then it says what became of its batch, and what the resource answers when it is asked once more.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import structlog

from fencepost.raft.core.errors import FencepostError
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.resources.postgres import PostgresBounds, PostgresEffect, PostgresResource
from fencepost.raft.ports import Attempt

SCHEMA = "CREATE TABLE IF NOT EXISTS entries (place bigint GENERATED ALWAYS AS IDENTITY, operation text)"
SQL = "INSERT INTO entries (operation) VALUES (:operation_id)"
BOUNDS = PostgresBounds(idle_ns=500_000_000)


class StopsBetween(PostgresResource):
    async def _record(self, *arguments: Any) -> None:
        await super()._record(*arguments)
        print("between", flush=True)
        sys.stdin.readline()  # On the loop, on purpose: nothing of this process goes on.


def attempt_at(index: int) -> Attempt:
    return Attempt(f"a{index}", index, 1, "run", f"lane{index % 3}", b"{}", b"%016d" % index, 1)


async def main(url: str, term: str, holder: str) -> None:
    resource = StopsBetween(
        "ledger", url, {"run": PostgresEffect(SQL)}, cluster_id="cluster", schema=SCHEMA, bounds=BOUNDS
    )
    token = FencingToken(1, int(term))
    await resource.open()
    await resource.claim(token, holder)
    print("claimed", flush=True)
    for _ in range(2):
        try:
            await resource.execute(token, holder, [attempt_at(index) for index in range(1, 11)])
            print("done", flush=True)
        except FencepostError as error:
            print(error.code, error.outcome.value, flush=True)
    await resource.close()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(main(*sys.argv[1:]))
