"""What looks at the product: the checkers of histories and the invariants. Each is shown what it must see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .mutant import Check, Mutant


def _mutant(name: str, function: Callable[..., Any], line: str, fault: str, sees: Check) -> Mutant:
    return Mutant(name, "looking", function, line, fault, sees)


MUTANTS: tuple[Mutant, ...] = ()
