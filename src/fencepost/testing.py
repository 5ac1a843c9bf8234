"""Prove a declared guarantee: a matrix of faults, run against a handler or a resource of your own.

    from fencepost.testing import World, effect_contract

    report = effect_contract(LedgerWorld, "fenced")
    print(report)
    report.check()

docs/testing.md says how. pytest has a fixture ``effect_contract`` and a marker of that name besides.
"""

from __future__ import annotations

from .jepsen.contracts.report import CellReport, ContractViolated, Report, Verdict
from .jepsen.contracts.run import effect_contract
from .jepsen.contracts.world import ClaimedEffect, NotShown, World

__all__ = [
    "CellReport",
    "ClaimedEffect",
    "ContractViolated",
    "NotShown",
    "Report",
    "Verdict",
    "World",
    "effect_contract",
]
