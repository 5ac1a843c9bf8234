"""Plain proposals and outbox submissions of fencepost beside puts of etcd, in one run.

    python -m benchmarks.compare [--rounds 3] [--seconds 3] [--submitters 1,64,256] [--json FILE]

Three real processes of each system on loopback, both syncing every write, both driven by one load
process over the leader's address. The systems take turns within each round, so that whatever else
the machine does falls on both; figures are medians over the rounds, ratios are medians of the ratios
within a round. A value has 200 bytes.

etcd is driven in two shapes, one connection with N streams and N connections with one; the better
of the two counts. Nothing here fails by a figure: it prints what it measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import etcd
from benchmarks.etcd import Figures
from fencepost.cli.local_cluster import LocalCluster

VALUE_BYTES = 200
LEDGER = """
[resources.ledger]
kind = "sqlite"
path = "ledger.db"
schema = "CREATE TABLE IF NOT EXISTS entries(account TEXT NOT NULL, cents INTEGER NOT NULL)"
[resources.ledger.effects.credit]
sql = "INSERT INTO entries(account, cents) VALUES (:account, :cents)"
"""
MODES = {
    "log": "plain proposal, committed",
    "outbox": "outbox submission, committed",
    "done": "outbox submission, outcome committed",
}


def measure_fencepost(mode: str, submitters: int, seconds: float, endpoints: list[str]) -> Figures:
    command = [sys.executable, "-m", "benchmarks.load", mode, str(submitters), str(seconds), str(VALUE_BYTES)]
    output = subprocess.run([*command, *endpoints], check=True, capture_output=True, text=True, timeout=300).stdout
    figures = json.loads(output)
    del figures["processor_us"]
    return Figures(**figures)


def measure_etcd(peer: etcd.Etcd, submitters: int, seconds: float) -> Figures:
    """The better of two shapes, each for about ``seconds`` (the count is taken from a short trial)."""
    trial = peer.put(submitters, max(submitters * 20, 200))
    requests = max(int(trial.rate * seconds), submitters * 20)
    shapes = {1, submitters}
    return max((peer.put(submitters, requests, connections=shape) for shape in shapes), key=lambda found: found.rate)


async def run(arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    submitters = [int(number) for number in arguments.submitters.split(",")]
    samples: dict[tuple[str, int], list[Figures]] = {}
    with_etcd = not etcd.missing()
    if not with_etcd:
        print("etcd is not measured. To have it:  " + "  &&  ".join(etcd.missing()), file=sys.stderr)
    for round_number in range(1, arguments.rounds + 1):
        # Fresh clusters a round: neither system is measured over the data of the rounds before.
        home = directory / f"round-{round_number}"
        home.mkdir()
        for count in submitters:
            async with LocalCluster(home / f"fencepost-{count}", definitions=LEDGER) as cluster:
                cluster.start()
                await cluster.ready()
                for mode in MODES:
                    figures = await asyncio.to_thread(
                        measure_fencepost, mode, count, arguments.seconds, list(cluster.endpoints.values())
                    )
                    samples.setdefault((mode, count), []).append(figures)
            if with_etcd:
                with etcd.running(home / f"etcd-{count}", VALUE_BYTES) as peer:
                    samples.setdefault(("etcd", count), []).append(measure_etcd(peer, count, arguments.seconds))
            print(f"round {round_number}: {count} submitters measured", file=sys.stderr)
    return summarize(samples, submitters)


def summarize(samples: dict[tuple[str, int], list[Figures]], submitters: list[int]) -> dict[str, Any]:
    rows = []
    for count in submitters:
        for mode in (*MODES, "etcd"):
            found = samples.get((mode, count))
            if not found:
                continue
            peer = samples.get(("etcd", count))
            ratio = (
                statistics.median(ours.rate / theirs.rate for ours, theirs in zip(found, peer, strict=True))
                if peer
                else None
            )
            rows.append(
                {
                    "submitters": count,
                    "what": mode,
                    "rate": statistics.median(figures.rate for figures in found),
                    "p50_ms": statistics.median(figures.p50_ms for figures in found),
                    "p99_ms": statistics.median(figures.p99_ms for figures in found),
                    "ratio_to_etcd": ratio,
                    "rates": [figures.rate for figures in found],
                }
            )
    return {
        "machine": {"cores": os.cpu_count(), "platform": platform.platform(), "python": platform.python_version()},
        "value_bytes": VALUE_BYTES,
        "rows": rows,
    }


def show(report: dict[str, Any]) -> None:
    machine = report["machine"]
    print(f"\n{machine['cores']} cores, {machine['platform']}, Python {machine['python']}; "
          f"three nodes each, values of {report['value_bytes']} bytes, every write synced")  # fmt: skip
    print(f"{'outstanding':>11}  {'what':<38} {'per second':>10} {'p50 ms':>8} {'p99 ms':>8} {'x etcd':>7}")
    for row in report["rows"]:
        name = MODES.get(row["what"], "etcd put (3.4, h2load)")
        ratio = f"{row['ratio_to_etcd']:.2f}" if row["ratio_to_etcd"] is not None else "-"
        print(
            f"{row['submitters']:>11}  {name:<38} {row['rate']:>10,.0f} {row['p50_ms']:>8.2f} {row['p99_ms']:>8.2f} "
            f"{ratio:>7}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--submitters", default="1,64,256", help="how many are outstanding, comma-separated")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory:
        report = asyncio.run(run(arguments, Path(directory)))
    show(report)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
