"""One planted fault, and how it is hunted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..planting import planted

Check = Callable[[], object]
"""Raises AssertionError if what it looks at does not do what it must."""


class Mutant(NamedTuple):
    name: str
    area: str
    function: Callable[..., Any]
    line: str
    fault: str
    sees: Check | None = None
    """What must fail under the fault, and passes without it. None: seeds are run until one fails."""

    def plant(self) -> Any:
        """The fault, while a ``with`` block lasts."""
        return planted(self.function, self.line, self.fault)


class Trial(NamedTuple):
    """One hunt for one mutant."""

    mutant: str
    number: int
    seeds: int
    """How many were run, the one that caught it included."""
    about: str
    """What the seed that caught it violated; empty if none did."""

    @property
    def caught(self) -> bool:
        return bool(self.about)
