"""Commands that were left in doubt, at a resource that can be asked about them.

A new leader asks once, when the resource is active. Only a yes counts: that an effect took place is a fact, from
whichever attempt. A no says little, since what was sent may still be on its way; so it stays with a person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

import structlog

from ..outbox.codec import OutcomeRow
from ..outbox.operation import Operation, OperationState
from ..outbox.transitions import Verdict
from ..ports import Attempt, Resource
from .authority import Authority
from .runtime import EffectsRuntime

_LOG = structlog.get_logger("fencepost.effects")

ASKED_MAX = 1000
"""By one leader of one resource; who leaves more in doubt needs a person anyway."""


@runtime_checkable
class Queryable(Protocol):
    """What a :class:`Resource` may have besides."""

    async def query(self, attempt: Attempt) -> bytes | None:
        """The result (JSON) of an operation that was applied; None where it was not, or nobody can tell.

        Does nothing but look. ``attempt`` is the last one of the operation.
        """


def ask_in_doubt(
    resource: Resource,
    operations: Iterable[Operation],
    runtime: EffectsRuntime,
    authority: Authority,
    keep: Callable[[list[OutcomeRow]], None],
) -> None:
    """Ask about those of ``operations`` that are in doubt, one after the other; ``keep`` gets what was applied."""
    if not isinstance(resource, Queryable):
        return
    query = resource.query
    doubtful = (operation for operation in operations if operation.state is OperationState.IN_DOUBT)
    attempts = [_last_attempt(operation) for _, operation in zip(range(ASKED_MAX), doubtful, strict=False)]
    if not attempts:
        return

    async def ask() -> list[OutcomeRow]:
        found = []
        for attempt in attempts:
            if authority.revoked:
                break
            result = await query(attempt)
            if result is not None:
                found.append(OutcomeRow(attempt.index, attempt.number, Verdict.SUCCEEDED, result, "", 0))
        return found

    def answered(found: list[OutcomeRow] | None, error: BaseException | None) -> None:
        if error is not None:
            _LOG.warning("commands in doubt not asked about", resource=resource.name, error=str(error))
            return
        applied = found or []
        _LOG.info("commands in doubt asked about", resource=resource.name, asked=len(attempts), applied=len(applied))
        if applied:
            keep(applied)

    runtime.run(ask, answered)


def _last_attempt(operation: Operation) -> Attempt:
    return Attempt(
        operation.operation_id,
        operation.index,
        operation.term,
        operation.effect,
        operation.lane,
        operation.payload,
        operation.digest,
        operation.attempt,
    )
