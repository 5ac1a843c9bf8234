"""Frames on a byte stream, without I/O: bytes in, whole frames out.

A frame is a header of 16 bytes and a body::

    offset  0   magic      2 bytes   "FP"
            2   version    1 byte    1
            3   type       1 byte    a FrameType (codec.py)
            4   group      4 bytes   0: one log per cluster for now
            8   length     4 bytes   of the body
           12   checksum   4 bytes   crc32c of header bytes 0..11 and the body
           16   body

All numbers are big-endian. The checksum covers the header too, so that a damaged type or length
never yields a different frame. Magic and version stand first and are judged as soon as they arrive:
an HTTP request or a TLS hello is refused at its first byte, and a length is checked against the
limit before anything is reserved for it (scenario S37).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

import google_crc32c

from ..raft.core.errors import FrameInvalid

FRAME_VERSION = 1
HANDSHAKE_BODY_BYTES_MAX = 16 * 1024
"""The largest body before the handshake is done: a stranger gets no more memory than this."""
BODY_BYTES_MAX = 64 * 1024 * 1024
"""The largest body between ends that know each other."""

HEADER_BYTES = 16
_MAGIC = b"FP"
_START = _MAGIC + bytes((FRAME_VERSION,))
_HEADER = Struct(">2sBBIII")
_CHECKED = Struct(">2sBBII")
_CHECKED_BYTES = 12
_CHECKSUM = Struct(">I")

# The C function itself: the package's own wrapper module re-exports it untyped.
_crc_of = google_crc32c.value
_crc_extend = google_crc32c.extend


class Frame(NamedTuple):
    type: int
    body: bytes


def encode_frame(frame_type: int, body: bytes) -> bytes:
    """The bytes of one frame of group 0."""
    head = _CHECKED.pack(_MAGIC, FRAME_VERSION, frame_type, 0, len(body))
    return head + _CHECKSUM.pack(_crc_extend(_crc_of(head), body)) + body


class FrameDecoder:
    """Cuts a byte stream into frames, however the stream was split.

    ``limit`` bounds a body, in bytes; raise it when the handshake is done. What is held never exceeds
    the limit, a header and one read. After the first invalid byte ``failure`` is set and stays: a
    stream that lost its frame boundaries has no way back to them.
    """

    __slots__ = ("_held", "_needed", "failure", "frames", "limit")

    def __init__(self, limit: int = HANDSHAKE_BODY_BYTES_MAX) -> None:
        self.limit = limit
        self.failure: FrameInvalid | None = None
        self.frames = 0
        """How many frames have been completed: tells a slow frame from a stuck one."""
        self._held = bytearray()
        self._needed = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of an unfinished frame."""
        return len(self._held)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that ``data`` completes, in order. Look at ``failure`` after them.

        Frames before an invalid one are returned all the same, so that the result does not depend on
        where the stream was cut. Raises :class:`FrameInvalid` when fed again after a failure.
        """
        if self.failure is not None:
            raise self.failure
        held = self._held
        if held:
            held += data
            # A large frame arrives in many reads: nothing is copied until it is whole.
            if len(held) < self._needed:
                return []
            data = bytes(held)
            held.clear()
        frames: list[Frame] = []
        used = 0
        try:
            while (frame := self._cut(data, used)) is not None:
                frames.append(frame)
                used += HEADER_BYTES + len(frame.body)
        except FrameInvalid as error:
            self.failure = error
            self.frames += len(frames)
            return frames
        if used < len(data):
            held += data[used:] if used else data
        self.frames += len(frames)
        return frames

    def _cut(self, data: bytes, start: int) -> Frame | None:
        """The frame at ``start``, or None when more bytes are needed (``_needed`` from ``start`` on)."""
        available = len(data) - start
        if available < HEADER_BYTES:
            self._needed = HEADER_BYTES if available >= len(_START) else available + 1
            if available:
                _check_start(data[start : start + len(_START)])
            return None
        magic, version, frame_type, group, length, checksum = _HEADER.unpack_from(data, start)
        if magic != _MAGIC or version != FRAME_VERSION:
            _check_start(data[start : start + len(_START)])
        if group:
            raise FrameInvalid(f"frame of group {group}; this version knows only group 0")
        if length > self.limit:
            raise FrameInvalid(f"frame of {length} bytes; the limit here is {self.limit} bytes")
        end = start + HEADER_BYTES + length
        if len(data) < end:
            self._needed = HEADER_BYTES + length
            return None
        body = data[start + HEADER_BYTES : end]
        if _crc_extend(_crc_of(data[start : start + _CHECKED_BYTES]), body) != checksum:
            raise FrameInvalid(f"frame of type {frame_type} and {length} bytes with a wrong checksum")
        return Frame(frame_type, body)


def _check_start(start: bytes) -> None:
    if _START.startswith(start):
        return
    if start[:2] == _MAGIC:
        raise FrameInvalid(
            f"frame format version {start[2]}; this version reads {FRAME_VERSION}",
            next_step="upgrade the older of the two ends",
        )
    raise FrameInvalid(
        f"not a frame of fencepost: it starts with {start!r}{_guess(start)}",
        next_step="check which port of which program the address names",
    )


def _guess(start: bytes) -> str:
    """What the stranger probably speaks, for the one who reads the log line."""
    if start[:1] == b"\x16":
        return " (looks like a TLS hello)"
    if any(method.startswith(start) for method in (b"GET", b"POST", b"PUT", b"HEAD", b"PRI", b"OPTIONS", b"DELETE")):
        return " (looks like HTTP)"
    return ""
