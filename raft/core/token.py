"""The fencing token: which generation of leadership is acting (concepts: The fencing token)."""

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


def token_json(token: FencingToken | None) -> dict[str, str] | None:
    """A token as JSON. Its numbers have 64 bits and travel as decimal strings: many readers round them."""
    return None if token is None else {"incarnation": str(token.incarnation), "term": str(token.term)}
