"""``python -m fencepost.jepsen.proof prove|soak``: what ``make prove`` and ``make soak`` run."""

from __future__ import annotations

import argparse
import sys
import time

from .runner import HOURS_MIN, SEEDS_MIN, TRIALS, Prover, main_of


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fencepost.jepsen.proof", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    prove = actions.add_parser("prove", help="a fixed set of seeds, and every mutant, within a time")
    prove.add_argument("--minutes", type=float, default=12.0, help="what is not done by then is missing (0: no bound)")
    prove.add_argument("--seeds", type=int, default=SEEDS_MIN)
    prove.add_argument("--hours", type=float, default=HOURS_MIN, help="virtual hours that the seeds have to live")
    prove.add_argument("--trials", type=int, default=TRIALS, help="hunts for each mutant; 0: none")
    soak = actions.add_parser("soak", help="new seeds until the time is over or it is interrupted")
    soak.add_argument("--minutes", type=float, default=60.0, help="0: until it is interrupted")
    for action in (prove, soak):
        action.add_argument("--workers", type=int, default=2)
        action.add_argument("--first", type=int, default=0, help="the first seed; by default 1, of a soak the time")
        action.add_argument("--out", default="", help="where to write what was found, as JSON")
    return parser


def main() -> int:
    asked = _parser().parse_args()
    first = asked.first or (1 if asked.action == "prove" else int(time.time()) * 1000)
    prover = Prover(
        minutes=asked.minutes, processes=asked.workers, first_seed=first, out=lambda line: print(line, flush=True)
    )
    proved = (
        prover.prove(seeds=asked.seeds, trials=asked.trials, hours_min=asked.hours)
        if asked.action == "prove"
        else prover.soak()
    )
    return main_of(prover, proved, asked.out)


if __name__ == "__main__":
    sys.exit(main())
