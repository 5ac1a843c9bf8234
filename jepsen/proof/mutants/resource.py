"""The fence, and what a resource remembers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....raft.effects.resources import ledger
from ....raft.effects.resources.memory import FakeResource
from .mutant import Mutant


def _mutant(name: str, function: Callable[..., Any], line: str, fault: str) -> Mutant:
    return Mutant(name, "resource", function, line, fault)


MUTANTS = (
    _mutant("a lower token passes", ledger.check_fence, "if token < stored.token:", "if False:"),
    _mutant(
        "the fence does not rise",
        FakeResource._pass_fence,
        "store.fences[self.name] = StoredFence(self.name, self._cluster_id, token, holder)",
        "store.fences.setdefault(self.name, StoredFence(self.name, self._cluster_id, token, holder))",
    ),
    _mutant(
        "an operation that is known is carried out once more",
        FakeResource._apply,
        "if known is not None and self.guarantee is not Guarantee.NAKED:",
        "if False:",
    ),
    _mutant(
        "what has failed in a lane does not hold up the rest of its batch",
        FakeResource.execute,
        "if attempt.lane and attempt.lane in blocked:",
        "if False:",
    ),
    _mutant(
        "a resource forgets what it has accepted",
        FakeResource._apply,
        "store.first.setdefault((self.name, attempt.operation_id), accepted)",
        "pass",
    ),
)
