"""All properties at once: what happens in a world is put down, and handed to whoever judges it.

with World(seed) as world:
    properties = all_properties(world)
    world.start_all()
    ...
    final_scan(world)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...raft.core.configuration import Configuration
from ...raft.core.entry import Entry
from ...raft.core.events import Durable, Effects, Event, Propose, Receive, Role, Tick
from ...raft.core.invariants import Summary
from ...raft.core.messages import AppendEntries, AppendEntriesResponse, Message, StateDigest
from ...raft.core.token import FencingToken
from ...raft.effects.resources.memory import MemoryStore
from ...raft.ports import Answer
from ..sim.jobs import Invocation, Job, Reply
from ..sim.observer import Observer
from ..sim.resource import OutsideResource, ResourceCall
from .acknowledged import Acknowledged
from .activation_barrier import ActivationBarrier
from .authority import Authority
from .bounded_concurrency import BoundedConcurrency
from .committed_by_quorum import CommittedByQuorum
from .committed_for_ever import CommittedForEver
from .configuration import ConfigurationInForce
from .core import Core
from .durable_before_said import DurableBeforeSaid
from .election_safety import ElectionSafety
from .equal_state import EqualState
from .f1_token_order import TokenOrder
from .f2_effect_once import EffectOnce
from .f3_effect_committed import EffectCommitted
from .f4_outcome_recorded import OutcomeRecorded
from .f5_token_elected import TokenElected
from .f6_lane_order import LaneOrder
from .f7_first_result import FirstResult
from .f8_mark_durable import MarkDurable
from .f9_stale_means_higher import StaleMeansHigher
from .leader_append_only import LeaderAppendOnly
from .leader_completeness import LeaderCompleteness
from .lease import Lease
from .ledger import Commit, Ledger
from .log_matching import LogMatching
from .monotone import Monotone
from .observed import Leadership, ObservedNode, runs_of
from .one_change_in_flight import OneChangeInFlight
from .outbox_rules import OutboxRules
from .property import HOOKS, DiskFate, Property
from .reads import Reads
from .reference import Reference
from .snapshot_equals_replay import SnapshotEqualsReplay
from .state_machine_safety import StateMachineSafety
from .watch import is_settled, note_contact, state_of, watched

if TYPE_CHECKING:
    from ..sim.node import SimNode
    from ..sim.world import World


_EVERY_DAY = (Receive, Tick, Durable, Propose)


class Properties(Observer):
    """Looks at a world from its beginning on. A property that does not hold ends the run."""

    def __init__(self, world: World) -> None:
        self.world = world
        ledger = self.ledger = Ledger(world)
        reference = self.reference = Reference(ledger)
        self.lease = Lease(ledger)
        self.reads = Reads(ledger)
        self.acknowledged = Acknowledged(ledger, reference)
        self.equal_state = EqualState(ledger, reference)
        self.all: list[Property] = [
            Core(ledger),
            Monotone(ledger),
            LogMatching(ledger),
            ElectionSafety(ledger),
            LeaderAppendOnly(ledger),
            StateMachineSafety(ledger),
            CommittedByQuorum(ledger),
            CommittedForEver(ledger),
            LeaderCompleteness(ledger),
            DurableBeforeSaid(ledger),
            ConfigurationInForce(ledger),
            OneChangeInFlight(ledger),
            SnapshotEqualsReplay(ledger, reference),
            self.equal_state,
            self.acknowledged,
            self.lease,
            self.reads,
            Authority(ledger),
            ActivationBarrier(ledger),
            OutboxRules(ledger, reference),
            BoundedConcurrency(ledger),
            TokenOrder(ledger),
            EffectOnce(ledger),
            EffectCommitted(ledger, reference),
            OutcomeRecorded(ledger, reference),
            TokenElected(ledger),
            LaneOrder(ledger),
            FirstResult(ledger),
            MarkDurable(ledger),
            StaleMeansHigher(ledger),
        ]
        self.jobs: dict[Job, None] = {}
        """Everything that clients have asked for, in order."""
        self.steps_looked_at = 0
        """Steps for which a glance was not enough."""
        self._hooks: dict[str, list[Callable[..., None]]] = {
            hook: [getattr(each, hook) for each in self.all if getattr(type(each), hook) is not getattr(Property, hook)]
            for hook in HOOKS
        }
        # The ones that are told most often.
        hooks = self._hooks
        self._said, self._stepped, self._applied = hooks["said"], hooks["stepped"], hooks["applied"]
        self._wrote, self._syncing, self._commits = hooks["wrote"], hooks["syncing"], hooks["committed"]
        self._nodes = ledger.nodes
        self.known_before: dict[str, MemoryStore] = {}
        """What resources held when the world began, where that is anything."""
        for resource in world.resources.values():
            if resource.store.fences or resource.store.operations:
                self.known_before[resource.name] = resource.backup()
                self._tell("resource_restored", resource)

    def add(self, looks: Property) -> None:
        """Have somebody else look on as well, from now on."""
        self.all.append(looks)
        for hook, hear in self._hooks.items():
            if getattr(type(looks), hook) is not getattr(Property, hook):
                hear.append(getattr(looks, hook))

    def _tell(self, hook: str, *arguments: Any) -> None:
        for hear in self._hooks[hook]:
            hear(*arguments)

    # -- nodes come and go --------------------------------------------------------------------------

    def node_started(self, node: SimNode) -> None:
        seen = self._nodes.get(node.name)
        if seen is None:
            seen = self._nodes[node.name] = ObservedNode(node)
        first = seen.boot == 0
        seen.begin(node, self.ledger.now_ns)
        if first:
            self._adopt(seen)
        self._tell("started", seen)
        seen.pending.clear()
        seen.settled = is_settled(node.raft)
        node.raft.step = watched(seen, self._look)  # type: ignore[method-assign, assignment]

    def _adopt(self, seen: ObservedNode) -> None:
        """A node that begins with a history: what its disk calls committed is."""
        raft, ledger, image = seen.raft, self.ledger, seen.asked
        if raft.commit_index <= ledger.last_index:
            return
        if image.previous_index > ledger.last_index:
            # What lies between is not known; what was known before it is covered by this node's snapshot.
            ledger.begin_at(image.previous_index, image.previous_term)
            self.reference.begin_at(seen.applied, seen.node.applier)
        elif seen.applied > self.reference.start_index and seen.applied > ledger.base and not self.reference.applied:
            self.reference.begin_at(seen.applied, seen.node.applier)
        entries = image.slice(ledger.last_index + 1, raft.commit_index)
        if entries:
            ledger.extend(entries, entries[-1].term)
        ledger.adopted_to = ledger.last_index

    def node_ended(self, node: SimNode, why: str) -> None:
        seen = self._nodes[node.name]
        seen.end()
        self._tell("ended", seen, why)

    def disk_changed(self, name: str, fate: DiskFate) -> None:
        """Declare what is done to the disk of a node while it is down, now or before its next start."""
        seen = self._nodes.get(name)
        if seen is None:
            return
        self._tell("disk_changed", seen, fate)
        seen.lost = seen.disk
        seen.fate = fate
        seen.pending.clear()

    # -- steps --------------------------------------------------------------------------------------

    def _look(self, node: ObservedNode, event: Event, effects: Effects) -> None:
        """A step of a core that has changed something, or may have."""
        self.steps_looked_at += 1
        try:
            self._judge(node, event, effects)
        except Exception as error:
            # The node would end because of it, but not always the run.
            self.world.hooks.failed(error)
            raise
        raft = node.raft
        node.remember(state_of(raft))
        node.settled = is_settled(raft) and node.restoring is None

    def _judge(self, node: ObservedNode, event: Event, effects: Effects) -> None:
        raft, before = node.raft, node.before()
        if node.restoring is not None:
            snapshot, node.restoring = node.restoring, None
            self._tell("restored", node, snapshot)
            node.applied = snapshot.last_index
        if type(event) is Receive:
            note_contact(node, event)
        for write in effects.persist:
            node.asked.take(write)
            node.pending.append(write)
        if raft.commit_index > before.commit_index:
            self._committed(node, before)
        for write in effects.persist:
            for hear in self._wrote:
                hear(node, write, before)
        if raft.snapshot is not node.disk.snapshot:
            # It was taken or received, and is durable: else the core would not have heard of it.
            node.asked.snapshot = node.disk.snapshot = raft.snapshot
        for hear in self._stepped:
            hear(node, before, event, effects)
        if type(event) not in _EVERY_DAY or effects.reads or effects.take_snapshot is not None:
            self._tell("special", node, before, event, effects)
        if raft.configuration is not node.in_force or node.asked.configurations[-1] is not node.newest:
            self._configured(node)
        if raft.role is not before.role:
            self._tell("changed_role", node, before)
        if raft.role is Role.LEADER and (before.role is not Role.LEADER or before.current_term != raft.current_term):
            self._elected(node)
        if effects.restore is not None:
            node.restoring = effects.restore

    def _configured(self, node: ObservedNode) -> None:
        node.in_force, node.newest = node.raft.configuration, node.asked.configurations[-1]
        node.renews_until = 0
        self._tell("configured", node)

    def _committed(self, node: ObservedNode, before: Summary) -> None:
        ledger, raft = self.ledger, node.raft
        for hear in self._commits:
            hear(node, before)
        if raft.commit_index <= ledger.last_index:
            return
        entries = node.asked.slice(ledger.last_index + 1, raft.commit_index)
        self._tell("first_committed", node, entries, before)
        ledger.extend(entries, raft.current_term)
        configuration: Configuration = before.configuration
        ledger.commit = Commit(raft.commit_index, entries[-1].term, configuration, str(node))

    def _elected(self, node: ObservedNode) -> None:
        raft = node.raft
        leadership = Leadership(
            raft.current_term, node.name, node.boot, raft.term_start_index, runs_of(node.asked), self.ledger.now_ns
        )
        self._tell("elected", node, leadership)
        self.ledger.leaderships[raft.current_term] = leadership

    # -- disks, messages, state machines ------------------------------------------------------------

    def on_sync(self, node: SimNode, sequence: int) -> None:
        seen = self._nodes[node.name]
        pending = seen.pending
        while pending and pending[0].sequence <= sequence:
            write = pending.popleft()
            for hear in self._syncing:
                hear(seen, write)
            seen.synced(write)

    def on_sent(self, source: str, to: str, message: Message) -> None:
        node = self._nodes[source]
        kind = type(message)
        if kind is AppendEntries:
            if message.term <= node.spoken_term and message.sent_at < node.renews_until:  # type: ignore[union-attr]
                return
        elif kind is StateDigest:
            return  # It is about no term and no entry of the sender's.
        elif (
            kind is AppendEntriesResponse
            and message.term == node.vouched_term
            and message.match_index <= node.vouched_index  # type: ignore[union-attr]
        ):
            return
        for judge in self._said:
            judge(node, to, message)

    def on_applied(self, node: SimNode, entries: list[Entry], results: list[Any]) -> None:
        seen = self._nodes[node.name]
        for hear in self._applied:
            hear(seen, entries, results)
        seen.applied = entries[-1].index

    # -- resources and clients ----------------------------------------------------------------------

    def on_effect(self, node: str, resource: str, token: FencingToken) -> None:
        try:
            self._tell("leaving", self._nodes[node], resource, token)
        except Exception as error:
            # The dispatcher would take it for trouble with the resource.
            self.world.hooks.failed(error)
            raise

    def on_resource(self, call: ResourceCall) -> None:
        resource = self.world.resources[call.resource]
        for hear in self._hooks["called"]:
            hear(call, resource)

    def on_restored(self, resource: OutsideResource) -> None:
        self._tell("resource_restored", resource)

    def on_invoked(self, invocation: Invocation) -> None:
        self.jobs.setdefault(invocation.job)
        self._tell("invoked", invocation)

    def on_answered(self, invocation: Invocation, answer: Answer | Reply | None) -> None:
        self._tell("answered", invocation, answer)

    # -- the end ------------------------------------------------------------------------------------

    def finished(self) -> None:
        """What the properties have to say in the end. See ``ending`` for all of it."""
        self._tell("finished")


def all_properties(world: World) -> Properties:
    """Have all properties look at ``world``, whose nodes must not have been started yet."""
    if any(host.node is not None for host in world.hosts.values()):
        raise AssertionError("properties have to see a world from its beginning on")
    properties = Properties(world)
    world.hooks.add(properties)
    return properties


def properties_of(world: World) -> Properties:
    """Those that look at ``world``. Raises AssertionError if none do."""
    for hear in world.hooks.node_started:
        owner = getattr(hear, "__self__", None)
        if isinstance(owner, Properties):
            return owner
    raise AssertionError("no properties look at this world")
