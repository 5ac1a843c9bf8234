"""The state machine behind plain proposals of a node that was started from the command line.

It keeps nothing: the log itself is what the submitter wanted. An embedder puts his own machine here.
"""

from __future__ import annotations

from ..core.entry import Entry


class PlainLog:
    """Counts the entries it is given (``ports.Machine``)."""

    def __init__(self) -> None:
        self.entries = 0

    def apply(self, entry: Entry) -> bytes:
        self.entries += 1
        return b""
