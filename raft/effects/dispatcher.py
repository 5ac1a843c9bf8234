"""Dispatch at one resource, for one tenure: from committed command to committed outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import structlog

from ..core.entry import EntryKind
from ..core.errors import DuplicateGeneration, FenceError, ResourceUnavailable, StaleLeader
from ..outbox.codec import Dispatch, DispatchRow, Outcome, OutcomeRow, encode
from ..outbox.operation import TERMINAL, Operation, OperationState
from ..outbox.transitions import Verdict
from ..outbox.wishes import waits_for_its_dispatch
from ..ports import Attempt, AttemptOutcome, AttemptStatus, Guarantee, Randomness, Resource
from .authority import Authority
from .batch import Batch, DispatchSink, OutcomeSink, checked, in_parts, is_definite, status_of, text_of
from .measures import ResourceMeasures
from .policy import DispatchPolicy, OnDead, RetryPolicy, age_ns, judge
from .queue import DispatchQueue
from .runtime import EffectsRuntime

_LOG = structlog.get_logger("fencepost.effects")


class Proposer(Protocol):
    """The part of the node's loop that effects need."""

    def propose_internal(self, kind: int, data: Sequence[bytes], sink: Any, keys: Sequence[Any]) -> None: ...

    def wake(self) -> None: ...


class Executions:
    """``execute`` calls under way at one resource of this node, over all its tenures: an effect of an
    earlier one may still hang when the same node leads again, and the resource counts calls, not terms."""

    __slots__ = ("measures", "under_way")

    def __init__(self, measures: ResourceMeasures) -> None:
        self.under_way = 0
        self.measures = measures


