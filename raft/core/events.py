"""What goes into the core and what comes out of it.

Every event carries ``now``, the node's monotonic clock in nanoseconds. Every effect that speaks to
the outside names the write it has to wait for: that an answer depends on a write is data, not the
order of two calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from .configuration import Change, Configuration
from .entry import Entry, HardState, Snapshot
from .messages import InstallSnapshot, Message


class Role(StrEnum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Transition(StrEnum):
    """How a change of several voters leaves the joint configuration it needs."""

    AUTO = "auto"
    """Without a joint configuration where one voter changes, else as IMPLICIT."""
    IMPLICIT = "implicit"
    """Through a joint configuration, which the leader leaves by itself."""
    EXPLICIT = "explicit"
    """Through a joint configuration, which is left when that is asked for."""


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
    """Start an election now, without waiting for a timeout. Ignored while a leader may answer reads from a
    lease that this node has promised it (``Options.lease_reads``)."""

    now: int


class StepDown(NamedTuple):
    """Give up leadership or candidacy now, in the same term."""

    now: int
    reason: str


class StorageFailed(NamedTuple):
    """A write or sync failed. Final: the core never speaks again (scenario S12)."""

    now: int


class ChangeConfiguration(NamedTuple):
    """Change the members of the cluster (thesis chapter 4). Answered in ``Effects.proposed``.

    No changes at all ask for the joint configuration to be left.
    """

    now: int
    changes: list[Change]
    transition: Transition = Transition.AUTO
    unchecked: bool = False
    """Do not ask whether a new voter has caught up and was heard of lately. For a cluster that is
    being put together: a voter that is absent may cost the quorum (S28)."""


class TransferLeadership(NamedTuple):
    """Hand leadership to ``target``, or to whoever has the longest log where it is empty
    (thesis section 3.10). Answered in ``Effects.transfer``."""

    now: int
    target: str = ""


class Read(NamedTuple):
    """Ask for the index at which linearizable reads may be answered (thesis section 6.4).

    ``request_ids`` are the caller's, never used twice; each is answered once in ``Effects.reads``, or
    not at all if it takes too long: the caller has a deadline of its own.
    """

    now: int
    request_ids: list[int]
    lease: bool = False
    """Answer from the leader's lease where ``Options.lease_reads`` allows it (section 6.4.1)."""


class SnapshotTaken(NamedTuple):
    """What ``Effects.take_snapshot`` asked for is durable."""

    now: int
    snapshot: Snapshot


class SnapshotNotTaken(NamedTuple):
    """It could not be made. Asked for again after a while."""

    now: int


class ChunkUnavailable(NamedTuple):
    """A part that ``Effects.chunks`` asked for could not be read: begin anew with the newest snapshot."""

    now: int
    to: str


class EntriesRead(NamedTuple):
    """What ``Effects.read_entries`` asked for, in ``term``: entries from ``start`` on as they are on disk, at
    least one; none if they are not kept any more."""

    now: int
    to: str
    term: int
    start: int
    entries: list[Entry]


class ChunkStored(NamedTuple):
    """``offset`` bytes of the snapshot under way are stored."""

    now: int
    snapshot: Snapshot
    offset: int


class SnapshotReceived(NamedTuple):
    """All of a snapshot under way is stored, verified and durable."""

    now: int
    snapshot: Snapshot


class SnapshotUnusable(NamedTuple):
    """The snapshot under way was damaged on its way, or could not be stored. What is stored of it is gone."""

    now: int
    snapshot: Snapshot


Event = (
    Tick
    | Receive
    | Propose
    | Durable
    | Unreachable
    | Campaign
    | StepDown
    | StorageFailed
    | ChangeConfiguration
    | TransferLeadership
    | Read
    | SnapshotTaken
    | SnapshotNotTaken
    | ChunkUnavailable
    | EntriesRead
    | ChunkStored
    | SnapshotReceived
    | SnapshotUnusable
)


# -- effects --------------------------------------------------------------------------------------


class Persist(NamedTuple):
    """One write to the log, in order: truncation first, then reset, hard state, entries.

    ``sequence`` counts writes from 1. ``hard_state`` is None when unchanged. ``truncate_from`` is
    the first index to delete, 0 for none. ``commit_index`` is what this node knew to be committed
    when it made the write: a durable lower bound that recovery checks the log against.
    """

    sequence: int
    hard_state: HardState | None
    truncate_from: int
    entries: list[Entry]
    commit_index: int
    reset: Snapshot | None = None
    """Delete every entry: the log goes on behind this snapshot, which is durable (thesis chapter 5)."""
    compact_to: int = 0
    """Entries up to this index are no longer needed, because a durable snapshot holds what they did. They
    may stay for a while; 0 for none."""


