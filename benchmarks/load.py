"""One load process against a running fencepost cluster. Prints one JSON line of figures.

    python -m benchmarks.load MODE SUBMITTERS SECONDS VALUE_BYTES ENDPOINT...
        [--resource ledger] [--lanes 0] [--acknowledged FILE] [--processes PID,...]

MODE is ``log`` (a plain proposal, answered when committed and applied), ``outbox`` (a submission,
answered when committed) or ``done`` (a submission, answered when its outcome is committed). With ``--lanes``
submissions go to so many lanes in turn, without it to none. The operation ids of all that were acknowledged
are added to a file, a line each. ``--processes`` are those whose processor time for each operation is told.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import time
from pathlib import Path

from fencepost.cli.payload import new_operation_id
from fencepost.raft.outbox.codec import Command
from fencepost.raft.ports import Wait
from fencepost.transport.client import Client

WARM_UP = 50


async def measure(arguments: argparse.Namespace, acknowledged: list[str]) -> dict[str, float]:
    """Drive submitters over one client, each with one operation outstanding. Fills ``acknowledged``."""
    text = json.dumps({"account": "acct-0001", "cents": 12345, "memo": ""}, separators=(",", ":"))
    payload = text.replace('"memo":""', '"memo":"' + "x" * (arguments.value_bytes - len(text)) + '"').encode()
    wait = Wait.DONE if arguments.mode == "done" else Wait.COMMITTED
    lanes = itertools.cycle([f"lane-{number}" for number in range(arguments.lanes)] or [""])
    latencies: list[float] = []
    async with Client(arguments.endpoints) as client:

        async def one(lane: str) -> None:
            if arguments.mode == "log":
                await client.propose(payload)
                return
            operation_id = new_operation_id()
            await client.submit(Command(operation_id, arguments.resource, "credit", lane, payload), wait=wait)
            acknowledged.append(operation_id)

        for _ in range(WARM_UP):
            await one(next(lanes))
        computed_s = processor_s(arguments.processes)
        started = time.perf_counter()
        end = started + arguments.seconds

        async def submitter(lane: str) -> None:
            before = time.perf_counter()
            while before < end:
                await one(lane)
                now = time.perf_counter()
                latencies.append(now - before)
                before = now

        await asyncio.gather(*(submitter(next(lanes)) for _ in range(arguments.submitters)))
        elapsed = time.perf_counter() - started
        computed_s = processor_s(arguments.processes) - computed_s
    latencies.sort()
    return {
        "rate": len(latencies) / elapsed,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
        "processor_us": computed_s / len(latencies) * 1e6,
    }


def processor_s(processes: list[int]) -> float:
    """What these and their children have computed so far (Linux)."""
    ticks = 0
    for found in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = found.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has ended meanwhile.
        if int(found.parent.name) in processes or int(fields[1]) in processes:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("log", "outbox", "done"))
    parser.add_argument("submitters", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("value_bytes", type=int)
    parser.add_argument("endpoints", nargs="+")
    parser.add_argument("--resource", default="ledger")
    parser.add_argument("--lanes", type=int, default=0)
    parser.add_argument("--acknowledged", type=Path)
    parser.add_argument("--processes", type=lambda text: [int(pid) for pid in text.split(",")], default=[])
    arguments = parser.parse_args()
    acknowledged: list[str] = []
    work = measure(arguments, acknowledged)
    try:
        import uvloop
    except ImportError:
        figures = asyncio.run(work)
    else:
        figures = uvloop.run(work)
    if arguments.acknowledged:
        with arguments.acknowledged.open("a") as file:
            file.writelines(f"{operation_id}\n" for operation_id in acknowledged)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
