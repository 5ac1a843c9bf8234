"""What goes into the core and what comes out of it.

Every event carries ``now``, the node's monotonic clock in nanoseconds. Every effect that speaks to
the outside names the write it has to wait for: that an answer depends on a write is data, not the
order of two calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from .entry import Entry, HardState
from .messages import Message


class Role(StrEnum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


# -- events ---------------------------------------------------------------------------------------


class Tick(NamedTuple):
    """Time has passed. Delivered after every message that had already arrived (thesis section 6)."""

    now: int


class Receive(NamedTuple):
    now: int
    source: str
    message: Message


class Propose(NamedTuple):
    """Append these to the log, if this node leads. ``proposals`` are (entry kind, data) pairs."""

    now: int
    time_ns: int
    """The proposer's wall clock, nanoseconds since the Unix epoch. Entries are stamped with the
    larger of this and the time of the entry before them."""
    proposals: list[tuple[int, bytes]]
    internal: bool = False
    """Made by the leader itself, to finish what is in the log already: never refused as BUSY."""


class Durable(NamedTuple):
    """The write with this sequence number, and every write before it, is on disk."""

    now: int
    sequence: int


class Unreachable(NamedTuple):
    """The link to a peer broke: what was in flight to it may be lost."""

    now: int
    peer: str


class Campaign(NamedTuple):
    """Start an election now, without waiting for a timeout."""

    now: int


class StepDown(NamedTuple):
    """Give up leadership or candidacy now, in the same term."""

    now: int
    reason: str


class StorageFailed(NamedTuple):
    """A write or sync failed. Final: the core never speaks again (scenario S12)."""

    now: int


Event = Tick | Receive | Propose | Durable | Unreachable | Campaign | StepDown | StorageFailed


# -- effects --------------------------------------------------------------------------------------


class Persist(NamedTuple):
    """One write to the log, in order: truncation first, then hard state, then entries.

    ``sequence`` counts writes from 1. ``hard_state`` is None when unchanged. ``truncate_from`` is
    the first index to delete, 0 for none. ``commit_index`` is what this node knew to be committed
    when it made the write: a durable lower bound that recovery checks the log against.
    """

    sequence: int
    hard_state: HardState | None
    truncate_from: int
    entries: list[Entry]
    commit_index: int


class Send(NamedTuple):
    """Send ``message`` to ``to``, but not before write ``after`` is durable (0: at once)."""

    to: str
    message: Message
    after: int


class Accepted(NamedTuple):
    """A :class:`Propose` was appended: its proposals have the indexes from ``first_index`` on."""

    first_index: int
    term: int


class Refused(NamedTuple):
    """A :class:`Propose` was certainly not appended."""

    code: str
    """``NOT_LEADER`` or ``BUSY``."""
    leader: str
    """The leader this node follows, or the empty string."""


class RoleChange(NamedTuple):
    role: Role
    term: int
    leader: str
    """The leader of ``term`` as far as known, or the empty string."""
    reason: str


@dataclass(slots=True)
class Effects:
    """What one step asks its caller to do.

    The caller carries out ``persist`` first (handing it over is enough), then sends, then applies
    entries up to ``apply_to``.
    """

    persist: list[Persist] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    apply_to: int = 0
    """Entries up to this index are committed and durable here; 0 when there is nothing new."""
    proposed: Accepted | Refused | None = None
    role_changes: list[RoleChange] = field(default_factory=list)
