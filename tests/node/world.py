"""A cluster of whole nodes in one process, on virtual time, under one seed.

Everything of a node is real but its disk, its network, its clock and the outside resource:
:class:`~tests.node.process.ProcessLoop` lets a test pause a process or kill it, and the seed is the
bug report.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from structlog.testing import capture_logs

from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import EntryKind
from fencepost.raft.core.errors import FencepostError
from fencepost.raft.core.events import Role
from fencepost.raft.core.messages import Message
from fencepost.raft.core.options import MILLISECOND, Options
from fencepost.raft.core.step import Raft
from fencepost.raft.effects.coordinator import EffectsCoordinator
from fencepost.raft.effects.policy import ActivationPolicy, DispatchPolicy, RetryPolicy
from fencepost.raft.effects.resources.memory import Effect, FakeResource, MemoryStore
from fencepost.raft.effects.runtime import LocalRuntime
from fencepost.raft.node.applier import Applier
from fencepost.raft.node.commands import CommandCalls
from fencepost.raft.node.entries import EntryReading
from fencepost.raft.node.handover import HandoverCalls
from fencepost.raft.node.happenings import Happenings
from fencepost.raft.node.loop import RaftLoop
from fencepost.raft.node.measures import NodeMeasures
from fencepost.raft.node.members import MemberCalls
from fencepost.raft.node.plainlog import PlainLog
from fencepost.raft.node.queries import NodeQueries
from fencepost.raft.node.service import ClientService
from fencepost.raft.node.snapshots import SnapshotKeeper
from fencepost.raft.outbox.codec import Command, Retention, encode
from fencepost.raft.outbox.machine import OutboxMachine
from fencepost.raft.outbox.operation import TERMINAL, Operation
from fencepost.raft.ports import Answer, AnswerStatus, Guarantee, ProposeRequest, SubmitRequest, Wait

from .process import (
    GatedResource,
    ProcessLoop,
    PrunableResource,
    QueryableResource,
    SimClock,
    SimLogStore,
    as_event_loop,
    as_resource,
)
from .snapshot_parts import MemorySnapshotStore, NodeDisk, SimRunner
from .virtual_time import VirtualTimeLoop

ELECTION_S = 0.3
OPTIONS = Options(
    election_timeout=300 * MILLISECOND, heartbeat_interval=50 * MILLISECOND, stall_bound=300 * MILLISECOND
)
ACTIVATION = ActivationPolicy()
DISPATCH = DispatchPolicy()
REMEMBER_ALL = Retention()
POLICY = RetryPolicy(max_attempts=4, backoff_ns=50 * MILLISECOND, backoff_max_ns=2000 * MILLISECOND)


def client_address(node: str) -> str:
    return f"address-of-{node}"


class FakeConnection:
    """``ports.Connection`` that collects."""

    def __init__(self) -> None:
        self.answers: dict[int, list[Answer]] = {}
        self.frames: list[list[Answer]] = []
        self.replies: dict[int, Any] = {}
        self.errors: dict[int, FencepostError] = {}

    def answer(self, answers: list[Answer]) -> None:
        self.frames.append(answers)
        for answer in answers:
            self.answers.setdefault(answer.request_id, []).append(answer)

    def reply(self, request_id: int, body: Any) -> None:
        assert request_id not in self.replies
        self.replies[request_id] = body

    def reply_error(self, request_id: int, error: FencepostError) -> None:
        assert request_id not in self.errors
        self.errors[request_id] = error

    def only(self, request_id: int) -> Answer:
        """The one answer to a request. Two are as wrong as none."""
        answers = self.answers.get(request_id, [])
        assert len(answers) == 1, f"request {request_id} has {len(answers)} answers: {answers}"
        return answers[0]


class ResourceSpec:
    """One outside resource: its store outlives every node."""

    def __init__(
        self,
        name: str = "ledger",
        effects: Mapping[str, Effect] | tuple[str, ...] = ("credit",),
        *,
        guarantee: Guarantee = Guarantee.FENCED,
        batch_limit: int = 512,
        concurrency: int = 1,
        policy: RetryPolicy = POLICY,
        activation: ActivationPolicy = ACTIVATION,
        dispatch: DispatchPolicy = DISPATCH,
        queryable: bool = False,
        dedupes_by_place: bool = False,
        prunable: bool = False,
    ) -> None:
        self.name = name
        self.activation = activation
        self.dispatch = dispatch
        self.queryable = queryable
        self.dedupes_by_place = dedupes_by_place
        self.prunable = prunable
        self.store = MemoryStore()
        self.policy = policy
        self._effects = effects
        self.guarantee = guarantee
        self._batch_limit = batch_limit
        self._concurrency = concurrency

    def make(self, process: ProcessLoop) -> GatedResource:
        inner = FakeResource(
            self.name,
            self._effects,
            store=self.store,
            guarantee=self.guarantee,
            batch_limit=self._batch_limit,
            concurrency=self._concurrency,
        )
        kind = PrunableResource if self.prunable else QueryableResource if self.queryable else GatedResource
        gated = kind(inner, process)
        gated.dedupes_by_place = self.dedupes_by_place
        return gated


class SimTransport:
    """``ports.Transport``: ordered on each link, as a stream is; lossy where the world says so."""

    def __init__(self, world: World, source: str) -> None:
        self._world = world
        self._source = source

    def send(self, to: str, message: Message) -> None:
        self._world.carry(self._source, to, message)


class SimNode:
    """One process of a node, from start to death."""

    def __init__(self, world: World, name: str, boot: int) -> None:
        self.name = name
        self.boot = boot
        self._world = world
        self.process = ProcessLoop(world.loop)
        loop = as_event_loop(self.process)
        self.clock = SimClock(world.loop, offset_ns=world.random.randint(0, 1 << 40))
        self.clock.skew_ns = world.skews.get(name, 0)
        self.disk = world.disks[name]
        self.log_store = SimLogStore(self.disk, world.loop, self.process)
        self.store = MemorySnapshotStore(self.disk)
        snapshot = self.store.newest()
        entries, older = self.disk.recover(world.options.window_entries, world.options.window_bytes)
        self.raft = Raft(
            node_id=name,
            configuration=Configuration(world.voters if name in world.voters else ()),
            hard_state=self.disk.hard_state,
            entries=entries,
            commit_index=self.disk.commit_index,
            options=world.options,
            between=world.random.randint,
            now=self.clock.monotonic_ns(),
            snapshot=snapshot,
            previous_index=self.disk.previous_index,
            previous_term=self.disk.previous_term,
            older=older,
        )
        self.machine = OutboxMachine()
        self.plain = PlainLog()
        self.applier = Applier({EntryKind.OUTBOX: self.machine, EntryKind.EMBEDDED: self.plain})
        self.loop = RaftLoop(
            raft=self.raft, log_store=self.log_store, applier=self.applier, clock=self.clock, loop=loop
        )
        if snapshot is not None:
            self.applier.adopt(self.applier.prepare(self.store.contents(snapshot)), snapshot.last_index)
        self.loop.transport = SimTransport(world, name)
        self.runner = SimRunner(self.process)
        self.loop.snapshots = SnapshotKeeper(
            store=self.store,
            applier=self.applier,
            runner=self.runner,
            loop=self.loop,
            send=self.loop.transport.send,
        )
        self.entry_runner = SimRunner(self.process)
        self.loop.entries = EntryReading(store=self.log_store, runner=self.entry_runner, loop=self.loop)
        self.resources = {spec.name: spec.make(self.process) for spec in world.specs}
        self.runtime = LocalRuntime(loop)
        self.effects = EffectsCoordinator(
            node_id=name,
            holder=f"{name}/{boot}",
            incarnation=world.incarnation,
            node_loop=self.loop,
            machine=self.machine,
            resources={key: as_resource(resource) for key, resource in self.resources.items()},
            policies={spec.name: spec.policy for spec in world.specs},
            activation_policies={spec.name: spec.activation for spec in world.specs},
            dispatch_policies={spec.name: spec.dispatch for spec in world.specs},
            retention=world.retention,
            runtime=self.runtime,
            clock=self.clock,
            randomness=world,
            loop=loop,
        )
        self.happenings = Happenings(name, self.clock.time_ns, self.effects.stale_refusals)
        self.measures = NodeMeasures(self.loop)
        queries = NodeQueries(
            loop=self.loop,
            machine=self.machine,
            identity={"node_id": name},
            links=lambda: {peer: {"connected": True} for peer in world.disks if peer != name},
            resources=self.effects.status,
            waiting_reason=self.effects.waiting_reason,
            leader_address=client_address,
            addresses=self.addresses,
            happened=self.happenings.since,
        )
        members = MemberCalls(self.loop, loop, leader_address=client_address, addresses=self.addresses)
        self.handover = HandoverCalls(self.loop, loop, self.effects, leader_address=client_address)
        commands = CommandCalls(
            self.loop, loop, self.machine, lambda: self.effects.acting, leader_address=client_address
        )
        self.service = ClientService(
            loop=self.loop,
            machine=self.machine,
            leader_address=client_address,
            queries=queries.methods(),
            slow_queries={
                "resource.fences": self.effects.fences,
                **members.methods(),
                **self.handover.methods(),
                **commands.methods(),
            },
        )
        for observer in (self.effects, self.service, self.happenings, self.measures):
            self.loop.observe(observer)
        self.process.call_soon(self.loop.start)

    def addresses(self) -> dict[str, str]:
        """Where peers are reached: configured for those who were there from the beginning, else as they were added."""
        return {name: f"{name}:7001" for name in self._world.voters} | dict(self.raft.configuration.addresses)

    @property
    def resource(self) -> GatedResource:
        return next(iter(self.resources.values()))

    @property
    def leads(self) -> bool:
        return not self.process.dead and not self.loop.failed.done() and self.raft.role is Role.LEADER

    def operation(self, operation_id: str) -> Operation:
        return self.machine.operations[operation_id]


class World:
    """Sync to use: ``advance`` runs everything that happens meanwhile."""

    def __init__(
        self,
        *specs: ResourceSpec,
        voters: tuple[str, ...] = ("n1", "n2", "n3"),
        seed: int = 0,
        options: Options = OPTIONS,
        delay_s: float = 0.001,
        incarnation: int = 1,
        skews: Mapping[str, int] | None = None,
        retention: Retention = REMEMBER_ALL,
    ) -> None:
        self.retention = retention
        self.random = random.Random(seed)
        self.options = options
        self.voters = voters
        self.incarnation = incarnation
        self.skews = dict(skews or {})
        self.specs = specs or (ResourceSpec(),)
        self.loop = VirtualTimeLoop()
        self.disks = {name: NodeDisk() for name in voters}
        self.delay_s = delay_s
        self.blocked: set[tuple[str, str]] = set()
        self.loss = 0.0
        self.complaints: list[dict[str, Any]] = []
        """What asyncio could only log: an exception in a callback that nobody saw."""
        self.loop.set_exception_handler(lambda _, context: self.complaints.append(context))
        self._capture = capture_logs()
        self.logs = self._capture.__enter__()
        self._arrives: dict[tuple[str, str], int] = {}
        self._request_id = 0
        self._boots = dict.fromkeys(voters, 0)
        self.nodes: dict[str, SimNode] = {}
        self.connection = FakeConnection()
        for name in voters:
            self.start(name)

    def between(self, low: int, high: int) -> int:
        """``ports.Randomness``."""
        return self.random.randint(low, high)

    def close(self) -> None:
        """End the world. Fails on anything that was raised where nobody looked (S41)."""
        for node in self.nodes.values():
            self._kill(node)
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()
        assert not self.complaints, f"raised where nobody looked: {self.complaints}"

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.complaints.clear()
        try:
            self.close()
        finally:
            self._capture.__exit__(None, None, None)

    def logged(self, event: str) -> list[Any]:
        """The log lines of this kind so far."""
        return [line for line in self.logs if line["event"] == event]

    # -- processes --------------------------------------------------------------------------------

    def start(self, name: str) -> SimNode:
        self._boots[name] += 1
        node = self.nodes[name] = SimNode(self, name, self._boots[name])
        return node

    def join(self, name: str) -> SimNode:
        """A new node that waits to be added to the cluster."""
        self.disks[name] = NodeDisk()
        self._boots[name] = 0
        return self.start(name)

    def crash(self, name: str, *, keep_some: bool = False) -> None:
        """Kill the process. What it had already sent to a resource still arrives there, what it held does not."""
        self._kill(self.nodes[name])
        self.disks[name].crash(self.random.randint if keep_some else None)

    def _kill(self, node: SimNode) -> None:
        node.process.dead = True
        if node.process.paused:
            node.process.resume()
        for resource in node.resources.values():
            for gate in resource.held:
                gate.cancel()

    def pause(self, name: str) -> None:
        self.nodes[name].process.pause()

    def resume(self, name: str) -> None:
        self.nodes[name].process.resume()

    def up(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if not node.process.dead]

    # -- network ----------------------------------------------------------------------------------

    def carry(self, source: str, to: str, message: Message) -> None:
        node = self.nodes.get(to)
        if node is None or (source, to) in self.blocked or self.random.random() < self.loss:
            return
        arrives = max(self.loop.now_ns + int(self.delay_s * 1e9), self._arrives.get((source, to), 0))
        self._arrives[source, to] = arrives
        self.loop.call_later(max(arrives - self.loop.now_ns, 0) / 1e9, self._deliver, source, node, message)

    def _deliver(self, source: str, node: SimNode, message: Message) -> None:
        if (source, node.name) not in self.blocked:
            node.process.call_soon(node.loop.receive, source, message)

    def isolate(self, name: str) -> None:
        for other in self.disks:
            if other != name:
                self.blocked |= {(name, other), (other, name)}

    def heal(self) -> None:
        self.blocked.clear()

    # -- time -------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        self.loop.advance(seconds)

    def until(self, holds: Callable[[], Any], *, within_s: float = 5.0, what: str = "it") -> None:
        """Run until ``holds()`` is true. A command that is not there yet (KeyError) is not true yet."""

        def look() -> Any:
            with suppress(KeyError):
                return holds()

        self.loop.advance_until(look, within_s=within_s, what=what)

    def leader(self, *, other_than: str = "", within_s: float = 5.0) -> SimNode:
        """A leader whose no-op is applied."""
        found: list[SimNode] = []

        def look() -> bool:
            found[:] = [
                node
                for node in self.up()
                if node.leads
                and not node.process.paused
                and node.name != other_than
                and node.applier.last_applied >= node.raft.term_start_index
            ]
            return bool(found)

        self.until(look, within_s=within_s, what="a leader")
        return found[-1]

    def active_leader(self, *, other_than: str = "", within_s: float = 5.0) -> SimNode:
        """A leader all of whose resources are active."""

        def active(node: SimNode) -> bool:
            return (
                node.leads
                and not node.process.paused
                and node.name != other_than
                and all(each["activation"] == "active" for each in node.effects.status().values())
            )

        self.until(lambda: any(map(active, self.up())), within_s=within_s, what="an active leader")
        return next(node for node in self.up() if active(node))

    def lead(self, name: str) -> SimNode:
        """Make this node the active leader."""
        self.leader()
        for _ in range(20):
            node = self.nodes[name]
            if node.leads:
                break
            self.leader().loop.step_down("the test wants another leader")
            node.process.call_soon(node.loop.campaign)
            self.advance(2 * ELECTION_S)
        return self.active_leader()

    # -- clients ----------------------------------------------------------------------------------

    def submit(
        self,
        node: SimNode,
        *operation_ids: str,
        lane: str = "",
        wait: Wait = Wait.DONE,
        resource: str = "",
        effect: str = "credit",
        payload: bytes = b"{}",
        connection: FakeConnection | None = None,
        at_once: bool = False,
    ) -> list[int]:
        """Send one frame of submissions; returns the request ids. ``at_once``: it arrives in this very turn."""
        requests = []
        for operation_id in operation_ids:
            self._request_id += 1
            command = Command(operation_id, resource or self.specs[0].name, effect, lane, payload)
            requests.append(SubmitRequest(self._request_id, int(wait), encode(command)))
        if at_once:
            node.service.submit(connection or self.connection, requests)
        else:
            node.process.call_soon(node.service.submit, connection or self.connection, requests)
        return [request.request_id for request in requests]

    def propose(self, node: SimNode, *data: bytes, connection: FakeConnection | None = None) -> list[int]:
        requests = []
        for item in data:
            self._request_id += 1
            requests.append(ProposeRequest(self._request_id, item))
        node.process.call_soon(node.service.propose, connection or self.connection, requests)
        return [request.request_id for request in requests]

    def call(self, node: SimNode, method: str, /, **parameters: Any) -> int:
        self._request_id += 1
        node.process.call_soon(node.service.call, self.connection, self._request_id, method, parameters)
        return self._request_id

    def reply(self, node: SimNode, method: str, /, *, within_s: float = 5.0, **parameters: Any) -> Any:
        """Ask a question and wait for the body of its answer."""
        request = self.call(node, method, **parameters)
        self.until(lambda: self.heard(request), within_s=within_s, what=f"an answer to {method}")
        if request in self.connection.errors:
            raise self.connection.errors[request]
        return self.connection.replies[request]

    def error(self, node: SimNode, method: str, /, *, within_s: float = 5.0, **parameters: Any) -> FencepostError:
        """Ask a question and wait for the error that it is answered with."""
        request = self.call(node, method, **parameters)
        self.until(lambda: self.heard(request), within_s=within_s, what=f"an answer to {method}")
        assert request not in self.connection.replies, self.connection.replies[request]
        return self.connection.errors[request]

    def heard(self, request: int) -> bool:
        return request in self.connection.replies or request in self.connection.errors

    def answered(self, requests: list[int]) -> bool:
        return all(request in self.connection.answers for request in requests)

    def answer(self, request_id: int, *, within_s: float = 5.0) -> Answer:
        self.until(lambda: request_id in self.connection.answers, within_s=within_s, what=f"answer {request_id}")
        return self.connection.only(request_id)

    def done(self, node: SimNode, *operation_ids: str, **how: Any) -> list[Answer]:
        """Submit and wait until every answer is DONE."""
        answers = [self.answer(request) for request in self.submit(node, *operation_ids, **how)]
        assert all(answer.status == AnswerStatus.DONE for answer in answers), answers
        return answers

    # -- what must hold ---------------------------------------------------------------------------

    def settle(self, *, within_s: float = 20.0) -> None:
        """Wait until all nodes have applied the same log and every command has ended."""

        def settled() -> bool:
            nodes = self.up()
            return (
                len({node.applier.last_applied for node in nodes}) == 1
                and nodes[0].applier.last_applied == max(node.raft.log.last_index for node in nodes)
                and all(op.state in TERMINAL for node in nodes for op in node.machine.operations.values())
            )

        self.until(settled, within_s=within_s, what="rest")

    def settle_log(self, *, within_s: float = 5.0) -> None:
        """Wait until all live nodes have applied the same log, whatever is still under way."""

        def equal() -> bool:
            nodes = [node for node in self.up() if not node.process.paused]
            return {node.applier.last_applied for node in nodes} == {max(node.raft.log.last_index for node in nodes)}

        self.until(equal, within_s=within_s, what="equal logs")

    def check_equal(self) -> None:
        hashes = {node.name: node.machine.state_hash() for node in self.up()}
        assert len(set(hashes.values())) == 1, hashes

    def check_store(self, spec: ResourceSpec | None = None) -> None:
        """At a fenced resource: every operation once, tokens never falling, lanes in log order."""
        spec = spec or self.specs[0]
        accepted = [operation for operation in spec.store.operations if operation.resource == spec.name]
        ids = [operation.operation_id for operation in accepted]
        assert len(set(ids)) == len(ids), "an effect took place twice"
        tokens = [operation.token for operation in accepted]
        assert tokens == sorted(tokens), "a token fell"
        lanes: dict[str, list[int]] = {}
        for operation in accepted:
            if operation.lane:
                lanes.setdefault(operation.lane, []).append(operation.log_index)
        for lane, order in lanes.items():
            assert order == sorted(order), f"lane {lane} out of log order: {order}"
