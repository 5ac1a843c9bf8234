"""Proposals and submissions of an embedder: to his own node while it leads, else through a client to whoever does.

One deadline and one operation id over all of it. What may have been executed stays unknown, whatever a later try
says of itself, unless that one was answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from ...raft.core.errors import (
    CommandInvalid,
    FencepostError,
    OperationIdExpired,
    OperationIdReused,
    Outcome,
    OutcomeUnknown,
    ResultLost,
    TransportError,
    all_errors,
)
from ...raft.core.events import Role
from ...raft.outbox.codec import PAYLOAD_BYTES_MAX, Command, check_command, encode
from ...raft.outbox.operation import OperationState
from ...raft.ports import Answer, AnswerStatus, Wait
from ...transport.client import Client
from ..compose import ComposedNode
from .codec import Codec
from .connection import LocalConnection
from .envelope import Status, decode_verdict
from .values import Applied

_LOG = structlog.get_logger("fencepost.embedding")

R = TypeVar("R")

PAUSE_S = 0.05
"""After a lost answer, before the same is asked again."""


class Submissions:
    """Of one node. Implements ``handle.Submitter``."""

    def __init__(
        self,
        composed: ComposedNode,
        connection: LocalConnection,
        loop: asyncio.AbstractEventLoop,
        *,
        timeout_s: float,
    ) -> None:
        self._raft = composed.loop.raft
        self._connection = connection
        self._loop = loop
        self._timeout_s = timeout_s
        self._tasks: set[asyncio.Task[Answer]] = set()
        self._ended: FencepostError | None = None
        # Its own address only: the node itself knows who leads, and its hint is followed.
        configuration = composed.configuration
        self._client = Client([configuration.node.client], cluster_id=configuration.cluster.id)

    async def end(self, error: FencepostError) -> None:
        """End everything that waits, and refuse what comes, with ``error``. What this node had taken must have been
        answered before."""
        if self._ended is not None:
            return
        self._ended = error
        await self._client.close()
        self._connection.close(error)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        for task in self._tasks:
            task.cancel()

    # -- handle.Submitter ---------------------------------------------------------------------------

    def send(self, command: Command) -> asyncio.Task[Answer]:
        if self._ended is not None:
            raise self._ended
        task = self._loop.create_task(self.submit(command, Wait.COMMITTED, None), name="fencepost-submit")
        self._tasks.add(task)
        task.add_done_callback(self._sent)
        return task

    def _sent(self, task: asyncio.Task[Answer]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Whoever holds the handle is told too, if anybody does.
            _LOG.info("submission ended without an answer", error=str(error))

    async def submit(self, command: Command, wait: Wait, timeout_s: float | None) -> Answer:
        data = encode(command)
        tries = _Tries(
            here=lambda: self._connection.submit(data, int(wait)),
            elsewhere=lambda left_s: self._client.submit(command, wait=wait, timeout_s=left_s),
            operation_id=command.operation_id,
            repeats=False,  # The client has an id to repeat it by, and does so itself until it is too late.
        )
        return await self._through(tries, timeout_s)

    async def propose(self, data: bytes, operation_id: str, timeout_s: float | None) -> Answer:
        """``operation_id`` stands in ``data`` as well; empty: a second try would not be recognised."""
        if len(data) > PAYLOAD_BYTES_MAX:
            raise CommandInvalid(f"a command of {len(data)} bytes; the limit is {PAYLOAD_BYTES_MAX} bytes")
        tries = _Tries(
            here=lambda: self._connection.propose(data),
            elsewhere=lambda left_s: self._client.propose(data, timeout_s=left_s),
            operation_id=operation_id,
            repeats=bool(operation_id),
        )
        return await self._through(tries, timeout_s)

    # -- one deadline over all tries ----------------------------------------------------------------

    async def _through(self, tries: _Tries, timeout_s: float | None) -> Answer:
        deadline = self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        unknown: OutcomeUnknown | None = None
        while True:
            if self._ended is not None:
                raise unknown or self._ended
            try:
                if self._raft.role is Role.LEADER:
                    answer = await self._here(tries, deadline)
                    if answer.status == AnswerStatus.DONE:
                        return answer
                    if answer.status == AnswerStatus.UNKNOWN:
                        unknown = tries.unknown(answer.detail or answer.code)
                        if not tries.operation_id or answer.state == OperationState.IN_DOUBT:
                            raise unknown
                return await tries.elsewhere(max(deadline - self._loop.time(), 0.001))
            except OutcomeUnknown as error:
                if not tries.repeats or self._loop.time() >= deadline:
                    raise
                unknown = error
            except FencepostError as error:
                if unknown is not None and (error.outcome is not Outcome.REFUSED or isinstance(error, TransportError)):
                    # It says nothing of the try before, and neither does whoever let nobody in.
                    raise unknown from error
                raise
            await asyncio.sleep(PAUSE_S)

    async def _here(self, tries: _Tries, deadline: float) -> Answer:
        """This node's answer, but a refusal. Raises what it refused it for, or :class:`OutcomeUnknown`."""
        try:
            async with asyncio.timeout_at(deadline):
                answer = await tries.here()
        except TimeoutError as error:
            raise tries.unknown("this node leads, and it was not decided in time") from error
        if answer.status == AnswerStatus.REFUSED:
            kind = all_errors().get(answer.code, FencepostError)
            raise kind(answer.detail or answer.code, outcome=Outcome.REFUSED)
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tries:
    here: Callable[[], asyncio.Future[Answer]]
    elsewhere: Callable[[float], Awaitable[Answer]]
    """Within so many seconds."""
    operation_id: str
    repeats: bool
    """Whether it may be tried again although it may have been executed."""

    def unknown(self, why: str) -> OutcomeUnknown:
        if self.operation_id:
            message, next_step = f"operation {self.operation_id} may have been executed", "again, under the same id"
        else:
            message, next_step = "the proposal may have been committed", "read the state before proposing it again"
        return OutcomeUnknown(f"{message}: {why}", next_step=next_step)


def check_id(operation_id: str | None) -> str:
    """Empty for None. Raises :class:`CommandInvalid` for what is no id."""
    if operation_id is None:
        return ""
    check_command(Command(operation_id, "-", "-", "", b""))
    return operation_id


def applied_of(answer: Answer, results: Codec[R]) -> Applied[R]:
    """What an answered proposal says. Raises the errors that :meth:`Node.propose` names."""
    verdict = decode_verdict(answer.result)
    where = f"at index {verdict.index}"
    if verdict.status == Status.REUSED:
        raise OperationIdReused(verdict.detail)
    if verdict.status == Status.EXPIRED:
        raise OperationIdExpired(verdict.detail)
    if verdict.status == Status.INVALID:
        raise CommandInvalid(verdict.detail)
    if verdict.status == Status.RESULT_LOST:
        raise ResultLost(f"applied {where}, but {verdict.detail}")
    try:
        result = results.decode(verdict.result)
    except Exception as error:  # A codec is the embedder's, and may raise anything.
        raise ResultLost(f"applied {where}, but its result cannot be read here: {error}") from error
    return Applied(result, verdict.index, verdict.term, verdict.replayed)
