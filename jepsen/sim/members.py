"""What is asked of a cluster beside its clients' work: changes of its members, and transfers of leadership."""

from __future__ import annotations

from enum import StrEnum

from ...raft.core.events import Refused


class End(StrEnum):
    """How a question ended."""

    OPEN = "open"
    DONE = "done"
    REFUSED = "refused"
    """Certainly not done."""
    LOST = "lost"
    """Certainly not done, though it had begun."""
    UNKNOWN = "unknown"


class Question:
    """A change of members (``ChangeSink``) or a transfer (``TransferSink``), and what became of it."""

    def __init__(self, asked_ns: int, node: str) -> None:
        self.asked_ns = asked_ns
        self.node = node
        """Who was asked."""
        self.end = End.OPEN
        self.refusal: Refused | None = None
        self.index = 0
        """Of the configuration that was committed."""
        self.leader = ""
        """Who leads after a transfer."""
        self.term = 0
        self.reason = ""

    @property
    def open(self) -> bool:
        return self.end is End.OPEN

    def _set(self, end: End) -> None:
        if self.end is not End.OPEN:
            raise AssertionError(f"a question was answered twice: {self.end}, then {end}")
        self.end = end

    def refused(self, refusal: Refused) -> None:
        self._set(End.REFUSED)
        self.refusal = refusal
        self.reason = refusal.detail or refusal.code

    def committed(self, index: int, term: int) -> None:
        self._set(End.DONE)
        self.index, self.term = index, term

    def done(self, leader: str, term: int) -> None:
        self._set(End.DONE)
        self.leader, self.term = leader, term

    def ended(self, reason: str) -> None:
        self._set(End.LOST)
        self.reason = reason

    def lost(self) -> None:
        self._set(End.LOST)

    def unknown(self) -> None:
        self._set(End.UNKNOWN)

    def died(self) -> None:
        """The process that was asked is gone."""
        if self.open:
            self._set(End.UNKNOWN)

    def __repr__(self) -> str:
        return f"<asked of {self.node}: {self.end} {self.reason or self.leader or self.index}>"
