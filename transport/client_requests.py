"""One request of a client while it is under way, and the errors it may end with."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from typing import Any

from ..raft.core.errors import (
    Busy,
    ClientError,
    FencepostError,
    LeadershipLost,
    NoEndpoint,
    NoLeader,
    Outcome,
    OutcomeUnknown,
    TransportError,
    all_errors,
)
from ..raft.ports import Answer
from .client_link import ClientLink

LAST_TRY_S = 0.25
"""A request that was told "not now" is not tried again when less than this is left, or a fifth."""


class Request:
    """A submission or a proposal. Slots and no more: one is made for every command."""

    __slots__ = (
        "data",
        "deadline_ns",
        "future",
        "last_code",
        "link",
        "operation_id",
        "proposal",
        "request_id",
        "timeout_s",
        "tries",
        "uncertain",
        "wait",
        "why",
    )

    def __init__(
        self,
        request_id: int,
        wait: int,
        data: bytes,
        operation_id: str,
        proposal: bool,
        deadline_ns: int,
        timeout_s: float,
        future: asyncio.Future[Answer],
    ) -> None:
        self.request_id = request_id
        self.wait = wait
        self.data = data
        self.operation_id = operation_id
        self.proposal = proposal
        self.deadline_ns = deadline_ns
        self.timeout_s = timeout_s
        self.future = future
        self.link: ClientLink | None = None
        """Where it was sent and may yet be answered."""
        self.uncertain = False
        """It may have been executed; never taken back, for a later "not now" says nothing of the first try."""
        self.why = ""
        self.tries = 0
        self.last_code = ""


def too_late(request: Request, now_ns: int) -> bool:
    """Not again so shortly before the deadline: the answer might not come in time, and what is certain
    now (not executed) would become unknown."""
    last_s = min(LAST_TRY_S, request.timeout_s / 5)
    return not request.uncertain and now_ns > request.deadline_ns - int(last_s * 1_000_000_000)


def _show(operation_id: str) -> str:
    """The command to type next. Ids may hold whatever can be printed, and a shell reads it."""
    return f"fencepost command show {shlex.quote(operation_id)}"


def failure_of(request: Request, tried: Sequence[str]) -> OutcomeUnknown:
    """The end of a request that may have been executed."""
    if request.why:
        why = request.why
    elif request.link is not None:
        why = f"{request.link.endpoint.address} took it and has not answered within {request.timeout_s:g} s"
    else:
        why = "no definite answer"
    if request.proposal:
        return OutcomeUnknown(
            f"the proposal may have been committed: {why}",
            tried=tried,
            next_step="read the state it would have changed before proposing it again",
        )
    return OutcomeUnknown(
        f"operation {request.operation_id} may have been executed: {why}",
        tried=tried,
        next_step=_show(request.operation_id),
    )


def refusal_of(request: Request, answer: Answer, address: str) -> FencepostError:
    """The error of a REFUSED answer, as the class of its code."""
    message = answer.detail or answer.code
    tried = [f"{address}  refused it: {message}"]
    next_step = _show(request.operation_id) if answer.code == "OPERATION_ID_REUSED" else ""
    kind = all_errors().get(answer.code)
    if kind is None:
        return FencepostError(f"{answer.code}: {message}", tried=tried, next_step=next_step, outcome=Outcome.REFUSED)
    return kind(message, tried=tried, next_step=next_step, outcome=Outcome.REFUSED)


def expiry_of(request: Request, tried: Sequence[str], *, any_up: bool) -> FencepostError:
    """The error of a request whose deadline has passed: what is known of it, and what kept it."""
    if request.uncertain or request.link is not None:
        return failure_of(request, tried)
    within = f"within {request.timeout_s:g} s"
    if not any_up:
        return no_endpoint(within, tried)
    if request.last_code == "BUSY":
        return Busy(
            f"the cluster was too busy to take it {within}, so nothing was committed; safe to retry",
            tried=tried,
            next_step="send less at once, or allow more time",
        )
    kind: type[ClientError] = LeadershipLost if request.last_code == "LEADERSHIP_LOST" else NoLeader
    return kind(
        f"no leader {within}, so nothing was committed; safe to retry", tried=tried, next_step="fencepost status"
    )


def closing_of(request: Request, tried: Sequence[str]) -> FencepostError:
    """The error of a request that the end of its client cuts short."""
    if request.uncertain or request.link is not None:
        request.why = request.why or "the client was closed before the answer came"
        return failure_of(request, tried)
    return TransportError("the client was closed before it was sent", outcome=Outcome.RETRY, tried=tried)


def no_endpoint(how_long: str, tried: Sequence[str]) -> NoEndpoint:
    return NoEndpoint(
        f"no endpoint could be reached {how_long}, so nothing was committed; safe to retry",
        tried=tried,
        next_step="start a node, or check --endpoints",
    )


def last_leader_of(status: dict[str, Any]) -> str:
    """What a node without a leader says of the last one, for a person."""
    last = status.get("last_leader")
    if not isinstance(last, dict) or not isinstance(last.get("heard_s_ago"), int | float):
        return "no leader known"
    return f"last leader {last.get('node')} {last['heard_s_ago']:.0f} s ago"
