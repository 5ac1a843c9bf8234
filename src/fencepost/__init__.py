"""fencepost: a Raft log that carries a replicated outbox, fenced at the resource.

The names below are the public ones; everything else may change. They are loaded when first used, so
that ``import fencepost`` costs nothing and brings in nothing.
"""

from __future__ import annotations

import os.path
from typing import TYPE_CHECKING, Any

# One stat. Without it the first import from a link that git could not make ends in "No module
# named 'fencepost.raft'", which says nothing about the cause.
if os.path.isfile(os.path.join(os.path.dirname(__file__), "raft")):
    raise ImportError(
        "this checkout has no symbolic links (src/fencepost/raft is a text file): "
        "run `git config core.symlinks true` and `git checkout -- src`, or install the published wheel"
    )

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .cli.embedding.codec import Codec
    from .cli.embedding.definitions import Retry
    from .cli.embedding.effects import Effect
    from .cli.embedding.envelope import Retention
    from .cli.embedding.handle import Handle
    from .cli.embedding.machine import StateMachine
    from .cli.embedding.node import Node
    from .cli.embedding.outbox import Outbox
    from .cli.embedding.settings import NodeSettings
    from .cli.embedding.values import Applied, Committed, Leadership, LogEntry, NodeStatus
    from .raft.core.errors import (
        Busy,
        CommandFailed,
        CommandInvalid,
        ConfigurationError,
        DuplicateGeneration,
        FencepostError,
        LeadershipLost,
        NoEndpoint,
        NoLeader,
        NotFound,
        NotLeader,
        OperationIdExpired,
        OperationIdReused,
        Outcome,
        OutcomeUnknown,
        ResourceUnavailable,
        ResultLost,
        StaleLeader,
        TransferRefused,
        WrongCluster,
    )
    from .raft.core.token import FencingToken
    from .raft.effects.handlers import ClaimContext, EffectContext, Permanent, Retryable
    from .raft.outbox.codec import Command
    from .raft.ports import Answer, Wait
    from .transport.client import Client

__all__ = [
    "Answer",
    "Applied",
    "Busy",
    "ClaimContext",
    "Client",
    "Codec",
    "Command",
    "CommandFailed",
    "CommandInvalid",
    "Committed",
    "ConfigurationError",
    "DuplicateGeneration",
    "Effect",
    "EffectContext",
    "FencepostError",
    "FencingToken",
    "Handle",
    "Leadership",
    "LeadershipLost",
    "LogEntry",
    "NoEndpoint",
    "NoLeader",
    "Node",
    "NodeSettings",
    "NodeStatus",
    "NotFound",
    "NotLeader",
    "OperationIdExpired",
    "OperationIdReused",
    "Outbox",
    "Outcome",
    "OutcomeUnknown",
    "Permanent",
    "ResourceUnavailable",
    "ResultLost",
    "Retention",
    "Retry",
    "Retryable",
    "StaleLeader",
    "StateMachine",
    "TransferRefused",
    "Wait",
    "WrongCluster",
    "__version__",
]

_HOMES = {
    "Answer": "raft.ports",
    "Applied": "cli.embedding.values",
    "ClaimContext": "raft.effects.handlers",
    "Client": "transport.client",
    "Codec": "cli.embedding.codec",
    "Command": "raft.outbox.codec",
    "Committed": "cli.embedding.values",
    "Effect": "cli.embedding.effects",
    "EffectContext": "raft.effects.handlers",
    "FencingToken": "raft.core.token",
    "Handle": "cli.embedding.handle",
    "Leadership": "cli.embedding.values",
    "LogEntry": "cli.embedding.values",
    "Node": "cli.embedding.node",
    "NodeSettings": "cli.embedding.settings",
    "NodeStatus": "cli.embedding.values",
    "Outbox": "cli.embedding.outbox",
    "Permanent": "raft.effects.handlers",
    "Retention": "cli.embedding.envelope",
    "Retry": "cli.embedding.definitions",
    "Retryable": "raft.effects.handlers",
    "StateMachine": "cli.embedding.machine",
    "Wait": "raft.ports",
}
"""Where a public name lives, if not in ``raft.core.errors``."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_HOMES.get(name, 'raft.core.errors')}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
