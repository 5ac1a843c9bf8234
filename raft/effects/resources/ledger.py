"""What a fenced resource remembers, as values, and the one comparison every resource makes.

The rules of the fence (concepts: The fencing token) stand here once. A resource calls :func:`check_fence` *inside* the
atomic step that also dedupes and applies: a check followed by a separate write is a defect.
"""

from __future__ import annotations

from typing import NamedTuple

from ...core.errors import DuplicateGeneration, Outcome, ResourceUnavailable, StaleLeader, WrongCluster
from ...core.token import FencingToken


class StoredFence(NamedTuple):
    """The highest token a resource has accepted. Scope: (cluster, resource)."""

    resource: str
    cluster: str
    token: FencingToken
    holder: str


class ClaimRecord(NamedTuple):
    """One rise of the fence. Everything accepted later bears this token or a higher one."""

    sequence: int
    resource: str
    token: FencingToken
    holder: str
    accepted_before: int
    """The last place in the order of acceptance when the fence rose; 0 if nothing was accepted yet."""
    claimed_ns: int


class AcceptedOperation(NamedTuple):
    """One effect that was applied, in the order of acceptance."""

    accepted: int
    """The place in the order of acceptance: rising, over all resources of one ledger."""
    resource: str
    operation_id: str
    effect: str
    lane: str
    log_index: int
    token: FencingToken
    holder: str
    attempt: int
    digest: bytes
    result: bytes
    applied_ns: int


class Refusal(NamedTuple):
    """One batch that was turned away at the fence. Nothing of it was applied."""

    sequence: int
    resource: str
    refused_ns: int
    token: FencingToken
    holder: str
    stored: FencingToken
    stored_holder: str
    operations: list[str]
    """Operation ids of the batch; empty when a claim was refused."""
    reason: str
    """The error's code: STALE_LEADER, DUPLICATE_GENERATION."""


class Ledger(NamedTuple):
    """Everything a ledger holds about what it accepted and refused."""

    fences: list[StoredFence]
    claims: list[ClaimRecord]
    operations: list[AcceptedOperation]
    refusals: list[Refusal]


def check_fence(resource: str, stored: StoredFence | None, cluster: str, token: FencingToken, holder: str) -> bool:
    """Whether ``token`` raises the fence (True) or stands at it (False).

    Raises :class:`WrongCluster`, then :class:`StaleLeader` or :class:`DuplicateGeneration`: in that
    order, and all before dedupe, because a stale leader that asks about a finished operation must
    hear that it is stale.
    """
    if stored is None:
        return True
    if stored.cluster != cluster:
        # Never a comparison: terms of two clusters have nothing to do with each other.
        raise WrongCluster(
            f"resource {resource!r} belongs to cluster {stored.cluster!r}, and this node to {cluster!r}",
            next_step="give this cluster a ledger or a resource name of its own",
        )
    if token > stored.token:
        return True
    if token < stored.token:
        raise StaleLeader(
            f"resource {resource!r} refuses token {token} of {holder}: "
            f"it has accepted {stored.token} of {stored.holder}",
            next_step="nothing: a newer leader is at work, and this one steps down",
        )
    if holder != stored.holder:
        # Two holders of one token: a double vote, or a data directory that runs twice.
        raise DuplicateGeneration(
            f"resource {resource!r} refuses token {token} of {holder}: {stored.holder} presented the same token",
            next_step="stop both nodes and compare their data directories: one of them may be a copy",
        )
    return False


def check_kept(resource: str, stored: StoredFence | None, claimed: FencingToken | None) -> None:
    """That the resource still remembers the token that this process has ``claimed`` there.

    Raises :class:`ResourceUnavailable` where it does not: it was put back to an earlier state, or made anew, and
    must be claimed again before it is used.
    """
    if claimed is None or (stored is not None and stored.token >= claimed):
        return
    remembers = "no token at all" if stored is None else f"token {stored.token}"
    raise ResourceUnavailable(
        f"resource {resource!r} remembers {remembers}, and had accepted {claimed}: it was put back to an earlier state",
        next_step="nothing: it is claimed again before it is used",
        outcome=Outcome.RETRY,
    )
