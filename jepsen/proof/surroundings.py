"""The world that a plan asks for: options of the nodes, resources that fail as they do in life, disks, network."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from ...raft.core.options import MILLISECOND, SECOND, Options
from ...raft.effects.handlers import Permanent, Retryable
from ...raft.effects.policy import ActivationPolicy, DispatchPolicy, OnDead, RetryPolicy
from ...raft.outbox.codec import Retention
from ...raft.ports import Attempt, Guarantee
from ..sim.resource import ResourceSpec
from ..sim.settings import DiskSettings, NetworkSettings, ResourceSettings
from ..sim.streams import stream
from ..sim.world import World
from .plan import Parameters, Plan

POLICY = RetryPolicy(max_attempts=6, backoff_ns=50 * MILLISECOND, backoff_max_ns=2 * SECOND)
ACTIVATION = ActivationPolicy(required=True, timeout_ns=10 * SECOND)
WAYS = ResourceSettings(tail=0.004, tail_ns=30 * MILLISECOND, tail_max_ns=30 * SECOND)
PERMANENT_SHARE = 0.2
"""Of the commands that fail at all."""


def failing(share: float) -> Callable[[Attempt], bytes]:
    """An effect that fails for some commands, by their id alone: once, several times, or for good."""

    def credit(attempt: Attempt) -> bytes:
        drawn = int.from_bytes(hashlib.blake2b(attempt.operation_id.encode(), digest_size=4).digest()) / (1 << 32)
        if drawn < share * PERMANENT_SHARE:
            raise Permanent("400")
        # Some fail more often than they are tried.
        if drawn < share and attempt.number <= (1, 2, 3, 1000)[int(drawn * 1_000_000) % 4]:
            raise Retryable("503")
        return b'{"rows":1}'

    return credit


def specs(names: str, share: float, on_dead: str = "continue", queryable: bool = False) -> list[ResourceSpec]:
    effects = {"credit": failing(share)}
    known = {
        "ledger": ResourceSpec("ledger", effects, batch_limit=7, policy=POLICY, activation=ACTIVATION, settings=WAYS),
        "wide": ResourceSpec(
            "wide", effects, batch_limit=2, concurrency=3, policy=POLICY, activation=ACTIVATION, settings=WAYS
        ),
        "keyed": ResourceSpec("keyed", effects, Guarantee.KEYED, 5, 2, POLICY, ACTIVATION, WAYS),
        "naked": ResourceSpec("naked", effects, Guarantee.NAKED, 3, 1, POLICY, ACTIVATION, WAYS),
    }
    dispatch = DispatchPolicy(on_dead=OnDead(on_dead))
    return [
        known[name]._replace(dispatch=dispatch, queryable=queryable and known[name].guarantee is Guarantee.FENCED)
        for name in names.split()
    ]


def options_of(settings: Parameters) -> Options:
    return Options(
        election_timeout=int(settings["election_timeout_ms"]) * MILLISECOND,
        heartbeat_interval=int(settings["heartbeat_ms"]) * MILLISECOND,
        stall_bound=int(settings["stall_bound_ms"]) * MILLISECOND,
        snapshot_entries=int(settings["snapshot_entries"]),
        retained_entries=int(settings["retained_entries"]),
        chunk_bytes=int(settings["chunk_bytes"]),
        append_bytes_max=int(settings["append_bytes_max"]),
        in_flight_max=int(settings["in_flight_max"]),
        promotion_lag_max=int(settings["promotion_lag_max"]),
        window_entries=int(settings["window_entries"]),
        window_bytes=int(settings["window_bytes"]),
        pre_vote=bool(settings["pre_vote"]),
        lease_reads=bool(settings["lease_reads"]),
    )


def world_of(plan: Plan) -> World:
    """Nothing runs in it yet."""
    settings = plan.settings
    world = World(
        plan.seed,
        plan.nodes,
        options=options_of(settings),
        resources=specs(
            str(settings["resources"]),
            float(settings["failing"]),
            str(settings.get("on_dead", "continue")),
            bool(settings.get("queryable", 0)),
        ),
        retention=Retention(int(settings.get("retention_s", 0)) * SECOND, 0),
        network=NetworkSettings(delay_spread_ns=int(settings["delay_spread_us"]) * 1000),
        disk=DiskSettings(
            segment_bytes=int(settings["segment_kib"]) << 10,
            sync_spread_ns=int(settings["sync_spread_us"]) * 1000,
            start_max_ns=int(settings["start_max_ms"]) * MILLISECOND,
        ),
    )
    for name in world.names:
        skew(world, name, int(settings["skew_s"]))
    return world


def skew(world: World, name: str, most_s: int) -> None:
    """Have the wall clock of a machine show another time, off by so much at the most."""
    world.hosts[name].skew_ns = stream(world.seed, f"skew of {name}").randint(-most_s, most_s) * SECOND
