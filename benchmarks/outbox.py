"""Commands carried out end to end, beside plain proposals of the same size, in one run.

    python -m benchmarks.outbox [--rounds 2] [--seconds 1.2] [--submitters 1,64,1000] [--json FILE]

Three real node processes on loopback, all their files on one disk, and one load process over the leader's
address. A command counts when its outcome is committed: it was submitted, committed, put into the database
by one fenced transaction and put on record. The plain proposal is the log alone. All of them take
turns within each round, so that whatever else the machine does falls on all; figures are medians over the
rounds, ratios to the log are medians of the ratios within a round. A value has 200 bytes. Processor time is that of
the three nodes and the database server together, for each command: it depends least on what else runs.

At the end every database is read: it holds each command that was acknowledged once, and no other. Anything
else fails the run. No figure does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import postgres
from fencepost.cli.local_cluster import LocalCluster

VALUE_BYTES = 200
SQLITE = """
[resources.sqlite]
kind = "sqlite"
path = "ledger.db"
schema = "CREATE TABLE IF NOT EXISTS entries(operation_id TEXT NOT NULL, account TEXT NOT NULL, cents INTEGER NOT NULL)"
[resources.sqlite.effects.credit]
sql = "INSERT INTO entries VALUES (:operation_id, :account, :cents)"
"""
POSTGRES = """
[resources.{name}]
kind = "postgres"
url = "{url}"
dedupe = "{dedupe}"
schema = '''CREATE TABLE IF NOT EXISTS entries_{name}(
    operation_id text NOT NULL, account text NOT NULL, cents bigint NOT NULL)'''
