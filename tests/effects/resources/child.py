"""A leader in a process of its own, told by its standard input and heard on its standard output.

    python child.py PATH TERM HOLDER MODE [FIRST LAST]

Modes: ``between`` stops inside the transaction, after the effects and before COMMIT; ``think``
stops in the declared pause, before the transaction; ``plain`` stops nowhere. At a stop it says so
and goes on at the next line of input. ``limited`` runs out of room for its files half-way, says so
and tries again with room. Operations FIRST to LAST are executed in batches of ten.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from resource import RLIMIT_FSIZE, getrlimit, setrlimit
from typing import Any

import structlog

from fencepost.raft.core.errors import FencepostError, ResourceUnavailable
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.resources.sqlite import SqliteEffect, SqliteResource
from fencepost.raft.ports import Attempt

SCHEMA = "CREATE TABLE IF NOT EXISTS entries (place INTEGER PRIMARY KEY, operation TEXT)"
SQL = "INSERT INTO entries (operation) VALUES (:operation_id)"
LANES = 3


def say(text: str) -> None:
    print(text, flush=True)


def stop(text: str) -> None:
    say(text)
    sys.stdin.readline()


class StopsBetween(SqliteResource):
    """Stops where effect and dedupe are written and not committed."""

    def _record(self, *arguments: Any) -> None:
        super()._record(*arguments)
        stop("between")


def attempt_at(index: int) -> Attempt:
    return Attempt(f"a{index}", index, 1, "run", f"lane{index % LANES}", b"{}", b"%016d" % index, 1)


@contextlib.contextmanager
def room_for(path: str, more_bytes: int) -> Iterator[None]:
    """Let no file grow beyond what the write-ahead log has now and ``more_bytes``."""
    soft, hard = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (os.path.getsize(f"{path}-wal") + more_bytes, hard))
    try:
        yield
    finally:
        setrlimit(RLIMIT_FSIZE, (soft, hard))


async def execute_all(resource: SqliteResource, token: FencingToken, holder: str, first: int, last: int) -> None:
    for start in range(first, last + 1, 10):
        attempts = [attempt_at(index) for index in range(start, min(start + 10, last + 1))]
        outcomes = await resource.execute(token, holder, attempts)
        pairs = zip(attempts, outcomes, strict=True)
        say(" ".join(f"{each.operation_id}={outcome.status.name}" for each, outcome in pairs))


async def main(path: str, term: str, holder: str, mode: str, first: str, last: str) -> None:
    kind = StopsBetween if mode == "between" else SqliteResource
    resource = kind(
        "ledger",
        path,
        {"run": SqliteEffect(SQL, think_ns=1 if mode == "think" else 0)},
        cluster_id="cluster",
        schema=SCHEMA,
        busy_timeout_ms=20_000,
        pause=lambda _: stop("thinking"),
    )
    await resource.open()
    token = FencingToken(1, int(term))
    try:
        await resource.claim(token, holder)
        say("claimed")
        if mode == "limited":
            try:
                with room_for(path, 30_000):
                    await execute_all(resource, token, holder, int(first), int(last))
            except ResourceUnavailable as error:
                say(f"full, {error.outcome.value}")
        await execute_all(resource, token, holder, int(first), int(last))
        say("end")
    except FencepostError as error:
        say(error.code)
    await resource.close()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(main(*sys.argv[1:]))
