"""Who waits for a read or for a transfer of leadership; each hears one thing, and in its time (S44).

What is asked of the core here is answered by it in the same step, or later, or by the loss of the
leadership, or never. Whoever waits hears of its end all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..core.events import ReadReady, ReadRefused, Refused, RoleChange, TransferEnded

NEVER = 1 << 62
"""Monotonic nanoseconds; no clock gets there."""


# -- reads ------------------------------------------------------------------------------------------


class ReadSink(Protocol):
    """What hears of one linearizable read. Called on the node's loop; must not raise."""

    def ready(self) -> None:
        """The state machines hold everything that was committed when the read was asked for: read now."""

    def refused(self, leader: str) -> None:
        """Certainly not answered: this node follows nobody, or has just lost its leadership."""

    def expired(self) -> None:
        """No quorum confirmed it in time, or the state here did not get that far."""


class _Read:
    __slots__ = ("expires_at", "read_index", "sink")

    def __init__(self, sink: ReadSink, expires_at: int) -> None:
        self.sink = sink
        self.expires_at = expires_at
        self.read_index = 0
        """0 while the core has not said it."""


class Reads:
    """All of them have the same time to live, so that the oldest is always the first to expire."""

    def __init__(self) -> None:
        self._reads: dict[int, _Read] = {}
        self._last_id = 0
        self._asked: dict[bool, list[int]] = {False: [], True: []}
        self._confirmed: list[int] = []
        """Those that only wait until the state here is new enough."""

    def __len__(self) -> int:
        return len(self._reads)

    def ask(self, sink: ReadSink, *, lease: bool, expires_at: int) -> None:
        self._last_id += 1
        self._reads[self._last_id] = _Read(sink, expires_at)
        self._asked[lease].append(self._last_id)

    def take_asked(self, lease: bool) -> list[int]:
        """The ids to give to the core in one event."""
        asked = self._asked[lease]
        if asked:
            self._asked[lease] = []
        return asked

    def answered(self, answers: Sequence[ReadReady | ReadRefused], last_applied: int) -> None:
        """The core has spoken. What is asked for within ``ready`` is another read."""
        for answer in answers:
            read = self._reads.get(answer.request_id)
            if read is None:
                continue  # It took too long.
            if isinstance(answer, ReadRefused):
                del self._reads[answer.request_id]
                read.sink.refused(answer.leader)
            elif answer.read_index <= last_applied:
                del self._reads[answer.request_id]
                read.sink.ready()
            else:
                read.read_index = answer.read_index
                self._confirmed.append(answer.request_id)

    def applied(self, last_applied: int) -> None:
        if not self._confirmed:
            return
        confirmed, self._confirmed = self._confirmed, []
        for request_id in confirmed:
            read = self._reads.get(request_id)
            if read is None:
                continue
            if read.read_index <= last_applied:
                del self._reads[request_id]
                read.sink.ready()
            else:
                self._confirmed.append(request_id)

    def deadline(self) -> int:
        return next(iter(self._reads.values())).expires_at if self._reads else NEVER

    def expire(self, now: int) -> None:
        while self._reads:
            request_id, read = next(iter(self._reads.items()))
            if read.expires_at > now:
                return
            del self._reads[request_id]
            read.sink.expired()

    def abandon(self) -> None:
        """The node stops."""
        reads, self._reads = self._reads, {}
        self._asked, self._confirmed = {False: [], True: []}, []
        for read in reads.values():
            read.sink.refused("")


# -- transfers --------------------------------------------------------------------------------------


class TransferSink(Protocol):
    """What hears of one transfer of leadership. Called on the node's loop; must not raise.

    One of these, and only one.
    """

    def done(self, leader: str, term: int) -> None:
        """Another node leads now. It is the target, unless somebody else was quicker."""

    def refused(self, refusal: Refused) -> None:
        """Not even begun."""

    def ended(self, reason: str) -> None:
        """This node leads on."""

    def unknown(self) -> None:
        """This node does not lead any more, and has not heard who does."""


class Transfers:
    """At most one transfer is under way; several may wait for its end."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, TransferSink]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def begun(self, sink: TransferSink, expires_at: int) -> None:
        """``sink`` waits until another node leads, or this one for certain, monotonic nanoseconds at the most."""
        self._waiting.append((expires_at, sink))

    def ended(self, end: TransferEnded) -> None:
        for sink in self._take():
            sink.ended(end.reason)

    def role_changed(self, change: RoleChange, node_id: str) -> None:
        if not self._waiting or not change.leader:
            return
        for sink in self._take():
            if change.leader == node_id:
                sink.ended("nobody else was elected")
            else:
                sink.done(change.leader, change.term)

    def deadline(self) -> int:
        return min([expires_at for expires_at, _ in self._waiting], default=NEVER)

    def expire(self, now: int) -> None:
        expired = [sink for expires_at, sink in self._waiting if expires_at <= now]
        if expired:
            self._waiting = [each for each in self._waiting if each[0] > now]
            for sink in expired:
                sink.unknown()

    def abandon(self) -> None:
        """The node stops."""
        for sink in self._take():
            sink.unknown()

    def _take(self) -> list[TransferSink]:
        waiting, self._waiting = self._waiting, []
        return [sink for _, sink in waiting]
