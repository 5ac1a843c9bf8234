"""One process of a node, composed as the real one is, on the simulated machine under it.

Real: data directory, log store, core, loop, applier, state machines, effects, client service, queries.
Simulated: process, clock, disk, network, and the way to the resources.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ...cli.peer_addresses import PeerAddresses
from ...raft.core.configuration import Configuration
from ...raft.core.entry import Entry, EntryKind
from ...raft.core.events import Effects, Event, Role
from ...raft.core.invariants import summarize
from ...raft.core.step import Raft
from ...raft.effects.coordinator import EffectsCoordinator
from ...raft.node.applier import Applier
from ...raft.node.commands import CommandCalls
from ...raft.node.divergence import DivergenceWatch
from ...raft.node.entries import EntryReading
from ...raft.node.handover import HandoverCalls
from ...raft.node.loop import RaftLoop
from ...raft.node.members import MemberCalls
from ...raft.node.queries import NodeQueries
from ...raft.node.service import ClientService
from ...raft.node.snapshots import SnapshotKeeper
from ...raft.outbox.machine import OutboxMachine
from ...storage.identity import DataDirectory
from ...storage.log_store import FileLogStore
from ...storage.recovery import Window
from ...storage.snapshots import FileSnapshotStore, check_log_follows
from ...transport.acquaintances import Acquaintances
from ...transport.handshake import LocalNode
from .clock import SimClock
from .effects import QueryableClient, ResourceClient, SimRuntime
from .logwriter import LogWriter
from .process import Process
from .registers import Registers
from .runner import SimRunner
from .transport import SimTransport

if TYPE_CHECKING:
    from .host import Host
    from .surroundings import Surroundings

CLUSTER_ID = "sim"
DATA_DIRECTORY = "/data"
POINT_ENTRIES = 32
"""Nodes compare the digests of their states this often: no log of a simulation is as long as a real one."""


def client_address(name: str) -> str:
    """Where clients reach a node."""
    return f"client-of-{name}"


def peer_address(name: str) -> str:
    """Where peers reach a node."""
    return f"{name}:1"


def node_at(address: str) -> str:
    return address.removeprefix("client-of-")


class SimNode:
    """From start to death. Raises what the real start raises when the disk is not fit to start on."""

    def __init__(self, world: Surroundings, host: Host, process: Process, clock: SimClock) -> None:
        self.name = host.name
        self.host = host
        self.process = process
        self.clock = clock
        self._world = world
        directory = self.directory = DataDirectory.open(
            DATA_DIRECTORY,
            cluster_id=CLUSTER_ID,
            node_id=host.name,
            voters=host.voters,
            disk=host.disk,
            entropy=host.chance.randbytes,
            reserve_bytes=world.disk_settings.reserve_bytes,
        )
        self.boot = directory.boot
        snapshots = FileSnapshotStore.open(directory)
        newest = snapshots.newest()
        options = world.options
        store, recovered = FileLogStore.open(
            directory,
            segment_bytes=world.disk_settings.segment_bytes,
            window=Window(options.window_entries, options.window_bytes),
        )
        check_log_follows(directory.snapshots_path, newest, recovered)
        self.writer = LogWriter(store, process.thread(), host, on_sync=self._synced)
        self.raft = SimRaft(
            node_id=host.name,
            configuration=Configuration(tuple(sorted(directory.voters))),
            hard_state=recovered.hard_state,
            entries=recovered.entries,
            commit_index=recovered.commit_index,
            options=options,
            between=host.between,
            now=clock.monotonic_ns(),
            snapshot=newest,
            previous_index=recovered.previous_index,
            previous_term=recovered.previous_term,
            older=recovered.older,
        )
        self.raft.watched_by(world, self)
        self.machine = OutboxMachine()
        self.registers = Registers()
        self.applier = SimApplier(
            {EntryKind.OUTBOX: self.machine, EntryKind.EMBEDDED: self.registers}, point_entries=POINT_ENTRIES
        )
        self.applier.watched_by(world, self)
        if newest is not None:
            self.applier.adopt(self.applier.prepare(snapshots.contents(newest)), newest.last_index)
        self.loop = RaftLoop(
            raft=self.raft, log_store=self.writer, applier=self.applier, clock=clock, loop=process.loop
        )
        self._compose_effects()
        self._compose_transport()
        self.runner = SimRunner(process.loop, process.thread(), host)
        self.loop.snapshots = SnapshotKeeper(
            store=snapshots, applier=self.applier, runner=self.runner, loop=self.loop, send=self.transport.send
        )
        self.reader = SimRunner(process.loop, process.thread(), host)
        """The thread that reads entries back from the log's files."""
        self.loop.entries = EntryReading(store=self.writer, runner=self.reader, loop=self.loop)
        self._compose_service()

    def _compose_effects(self) -> None:
        world, process, directory = self._world, self.process, self.directory
        thread = self.effects_thread = process.thread()
        """Where effects run, beside the node's own loop."""
        self.resources = {
            name: (QueryableClient if outside.spec.queryable else ResourceClient)(
                outside, process, thread, self.name, self.boot, self.host.chance
            )
            for name, outside in world.resources.items()
        }
        self.runtime = SimRuntime(process.loop, thread)
        self.effects = EffectsCoordinator(
            node_id=self.name,
            holder=f"{self.name}/{directory.instance_id}/{self.boot}/{self.host.chance.randbytes(4).hex()}",
            incarnation=directory.incarnation,
            node_loop=self.loop,
            machine=self.machine,
            resources=self.resources,
            policies={name: outside.spec.policy for name, outside in world.resources.items()},
            activation_policies={name: outside.spec.activation for name, outside in world.resources.items()},
            dispatch_policies={name: outside.spec.dispatch for name, outside in world.resources.items()},
            retention=world.retention,
            runtime=self.runtime,
            clock=self.clock,
            randomness=self.host,
            loop=process.loop,
        )

    def _compose_transport(self) -> None:
        directory = self.directory
        local = LocalNode(
            directory.cluster_id,
            directory.incarnation,
            self.name,
            directory.instance_id,
            client_address(self.name),
            directory.voters,
        )
        acquaintances = Acquaintances(local, directory.known_instances(), directory.remember_instance, self.loop.fail)
        self.transport = SimTransport(
            self._world.network, self.process, local, acquaintances, self.loop, self.loop.fail
        )
        self.loop.turn_away = self.transport.turn_away
        self.loop.transport = self.transport
        first_members = {name: peer_address(name) for name in self._world.first_members if name != self.name}
        self.peers = PeerAddresses(self.raft, first_members, self.transport.set_peers)

    def _compose_service(self) -> None:
        directory = self.directory
        queries = NodeQueries(
            loop=self.loop,
            machine=self.machine,
            identity={
                "node_id": self.name,
                "cluster_id": directory.cluster_id,
                "incarnation": directory.incarnation,
                "boot": self.boot,
            },
            links=self.transport.links,
            resources=self.effects.status,
            waiting_reason=self.effects.waiting_reason,
            leader_address=self._leader_address,
            addresses=self._addresses,
        )
        timers = self.process.loop
        members = MemberCalls(self.loop, timers, leader_address=self._leader_address, addresses=self._addresses)
        self.handover = HandoverCalls(self.loop, timers, self.effects, leader_address=self._leader_address)
        commands = CommandCalls(
            self.loop, timers, self.machine, lambda: self.effects.acting, leader_address=self._leader_address
        )
        self.service = ClientService(
            loop=self.loop,
            machine=self.machine,
            leader_address=self._leader_address,
            queries={**queries.methods(), "registers.read": self.registers.read},
            slow_queries={
                "resource.fences": self.effects.fences,
                **members.methods(),
                **self.handover.methods(),
                **commands.methods(),
            },
        )
        self.divergence = self.loop.divergence = DivergenceWatch(self.loop, self.transport.send)
        for observer in (self.peers, self.effects, self.service, self.divergence):
            self.loop.observe(observer)

    def _leader_address(self, name: str) -> str:
        return client_address(name) if name == self.name else self.transport.client_address(name)

    def _addresses(self) -> dict[str, str]:
        return {**self.peers.current(), self.name: peer_address(self.name)}

    def start(self) -> None:
        """As the real start: listen and dial, then the first turn."""
        self.transport.start()
        self.peers.follow()
        self.loop.start()

    def _synced(self, sequence: int) -> None:
        world = self._world
        world.trace.mix(world.agenda.now_ns, self.host.number, -1, sequence)
        try:
            for look in world.hooks.on_sync:
                look(self, sequence)
        except Exception as error:
            world.fail(error)
            raise

    def state_hash(self) -> str:
        """Of the state machines: equal on two nodes exactly if their states are equal (up to collision)."""
        registers = sorted(self.registers.values.items())
        known = hashlib.blake2b(self.machine.state_hash(), digest_size=16)
        known.update(repr((self.registers.entries, registers)).encode())
        return known.hexdigest()

    # -- what tests and checks look at --------------------------------------------------------------

    @property
    def up(self) -> bool:
        return not self.process.dead

    @property
    def running(self) -> bool:
        return not self.process.dead and not self.process.paused

    @property
    def leads(self) -> bool:
        return not self.process.dead and self.raft.role is Role.LEADER

    @property
    def active(self) -> bool:
        """It leads, and has the fence of every resource."""
        return self.leads and all(each["activation"] == "active" for each in self.effects.status().values())

    def __repr__(self) -> str:
        return f"<{self.name} boot {self.boot} {self.raft.role.value} t{self.raft.current_term}>"


