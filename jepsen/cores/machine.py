"""A state machine whose state tells every entry that made it, in order."""

from __future__ import annotations

import zlib

from ...raft.core.entry import Entry


def next_digest(digest: int, entry: Entry) -> int:
    """The state after ``entry``; CRC-32, so that runs do not depend on the process."""
    return zlib.crc32(b"%d %d %d %d " % entry[:4] + entry.data, digest)


class Machine:
    """``contents`` of different states differ in length, so that snapshots have one part or several."""

    def __init__(self) -> None:
        self.last_index = 0
        self.digest = 0

    def apply(self, entry: Entry) -> None:
        if entry.index != self.last_index + 1:
            raise AssertionError(f"entry {entry.index} applied to the state of {self.last_index}")
        self.digest = next_digest(self.digest, entry)
        self.last_index = entry.index

    def contents(self) -> bytes:
        return b"%d %d " % (self.last_index, self.digest) + b"." * (self.digest % 60)

    def restore(self, contents: bytes) -> None:
        last_index, digest, _ = contents.split(b" ")
        self.last_index, self.digest = int(last_index), int(digest)