class Dispatcher:
    """Takes commands in order, proposes their dispatch, executes them, proposes their outcomes.

    Starts suspended. ``on_trouble`` is told when the resource refuses the token or cannot be
    reached; nothing more is started then until somebody has activated the resource anew.
    """

    def __init__(
        self,
        *,
        resource: Resource,
        authority: Authority,
        proposer: Proposer,
        runtime: EffectsRuntime,
        cluster_time_ns: Callable[[], int],
        randomness: Randomness,
        policy: RetryPolicy,
        dispatch_policy: DispatchPolicy,
        executions: Executions,
        on_trouble: Callable[[BaseException], None],
        on_late: Callable[[list[OutcomeRow]], None],
        on_executed: Callable[[int], None],
    ) -> None:
        self._resource = resource
        self._authority = authority
        self._proposer = proposer
        self._runtime = runtime
        self._cluster_time_ns = cluster_time_ns
        self._randomness = randomness
        self._policy = policy
        self._dispatch_policy = dispatch_policy
        self._on_trouble = on_trouble
        self._on_late = on_late
        self._on_executed = on_executed
        self._queue = DispatchQueue(resource.effects, dead_blocks=dispatch_policy.on_dead is OnDead.BLOCK)
        self._held: set[int] = set()
        """By index: what was asked to be cancelled. An effect that ran beside its dispatch could overtake that."""
        self._refused: set[int] = set()
        """By index: commands of earlier leaders that the resource has refused by itself, behind this one's claim."""
        self._executions = executions
        self._executing = 0
        """Of ``executions``, those of this tenure."""
        self._running = 0
        self._suspended = True
        self._batch_max = dispatch_policy.slow_start
        self._outcomes = OutcomeSink(self)
        self._dispatches = DispatchSink(self)
        self.in_flight = 0

    # -- filling ----------------------------------------------------------------------------------

    def offer(self, operation: Operation) -> None:
        """A command of this resource has become dispatchable."""
        self._queue.offer(operation)

    def suspend(self) -> None:
        """Start nothing more. What is under way is judged by the resource's fence."""
        self._suspended = True

    def resume(self) -> None:
        self._suspended = False
        self._batch_max = self._dispatch_policy.slow_start

    @property
    def idle(self) -> bool:
        return not self._running

    # -- dispatching ------------------------------------------------------------------------------

    def pump(self) -> int:
        """Start as much as the resource's concurrency allows, if this node may act.

        Cluster time at which a retry becomes due; 0 if none waits.
        """
        if self._suspended:
            return 0
        queue = self._queue
        if queue.is_empty:
            return 0  # Most turns of a leader end here, and this is asked in every one of them.
        queue.wake(self._cluster_time_ns())
        others = self._executions.under_way - self._executing
        while queue.has_ready and self._running + others < self._concurrency():
            if not self._authority.valid():
                break
            operations = queue.take(min(self._batch_max, self._resource.batch_limit))
            if operations:  # Else everything that was ready has ended by another way.
                self._start(operations)
        return queue.next_wake_ns()

    def _concurrency(self) -> int:
        most = self._dispatch_policy.concurrency
        return min(most, self._resource.concurrency) if most else self._resource.concurrency

    def _may_run_beside(self, operations: list[Operation]) -> bool:
        return not any(waits_for_its_dispatch(each) or each.index in self._held for each in operations)

    def _start(self, operations: list[Operation]) -> None:
        attempts = [
            Attempt(
                operation.operation_id,
                operation.place,
                operation.term,
                operation.effect,
                operation.lane,
                operation.payload,
                operation.digest,
                operation.attempt + 1,
                age_ns(operation, self._cluster_time_ns()),
            )
            for operation in operations
        ]
        batch = Batch(operations, attempts)
        # The fence and the dedupe stand in the same step as the effect, so it may run beside
        # its dispatch entry. Elsewhere it waits for the commit of that entry.
        batch.beside = self._resource.guarantee is Guarantee.FENCED and self._may_run_beside(operations)
        self._running += 1
        self.in_flight += len(operations)
        rows = [DispatchRow(operation.index, operation.attempt + 1) for operation in operations]
        data = encode(Dispatch(self._resource.name, self._authority.token, rows))
        self._proposer.propose_internal(EntryKind.OUTBOX, (data,), self._dispatches, (batch,))
        if batch.beside:
            self._execute(batch)

    def _execute(self, batch: Batch) -> None:
        if not self._authority.valid():
            # No quorum heard for too long. Either this node steps down now, or it hears one again:
            # then the batch must not be lost.
            self._give_back(batch, "the leader had not heard a quorum when it was due")
            return
        given_up = [self._why_not(operation) for operation in batch.operations]
        if any(given_up):
            self._give_up(batch, given_up)
            return
        authority, resource = self._authority, self._resource

        async def execute() -> list[AttemptOutcome]:
            # The effects' loop may have been held up by another handler since (S40). Only the flag is
            # looked at: the lease is the node's loop's, and this may be another thread.
            if authority.revoked:
                return [AttemptOutcome(AttemptStatus.NOT_ATTEMPTED, b"", "", False)] * len(batch.attempts)
            answer = await resource.execute(authority.token, authority.holder, batch.attempts)
            return checked(resource.name, answer, len(batch.attempts))

        def completed(outcomes: list[AttemptOutcome] | None, error: BaseException | None) -> None:
            self._executions.measures.ended(begun_ns)
            self._executing -= 1
            self._executions.under_way -= 1
            self._proposer.wake()
            self._executed(batch, outcomes, error)

        self._executing += 1
        self._executions.under_way += 1
        begun_ns = self._executions.measures.begun(batch.attempts)
        self._runtime.run(execute, completed)

    def _why_not(self, operation: Operation) -> str:
        """Why an operation that may have been applied is not repeated; empty if it may be."""
        if operation.lost >= self._policy.of(operation.effect).lost_max:
            # A command whose executors went away again and again may be what kills them (S51).
            return "every executor went away before its outcome was known; it may have been applied"
        if operation.unsure and self._dispatch_policy.is_past_horizon(operation, self._cluster_time_ns()):
            return "an attempt may have been applied, and its key may be forgotten there by now"
        return ""

    def _give_up(self, batch: Batch, given_up: list[str]) -> None:
        spared = AttemptOutcome(AttemptStatus.NOT_ATTEMPTED, b"", "", False)
        outcomes = [AttemptOutcome(AttemptStatus.DOUBT, b"", why, False) if why else spared for why in given_up]
        self._executed(batch, outcomes, None)

    def _executed(self, batch: Batch, outcomes: list[AttemptOutcome] | None, error: BaseException | None) -> None:
        """On the node's loop: the resource has answered, or has not."""
        resource = self._resource
        if isinstance(error, StaleLeader | DuplicateGeneration):
            # A fact about this leader. The operations are not failed; a successor has them now.
            self._end(batch)
            self._on_trouble(error)
            return
        if error is not None:
            _LOG.warning("effect batch failed", resource=resource.name, error=str(error), commands=len(batch.attempts))
            outcomes = [AttemptOutcome(status_of(error, resource), b"", text_of(error), False)] * len(batch.attempts)
            batch.unheard = resource.guarantee is Guarantee.FENCED and not is_definite(error)
        assert outcomes is not None
        batch.outcomes = outcomes
        self._executions.measures.judged(outcomes)
        if isinstance(error, ResourceUnavailable | FenceError):
            self._on_trouble(error)
        self._propose_outcomes(batch)
        self._proposer.wake()

    def _give_back(self, batch: Batch, why: str) -> None:
        """Not attempted, and on record as that."""
        outcome = AttemptOutcome(AttemptStatus.NOT_ATTEMPTED, b"", why, False)
        self._executed(batch, [outcome] * len(batch.attempts), None)

    def _propose_outcomes(self, batch: Batch) -> None:
        if self._authority.revoked:
            # Only facts go on record once authority is gone; no longer being leader, not even they can be
            # proposed here now. The successor asks the resource, if that can be asked.
            self._end(batch)
            self.late(batch)
            return
        now = self._cluster_time_ns()
        rows = [
            judge(
                operation,
                attempt.number,
                outcome,
                guarantee=self._resource.guarantee,
                policy=self._policy.of(operation.effect),
                cluster_time_ns=now,
                randomness=self._randomness,
                suspended=self._suspended,
                unheard=batch.unheard or self._may_be_missing(operation, outcome),
                refusal_tells=self._resource.refusal_tells,
            )
            for operation, attempt, outcome in zip(batch.operations, batch.attempts, batch.outcomes, strict=True)
        ]
        entries = [encode(Outcome(self._resource.name, self._authority.token, part)) for part in in_parts(rows)]
        succeeded = sum(1 for outcome in batch.outcomes if outcome.status == AttemptStatus.SUCCEEDED)
        if succeeded:
            self._on_executed(succeeded)
            self._batch_max = min(2 * self._batch_max, self._resource.batch_limit)
        keys = [*[None] * (len(entries) - 1), batch]
        self._proposer.propose_internal(EntryKind.OUTBOX, entries, self._outcomes, keys)
        self._running -= 1
        if succeeded == len(batch.outcomes):
            # The effects are done and durable at the resource: lane-mates may follow at once,
            # before the outcomes are committed. After a crash the resource recognises them.
            self._release_lanes(batch)

    def _may_be_missing(self, operation: Operation, outcome: AttemptOutcome) -> bool:
        """Whether an attempt of an earlier leader may have been applied that is not on record, and about which this
        outcome says nothing: at a fenced resource effects run beside their dispatch, which may be lost. What the
        resource has refused once, behind the claim of this leader, it had not applied."""
        if operation.term == self._authority.token.term or self._resource.guarantee is not Guarantee.FENCED:
            return False
        if outcome.status == AttemptStatus.RETRY and self._resource.refusal_tells:
            self._refused.add(operation.index)
        on_record = waits_for_its_dispatch(operation) and not operation.lost
        return not on_record and operation.index not in self._refused

    def late(self, batch: Batch) -> None:
        """Keep the successes of a batch whose outcomes could not be put on record."""
        rows = [
            OutcomeRow(operation.index, attempt.number, Verdict.SUCCEEDED, outcome.result, "", 0)
            for operation, attempt, outcome in zip(batch.operations, batch.attempts, batch.outcomes, strict=True)
            if outcome.status == AttemptStatus.SUCCEEDED
        ]
        if rows:
            self._on_late(rows)

    def changed(self, operation: Operation) -> None:
        """A command of this resource has ended, or can be started again, by another way than through here."""
        if operation.state in TERMINAL:
            self._forget((operation,))
        self._queue.changed(operation)

    def died(self, operation: Operation) -> None:
        """A command of this resource is a dead letter since before this tenure."""
        self._queue.died(operation)

    def redriven(self, operation: Operation) -> None:
        """A dead letter of this resource is to be tried again."""
        self._queue.redriven(operation)

    def hold(self, operation: Operation) -> None:
        """It is about to be cancelled: from now on its effect does not begin before its dispatch is committed."""
        self._held.add(operation.index)

    @property
    def has_standing(self) -> bool:
        """Whether a lane stands still for a head that cannot start, or for a dead letter."""
        return self._queue.has_standing

    def _end(self, batch: Batch) -> None:
        self._running -= 1
        self.in_flight -= len(batch.operations)

    def _release_lanes(self, batch: Batch) -> None:
        for lane in dict.fromkeys(operation.lane for operation in batch.operations if operation.lane):
            self._queue.release_lane(lane, [])
        batch.released = True

    # -- what the log says ------------------------------------------------------------------------

    def dispatched(self, batch: Batch) -> None:
        """The dispatch entry is applied: an effect that had to wait for it may run."""
        if not batch.beside:
            live = all(
                operation.state is OperationState.DISPATCHED
                and operation.attempt == attempt.number
                and operation.token == self._authority.token
                for operation, attempt in zip(batch.operations, batch.attempts, strict=True)
            )
            if live:
                self._execute(batch)
            else:
                self._give_back(batch, "its dispatch was overtaken")

    def finished(self, batch: Batch) -> None:
        """The outcome entry is applied: what must run again goes back into the queue."""
        self.in_flight -= len(batch.operations)
        if self._held or self._refused:
            self._forget([operation for operation in batch.operations if operation.state in TERMINAL])
        if batch.released:
            return  # All succeeded, lanes were released at once.
        lanes: dict[str, list[Operation]] = {}
        for operation in batch.operations:
            open_still = operation.state not in TERMINAL
            if operation.state is OperationState.DEAD:
                self._queue.died(operation)
            if operation.lane:
                returned = lanes.setdefault(operation.lane, [])
                if open_still:
                    returned.append(operation)
            elif open_still:
                self._queue.offer(operation)
        for lane, returned in lanes.items():
            self._queue.release_lane(lane, returned)

    def _forget(self, ended: Sequence[Operation]) -> None:
        for operation in ended:
            self._held.discard(operation.index)
            self._refused.discard(operation.index)

    def not_proposed(self, batch: Batch, *, executing: bool) -> None:
        """The log would not take the entry (this node leads no more, or is busy)."""
        if not executing:
            self._end(batch)
