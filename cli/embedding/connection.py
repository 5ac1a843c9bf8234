"""A client's connection without a network: from the embedder to the service of his own node."""

from __future__ import annotations

import asyncio
from typing import Any

from ...raft.core.errors import FencepostError
from ...raft.node.service import ClientService
from ...raft.ports import Answer, ProposeRequest, SubmitRequest


class LocalConnection:
    """``raft.ports.Connection``. Every request is a future, which ends with an answer or an error."""

    def __init__(self, service: ClientService, loop: asyncio.AbstractEventLoop) -> None:
        self._service = service
        self._loop = loop
        self._last_id = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._ended: FencepostError | None = None
        self._proposals: list[ProposeRequest] = []
        self._submissions: list[SubmitRequest] = []
        self._flushing = False

    def propose(self, data: bytes) -> asyncio.Future[Answer]:
        request_id, future = self._begin()
        if self._ended is None:
            self._proposals.append(ProposeRequest(request_id, data))
            self._flush_soon()
        return future

    def submit(self, data: bytes, wait: int) -> asyncio.Future[Answer]:
        request_id, future = self._begin()
        if self._ended is None:
            self._submissions.append(SubmitRequest(request_id, wait, data))
            self._flush_soon()
        return future

    def call(self, method: str, parameters: dict[str, Any]) -> asyncio.Future[Any]:
        request_id, future = self._begin()
        if self._ended is None:
            self._service.call(self, request_id, method, parameters)
        return future

    def _flush_soon(self) -> None:
        """What is asked in one turn of the loop goes together, as in a frame, and is answered as one batch."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        proposals, self._proposals = self._proposals, []
        submissions, self._submissions = self._submissions, []
        if self._ended is None and proposals:
            self._service.propose(self, proposals)
        if self._ended is None and submissions:
            self._service.submit(self, submissions)

    def _begin(self) -> tuple[int, asyncio.Future[Any]]:
        self._last_id += 1
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._ended is not None:
            future.set_exception(self._ended)
        else:
            self._waiting[self._last_id] = future
        return self._last_id, future

    # -- raft.ports.Connection ----------------------------------------------------------------------

    def answer(self, answers: list[Answer]) -> None:
        for answer in answers:
            self._end(answer.request_id, answer, None)

    def reply(self, request_id: int, body: Any) -> None:
        self._end(request_id, body, None)

    def reply_error(self, request_id: int, error: FencepostError) -> None:
        self._end(request_id, None, error)

    def _end(self, request_id: int, value: Any, error: FencepostError | None) -> None:
        future = self._waiting.pop(request_id, None)
        if future is None or future.done():
            return  # Whoever asked has given up.
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def close(self, error: FencepostError) -> None:
        """End everything that waits, and whatever is asked from now on, with ``error``."""
        if self._ended is None:
            self._ended = error
            for request_id in list(self._waiting):
                self._end(request_id, None, error)
            self._service.closed(self)
