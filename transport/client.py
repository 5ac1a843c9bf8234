"""The client of a fencepost cluster: finds the leader and keeps one operation id over all tries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Any

from ..raft.core.errors import ConfigurationError, FencepostError
from ..raft.outbox.codec import Command, check_command, encode
from ..raft.ports import Answer, Clock, Randomness, Wait
from .address import Resolver, ThreadResolver
from .backoff import SystemRandomness
from .client_bulk import submit_window
from .client_calls import call_any, call_each, call_leader, call_one
from .client_engine import Engine
from .client_reroutes import Reroutes
from .client_search import SWEEP_S


class Client:
    """Submits commands and asks questions. One event loop, any number of tasks; one connection to
    the leader is shared by all of them.

    ``endpoints`` are client addresses (``host:port``), one or more, of any nodes. ``cluster_id``
    empty takes any cluster. Times are in seconds; every ``sweep_s`` the client looks for silence, and a
    node that owes answers and says nothing four times running is given up. ``unreachable_after_s``
    ends submissions with :class:`NoEndpoint` when no endpoint at all could be reached for so long; without
    it they wait for their timeout, as a cluster that restarts wants. Use it as an async context manager::

        async with Client(["127.0.0.1:7101", "127.0.0.1:7102"]) as client:
            answer = await client.submit(Command("op-1", "ledger", "credit", "", b"{}"))

    Every method ends within its timeout. Errors are those of :mod:`fencepost.raft.core.errors`, and
    each says whether the command may have been executed (concepts: The four answers).
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        cluster_id: str = "",
        connect_timeout_s: float = 2.0,
        timeout_s: float = 30.0,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        resolver: Resolver | None = None,
        sweep_s: float = SWEEP_S,
        unreachable_after_s: float | None = None,
    ) -> None:
        if isinstance(endpoints, str) or not endpoints:
            raise ConfigurationError("no endpoint given", next_step="--endpoints host:port[,host:port...]")
        self._timeout_s = timeout_s
        self._engine = Engine(
            endpoints,
            cluster_id=cluster_id,
            connect_timeout_s=connect_timeout_s,
            clock=clock,
            randomness=randomness if randomness is not None else SystemRandomness(),
            resolver=resolver if resolver is not None else ThreadResolver(),
            sweep_s=sweep_s,
            unreachable_after_s=unreachable_after_s,
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every request (OutcomeUnknown for those that were sent) and connection. Bounded."""
        await self._engine.close()

    @property
    def endpoints(self) -> list[str]:
        """The addresses that were given and those that were learned."""
        return [endpoint.address for endpoint in self._engine.endpoints]

    @property
    def reroutes(self) -> Reroutes:
        """How often answers came from another node than before, and how long that took."""
        return self._engine.reroutes

    async def submit(self, command: Command, *, wait: Wait = Wait.DONE, timeout_s: float | None = None) -> Answer:
        """Submit a command under its operation id and wait as long as ``wait`` says.

        The same id is used for every try on every node, so that it is executed once however often it
        is sent. An answer whose ``code`` is COMMAND_FAILED says that it was executed to a definite
        failure. Raises :class:`CommandInvalid` and :class:`OperationIdReused` (refused),
        :class:`NoEndpoint`, :class:`NoLeader`, :class:`Busy`, :class:`LeadershipLost` (certainly not
        executed) or :class:`OutcomeUnknown`.
        """
        return await self._start(command, wait, timeout_s)

    def _start(self, command: Command, wait: Wait, timeout_s: float | None) -> asyncio.Future[Answer]:
        check_command(command)
        return self._engine.start(
            wait=int(wait),
            data=encode(command),
            operation_id=command.operation_id,
            proposal=False,
            timeout_s=self._timeout_s if timeout_s is None else timeout_s,
        )

    def submit_many(
        self,
        commands: Iterable[Command] | AsyncIterable[Command],
        *,
        wait: Wait = Wait.DONE,
        window: int = 256,
        timeout_s: float | None = None,
    ) -> AsyncIterator[tuple[Command, Answer | FencepostError]]:
        """Submit many, ``window`` of them under way at a time, and yield each as it ends.

        A command that fails is yielded with its error and does not stop the others. Leaving the loop
        early gives up waiting for those under way; they may still be executed.
        """
        return submit_window(lambda command: self._start(command, wait, timeout_s), commands, window=window)

    async def propose(self, data: bytes, *, timeout_s: float | None = None) -> Answer:
        """Append ``data`` to the log as an entry of the embedder's own state machine.

        It has no id by which a second try would be recognised, so it is tried again only after a
        definite "not executed"; else :class:`OutcomeUnknown` comes at once (scenario S32).
        """
        return await self._engine.start(
            wait=int(Wait.DONE),
            data=data,
            operation_id="",
            proposal=True,
            timeout_s=self._timeout_s if timeout_s is None else timeout_s,
        )

    async def cancel(self, operation_id: str, *, note: str = "", timeout_s: float | None = None) -> dict[str, Any]:
        """Have a command not executed. ``definite`` in the answer says whether that is certain; else an attempt is
        under way or may have been, and it is cancelled only where that one turns out not to have been applied.

        Raises :class:`NotFound`, :class:`WrongState` (it has ended, or is in doubt), :class:`NoLeader` or
        :class:`NoEndpoint` (nothing was done), :class:`OutcomeUnknown`.
        """
        return await self._wish("cancel", {"id": operation_id, "note": note}, timeout_s)

    async def redrive(
        self, operation_id: str, *, note: str = "", not_applied: bool = False, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Have a dead letter tried again, under its id and at a new place in its lane. ``not_applied`` is your word
        that no earlier attempt took effect. Where its resource says that it was applied, ``did`` is ``resolved`` and
        its state ``succeeded``. Raises what :meth:`cancel` does."""
        parameters = {"id": operation_id, "note": note, "not_applied": not_applied}
        return await self._wish("redrive", parameters, timeout_s)

    async def resolve(
        self, operation_id: str, outcome: str, *, note: str, result: str = "", timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Say what became of a command in doubt: ``outcome`` is ``done`` or ``failed``, ``note`` who looked and
        where, ``result`` JSON of what is done. A dead letter can be ``done`` too. Raises what :meth:`cancel` does."""
        parameters = {"id": operation_id, "as": outcome, "note": note, "result": result}
        return await self._wish("resolve", parameters, timeout_s)

    async def discard(self, operation_id: str, *, note: str = "", timeout_s: float | None = None) -> dict[str, Any]:
        """Give a dead letter up for good. Raises what :meth:`cancel` does."""
        return await self._wish("discard", {"id": operation_id, "note": note}, timeout_s)

    async def _wish(self, what: str, parameters: dict[str, Any], timeout_s: float | None) -> dict[str, Any]:
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        asked = {**parameters, "timeout_s": limit_s}
        body = await self.call(f"command.{what}", asked, leader=True, timeout_s=limit_s, idempotent=what == "cancel")
        assert isinstance(body, dict)
        return body

    async def call(
        self,
        method: str,
        parameters: dict[str, Any],
        *,
        endpoint: str | None = None,
        leader: bool = False,
        timeout_s: float | None = None,
        idempotent: bool = True,
    ) -> Any:
        """Ask one node: ``endpoint`` if given, the leader if ``leader``, else the first that answers.

        Returns the body of its reply. Raises the node's own error, :class:`NoEndpoint`,
        :class:`NoLeader`, or, for a call that is not ``idempotent`` and may have been carried out,
        :class:`OutcomeUnknown`.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        engine = self._engine
        if endpoint is not None:
            return await call_one(engine, endpoint, method, parameters, limit_s, idempotent)
        if leader:
            return await call_leader(engine, method, parameters, limit_s, idempotent)
        return await call_any(engine, method, parameters, limit_s, idempotent)

    async def call_all(
        self, method: str, parameters: dict[str, Any], *, timeout_s: float | None = None
    ) -> dict[str, Any | FencepostError]:
        """Ask every endpoint that was given, side by side: its body or its error, by address."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        return await call_each(self._engine, method, parameters, limit_s)
