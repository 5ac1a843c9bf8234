"""One node as it is seen from outside, over all its processes; and one term of a leader."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ...raft.core.configuration import Configuration
from ...raft.core.entry import Entry, HardState, Snapshot
from ...raft.core.events import Persist
from ...raft.core.invariants import Summary, summarize
from ...storage.recovery import load_log
from .image import NOTHING_SAVED, LogImage

if TYPE_CHECKING:
    from ..sim.node import SimNode, SimRaft


class Leadership(NamedTuple):
    """A node that was elected."""

    term: int
    name: str
    boot: int
    start_index: int
    """Of its no-op."""
    runs: tuple[tuple[int, int], ...]
    """(first index, term) of every run of entries of one term in its log; the first is what its log began behind."""
    elected_ns: int
    """When, in the world's nanoseconds."""

    def term_at(self, index: int) -> int:
        """The term of its entry at ``index``; -1 where that was not known any more. From its no-op on a leader
        appends entries of its own term only, so this stays true."""
        place = bisect_right(self.runs, index, key=lambda run: run[0]) - 1
        return self.runs[place][1] if place >= 0 else -1


def runs_of(image: LogImage) -> tuple[tuple[int, int], ...]:
    """Terms never fall along a log, so the end of each run is found by halving."""
    runs = [(image.previous_index, image.previous_term)]
    entries: list[Entry] = image.entries
    place = 0
    while place < len(entries):
        term = entries[place].term
        runs.append((entries[place].index, term))
        place = bisect_right(entries, term, lo=place, key=lambda entry: entry.term)
    return tuple(runs)


class ObservedNode:
    """What is known of one node. ``raft`` and ``node`` are those of the process that runs, or of the last one."""

    __slots__ = (
        "applied",
        "asked",
        "boot",
        "contacts",
        "disk",
        "disk_before",
        "fate",
        "in_force",
        "lost",
        "name",
        "newest",
        "node",
        "pending",
        "quorum_contact",
        "raft",
        "renews_until",
        "restoring",
        "settled",
        "spoken_term",
        "started_ns",
        "state",
        "summary",
        "up",
        "votes",
        "vouched_index",
        "vouched_term",
    )

    def __init__(self, node: SimNode) -> None:
        self.name = node.name
        self.node = node
        self.raft: SimRaft = node.raft
        self.boot = 0
        self.up = False
        self.started_ns = 0
        self.applied = 0
        """The last index that the running process has applied."""
        self.asked: LogImage
        """The log as the core has handed it over, write by write."""
        self.disk: LogImage
        """What the disk durably holds."""
        self.disk_before: LogImage | None = None
        """At a start: the same, as it was known before. None at a node's very first start, and after a fate."""
        self.pending: deque[Persist] = deque()
        """Handed over, and not known to be durable. After an end: some of them may have reached the disk."""
        self.votes: dict[tuple[int, str], None] = {}
        """(term, candidate) of every vote that was ever durable here."""
        self.lost: LogImage | None = None
        """What the disk held when it was declared lost, restored or damaged."""
        self.fate: str = ""
        """What was declared of the disk since the last start."""
        self.restoring: Snapshot | None = None
        """The state machines are being replaced; they can be looked at before the next event."""
        self.summary: Summary
        self.state: tuple[object, ...] = ()
        """What the core was like after the last event that was looked at. See ``watch``."""
        self.settled = False
        self.in_force: Configuration
        """In the core, and:"""
        self.newest: tuple[int, Configuration]
        """The newest in its log, with its index: as they were when they were looked at last."""
        # What properties have judged already, so that what says no more needs no second look.
        self.spoken_term = 0
        """Heartbeats of terms up to this may leave: the disk has that term."""
        self.vouched_term = 0
        self.vouched_index = 0
        """Answers of this term that claim no more than this index are true of the disk."""
        self.renews_until = 0
        """Heartbeats sent before this, by the leader's own clock, come with the contact of a quorum."""
        self.contacts: dict[str, int] = {}
        """Of this leader's term: when the newest message was sent that a peer has answered."""

    # -- life ---------------------------------------------------------------------------------------

    def begin(self, node: SimNode, now_ns: int) -> None:
        """A process has started: what its start has read is what the disk holds."""
        raft = node.raft
        known = self.boot > 0 and not self.fate
        self.disk_before = self.disk if known else None
        self.node, self.raft, self.boot, self.up, self.started_ns = node, raft, node.boot, True, now_ns
        self.asked = image_of(node)
        self.disk = self.asked.copy()
        self.in_force, self.newest = raft.configuration, self.asked.configurations[-1]
        if raft.hard_state_sequence and self.disk_before is not None:
            self.disk.hard_state = self.disk_before.hard_state
        self.note_vote(self.disk.hard_state)
        self.fate = ""
        self.applied = node.applier.last_applied
        self.spoken_term = self.disk.hard_state.term
        self.vouched_term = self.vouched_index = self.renews_until = 0
        self.contacts = {}
        self.restoring = None
        self.remember(())

    def remember(self, state: tuple[object, ...]) -> None:
        """What the core is like now, to judge its next step by."""
        self.summary = summarize(self.raft)
        self.quorum_contact = self.summary.quorum_contact
        self.state = state

    def before(self) -> Summary:
        """What the core was like before the step that it has just made. The contact of a quorum moves with every
        answer to a heartbeat, and is kept by itself."""
        summary, contact = self.summary, self.quorum_contact
        return summary if summary.quorum_contact == contact else summary._replace(quorum_contact=contact)

    def end(self) -> None:
        self.up = False

    def synced(self, write: Persist) -> None:
        """A write is on the disk."""
        self.disk.take(write)
        if write.hard_state is not None:
            self.spoken_term = write.hard_state.term
            self.note_vote(write.hard_state)
        if write.truncate_from or write.reset is not None:
            self.vouched_term = self.vouched_index = 0

    def note_vote(self, saved: HardState) -> None:
        if saved.voted_for:
            self.votes[saved.term, saved.voted_for] = None

    # -- what it is like ----------------------------------------------------------------------------

    @property
    def configuration(self) -> Configuration:
        return self.asked.configuration[1]

    def holds(self, index: int, term: int) -> bool:
        """Whether its disk holds this entry durably, or held it until it was declared lost."""
        return self.disk.holds(index, term) or (self.lost is not None and self.lost.holds(index, term))

    def __repr__(self) -> str:
        return f"{self.name}/{self.boot}"


def _entries_of(node: SimNode) -> list[Entry]:
    """What it has in memory, and what it has left on disk, as a reading of the whole disk finds it."""
    log = node.raft.log
    held = log.slice(log.window_start, log.last_index)
    if log.window_start == log.first_index:
        return held
    directory = node.directory
    found = load_log(node.host.disk.copy(), directory.log_path, bytes.fromhex(directory.instance_id)).recovered
    older = [entry for entry in found.entries if log.first_index <= entry.index < log.window_start]
    return [*older, *held]


def image_of(node: SimNode) -> LogImage:
    """The log that a start has read."""
    raft, log = node.raft, node.raft.log
    # A start may have to save a term that its log knows and its hard state does not; that is not durable yet.
    saved = raft.hard_state_sequence == 0
    return LogImage(
        Configuration(tuple(sorted(node.directory.voters))),
        HardState(raft.current_term, raft.voted_for) if saved else NOTHING_SAVED,
        _entries_of(node),
        log.previous_index,
        log.previous_term,
        raft.snapshot,
        raft.commit_index,
    )
