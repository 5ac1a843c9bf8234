"""One request of a client while it is under way, and the errors it may end with."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..raft.core.errors import FencepostError, Outcome, OutcomeUnknown, all_errors
from ..raft.ports import Answer
from .client_link import ClientLink


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
        next_step=f"fencepost command show {request.operation_id}",
    )


def refusal_of(request: Request, answer: Answer, address: str) -> FencepostError:
    """The error of a REFUSED answer, as the class of its code."""
    message = answer.detail or answer.code
    tried = [f"{address}  refused it: {message}"]
    next_step = f"fencepost command show {request.operation_id}" if answer.code == "OPERATION_ID_REUSED" else ""
    kind = all_errors().get(answer.code)
    if kind is None:
        return FencepostError(
            f"{answer.code}: {message}", tried=tried, next_step=next_step, outcome=Outcome.REFUSED
        )
    return kind(message, tried=tried, next_step=next_step, outcome=Outcome.REFUSED)
