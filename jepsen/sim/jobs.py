"""What clients want and hear, as a history keeps it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from ...raft.core.errors import FencepostError
from ...raft.ports import Answer, Wait


class Kind(StrEnum):
    SUBMIT = "submit"
    """A command of the outbox."""
    PROPOSE = "propose"
    """An entry of the embedder's own machine: of the registers, as a rule."""
    READ = "read"
    """A read of a register or a list."""
    CALL = "call"
    """Any other question."""


class Fate(StrEnum):
    """What a client knows of a thing in the end."""

    OPEN = "open"
    DONE = "done"
    """The answer says how it stands."""
    REFUSED = "refused"
    """Certainly not executed, and it never will be."""
    UNKNOWN = "unknown"
    """It may have been executed; nobody will know better by asking again."""
    GIVEN_UP = "given up"
    """The client was stopped before it heard the end."""


class Reply(NamedTuple):
    """What a node says to a question."""

    request_id: int
    body: Any
    error: FencepostError | None


class Invocation:
    """One request to one process. Times are nanoseconds of the world."""

    __slots__ = ("answer", "answered_ns", "boot", "job", "node", "request_id", "sent_ns")

    def __init__(self, job: Job, request_id: int, node: str, boot: int, sent_ns: int) -> None:
        self.job = job
        self.request_id = request_id
        self.node = node
        self.boot = boot
        """0: there was no process, and the connection was refused."""
        self.sent_ns = sent_ns
        self.answered_ns = 0
        """When it was answered or given up; 0: neither yet."""
        self.answer: Answer | Reply | None = None

    def __repr__(self) -> str:
        return f"<request {self.request_id} of {self.job.name} to {self.node}/{self.boot}: {self.answer}>"


class Job:
    """One thing that a client wants done, from the first request to the last answer."""

    __slots__ = (
        "begun_ns", "client", "data", "ended_ns", "fate", "final", "kind", "lane", "method", "name", "parameters",
        "payload", "resource", "then", "tries", "wait",
    )  # fmt: skip

    def __init__(
        self,
        client: str,
        kind: Kind,
        name: str,
        *,
        data: bytes = b"",
        resource: str = "",
        lane: str = "",
        payload: bytes = b"",
        wait: Wait = Wait.COMMITTED,
        method: str = "",
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self.client = client
        self.kind = kind
        self.name = name
        """The operation id of a command; else what tells it from others in the history."""
        self.data = data
        """What goes into the log."""
        self.resource = resource
        self.lane = lane
        self.payload = payload
        self.wait = wait
        self.method = method
        self.parameters = dict(parameters or {})
        self.tries: list[Invocation] = []
        self.begun_ns = 0
        self.ended_ns = 0
        """0: it has not ended."""
        self.fate = Fate.OPEN
        self.final: Answer | Reply | None = None
        """The answer that ended it."""
        self.then: Callable[[], None] | None = None
        """Called once, when it has ended."""

    @property
    def done(self) -> bool:
        return self.fate is Fate.DONE

    @property
    def value(self) -> Any:
        """What a read found, or what the machine answered to a proposal; None where there is none."""
        final = self.final
        if isinstance(final, Reply):
            return final.body.get("value") if self.kind is Kind.READ and isinstance(final.body, dict) else final.body
        if self.kind is Kind.PROPOSE and final is not None and final.result:
            return json.loads(final.result)
        return None

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name} of {self.client}: {self.fate}, {len(self.tries)} tries, {self.final}>"
