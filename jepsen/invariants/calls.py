"""What a resource's own record says, call by call: the words that the properties of resources share."""

from __future__ import annotations

from collections.abc import Iterator

from ...raft.ports import AttemptStatus
from ..sim.resource import QUESTIONS, AttemptRecord, ResourceCall


def accepted(call: ResourceCall) -> bool:
    """Whether the token of a call was let in: of a claim or of effects, not of a question."""
    return call.kind not in QUESTIONS and call.decision == "accepted"


def effects_of(call: ResourceCall) -> Iterator[AttemptRecord]:
    """The attempts of a call that took effect, and not those whose effect had taken place before."""
    for attempt in call.attempts:
        outcome = attempt.outcome
        if outcome is not None and outcome.status == AttemptStatus.SUCCEEDED and not outcome.replayed:
            yield attempt


def text(call: ResourceCall) -> str:
    return f"call {call.number} at {call.resource}, of {call.node}/{call.boot} with token {call.token}"
