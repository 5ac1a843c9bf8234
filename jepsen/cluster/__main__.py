"""``python -m fencepost.jepsen.cluster run``: what ``make outbox`` runs. Exit status 0 if everything held, else 1."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from .run import Outcome, Settings, run, write_report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fencepost.jepsen.cluster", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    made = actions.add_parser("run", help="commands over three resources, with leaders killed and frozen")
    made.add_argument("--commands", type=int, default=100_000)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument(
        "--rate", type=float, default=200.0, help="commands a second, at most; 0: as fast as they are taken"
    )
    made.add_argument(
        "--folder", default="", help="where everything lies, kept; by default a temporary folder that goes"
    )
    made.add_argument("--out", default="", help="where to write the report, as JSON")
    return parser


def main() -> int:
    asked = _parser().parse_args()
    settings = Settings(asked.commands, asked.seed, rate=asked.rate)
    if asked.folder:
        folder = Path(asked.folder).absolute()
        folder.mkdir(parents=True)
        outcome = asyncio.run(run(folder, settings, _out))
    else:
        with tempfile.TemporaryDirectory(prefix="fencepost-outbox-") as made:
            Path(made).chmod(0o755)  # The database server may run as a user of its own.
            outcome = asyncio.run(run(Path(made), settings, _out))
    if asked.out:
        write_report(Path(asked.out), outcome.report)
    return conclude(outcome, _out)


def conclude(outcome: Outcome, out: Callable[[str], None]) -> int:
    """Say what was found; the exit status."""
    report, verdict = outcome.report, outcome.verdict
    for name, sentences in verdict.violations.items():
        for sentence in sentences:
            out(f"VIOLATED: {name}: {sentence}")
    out(
        f"{report['commands']} commands, {report['kills']} kills, {report['freezes']} freezes, "
        f"{report['leaderships']} leaderships, {report['stale_refusals']} stale refusals, "
        f"{report['duplicates_recognised']} duplicates recognised, longest gap {report['longest_gap_s']} s, "
        f"{report['violations']} violations in {report['whole_s']:.0f} s"
    )
    return 0 if verdict.holds else 1


def _out(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
