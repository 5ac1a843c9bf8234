"""What a handler written by a user gets, and what it may raise (concepts: The life of a command)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.errors import FencepostError, Outcome
from ..core.token import FencingToken


class Retryable(FencepostError):
    """The effect was definitely not applied this time; another attempt may succeed.

    A handler raises it for a refused connection, a full queue, HTTP 429 or 503. Never for a timeout
    after the request went out: then nobody knows, and any other exception says so.
    """

    code = "EFFECT_RETRYABLE"
    outcome = Outcome.RETRY


class Permanent(FencepostError):
    """The effect was definitely not applied and never will be. The command fails for good.

    A handler raises it for a request that the other side understood and rejected, HTTP 400 or 422.
    """

    code = "EFFECT_PERMANENT"
    outcome = Outcome.REFUSED


@dataclass(frozen=True, slots=True)
class EffectContext:
    """Everything about one attempt but its payload."""

    operation_id: str
    """Send it along as the idempotency key: stable over attempts, leaders and restarts."""
    index: int
    """The operation's place in the log."""
    entry_term: int
    """Provenance only. To fence with, use ``token``."""
    token: FencingToken
    """The executing leader's. Send it along to whatever can compare it."""
    attempt: int
    """1, 2, 3 … of this operation."""
    deadline: float
    """On ``time.monotonic``'s scale, in seconds. Past it the attempt is given up."""
    log: Any
    """A structlog logger bound to this attempt."""
    effect: str = ""
    lane: str = ""
    holder: str = ""
    """Who executes, with ``token``: the same token from two of them is DUPLICATE_GENERATION."""
    cluster_id: str = ""
    """Whose token it is: those of two clusters are never compared."""


@dataclass(frozen=True, slots=True)
class ClaimContext:
    """What a claim hook gets when a node has become leader, before anything is executed under its token."""

    token: FencingToken
    """From now on the highest. Whatever bears a lower one must be refused."""
    holder: str
    cluster_id: str
    deadline: float
    """On ``time.monotonic``'s scale, in seconds. Past it the claim is given up, and made again later."""
    log: Any
    """A structlog logger bound to this claim."""