_step = Raft.step


class SimRaft(Raft):
    """The core, watched: every step goes into the trace and to whoever looks on."""

    def watched_by(self, world: Surroundings, node: SimNode) -> None:
        self._world = world
        self._node = node
        self._number = node.host.number
        self._record = world.trace.step
        self._agenda = world.agenda
        self._watched = world.hooks.stepping
        self._before = world.hooks.before_step
        self._looks = world.hooks.on_step

    def step(self, event: Event) -> Effects:
        if self._watched:
            return self._step_watched(event)
        try:
            effects = _step(self, event)
        except Exception:
            self._record(self._agenda.now_ns, self._number, self, event, None)
            raise
        self._record(self._agenda.now_ns, self._number, self, event, effects)
        if effects.role_changes:
            self._world.roles_changed(self._node, effects.role_changes)
        return effects

    def _step_watched(self, event: Event) -> Effects:
        world = self._world
        effects: Effects | None = None
        try:
            for look in self._before:
                look(self._node, event)
            before = summarize(self)
            try:
                effects = _step(self, event)
            finally:
                self._record(world.agenda.now_ns, self._number, self, event, effects)
            for check in self._looks:
                check(self._node, before, event, effects)
            if effects.role_changes:
                world.roles_changed(self._node, effects.role_changes)
        except Exception as error:
            # The node would end because of it, but not always the run.
            world.fail(error)
            raise
        return effects


class SimApplier(Applier):
    """The applier, watched."""

    def watched_by(self, world: Surroundings, node: SimNode) -> None:
        self._world = world
        self._node = node

    def apply(self, entries: list[Entry]) -> list[Any]:
        results = super().apply(entries)
        world = self._world
        contents = crc32(b"".join([entry.data for entry in entries]))
        world.trace.mix(world.agenda.now_ns, self._node.host.number, -2, entries[-1].index, contents)
        try:
            for look in world.hooks.on_applied:
                look(self._node, entries, results)
        except Exception as error:
            world.fail(error)
            raise
        return results
