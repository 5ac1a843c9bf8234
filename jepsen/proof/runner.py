"""The proof as a whole: seeds and hunts for mutants, on several processes, within a time."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from .life import Result
from .mutants import MUTANTS, Mutant, Trial
from .mutants.mutant import Check
from .replay import replay_command, run_plan, shrink
from .report import Report
from .schedule import SHORT, USUAL, Scale, plan_of

SEEDS_MIN = 1000
HOURS_MIN = 100.0
TRIALS = 3
"""Hunts for each mutant, each from another first seed."""
TRIAL_SEEDS_MAX = 200
TRIAL_SEEDS_APART = 10_000
MUTANT_BOUND_S = 10.0
"""Real time for one run with a mutant: one that makes the world busy without end is caught."""
SHRINK_TRIES = 60


class Task(NamedTuple):
    """A piece of work for one process: a seed, or (``mutant``) a hunt."""

    seed: int
    scale: Scale
    mutant: str = ""
    trial: int = 0
    deadline: float = 0.0
    """On the clock of the machine: not begun after it. 0: none."""


class Done(NamedTuple):
    task: Task
    result: Result | None
    """Of a seed; None if there was no time for it."""
    trial: Trial | None


def work(task: Task) -> Done:
    """In a worker."""
    if task.deadline and time.time() > task.deadline:
        return Done(task, None, None)
    if task.mutant:
        return Done(task, None, hunt(task))
    result, _ = run_plan(plan_of(task.seed, task.scale))
    return Done(task, result, None)


def hunt(task: Task) -> Trial | None:
    """Look for a mutant in one seed after the other. None if the time ran out first."""
    mutant = MUTANTS[task.mutant]
    if mutant.sees is not None:
        return Trial(task.mutant, task.trial, 1, _seen(mutant, mutant.sees))
    for count in range(1, TRIAL_SEEDS_MAX + 1):
        if task.deadline and time.time() > task.deadline:
            return None
        plan = plan_of(task.seed + count - 1, task.scale)
        result, _ = run_plan(plan, mutant=task.mutant, bound_s=MUTANT_BOUND_S)
        # A seed that fails without the mutant has not caught it.
        if result.failure is not None and run_plan(plan)[0].failure is None:
            return Trial(task.mutant, task.trial, count, result.failure.about)
    return Trial(task.mutant, task.trial, TRIAL_SEEDS_MAX, "")


def _seen(mutant: Mutant, sees: Check) -> str:
    """How the check fails under the mutant; empty if it does not, or fails without it too."""
    try:
        sees()
    except AssertionError:
        return ""
    try:
        with mutant.plant():
            sees()
    except AssertionError as error:
        return str(error).splitlines()[0] if str(error) else "seen"
    return ""


@contextmanager
def workers(count: int) -> Iterator[Callable[[Iterator[Task]], Iterator[Done]]]:
    """Processes that do tasks, and give them back as they are done. With 1, this process does them itself."""
    if count == 1:
        yield lambda tasks: map(work, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(count, initializer=_heed_nobody) as pool:
        yield lambda tasks: pool.imap_unordered(work, tasks)
        pool.terminate()


def _heed_nobody() -> None:
    """An interrupt from the keyboard reaches every process; the one that waits for all the others ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Prover:
    """``out`` prints a line at once; ``report`` is what has been found so far."""

    def __init__(
        self, *, minutes: float, processes: int, first_seed: int = 1, out: Callable[[str], None] = print
    ) -> None:
        self.report = Report()
        self._began = time.time()
        self._deadline = self._began + 60 * minutes if minutes else 0.0
        self._processes = processes
        self._first_seed = first_seed
        self._out = out
        self._told_at = self._began

    def prove(self, *, seeds: int = SEEDS_MIN, trials: int = TRIALS, hours_min: float = HOURS_MIN) -> bool:
        """Everything once: so many seeds, every mutant. Whether it is a proof."""
        with workers(self._processes) as do:
            for done in do(self._tasks(seeds, trials)):
                self._take(done)
        mutants = MUTANTS if trials else ()
        problems = self.report.problems(seeds_min=seeds, hours_min=hours_min, mutants=mutants)
        return self._conclude(problems)

    def soak(self) -> bool:
        """New seeds until the time is over or somebody interrupts it."""
        try:
            with workers(self._processes) as do:
                for done in do(self._endless()):
                    self._take(done)
                    if self._deadline and time.time() > self._deadline:
                        break
        except KeyboardInterrupt:
            self._out("interrupted")
        return self._conclude([f"seed {each['seed']} violated {each['about']}" for each in self.report.violations])

    # -- tasks --------------------------------------------------------------------------------------

    def _tasks(self, seeds: int, trials: int) -> Iterator[Task]:
        # A hunt for each first: how long they take differs most, and nobody must wait for the last of them
        # alone. More hunts last, as far as there is time: they make medians better, and no verdict.
        if trials:
            yield from self._hunts(0)
        for seed in range(self._first_seed, self._first_seed + seeds):
            yield Task(seed, USUAL, deadline=self._deadline)
        for trial in range(1, trials):
            yield from self._hunts(trial)

    def _hunts(self, trial: int) -> Iterator[Task]:
        first_seed = self._first_seed + (trial + 1) * TRIAL_SEEDS_APART
        for name, mutant in MUTANTS.items():
            if trial == 0 or mutant.sees is None:
                yield Task(first_seed, SHORT, name, trial, self._deadline)

    def _endless(self) -> Iterator[Task]:
        seed = self._first_seed
        while not self._deadline or time.time() < self._deadline:
            yield Task(seed, USUAL, deadline=self._deadline)
            seed += 1

    # -- what comes back ----------------------------------------------------------------------------

    def _take(self, done: Done) -> None:
        if done.trial is not None:
            self.report.add_trial(done.trial)
        if done.result is not None:
            self.report.add(done.result)
            if done.result.failure is not None:
                self._violated(done.task, done.result)
        if time.time() - self._told_at > 30:
            self._told_at = time.time()
            self._out(
                f"{self._told_at - self._began:5.0f} s: {self.report.coverage.seeds} seeds, "
                f"{self.report.virtual_hours:.1f} hours, {sum(map(len, self.report.trials.values()))} hunts"
            )

    def _violated(self, task: Task, result: Result) -> None:
        """Tell how to see it again; the first time also in the smallest form that can be found in a while."""
        failure = result.failure
        assert failure is not None
        plan = plan_of(task.seed, task.scale)
        whole = replay_command(plan)
        self._out(f"seed {task.seed} violated {failure.about}\n  {whole}")
        small = ""
        if not self.report.violations:
            shrunk = shrink(plan, failure, tries_max=SHRINK_TRIES)
            small = replay_command(shrunk.plan)
            self._out(f"  {small}   (the same with {len(shrunk.plan.faults)} faults, found in {shrunk.tries} runs)")
        self.report.violated(task.seed, failure.about, whole, small)

    def _conclude(self, problems: list[str]) -> bool:
        for line in self.report.lines():
            self._out(line)
        for line in problems:
            self._out(f"NOT PROVED: {line}")
        self._out(f"{'proved' if not problems else 'not proved'} in {time.time() - self._began:.0f} s")
        return not problems

    def write(self, path: str) -> None:
        if path:
            self.report.write(Path(path))


def main_of(prover: Prover, proved: bool, out: str) -> int:
    """Write what was found; the exit status."""
    prover.write(out)
    sys.stdout.flush()
    return 0 if proved else 1
