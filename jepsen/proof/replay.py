"""A seed again: exactly, in part, or with a mutant; and the shrinking of one that fails."""

from __future__ import annotations

import gc
from contextlib import nullcontext

from .bounded import Overdue, bounded
from .life import Life, Result
from .mutants import MUTANTS
from .plan import Plan, command
from .schedule import plan_of
from .shrink import Failure, Shrinker, Shrunk

RUN_BOUND_S = 60.0
"""A run that takes longer than this, real time, counts as failed: it does not end."""


def run_plan(plan: Plan, *, mutant: str = "", bound_s: float = RUN_BOUND_S) -> tuple[Result, Life]:
    """Run a plan, with a mutant planted if one is named. The life is there to be looked at."""
    # A world is one large cycle. To look for others while it lives costs time, and not to throw it away at once memory.
    gc.collect()
    gc.disable()
    try:
        return _run(plan, mutant, bound_s)
    finally:
        gc.enable()


def _run(plan: Plan, mutant: str, bound_s: float) -> tuple[Result, Life]:
    with MUTANTS[mutant].plant() if mutant else nullcontext():
        life = Life(plan)
        try:
            with bounded(bound_s):
                return life.run(), life
        except Overdue as overdue:
            failure = Failure("it does not end", life.world.now_ns, f"seed {plan.seed}: {overdue}")
            return life.result(failure, bound_s), life


def shrink(plan: Plan, failure: Failure, *, mutant: str = "", tries_max: int = 200) -> Shrunk:
    """The smallest plan that fails like this one, as far as ``tries_max`` runs can tell."""

    def attempt(smaller: Plan) -> Failure | None:
        return run_plan(smaller, mutant=mutant)[0].failure

    return Shrinker(attempt, tries_max=tries_max).shrink(plan, failure)


def replay_command(plan: Plan, *, mutant: str = "") -> str:
    """The one line that runs this plan again."""
    return command(plan, plan_of(plan.seed), mutant=mutant)
