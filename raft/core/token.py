"""The fencing token: which generation of leadership is acting (semantics section 1)."""

from __future__ import annotations

from typing import NamedTuple


class FencingToken(NamedTuple):
    """``(incarnation, term)`` of the leader that executes, compared in that order.

    It is the *executing* leader's term, never the term of the entry: the new leader's own replay
    would otherwise be refused as soon as it had fenced. The incarnation is raised by every restore,
    because terms are unique only within one.
    """

    incarnation: int
    term: int

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.term}"
