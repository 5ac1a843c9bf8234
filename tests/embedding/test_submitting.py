"""What is said of a proposal whose first try may have been executed, and whose second never got to anybody."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.cli.embedding.submitting import Submissions
from fencepost.raft.core.errors import ClusterMismatch, FencepostError, OperationIdReused, OutcomeUnknown
from fencepost.raft.core.events import Role
from fencepost.raft.ports import Answer, AnswerStatus


class LeaderThatIsReplaced:
    """The node's own connection: it takes what it is given, leads no more, and cannot say what became of it."""

    def __init__(self, raft: Any) -> None:
        self._raft = raft

    def propose(self, data: bytes) -> asyncio.Future[Answer]:
        self._raft.role = Role.FOLLOWER
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        future.set_result(Answer(1, int(AnswerStatus.UNKNOWN), 0, 0, False, "", b"", "LEADERSHIP_LOST", ""))
        return future

    def close(self, error: FencepostError) -> None: ...


class OthersThatRefuse:
    """The client to whoever leads."""

    def __init__(self, error: FencepostError) -> None:
        self._error = error

    async def propose(self, data: bytes, *, timeout_s: float) -> Answer:
        raise self._error

    async def close(self) -> None: ...


async def proposed(second: FencepostError) -> Answer:
    raft = SimpleNamespace(role=Role.LEADER)
    settings = SimpleNamespace(node=SimpleNamespace(client="127.0.0.1:1"), cluster=SimpleNamespace(id="c1"))
    composed: Any = SimpleNamespace(loop=SimpleNamespace(raft=raft), configuration=settings)
    connection: Any = LeaderThatIsReplaced(raft)
    submissions = Submissions(composed, connection, asyncio.get_running_loop(), timeout_s=5.0)
    others: Any = OthersThatRefuse(second)
    submissions._client = others
    try:
        return await submissions.propose(b"x", "op-1", None)
    finally:
        await submissions.end(second)


def test_s44_who_refuses_a_connection_says_nothing_of_what_was_tried_before() -> None:
    with pytest.raises(OutcomeUnknown, match="op-1 may have been executed"):
        asyncio.run(proposed(ClusterMismatch("another cluster is behind that address")))


def test_what_is_said_of_the_operation_itself_is_its_end() -> None:
    with pytest.raises(OperationIdReused):
        asyncio.run(proposed(OperationIdReused("belongs to another command")))
