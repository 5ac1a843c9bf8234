"""What a leader knows of one follower's log (thesis section 3.5, pipelining section 10.2.1)."""

from __future__ import annotations

from collections import deque
from enum import Enum


class ProgressState(Enum):
    PROBE = "probe"
    """Where the logs meet is not known: one message at a time."""
    REPLICATE = "replicate"
    """The logs meet: messages are sent without waiting, ``next_index`` runs ahead."""


class Progress:
    __slots__ = (
        "commit_sent",
        "contact_at",
        "in_flight",
        "match_index",
        "next_index",
        "probe_sent",
        "sent_at",
        "state",
    )

    def __init__(self, next_index: int, contact_at: int) -> None:
        self.match_index = 0
        self.next_index = next_index
        self.state = ProgressState.PROBE
        self.probe_sent = False
        self.in_flight: deque[int] = deque()
        """Last index of every message with entries that is not yet answered."""
        self.contact_at = contact_at
        """When the newest message that this follower has answered was *sent*, nanoseconds."""
        self.sent_at = 0
        """When the last message was sent to it, nanoseconds."""
        self.commit_sent = 0
        """The highest commit index it has been told."""

    def become_probe(self) -> None:
        """Whatever was in flight may be lost: start again behind the last known match."""
        self.state = ProgressState.PROBE
        self.next_index = self.match_index + 1
        self.probe_sent = False
        self.in_flight.clear()

    def acknowledged(self, match_index: int) -> bool:
        """The follower holds everything up to ``match_index``. Returns whether that is news."""
        in_flight = self.in_flight
        while in_flight and in_flight[0] <= match_index:
            in_flight.popleft()
        self.probe_sent = False
        news = match_index > self.match_index
        if news:
            self.match_index = match_index
        if self.next_index <= match_index:
            self.next_index = match_index + 1
        if self.state is ProgressState.PROBE:
            self.state = ProgressState.REPLICATE
        return news

    def refused(self, rejected: int, may_match: int) -> bool:
        """The follower has no matching entry at ``rejected``. Returns False for a late answer to a
        message that later knowledge has overtaken."""
        if rejected <= self.match_index:
            return False  # Also when it is no late answer but a follower that lost its log: no storm of probes.
        if self.state is ProgressState.REPLICATE:
            self.become_probe()
        elif self.next_index - 1 != rejected:
            return False
        self.next_index = max(min(rejected, may_match + 1), self.match_index + 1)
        self.probe_sent = False
        return True
