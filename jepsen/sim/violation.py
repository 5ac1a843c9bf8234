"""What ends a run: something that must hold did not."""

from __future__ import annotations


class Violation(AssertionError):
    """The text has the seed and the events that led to it."""
