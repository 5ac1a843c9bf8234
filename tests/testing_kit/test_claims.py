"""Handlers with a claim hook: what else they can be shown to promise, and the hooks that do not keep it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from fencepost import ClaimContext, DuplicateGeneration, EffectContext, Permanent, StaleLeader, WrongCluster
from fencepost.raft.effects.resources.python import PythonEffect
from fencepost.testing import ClaimedEffect, Report, World, effect_contract

Pass = Callable[["Ledger", Any], None]

CLAIM_CELLS = ["claim-then-stale", "equal-token", "wrong-cluster"]


class Ledger:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.fence: tuple[tuple[int, ...], str, str] = ((0, 0), "", "")
        """Token, holder, cluster."""
        self.effects: list[str] = []
        self.known: dict[str, tuple[Any, int]] = {}


def right(ledger: Ledger, context: ClaimContext | EffectContext) -> None:
    token, holder, cluster = ledger.fence
    if cluster and context.cluster_id != cluster:
        raise WrongCluster(f"it belongs to {cluster}")
    if tuple(context.token) < token:
        raise StaleLeader(f"{context.token}, and the fence stands at {token}")
    if tuple(context.token) == token and context.holder != holder:
        raise DuplicateGeneration(f"{holder} presented {token}")
    ledger.fence = (tuple(context.token), context.holder, context.cluster_id)


def of_any_holder(ledger: Ledger, context: ClaimContext | EffectContext) -> None:
    if ledger.fence[2] and context.cluster_id != ledger.fence[2]:
        raise WrongCluster("it belongs to another")
    if tuple(context.token) < ledger.fence[0]:
        raise StaleLeader("the fence stands higher")
    ledger.fence = (tuple(context.token), context.holder, context.cluster_id)


def of_any_cluster(ledger: Ledger, context: ClaimContext | EffectContext) -> None:
    token, holder, _ = ledger.fence
    if tuple(context.token) < token:
        raise StaleLeader("the fence stands higher")
    if tuple(context.token) == token and context.holder != holder:
        raise DuplicateGeneration(f"{holder} presented {token}")
    ledger.fence = (tuple(context.token), context.holder, context.cluster_id)


def nothing(ledger: Ledger, context: ClaimContext | EffectContext) -> None:
    pass


class Claimed(World):
    refused_payload = b'{"cents":-1}'

    def __init__(self, claims: Pass = right, passes: Pass = right) -> None:
        self.ledger = Ledger()
        self.claims = claims
        self.passes = passes

    def carry_out(self, context: EffectContext, payload: Any) -> int:
        with self.ledger.lock:
            self.passes(self.ledger, context)
            known = self.ledger.known.get(context.operation_id)
            if known is not None and known[0] != payload:
                raise Permanent("the operation id was used for another payload")
            if known is None:
                if payload["cents"] < 0:
                    raise Permanent("cents must not be negative")
                self.ledger.effects.append(context.operation_id)
                known = self.ledger.known[context.operation_id] = (payload, len(self.ledger.effects))
            return known[1]

    def find(self, context: EffectContext, payload: Any) -> Any:
        with self.ledger.lock:
            known = self.ledger.known.get(context.operation_id)
            return False if known is None else known[1]

    def claim(self, context: ClaimContext) -> None:
        with self.ledger.lock:
            self.claims(self.ledger, context)

    def node(self, cluster_id: str = "cluster") -> ClaimedEffect:
        effect = PythonEffect(self.carry_out, 5_000_000_000, self.find)
        return ClaimedEffect(effect, self.claim, cluster_id)

    def foreign(self) -> ClaimedEffect:
        return self.node("another")

    def effects(self) -> list[str]:
        return list(self.ledger.effects)


def found(make: Callable[[], World], **options: Any) -> Report:
    return effect_contract(make, "fenced", queryable=True, **options)


def test_a_right_one_is_shown_to_hear_of_claims() -> None:
    report = found(Claimed, steps_max=2)
    report.check(complete=True)
    assert report.shown == "fenced"
    held = {cell.cell for cell in report.cells if cell.verdict == "held"}
    assert held >= {*CLAIM_CELLS, "query"}
    (copy,) = [cell for cell in report.cells if cell.cell == "old-copy"]
    assert (copy.verdict, "put back" in copy.note) == ("not promised", True)


@pytest.mark.parametrize(
    ("claims", "passes", "cell"),
    [
        (nothing, right, "claim-then-stale"),
        (of_any_holder, of_any_holder, "equal-token"),
        (of_any_cluster, of_any_cluster, "wrong-cluster"),
    ],
)
def test_a_hook_that_does_not_compare_is_found(claims: Pass, passes: Pass, cell: str) -> None:
    report = found(lambda: Claimed(claims, passes), only=CLAIM_CELLS)
    violated = {each.cell for each in report.violated}
    assert cell in violated
    assert claims is nothing or violated == {cell}
