"""The one loop of a node: it feeds the pure core and carries out what the core asks for.

Everything that arrives is only put into an inbox; one ``_run`` per turn of the event loop drains
all of it, so that a busy node makes one write, one frame per peer and one answer per client for
many commands. No task, future or thread hop is spent on a single command.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol

import structlog

from ..core.entry import Entry
from ..core.errors import FencepostError, StorageError
from ..core.events import (
    Accepted,
    Campaign,
    Durable,
    Effects,
    Event,
    Propose,
    Receive,
    Refused,
    Role,
    RoleChange,
    Send,
    StepDown,
    StorageFailed,
    Tick,
    Unreachable,
)
from ..core.messages import Message
from ..core.step import Raft
from ..ports import Clock, LogStore, Transport
from .applier import Applier
from .waiters import ProposalSink, Waiters

_P = ParamSpec("_P")
_LOG = structlog.get_logger("fencepost.node")

WRITES_UNDER_WAY_MAX = 2
"""Proposals wait while this many writes of the leader are under way (group commit)."""


class LoopObserver(Protocol):
    """What lives beside the core on the node's loop: hears of roles and of what was applied."""

    def role_changed(self, change: RoleChange) -> None: ...

    def applied(self, entries: list[Entry], results: list[Any]) -> None: ...

    def before_turn_ends(self, now: int) -> None:
        """Called once at the end of every turn in which something happened."""

    def stopped(self) -> None:
        """The node has failed or is closing: give up every authority at once."""


