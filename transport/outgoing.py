"""What waits for a peer that does not read as fast as it is sent to. Bounded; newest wins.

Raft's messages may be lost but must not pile up: a heartbeat makes the one before it worthless, and
when there is no room everything goes at once, because what remains after a gap would be refused
anyway and the leader has to look again at what the peer holds (scenario S35).
"""

from __future__ import annotations


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
