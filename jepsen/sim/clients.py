"""Clients: what they want, whom they ask, what they hear. The history of a run is what they recorded.

A client pursues one thing at a time. It asks again, with the same operation id, after ``retry``,
``unknown`` or no answer at all (semantics 8); a plain proposal has no id, so there an unknown outcome
is the last word. Its connections belong to one process of a node, and end with it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ...raft.core.errors import FencepostError
from ...raft.core.options import MILLISECOND, SECOND
from ...raft.outbox.codec import Command, encode
from ...raft.outbox.operation import OperationState
from ...raft.ports import Answer, AnswerStatus, ProposeRequest, SubmitRequest, Wait
from .node import SimNode, node_at

if TYPE_CHECKING:
    from .world import World

PATIENCE_NS = 3 * SECOND
"""A client asks somebody else after this long without an answer."""
PAUSE_NS = 50 * MILLISECOND
"""Between two questions, at most: doubled with each that brought nothing, up to ``PAUSE_MAX_NS``."""
PAUSE_MAX_NS = 1 * SECOND


class Kind(StrEnum):
    SUBMIT = "submit"
    """A command of the outbox."""
    PROPOSE = "propose"
    """An entry of the plain log."""


class Fate(StrEnum):
    """What a client knows of a thing in the end."""

    OPEN = "open"
    DONE = "done"
    """The answer says how it stands."""
    REFUSED = "refused"
    """Certainly not executed, and it never will be."""
    UNKNOWN = "unknown"
    """It may have been executed; nobody will know better by asking again."""
    GIVEN_UP = "given up"
    """The client was stopped before it heard the end."""


class Invocation:
    """One request to one process. Times are nanoseconds of the world."""

    __slots__ = ("answer", "answered_ns", "boot", "job", "node", "request_id", "sent_ns")

    def __init__(self, job: Job, request_id: int, node: str, boot: int, sent_ns: int) -> None:
        self.job = job
        self.request_id = request_id
        self.node = node
        self.boot = boot
        """0: there was no process, and the connection was refused."""
        self.sent_ns = sent_ns
        self.answered_ns = 0
        """When it was answered or given up; 0: neither yet."""
        self.answer: Answer | None = None

    def __repr__(self) -> str:
        return f"<request {self.request_id} of {self.job.name} to {self.node}/{self.boot}: {self.answer}>"


class Job:
    """One thing that a client wants done, from the first request to the last answer."""

    __slots__ = (
        "begun_ns", "client", "data", "ended_ns", "fate", "final", "kind", "lane", "name", "payload", "resource",
        "then", "tries", "wait",
    )  # fmt: skip

    def __init__(
        self, client: str, kind: Kind, name: str, resource: str, lane: str, payload: bytes, wait: Wait, data: bytes
    ) -> None:
        self.client = client
        self.kind = kind
        self.name = name
        """The operation id of a command; of a proposal what tells it from others in the history."""
        self.resource = resource
        self.lane = lane
        self.payload = payload
        self.wait = wait
        self.data = data
        self.tries: list[Invocation] = []
        self.begun_ns = 0
        self.ended_ns = 0
        """0: it has not ended."""
        self.fate = Fate.OPEN
        self.final: Answer | None = None
        """The answer that ended it."""
        self.then: Callable[[], None] | None = None
        """Called once, when it has ended."""

    @property
    def done(self) -> bool:
        return self.fate is Fate.DONE

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name} of {self.client}: {self.fate}, {len(self.tries)} tries, {self.final}>"


class SimConnection:
    """``ports.Connection`` of one client to one process."""

    def __init__(self, client: Client, node: SimNode) -> None:
        self.client = client
        self.node = node

    def answer(self, answers: list[Answer]) -> None:
        self.client.way_back(self, answers)

    def reply(self, request_id: int, body: Any) -> None:
        self.client.replies[request_id] = body

    def reply_error(self, request_id: int, error: FencepostError) -> None:
        self.client.replies[request_id] = error


class Client:
    """Pursues one job at a time. ``idle`` when it has none."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.job: Job | None = None
        self.jobs: list[Job] = []
        self.replies: dict[int, Any] = {}
        self.leader_hint = ""
        self._connection: SimConnection | None = None
        self._invocation: Invocation | None = None
        self._pause_ns = PAUSE_NS

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
    ) -> Job:
        """Have a command executed. ``at`` is the node that is asked first; else the client looks for the leader."""
        resource = resource or next(iter(self.world.resources))
        data = encode(Command(operation_id, resource, effect, lane, payload))
        return self._begin(Job(self.name, Kind.SUBMIT, operation_id, resource, lane, payload, wait, data), at)

    def propose(self, name: str, data: bytes, *, at: str = "") -> Job:
        """Have an entry put into the plain log."""
        return self._begin(Job(self.name, Kind.PROPOSE, name, "", "", data, Wait.COMMITTED, data), at)

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
        if self.leader_hint and world.random.random() < 0.9:
            return self.leader_hint
        names = world.names
        return names[int(world.random.random() * len(names))]

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
            world.outside.call_after_ns(world.client_way_ns(), self._unanswered, invocation)
            return
        connection = self._connection
        if connection is None or connection.node is not node:
            self._close()
            connection = self._connection = SimConnection(self, node)
        world.outside.call_after_ns(PATIENCE_NS, self._unanswered, invocation)
        if name in world.clients_cut:
            return
        service, loop = node.service, node.process.loop
        if job.kind is Kind.SUBMIT:
            request = SubmitRequest(request_id, int(job.wait), job.data)
            loop.call_after_ns(world.client_way_ns(), service.submit, connection, [request])
        else:
            loop.call_after_ns(
                world.client_way_ns(), service.propose, connection, [ProposeRequest(request_id, job.data)]
            )

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # The end of the connection reaches the node, if it still is there.
            node = connection.node
            node.process.loop.call_after_ns(self.world.client_way_ns(), node.service.closed, connection)

    def way_back(self, connection: SimConnection, answers: list[Answer]) -> None:
        """A node has answered."""
        world = self.world
        if connection.node.name not in world.clients_cut:
            world.outside.call_after_ns(world.client_way_ns(), self._hear, connection, answers)

    # -- hearing ------------------------------------------------------------------------------------

    def _hear(self, connection: SimConnection, answers: list[Answer]) -> None:
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
        if job.kind is Kind.PROPOSE and invocation.boot:
            self._end(job, Fate.UNKNOWN, None)
        else:
            self._ask_later(job)

    def _answered(self, invocation: Invocation, answer: Answer) -> None:
        world, job = self.world, invocation.job
        invocation.answer = answer
        invocation.answered_ns = world.agenda.now_ns
        world.trace.mix(world.agenda.now_ns, -3, answer.request_id, answer.status, answer.index)
        for hook in world.hooks.on_answered:
            hook(invocation, answer)
        status = answer.status
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

    def _ask_later(self, job: Job) -> None:
        pause_ns = int(self.world.random.random() * self._pause_ns) + MILLISECOND
        self._pause_ns = min(2 * self._pause_ns, PAUSE_MAX_NS)
        self.world.outside.call_after_ns(pause_ns, self._ask, job)

    def _end(self, job: Job, fate: Fate, answer: Answer | None) -> None:
        job.fate = fate
        job.final = answer
        job.ended_ns = self.world.agenda.now_ns
        self.job = None
        self._invocation = None
        if job.then is not None:
            job.then()
