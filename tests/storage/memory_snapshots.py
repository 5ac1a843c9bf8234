"""``SnapshotStore`` in memory, for tests of what uses one. It passes the port's conformance suite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import google_crc32c

from fencepost.raft.core.entry import Snapshot
from fencepost.raft.core.errors import NotFound, StorageCorrupt

KEPT = 2
CHUNK_BYTES = 1 << 16


class MemorySnapshotStore:
    """Keeps the two newest. ``published`` is what a crash leaves: the contents by label."""

    def __init__(self, published: Mapping[Snapshot, bytes] = MappingProxyType({})) -> None:
        self.published = dict(published)
        self._receiving: tuple[Snapshot, bytearray] | None = None

    def newest(self) -> Snapshot | None:
        return max(self.published, default=None, key=lambda label: label.last_index)

    def write(self, label: Snapshot, chunks: Iterable[bytes]) -> Snapshot:
        contents = b"".join(chunks)
        made = label._replace(size_bytes=len(contents), checksum=google_crc32c.value(contents))
        self._publish(made, contents)
        return made

    def read(self, snapshot: Snapshot, offset: int, length: int) -> bytes:
        contents = self._find(snapshot)
        if offset == 0:
            self._verify(snapshot, contents)
        return contents[offset : offset + length]

    def contents(self, snapshot: Snapshot) -> Iterator[bytes]:
        contents = self._find(snapshot)

        def chunks() -> Iterator[bytes]:
            starts = range(0, len(contents), CHUNK_BYTES)
            for start in starts[:-1]:
                yield contents[start : start + CHUNK_BYTES]
            self._verify(snapshot, contents)
            for start in starts[-1:]:
                yield contents[start:]

        return chunks()

    def store_chunk(self, snapshot: Snapshot, offset: int, data: bytes) -> int:
        if offset == 0:
            self._receiving = snapshot, bytearray()
        if self._receiving is None or self._receiving[0] != snapshot:
            return 0
        stored = self._receiving[1]
        if offset == len(stored) and offset + len(data) <= snapshot.size_bytes:
            stored += data
        return len(stored)

    def finish(self, snapshot: Snapshot) -> bool:
        if self._receiving is None or self._receiving[0] != snapshot:
            return False
        contents = bytes(self._receiving[1])
        self._receiving = None
        if (len(contents), google_crc32c.value(contents)) != (snapshot.size_bytes, snapshot.checksum):
            return False
        self._publish(snapshot, contents)
        return True

    def _publish(self, snapshot: Snapshot, contents: bytes) -> None:
        place = snapshot.last_index, snapshot.last_term
        kept = {label: old for label, old in self.published.items() if (label.last_index, label.last_term) != place}
        kept[snapshot] = contents
        newest = sorted(kept, key=lambda label: label.last_index)[-KEPT:]
        self.published = {label: old for label, old in kept.items() if label in newest or label == snapshot}

    def _find(self, snapshot: Snapshot) -> bytes:
        if snapshot not in self.published:
            raise NotFound(f"the snapshot of index {snapshot.last_index} is not kept any more")
        return self.published[snapshot]

    def _verify(self, snapshot: Snapshot, contents: bytes) -> None:
        if google_crc32c.value(contents) != snapshot.checksum:
            raise StorageCorrupt(f"the snapshot of index {snapshot.last_index} is damaged")
