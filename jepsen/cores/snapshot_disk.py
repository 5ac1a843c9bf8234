"""Where one process keeps its snapshots, and what it has of one that is coming in."""

from __future__ import annotations

import zlib

from ...raft.core.entry import Snapshot


class SnapshotDisk:
    """A snapshot is here whole and durable, or not at all; a crash loses what was coming in."""

    def __init__(self) -> None:
        self.kept: list[tuple[Snapshot, bytes]] = []
        """By index."""
        self.partial: tuple[Snapshot, bytes] | None = None
        self.publishing: tuple[Snapshot, bytes] | None = None
        """About to be whole: a crash may come before or after that, though nobody was told."""
        self.free_at = 0
        """When what was asked for last will be done, simulated nanoseconds."""

    @property
    def newest(self) -> Snapshot | None:
        return self.kept[-1][0] if self.kept else None

    @property
    def last_index(self) -> int:
        return self.kept[-1][0].last_index if self.kept else 0

    def contents(self, snapshot: Snapshot) -> bytes | None:
        return next((data for kept, data in self.kept if kept == snapshot), None)

    def publish(self, snapshot: Snapshot, data: bytes, keep: int) -> None:
        """Keep it, and at most ``keep`` of all, the newest."""
        self.publishing = None
        others = [held for held in self.kept if held[0].last_index != snapshot.last_index]
        self.kept = sorted([*others, (snapshot, data)], key=lambda held: held[0].last_index)[-keep:]

    def store(self, snapshot: Snapshot, offset: int, data: bytes) -> int:
        """Store a part; how much of the snapshot is here now, bytes."""
        if not offset:
            self.partial = (snapshot, data)
        elif self.partial is not None and self.partial[0] == snapshot and len(self.partial[1]) == offset:
            self.partial = (snapshot, self.partial[1] + data)
        return len(self.partial[1]) if self.partial is not None and self.partial[0] == snapshot else 0

    def take_partial(self, snapshot: Snapshot) -> bytes | None:
        """What came in, if it is all of ``snapshot``; either way nothing stays of it."""
        partial, self.partial = self.partial, None
        if partial is None or partial[0] != snapshot or len(partial[1]) != snapshot.size_bytes:
            return None
        return partial[1] if zlib.crc32(partial[1]) == snapshot.checksum else None

    def crash(self, *, published: bool) -> None:
        if self.publishing is not None and published:
            self.publish(*self.publishing, keep=1)
        self.partial = self.publishing = None
        self.free_at = 0
