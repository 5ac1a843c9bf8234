"""A node of a cluster inside a program of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar, overload

from ...raft.core.entry import Entry, EntryKind
from ...raft.core.errors import ConfigurationError, NoLeader, NotFound, NotLeader, TransportError
from ...raft.core.events import Role
from ...raft.effects.activation import ActivationState
from ...raft.node.reads import Consistency
from ..config import NodeConfiguration
from ..parts import Parts
from .codec import Codec, checked, codecs_of
from .envelope import Envelope, Retention, decode_envelope, encode_envelope
from .life import Life
from .machine import EmbeddedMachine, StateMachine
from .outbox import Outbox
from .settings import NodeSettings, configuration_of
from .submitting import applied_of, check_id
from .values import Applied, Leadership, LogEntry, NodeStatus

C = TypeVar("C")
R = TypeVar("R")
T = TypeVar("T")

TIMEOUT_S = 30.0
"""How long a proposal, a submission or a read may take that names no other time."""
PAGE_ENTRIES = 1000
REMEMBER = Retention()
READ_PAUSE_S = 0.05
"""Before a read that nobody confirmed is asked again, unless who leads changes sooner."""


class Node(Generic[C, R]):
    """A node of a cluster in this program: an async context manager, which runs on the loop that it is entered on.

    ``settings`` are :class:`NodeSettings` or the path of a configuration file, whose resources are served then as
    well. ``machine`` is the embedder's :class:`StateMachine`, new and empty; ``commands`` and ``results`` make bytes
    of what it takes and gives (by itself msgpack, of the types that its ``apply`` is annotated with). Opening the log
    holds the loop for as long as it takes. A node is entered once.

    A node that fails (its disk, its state machine) stops acting, ends everything that waits, and raises its error
    from :meth:`stopped`, from whatever is asked of it later, and from ``async with`` at the end.
    """

    @overload
    def __init__(
        self: Node[Any, Any],
        settings: NodeSettings | Path | str,
        machine: None = None,
        *,
        outbox: Outbox | None = None,
        lease_reads: bool = False,
    ) -> None: ...

    @overload
    def __init__(
        self,
        settings: NodeSettings | Path | str,
        machine: StateMachine[C, R],
        *,
        outbox: Outbox | None = None,
        commands: Codec[C] | None = None,
        results: Codec[R] | None = None,
        retention: Retention = ...,
        lease_reads: bool = False,
    ) -> None: ...

    def __init__(
        self,
        settings: NodeSettings | Path | str,
        machine: StateMachine[C, R] | None = None,
        *,
        outbox: Outbox | None = None,
        commands: Codec[C] | None = None,
        results: Codec[R] | None = None,
        retention: Retention = REMEMBER,
        lease_reads: bool = False,
    ) -> None:
        """``lease_reads`` lets ``consistency="lease"`` be answered without asking a quorum, on the same terms on every
        node (concepts: Reading). Raises :class:`ConfigurationError`."""
        if min(retention) < 1:
            raise ConfigurationError(f"a retention of {tuple(retention)} remembers nothing")
        self._configuration = configuration_of(settings)
        self._retention = retention
        self._lease_reads = lease_reads
        self._outbox = outbox
        self._machine: EmbeddedMachine[C, R] | None = None
        if machine is not None:
            own_commands, own_results = (None, None) if commands and results else codecs_of(machine)
            self._commands: Codec[C] = commands or own_commands  # type: ignore[assignment]  # One of the two is there.
            self._results: Codec[R] = results or own_results  # type: ignore[assignment]  # Likewise.
            self._machine = EmbeddedMachine(machine, self._commands, self._results)
        self._life: Life | None = None

    # -- life ---------------------------------------------------------------------------------------

    async def __aenter__(self) -> Node[C, R]:
        """Open the log and begin to take part. Raises :class:`ConfigurationError`, :class:`StorageError`."""
        if self._life is not None:
            raise ConfigurationError("a node is entered once", next_step="make another one over the same folder")
        outbox = self._outbox
        parts = Parts(machine=self._machine, lease_reads=self._lease_reads)
        if outbox is not None:
            parts = _with_outbox(parts, outbox, self._configuration)
        life = self._life = Life(self._configuration, parts, timeout_s=TIMEOUT_S)
        try:
            if outbox is not None:
                outbox.bind(life.submissions)
            await life.start()
        except BaseException:
            await self.close(hand_over=False)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        failure = self._begun.failure
        if error is None and failure is not None:
            raise failure

    async def close(self, *, hand_over: bool = True) -> None:
        """End what ``async with`` would end. Idempotent and bounded (some seconds).

        ``hand_over``: finish effects under way and give leadership away first, else the others find out by their
        election timeout. What still waits hears that its outcome is unknown, or that it was not begun.
        """
        life = self._life
        if life is not None:
            try:
                await life.close(hand_over=hand_over)
            finally:
                if self._outbox is not None:
                    self._outbox.release(life.submissions)

    async def stopped(self) -> None:
        """Wait until the node has stopped: returns after :meth:`close`, raises the error that it failed by."""
        life = self._begun
        while not life.watch.ended:
            await life.watch.leadership_changed()
        if life.failure is not None:
            raise life.failure

    @property
    def _begun(self) -> Life:
        if self._life is None:
            raise ConfigurationError("the node was not started", next_step="async with Node(...) as node")
        return self._life

    @property
    def _alive(self) -> Life:
        life = self._begun
        life.check()
        return life

    # -- commands -----------------------------------------------------------------------------------

    async def propose(
        self,
        command: C,
        *,
        id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - covers tries on several nodes
    ) -> Applied[R]:
        """Have ``command`` committed and applied, on whichever node this is; ``timeout`` in seconds, by itself 30.

        With ``id`` it is applied once, however often it is proposed, on whatever nodes, across changes of leader and
        restarts, for as long as ids are remembered (:class:`Retention`): again it gives the first result. Without,
        a lost answer leaves open whether it was applied.

        Raises :class:`CommandInvalid`, :class:`OperationIdReused`, :class:`OperationIdExpired` (refused);
        :class:`NoLeader`, :class:`Busy`, :class:`LeadershipLost` (certainly not applied); :class:`OutcomeUnknown`;
        :class:`ResultLost`; and the error that the node failed by.
        """
        life = self._alive
        if self._machine is None:
            raise ConfigurationError("this node has no state machine", next_step="Node(settings, machine)")
        operation_id = check_id(id)
        data = checked(self._commands, command, "command")
        envelope = Envelope(operation_id, self._retention if operation_id else None, data)
        answer = await life.submissions.propose(encode_envelope(envelope), operation_id, timeout)
        return applied_of(answer, self._results)

    async def read(
        self,
        query: Callable[[], T],
        *,
        consistency: str = "linearizable",
        timeout: float | None = None,  # noqa: ASYNC109 - as of propose
    ) -> T:
        """What ``query()`` returns, called on the node's loop once the state here is as ``consistency`` wants it.

        ``linearizable``: it holds everything that was committed before this was called, on any node. ``lease``: the
        same from the leader's lease where the node allows it. ``stale``: as it happens to be here, at most
        ``status.age_s`` old. The query must not block and must not change the state; what it raises is raised here.

        Raises :class:`NoLeader` if no quorum confirmed it within ``timeout`` seconds: nothing was done.
        """
        life = self._alive
        if consistency not in list(Consistency):
            raise ConfigurationError(f"consistency {consistency!r}", next_step="one of: " + ", ".join(Consistency))
        within_s = TIMEOUT_S if timeout is None else timeout
        why = "no answer"
        try:
            async with asyncio.timeout(within_s) as limit:
                while True:
                    try:
                        return await life.composed.service.reads.ask(query, Consistency(consistency))
                    except NotLeader as error:
                        why = error.message
                    life.check()
                    await life.watch.leadership_changed(within_s=READ_PAUSE_S)
        except TimeoutError as error:
            if not limit.expired():
                raise  # The query's own.
            raise NoLeader(
                f"no quorum confirmed a read within {within_s:g} s: {why}", next_step='or consistency="stale"'
            ) from error

    # -- what happens -------------------------------------------------------------------------------

    async def entries(self, start: int = 1) -> AsyncGenerator[LogEntry[C], None]:
        """The commands of the state machine from log index ``start`` on, as they are applied here, for ever; ends
        when the node is closed. Raises :class:`NotFound` if a snapshot has taken the place of what was asked for."""
        life = self._alive
        at = max(start, 1)
        while not life.watch.ended:
            page, at = await self._page(life, at)
            for entry in page:
                yield entry
            if at > life.composed.loop.applier.last_applied:
                await life.watch.entries_applied()
        if life.failure is not None:
            raise life.failure

    async def _page(self, life: Life, at: int) -> tuple[list[LogEntry[C]], int]:
        """The commands among the entries from ``at`` on that are applied, and where to go on."""
        body = await life.connection.call("log.entries", {"after_index": at - 1, "limit": PAGE_ENTRIES})
        if body["first_index"] > at:
            raise NotFound(
                f"the entries before {body['first_index']} were given up, and {at} was asked for",
                next_step="take the state as it is, and follow the entries from there on",
            )
        applied = life.composed.loop.applier.last_applied
        found: list[LogEntry[C]] = []
        for each in (Entry(*fields) for fields in body["entries"]):
            if each.index > applied:
                break
            at = each.index + 1
            envelope = decode_envelope(each.data, each.index) if each.kind == EntryKind.EMBEDDED else None
            if envelope is not None:
                command = self._commands.decode(envelope.command)
                found.append(LogEntry(each.index, each.term, each.time_ns, envelope.operation_id, command))
        return found, at

    async def leadership(self) -> AsyncGenerator[Leadership, None]:
        """Who leads, now and after each change, until the node ends. Whoever is slow misses what lay in between, but
        never that a term has ended: the terms differ."""
        life = self._alive
        told: Leadership | None = None
        while True:
            now = life.watch.leadership()
            if now != told:
                told = now
                yield now
            elif life.watch.ended:
                break
            else:
                await life.watch.leadership_changed()
        if life.failure is not None:
            raise life.failure

    async def led(self) -> Leadership:
        """Wait until somebody is known to lead, and this node, if it is the one, knows all that was committed."""
        life = self._alive
        while not life.watch.ended:
            now = life.watch.leadership()
            if now.leads or now.leader not in ("", self._configuration.node.id):
                return now
            await life.watch.leadership_changed()
        raise life.failure or TransportError("the node was closed")

    async def hand_over(self, target: str = "") -> str:
        """Give leadership to ``target``, or to whoever has the most of the log; returns who leads then.

        Raises :class:`NotLeader`, :class:`TransferRefused`, :class:`OutcomeUnknown`."""
        body = await self._alive.connection.call("cluster.transfer_leader", {"target": target, "timeout_s": TIMEOUT_S})
        return str(body["leader"])

    @property
    def status(self) -> NodeStatus:
        """As this node knows it now."""
        life = self._begun
        loop, stopped = life.composed.loop, life.composed.loop.stopped
        raft = loop.raft
        described = life.composed.effects.status()
        active = all(
            each["activation"] == ActivationState.ACTIVE.value for each in described.values() if each["required"]
        )
        age_ns = loop.stale_read_age_ns()
        ready = (active and life.watch.leadership().leads) if raft.role is Role.LEADER else bool(raft.leader)
        return NodeStatus(
            node_id=raft.node_id,
            role="stopped" if stopped else raft.role.value,
            term=raft.current_term,
            leader="" if stopped else raft.leader,
            commit_index=raft.commit_index,
            applied_index=loop.applier.last_applied,
            age_s=None if age_ns is None else age_ns / 1e9,
            voters=raft.configuration.voters,
            learners=raft.configuration.learners,
            resources={name: str(each["activation"]) for name, each in described.items()},
            ready=ready and not stopped,
        )


def _with_outbox(parts: Parts, outbox: Outbox, configuration: NodeConfiguration) -> Parts:
    resources = outbox.resources(configuration.cluster.id)
    twice = sorted(set(resources) & set(configuration.resources))
    if twice:
        raise ConfigurationError(f"resources {twice} are defined in {configuration.source} and in the outbox")
    return replace(
        parts,
        resources=resources,
        retry_policies=outbox.retry_policies(),
        activation_policies=outbox.activation_policies(),
        runtime=outbox.runtime,
        definitions=outbox.described(),
    )
