"""The composition root: every part of a running node is made here and handed what it needs."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any

import structlog

from ..raft.core.configuration import Configuration
from ..raft.core.entry import EntryKind, Snapshot
from ..raft.core.errors import FencepostError
from ..raft.core.options import SECOND, Options
from ..raft.core.step import Raft
from ..raft.effects.coordinator import EffectsCoordinator
from ..raft.effects.policy import ActivationPolicy, DispatchPolicy, OnDead, RetryPolicy
from ..raft.node.applier import Applier
from ..raft.node.command_log import CommandLog, Lines
from ..raft.node.commands import CommandCalls
from ..raft.node.divergence import DivergenceWatch
from ..raft.node.entries import EntryReading
from ..raft.node.handover import HandoverCalls
from ..raft.node.loop import RaftLoop
from ..raft.node.measures import NodeMeasures
from ..raft.node.members import MemberCalls
from ..raft.node.plainlog import PlainLog
from ..raft.node.queries import NodeQueries
from ..raft.node.reading import ReadingCalls
from ..raft.node.runner import ThreadRunner
from ..raft.node.service import ClientService
from ..raft.node.snapshots import SnapshotKeeper
from ..raft.node.system import SystemClock, SystemRandomness
from ..raft.outbox.codec import Retention
from ..raft.outbox.machine import OutboxMachine
from ..storage.identity import DataDirectory
from ..storage.log_store import FileLogStore
from ..storage.recovery import Recovered, Window
from ..storage.snapshots import FileSnapshotStore, check_log_follows
from ..transport.handshake import LocalNode
from ..transport.listener import ClientListener
from ..transport.peers import PeerTransport
from .compose_resources import make_resources
from .config import NodeConfiguration, definitions_digest
from .parts import Parts, own_thread
from .peer_addresses import PeerAddresses

if TYPE_CHECKING:
    from ..transport.http_server import HttpServer

_LOG = structlog.get_logger("fencepost")

DRAIN_TIMEOUT_S = 3.0
"""How long a planned stop waits for effects under way. After it their outcome is the fence's business."""
HAND_OVER_TIMEOUT_S = 1.5
"""How long it waits, after that, for another node to take over. Whoever stops without is found out by the
others within their election timeout."""
CLOSE_TIMEOUT_S = 2.0


