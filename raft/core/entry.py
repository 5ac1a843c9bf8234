"""What the log holds: entries, and the durable pair of term and vote.

Named tuples rather than dataclasses: they are immutable, cheap to make by the hundred, and
encode as arrays without a translation step (the payload is opaque bytes on the whole path).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class EntryKind(IntEnum):
    """Which state machine an entry is for. Several machines share one log.

    A kind that a node does not know stops that node before the entry is applied; it is never
    skipped (scenario S55).
    """

    NO_OP = 0
    """The entry a leader appends at the start of its term (Raft thesis section 3.6.2, 6.4)."""
    CONFIGURATION = 1
    """A cluster configuration (Raft thesis section 4). In force as soon as it is in the log."""
    OUTBOX = 2
    """A command of the replicated outbox, or an entry its leader made about one."""
    EMBEDDED = 3
    """A command of the embedder's own state machine."""


class Entry(NamedTuple):
    """One log entry.

    ``index`` and ``term`` are the Raft thesis's. ``time_ns`` is cluster time in nanoseconds since
    the Unix epoch: stamped by the leader that appended the entry and never lower than in the entry
    before it. No apply reads a clock. ``kind`` is an :class:`EntryKind` kept as a plain integer, so
    that an unknown one survives decoding and is refused where it would be applied.
    """

    index: int  # type: ignore[assignment]  # the thesis's word; tuple.index is not used
    term: int
    kind: int
    time_ns: int
    data: bytes


class HardState(NamedTuple):
    """Term and vote, one durable record (Raft thesis figure 3.1; scenario S04).

    ``voted_for`` is a node id, or the empty string for no vote in ``term``.
    """

    term: int
    voted_for: str


class Configuration(NamedTuple):
    """The voters of the cluster, by node id, sorted (Raft thesis section 4)."""

    voters: tuple[str, ...]

    @property
    def quorum(self) -> int:
        """How many voters make a majority."""
        return len(self.voters) // 2 + 1
