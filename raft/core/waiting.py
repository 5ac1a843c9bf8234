"""What is under way and will end by itself: a transfer, reads, a snapshot that is being received."""

from __future__ import annotations

from dataclasses import dataclass, field

from .entry import Snapshot


@dataclass(slots=True)
class Transfer:
    """A leader hands its leadership to ``target`` (thesis section 3.10). Dies with the term."""

    target: str
    deadline: int
    """Monotonic nanoseconds."""
    told_at: int = 0
    """When TimeoutNow was last sent, monotonic nanoseconds: from then on nothing at all is admitted."""


@dataclass(slots=True)
class PendingRead:
    """Reads that wait for a quorum to confirm, by answers to what was sent since, that this node leads."""

    begun_at: int
    """Monotonic nanoseconds."""
    source: str
    """The follower that asked, or the empty string for this node's own."""
    batch: int
    """The follower's name for them."""
    request_ids: list[int] = field(default_factory=list)
    read_index: int = 0
    """The commit index when they came; 0 until this leader has committed in its term."""


@dataclass(slots=True)
class ForwardedRead:
    """Reads that a follower has asked its leader about."""

    asked_at: int
    """Monotonic nanoseconds."""
    leader: str
    request_ids: list[int]


@dataclass(slots=True)
class Incoming:
    """A snapshot on its way to this node."""

    snapshot: Snapshot
    source: str
    offset: int = 0
    """Bytes that are stored."""
    storing: bool = False
    """A part was given to the store and is not answered. What comes meanwhile is dropped."""
    sent_at: int = 0
    """Of the newest part, to be echoed."""
