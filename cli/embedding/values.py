"""What a node tells its embedder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...raft.core.token import FencingToken

C_co = TypeVar("C_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Applied(Generic[R_co]):
    """A command that was committed and applied, and what the state machine returned."""

    result: R_co
    index: int
    """Its place in the log: the first one of its id."""
    term: int
    replayed: bool
    """It had been applied under this id before: this is the first result, and nothing has changed now."""


@dataclass(frozen=True, slots=True)
class LogEntry(Generic[C_co]):
    """A command as it stands in the log, applied. One that was sent twice under an id may stand there twice: the
    first one took effect."""

    index: int
    term: int
    time_ns: int
    """Cluster time, nanoseconds since the Unix epoch."""
    operation_id: str
    """Empty where it was proposed without one."""
    command: C_co


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads, as far as a node knows."""

    leader: str
    """The node's id; empty while nobody is known to lead."""
    term: int
    leads: bool
    """This node leads, and has committed and applied in its own term: it knows everything that was committed."""
    token: FencingToken | None
    """To act under, where ``leads``: ``(incarnation, term)``."""
    _holds: Callable[[int], bool] = field(repr=False, compare=False)

    def holds(self) -> bool:
        """Whether it leads in this very term still, and a quorum was heard within the lease. To be asked before each
        action: it saves refusals, and it is the token at the resource that protects (concepts: The fencing token)."""
        return self.leads and self._holds(self.term)


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node as it is now."""

    node_id: str
    role: str
    """``follower``, ``pre-candidate``, ``candidate``, ``leader``; ``stopped``."""
    term: int
    leader: str
    """The node's id; empty while nobody is known to lead."""
    commit_index: int
    applied_index: int
    age_s: float | None
    """How old a stale read here may be, seconds; None if this node cannot tell."""
    voters: tuple[str, ...]
    learners: tuple[str, ...]
    resources: Mapping[str, str]
    """How far each resource is activated here: ``follower``, ``fencing``, ``active`` …"""
    ready: bool
    """It leads and every required resource is active, or it follows a leader."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Where a command of the outbox stands in the log for good."""

    index: int
    term: int
    replayed: bool
    """It had been committed under this id before."""
