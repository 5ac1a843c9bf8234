"""``python -m fencepost.jepsen.report storm --out FILE``: the picture in the proof's page, made anew."""

from __future__ import annotations

import argparse
from pathlib import Path

from .storm import SHARES, bounds, storm


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fencepost.jepsen.report", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    made = actions.add_parser("storm", help="failovers under many pending commands: calls a second at each endpoint")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--pending", type=int, default=10_000)
    made.add_argument("--out", default="", help="where to write the picture, as SVG")
    asked = parser.parse_args()
    seen = storm(asked.seed, asked.pending)
    limits = bounds(asked.pending)
    for name in SHARES:
        calls = seen.calls_each_second(name)
        print(f"{name}: {sum(calls)} calls, at most {max(calls)} in a second; the bound is {limits[name]}")
    if asked.out:
        Path(asked.out).write_text(seen.chart(), encoding="utf-8")


if __name__ == "__main__":
    main()
