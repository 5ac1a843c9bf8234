"""All resources of one node: activated when it leads, revoked when it does not.

An observer of the node's loop. Follows every role change and every applied entry; owns one
:class:`Tenure` while this node leads, and nothing outlives the term it was made for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import structlog

from ..core.configuration import Configuration
from ..core.entry import Entry, Snapshot
from ..core.errors import FencepostError
from ..core.events import Role, RoleChange, TransferBegun, TransferEnded
from ..core.token import FencingToken, token_json
from ..outbox.codec import CANCEL, DISCARD, EXPIRY, REDRIVE, RESOLVE, OutcomeRow, Retention
from ..outbox.machine import OutboxMachine, SubmitResult
from ..outbox.operation import TERMINAL, Operation, OperationState
from ..ports import Clock, Fence, Randomness, Resource
from .activation import ActivationState, StageClock
from .authority import Authority
from .bounds import ANSWER_TIMEOUT_S, bounded
from .dispatcher import Executions
from .late import LateSuccesses
from .measures import ResourceMeasures
from .modes import ModeCalls, seen_json
from .policy import ActivationPolicy, DispatchPolicy, RetryPolicy
from .runtime import EffectsRuntime, GuardedRuntime
from .tenure import NodeLoop, Tenure

_LOG = structlog.get_logger("fencepost.effects")


WISHES = frozenset({CANCEL, REDRIVE, RESOLVE, DISCARD, EXPIRY})
"""Kinds of entries that change a command by another way than through its dispatch."""


class EffectsCoordinator:
    """Implements ``raft.node.loop.LoopObserver``."""

    def __init__(
        self,
        *,
        node_id: str,
        holder: str,
        incarnation: int,
        node_loop: NodeLoop,
        machine: OutboxMachine,
        resources: Mapping[str, Resource],
        policies: Mapping[str, RetryPolicy],
        runtime: EffectsRuntime,
        clock: Clock,
        randomness: Randomness,
        loop: asyncio.AbstractEventLoop,
        activation_policies: Mapping[str, ActivationPolicy] | None = None,
        dispatch_policies: Mapping[str, DispatchPolicy] | None = None,
        retention: Retention = Retention(),  # noqa: B008 - immutable
    ) -> None:
        """``holder`` names this process uniquely, also across restarts of the same node. A resource
        without an activation policy has the default one: required."""
        self._node_id = node_id
        self.holder = holder
        self._incarnation = incarnation
        self._node_loop = node_loop
        self._machine = machine
        self._resources = dict(resources)
        self._policies = dict(policies)
        self._runtime = GuardedRuntime(runtime, node_loop.guarded)
        self._clock = clock
        self._randomness = randomness
        self._loop = loop
        self._stages = StageClock()
        self._started_at = clock.monotonic_ns()
        self._stages.start(self._started_at)
        self._tenure: Tenure | None = None
        self._wake_timer: asyncio.TimerHandle | None = None
        self._wake_at_ns = 0
        self._drains = 0
        """How many want nothing new to be started."""
        self._when_idle: list[Callable[[], None]] = []
        self._handing_over = False
        self._activation_policies = {name: ActivationPolicy() for name in resources} | dict(activation_policies or {})
        self._dispatch_policies = {name: DispatchPolicy() for name in resources} | dict(dispatch_policies or {})
        self._retention = retention
        self._late = LateSuccesses()
        self._hand_ons = dict.fromkeys(self._resources, 0)
        self.modes = ModeCalls(self._resources, self._runtime, self._authority)
        self.measures = {name: ResourceMeasures(clock.monotonic_ns) for name in self._resources}
        self._executions = {name: Executions(measures) for name, measures in self.measures.items()}
        self.stale_refusals = dict.fromkeys(self._resources, 0)
        """Times that a resource refused this node's token, since it started (requirement 102)."""

    # -- LoopObserver -----------------------------------------------------------------------------

    def role_changed(self, change: RoleChange) -> None:
        now = self._clock.monotonic_ns()
        if change.role is Role.LEADER:
            self._stages.reached("elect", now)
            self._tenure = Tenure(
                node_id=self._node_id,
                token=FencingToken(self._incarnation, change.term),
                holder=self.holder,
                node_loop=self._node_loop,
                machine=self._machine,
                resources=self._resources,
                policies=self._policies,
                dispatch_policies=self._dispatch_policies,
                retention=self._retention,
                runtime=self._runtime,
                clock=self._clock,
                randomness=self._randomness,
                loop=self._loop,
                stages=self._stages,
                stale_refusals=self.stale_refusals,
                executions=self._executions,
                activation_policies=self._activation_policies,
                hand_ons=self._hand_ons,
                late=self._late,
                on_late=self._keep_late,
            )
            if self._drains:
                self._tenure.drain()
            return
        if self._tenure is not None:
            self._revoke()
        if change.role in (Role.PRE_CANDIDATE, Role.CANDIDATE):
            # Whoever is handed leadership campaigns at once, and has missed nobody for longer than a heartbeat.
            if not self._stages.has("detect"):
                self._stages.start(self._node_loop.last_leader_contact_ns() or self._started_at)
                self._stages.reached("detect", now)
        elif change.leader:  # A follower again, of somebody.
            self._stages = StageClock()

    def applied(self, entries: list[Entry], results: list[Any]) -> None:
        tenure = self._tenure
        if tenure is None:
            return
        filled = tenure.entries_applied(entries[-1].index)
        for entry, result in zip(entries, results, strict=True):
            if type(result) is SubmitResult and not result.replayed and not result.reused:
                operation = result.operation
                if operation.deadline_ns:
                    tenure.watch(operation)
                if operation.resource not in filled:
                    tenure.offer(operation)
            elif type(result) is list and result and result[0].resource not in filled:
                self._changed(tenure, entry.data[1], result)

    @staticmethod
    def _changed(tenure: Tenure, kind: int, operations: list[Operation]) -> None:
        """Operations changed by an entry of that kind. What dispatch and outcome do is for the dispatcher to see,
        unless they were another leader's."""
        standing = kind in WISHES or tenure.has_standing
        for operation in operations:
            if kind == REDRIVE:
                tenure.redriven(operation)
            elif standing and (operation.state in TERMINAL or kind == RESOLVE):
                # Whatever else is wanted of one that has not ended leaves it where it is in the queue.
                tenure.changed(operation)
            if operation.state is OperationState.IN_DOUBT:
                tenure.in_doubt(operation)

    def before_turn_ends(self, now: int) -> None:
        tenure = self._tenure
        if tenure is None:
            return
        wake_ns = tenure.pump()
        if wake_ns:
            self._arm_wake(wake_ns, self._node_loop.cluster_time_ns())
        if self._when_idle and tenure.idle:
            self._tell_idle()

    def restored(self, snapshot: Snapshot) -> None:
        pass  # Only a follower's state is replaced, and a follower holds no command.

    def configuration_changed(self, configuration: Configuration) -> None:
        pass

    def transfer_begun(self, transfer: TransferBegun) -> None:
        """The successor's claim may come at any moment: start nothing that it would cut through."""
        self._handing_over = True
        if self._tenure is not None:
            self._tenure.drain()

    def transfer_ended(self, transfer: TransferEnded) -> None:
        self._handing_over = False
        self._resume()

    def stopped(self) -> None:
        if self._tenure is not None:
            self._revoke()
        if self._wake_timer is not None:
            self._wake_timer.cancel()

    # -- drain ------------------------------------------------------------------------------------

    async def drain(self, timeout_s: float) -> bool:
        """Start nothing new and wait until what is under way has its outcome committed.

        Returns whether that happened within ``timeout_s``. The first step of a planned stop.
        """
        idle: asyncio.Future[None] = self._loop.create_future()
        self.begin_drain(lambda: None if idle.done() else idle.set_result(None))
        try:
            async with asyncio.timeout(timeout_s):
                await idle
        except TimeoutError:
            return False
        return True

    def begin_drain(self, when_idle: Callable[[], None]) -> None:
        """Start nothing new until :meth:`end_drain`. ``when_idle`` is called on the node's loop once nothing
        is under way and every outcome is committed, or this node does not lead any more."""
        self._drains += 1
        self._when_idle.append(when_idle)
        if self._tenure is None:
            self._tell_idle()
            return
        self._tenure.drain()
        self._node_loop.wake()

    def end_drain(self) -> None:
        """Go on, unless somebody else still wants nothing to be started."""
        self._drains -= 1
        self._resume()
        self._node_loop.wake()

    def _resume(self) -> None:
        if self._tenure is not None and not self._drains and not self._handing_over:
            self._tenure.resume()

    def _tell_idle(self) -> None:
        waiting, self._when_idle = self._when_idle, []
        for when_idle in waiting:
            when_idle()

    # -- reading ----------------------------------------------------------------------------------

    @property
    def token(self) -> FencingToken | None:
        """The token this node acts under, while it leads."""
        return self._tenure.authority.token if self._tenure is not None else None

    def status(self) -> dict[str, dict[str, Any]]:
        """Per resource, JSON-like: activation, token, counts and the last error."""
        body: dict[str, dict[str, Any]] = {}
        for name, resource in self._resources.items():
            counts = self._machine.counts.get(name, {})
            body[name] = {
                "kind": resource.kind,
                "guarantee": resource.guarantee.value,
                "guarantee_reason": getattr(resource, "guarantee_reason", ""),
                "activation": ActivationState.FOLLOWER.value,
                "required": self._activation_policies[name].required,
                "token": None,
                "pending": len(self._machine.pending.get(name, ())),
                "in_flight": 0,
                "dead": counts.get(OperationState.DEAD, 0),
                "in_doubt": counts.get(OperationState.IN_DOUBT, 0),
                "stale_refusals": self.stale_refusals[name],
                "fence_mode": seen_json(resource),
                "last_error": "",
            }
            if self._tenure is not None:
                body[name].update(self._tenure.status(name))
        return body

    def waiting_reason(self, operation: Operation) -> str:
        """Why a command that has not ended is not executing, for a person; empty if it is."""
        resource = self._resources.get(operation.resource)
        if resource is None:
            return f"this node has no resource {operation.resource!r}"
        if operation.effect not in resource.effects:
            return f"this node's resource {operation.resource!r} has no effect {operation.effect!r}"
        if self._tenure is None:
            return ""
        if operation.not_before_ns > self._node_loop.cluster_time_ns():
            return "its time has not come"
        seat = self._tenure.status(operation.resource)
        if seat["activation"] != ActivationState.ACTIVE.value:
            return f"resource {operation.resource!r} is {seat['activation']}: {seat['last_error']}".rstrip(": ")
        return ""

    def fences(self, parameters: dict[str, Any], reply: Callable[[Any, FencepostError | None], None]) -> None:
        """What every resource itself remembers as its highest token: ``resource.fences``."""
        status = self.status()
        body: dict[str, dict[str, Any]] = {}
        if not self._resources:
            reply({"resources": {}}, None)

        def answered(name: str, fence: Fence | None, error: BaseException | None) -> None:
            body[name] = {
                "kind": status[name]["kind"],
                "guarantee": status[name]["guarantee"],
                "activation": status[name]["activation"],
                "token": None if fence is None else token_json(fence.token),
                "holder": "" if fence is None else fence.holder,
                "leader_token": status[name]["token"],
                "error": "" if error is None else str(error),
            }
            if len(body) == len(self._resources):
                reply({"resources": dict(sorted(body.items()))}, None)

        for name, resource in self._resources.items():

            async def ask(name: str = name, resource: Resource = resource) -> Fence | None:
                async with bounded(ANSWER_TIMEOUT_S, f"resource {name!r} when asked for its fence"):
                    await resource.open()
                    return await resource.fence()

            self._runtime.run(ask, partial(answered, name))

    # -- what people want -------------------------------------------------------------------------

    @property
    def acting(self) -> Tenure | None:
        """The tenure of this node, once everything that predecessors committed is applied here."""
        return self._tenure if self._tenure is not None and self._tenure.recovered else None

    def resource(self, name: str) -> Resource | None:
        return self._resources.get(name)

    # -- inside -----------------------------------------------------------------------------------

    def _authority(self) -> Authority | None:
        return None if self._tenure is None else self._tenure.authority

    def _keep_late(self, resource: str, token: FencingToken, rows: list[OutcomeRow]) -> None:
        self._late.keep(resource, token, rows)
        if self._tenure is not None and self._tenure.recovered:
            self._late.propose(self._node_loop)

    def _revoke(self) -> None:
        tenure, self._tenure = self._tenure, None
        if self._wake_timer is not None:
            self._wake_timer.cancel()  # The next leadership's cluster time may stand elsewhere.
            self._wake_timer = None
        if tenure is not None:
            tenure.revoke()
            _LOG.info("authority revoked", token=str(tenure.authority.token))
        self._stages = StageClock()
        self._stages.start(self._clock.monotonic_ns())
        self._handing_over = False
        self._tell_idle()

    def _arm_wake(self, at_cluster_ns: int, now_cluster_ns: int) -> None:
        """A turn at the time of the next retry."""
        if self._wake_timer is not None and self._wake_at_ns <= at_cluster_ns:
            return
        if self._wake_timer is not None:
            self._wake_timer.cancel()
        self._wake_at_ns = at_cluster_ns
        delay = max(at_cluster_ns - now_cluster_ns, 0) / 1e9
        self._wake_timer = self._loop.call_later(delay, self._wake)

    def _wake(self) -> None:
        self._wake_timer = None
        self._node_loop.wake()
