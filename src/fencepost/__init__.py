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
    from .raft.core.errors import (
        Busy,
        CommandFailed,
        CommandInvalid,
        ConfigurationError,
        DuplicateGeneration,
        FencepostError,
        NoEndpoint,
        NoLeader,
        NotFound,
        OperationIdReused,
        Outcome,
        OutcomeUnknown,
        ResourceUnavailable,
        StaleLeader,
        WrongCluster,
    )
    from .raft.core.token import FencingToken
    from .raft.effects.handlers import EffectContext, Permanent, Retryable
    from .raft.outbox.codec import Command
    from .raft.ports import Answer, Wait
    from .transport.client import Client

__all__ = [
    "Answer",
    "Busy",
    "Client",
    "Command",
    "CommandFailed",
    "CommandInvalid",
    "ConfigurationError",
    "DuplicateGeneration",
    "EffectContext",
    "FencepostError",
    "FencingToken",
    "NoEndpoint",
    "NoLeader",
    "NotFound",
    "OperationIdReused",
    "Outcome",
    "OutcomeUnknown",
    "Permanent",
    "ResourceUnavailable",
    "Retryable",
    "StaleLeader",
    "Wait",
    "WrongCluster",
    "__version__",
]

_HOMES = {
    "Answer": "raft.ports",
    "Client": "transport.client",
    "Command": "raft.outbox.codec",
    "EffectContext": "raft.effects.handlers",
    "FencingToken": "raft.core.token",
    "Permanent": "raft.effects.handlers",
    "Retryable": "raft.effects.handlers",
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
