"""What a leader knows of one follower's log (thesis section 3.5, pipelining section 10.2.1)."""

from __future__ import annotations

from collections import deque
from enum import Enum

from .entry import Snapshot


class ProgressState(Enum):
    PROBE = "probe"
    """Where the logs meet is not known: one message at a time."""
    REPLICATE = "replicate"
    """The logs meet: messages are sent without waiting, ``next_index`` runs ahead."""
    SNAPSHOT = "snapshot"
    """The follower lacks entries that are gone here: it gets a snapshot, a part at a time, and no entries."""


class Progress:
    __slots__ = (
        "asked",
        "chunk_first_at",
        "chunk_sent_at",
        "commit_sent",
        "contact_at",
        "heard",
        "in_flight",
        "in_flight_bytes",
        "lost_index",
        "match_index",
        "matched_at",
        "next_index",
        "probe_sent",
        "promise",
        "reading",
        "sent_at",
        "snapshot",
        "snapshot_furthest",
        "snapshot_moved_at",
        "snapshot_offset",
        "state",
    )

    def __init__(self, next_index: int, contact_at: int) -> None:
        self.match_index = 0
        self.matched_at = 0
        """When that became known, nanoseconds."""
        self.lost_index = 0
        """What ``match_index`` was before it was found that the follower has lost some of it; 0 as long as it has
        lost nothing."""
        self.asked = (0, 0)
        """(index, when) of the newest message that can only be refused at this index by a follower which has lost
        what it had acknowledged."""
        self.next_index = next_index
        self.state = ProgressState.PROBE
        self.probe_sent = False
        self.in_flight: deque[tuple[int, int]] = deque()
        """(last index, payload bytes) of every message with entries that is not yet answered."""
        self.in_flight_bytes = 0
        self.reading = False
        """Entries for it are being read from the disk: one reading at a time."""
        self.contact_at = contact_at
        """When the newest message that this follower has answered was *sent*, nanoseconds."""
        self.heard = False
        """It has answered something in this term."""
        self.promise = 0
        """``AppendEntriesResponse.promise`` of its newest answer; 0 before there is one."""
        self.sent_at = 0
        """When the last message was sent to it, nanoseconds."""
        self.commit_sent = 0
        """The highest commit index it has been told."""
        self.snapshot: Snapshot | None = None
        """What it is being sent, in SNAPSHOT."""
        self.snapshot_offset = 0
        """How much of it the follower has, bytes."""
        self.snapshot_furthest = 0
        """How much it ever had: after damage it begins anew."""
        self.snapshot_moved_at = 0
        """When it last had more than ever before, nanoseconds."""
        self.chunk_sent_at = 0
        """When the part that is not yet answered was asked for, nanoseconds; 0 if there is none."""
        self.chunk_first_at = 0
        """When it was asked for the first time."""

    def become_probe(self) -> None:
        """Whatever was in flight may be lost: start again behind the last known match."""
        self._leave()
        self.state = ProgressState.PROBE
        self.next_index = self.match_index + 1
        self.probe_sent = False

    def become_snapshot(self, snapshot: Snapshot, now: int) -> None:
        """Send this snapshot from its beginning; the entries behind it follow."""
        self._leave()
        self.snapshot_moved_at = now
        self.state = ProgressState.SNAPSHOT
        self.snapshot = snapshot
        self.next_index = snapshot.last_index + 1

    def snapshot_stored(self, offset: int, now: int) -> None:
        """The follower has so much of the snapshot that it is sent."""
        self.snapshot_offset = offset
        if offset > self.snapshot_furthest:
            self.snapshot_furthest = offset
            self.snapshot_moved_at = now

    def _leave(self) -> None:
        self.in_flight.clear()
        self.in_flight_bytes = 0
        self.snapshot = None
        self.snapshot_offset = self.snapshot_furthest = 0
        self.chunk_sent_at = self.chunk_first_at = 0

    def sent(self, last_index: int, size: int) -> None:
        """A message with entries up to ``last_index`` is on its way, in REPLICATE."""
        self.in_flight.append((last_index, size))
        self.in_flight_bytes += size
        self.next_index = last_index + 1

    def acknowledged(self, match_index: int) -> bool:
        """The follower holds everything up to ``match_index``. Returns whether that is news."""
        in_flight = self.in_flight
        while in_flight and in_flight[0][0] <= match_index:
            self.in_flight_bytes -= in_flight.popleft()[1]
        self.probe_sent = False
        news = match_index > self.match_index
        if news:
            self.match_index = match_index
        if self.snapshot is not None:
            if match_index < self.snapshot.last_index:
                return news  # An answer to what was sent before; the snapshot is still needed.
            self._leave()
        if self.next_index <= match_index:
            self.next_index = match_index + 1
        self.state = ProgressState.REPLICATE
        return news

    def sent_behind(self, index: int, now: int) -> None:
        """A message is on its way that fits behind the entry at ``index``, sent at ``now``."""
        if index == (self.lost_index or self.match_index) and now > self.matched_at:
            self.asked = (index, now)

    def has_lost(self, rejected: int, sent_at: int) -> bool:
        """Whether a refusal proves that the follower has lost what it had acknowledged in this term (S21).

        It does where it answers a message that was sent after the acknowledgement had come: until then a
        refusal may be late, or be of a message that came before its time. No leader but this one shortens a
        log in this term, and this one shortens none that matches its own. From then on the follower
        counts for nothing, until it shows that it has it all.
        """
        if not rejected or (rejected, sent_at) != self.asked or rejected != (self.lost_index or self.match_index):
            return False
        self._leave()
        self.lost_index = rejected
        self.match_index = 0
        self.state = ProgressState.PROBE
        self.next_index = rejected + 1
        self.probe_sent = True
        return True

    def is_lost(self, match_index: int, previous_index: int) -> bool:
        """Whether the follower, which says that it matches up to there, still lacks something that it had lost."""
        if match_index >= self.lost_index or self.lost_index < previous_index:
            self.lost_index = 0  # It has it all, or is to get a snapshot which does.
        return self.lost_index > 0

    def refused(self, rejected: int, may_match: int) -> bool:
        """The follower has no matching entry at ``rejected``. Returns False for a late answer to a
        message that later knowledge has overtaken, and while a snapshot mends the matter anyway."""
        if rejected <= self.match_index or self.state is ProgressState.SNAPSHOT:
            return False  # Also when it is no late answer but a follower that lost its log: no storm of probes.
        if self.state is ProgressState.REPLICATE:
            self.become_probe()
        elif self.next_index - 1 != rejected:
            return False
        self.next_index = max(min(rejected, may_match + 1), self.match_index + 1)
        self.probe_sent = False
        return True
