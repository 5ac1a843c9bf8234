"""One framed connection on an event loop: what peers, listener and client have in common.

An :class:`asyncio.Protocol`, not a stream: reading costs no task, writing no future, and a frame no
log line. Subclasses say what a frame means; here are the cutting into frames, the gathering of
writes, and the counting of silence.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from ..raft.core.errors import FrameInvalid
from .codec import FrameType, decode_body, encode_ping, encode_pong
from .framing import BODY_BYTES_MAX, FrameDecoder

_PING = int(FrameType.PING)
_PONG = int(FrameType.PONG)

GATHERED_BYTES_MAX = 1024 * 1024
STUCK_FRAME_SWEEPS = 120
"""A frame that stays unfinished for so many sweeps ends the connection: a byte a second is no peer."""


class FramedConnection(asyncio.Protocol):
    """Frames in, frames out. All methods run on the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._corked = False
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._pong_owed: int | None = None
        self.full = False
        """More than the write limit waits to be taken by the operating system."""
        self.closed = False
        """No more is sent or received; ``connection_lost`` has come or will."""
        self.over: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection is gone and ``ended`` has run."""
        self.why = ""
        """Why it closed, as far as this end knows."""
        self.heard = True
        """Bytes have come since the last sweep."""
        self.silent_sweeps = 0
        self._stuck_sweeps = 0
        self._stuck_at = 0

    # -- what subclasses say ------------------------------------------------------------------------

    def opened(self) -> None:
        """The connection stands; nothing has been sent or received."""

    def received(self, frame_type: int, body: Any) -> None:
        """A frame whose body has its type. Raise :class:`FrameInvalid` if it has no place here."""
        raise NotImplementedError

    def ended(self) -> None:
        """The connection is gone, for the reason in ``why``. Called once, and only after ``opened``."""

    def ponged(self, number: int) -> None:
        """The other end has read all that was sent before the ping of this number (0: of none)."""

    def overflowed(self) -> None:
        """The other end does not read: more than the write limit is waiting for it."""

    def drained(self) -> None:
        """What was waiting has gone out, after ``overflowed``."""

    # -- asyncio's side -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked by isinstance: uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        self.opened()

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.heard = True
        decoder = self._decoder
        for frame_type, body in decoder.feed(data):
            try:
                value = decode_body(frame_type, body)
            except FrameInvalid as error:
                self.invalid(error)
                return
            if frame_type == _PING:
                self._pong(value.number)
            elif frame_type == _PONG:
                self.ponged(value.number)
            else:
                try:
                    self.received(frame_type, value)
                except FrameInvalid as error:
                    self.invalid(error)
            if transport.is_closing():
                return  # What followed in the same read is not wanted any more.
        if decoder.failure is not None:
            self.invalid(decoder.failure)

    def eof_received(self) -> bool | None:
        return None

    def pause_writing(self) -> None:
        self.full = True
        self.overflowed()

    def resume_writing(self) -> None:
        self.full = False
        if self._pong_owed is not None:
            number, self._pong_owed = self._pong_owed, None
            self.write(encode_pong(number))
        self.drained()

    def _pong(self, number: int) -> None:
        if self.full:
            # Whoever pings and does not read gets one answer when he does, not a heap of them.
            self._pong_owed = number
        else:
            self.write(encode_pong(number))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.why:
            self.why = str(exc) if exc is not None else "closed by the other end"
        self.closed = True
        self._gathered.clear()
        self._gathered_bytes = 0
        try:
            self.ended()
        finally:
            if not self.over.done():
                self.over.set_result(None)

    # -- what subclasses use ------------------------------------------------------------------------

    def shaken_hands(self, limit: int = BODY_BYTES_MAX) -> None:
        """The handshake is done: frames may be as large as ``limit`` from now on."""
        self._decoder.limit = limit

    def write(self, frame: bytes) -> None:
        """Send a frame. The first of a loop turn leaves at once, what follows in the same turn leaves
        together at its end: one frame pays no delay, many pay for one system call."""
        if self.closed or self._transport is None:
            return
        if self._corked:
            self._gathered.append(frame)
            self._gathered_bytes += len(frame)
            if self._gathered_bytes > GATHERED_BYTES_MAX:
                self._uncork()  # Hand it on, so that the write limit sees it within the turn.
            return
        self._corked = True
        self._loop.call_soon(self._uncork)
        self._transport.write(frame)

    def _uncork(self) -> None:
        self._corked = False
        gathered = self._gathered
        if not gathered or self.closed or self._transport is None:
            return
        self._gathered = []
        self._gathered_bytes = 0
        self._transport.write(gathered[0] if len(gathered) == 1 else b"".join(gathered))

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were written here but not yet taken by the operating system."""
        if self._transport is None or self.closed:
            return 0
        return self._transport.get_write_buffer_size() + self._gathered_bytes

    def limit_writes(self, high_bytes: int) -> None:
        """Call ``overflowed`` when more than this waits to be taken by the operating system."""
        assert self._transport is not None
        self._transport.set_write_buffer_limits(high=high_bytes, low=high_bytes // 4)

    def invalid(self, error: FrameInvalid) -> None:
        """The other end sent what no end of ours sends."""
        self.abort(error.message)

    def finish(self, why: str) -> None:
        """Close after what was written has gone out; a later sweep aborts it if it does not."""
        if not self.closed and self._transport is not None:
            self._uncork()
            self.why = self.why or why
            self.closed = True
            self._transport.close()

    def abort(self, why: str) -> None:
        """Close now and forget what was waiting."""
        if self._transport is None:
            self.closed = True
            return
        self.why = self.why or why
        self.closed = True
        self._gathered.clear()
        self._gathered_bytes = 0
        self._transport.abort()

    # -- silence ------------------------------------------------------------------------------------

    def sweep(self) -> int:
        """Count one interval. Returns for how many intervals in a row nothing was heard.

        Intervals are counted, not clocked: a process that was stopped for a minute wakes to one
        silent interval, not to a minute's silence of healthy links.
        """
        if self.closed:
            # A closing connection had its interval to flush.
            if self._transport is not None:
                self._transport.abort()
            return self.silent_sweeps
        self.silent_sweeps = 0 if self.heard else self.silent_sweeps + 1
        self.heard = False
        decoder = self._decoder
        if not decoder.held_bytes or decoder.frames != self._stuck_at:
            self._stuck_sweeps = 0
            self._stuck_at = decoder.frames
        else:
            self._stuck_sweeps += 1
            if self._stuck_sweeps > STUCK_FRAME_SWEEPS:
                self.abort("a frame was begun and not finished")
        return self.silent_sweeps

    @property
    def in_mid_frame(self) -> bool:
        return self._decoder.held_bytes > 0

    def ping(self, number: int) -> None:
        self.write(encode_ping(number))

    def still_arriving(self) -> None:
        """Say that bytes are coming in although no frame is whole: a long frame on a slow link would
        otherwise look like silence to the end that sends it."""
        self.write(encode_pong(0))

    def remote_address(self) -> str:
        if self._transport is None:
            return "?"
        name = self._transport.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) and len(name) >= 2 else str(name or "?")
