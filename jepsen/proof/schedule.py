"""From a seed to its plan: how many nodes, from what beginning, which kinds of fault, what of them and when.

A run has a few kinds of fault and not all of them: with everything at once each fault ends before it has
shown what it can do, because the next one has already come.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from ...raft.core.options import MILLISECOND, SECOND
from ..sim.streams import stream
from .faults import KINDS
from .faults.kind import log_uniform
from .hard_states import HARD_STATES
from .plan import Fault, Plan


class Scale(NamedTuple):
    """How long runs are."""

    safety_ns: int = 16 * SECOND
    """On average; evenly from half of it to one and a half."""
    quiet_heartbeats: int = 1000
    """On average, as ``safety_ns``. Counted in heartbeats, for these are most of what happens then."""
    pace_ns: int = 1100 * MILLISECOND
    """Between two faults, on average."""


USUAL = Scale()
SHORT = Scale(quiet_heartbeats=12)
"""For mutants: what shows itself at all does so while faults last or when the cluster must heal."""

OFTEN = {"resource.zombie": 0.65, "membership.in-partition": 0.3}
"""The share of runs that have these kinds, however many kinds there are."""
HARD_STATE_SHARE = 0.4
FIVE_SHARE = 0.35
NODES = (3, 5)
CLIENTS_MAX = 4
TIMES_MS = ((100, 1000), (330, 1000), (500, 1500), (500, 1500), (660, 2000), (800, 2400))
"""Heartbeat and election timeout."""


def plan_of(seed: int, scale: Scale = USUAL, *, nodes: int | None = None) -> Plan:
    """The plan of a seed. ``nodes`` overrides how many there are, and nothing else."""
    shape, content = stream(seed, "shape"), stream(seed, "faults")
    drawn = 5 if shape.random() < FIVE_SHARE else 3
    hard_state = shape.choice(sorted(HARD_STATES)) if shape.random() < HARD_STATE_SHARE else ""
    clients = shape.randint(2, CLIENTS_MAX)
    safety_ns = _around(shape, scale.safety_ns)
    settings = _settings(stream(seed, "settings"))
    quiet_ns = _around(shape, scale.quiet_heartbeats * settings["heartbeat_ms"] * MILLISECOND)
    for needed in HARD_STATES[hard_state].needs if hard_state else ():
        if needed not in settings["resources"].split():
            settings["resources"] += f" {needed}"
    faults = _faults(content, safety_ns, scale.pace_ns)
    return Plan(seed, nodes or drawn, clients, hard_state, settings, safety_ns, quiet_ns, faults)


def _around(random: Random, mean_ns: int) -> int:
    return round(mean_ns * random.uniform(0.5, 1.5) / MILLISECOND) * MILLISECOND


def _faults(random: Random, safety_ns: int, pace_ns: int) -> tuple[Fault, ...]:
    chosen = _subset(random)
    weights = [KINDS[name].weight for name in chosen]
    faults = []
    at_ns = random.randint(0, 2 * pace_ns)
    while at_ns < safety_ns:
        name = random.choices(chosen, weights)[0]
        faults.append(Fault(at_ns, name, KINDS[name].draw(random)))
        at_ns += log_uniform(random, 10, 4 * pace_ns // MILLISECOND) * MILLISECOND
    return tuple(faults)


def _subset(random: Random) -> list[str]:
    """Three to eight kinds, heavier ones more often; what many runs must have, in as many as that takes."""
    names = list(KINDS)
    wanted = random.randint(3, 8)
    chosen = [name for name, share in OFTEN.items() if random.random() < share]
    while len(chosen) < wanted:
        name = random.choices(names, [KINDS[each].weight for each in names])[0]
        if name not in chosen:
            chosen.append(name)
    return chosen


def _settings(random: Random) -> dict[str, Any]:
    """Small limits more often than large ones, so that every one of them is reached."""
    heartbeat_ms, election_timeout_ms = random.choice(TIMES_MS)
    snapshots = random.choice((0, 8, 20, 60))
    return {
        "heartbeat_ms": heartbeat_ms,
        "election_timeout_ms": election_timeout_ms,
        "stall_bound_ms": max(heartbeat_ms, random.choice((400, 1000))),
        "snapshot_entries": snapshots,
        "retained_entries": random.choice((0, 5, 40)),
        "chunk_bytes": random.choice((300, 2000, 256 << 10)),
        "append_bytes_max": random.choice((64, 1000, 1 << 20)),
        "in_flight_max": random.choice((1, 4, 64)),
        "promotion_lag_max": random.choice((3, 100)),
        "skew_s": random.choice((0, 1, 300)),
        "pre_vote": random.choice((1, 1, 1, 0)),
        "lease_reads": random.choice((0, 1)),
        "segment_kib": random.choice((4, 16, 256)),
        "delay_spread_us": random.choice((700, 700, 10_000, 60_000)),
        "sync_spread_us": random.choice((1600, 1600, 20_000)),
        "resources": random.choice(("ledger", "ledger naked", "keyed naked", "ledger wide keyed naked")),
        "failing": round(random.choice((0.0, 0.1, 0.3)), 3),
        "think_ms": random.choice((100, 300, 800)),
        "start_max_ms": random.choice((200, 1500)),
        "window_entries": random.choice((0, 2, 8, 30)),
        "window_bytes": random.choice((0, 0, 300)),
        "wishes": random.choice((0, 1)),
        "retention_s": random.choice((0, 300)),
        "on_dead": random.choice(("continue", "block")),
        "queryable": random.choice((0, 1)),
    }
