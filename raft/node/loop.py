"""The one loop of a node: it feeds the pure core and carries out what the core asks for.

Everything that arrives is only put into an inbox; one ``_run`` per turn of the event loop drains
all of it, so that a busy node makes one write, one frame per peer and one answer per client for
many commands. No task, future or thread hop is spent on a single command.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import structlog

from ..core.configuration import Change
from ..core.errors import FencepostError, StateDiverged, StorageError
from ..core.events import (
    Accepted,
    Campaign,
    ChangeConfiguration,
    Durable,
    Event,
    Propose,
    Read,
    Receive,
    Refused,
    Role,
    SnapshotReceived,
    StepDown,
    StorageFailed,
    Tick,
    TransferLeadership,
    Transition,
    Unreachable,
)
from ..core.messages import Message, StateDigest
from ..core.step import Raft
from ..measures import Seconds
from ..ports import Clock, LogStore
from .applier import Applier
from .carrying import EffectsCarrier
from .divergence import DivergenceWatch
from .gathering import Gathering
from .observers import LoopObserver
from .questions import STOPPED, ChangeQuestion, ChangeSink, Questions, TransferQuestion
from .requests import ReadSink, TransferSink
from .timer import LoopTimer
from .waiters import ProposalSink

_P = ParamSpec("_P")
_LOG = structlog.get_logger("fencepost.node")

WRITES_UNDER_WAY_MAX = 2
"""Proposals wait while this many writes of the leader are under way (group commit)."""


class RaftLoop(EffectsCarrier):
    """Owns the core, its timer, the writes under way and the waiters.

    ``transport`` and ``snapshots`` are set after construction because they need this object: as its
    handler, and to be told what they have done. Without ``snapshots`` none must be asked for.
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
        super().__init__(raft, log_store, applier, clock, loop)
        self.failed: asyncio.Future[BaseException] = loop.create_future()
        self._inbox: list[Event] = []
        self._gathering = Gathering()
        self._questions = Questions(self.waiters, self.transfers, patience_ns=2 * raft.options.election_timeout)
        self._scheduled = False
        self._stopped = False
        self._timer = LoopTimer(loop, clock, self._tick, patience_ns=raft.options.heartbeat_interval // 4)
        self._expire_due = False
        self.divergence: DivergenceWatch | None = None
        """Who hears the digests of others. Set like ``transport``; it observes this loop as well."""

    # -- life -------------------------------------------------------------------------------------

    def observe(self, observer: LoopObserver) -> None:
        self._observers.append(observer)

    def start(self) -> None:
        self._log_store.start(self._on_durable, self._on_storage_failure)
        self.feed(Tick(self._clock.monotonic_ns()))

    def stop(self) -> None:
        """Stop acting. Idempotent. What is waiting hears ``unknown``, or that it was not begun."""
        if self._stopped:
            return
        self._stopped = True
        self._timer.cancel()
        gathered = self._gathering.take()
        self._inbox = []
        waiting = (self.waiters, self.reads, self.transfers, self._questions)
        endings: list[Callable[[], None]] = [each.abandon for each in waiting]
        endings += [functools.partial(sink.refused, keys, "NOT_LEADER", "") for sink, keys, _ in gathered.batches]
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

    def end_diverged(self, error: StateDiverged) -> None:
        """This node must not act on its state any more: give up leadership, tell everybody, and end."""
        if not self._stopped:
            self._tell(self.raft.step(StepDown(self._clock.monotonic_ns(), "state diverged")))
            self.fail(error)

    @property
    def stopped(self) -> bool:
        """The node has failed or is closing; it makes no turn any more."""
        return self._stopped

    @property
    def longest_lag_ns(self) -> int:
        """How late the timer has come at the most."""
        return self._timer.longest_lag_ns

    @property
    def lag(self) -> Seconds:
        """How late the timer has come, each time."""
        return self._timer.lag

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

    def feed(self, event: Event) -> None:
        """Have the core take ``event`` in the next turn."""
        if not self._stopped:
            self._inbox.append(event)
            self._wake()

    def receive(self, source: str, message: Message) -> None:
        if type(message) is StateDigest:
            if self.divergence is not None and not self._stopped:
                self.divergence.heard(source, message)
        elif not self._stopped:
            self._inbox.append(Receive(self._clock.monotonic_ns(), source, message))
            if not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._run)

    def unreachable(self, peer: str) -> None:
        self.feed(Unreachable(self._clock.monotonic_ns(), peer))

    def propose(self, kind: int, data: Sequence[bytes], sink: ProposalSink, keys: Sequence[Any]) -> None:
        """Propose entries for a client; ``sink`` hears what becomes of them, by ``keys`` (one an entry)."""
        if self._stopped:
            sink.refused(keys, "NOT_LEADER", "")
        elif self._gathering.client_bytes >= self.raft.options.uncommitted_bytes_max:
            # What waits for writes under way is as little bounded as what waits for its commit.
            sink.refused(keys, "BUSY", "")
        else:
            self._gathering.add(kind, data, sink, keys)
            self._wake()

    def propose_internal(self, kind: int, data: Sequence[bytes], sink: ProposalSink, keys: Sequence[Any]) -> None:
        """Propose entries of the leader's own, which finish what is in the log: never refused as BUSY."""
        if self._stopped:
            sink.refused(keys, "NOT_LEADER", "")
        else:
            self._gathering.add_internal(kind, data, sink, keys)
            self._wake()

    def read(self, sink: ReadSink, *, lease: bool = False) -> None:
        """A linearizable read, on any node (thesis section 6.4). All of one turn are confirmed together.
        ``lease``: without asking a quorum, where ``Options.lease_reads`` allows that."""
        if self._stopped:
            sink.refused("")
        else:
            options = self.raft.options
            self.reads.ask(sink, lease=lease, expires_at=self._clock.monotonic_ns() + 4 * options.election_timeout)
            self._wake()

    def change_configuration(
        self,
        changes: Sequence[Change],
        sink: ChangeSink,
        *,
        transition: Transition = Transition.AUTO,
        unchecked: bool = False,
    ) -> None:
        """Change the members (thesis chapter 4); no changes ask for a joint configuration to be left."""
        self._ask(ChangeQuestion(ChangeConfiguration(0, list(changes), transition, unchecked), sink))

    def transfer_leadership(self, target: str, sink: TransferSink) -> None:
        """Hand leadership to ``target``, or where it is empty to whoever has the most of the log."""
        self._ask(TransferQuestion(TransferLeadership(0, target), sink))

    def _ask(self, question: ChangeQuestion | TransferQuestion) -> None:
        if self._stopped:
            question.sink.refused(STOPPED)
        else:
            self._questions.add(question)
            self._wake()

    def step_down(self, reason: str) -> None:
        self.feed(StepDown(self._clock.monotonic_ns(), reason))

    def campaign(self) -> None:
        self.feed(Campaign(self._clock.monotonic_ns()))

    def holds_lease(self) -> bool:
        """Whether this node leads and a quorum has followed it within the election timeout."""
        return not self._stopped and self.raft.holds_lease(self._clock.monotonic_ns())

    def wake(self) -> None:
        """Make a turn although nothing has arrived: an observer has something to do."""
        self._wake()

    def soon(self, callback: Callable[[], None]) -> None:
        """Call it in a turn of the event loop of its own; what it raises ends the node."""
        self._loop.call_soon(self.guarded(callback))

    def _wake(self) -> None:
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _on_durable(self, sequence: int) -> None:
        """On the log store's thread: one hop per sync, however many entries it covered."""
        self._call_threadsafe(self._durable, sequence)

    def _on_storage_failure(self, error: StorageError) -> None:
        self._call_threadsafe(self.storage_failed, error)

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

    def storage_failed(self, error: BaseException) -> None:
        """A write or sync has failed, of the log or of a snapshot: final for the process (S12)."""
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
            now = self._clock.monotonic_ns()
            for waiting in (self.waiters, self.reads, self.transfers):
                waiting.expire(now)
        inbox, self._inbox = self._inbox, []
        gathering, raft = self._gathering, self.raft
        step = raft.step
        for event in inbox:
            effects = step(event)
            if type(event) is Durable and event.sequence > self._durable_sequence:
                self._durable_sequence = event.sequence
            self._carry_out(effects)
            if type(event) is SnapshotReceived and self.snapshots is not None:
                self.snapshots.settled(event.snapshot)
        if self._questions:
            for effects in self._questions.put(step, self._clock.monotonic_ns()):
                self._carry_out(effects)
        reads = len(self.reads)
        if reads:
            self._put_reads()
        if gathering.clients and raft.is_busy:
            gathering.refuse_clients("BUSY")
        if self._held:
            self._release()
        now = self._clock.monotonic_ns()
        for observer in self._observers:
            observer.before_turn_ends(now)
        if (gathering.clients or gathering.internal) and not self._gathers() and not self._stopped:
            self._propose()
        if not self._stopped:
            deadline = raft.deadline()
            if reads or self.transfers:
                deadline = min(deadline, self.reads.deadline(), self.transfers.deadline())
            self._timer.arm(deadline)

    def _gathers(self) -> bool:
        """Whether proposals wait. While writes are under way the next one gathers everything that arrives, so
        a busy node makes few large batches, and an idle one waits for nothing; each completion makes a turn.
        And once the target of a transfer was told to campaign, what this leader still has to finish waits
        until it is known who finishes it."""
        raft = self.raft
        if raft.role is not Role.LEADER:
            return False
        handing_over = raft.transfer is not None and raft.transfer.told_at > 0
        return handing_over or len(raft.pending_writes) >= WRITES_UNDER_WAY_MAX

    def _propose(self) -> None:
        """Everything proposed in this turn, clients' and the leader's own, in one event: one write."""
        batches, proposals, internal = self._gathering.take()
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

    def _put_reads(self) -> None:
        for lease in (False, True):
            asked = self.reads.take_asked(lease)
            if asked:
                self._carry_out(self.raft.step(Read(self._clock.monotonic_ns(), asked, lease)))

    # -- the timer --------------------------------------------------------------------------------

    def _tick(self, late: int) -> None:
        now = self._clock.monotonic_ns()
        if late > self.raft.options.stall_bound:
            # Authority proves progress: this loop did nothing for longer than its bound (S40).
            _LOG.warning("event loop stalled", seconds=late / 1e9)
            self._inbox.append(StepDown(now, "event loop stalled"))
        self._inbox.append(Tick(now))
        self._expire_due = True
        self._run()
