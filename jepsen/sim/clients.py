"""Clients: what they want, whom they ask, what they hear. The history of a run is what they recorded.

A client pursues one thing at a time. It asks again, with the same operation id, after ``retry``,
``unknown`` or no answer at all (semantics 8); a plain proposal has no id, so there an unknown outcome
is the last word. Its connections belong to one process of a node, and end with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...raft.core.errors import FencepostError, NotLeader
from ...raft.core.errors import Outcome as OutcomeOf
from ...raft.core.options import MILLISECOND, SECOND
from ...raft.outbox.codec import Command, encode
from ...raft.outbox.operation import OperationState
from ...raft.ports import Answer, AnswerStatus, ProposeRequest, SubmitRequest, Wait
from .jobs import Fate, Invocation, Job, Kind, Reply
from .node import SimNode, node_at
from .streams import stream

if TYPE_CHECKING:
    from .world import World

PATIENCE_NS = 3 * SECOND
"""A client asks somebody else after this long without an answer."""
PAUSE_NS = 50 * MILLISECOND
"""Between two questions, at most: doubled with each that brought nothing, up to ``PAUSE_MAX_NS``."""
PAUSE_MAX_NS = 1 * SECOND


class SimConnection:
    """``ports.Connection`` of one client to one process."""

    def __init__(self, client: Client, node: SimNode) -> None:
        self.client = client
        self.node = node
        node.process.at_death(self._reset)

    def _reset(self) -> None:
        """The process is gone, and its system says so."""
        if not self.node.process.silent:
            self.client.broken(self)

    def answer(self, answers: list[Answer]) -> None:
        self.client.way_back(self, answers)

    def reply(self, request_id: int, body: Any) -> None:
        self.client.way_back(self, [Reply(request_id, body, None)])

    def reply_error(self, request_id: int, error: FencepostError) -> None:
        self.client.way_back(self, [Reply(request_id, None, error)])


class Client:
    """Pursues one job at a time. ``idle`` when it has none."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.job: Job | None = None
        self.jobs: list[Job] = []
        self.leader_hint = ""
        self.random = stream(world.seed, f"client {name}").random
        """What happens to it on its way; what it wants is another stream's."""
        self._connection: SimConnection | None = None
        self._invocation: Invocation | None = None
        self._pause_ns = PAUSE_NS

    def _way_ns(self) -> int:
        """How long one way between a client and a node takes."""
        return 200_000 + int(self.random() * 800_000)

    # -- what it wants ------------------------------------------------------------------------------

    def submit(
        self,
        operation_id: str,
        *,
        resource: str = "",
        effect: str = "credit",
        lane: str = "",
        payload: bytes = b"{}",
        wait: Wait = Wait.DONE,
        at: str = "",
        not_before_ns: int = 0,
        deadline_ns: int = 0,
    ) -> Job:
        """Have a command executed. ``at`` is the node that is asked first; else the client looks for the leader."""
        resource = resource or next(iter(self.world.resources))
        data = encode(Command(operation_id, resource, effect, lane, payload, not_before_ns, deadline_ns))
        job = Job(
            self.name, Kind.SUBMIT, operation_id, data=data, resource=resource, lane=lane, payload=payload, wait=wait
        )
        return self._begin(job, at)

    def propose(self, name: str, data: bytes, *, at: str = "") -> Job:
        """Have an entry applied by the embedder's machine (``registers`` makes them)."""
        return self._begin(Job(self.name, Kind.PROPOSE, name, data=data), at)

    def read(self, key: str, *, consistency: str = "linearizable", at: str = "", name: str = "") -> Job:
        """Read a register or a list: ``linearizable``, ``lease`` or ``stale``. Any node may be asked."""
        parameters = {"key": key, "consistency": consistency}
        job = Job(self.name, Kind.READ, name or f"read {key}", method="registers.read", parameters=parameters)
        return self._begin(job, at)

    def call(self, method: str, *, at: str = "", **parameters: Any) -> Job:
        """Ask any question that a node answers. Not asked again if its end is unknown."""
        return self._begin(Job(self.name, Kind.CALL, method, method=method, parameters=parameters), at)

    def _begin(self, job: Job, at: str) -> Job:
        if self.job is not None:
            raise AssertionError(f"{self.name} is still at {self.job}")
        self.job = job
        self.jobs.append(job)
        job.begun_ns = self.world.agenda.now_ns
        self._pause_ns = PAUSE_NS
        self._ask(job, at)
        return job

    def give_up(self) -> None:
        """Stop pursuing; what the last request does is not heard of any more."""
        job = self.job
        if job is not None:
            self._close()
            self._end(job, Fate.GIVEN_UP, None)

    # -- asking -------------------------------------------------------------------------------------

    def _choose(self) -> str:
        world = self.world
        if self.leader_hint and self.random() < 0.9:
            return self.leader_hint
        names = world.names
        return names[int(self.random() * len(names))]

    def _ask(self, job: Job, at: str = "") -> None:
        if self.job is not job:
            return
        world = self.world
        name = at or self._choose()
        node = world.hosts[name].node
        request_id = world.next_request_id()
        boot = node.boot if node is not None else 0
        invocation = self._invocation = Invocation(job, request_id, name, boot, world.agenda.now_ns)
        job.tries.append(invocation)
        for hook in world.hooks.on_invoked:
            hook(invocation)
        if node is None:
            world.outside.call_after_ns(self._way_ns(), self._unanswered, invocation)
            return
        connection = self._connection
        if connection is None or connection.node is not node:
            self._close()
            connection = self._connection = SimConnection(self, node)
        world.outside.call_after_ns(PATIENCE_NS, self._unanswered, invocation)
        if name in world.clients_cut:
            return
        service, send, way_ns = node.service, node.process.loop.call_after_ns, self._way_ns()
        if job.kind is Kind.SUBMIT:
            send(way_ns, service.submit, connection, [SubmitRequest(request_id, int(job.wait), job.data)])
        elif job.kind is Kind.PROPOSE:
            send(way_ns, service.propose, connection, [ProposeRequest(request_id, job.data)])
        else:
            send(way_ns, service.call, connection, request_id, job.method, job.parameters)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # The end of the connection reaches the node, if it still is there.
            node = connection.node
            node.process.loop.call_after_ns(self._way_ns(), node.service.closed, connection)

    def way_back(self, connection: SimConnection, answers: Sequence[Answer | Reply]) -> None:
        """A node has answered."""
        world = self.world
        if connection.node.name not in world.clients_cut:
            world.outside.call_after_ns(self._way_ns(), self._hear, connection, answers)

    def broken(self, connection: SimConnection) -> None:
        """The other end of a connection is gone."""
        if connection is self._connection and connection.node.name not in self.world.clients_cut:
            self.world.outside.call_after_ns(self._way_ns(), self._hear_of_the_end, connection)

    # -- hearing ------------------------------------------------------------------------------------

    def _hear_of_the_end(self, connection: SimConnection) -> None:
        if connection is self._connection:
            self._connection = None
            if self._invocation is not None:
                self._unanswered(self._invocation)

    def _hear(self, connection: SimConnection, answers: Sequence[Answer | Reply]) -> None:
        if connection is not self._connection:
            return
        for answer in answers:
            invocation = self._invocation
            if invocation is not None and answer.request_id == invocation.request_id:
                self._invocation = None
                self._answered(invocation, answer)

    def _unanswered(self, invocation: Invocation) -> None:
        if invocation is not self._invocation:
            return
        self._invocation = None
        invocation.answered_ns = self.world.agenda.now_ns
        for hook in self.world.hooks.on_answered:
            hook(invocation, None)
        self._close()
        self.leader_hint = ""
        job = invocation.job
        if job.kind in (Kind.PROPOSE, Kind.CALL) and invocation.boot:
            self._end(job, Fate.UNKNOWN, None)
        else:
            self._ask_later(job)

    def _answered(self, invocation: Invocation, answer: Answer | Reply) -> None:
        invocation.answer = answer
        invocation.answered_ns = self.world.agenda.now_ns
        for hook in self.world.hooks.on_answered:
            hook(invocation, answer)
        if isinstance(answer, Reply):
            self._replied(invocation, answer)
            return
        self.world.trace.mix(self.world.agenda.now_ns, -3, answer.request_id, answer.status, answer.index)
        job, status = invocation.job, answer.status
        if status == AnswerStatus.DONE:
            self.leader_hint = invocation.node
            self._end(job, Fate.DONE, answer)
        elif status == AnswerStatus.REFUSED:
            self._end(job, Fate.REFUSED, answer)
        elif status == AnswerStatus.UNKNOWN and (job.kind is Kind.PROPOSE or answer.state == OperationState.IN_DOUBT):
            self._end(job, Fate.UNKNOWN, answer)
        else:
            self.leader_hint = node_at(answer.detail) if answer.code == "NOT_LEADER" else ""
            self._ask_later(job)

    def _replied(self, invocation: Invocation, reply: Reply) -> None:
        """A question was answered. A read changes nothing, and may always be asked again."""
        job, error = invocation.job, reply.error
        self.world.trace.mix(self.world.agenda.now_ns, -5, reply.request_id, error is None)
        if error is None:
            self._end(job, Fate.DONE, reply)
        elif job.kind is Kind.READ or error.outcome is OutcomeOf.RETRY:
            if isinstance(error, NotLeader):
                self.leader_hint = ""
            self._ask_later(job)
        else:
            self._end(job, Fate.UNKNOWN if error.outcome is OutcomeOf.UNKNOWN else Fate.REFUSED, reply)

    def _ask_later(self, job: Job) -> None:
        pause_ns = int(self.random() * self._pause_ns) + MILLISECOND
        self._pause_ns = min(2 * self._pause_ns, PAUSE_MAX_NS)
        self.world.outside.call_after_ns(pause_ns, self._ask, job)

    def _end(self, job: Job, fate: Fate, answer: Answer | Reply | None) -> None:
        job.fate = fate
        job.final = answer
        job.ended_ns = self.world.agenda.now_ns
        self.job = None
        self._invocation = None
        if job.then is not None:
            job.then()
