"""The resources of an outbox as an embedder defines them, and what a node is composed of for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...raft.core.errors import ConfigurationError
from ...raft.effects.policy import ActivationPolicy, RetryPolicy
from ...raft.effects.resources.python import ClaimHook, PythonEffect, PythonResource
from ...raft.ports import Guarantee, Resource
from .effects import Effect

_S = 1_000_000_000
HANDLER_TIMEOUT_S = 30.0

ResourceFactory = Callable[[str], Resource]
"""Makes a resource (``raft.ports.Resource``) for the cluster of this id. Connects to nothing yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When an attempt that did not succeed is followed by another. The pause before attempt n+1 is drawn from zero to
    ``backoff_s * 2**(n-1)``, at most ``backoff_max_s`` (full jitter)."""

    max_attempts: int = 10
    """Failed attempts after which a command is dead."""
    backoff_s: float = 0.1
    backoff_max_s: float = 30.0

    def policy(self) -> RetryPolicy:
        return RetryPolicy(
            max_attempts=self.max_attempts,
            backoff_ns=int(self.backoff_s * _S),
            backoff_max_ns=int(self.backoff_max_s * _S),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A resource that was made by hand, or one of handlers where ``make`` is None."""

    name: str
    make: ResourceFactory | None
    guarantee: Guarantee | None
    allow_duplicates: bool
    concurrency: int
    retry: Retry
    required: bool
    activation_timeout_s: float

    def resource(
        self, cluster_id: str, effects: Mapping[str, Effect[Any, Any]], claim: ClaimHook | None = None
    ) -> Resource:
        """Raises :class:`ConfigurationError` where effects and resource do not belong together."""
        if self.make is not None:
            made = self.make(cluster_id)
            unknown = sorted(set(effects) - made.effects)
            if unknown or made.name != self.name:
                raise ConfigurationError(
                    f"resource {self.name!r} is attached as {made.name!r} and has no effects {unknown}",
                    next_step="declare the effects that it has, and give it the name it is attached by",
                )
            return made
        if self.guarantee is None:
            raise AssertionError(f"resource {self.name!r} of handlers has no guarantee")
        return PythonResource(
            self.name,
            {name: PythonEffect(effect.handler(), _timeout_ns(effect)) for name, effect in effects.items()},
            guarantee=self.guarantee,
            cluster_id=cluster_id,
            allow_duplicates=self.allow_duplicates,
            concurrency=self.concurrency,
            claim=claim or "",
        )

    def retry_policy(self, effects: Mapping[str, Effect[Any, Any]]) -> RetryPolicy:
        own = {name: effect.retry for name, effect in effects.items() if effect.retry is not None}
        return replace(self.retry.policy(), by_effect=own)

    def activation_policy(self) -> ActivationPolicy:
        return ActivationPolicy(self.required, int(self.activation_timeout_s * _S))

    def described(self, effects: Mapping[str, Effect[Any, Any]]) -> dict[str, Any]:
        """What nodes compare of it."""
        return {
            "kind": "attached" if self.guarantee is None else "handlers",
            "guarantee": "" if self.guarantee is None else self.guarantee.value,
            "required": self.required,
            "max_attempts": self.retry.max_attempts,
            "effects": {name: effect.described() for name, effect in sorted(effects.items())},
        }


def _timeout_ns(effect: Effect[Any, Any]) -> int:
    return int((HANDLER_TIMEOUT_S if effect.timeout_s is None else effect.timeout_s) * _S)
