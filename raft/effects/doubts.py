"""What a resource that can be asked says about commands in doubt (concepts: What can be promised depends on the
resource)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog

from ..core.entry import Entry, EntryKind
from ..core.errors import FenceError
from ..outbox.codec import Resolve, encode
from ..outbox.operation import Operation, OperationState
from ..outbox.transitions import Finding
from ..ports import Answered, Attempt, Found, QueryableResource, Resource
from .authority import Authority
from .batch import checked_answer
from .bounds import ANSWER_TIMEOUT_S, bounded
from .dispatcher import Proposer
from .policy import RetryPolicy
from .runtime import EffectsRuntime

_LOG = structlog.get_logger("fencepost.effects")
_IN_DOUBT = OperationState.IN_DOUBT


class Doubts:
    """Of one resource, for one tenure. Asks about one command at a time, and only behind its own claim: before it,
    "not applied" could be overtaken by a predecessor's attempt. Hears of its own entries."""

    def __init__(
        self,
        *,
        resource: Resource,
        authority: Authority,
        proposer: Proposer,
        runtime: EffectsRuntime,
        policy: RetryPolicy,
        may_ask: Callable[[], bool],
        on_trouble: Callable[[BaseException], None],
    ) -> None:
        """``on_trouble`` is told when the resource has another holder."""
        self._resource: QueryableResource | None = resource if isinstance(resource, QueryableResource) else None
        self._authority = authority
        self._proposer = proposer
        self._runtime = runtime
        self._policy = policy
        self._may_ask = may_ask
        self._on_trouble = on_trouble
        self._to_ask: dict[int, Operation] = {}
        self._asked: Operation | None = None
        """Whose answer is awaited."""

    @property
    def can_ask(self) -> bool:
        return self._resource is not None and not self._authority.revoked and self._may_ask()

    def consider(self, operations: Iterable[Operation]) -> None:
        """Ask about those of them that are in doubt."""
        if self._resource is not None:
            doubtful = (each for each in operations if each.state is _IN_DOUBT and each is not self._asked)
            self._to_ask.update((each.index, each) for each in doubtful)
            self._next()

    def ask(
        self, operation: Operation, heard: Callable[[Answered | None], None], within_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        """Whether an operation was applied; None where that was not told (``within_s`` seconds), UNKNOWN where
        what was told is not final. ``can_ask`` must hold."""
        resource, attempt = self._resource, _last_attempt(operation)
        assert resource is not None

        def answered(answer: Answered | None, error: BaseException | None) -> None:
            if error is not None:
                _LOG.warning("query failed", resource=resource.name, operation=attempt.operation_id, error=str(error))
            if answer is not None and answer.found is Found.NOT_APPLIED and not resource.absence_is_final:
                answer = Answered(Found.UNKNOWN)
            heard(None if error is not None or self._authority.revoked else answer)
            if isinstance(error, FenceError):
                self._on_trouble(error)

        async def query() -> Answered:
            # One that hangs would keep all others from being asked about.
            async with bounded(within_s, f"resource {resource.name!r} to a question"):
                return checked_answer(resource.name, await resource.query(attempt))

        self._runtime.run(query, answered)

    def _next(self) -> None:
        while self._to_ask and self._asked is None and self.can_ask:
            operation = self._to_ask.pop(next(iter(self._to_ask)))
            if operation.state is _IN_DOUBT:
                self._asked = operation
                attempt = operation.attempt
                self.ask(operation, lambda answer, of=operation, at=attempt: self._heard(of, at, answer))  # type: ignore[misc]

    def _heard(self, operation: Operation, attempt: int, answer: Answered | None) -> None:
        self._asked = None
        finding = None if answer is None or operation.state is not _IN_DOUBT else self._finding(operation, answer)
        if answer is not None and finding is not None:
            entry = Resolve(
                operation.operation_id, finding, attempt, self._authority.token, answer.result, "asked by its leader"
            )
            self._proposer.propose_internal(EntryKind.OUTBOX, (encode(entry),), self, (None,))
        self._next()

    def _finding(self, operation: Operation, answer: Answered) -> Finding | None:
        if answer.found is not Found.NOT_APPLIED:
            return Finding.DONE if answer.found is Found.APPLIED else None
        if operation.lost >= self._policy.of(operation.effect).lost_max:
            return Finding.NOT_DONE  # It may be what kills its executors (S51): once is known, not again.
        # An attempt of this very leader bears the token that is let in, and may still be on its way.
        return None if operation.token == self._authority.token else Finding.ABSENT

    def accepted(self, keys: Sequence[None], first_index: int, term: int) -> None:
        pass

    def refused(self, keys: Sequence[None], code: str, leader: str) -> None:
        pass  # Whoever leads next asks again.

    def applied(self, keys: Sequence[None], entries: Sequence[Entry], results: Sequence[Any]) -> None:
        pass

    def lost(self, keys: Sequence[None]) -> None:
        pass

    def unknown(self, keys: Sequence[None]) -> None:
        pass


def _last_attempt(operation: Operation) -> Attempt:
    return Attempt(
        operation.operation_id,
        operation.place,
        operation.term,
        operation.effect,
        operation.lane,
        operation.payload,
        operation.digest,
        operation.attempt,
    )
