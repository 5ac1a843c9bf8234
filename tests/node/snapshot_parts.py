"""A disk that also knows snapshots, and work off the loop on virtual time."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fencepost.jepsen.cores.disk import Disk
from fencepost.raft.core.entry import Snapshot
from fencepost.raft.core.errors import NotFound, StorageError
from fencepost.raft.core.events import Persist
from fencepost.raft.node.runner import Completion

from .process import ProcessLoop

PIECE_BYTES = 1000


class NodeDisk(Disk):
    """Outlives processes. What was published as a snapshot is durable."""

    def __init__(self) -> None:
        super().__init__()
        self.previous_index = 0
        self.previous_term = 0
        self.snapshots: list[tuple[Snapshot, bytes]] = []

    def _write(self, write: Persist, count: int) -> None:
        if write.truncate_from:
            del self.entries[write.truncate_from - self.previous_index - 1 :]
        if write.reset is not None:
            self.entries.clear()
            self.previous_index, self.previous_term = write.reset.last_index, write.reset.last_term
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        for entry in write.entries[:count]:
            if entry.index != self.previous_index + len(self.entries) + 1:
                raise AssertionError(f"entry {entry.index} after {self.previous_index} and {len(self.entries)} more")
            self.entries.append(entry)
        if write.compact_to > self.previous_index:
            gone = write.compact_to - self.previous_index
            self.previous_term = self.entries[gone - 1].term
            del self.entries[:gone]
            self.previous_index = write.compact_to

    @property
    def last_index(self) -> int:
        return self.previous_index + len(self.entries)


class MemorySnapshotStore:
    """``ports.SnapshotStore`` of one process over a disk that outlives it."""

    def __init__(self, disk: NodeDisk) -> None:
        self._disk = disk
        self._under_way: tuple[Snapshot, bytearray] | None = None
        self.fails: StorageError | None = None
        """Raised in place of writing anything."""
        self.damages = 0
        """How many stored parts will be damaged."""
        self.written = 0
        self.finished = 0

    def _check(self) -> None:
        if self.fails is not None:
            raise self.fails

    def newest(self) -> Snapshot | None:
        return self._disk.snapshots[-1][0] if self._disk.snapshots else None

    def _publish(self, snapshot: Snapshot, contents: bytes) -> None:
        newest = self.newest()
        assert newest is None or newest.last_index < snapshot.last_index, "an older one was published"
        self._disk.snapshots.append((snapshot, contents))
        del self._disk.snapshots[:-2]

    def write(self, label: Snapshot, chunks: Iterable[bytes]) -> Snapshot:
        self._check()
        contents = b"".join(chunks)
        snapshot = label._replace(size_bytes=len(contents), checksum=zlib.crc32(contents))
        self._publish(snapshot, contents)
        self.written += 1
        return snapshot

    def read(self, snapshot: Snapshot, offset: int, length: int) -> bytes:
        return self._find(snapshot)[offset : offset + length]

    def contents(self, snapshot: Snapshot) -> Iterator[bytes]:
        contents = self._find(snapshot)
        for start in range(0, len(contents), PIECE_BYTES):
            yield contents[start : start + PIECE_BYTES]

    def _find(self, snapshot: Snapshot) -> bytes:
        for known, contents in self._disk.snapshots:
            if known == snapshot:
                return contents
        raise NotFound(f"no snapshot of {snapshot.last_index}")

    def store_chunk(self, snapshot: Snapshot, offset: int, data: bytes) -> int:
        self._check()
        if not offset:
            self._under_way = (snapshot, bytearray())
        if self._under_way is None or self._under_way[0] != snapshot:
            return 0
        stored = self._under_way[1]
        if offset == len(stored):
            if self.damages and data:
                self.damages -= 1
                data = bytes((data[0] ^ 1,)) + data[1:]
            stored += data
        return len(stored)

    def finish(self, snapshot: Snapshot) -> bool:
        self._check()
        assert self._under_way is not None
        contents = bytes(self._under_way[1])
        self._under_way = None
        if (len(contents), zlib.crc32(contents)) != (snapshot.size_bytes, snapshot.checksum):
            return False
        self._publish(snapshot, contents)
        self.finished += 1
        return True


class SimRunner:
    """``BlockingRunner`` on virtual time: each piece of work takes ``delay_s``, and happens at its end."""

    def __init__(self, process: ProcessLoop, *, delay_s: float = 0.002) -> None:
        self._process = process
        self.delay_s = delay_s
        self._jobs: deque[tuple[Callable[[], Any], Completion]] = deque()
        self._busy = False

    def run(self, work: Callable[[], Any], done: Completion) -> None:
        self._jobs.append((work, done))
        self._go_on()

    def _go_on(self) -> None:
        if self._jobs and not self._busy:
            self._busy = True
            self._process.call_later(self.delay_s, self._do)

    def _do(self) -> None:
        self._busy = False
        work, done = self._jobs.popleft()
        result: Any = None
        raised: BaseException | None = None
        try:
            result = work()
        except BaseException as error:
            raised = error
        self._process.call_soon(done, result, raised)
        self._go_on()

    async def close(self) -> None:
        self._jobs.clear()
