"""One leader's time in office: activation of every resource, then dispatch, until revoked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ParamSpec, Protocol

import structlog

from ..core.entry import Entry, EntryKind
from ..core.errors import DuplicateGeneration, FencepostError, ResourceUnavailable, StaleLeader
from ..core.token import FencingToken, token_json
from ..outbox.codec import Activation, Election, OutcomeRow, encode
from ..outbox.machine import OutboxMachine
from ..outbox.operation import Operation
from ..ports import Clock, Fence, Randomness, Resource
from .activation import ActivationState, StageClock
from .asking import ask_in_doubt
from .authority import Authority
from .dispatcher import Dispatcher, Executions, Proposer
from .late import LateSuccesses
from .measures import ResourceMeasures
from .policy import HAND_ONS_MAX, ActivationPolicy, RetryPolicy
from .runtime import EffectsRuntime

_P = ParamSpec("_P")
_LOG = structlog.get_logger("fencepost.effects")

CLAIM_RETRY_MIN_S = 0.1
CLAIM_RETRY_MAX_S = 2.0
ANSWER_TIMEOUT_S = 10.0
"""How long a resource may take to answer a claim, or to say what its fence is."""


@asynccontextmanager
async def bounded(seconds: float, what: str) -> AsyncIterator[None]:
    """Raise :class:`ResourceUnavailable` when the block takes longer."""
    try:
        async with asyncio.timeout(seconds) as timeout:
            yield
    except TimeoutError as error:
        if not timeout.expired():
            raise  # Not ours: what the resource says about itself.
        raise ResourceUnavailable(f"no answer within {seconds:g} s from {what}") from error


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


class _Seat:
    """One resource within a tenure."""

    __slots__ = (
        "_measures",
        "_state",
        "claim_failures",
        "claiming",
        "dispatcher",
        "filled",
        "last_error",
        "overdue",
        "resource",
        "retry",
    )

    def __init__(self, resource: Resource, dispatcher: Dispatcher, measures: ResourceMeasures) -> None:
        self.resource = resource
        self.dispatcher = dispatcher
        self._measures = measures
        self.state = ActivationState.ELECTED
        self.filled = False
        """The queue has been filled from the replicated state; from then on, new commands are offered."""
        self.claiming = False
        self.claim_failures = 0
        """Troubles since the last effect that succeeded: a claim alone does not show that it is well."""
        self.retry: asyncio.TimerHandle | None = None
        self.overdue: asyncio.TimerHandle | None = None
        """Fires when a required resource has been away for too long."""
        self.last_error = ""

    @property
    def state(self) -> ActivationState:
        return self._state

    @state.setter
    def state(self, state: ActivationState) -> None:
        self._state = state
        self._measures.entered(state)


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
        self._sink = _ActivationSink(self)
        self._seats = {
            name: _Seat(
                resource,
                Dispatcher(
                    resource=resource,
                    authority=self.authority,
                    proposer=node_loop,
                    runtime=runtime,
                    cluster_time_ns=node_loop.cluster_time_ns,
                    randomness=randomness,
                    policy=policies[name],
                    executions=executions[name],
                    on_trouble=partial(self._trouble, name),
                    on_late=partial(on_late, name, token),
                    on_executed=partial(self._executed, name),
                ),
                executions[name].measures,
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

    def ended(self, operation: Operation) -> None:
        """A command has ended, perhaps by another way than through this tenure's dispatch."""
        seat = self._seats.get(operation.resource)
        if seat is not None:
            seat.dispatcher.ended(operation)

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
            pending = self._machine.pending.get(name, {}).values()
            for operation in pending:
                seat.dispatcher.offer(operation)
            keep = partial(self._on_late, name, self.authority.token)
            ask_in_doubt(seat.resource, pending, self._runtime, self.authority, keep)
        if seat.claiming or seat.retry is not None:
            return fills  # In trouble again since that claim: the next one decides.
        seat.state = ActivationState.DRAINING if self._draining else ActivationState.ACTIVE
        if not self._draining:
            seat.dispatcher.resume()
        self._hand_ons[name] = 0
        if seat.overdue is not None:
            seat.overdue.cancel()
            seat.overdue = None
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
        earliest = 0
        for seat in self._seats.values():
            wake_ns = seat.dispatcher.pump()
            if wake_ns and (not earliest or wake_ns < earliest):
                earliest = wake_ns
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


class _ActivationSink:
    """Hears of activation entries (keys: resource names) and election records (key: "")."""

    def __init__(self, tenure: Tenure) -> None:
        self._tenure = tenure

    def accepted(self, keys: Sequence[str], first_index: int, term: int) -> None:
        pass

    def refused(self, keys: Sequence[str], code: str, leader: str) -> None:
        pass  # Only a leader that is one no longer is refused; its tenure is being revoked.

    def applied(self, keys: Sequence[str], entries: Sequence[Entry], results: Sequence[Any]) -> None:
        for name in keys:
            if name:
                self._tenure.activation_applied(name)

    def lost(self, keys: Sequence[str]) -> None:
        pass

    def unknown(self, keys: Sequence[str]) -> None:
        pass
