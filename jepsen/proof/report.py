"""What a run of the proof has found: counted, printed, and written as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from ...raft.core.options import SECOND
from .coverage import Coverage
from .faults import KINDS
from .hard_states import HARD_STATES
from .life import Result
from .mutants import MUTANTS, Trial
from .tally import OBSERVED

SPEED_3_MIN, SPEED_5_MIN = 1000.0, 400.0
"""Virtual seconds in a second of the processor that simulates them, for three and for five nodes. What is wanted,
and no part of the verdict: how fast it is says something about the machine, too."""


@dataclass(slots=True)
class Speed:
    virtual_ns: int = 0
    processor_s: float = 0.0

    def add(self, result: Result) -> None:
        self.virtual_ns += result.virtual_ns
        self.processor_s += result.processor_s

    @property
    def times(self) -> float:
        return self.virtual_ns / SECOND / self.processor_s if self.processor_s else 0.0


@dataclass(slots=True)
class Report:
    coverage: Coverage = field(default_factory=Coverage)
    speeds: dict[int, Speed] = field(default_factory=dict)
    """By the number of nodes that runs began with."""
    virtual_ns: int = 0
    events: int = 0
    histories: int = 0
    operations: int = 0
    slowest_alive_ns: int = 0
    violations: list[dict[str, Any]] = field(default_factory=list)
    trials: dict[str, list[Trial]] = field(default_factory=dict)
    """By mutant."""

    def add(self, result: Result) -> None:
        """One run of a seed without a mutant."""
        self.coverage.add(
            result.faults,
            result.hard_state,
            zombie=result.zombie,
            membership_partition=result.membership_partition,
        )
        self.speeds.setdefault(result.nodes, Speed()).add(result)
        self.virtual_ns += result.virtual_ns
        self.events += result.events
        self.histories += result.histories
        self.operations += result.operations
        self.slowest_alive_ns = max(self.slowest_alive_ns, result.alive_ns)

    def violated(self, seed: int, about: str, command: str, small: str) -> None:
        self.violations.append({"seed": seed, "about": about, "replay": command, "small": small})

    def add_trial(self, trial: Trial) -> None:
        self.trials.setdefault(trial.mutant, []).append(trial)

    @property
    def virtual_hours(self) -> float:
        return self.virtual_ns / (3600 * SECOND)

    # -- judging ------------------------------------------------------------------------------------

    def caught(self, name: str) -> bool:
        """At least half of the hunts for it were successful, and there was one."""
        trials = self.trials.get(name, [])
        return bool(trials) and 2 * sum(trial.caught for trial in trials) >= len(trials)

    def problems(self, *, seeds_min: int, hours_min: float, mutants: Iterable[str]) -> list[str]:
        """Why this is no proof; empty if it is one."""
        lines = [f"seed {each['seed']} violated {each['about']}" for each in self.violations]
        if self.coverage.seeds < seeds_min:
            lines.append(f"{self.coverage.seeds} seeds were run, {seeds_min} are wanted")
        if self.virtual_hours < hours_min:
            lines.append(f"{self.virtual_hours:.1f} hours were lived, {hours_min:g} are wanted")
        lines += self.coverage.missing((*KINDS, *OBSERVED), HARD_STATES)
        lines += [f"the mutant was not caught: {name}" for name in mutants if not self.caught(name)]
        return lines

    # -- telling ------------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        mutants = {
            name: {
                "area": MUTANTS[name].area,
                "median_seeds": median(trial.seeds for trial in trials),
                "trials": [trial.seeds if trial.caught else None for trial in trials],
                "caught_by": sorted({trial.about for trial in trials if trial.caught}),
            }
            for name, trials in sorted(self.trials.items())
        }
        return {
            "seeds": self.coverage.seeds,
            "virtual_hours": round(self.virtual_hours, 2),
            "speed_3": round(self.speeds.get(3, Speed()).times, 1),
            "speed_5": round(self.speeds.get(5, Speed()).times, 1),
            "events": self.events,
            **self.coverage.as_json(),
            "violations": self.violations,
            "mutants_caught": sum(map(self.caught, self.trials)),
            "mutants_total": len(self.trials),
            "mutants": mutants,
            "histories": self.histories,
            "operations": self.operations,
            "slowest_recovery_s": round(self.slowest_alive_ns / SECOND, 1),
        }

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.as_json(), indent=1) + "\n", encoding="utf-8")

    def lines(self) -> list[str]:
        """For people."""
        body = self.as_json()
        found = [
            f"seeds           {body['seeds']:,}, {body['virtual_hours']:,} hours lived, {body['events']:,} events",
            f"speed           {body['speed_3']:,.0f} times real time with 3 nodes, {body['speed_5']:,.0f} with 5",
            f"histories       {body['histories']:,} of {body['operations']:,} operations, each judged",
            f"recovery        at most {body['slowest_recovery_s']} s after healing",
            f"zombies         in {body['zombie_share']:.0%} of the seeds, "
            f"members changed under a partition in {body['membership_partition_share']:.0%}",
            f"violations      {len(self.violations)}",
        ]
        found += _columns("faults", body["faults"])
        found += _columns("beginnings", body["hard_states"])
        if self.trials:
            caught = f"{body['mutants_caught']} of {body['mutants_total']} caught"
            found.append(f"mutants         {caught}; seeds it took, the median:")
            found += [f"  {each['median_seeds']:>5g}  {each['area']}: {name}" for name, each in body["mutants"].items()]
        return found


def _columns(title: str, counts: dict[str, int]) -> list[str]:
    cells = [f"{name} {count:,}" for name, count in counts.items()]
    rows = [cells[start : start + 4] for start in range(0, len(cells), 4)]
    return [
        f"{title if not place else '':16}" + "".join(f"{cell:30}" for cell in row).rstrip()
        for place, row in enumerate(rows)
    ]