class RaftLoop:
    """Owns the core, its timer, the writes under way and the waiters.

    ``transport`` is set after construction because the transport needs this object as its handler.
    ``failed`` is completed with the first error that ends the node; whoever composed it must exit.
    """

    def __init__(
        self,
        *,
        raft: Raft,
        log_store: LogStore,
        applier: Applier,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.raft = raft
        self.applier = applier
        self.waiters = Waiters()
        self.failed: asyncio.Future[BaseException] = loop.create_future()
        self.transport: Transport | None = None
        self.longest_lag_ns = 0
        self.last_leader: tuple[str, int] | None = None
        """The leader before there was none, and when it was last heard (monotonic nanoseconds)."""
        self._leader = ""
        self._log_store = log_store
        self._clock = clock
        self._loop = loop
        self._observers: list[LoopObserver] = []
        self._inbox: list[Event] = []
        self._proposals: list[tuple[int, bytes]] = []
        self._proposal_bytes = 0
        self._proposal_batches: list[tuple[ProposalSink, Sequence[Any], int]] = []
        self._internal_proposals: list[tuple[int, bytes]] = []
        self._internal_batches: list[tuple[ProposalSink, Sequence[Any], int]] = []
        self._held: deque[Send] = deque()
        self._durable_sequence = 0
        self._scheduled = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._expire_due = False
        self._cluster_ahead_ns = clock.time_ns() - clock.monotonic_ns()

    # -- life -------------------------------------------------------------------------------------

    def observe(self, observer: LoopObserver) -> None:
        self._observers.append(observer)

    def start(self) -> None:
        self._log_store.start(self._on_durable, self._on_storage_failure)
        self._inbox.append(Tick(self._clock.monotonic_ns()))
        self._wake()

    def stop(self) -> None:
        """Stop acting. Idempotent. What is waiting hears ``unknown``."""
        if self._stopped:
            return
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        batches = self._proposal_batches + self._internal_batches
        self._proposal_batches, self._internal_batches = [], []
        self._proposals, self._internal_proposals, self._inbox = [], [], []
        endings: list[Callable[[], None]] = [self.waiters.abandon]
        endings += [functools.partial(sink.refused, keys, "NOT_LEADER", "") for sink, keys, _ in batches]
        # Last: they send the answers that the lines above have made.
        endings += [observer.stopped for observer in self._observers]
        for end in endings:
            try:
                end()
            except Exception as error:  # Whoever cannot hear of the end must not keep the others from it.
                _LOG.exception("raised while the node was stopping")
                if not self.failed.done():
                    self.failed.set_result(error)

    def fail(self, error: BaseException) -> None:
        """End the node because of ``error``. The first one counts."""
        if not self.failed.done():
            _LOG.error("node failed", error=str(error), code=getattr(error, "code", type(error).__name__))
            self.failed.set_result(error)
        self.stop()

    @property
    def stopped(self) -> bool:
        """The node has failed or is closing; it makes no turn any more."""
        return self._stopped

    def guarded(self, callback: Callable[_P, None]) -> Callable[_P, None]:
        """``callback`` for a timer or a completion: what it raises there ends the node (S41)."""

        def call(*arguments: _P.args, **named: _P.kwargs) -> None:
            try:
                callback(*arguments, **named)
            except Exception as error:  # A bug: swallowed by the event loop it would end nothing and be seen by nobody.
                _LOG.exception("callback raised")
                self.fail(error)

        return call

    # -- what arrives -----------------------------------------------------------------------------

    def now(self) -> int:
        return self._clock.monotonic_ns()

    def receive(self, source: str, message: Message) -> None:
        if self._stopped:
            return
        self._inbox.append(Receive(self._clock.monotonic_ns(), source, message))
        self._wake()

    def unreachable(self, peer: str) -> None:
        if self._stopped:
            return
        self._inbox.append(Unreachable(self._clock.monotonic_ns(), peer))
        self._wake()

    def propose(self, kind: int, data: Sequence[bytes], sink: ProposalSink, keys: Sequence[Any]) -> None:
        """Propose entries for a client; ``sink`` hears what becomes of them, by ``keys`` (one an entry)."""
        if self._stopped:
            sink.refused(keys, "NOT_LEADER", "")
            return
        if self._proposal_bytes >= self.raft.options.uncommitted_bytes_max:
            # What waits for writes under way is as little bounded as what waits for its commit.
            sink.refused(keys, "BUSY", "")
            return
        self._proposal_bytes += sum(map(len, data))
        self._proposals.extend([(kind, item) for item in data])
        self._proposal_batches.append((sink, keys, len(data)))
        self._wake()

    def propose_internal(self, kind: int, data: Sequence[bytes], sink: ProposalSink, keys: Sequence[Any]) -> None:
        """Propose entries of the leader's own, which finish what is in the log: never refused as BUSY."""
        if self._stopped:
            sink.refused(keys, "NOT_LEADER", "")
            return
        self._internal_proposals.extend([(kind, item) for item in data])
        self._internal_batches.append((sink, keys, len(data)))
        self._wake()

    def step_down(self, reason: str) -> None:
        self._inbox.append(StepDown(self._clock.monotonic_ns(), reason))
        self._wake()

    def campaign(self) -> None:
        self._inbox.append(Campaign(self._clock.monotonic_ns()))
        self._wake()

    def cluster_time_ns(self) -> int:
        """Cluster time as this leader stamps it now, nanoseconds since the Unix epoch.

        It starts where the log ends and goes on with the monotonic clock: neither a wall clock that
        is set nor one behind the predecessor's makes a deadline in the log come early or late (S46).
        """
        return self._clock.monotonic_ns() + self._cluster_ahead_ns

    def holds_lease(self) -> bool:
        """Whether this node leads and a quorum has followed it within the election timeout."""
        return not self._stopped and self.raft.holds_lease(self._clock.monotonic_ns())

    def term_start_index(self) -> int:
        return self.raft.term_start_index

    def last_leader_contact_ns(self) -> int:
        return max(self.raft.last_leader_contact, 0)

    def wake(self) -> None:
        """Make a turn although nothing has arrived: an observer has something to do."""
        self._wake()

    def _wake(self) -> None:
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _on_durable(self, sequence: int) -> None:
        """On the log store's thread: one hop per sync, however many entries it covered."""
        self._call_threadsafe(self._durable, sequence)

    def _on_storage_failure(self, error: StorageError) -> None:
        self._call_threadsafe(self._storage_failed, error)

    def _call_threadsafe(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            # The loop has been closed: the process is on its way out and nobody can be told.
            _LOG.debug("completion after the loop has closed")

    def _durable(self, sequence: int) -> None:
        if self._stopped:
            return
        self._inbox.append(Durable(self._clock.monotonic_ns(), sequence))
        # At once rather than by call_soon: the answers that wait for this write are the hot path,
        # and everything else that has arrived goes along in the same turn.
        self._run()

    def _storage_failed(self, error: StorageError) -> None:
        if not self._stopped:
            self.raft.step(StorageFailed(self._clock.monotonic_ns()))
            self.fail(error)

    # -- the turn ---------------------------------------------------------------------------------

    def _run(self) -> None:
        self._scheduled = False
        if self._stopped:
            return
        try:
            self._turn()
        except FencepostError as error:
            self.fail(error)
        except Exception as error:  # A bug, or a broken invariant: a node that goes on would act on it.
            _LOG.exception("node loop raised")
            self.fail(error)

    def _turn(self) -> None:
        """Messages first, then proposals: a proposal must not be taken in a term that has just ended."""
        if self._expire_due:
            self._expire_due = False
            self.waiters.expire(self._clock.monotonic_ns())
        inbox, self._inbox = self._inbox, []
        step = self.raft.step
        for event in inbox:
            effects = step(event)
            if type(event) is Durable and event.sequence > self._durable_sequence:
                self._durable_sequence = event.sequence
            self._carry_out(effects)
        if self._proposal_batches and self.raft.is_busy:
            self._refuse_clients()
        if self._held:
            self._release()
        now = self._clock.monotonic_ns()
        for observer in self._observers:
            observer.before_turn_ends(now)
        # While writes are under way the next one gathers everything that arrives, so a busy node
        # makes few large batches, and an idle one waits for nothing. Each completion makes a turn.
        gathers = len(self.raft.pending_writes) >= WRITES_UNDER_WAY_MAX and self.raft.role is Role.LEADER
        if (self._proposal_batches or self._internal_batches) and not gathers and not self._stopped:
            self._propose()
        self._arm_timer()

    def _refuse_clients(self) -> None:
        batches, self._proposal_batches = self._proposal_batches, []
        self._proposals, self._proposal_bytes = [], 0
        for sink, keys, _ in batches:
            sink.refused(keys, "BUSY", "")

    def _propose(self) -> None:
        """Everything proposed in this turn, clients' and the leader's own, in one event: one write."""
        batches = self._internal_batches + self._proposal_batches
        proposals = self._internal_proposals + self._proposals
        internal = bool(self._internal_batches)
        self._proposals, self._internal_proposals, self._proposal_bytes = [], [], 0
        self._proposal_batches, self._internal_batches = [], []
        effects = self.raft.step(Propose(self._clock.monotonic_ns(), self.cluster_time_ns(), proposals, internal))
        outcome = effects.proposed
        if isinstance(outcome, Accepted):
            index = outcome.first_index
            for sink, keys, count in batches:
                self.waiters.add(sink, keys, index, outcome.term)
                sink.accepted(keys, index, outcome.term)
                index += count
        elif isinstance(outcome, Refused):
            for sink, keys, _ in batches:
                sink.refused(keys, outcome.code, outcome.leader)
        self._carry_out(effects)

    def _carry_out(self, effects: Effects) -> None:
        transport = self.transport
        for send in effects.sends:
            if send.after > self._durable_sequence:
                self._held.append(send)
            elif transport is not None:
                transport.send(send.to, send.message)
        for write in effects.persist:
            self._log_store.append(write)
        for change in effects.role_changes:
            self._role_changed(change)
        if effects.apply_to:
            self._apply(effects.apply_to)

    def _release(self) -> None:
        """Send what was waiting for writes that have become durable."""
        transport = self.transport
        held = self._held
        while held and held[0].after <= self._durable_sequence:
            send = held.popleft()
            if transport is not None:
                transport.send(send.to, send.message)

    def _apply(self, apply_to: int) -> None:
        first = self.applier.last_applied + 1
        if apply_to < first:
            return
        entries = self.raft.log.slice(first, apply_to)
        results = self.applier.apply(entries)
        self.waiters.applied(entries, results)
        for observer in self._observers:
            observer.applied(entries, results)

    def _role_changed(self, change: RoleChange) -> None:
        _LOG.info("role changed", role=change.role.value, term=change.term, leader=change.leader, reason=change.reason)
        if self._leader and not change.leader:
            # Heard of until now, or, where this node led, until the last message of it was answered.
            heard_at = (
                self._clock.monotonic_ns() if self._leader == self.raft.node_id else self.raft.last_leader_contact
            )
            self.last_leader = (self._leader, heard_at)
        self._leader = change.leader
        if change.role is Role.LEADER:
            agreed_ns = max(self._clock.time_ns(), self.raft.log.last_time_ns)
            self._cluster_ahead_ns = agreed_ns - self._clock.monotonic_ns()
        elif len(self.waiters):
            self.waiters.leadership_lost(self._clock.monotonic_ns() + 2 * self.raft.options.election_timeout)
        for observer in self._observers:
            observer.role_changed(change)

    # -- the timer --------------------------------------------------------------------------------

    def _arm_timer(self) -> None:
        """One timer. An earlier one is kept: waking for nothing is cheaper than arming anew each turn."""
        if self._stopped:
            return
        deadline = self.raft.deadline()
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        delay = max(deadline - self._clock.monotonic_ns(), 0) / 1e9
        self._timer = self._loop.call_later(delay, self._timer_due)

    def _timer_due(self) -> None:
        """A timer must not beat messages that have already arrived: after a stall, or a SIGSTOP, a
        node would campaign against a leader whose heartbeats wait in its sockets. So a late timer
        lets the sockets be read once more before it counts."""
        late = self._clock.monotonic_ns() - self._timer_at
        if late > self.longest_lag_ns:
            self.longest_lag_ns = late
        if late > self.raft.options.heartbeat_interval // 4:
            self._timer = self._loop.call_later(0.001, self._tick, late)
        else:
            self._tick(late)

    def _tick(self, late: int) -> None:
        self._timer = None
        now = self._clock.monotonic_ns()
        if late > self.raft.options.stall_bound:
            # Authority proves progress: this loop did nothing for longer than its bound (S40).
            _LOG.warning("event loop stalled", seconds=late / 1e9)
            self._inbox.append(StepDown(now, "event loop stalled"))
        self._inbox.append(Tick(now))
        self._expire_due = True
        self._run()
