"""The verdict over a run, from what the resources and the logs of the nodes say themselves."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from ...raft.core.token import FencingToken
from ...raft.effects.resources.audit import check_ledger
from ...raft.outbox.codec import digest
from ...raft.outbox.operation import Operation, OperationState
from ...raft.ports import Guarantee
from ..invariants.calls import effects_of
from ..invariants.f1_token_order import TokenOrder
from ..invariants.f2_effect_once import EffectOnce
from ..invariants.f3_effect_committed import EffectCommitted
from ..invariants.f4_outcome_recorded import OutcomeRecorded
from ..invariants.f5_token_elected import TokenElected
from ..invariants.f6_lane_order import LaneOrder
from ..invariants.f7_first_result import FirstResult
from ..invariants.f8_mark_durable import MarkDurable
from ..invariants.f9_stale_means_higher import StaleMeansHigher
from ..invariants.property import Property, PropertyViolated
from ..invariants.reference import Reference
from .evidence import Evidence, ResourceRecord, same_result
from .recorded import Recorded

if TYPE_CHECKING:
    from ..sim.resource import OutsideResource

ONCE = "every command once"
LOGS = "logs agree"
AUDIT = "fence tables"
F2, F4, F5, F7, F8 = (each.name for each in (EffectOnce, OutcomeRecorded, TokenElected, FirstResult, MarkDurable))
SENTENCES_MAX = 20
"""Of each check; more are counted."""


@dataclass(slots=True)
class Verdict:
    """What was found, by check: sentences. ``counts`` how often."""

    violations: dict[str, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    figures: dict[str, dict[str, int]] = field(default_factory=dict)
    """By resource: what was counted there."""

    def found(self, check: str, sentence: str) -> None:
        self.counts[check] += 1
        sentences = self.violations.setdefault(check, [])
        if len(sentences) < SENTENCES_MAX:
            sentences.append(sentence)

    @property
    def holds(self) -> bool:
        return not self.counts


def judge(evidence: Evidence) -> Verdict:
    """Everything that has to hold when all commands have ended."""
    verdict = Verdict()
    for sentence in evidence.disagreements:
        verdict.found(LOGS, sentence)
    recorded = Recorded(evidence)
    reference = Reference(recorded.ledger)
    for term, nodes in evidence.leaders.items():
        if len(set(nodes)) > 1:
            verdict.found(F5, f"term {term} was led by {' and '.join(sorted(set(nodes)))}")
    properties = _properties(recorded, reference)
    for name in evidence.resources:
        _look(verdict, recorded, name, properties)
    for each in properties:
        _told(verdict, each.finished)
    operations = reference.at_end().machine.operations
    _once(verdict, evidence, operations)
    for record in evidence.resources.values():
        if record.guarantee is Guarantee.FENCED:
            for sentence in check_ledger(record.ledger):
                verdict.found(AUDIT, sentence)
        _results(verdict, record, operations)
    for sentence in _marks_fell(evidence):
        verdict.found(F8, sentence)
    return verdict


def _properties(recorded: Recorded, reference: Reference) -> list[Property]:
    ledger = recorded.ledger
    return [
        TokenOrder(ledger),
        EffectOnce(ledger),
        EffectCommitted(ledger, reference),
        OutcomeRecorded(ledger, reference),
        TokenElected(ledger),
        LaneOrder(ledger),
        FirstResult(ledger),
        MarkDurable(ledger),
        StaleMeansHigher(ledger),
    ]


def _look(verdict: Verdict, recorded: Recorded, name: str, properties: list[Property]) -> None:
    """Show every call of a resource to every property, and count."""
    resource = recorded.resources[name]
    outside = cast("OutsideResource", resource)
    figures = verdict.figures[name] = dict.fromkeys(
        ("effects", "claims", "stale_refusals", "stale_calls", "duplicates_recognised"), 0
    )
    highest = FencingToken(0, 0)
    for call in recorded.calls(name):
        for each in properties:
            _told(verdict, each.called, call, outside)
        figures["effects"] += sum(1 for _ in effects_of(call))
        figures["claims"] += call.kind == "claim"
        figures["stale_refusals"] += call.decision == "STALE_LEADER"
        figures["stale_calls"] += call.token < highest
        figures["duplicates_recognised"] += sum(1 for each in call.attempts if each.outcome and each.outcome.replayed)
        highest = max(highest, call.token)


def _told(verdict: Verdict, look: object, *arguments: object) -> None:
    assert callable(look)
    try:
        look(*arguments)
    except PropertyViolated as violated:
        verdict.found(violated.property_name, str(violated).partition(": ")[2])


# -- what the properties do not ask ------------------------------------------------------------------


def _once(verdict: Verdict, evidence: Evidence, operations: Mapping[str, Operation]) -> None:
    """Every command that was submitted is committed as it was submitted, has succeeded, and took effect once; and
    nothing else did."""
    effects: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for record in evidence.resources.values():
        effects[record.name].update(_effect_ids(record))
    for name, command in evidence.commands.items():
        operation = operations.get(name)
        if operation is None:
            verdict.found(ONCE, f"{name} was submitted and is not committed")
            continue
        if operation.digest != digest(command):
            verdict.found(ONCE, f"{name} is committed as another command")
        if operation.state is not OperationState.SUCCEEDED:
            verdict.found(ONCE, f"{name} is {operation.state.value}: {operation.error}")
        count = effects[command.resource].pop(name, 0)
        if count != 1:
            verdict.found(ONCE, f"{name} took effect {count} times")
        state, result = evidence.answers.get(name, ("", b""))
        if state != OperationState.SUCCEEDED:
            verdict.found(ONCE, f"the client of {name} heard {state or 'nothing'!r}")
        elif result != operation.result:
            verdict.found(F7, f"the client of {name} heard {result!r}, and {operation.result!r} is on record")
    for resource, left in effects.items():
        for name in left:
            verdict.found(ONCE, f"{name!r} took effect at {resource} and was not submitted there")


def _effect_ids(record: ResourceRecord) -> Iterator[str]:
    if record.guarantee is Guarantee.FENCED:
        yield from (effect.operation_id for effect in record.effects)
    else:
        yield from (call.operation_id for call in record.calls if not call.replayed)


def _results(verdict: Verdict, record: ResourceRecord, operations: Mapping[str, Operation]) -> None:
    """What stands in the log as the result of a command is what its resource gave first."""
    first: dict[str, bytes] = {}
    for noted in record.ledger.operations:
        first.setdefault(noted.operation_id, noted.result)
    for call in record.calls:
        first.setdefault(call.operation_id, call.result)
    for name, result in first.items():
        operation = operations.get(name)
        succeeded = operation is not None and operation.state is OperationState.SUCCEEDED
        if operation is not None and succeeded and not same_result(operation.result, result):
            verdict.found(F7, f"{name} has the result {operation.result!r} in the log, and was given {result!r}")


def _marks_fell(evidence: Evidence) -> Iterator[str]:
    """The fence as it was read during the run, restarts of its server included: it never goes back, and is never
    below what had been let in before it was asked for."""
    highest: dict[str, FencingToken] = {}
    for sample in evidence.samples:
        before = max(highest.get(sample.resource, sample.at_least), sample.at_least)
        if sample.token < before:
            yield f"the fence of {sample.resource} was read as {sample.token} after {before}"
        highest[sample.resource] = max(before, sample.token)
