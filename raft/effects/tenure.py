"""One leader's time in office: activation of every resource, then dispatch, until revoked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ParamSpec, Protocol

import structlog

from ..core.entry import EntryKind
from ..core.errors import DuplicateGeneration, FencepostError, StaleLeader
from ..core.token import FencingToken, token_json
from ..outbox.codec import Activation, Election, OutcomeRow, Retention, encode
from ..outbox.machine import OutboxMachine
from ..outbox.operation import Operation
from ..ports import Answered, Clock, Fence, Randomness, Resource
from .activation import ActivationState, StageClock
from .authority import Authority
from .bounds import ANSWER_TIMEOUT_S, ASK_TIMEOUT_S, bounded
from .dispatcher import Dispatcher, Executions, Proposer
from .doubts import Doubts
from .due import DueTimes
from .forgetting import Forgetting
from .late import LateSuccesses
from .policy import HAND_ONS_MAX, ActivationPolicy, DispatchPolicy, RetryPolicy
from .runtime import EffectsRuntime
from .seat import ActivationSink, Seat

_P = ParamSpec("_P")
_LOG = structlog.get_logger("fencepost.effects")

CLAIM_RETRY_MIN_S = 0.1
CLAIM_RETRY_MAX_S = 2.0


class NodeLoop(Proposer, Protocol):
    """The part of the node's loop that a tenure needs."""

    def step_down(self, reason: str) -> None: ...

    def holds_lease(self) -> bool: ...

    def term_start_index(self) -> int:
        """Index of this leader's no-op."""

    def last_leader_contact_ns(self) -> int:
        """When another leader was last heard, monotonic nanoseconds; 0 if never."""

    def cluster_time_ns(self) -> int:
        """Cluster time as this leader stamps it now: what every deadline in the log is measured by."""

    def guarded(self, callback: Callable[_P, None]) -> Callable[_P, None]:
        """``callback`` for a timer or a completion: what it raises there ends the node."""


