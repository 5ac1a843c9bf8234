"""Carrying out what a core wants of snapshots: taken, read, stored, each after a while."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from ...raft.core.entry import Snapshot
from ...raft.core.errors import NotFound
from ...raft.core.events import (
    ChunkStored,
    ChunkUnavailable,
    EntriesRead,
    Event,
    ReadChunk,
    ReadEntries,
    Send,
    SnapshotNotTaken,
    SnapshotReceived,
    SnapshotTaken,
    SnapshotUnusable,
    StoreChunk,
)
from ...raft.core.options import Options
from .parts import Node, SnapshotTimes
from .processes import Processes


class Snapshotting(Processes):
    """One thing after another on each node, in the order it was asked for."""

    def __init__(self, voters: tuple[str, ...], seed: int, options: Options) -> None:
        super().__init__(voters, seed, options)
        self.snapshot_times = SnapshotTimes()
        self.snapshots_kept = (1, 2)
        """How many a node keeps, at least and at the most."""
        self.taken = 0
        """Snapshots that nodes have taken of their own, and below those that they got and that were spoilt."""
        self.installed = 0
        self.damaged = 0
        self.read_back = 0
        """How often entries that were on disk only were read for a follower."""

    def send(self, node: Node, send: Send) -> None:
        """Transmit it once the write that it waits for is durable."""
        raise NotImplementedError

    def reaches(self, node: Node, boot: int, again: Callable[[], None]) -> bool:
        """Whether the process that was meant is running; if it is stopped, ``again`` is called later."""
        if node.boot != boot or node.raft is None:
            return False
        if node.paused_until > self.now:
            self.at(node.paused_until, again)
            return False
        return True

    def _in_turn(self, node: Node, work: Callable[[], Event | None]) -> None:
        """Do ``work`` when everything before it is done, and hand the core what it says."""
        times, disk, boot = self.snapshot_times, node.snapshots, node.boot
        disk.free_at = max(disk.free_at, self.now) + self.random.randint(times.least, times.most)

        def act() -> None:
            if not self.reaches(node, boot, act):
                return
            if node.disk.stuck:
                self.after(times.most, act)
                return
            event = work()
            if event is not None:
                self.step(node, event)

        self.at(disk.free_at, act)

    # -- one's own --------------------------------------------------------------------------------

    def take_snapshot(self, node: Node, label: Snapshot) -> None:
        """The state is captured now, at exactly the index of its label; the rest may take its time."""
        contents = node.machine.contents()
        self.checks.check_label(node.name, label, node.machine)
        whole = label._replace(size_bytes=len(contents), checksum=zlib.crc32(contents))
        if self.random.random() < self.snapshot_times.failed:
            self._in_turn(node, lambda: SnapshotNotTaken(node.clock(self.now)))
            return
        node.snapshots.publishing = (whole, contents)
        self._in_turn(node, lambda: self._published(node, whole, contents))

    def _published(self, node: Node, whole: Snapshot, contents: bytes) -> Event:
        node.snapshots.publish(whole, contents, keep=self.random.randint(*self.snapshots_kept))
        self.taken += 1
        return SnapshotTaken(node.clock(self.now), whole)

    # -- another's --------------------------------------------------------------------------------

    def store_chunk(self, node: Node, chunk: StoreChunk) -> None:
        if chunk.last:
            self._in_turn(node, lambda: self._stored_last(node, chunk))
        else:
            self._in_turn(node, lambda: self._stored(node, chunk))

    def _stored(self, node: Node, chunk: StoreChunk) -> Event:
        offset = node.snapshots.store(chunk.snapshot, chunk.offset, chunk.data)
        return ChunkStored(node.clock(self.now), chunk.snapshot, offset)

    def _stored_last(self, node: Node, chunk: StoreChunk) -> Event | None:
        node.snapshots.store(chunk.snapshot, chunk.offset, chunk.data)
        contents = node.snapshots.take_partial(chunk.snapshot)
        if contents is None or self.random.random() < self.snapshot_times.damaged:
            self.damaged += 1
            return SnapshotUnusable(node.clock(self.now), chunk.snapshot)
        node.snapshots.publishing = (chunk.snapshot, contents)
        self._in_turn(node, lambda: self._received(node, chunk.snapshot, contents))
        return None

    def _received(self, node: Node, snapshot: Snapshot, contents: bytes) -> Event:
        node.snapshots.publish(snapshot, contents, keep=self.random.randint(*self.snapshots_kept))
        return SnapshotReceived(node.clock(self.now), snapshot)

    def read_chunk(self, node: Node, chunk: ReadChunk) -> None:
        self._in_turn(node, lambda: self._read(node, chunk))

    def _read(self, node: Node, chunk: ReadChunk) -> Event | None:
        message = chunk.message
        contents = node.snapshots.contents(message.snapshot)
        if contents is None:
            return ChunkUnavailable(node.clock(self.now), chunk.to)
        data = contents[message.offset : message.offset + chunk.length]
        self.send(node, Send(chunk.to, message._replace(data=data), chunk.after))
        return None

    # -- entries that are on disk only --------------------------------------------------------------

    def read_entries(self, node: Node, wanted: ReadEntries) -> None:
        self._in_turn(node, lambda: self._entries_read(node, wanted))

    def _entries_read(self, node: Node, wanted: ReadEntries) -> Event:
        try:
            entries = node.disk.read(wanted.start, wanted.end, wanted.bytes_max)
        except NotFound:
            entries = []
        assert node.raft is not None
        if entries and entries[-1].index > node.raft.commit_index:
            raise AssertionError(f"{node.name} read back {entries[-1]}, and {node.raft.commit_index} is committed")
        self.read_back += 1
        return EntriesRead(node.clock(self.now), wanted.to, wanted.term, wanted.start, entries)

    def restore(self, node: Node, snapshot: Snapshot) -> None:
        contents = node.snapshots.contents(snapshot)
        if contents is None:
            raise AssertionError(f"{node.name} is to have the state of {snapshot}, which is not on its disk")
        node.machine.restore(contents)
        self.installed += 1
        self.checks.check_label(node.name, snapshot, node.machine)
