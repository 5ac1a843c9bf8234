"""The plan of a run, as data: what will be done to the cluster and when. Made from the seed before the run.

A plan can be cut down without touching the rest: faults are a list, and each says all it needs. They name
nodes by number or by role, not by name, so the same plan fits a smaller cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...raft.core.options import SECOND

Parameters = Mapping[str, int | float | str]
"""Of one fault. Names with ``_ns`` are nanoseconds."""


class Fault(NamedTuple):
    """One thing that is done to the cluster."""

    at_ns: int
    """Since the run began."""
    kind: str
    parameters: Parameters


class Plan(NamedTuple):
    """Everything about a run that is not chance within it."""

    seed: int
    nodes: int
    clients: int
    hard_state: str
    """What the disks hold when it begins; empty: nothing, the cluster boots."""
    settings: Parameters
    """Options of the nodes and of what surrounds them that differ from the usual ones."""
    safety_ns: int
    """The phase with faults."""
    quiet_ns: int
    """What follows after everything was healed and found alive: load, and nothing else."""
    faults: tuple[Fault, ...]
    kept: tuple[int, ...] | None = None
    """Of a plan that was cut down: the numbers of its faults in the plan of the seed."""

    def keeping(self, places: Iterable[int]) -> Plan:
        """The same with only the faults at these places of ``faults``."""
        chosen = sorted(set(places))
        numbers = range(len(self.faults)) if self.kept is None else self.kept
        return self._replace(
            faults=tuple(self.faults[place] for place in chosen), kept=tuple(numbers[place] for place in chosen)
        )


def to_json(plan: Plan) -> str:
    """The plan as text that :func:`from_json` reads and a person can change."""
    body = plan._asdict()
    body["faults"] = [fault._asdict() for fault in plan.faults]
    return json.dumps(body, indent=1)


def from_json(text: str) -> Plan:
    """Raises ValueError if it is no plan."""
    try:
        body: dict[str, Any] = json.loads(text)
        faults = tuple(
            Fault(int(each["at_ns"]), str(each["kind"]), dict(each["parameters"])) for each in body["faults"]
        )
        kept = body.get("kept")
        return Plan(**{**body, "faults": faults, "kept": None if kept is None else tuple(kept)})
    except (KeyError, TypeError) as error:
        raise ValueError(f"no plan: {error!r}") from error


def command(plan: Plan, whole: Plan, *, mutant: str = "") -> str:
    """The one line that replays ``plan``, a part of ``whole``, the plan of its seed."""
    parts = [f"fencepost jepsen replay {plan.seed}"]
    if plan.nodes != whole.nodes:
        parts.append(f"--nodes {plan.nodes}")
    if plan.clients != whole.clients:
        parts.append(f"--clients {plan.clients}")
    if plan.hard_state != whole.hard_state:
        parts.append("--from-boot")
    if plan.kept is not None and len(plan.faults) != len(whole.faults):
        parts.append(f"--faults {','.join(map(str, plan.kept)) or 'none'}")
    if plan.safety_ns != whole.safety_ns:
        parts.append(f"--safety {plan.safety_ns / SECOND:g}")
    if plan.quiet_ns != whole.quiet_ns:
        parts.append(f"--quiet-for {plan.quiet_ns / SECOND:g}")
    if mutant:
        parts.append(f"--mutant '{mutant}'")
    return " ".join(parts)
