"""The messages between nodes, as in the Raft thesis, figures 3.1 and 5.3, sections 3.10, 6.4 and 9.6.

Times in messages are the *sender's* monotonic nanoseconds. They are only ever echoed back to the
node that wrote them and compared with its own clock, never with another node's.
"""

from __future__ import annotations

from typing import NamedTuple

from .entry import Entry, Snapshot


class PreVote(NamedTuple):
    """Would you vote for me in ``term``? Asked before a term is spent (thesis section 9.6)."""

    term: int
    """The term the sender would campaign in: its current term plus one."""
    last_log_index: int
    last_log_term: int
    round: int
    """Names this round of asking. An answer is matched to it and to nothing else (S01)."""


class PreVoteResponse(NamedTuple):
    term: int
    """The voter's current term, unchanged by the question."""
    granted: bool
    round: int
    reason: str
    """Why not, in one word for metrics; empty when granted."""


class RequestVote(NamedTuple):
    term: int
    last_log_index: int
    last_log_term: int
    transfer: bool
    """Set when the leader itself asked for this election: stickiness does not apply (S08)."""


class RequestVoteResponse(NamedTuple):
    term: int
    granted: bool
    reason: str


class AppendEntries(NamedTuple):
    """Entries to append after ``prev_log_index``; a heartbeat when there are none."""

    term: int
    prev_log_index: int
    prev_log_term: int
    leader_commit: int
    sent_at: int
    """The leader's monotonic clock when it sent this, nanoseconds. The answer echoes it, so that
    a leader judges how recently a quorum followed it by when it *asked* (lease rule, section 6.4.1)."""
    entries: list[Entry]


class AppendEntriesResponse(NamedTuple):
    term: int
    success: bool
    match_index: int
    """On success: the last index known to be both equal to the leader's and durable here.
    On refusal: the ``prev_log_index`` that was refused, so that a late refusal is recognised."""
    hint_index: int
    """On refusal: the last index here that may match (thesis section 3.5.3, term-aware back-up)."""
    hint_term: int
    """On refusal: the term at ``hint_index``."""
    sent_at: int
    """``AppendEntries.sent_at``, echoed."""
    promise: int = 0
    """For how long after it has heard its leader the sender keeps its vote to itself and does not campaign: its own
    election timeout, nanoseconds. A leader's lease counts on no more than that (S49). 0 is no word about it."""


class InstallSnapshot(NamedTuple):
    """A part of a snapshot for a follower that lacks entries which are gone here (thesis figure 5.3)."""

    term: int
    snapshot: Snapshot
    offset: int
    """Where in the contents ``data`` begins, bytes. Parts come in order, one at a time."""
    data: bytes
    sent_at: int
    """As in :class:`AppendEntries`."""


class InstallSnapshotResponse(NamedTuple):
    term: int
    last_index: int
    """``Snapshot.last_index`` of the snapshot that this is about."""
    offset: int
    """How many bytes of it are stored here: where the next part has to begin."""
    installed: bool
    """The whole snapshot is in place and durable: the logs match up to ``last_index``."""
    sent_at: int
    promise: int = 0
    """As in :class:`AppendEntriesResponse`."""


class TimeoutNow(NamedTuple):
    """Campaign at once: the leader of ``term`` hands its leadership over (thesis section 3.10)."""

    term: int


class ReadIndex(NamedTuple):
    """A follower asks where linearizable reads that it has taken may be answered (section 6.4)."""

    term: int
    batch: int
    """Names the reads of this question at the node that asks."""


class ReadIndexResponse(NamedTuple):
    term: int
    batch: int
    read_index: int
    """The reads may be answered once this is applied; 0: not now, for the sender cannot lead."""


class MachineDigest(NamedTuple):
    """What stands for the state of one state machine."""

    kind: int
    """Its entry kind."""
    digest: bytes
    """The first byte says how it was made; only digests of one make are compared."""


class StateDigest(NamedTuple):
    """The sender's state after ``index``. Nodes compare what they have; the core never sees one."""

    index: int  # type: ignore[assignment]  # the thesis's word; tuple.index is not used
    machines: list[MachineDigest]

    @property
    def term(self) -> int:
        """It speaks for no term."""
        return 0


Message = (
    PreVote
    | PreVoteResponse
    | RequestVote
    | RequestVoteResponse
    | AppendEntries
    | AppendEntriesResponse
    | InstallSnapshot
    | InstallSnapshotResponse
    | TimeoutNow
    | ReadIndex
    | ReadIndexResponse
    | StateDigest
)
