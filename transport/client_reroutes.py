"""What a change of leader costs whoever submits: the one stage of a failover that no node can see."""

from __future__ import annotations


class Reroutes:
    """How often the answers of a client came from another node than before, and for how long there was none.

    The time runs from the last answer of the node before, or from when the request was made that is answered first
    then, if that is later, to that answer. So it holds everything that a client feels:
    detection, election, activation, and its own way to the new leader. A client that asks for nothing meanwhile
    counts nothing of it.
    """

    __slots__ = ("_answered_ns", "_served_by", "count", "last_s", "longest_s")

    def __init__(self) -> None:
        self.count = 0
        self.last_s = 0.0
        self.longest_s = 0.0
        self._served_by: object = None
        self._answered_ns = 0

    def answered(self, by: object, asked_ns: int, now_ns: int) -> None:
        """``by`` has carried something out; ``asked_ns`` is when the first of it was asked for (monotonic)."""
        if by is not self._served_by:
            if self._served_by is not None:
                self.last_s = max(now_ns - max(self._answered_ns, asked_ns), 0) / 1e9
                self.longest_s = max(self.longest_s, self.last_s)
                self.count += 1
            self._served_by = by
        self._answered_ns = now_ns
