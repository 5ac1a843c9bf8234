"""What waits for a peer that does not read as fast as it is sent to: two lanes, both bounded.

The *urgent* lane holds all messages but parts of snapshots. They may be lost but must not pile up: a
heartbeat makes the one before it worthless, and when there is no room everything goes at once, because
what remains after a gap would be refused anyway and the leader has to look again at what the peer
holds (scenario S35).

The *bulk* lane holds one part of a snapshot. A part is written only when nothing urgent waits and the
peer has *read* the part before it, which the answer to a ping behind that part tells. What a write
returned for would not do: megabytes lie in the buffers of two kernels and of what is between them,
and a heartbeat would have to wait behind all of them. So it never waits behind more than one part,
however slow the peer (scenario S36). A newer part takes the place of one that waits; whoever sent
that one sends it again.
"""

from __future__ import annotations

from typing import Protocol


class OutgoingQueue:
    """Frames in order, at most ``bytes_max`` bytes and ``count_max`` of them. One larger frame alone fits."""

    def __init__(self, *, bytes_max: int, count_max: int) -> None:
        self._bytes_max = bytes_max
        self._count_max = count_max
        self._frames: list[bytes] = []
        self._last_is_heartbeat = False
        self.queued_bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, frame: bytes, *, heartbeat: bool) -> int:
        """Queue a frame. Returns how many frames were dropped for want of room: 0, or all of them.

        A heartbeat takes the place of a heartbeat directly before it. Between them nothing may stand:
        order among the messages that carry entries is kept.
        """
        frames = self._frames
        if heartbeat and self._last_is_heartbeat:
            self.queued_bytes += len(frame) - len(frames[-1])
            frames[-1] = frame
            return 0
        if frames and (self.queued_bytes + len(frame) > self._bytes_max or len(frames) >= self._count_max):
            return self.clear() + 1
        frames.append(frame)
        self.queued_bytes += len(frame)
        self._last_is_heartbeat = heartbeat
        return 0

    def take(self) -> list[bytes]:
        """Everything, in order; the queue is empty afterwards."""
        frames, self._frames = self._frames, []
        self.queued_bytes = 0
        self._last_is_heartbeat = False
        return frames

    def clear(self) -> int:
        """Drop everything. Returns how many frames that were."""
        return len(self.take())


class Wire(Protocol):
    """The connection behind the lanes."""

    @property
    def full(self) -> bool:
        """More waits to be taken by the operating system than should."""

    def write(self, frame: bytes) -> None: ...

    def ping(self, number: int) -> None: ...


class OutgoingLanes:
    """Both lanes of one connection. Tell it of ``drained`` and ``ponged``."""

    def __init__(self, wire: Wire, *, bytes_max: int, count_max: int) -> None:
        self._wire = wire
        self.urgent = OutgoingQueue(bytes_max=bytes_max, count_max=count_max)
        self._bulk: bytes | None = None
        self._unread_until = 0
        """The number of the ping behind the part that was written last; 0 when it has been answered."""
        self.pings = 0
        """How many pings were sent, and the number of the last one."""

    def send(self, frame: bytes, *, heartbeat: bool) -> int:
        """Write or queue an urgent frame. Returns how many were dropped for want of room: 0, or all of them."""
        if not self._wire.full:
            self._wire.write(frame)
            return 0
        return self.urgent.add(frame, heartbeat=heartbeat)

    def send_bulk(self, frame: bytes) -> int:
        """Write or keep a part of a snapshot. Returns how many were dropped: the one whose place it takes."""
        dropped = int(self._bulk is not None)
        self._bulk = frame
        self._write_bulk()
        return dropped

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self.pings += 1
        self._wire.ping(self.pings)

    def drained(self) -> None:
        """The wire takes more again."""
        for frame in self.urgent.take():
            self._wire.write(frame)
        self._write_bulk()

    def ponged(self, number: int) -> None:
        """The peer has read all that was sent before this ping."""
        if self._unread_until and number >= self._unread_until:
            self._unread_until = 0
            self._write_bulk()

    def _write_bulk(self) -> None:
        if self._bulk is None or self._unread_until or self._wire.full:
            return
        frame, self._bulk = self._bulk, None
        self._wire.write(frame)
        self.ping()
        self._unread_until = self.pings

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait in the lanes."""
        return self.urgent.queued_bytes + (0 if self._bulk is None else len(self._bulk))

    def clear(self) -> int:
        """Drop everything that waits. Returns how many frames that were."""
        dropped = self.urgent.clear() + int(self._bulk is not None)
        self._bulk = None
        return dropped