class Send(NamedTuple):
    """Send ``message`` to ``to``, but not before write ``after`` is durable (0: at once)."""

    to: str
    message: Message
    after: int


class ReadChunk(NamedTuple):
    """Read ``length`` bytes of ``message.snapshot`` from ``message.offset`` on, put them into
    ``message.data`` and send it to ``to``, under the same condition as :class:`Send`."""

    to: str
    message: InstallSnapshot
    length: int
    after: int


class ReadEntries(NamedTuple):
    """Read entries from ``start`` to ``end`` at the most, as many as fit ``bytes_max`` payload bytes but at least
    one, and answer with :class:`EntriesRead`. They are durable and committed: nothing changes them any more."""

    to: str
    """The follower that lacks them."""
    term: int
    """Of the leader that asks."""
    start: int
    end: int
    bytes_max: int


class StoreChunk(NamedTuple):
    """Store a part of a snapshot that is being received; the first one, at offset 0, begins it anew.

    Answered with :class:`ChunkStored`, and after the ``last`` one with :class:`SnapshotReceived`, or
    else with :class:`SnapshotUnusable`.
    """

    snapshot: Snapshot
    offset: int
    data: bytes
    last: bool


class ReadReady(NamedTuple):
    """This read may be answered from the state at ``read_index`` or later."""

    request_id: int
    read_index: int


class ReadRefused(NamedTuple):
    """Certainly not answered: ``code`` is ``NOT_LEADER``, as nobody is known to lead."""

    request_id: int
    code: str
    leader: str


class LostEntries(NamedTuple):
    """A follower has lost entries that it had acknowledged to this leader: its directory was put back to an older
    copy, or its disk lost what it said was synced (S21). It has to stop, and counts for nothing until it does."""

    peer: str
    acknowledged: int
    """The last index that it had acknowledged."""
    may_match: int
    """The last index that it may still have."""


class TransferBegun(NamedTuple):
    """No proposals of clients are taken until the transfer has ended. ``deadline`` is monotonic nanoseconds."""

    target: str
    deadline: int


class TransferEnded(NamedTuple):
    """This node leads on: the target did not take over by the deadline. Where the transfer succeeds there is
    a :class:`RoleChange` instead."""

    target: str
    reason: str


class Accepted(NamedTuple):
    """A :class:`Propose` was appended: its proposals have the indexes from ``first_index`` on. Of a
    :class:`ChangeConfiguration`, the index of the configuration that was appended."""

    first_index: int
    term: int


class Refused(NamedTuple):
    """What was asked for was certainly not done."""

    code: str
    """``NOT_LEADER``, ``BUSY`` or ``TOO_LARGE``; of a transfer or a change of members also
    ``CHANGE_REFUSED`` (as things stand, for good), ``NOT_CAUGHT_UP`` (not yet) or ``TRANSFER_REFUSED``."""
    leader: str
    """The leader this node follows, or the empty string."""
    detail: str = ""
    """Why, as a sentence, where the code alone does not say it."""


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
    entries up to ``apply_to``. What the log has in memory of these stays there until the next step; what it
    has not is read from the disk.
    """

    persist: list[Persist] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    apply_to: int = 0
    """Entries up to this index are committed and durable here; 0 when there is nothing new."""
    proposed: Accepted | Refused | None = None
    role_changes: list[RoleChange] = field(default_factory=list)
    restore: Snapshot | None = None
    """Replace the state machine's state by this snapshot's, before anything is applied."""
    take_snapshot: Snapshot | None = None
    """Take a snapshot of the state as it is after ``apply_to`` (or, without, as it is now), and answer
    with this label, its size and checksum filled in."""
    chunks: list[ReadChunk] = field(default_factory=list)
    read_entries: list[ReadEntries] = field(default_factory=list)
    store_chunks: list[StoreChunk] = field(default_factory=list)
    reads: list[ReadReady | ReadRefused] = field(default_factory=list)
    lost_entries: list[LostEntries] = field(default_factory=list)
    transfer: TransferBegun | TransferEnded | Refused | None = None
    configuration: Configuration | None = None
    """The configuration that came into force in this step."""
