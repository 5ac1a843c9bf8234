"""A connection that carries bytes: the real frames, damaged on their way, and the real decoder.

What was damaged must be refused, by the checksum or before; then the connection is of no use. What
comes out before that is what was sent, or the run fails: no damage may ever make another message.
"""

from __future__ import annotations

from collections import deque
from random import Random

from ...raft.core.errors import FrameInvalid
from ...raft.core.messages import Message
from ...transport.codec import decode_body, encode_message
from ...transport.framing import BODY_BYTES_MAX, FrameDecoder
from .violation import Violation


def round_trip(message: Message) -> Message:
    """The message as the other end reads it. Raises :class:`Violation` if that is another one."""
    decoder = FrameDecoder(BODY_BYTES_MAX)
    frames = decoder.feed(encode_message(message))
    if decoder.failure is not None or len(frames) != 1 or decoder.held_bytes:
        raise Violation(f"{message} is not read as one frame: {frames}, {decoder.failure}")
    read: Message = decode_body(frames[0].type, frames[0].body)
    if read != message:
        raise Violation(f"{message} is read as {read}")
    return read


def damaged(frame: bytes, chance: Random) -> bytes:
    """The frame with a bit flipped, a few bytes changed, or some of it missing."""
    content = bytearray(frame)
    place = chance.randrange(len(content))
    kind = chance.randrange(4)
    if kind == 0:
        content[place] ^= 1 << chance.randrange(8)
    elif kind == 1:
        for at in range(place, min(place + chance.randint(1, 4), len(content))):
            content[at] ^= chance.randint(1, 255)
    elif kind == 2:
        del content[place:]
    else:
        del content[place : place + chance.randint(1, 8)]
    return bytes(content)


class ByteStream:
    """The receiving end of such a connection."""

    def __init__(self) -> None:
        self._decoder = FrameDecoder(BODY_BYTES_MAX)
        self._sent: deque[Message] = deque()
        """Intact messages that have not come out yet, in order."""

    def feed(self, data: bytes, message: Message | None) -> list[Message]:
        """Bytes arrive: those of ``message``, or damaged ones (None). What comes out of them.

        Raises :class:`FrameInvalid` when the stream is refused.
        """
        if message is not None:
            self._sent.append(message)
        read = []
        for frame in self._decoder.feed(data):
            try:
                found: Message = decode_body(frame.type, frame.body)
            except FrameInvalid as error:
                raise Violation(f"a frame passed its checksum and cannot be read: {error}") from error
            if not self._sent or found != self._sent[0]:
                raise Violation(f"damage made a message: {found} where {list(self._sent)[:2]} was sent")
            self._sent.popleft()
            read.append(found)
        if self._decoder.failure is not None:
            raise self._decoder.failure
        return read