class Tenure:
    """Made when this node becomes leader, revoked when it stops being that. Never valid again."""

    def __init__(
        self,
        *,
        node_id: str,
        token: FencingToken,
        holder: str,
        node_loop: NodeLoop,
        machine: OutboxMachine,
        resources: Mapping[str, Resource],
        policies: Mapping[str, RetryPolicy],
        dispatch_policies: Mapping[str, DispatchPolicy],
        retention: Retention,
        runtime: EffectsRuntime,
        clock: Clock,
        randomness: Randomness,
        loop: asyncio.AbstractEventLoop,
        stages: StageClock,
        stale_refusals: dict[str, int],
        executions: Mapping[str, Executions],
        activation_policies: Mapping[str, ActivationPolicy],
        hand_ons: dict[str, int],
        late: LateSuccesses,
        on_late: Callable[[str, FencingToken, list[OutcomeRow]], None],
    ) -> None:
        self.authority = Authority(token, holder, node_loop.holds_lease)
        self._node_id = node_id
        self._node_loop = node_loop
        self._machine = machine
        self._runtime = runtime
        self._clock = clock
        self._loop = loop
        self._stages = stages
        self._stale_refusals = stale_refusals
        self._activation_policies = activation_policies
        self._hand_ons = hand_ons
        self._late = late
        self._on_late = on_late
        self._term_start_index = node_loop.term_start_index()
        self._recovered = False
        self._draining = False
        self._nothing_waited = False
        """Every resource is active, and no command has come since: the first effect's time has not begun."""
        self._activated: list[str] = []
        self._recorded: list[str] = []
        self._sink = ActivationSink(self)
        self._retention = retention
        self._due = DueTimes(machine, token, node_loop)
        self._seats = {
            name: Seat(
                resource,
                Dispatcher(
                    resource=resource,
                    authority=self.authority,
                    proposer=node_loop,
                    runtime=runtime,
                    cluster_time_ns=node_loop.cluster_time_ns,
                    randomness=randomness,
                    policy=policies[name],
                    dispatch_policy=dispatch_policies[name],
                    executions=executions[name],
                    on_trouble=partial(self._trouble, name),
                    on_late=partial(on_late, name, token),
                    on_executed=partial(self._executed, name),
                ),
                executions[name].measures,
            )
            for name, resource in resources.items()
        }
        self._forgettings = {
            name: Forgetting(
                resource=resource,
                authority=self.authority,
                machine=machine,
                runtime=runtime,
                may_begin=partial(self._is_active, name),
                on_trouble=partial(self._trouble, name),
            )
            for name, resource in resources.items()
        }
        self._doubts = {
            name: Doubts(
                resource=resource,
                authority=self.authority,
                proposer=node_loop,
                runtime=runtime,
                policy=policies[name],
                may_ask=partial(self._is_active, name),
                on_trouble=partial(self._trouble, name),
            )
            for name, resource in resources.items()
        }

    # -- what the log says ------------------------------------------------------------------------

    def entries_applied(self, last_applied: int) -> list[str]:
        """Entries up to ``last_applied`` are applied. Returns resources whose queue was just filled
        from the state, which holds what those very entries committed."""
        if not self._recovered:
            for seat in self._seats.values():
                seat.state = ActivationState.RECOVERING
            if last_applied < self._term_start_index:
                return []
            # Everything that predecessors committed is applied here now: the barrier (S54).
            self._recovered = True
            self._stages.reached("catch-up", self._clock.monotonic_ns())
            # Before any activation, so that what they end is not in doubt and not done again.
            self._late.propose(self._node_loop)
            if self._seats:  # Else nothing ends that could be forgotten.
                self._due.settle(self._retention)
            for pending in self._machine.pending.values():
                self._due.watch(pending.values())
            for name in self._seats:
                self._claim(name)
        activated, self._activated = self._activated, []
        return [name for name in activated if self._activate(name)]

    def offer(self, operation: Operation) -> None:
        """A new command was committed."""
        seat = self._seats.get(operation.resource)
        if seat is not None and seat.filled:
            if self._nothing_waited:
                self._nothing_waited = False
                self._stages.begun("first-effect", self._clock.monotonic_ns())
            seat.dispatcher.offer(operation)

    def watch(self, operation: Operation) -> None:
        """A new command has a deadline."""
        if self._recovered:
            self._due.watch((operation,))

    def changed(self, operation: Operation) -> None:
        """A command has ended or become dispatchable, perhaps by another way than through this tenure's dispatch."""
        seat = self._seats.get(operation.resource)
        if seat is not None and seat.filled:
            seat.dispatcher.changed(operation)

    def redriven(self, operation: Operation) -> None:
        seat = self._seats.get(operation.resource)
        if seat is not None and seat.filled:
            seat.dispatcher.redriven(operation)

    def in_doubt(self, operation: Operation) -> None:
        doubts = self._doubts.get(operation.resource)
        if doubts is not None:
            doubts.consider((operation,))

    def hold(self, operation: Operation) -> None:
        """It is about to be cancelled."""
        seat = self._seats.get(operation.resource)
        if seat is not None:
            seat.dispatcher.hold(operation)

    def ask(self, operation: Operation, heard: Callable[[Answered | None], None]) -> None:
        """Ask the resource whether it was applied there; None where that cannot be told soon: somebody waits."""
        doubts = self._doubts.get(operation.resource)
        if doubts is not None and doubts.can_ask:
            doubts.ask(operation, heard, ASK_TIMEOUT_S)
        else:
            heard(None)

    @property
    def token(self) -> FencingToken:
        return self.authority.token

    def has(self, name: str) -> bool:
        return name in self._seats

    def dedupes_by_place(self, name: str) -> bool:
        """Whether the resource recognises a repeat in a lane by its place alone."""
        return name in self._seats and self._seats[name].resource.dedupes_by_place

    def claim_again(self, name: str) -> None:
        """Claim the fence of a resource anew, as after an outage: it may have been restored."""
        self._seats[name].dispatcher.suspend()
        self._claim(name)

    def _is_active(self, name: str) -> bool:
        return self._seats[name].state in (ActivationState.ACTIVE, ActivationState.DRAINING)

    @property
    def has_standing(self) -> bool:
        return any(seat.dispatcher.has_standing for seat in self._seats.values())

    @property
    def recovered(self) -> bool:
        """Whether everything that predecessors committed is applied here."""
        return self._recovered

    def _activate(self, name: str) -> bool:
        """Returns whether the queue was filled just now; after an outage it already is."""
        seat = self._seats[name]
        fills = not seat.filled
        if fills:
            seat.filled = True
            for operation in self._machine.dead.get(name, {}).values():
                seat.dispatcher.died(operation)
            for operation in self._machine.pending.get(name, {}).values():
                seat.dispatcher.offer(operation)
        if seat.claiming or seat.retry is not None:
            return fills  # In trouble again since that claim: the next one decides.
        seat.state = ActivationState.DRAINING if self._draining else ActivationState.ACTIVE
        if not self._draining:
            seat.dispatcher.resume()
        self._hand_ons[name] = 0
        if seat.overdue is not None:
            seat.overdue.cancel()
            seat.overdue = None
        self._doubts[name].consider(self._machine.pending.get(name, {}).values())
        _LOG.info("resource active", resource=name, token=str(self.authority.token))
        if all(other.filled for other in self._seats.values()):
            if not self._stages.has("reconcile"):
                self._stages.reached("reconcile", self._clock.monotonic_ns())
                self._nothing_waited = not any(self._machine.pending.get(each) for each in self._seats)
            self._record_election()
        return fills

    # -- fencing ----------------------------------------------------------------------------------

    def _claim(self, name: str) -> None:
        seat = self._seats[name]
        if seat.claiming or self.authority.revoked:
            return
        if seat.retry is not None:
            seat.retry.cancel()
            seat.retry = None
        seat.claiming = True
        seat.state = ActivationState.FENCING
        policy = self._activation_policies[name]
        if policy.required and seat.overdue is None:
            overdue = self._node_loop.guarded(self._overdue)
            seat.overdue = self._loop.call_later(policy.timeout_ns / 1e9, overdue, name)
        token, holder, resource = self.authority.token, self.authority.holder, seat.resource

        async def claim() -> Fence | None:
            async with bounded(ANSWER_TIMEOUT_S, f"resource {name!r} to the claim of {token}"):
                await resource.open()
                return await resource.claim(token, holder)

        self._runtime.run(claim, lambda previous, error: self._claimed(name, previous, error))

    def _claimed(self, name: str, previous: Fence | None, error: BaseException | None) -> None:
        seat = self._seats[name]
        seat.claiming = False
        if self.authority.revoked:
            return
        if error is not None:
            if isinstance(error, StaleLeader):
                # Won an election of this cluster, and the resource knows a later generation: terms
                # have gone backwards somewhere (a restore without a raised incarnation, a foreign cluster).
                _LOG.error("generation_regression", resource=name, token=str(self.authority.token), error=str(error))
            self._trouble(name, error)
            return
        seat.last_error = ""
        seat.state = ActivationState.RECONCILING
        _LOG.info(
            "fence claimed",
            resource=name,
            token=str(self.authority.token),
            previous=str(previous.token) if previous is not None else "",
        )
        if all(other.state in (ActivationState.RECONCILING, ActivationState.ACTIVE) for other in self._seats.values()):
            self._stages.reached("fence", self._clock.monotonic_ns())
        entry = Activation(name, self.authority.token, self.authority.holder, seat.resource.guarantee.value)
        self._node_loop.propose_internal(EntryKind.OUTBOX, (encode(entry),), self._sink, (name,))

    def _trouble(self, name: str, error: BaseException) -> None:
        """A resource refused this node's token, or could not be reached."""
        if isinstance(error, StaleLeader):
            self._stale_refusals[name] += 1
            _LOG.warning("stale token refused", resource=name, token=str(self.authority.token), error=str(error))
        if self.authority.revoked:
            return
        seat = self._seats[name]
        seat.dispatcher.suspend()
        seat.last_error = str(error)
        if isinstance(error, StaleLeader):
            self._node_loop.step_down(f"resource {name} has seen a higher token")
            return
        if isinstance(error, DuplicateGeneration):
            _LOG.critical("duplicate_generation", resource=name, token=str(self.authority.token), error=str(error))
            self._node_loop.step_down(f"resource {name} has another holder of this token")
            return
        # Out of reach, or misconfigured: its own lanes wait in FENCING, the others go on.
        seat.state = ActivationState.FENCING
        if seat.claiming or seat.retry is not None:
            return  # Batches that ran side by side fail together; one claim answers for all of them.
        seat.claim_failures += 1
        delay = min(CLAIM_RETRY_MIN_S * 2 ** min(seat.claim_failures - 1, 10), CLAIM_RETRY_MAX_S)
        code = error.code if isinstance(error, FencepostError) else type(error).__name__
        _LOG.warning("resource not active", resource=name, code=code, error=str(error), retry_s=delay)
        seat.retry = self._loop.call_later(delay, self._node_loop.guarded(self._claim), name)

    def _overdue(self, name: str) -> None:
        """A required resource has stayed away past its bound: another node may reach it ."""
        if self.authority.revoked:
            return
        seat = self._seats[name]
        seat.overdue = None
        hand_on = self._hand_ons[name] < HAND_ONS_MAX
        _LOG.error("required resource away", resource=name, error=seat.last_error, hands_on=hand_on)
        if hand_on:
            self._hand_ons[name] += 1
            self._node_loop.step_down(f"required resource {name} is not active: {seat.last_error}")

    # -- acting -----------------------------------------------------------------------------------

    def pump(self) -> int:
        """Start what may start. Cluster time of the next retry; 0 if none waits."""
        earliest = self._due.pump(self._node_loop.cluster_time_ns()) if self._recovered else 0
        for seat in self._seats.values():
            wake_ns = seat.dispatcher.pump()
            if wake_ns and (not earliest or wake_ns < earliest):
                earliest = wake_ns
        for forgetting in self._forgettings.values():
            forgetting.pump()
        return earliest

    def _executed(self, name: str, succeeded: int) -> None:
        self._seats[name].claim_failures = 0
        if not self._stages.has("first-effect"):
            self._stages.reached("first-effect", self._clock.monotonic_ns())
            self._record_election()

    def _record_election(self) -> None:
        """Put on record what this change of leader has cost so far."""
        stages = self._stages.seconds()
        names = [stage.stage for stage in stages]
        if names == self._recorded or "reconcile" not in names:
            return
        self._recorded = names
        entry = Election(self._node_id, self.authority.token, stages)
        self._node_loop.propose_internal(EntryKind.OUTBOX, (encode(entry),), self._sink, ("",))

    # -- the end ----------------------------------------------------------------------------------

    def drain(self) -> None:
        self._draining = True
        for seat in self._seats.values():
            seat.dispatcher.suspend()
            if seat.state is ActivationState.ACTIVE:
                seat.state = ActivationState.DRAINING

    def resume(self) -> None:
        """Go on where :meth:`drain` stopped."""
        self._draining = False
        for seat in self._seats.values():
            if seat.state is ActivationState.DRAINING:
                seat.state = ActivationState.ACTIVE
                seat.dispatcher.resume()

    @property
    def idle(self) -> bool:
        """Nothing is under way and every outcome has been heard of."""
        return all(seat.dispatcher.idle and not seat.dispatcher.in_flight for seat in self._seats.values())

    def revoke(self) -> None:
        self.authority.revoke()
        for seat in self._seats.values():
            seat.state = ActivationState.REVOKED
            seat.dispatcher.suspend()
            for timer in (seat.retry, seat.overdue):
                if timer is not None:
                    timer.cancel()
            seat.retry = seat.overdue = None

    def status(self, name: str) -> dict[str, Any]:
        seat = self._seats[name]
        token = self.authority.token
        return {
            "activation": seat.state.value,
            "token": token_json(token),
            "in_flight": seat.dispatcher.in_flight,
            "last_error": seat.last_error,
        }

    def activation_applied(self, name: str) -> None:
        self._activated.append(name)
