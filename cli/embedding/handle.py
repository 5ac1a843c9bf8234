"""A command on its way, as its submitter holds it."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, Protocol, TypeVar

from ...raft.core.errors import CommandFailed, OutcomeUnknown, ResultLost
from ...raft.outbox.codec import Command
from ...raft.ports import Answer, Wait
from .effects import Effect
from .values import Committed

R = TypeVar("R")


class Submitter(Protocol):
    """The node that an outbox belongs to."""

    def send(self, command: Command) -> asyncio.Task[Answer]:
        """Submit it until it is committed, in a task of the node's. Raises what the node raises that has ended."""

    async def submit(self, command: Command, wait: Wait, timeout_s: float | None) -> Answer: ...


class Handle(Generic[R]):
    """One command. Forgetting it does not call the command back."""

    def __init__(self, submitter: Submitter, command: Command, effect: Effect[Any, R]) -> None:
        self._submitter = submitter
        self._command = command
        self._effect = effect
        self._sending = submitter.send(command)

    @property
    def operation_id(self) -> str:
        """What to submit again under, after a lost answer or a crash; the key that the other side sees."""
        return self._command.operation_id

    def __repr__(self) -> str:
        return f"<Handle {self.operation_id} of {self._effect!r}>"

    async def committed(self) -> Committed:
        """Wait until it is in the log for good and will be carried out. Giving up waiting does not stop it.

        Raises :class:`OperationIdReused`; :class:`NoLeader`, :class:`Busy` and the like (certainly not committed);
        :class:`OutcomeUnknown`.
        """
        await asyncio.wait([self._sending])
        if self._sending.cancelled():
            raise OutcomeUnknown(f"operation {self.operation_id} may have been committed: the node was closed")
        answer = self._sending.result()
        return Committed(answer.index, answer.term, answer.replayed)

    async def result(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - covers tries on several nodes
        """Wait until it was carried out, and return what the effect gave back: the first result of its id.

        Raises :class:`CommandFailed` (FAILED or DEAD), :class:`OutcomeUnknown` (not known within ``timeout`` seconds,
        or in doubt), :class:`ResultLost`, and what :meth:`committed` raises.
        """
        await self.committed()
        answer = await self._submitter.submit(self._command, Wait.DONE, timeout)
        if answer.code:
            raise CommandFailed(
                f"operation {self.operation_id} is {answer.state}: {answer.detail}",
                next_step=f"fencepost command show {self.operation_id} --history",
            )
        try:
            return self._effect.decode_result(answer.result)
        except ValueError as error:
            raise ResultLost(
                f"operation {self.operation_id} {answer.state}, but what it gave back does not fit: {error}"
            ) from error
