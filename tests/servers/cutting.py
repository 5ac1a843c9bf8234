"""A way to a server that can be cut at a chosen moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Way:
    """Passes everything on in both directions until a request holds ``word``; then both ends are hung up, with the
    request passed on before that (``delivered``) or not. Once."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.port = 0
        self.word = b""
        self.delivered = True
        self.cuts = 0
        self._accepting: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    def cut_at(self, word: bytes, *, delivered: bool) -> None:
        self.word, self.delivered = word, delivered

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._accepting.append(asyncio.current_task())  # type: ignore[arg-type]
        there, onward = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += (writer, onward)
        answers = asyncio.create_task(self._pass(there, writer))
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if self.word and self.word in data:
                    self.word = b""
                    self.cuts += 1
                    answers.cancel()
                    await asyncio.wait((answers,))
                    if self.delivered:
                        onward.write(data)
                        await onward.drain()
                        await there.read(1)  # The server has answered, and nobody hears it.
                    break
                onward.write(data)
                await onward.drain()
        answers.cancel()
        await asyncio.wait((answers,))
        for each in (writer, onward):
            each.transport.abort()

    async def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        if self._accepting:
            await asyncio.wait(self._accepting)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
            writer.transport.abort()


@asynccontextmanager
async def way_to(port: int) -> AsyncIterator[Way]:
    way = Way(port)
    server = await asyncio.start_server(way.accept, "127.0.0.1", 0)
    way.port = server.sockets[0].getsockname()[1]
    try:
        yield way
    finally:
        server.close()
        await way.close()
