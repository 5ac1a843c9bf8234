"""What whoever composes a node may bring himself, beside what its configuration says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..raft.effects.policy import ActivationPolicy, DispatchPolicy, RetryPolicy
from ..raft.effects.runtime import EffectsRuntime, ThreadRuntime
from ..raft.ports import Machine, Resource

Last = Callable[[], Coroutine[Any, Any, None]]
"""What is to be run where effects ran, when nothing runs there any more."""


def own_thread(
    loop: asyncio.AbstractEventLoop,
    last: Last,
    *,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> EffectsRuntime:
    """``new_loop`` makes the loop that effects run on."""
    return ThreadRuntime(loop, last=last, new_loop=new_loop)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """All of it is added to what the configuration names; nothing takes its place."""

    machine: Machine | None = None
    """The state machine behind plain proposals; None for the one that keeps nothing."""
    resources: Mapping[str, Resource] = field(default_factory=dict)
    retry_policies: Mapping[str, RetryPolicy] = field(default_factory=dict)
    activation_policies: Mapping[str, ActivationPolicy] = field(default_factory=dict)
    dispatch_policies: Mapping[str, DispatchPolicy] = field(default_factory=dict)
    runtime: Callable[[asyncio.AbstractEventLoop, Last], EffectsRuntime] = own_thread
    """Makes what effects run on, from the node's loop."""
    definitions: Mapping[str, Any] = field(default_factory=dict)
    """What commands for these resources mean, JSON-like, by resource: nodes compare a digest of it."""
    lease_reads: bool = False
    """``Options.lease_reads``."""
