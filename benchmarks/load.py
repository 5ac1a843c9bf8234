"""One load process against a running fencepost cluster. Prints one JSON line of figures.

    python -m benchmarks.load MODE SUBMITTERS SECONDS ENDPOINT...

MODE is ``log`` (a plain proposal, answered when committed and applied), ``outbox`` (a submission,
answered when committed) or ``done`` (a submission, answered when its outcome is committed).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from fencepost.cli.payload import new_operation_id
from fencepost.raft.outbox.codec import Command
from fencepost.raft.ports import Wait
from fencepost.transport.client import Client

WARM_UP = 50


async def measure(
    mode: str, submitters: int, seconds: float, endpoints: list[str], value_bytes: int
) -> dict[str, float]:
    """Drive ``submitters`` coroutines over one client, each with one operation outstanding."""
    text = json.dumps({"account": "acct-0001", "cents": 12345, "memo": ""}, separators=(",", ":"))
    payload = text.replace('"memo":""', '"memo":"' + "x" * (value_bytes - len(text)) + '"').encode()
    wait = Wait.DONE if mode == "done" else Wait.COMMITTED
    latencies: list[float] = []
    async with Client(endpoints) as client:

        async def one() -> None:
            if mode == "log":
                await client.propose(payload)
            else:
                await client.submit(Command(new_operation_id(), "ledger", "credit", "", payload), wait=wait)

        for _ in range(WARM_UP):
            await one()
        started = time.perf_counter()
        end = started + seconds

        async def submitter() -> None:
            before = time.perf_counter()
            while before < end:
                await one()
                now = time.perf_counter()
                latencies.append(now - before)
                before = now

        await asyncio.gather(*(submitter() for _ in range(submitters)))
        elapsed = time.perf_counter() - started
    latencies.sort()
    return {
        "rate": len(latencies) / elapsed,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
    }


def main() -> None:
    mode, submitters, seconds, value_bytes, *endpoints = sys.argv[1:]
    work = measure(mode, int(submitters), float(seconds), endpoints, int(value_bytes))
    try:
        import uvloop
    except ImportError:
        figures = asyncio.run(work)
    else:
        figures = uvloop.run(work)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
