"""Faults of one line each, for every part of the product and for what looks at it: the proof must see every one."""

from __future__ import annotations

from . import checkers, effects, invariants, outbox, protocol, resource, storage, transport
from .mutant import Mutant, Trial

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for part in (protocol, storage, transport, outbox, effects, resource, checkers, invariants)
    for mutant in part.MUTANTS
}
"""By name."""

__all__ = ["MUTANTS", "Mutant", "Trial"]