async def run_node(configuration: NodeConfiguration) -> int:
    """Run one node until SIGTERM or SIGINT, or until it fails. Returns the process's exit code.

    Settings of the whole process are made here and nowhere else: it is this node's alone.
    Raises ConfigurationError or StorageError when the node cannot even start.
    """
    loop = asyncio.get_running_loop()
    # Effects run on another loop of the same kind: most of what one exchange with a server costs is the loop's.
    parts = Parts(runtime=partial(own_thread, new_loop=type(loop)))
    node = ComposedNode(configuration, parts=parts, while_loading=without_collections)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        # Before anything is served: with a million operations it takes a second.
        settle_process()
        await node.start()
        stopping = loop.create_task(stop.wait())
        await asyncio.wait((stopping, node.loop.failed), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if node.loop.failed.done():
            error = node.loop.failed.result()
            return error.exit_code if isinstance(error, FencepostError) else 1
        await node.drain()
        return 0
    finally:
        await node.close()


class ComposedNode:
    """All parts of one node. ``start`` opens them from the disk outwards, ``close`` the other way round."""

    def __init__(
        self,
        configuration: NodeConfiguration,
        *,
        parts: Parts | None = None,
        while_loading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """``parts`` are an embedder's own. ``while_loading()`` is entered while the log is opened and, on
        another thread, while a snapshot of another node is read in."""
        self.configuration = configuration
        self._parts = Parts() if parts is None else parts
        self._while_loading = while_loading
        self._closed: set[str] = set()
        """The resources that are."""
        self.directory = DataDirectory.open(
            configuration.node.data_dir,
            cluster_id=configuration.cluster.id,
            node_id=configuration.node.id,
            voters=configuration.voters,
            incarnation=configuration.cluster.incarnation,
        )
        try:
            self._compose()
        except BaseException:
            self.directory.close()
            raise

    def _compose(self) -> None:
        """From the disk outwards; each part gets what was made before it."""
        configuration, directory, parts = self.configuration, self.directory, self._parts
        event_loop = asyncio.get_running_loop()
        clock, randomness = SystemClock(), SystemRandomness()
        # Two processes over copies of one directory count their boots alike: chance tells them apart.
        process = secrets.token_hex(4)
        store = FileSnapshotStore.open(directory, kept=configuration.snapshots.kept)
        snapshot = store.newest()
        with self._while_loading():
            self._log_store, recovered = FileLogStore.open(
                directory,
                segment_bytes=configuration.storage.segment_bytes,
                low_bytes=configuration.storage.low_bytes,
                window=Window(configuration.storage.window, configuration.storage.window_payload_bytes),
            )
        check_log_follows(directory.snapshots_path, snapshot, recovered)
        _LOG.info(
            "log recovered",
            last_index=recovered.last_index,
            in_memory=len(recovered.entries),
            term=recovered.hard_state.term,
            torn_bytes=recovered.torn_bytes,
            snapshot=0 if snapshot is None else snapshot.last_index,
            boot=directory.boot,
        )
        machine = self.machine = OutboxMachine()
        embedded = PlainLog() if parts.machine is None else parts.machine
        applier = Applier({EntryKind.OUTBOX: machine, EntryKind.EMBEDDED: embedded})
        if snapshot is not None:
            with self._while_loading():
                applier.adopt(applier.prepare(store.contents(snapshot)), snapshot.last_index)
        options = _options(configuration, lease_reads=parts.lease_reads)
        raft = _make_raft(options, directory, recovered, snapshot, clock, randomness)
        self.loop = RaftLoop(raft=raft, log_store=self._log_store, applier=applier, clock=clock, loop=event_loop)
        self.resources = {**make_resources(configuration, os.environ), **parts.resources}
        self._runtime = parts.runtime(event_loop, self._close_resources)
        self.effects = EffectsCoordinator(
            node_id=directory.node_id,
            holder=f"{directory.node_id}/{directory.instance_id}/{directory.boot}/{process}",
            incarnation=directory.incarnation,
            node_loop=self.loop,
            machine=machine,
            resources=self.resources,
            policies={**_retry_policies(configuration), **parts.retry_policies},
            activation_policies={**_activation_policies(configuration), **parts.activation_policies},
            dispatch_policies={**_dispatch_policies(configuration), **parts.dispatch_policies},
            retention=Retention(configuration.outbox.retention_ns, configuration.outbox.retention_count),
            runtime=self._runtime,
            clock=clock,
            randomness=randomness,
            loop=event_loop,
        )
        identity = LocalNode(
            directory.cluster_id,
            directory.incarnation,
            directory.node_id,
            directory.instance_id,
            configuration.node.client,
            directory.voters,
            directory.boot,
            process,
        )
        self.transport = PeerTransport(
            identity,
            configuration.node.peer,
            {},
            self.loop,
            known_instances=directory.known_instances(),
            remember_instance=directory.remember_instance,
            randomness=randomness,
            clock=clock,
            on_failure=self.loop.fail,
        )
        self.loop.turn_away = self.transport.turn_away
        self._peers = PeerAddresses(raft, configuration.peers, self.transport.set_peers)
        self._peers.warn()
        self._peers.follow()
        self.loop.transport = self.transport
        self._entries = self.loop.entries = EntryReading(
            store=self._log_store, runner=ThreadRunner(event_loop, "fencepost-entries"), loop=self.loop
        )
        self._keeper = self.loop.snapshots = SnapshotKeeper(
            store=store,
            applier=applier,
            runner=ThreadRunner(event_loop, "fencepost-snapshots"),
            loop=self.loop,
            send=self.transport.send,
            while_loading=self._while_loading,
        )
        self.divergence = self.loop.divergence = DivergenceWatch(self.loop, self.transport.send)
        self._handover = HandoverCalls(self.loop, event_loop, self.effects, leader_address=self._leader_address)
        self._reading = self._make_reading(event_loop, process)
        self.service = self._make_service(machine)
        measures = NodeMeasures()
        log = CommandLog(self.loop, Lines(configuration.node.log_commands))
        for observer in (self._peers, self.effects, self.service, self.divergence, measures, log):
            self.loop.observe(observer)
        self.gateway = self._make_gateway(measures, clock) if configuration.node.http else None
        self._listener = ClientListener(
            configuration.node.client,
            self.service,
            identity,
            connections_max=configuration.limits.client_connections,
            unread_bytes_max=configuration.limits.client_buffer_bytes,
        )

    def _make_gateway(self, measures: NodeMeasures, clock: SystemClock) -> HttpServer:
        # Here and not above: a node without an `http` address loads neither server nor metrics.
        from .compose_http import ComposedView, make_gateway
        from .metrics import Sources

        view = ComposedView(
            self.loop, self.effects, self.service, self._leader_address, lambda: self._log_store.status().low
        )
        sources = Sources(
            loop=self.loop,
            machine=self.machine,
            effects=self.effects,
            measures=measures,
            service=self.service,
            clock=clock,
            disk=self._disk,
            links=self._links,
            identity={
                "node": self.directory.node_id,
                "cluster": self.directory.cluster_id,
                "incarnation": str(self.directory.incarnation),
                "version": metadata.version("fencepost"),
                "definitions_digest": definitions_digest(self.configuration, self._parts.definitions),
            },
        )
        return make_gateway(self.configuration.node.http, view, sources)

    def _make_service(self, machine: OutboxMachine) -> ClientService:
        directory = self.directory
        queries = NodeQueries(
            loop=self.loop,
            machine=machine,
            identity={
                "node_id": directory.node_id,
                "cluster_id": directory.cluster_id,
                "incarnation": directory.incarnation,
                "version": metadata.version("fencepost"),
                "boot": directory.boot,
                "definitions_digest": definitions_digest(self.configuration, self._parts.definitions),
            },
            links=self._links,
            resources=self.effects.status,
            waiting_reason=self.effects.waiting_reason,
            leader_address=self._leader_address,
            addresses=self._addresses,
            disk=self._disk,
        )
        members = MemberCalls(
            self.loop,
            asyncio.get_running_loop(),
            leader_address=self._leader_address,
            addresses=self._addresses,
        )
        commands = CommandCalls(
            self.loop,
            asyncio.get_running_loop(),
            machine,
            lambda: self.effects.acting,
            leader_address=self._leader_address,
        )
        return ClientService(
            loop=self.loop,
            machine=machine,
            leader_address=self._leader_address,
            queries=queries.methods(),
            slow_queries={
                "resource.fences": self.effects.fences,
                **self.effects.modes.methods(),
                **members.methods(),
                **self._handover.methods(),
                **self._reading.methods(),
                **commands.methods(),
            },
        )

    def _make_reading(self, event_loop: asyncio.AbstractEventLoop, process: str) -> ReadingCalls:
        directory = self.directory
        return ReadingCalls(
            self.loop,
            event_loop,
            ThreadRunner(event_loop, "fencepost-reading"),
            read_log=self._log_store.read,
            identity={
                "cluster_id": directory.cluster_id,
                "incarnation": directory.incarnation,
                "node_id": directory.node_id,
                "version": metadata.version("fencepost"),
            },
            session_prefix=process,
            leader_address=self._leader_address,
        )

    def _addresses(self) -> dict[str, str]:
        """Peer addresses by node id, this node's own among them."""
        return {**self._peers.current(), self.directory.node_id: self.configuration.node.peer}

    def _disk(self) -> dict[str, Any]:
        found = self._log_store.status()
        return {
            "free_bytes": found.free_bytes,
            "low": found.low,
            "reserve_held": found.reserve_held,
            "syncs": found.syncs,
            "written_bytes": found.written_bytes,
            "segments": found.segment - found.first_segment + 1,
        }

    def _links(self) -> dict[str, dict[str, Any]]:
        return {
            peer: {
                "connected": link.connected,
                "client_address": link.client_address,
                "dropped": link.dropped,
                "queued_bytes": link.queued_bytes,
                "last_error": link.last_error,
            }
            for peer, link in self.transport.links().items()
        }

    def _leader_address(self, node_id: str) -> str:
        if node_id == self.directory.node_id:
            return self.configuration.node.client
        return self.transport.client_address(node_id)

    async def start(self) -> None:
        await self.transport.start()
        await self._listener.start()
        if self.gateway is not None:
            await self.gateway.start()
        self.loop.start()
        _LOG.info(
            "node started",
            node=self.directory.node_id,
            peer=self.configuration.node.peer,
            client=self._listener.address,
            http="" if self.gateway is None else self.gateway.address,
            created=self.directory.created,
        )
        if not self.loop.raft.configuration.members:
            word = f"fencepost member add {self.directory.node_id} {self.configuration.node.peer}"
            _LOG.info("waits to be added to its cluster", next_step=word)

    async def drain(self) -> None:
        """The first part of a planned stop: take nothing new in, finish what is under way, hand leadership over.
        Bounded, so that neither a hung effect nor a successor that does not come can keep the process (S45, S49,
        S58)."""
        self.service.stop_admitting()
        if not await self.effects.drain(DRAIN_TIMEOUT_S):
            _LOG.warning("effects still under way at the end of the drain", seconds=DRAIN_TIMEOUT_S)
        if self.loop.raft.configuration.voters != (self.directory.node_id,):
            await self._handover.hand_over(HAND_OVER_TIMEOUT_S)

    async def close(self) -> None:
        """Authority first, then connections, then effects, the disk last. Every stage is bounded."""
        self.loop.stop()
        for close in (
            *(() if self.gateway is None else (self.gateway.close,)),
            self._listener.close,
            self.transport.close,
            self._runtime.close,
            self._reading.close,
            self._keeper.close,
            self._entries.close,
        ):
            await _bounded(close.__qualname__, close())
        await self._close_resources()
        # On a thread of its own: a disk that hangs must not keep the process from ending.
        await _bounded("log", asyncio.to_thread(self._log_store.close))
        self.directory.close()

    async def _close_resources(self) -> None:
        """On the effects' loop, when nothing runs there any more; what that loop was too busy for, afterwards."""
        for name in [name for name in self.resources if name not in self._closed]:
            await _bounded(f"resource {name}", self.resources[name].close())
            self._closed.add(name)


def settle_process() -> None:
    """Settings of the whole process, once all of a node is made.

    What was made so far lives as long as the process: keep full collections from walking it, and make them
    rarer. A collection stops the loop for as long as it lasts (S40). And the log's thread needs the interpreter
    twice a write, while a turn of the node's loop may hold it for milliseconds. Measured: half of the default's
    time per durable batch while the loop is busy.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 1000)
    sys.setswitchinterval(0.0005)


@contextmanager
def without_collections() -> Iterator[None]:
    """While a state is loaded hundreds of thousands of objects are made that all stay. To look for garbage among
    them stops the loop, measured: for 60 ms at a time, and finds none (S40)."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


async def _bounded(what: str, closing: Any) -> None:
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await closing
    except TimeoutError:
        _LOG.warning("close took too long and was left", part=what, seconds=CLOSE_TIMEOUT_S)
    except Exception:  # One part that cannot close must not keep the others from closing.
        _LOG.exception("close failed", part=what)


def _make_raft(
    options: Options,
    directory: DataDirectory,
    recovered: Recovered,
    snapshot: Snapshot | None,
    clock: SystemClock,
    randomness: SystemRandomness,
) -> Raft:
    return Raft(
        node_id=directory.node_id,
        configuration=Configuration(tuple(sorted(directory.voters))),
        hard_state=recovered.hard_state,
        entries=recovered.entries,
        commit_index=recovered.commit_index,
        options=options,
        between=randomness.between,
        now=clock.monotonic_ns(),
        snapshot=snapshot,
        previous_index=recovered.previous_index,
        previous_term=recovered.previous_term,
        older=recovered.older,
    )


def _options(configuration: NodeConfiguration, *, lease_reads: bool) -> Options:
    election_timeout = configuration.raft.election_timeout_ns
    return Options(
        election_timeout=election_timeout,
        heartbeat_interval=configuration.raft.heartbeat_ns,
        stall_bound=election_timeout,
        # A target that has not taken over by then would have been missed as a leader (S08).
        transfer_timeout=election_timeout,
        chunk_timeout=max(election_timeout, SECOND),
        snapshot_entries=configuration.snapshots.entries,
        snapshot_bytes=configuration.snapshots.payload_bytes,
        retained_entries=configuration.snapshots.retained,
        retained_bytes=configuration.snapshots.retained_payload_bytes,
        window_entries=configuration.storage.window,
        window_bytes=configuration.storage.window_payload_bytes,
        chunk_bytes=configuration.snapshots.chunk_bytes,
        lease_reads=lease_reads,
    )


def _activation_policies(configuration: NodeConfiguration) -> dict[str, ActivationPolicy]:
    return {
        name: ActivationPolicy(settings.required, settings.activation_timeout_ns)
        for name, settings in configuration.resources.items()
    }


def _dispatch_policies(configuration: NodeConfiguration) -> dict[str, DispatchPolicy]:
    return {
        name: DispatchPolicy(
            concurrency=settings.calls_at_once,
            slow_start=settings.slow_start,
            horizon_ns=settings.dispatch_horizon_ns,
            on_dead=OnDead(settings.on_dead_name),
        )
        for name, settings in configuration.resources.items()
    }


def _retry_policies(configuration: NodeConfiguration) -> dict[str, RetryPolicy]:
    return {
        name: RetryPolicy(
            max_attempts=settings.max_attempts,
            backoff_ns=settings.backoff_ns,
            backoff_max_ns=settings.backoff_max_ns,
        )
        for name, settings in configuration.resources.items()
    }
