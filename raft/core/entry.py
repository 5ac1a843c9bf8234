"""What the log holds: entries, and the durable pair of term and vote.

Named tuples rather than dataclasses: they are immutable, cheap to make by the hundred, and
encode as arrays without a translation step (the payload is opaque bytes on the whole path).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from .configuration import Configuration


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


class Snapshot(NamedTuple):
    """What a snapshot holds, without the contents (thesis figure 5.3): the state after ``last_index``.

    The label is of exactly one applied index: its term, its cluster time and the configuration in
    force there (S19, S27). Two snapshots with the same label and checksum hold the same bytes.
    """

    last_index: int
    last_term: int
    last_time_ns: int
    """Cluster time at ``last_index``, nanoseconds since the Unix epoch."""
    configuration: Configuration
    """The newest one at or below ``last_index``."""
    configuration_index: int
    """Where in the log it stood; 0 for the one the cluster began with."""
    size_bytes: int = 0
    checksum: int = 0
    """CRC-32C of the contents."""
