"""One start of an embedded node: everything that is made when it is entered, and ended when it is left."""

from __future__ import annotations

import asyncio

from ...raft.core.errors import FencepostError, TransportError
from ..compose import ComposedNode
from ..config import NodeConfiguration
from ..parts import Parts
from .connection import LocalConnection
from .submitting import Submissions
from .watch import Watch


class Life:
    """Belongs to the loop that it was made on."""

    def __init__(self, configuration: NodeConfiguration, parts: Parts, *, timeout_s: float) -> None:
        """Opens the data directory and reads the log. Raises what :class:`ComposedNode` raises."""
        event_loop = asyncio.get_running_loop()
        self.composed = ComposedNode(configuration, parts=parts)
        self.watch = Watch(self.composed.loop, self.composed.directory.incarnation, event_loop)
        self.composed.loop.observe(self.watch)
        self.connection = LocalConnection(self.composed.service, event_loop)
        self.submissions = Submissions(self.composed, self.connection, event_loop, timeout_s=timeout_s)
        self._guard: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self) -> None:
        await self.composed.start()
        self._guard = asyncio.create_task(self._when_failed(), name="fencepost-embedding")

    async def _when_failed(self) -> None:
        failure = await asyncio.shield(self.composed.loop.failed)
        await self.submissions.end(as_error(failure))

    async def close(self, *, hand_over: bool) -> None:
        """Once; bounded. Whoever is cancelled meanwhile leaves nothing open."""
        if self._closed:
            return
        self._closed = True
        try:
            if hand_over and not self.composed.loop.stopped:
                await self.composed.drain()
        finally:
            # First: it answers whoever waits, and knows best what became of him.
            self.composed.loop.stop()
            await self.submissions.end(TransportError("the node was closed"))
            if self._guard is not None:
                self._guard.cancel()
            await self.composed.close()

    @property
    def failure(self) -> FencepostError | None:
        """What the node failed by, if it did."""
        failed = self.composed.loop.failed
        return as_error(failed.result()) if failed.done() else None

    def check(self) -> None:
        """Raise what the node failed by, or that it was closed."""
        if self.failure is not None:
            raise self.failure
        if self._closed or self.composed.loop.stopped:
            raise TransportError("the node was closed", next_step="make another one over the same folder")


def as_error(failure: BaseException) -> FencepostError:
    """What the node failed by, for whoever asks it for something."""
    if isinstance(failure, FencepostError):
        return failure
    error = FencepostError(f"the node has failed: {type(failure).__name__}: {failure}")
    error.__cause__ = failure
    return error