[resources.{name}.effects.credit]
sql = "INSERT INTO entries_{name} VALUES (:operation_id, :account, :cents)"
"""
"""The tables have no key: it would hide an effect that comes twice."""
DEDUPES = {"table": "table", "ordered": "ordered-lane"}
"""By name of the resource."""


class Way(NamedTuple):
    """One thing that is measured."""

    what: str
    mode: str
    resource: str = ""
    lanes: int = 0


LOG = Way("plain proposal, committed", "log")
WAYS = (
    LOG,
    Way("SQLite", "done", "sqlite"),
    Way("SQLite, all in one lane", "done", "sqlite", 1),
    Way("PostgreSQL, table", "done", "table"),
    Way("PostgreSQL, ordered-lane, 64 lanes", "done", "ordered", 64),
)


def measure(
    way: Way, submitters: int, seconds: float, endpoints: list[str], folder: Path, processes: list[int]
) -> dict[str, float]:
    """``processes`` are those whose time counts, with their children."""
    command = [sys.executable, "-m", "benchmarks.load", way.mode, str(submitters), str(seconds), str(VALUE_BYTES)]
    command += ["--processes", ",".join(map(str, processes))]
    if way.resource:
        acknowledged = folder / f"acknowledged-{way.resource}"
        command += ["--resource", way.resource, "--lanes", str(way.lanes), "--acknowledged", str(acknowledged)]
    output = subprocess.run([*command, "--", *endpoints], check=True, capture_output=True, text=True, timeout=300)
    figures: dict[str, float] = json.loads(output.stdout)
    return figures


async def run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    submitters = [int(number) for number in arguments.submitters.split(",")]
    samples: dict[tuple[Way, int], list[dict[str, float]]] = {}
    with _postgres(folder) as server:
        url = server.url if server else ""
        ways = [way for way in WAYS if url or way.resource not in DEDUPES]
        definitions = SQLITE
        if url:
            definitions += "".join(
                POSTGRES.format(name=name, url=url, dedupe=dedupe) for name, dedupe in DEDUPES.items()
            )
        async with LocalCluster(folder / "cluster", definitions=definitions) as cluster:
            cluster.start()
            await cluster.ready()
            endpoints = list(cluster.endpoints.values())
            nodes = [process.pid for process in cluster.processes.values()]
            for round_number in range(1, arguments.rounds + 1):
                for count in submitters:
                    for way in ways:
                        processes = [*nodes, server.pid] if server and way.resource in DEDUPES else nodes
                        sample = await asyncio.to_thread(
                            measure, way, count, arguments.seconds, endpoints, folder, processes
                        )
                        samples.setdefault((way, count), []).append(sample)
                print(f"round {round_number} measured", file=sys.stderr)
        executed = await check(folder, sorted({way.resource for way in ways if way.resource}), url)
    return summarize(samples, executed)


@contextmanager
def _postgres(folder: Path) -> Iterator[postgres.Server | None]:
    """A server; None where there is none, and why is said."""
    if lacking := postgres.missing():
        print("PostgreSQL is not measured. To have it:  " + "  &&  ".join(lacking), file=sys.stderr)
        yield None
        return
    with postgres.running(folder / "postgres") as server:
        yield server


async def check(folder: Path, resources: list[str], url: str) -> dict[str, int]:
    """That each database holds every acknowledged command exactly once; how many those are. Raises RuntimeError."""
    executed = {}
    for resource in resources:
        acknowledged = (folder / f"acknowledged-{resource}").read_text().split()
        if resource == "sqlite":
            with closing(sqlite3.connect(folder / "cluster" / "ledger.db")) as ledger:
                found = Counter(row[0] for row in ledger.execute("SELECT operation_id FROM entries"))
        else:
            found = Counter(await _read_postgres(url, resource))
        wanted = Counter(acknowledged)
        if found != wanted:
            raise RuntimeError(
                f"{resource}: {(wanted - found).total()} acknowledged commands are not there, and "
                f"{(found - wanted).total()} rows are there that should not be"
            )
        executed[resource] = len(acknowledged)
    return executed


async def _read_postgres(url: str, resource: str) -> list[str]:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch(f"SELECT operation_id FROM entries_{resource}")]
    finally:
        await connection.close()


def summarize(samples: dict[tuple[Way, int], list[dict[str, float]]], executed: dict[str, int]) -> dict[str, Any]:
    rows = []
    for (way, count), found in sorted(samples.items(), key=lambda item: item[0][1]):
        log = samples[LOG, count]
        ratios = [ours["rate"] / theirs["rate"] for ours, theirs in zip(found, log, strict=True)]
        rows.append(
            {
                "submitters": count,
                "what": way.what,
                "rate": statistics.median(each["rate"] for each in found),
                "p50_ms": statistics.median(each["p50_ms"] for each in found),
                "p99_ms": statistics.median(each["p99_ms"] for each in found),
                "ratio_to_log": statistics.median(ratios),
                "processor_us": statistics.median(each["processor_us"] for each in found),
                "rates": [each["rate"] for each in found],
            }
        )
    return {
        "machine": {"cores": os.cpu_count(), "platform": platform.platform(), "python": platform.python_version()},
        "value_bytes": VALUE_BYTES,
        "rows": rows,
        "exactly_once": executed,
    }


def show(report: dict[str, Any]) -> None:
    machine = report["machine"]
    print(f"\n{machine['cores']} cores, {machine['platform']}, Python {machine['python']}; "
          f"three nodes, values of {report['value_bytes']} bytes, every write synced")  # fmt: skip
    print(f"{'outstanding':>11}  {'executed, outcome committed':<36} {'per second':>10} {'p50 ms':>8} {'p99 ms':>8} "
          f"{'x log':>7} {'processor us':>13}")  # fmt: skip
    for row in report["rows"]:
        print(
            f"{row['submitters']:>11}  {row['what']:<36} {row['rate']:>10,.0f} {row['p50_ms']:>8.2f} "
            f"{row['p99_ms']:>8.2f} {row['ratio_to_log']:>7.3f} {row['processor_us']:>13.1f}"
        )
    counts = ", ".join(f"{count:,} {resource}" for resource, count in report["exactly_once"].items())
    print(f"each there exactly once: {counts}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.2, help="of each measurement")
    parser.add_argument("--submitters", default="1,64,1000", help="how many are outstanding, comma-separated")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory:
        report = asyncio.run(run(arguments, Path(directory)))
    show(report)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
