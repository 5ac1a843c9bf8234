"""The state machine behind plain proposals of a node that was started from the command line.

It keeps nothing: the log itself is what the submitter wanted. An embedder puts his own machine here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ..core.entry import Entry
from ..core.errors import StorageCorrupt, StorageFormatUnknown

FORMAT_VERSION = 1
_STATE = struct.Struct(">BQ")
"""Version, how many entries."""


class PlainLog:
    """Counts the entries it is given (``ports.Machine``)."""

    def __init__(self) -> None:
        self.entries = 0

    def apply(self, entry: Entry) -> bytes:
        self.entries += 1
        return b""

    def state_digest(self) -> bytes:
        return _STATE.pack(FORMAT_VERSION, self.entries)

    def snapshot(self) -> Iterable[bytes]:
        return [_STATE.pack(FORMAT_VERSION, self.entries)]

    @staticmethod
    def prepare(chunks: Iterable[bytes]) -> int:
        """The count in a snapshot. Raises :class:`StorageCorrupt`, :class:`StorageFormatUnknown`."""
        state = b"".join(chunks)
        if state[:1] and state[0] != FORMAT_VERSION:
            raise StorageFormatUnknown(
                f"plain log of format {state[0]}; this version reads {FORMAT_VERSION}",
                next_step="install the version that wrote it",
            )
        if len(state) != _STATE.size:
            raise StorageCorrupt(f"plain log's snapshot of {len(state)} bytes, which has {_STATE.size}")
        return int(_STATE.unpack(state)[1])

    def adopt(self, prepared: int) -> None:
        self.entries = prepared

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.adopt(self.prepare(chunks))
