"""The outbox as an embedder sees it: typed effects, and commands for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast, overload

from ...raft.core.errors import ConfigurationError, FencepostError
from ...raft.effects.policy import ActivationPolicy, RetryPolicy
from ...raft.effects.resources.python import ClaimHook
from ...raft.effects.resources.sqlite import SqliteEffect, SqliteResource
from ...raft.outbox.codec import Command, check_command
from ...raft.ports import Guarantee, Resource
from ..payload import new_operation_id
from .definitions import Attached, ResourceFactory, Retry
from .effects import Definer, Effect, result_type_of
from .handle import Handle, Submitter
from .runtimes import HandlerLoop, runtime_on

P = TypeVar("P")
R = TypeVar("R")
C = TypeVar("C", bound=ClaimHook)


class Outbox:
    """Defines what is to happen outside, and submits commands for it. Belongs to one :class:`Node`.

    ``handlers_on`` says where async handlers run: ``"own"``, a loop on a thread of its own, which a handler that
    blocks holds up, but never the node's; ``"node"``, the loop that the node was started on, for handlers that
    never block; or a loop of the embedder's that runs on another thread. Plain functions run on threads of
    their resource in any case.
    """

    def __init__(self, *, handlers_on: HandlerLoop = "own") -> None:
        self.runtime = runtime_on(handlers_on)
        self._attached: dict[str, Attached] = {}
        self._effects: dict[str, dict[str, Effect[Any, Any]]] = {}
        self._claims: dict[str, ClaimHook] = {}
        self._submitter: Submitter | None = None

    # -- resources ----------------------------------------------------------------------------------

    def handlers(
        self,
        name: str,
        *,
        guarantee: str,
        allow_duplicates: bool = False,
        concurrency: int = 16,
        retry: Retry | None = None,
        required: bool = True,
        activation_timeout_s: float = 30.0,
    ) -> None:
        """A resource whose effects are functions of this program. ``guarantee`` is what the other side enforces:
        ``fenced``, ``keyed``, or ``naked`` with ``allow_duplicates``. Raises :class:`ConfigurationError`."""
        if guarantee not in list(Guarantee):
            raise ConfigurationError(f"guarantee {guarantee!r}", next_step="one of: " + ", ".join(Guarantee))
        if guarantee == Guarantee.NAKED and not allow_duplicates:
            raise ConfigurationError(
                f"resource {name!r} is naked: nothing recognises a repeated effect there",
                next_step="pass the operation id on as a key and declare it keyed, or set allow_duplicates=True",
            )
        self._attach(
            Attached(
                name=name,
                make=None,
                guarantee=Guarantee(guarantee),
                allow_duplicates=allow_duplicates,
                concurrency=concurrency,
                retry=Retry() if retry is None else retry,
                required=required,
                activation_timeout_s=activation_timeout_s,
            )
        )

    def sqlite(
        self,
        name: str,
        path: Path | str,
        *,
        effects: Mapping[str, str],
        schema: str = "",
        retry: Retry | None = None,
        required: bool = True,
        activation_timeout_s: float = 30.0,
    ) -> None:
        """A SQLite file as a ``fenced`` resource: each effect is a statement, whose ``:names`` are fields of the
        payload. ``schema`` is run at every opening and must be harmless to repeat."""
        definitions = {effect: SqliteEffect(sql) for effect, sql in effects.items()}

        def make(cluster_id: str) -> Resource:
            return SqliteResource(name, path, definitions, cluster_id=cluster_id, schema=schema)

        self.attach(name, make, retry=retry, required=required, activation_timeout_s=activation_timeout_s)

    def attach(
        self,
        name: str,
        make: ResourceFactory,
        *,
        retry: Retry | None = None,
        required: bool = True,
        activation_timeout_s: float = 30.0,
    ) -> None:
        """Any resource (``raft.ports.Resource``): ``make(cluster_id)`` makes it, when the node is started."""
        self._attach(
            Attached(
                name=name,
                make=make,
                guarantee=None,
                allow_duplicates=False,
                concurrency=1,
                retry=Retry() if retry is None else retry,
                required=required,
                activation_timeout_s=activation_timeout_s,
            )
        )

    def _attach(self, attached: Attached) -> None:
        self._check_open()
        if attached.name in self._attached:
            raise ConfigurationError(f"resource {attached.name!r} is defined twice")
        self._attached[attached.name] = attached

    # -- effects ------------------------------------------------------------------------------------

    def effect(
        self,
        name: str,
        *,
        resource: str,
        payload: type[P],
        retry: Retry | None = None,
        timeout: float | None = None,
    ) -> Definer[P]:
        """Decorates ``async def handler(context: EffectContext, payload: P) -> R``, or a plain function.

        ``payload`` is a dataclass, a msgspec struct, a typed dict or any type that passes through JSON; so must R.
        ``retry`` is this effect's own, else the resource's. ``timeout`` bounds one call, seconds; by itself 30.
        Raises :class:`ConfigurationError`.
        """
        attached = self._attached.get(resource)
        if attached is None or attached.make is not None:
            raise ConfigurationError(
                f"effect {name!r}: the outbox has no resource {resource!r} of handlers",
                next_step=f"first: outbox.handlers({resource!r}, guarantee=...)",
            )

        def define(function: Callable[..., Any]) -> Effect[P, Any]:
            effect: Effect[P, Any] = Effect(
                name,
                resource,
                payload,
                result_type_of(function, name),
                function=function,
                retry=None if retry is None else retry.policy(),
                timeout_s=timeout,
            )
            self._add(effect)
            return effect

        return cast(Definer[P], define)

    @overload
    def declare(self, name: str, *, resource: str, payload: type[P], retry: Retry | None = ...) -> Effect[P, Any]: ...

    @overload
    def declare(
        self, name: str, *, resource: str, payload: type[P], result: type[R], retry: Retry | None = ...
    ) -> Effect[P, R]: ...

    def declare(
        self, name: str, *, resource: str, payload: type[P], result: Any = Any, retry: Retry | None = None
    ) -> Effect[P, Any]:
        """An effect that its resource itself knows how to carry out: a statement, or one of the configuration file."""
        own = None if retry is None else retry.policy()
        effect: Effect[P, Any] = Effect(name, resource, payload, result, retry=own)
        self._add(effect)
        return effect

    def claim(self, *, resource: str) -> Callable[[C], C]:
        """Decorates ``async def claim(context: ClaimContext)``, or a plain function, of a ``fenced`` resource of
        handlers: it tells the other side of a new leader's token before anything is executed under it, and raises
        ``StaleLeader`` where that has accepted a higher one. Raises :class:`ConfigurationError`."""
        attached = self._attached.get(resource)
        if attached is None or attached.guarantee is not Guarantee.FENCED:
            raise ConfigurationError(
                f"the outbox has no fenced resource {resource!r} of handlers to claim",
                next_step=f"first: outbox.handlers({resource!r}, guarantee='fenced')",
            )

        def define(function: C) -> C:
            self._check_open()
            if resource in self._claims:
                raise ConfigurationError(f"the claim of resource {resource!r} is defined twice")
            self._claims[resource] = function
            return function

        return define

    def _add(self, effect: Effect[Any, Any]) -> None:
        self._check_open()
        check_command(Command("-", effect.resource, effect.name, "", b""))
        effects = self._effects.setdefault(effect.resource, {})
        if effect.name in effects:
            raise ConfigurationError(f"effect {effect.name!r} of resource {effect.resource!r} is defined twice")
        effects[effect.name] = effect

    def _check_open(self) -> None:
        if self._submitter is not None:
            raise ConfigurationError("the outbox is in use: define resources and effects before its node is started")

    # -- submitting ---------------------------------------------------------------------------------

    async def submit(
        self, effect: Effect[P, R], payload: P, *, id: str | None = None, lane: str | None = None
    ) -> Handle[R]:
        """Submit a command, on any node. It is on its way when this returns; ``handle.committed()`` says when it can
        be relied on. Without ``id`` a new one is made (UUIDv7): then a repeat is another command.

        Raises :class:`CommandInvalid`, and nothing was sent, for a payload that does not fit, and what the node
        raises that has ended.
        """
        if self._effects.get(effect.resource, {}).get(effect.name) is not effect:
            raise ConfigurationError(f"{effect!r} was defined on another outbox")
        if self._submitter is None:
            raise FencepostError("the outbox has no node that runs", next_step="async with Node(..., outbox=outbox)")
        operation_id = new_operation_id() if id is None else id
        command = Command(operation_id, effect.resource, effect.name, lane or "", effect.encode(payload))
        check_command(command)
        return Handle(self._submitter, command, effect)

    # -- for the node -------------------------------------------------------------------------------

    def bind(self, submitter: Submitter) -> None:
        """Raises :class:`ConfigurationError` if another node has it."""
        if self._submitter is not None:
            raise ConfigurationError("the outbox belongs to another node", next_step="make one for each node")
        self._submitter = submitter

    def release(self, submitter: Submitter) -> None:
        """It can be bound again then."""
        if self._submitter is submitter:
            self._submitter = None

    def resources(self, cluster_id: str) -> dict[str, Resource]:
        """New ones, for one start of a node. Raises :class:`ConfigurationError`."""
        return {
            name: attached.resource(cluster_id, self._effects.get(name, {}), self._claims.get(name))
            for name, attached in self._attached.items()
        }

    def retry_policies(self) -> dict[str, RetryPolicy]:
        return {name: attached.retry_policy(self._effects.get(name, {})) for name, attached in self._attached.items()}

    def activation_policies(self) -> dict[str, ActivationPolicy]:
        return {name: attached.activation_policy() for name, attached in self._attached.items()}

    def described(self) -> dict[str, Any]:
        """What nodes of one cluster should agree on, JSON-like, by resource."""
        described = {name: each.described(self._effects.get(name, {})) for name, each in self._attached.items()}
        for name in self._claims:
            described[name]["claim"] = True
        return described
