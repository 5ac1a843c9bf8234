"""The invariants: with a fault in one, a mutant of the product that it is known to catch passes it by."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...invariants.activation_barrier import ActivationBarrier
from ...invariants.committed_by_quorum import CommittedByQuorum
from ...invariants.core import Core
from ...invariants.f2_effect_once import EffectOnce
from ...invariants.f6_lane_order import LaneOrder
from ...invariants.f8_mark_durable import MarkDurable
from ...invariants.f9_stale_means_higher import StaleMeansHigher
from ...invariants.leader_completeness import LeaderCompleteness
from ...invariants.log_matching import LogMatching
from ...invariants.property import Property
from ...invariants.snapshot_equals_replay import SnapshotEqualsReplay
from ..life import Life
from ..schedule import SHORT, plan_of
from . import effects, outbox, protocol, resource
from .mutant import Mutant

SEEDS = range(1, 25)
"""Within so many seeds an invariant sees the mutant that it is known by."""

_PRODUCT = {each.name: each for part in (effects, outbox, protocol, resource) for each in part.MUTANTS}


def sees(looks: type[Property], mutant: str) -> None:
    """Raises AssertionError unless this invariant is what ends one of the seeds."""
    for seed in SEEDS:
        with _PRODUCT[mutant].plant():
            failure = Life(plan_of(seed, SHORT)).run().failure
        if failure is not None and failure.about == looks.name:
            return
    raise AssertionError(f"{looks.name} does not see that {mutant}")


def _mutant(looks: type[Property], function: Callable[..., Any], line: str, fault: str, by: str) -> Mutant:
    return Mutant(f"{looks.name}: {line.strip()}", "invariants", function, line, fault, partial(sees, looks, by))


MUTANTS = (
    _mutant(
        Core,
        Core.stepped,
        'raise self.broken(f"{node.name} in term {node.raft.current_term}: {error}") from error',
        "pass",
        "entries are applied before they are durable",
    ),
    _mutant(
        LeaderCompleteness,
        LeaderCompleteness.elected,
        "if wanted == held:",
        "if True:",
        "a candidate's log is not compared",
    ),
    _mutant(
        LogMatching,
        LogMatching._look,
        "elif (found[0] is not entry and found[0] != entry) or found[1] != previous_term:",
        "elif False:",
        "the previous entry's term is not compared",
    ),
    _mutant(CommittedByQuorum, CommittedByQuorum.first_committed, "if lacks:", "if False:", "one copy fewer is enough"),
    _mutant(
        SnapshotEqualsReplay,
        SnapshotEqualsReplay._compare,
        "if wanted is not None and held != wanted:",
        "if False:",
        "cluster time is not in a snapshot",
    ),
    _mutant(
        ActivationBarrier,
        ActivationBarrier.called,
        "if claimed_ns is None or claimed_ns > call.sent_ns:",
        "if False:",
        "resources are not claimed",
    ),
    _mutant(
        EffectOnce,
        EffectOnce.called,
        "if before != call.number:",
        "if False:",
        "a resource forgets what it has accepted",
    ),
    _mutant(
        LaneOrder,
        LaneOrder.called,
        "if last is not None and attempt.index <= last[0]:",
        "if False:",
        "a failed head goes behind its lane",
    ),
    _mutant(
        MarkDurable,
        MarkDurable._check,
        "if stored is None or stored.token < mark[0]:",
        "if False:",
        "the fence does not rise",
    ),
    _mutant(
        StaleMeansHigher,
        StaleMeansHigher.called,
        "if not (stale if call.decision == StaleLeader.code else duplicate):",
        "if False:",
        "a lower token passes",
    ),
)
