"""What was recorded, in the form in which the properties of ``jepsen/invariants`` look at a simulated world.

A resource's calls are put together from its own records: its effects from the application's table; which token each
came with and what it was answered from the fence's tables, refusals and claims from there as well. They are in the
order in which the resource decided: effects and claims by its own counters, refusals between two claims by the time.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from ...raft.core.entry import EntryKind
from ...raft.core.token import FencingToken
from ...raft.effects.resources.ledger import AcceptedOperation, ClaimRecord, Refusal
from ...raft.effects.resources.memory import MemoryStore
from ...raft.outbox.codec import Activation, Command, Outcome, OutcomeRow, decode, digest
from ...raft.outbox.transitions import Verdict
from ...raft.ports import AttemptOutcome, AttemptStatus, Guarantee
from ..invariants.ledger import Ledger
from ..invariants.observed import Leadership
from ..sim.resource import AttemptRecord, ResourceCall, ResourceSpec
from .evidence import EffectRow, Evidence, KeyedCall, ResourceRecord
from .keyed_api import payload_digest
from .workload import EFFECTS

if TYPE_CHECKING:
    from ..invariants.observed import ObservedNode
    from ..sim.world import World

ACCEPTED = "accepted"


class RecordedResource:
    """Of ``sim.resource.OutsideResource`` what the properties look at. ``store`` is as it was left."""

    def __init__(self, record: ResourceRecord) -> None:
        self.name = record.name
        self.spec = ResourceSpec(name=record.name, effects=EFFECTS, guarantee=record.guarantee)
        self.store = MemoryStore()
        self.store.fences = {fence.resource: fence for fence in record.ledger.fences}
        self.inner = SimpleNamespace(effects=frozenset(EFFECTS))
        self.events: list[tuple[int, str]] = []
        """None of them is ever put back to a backup here."""


class LoggedSuccess:
    """An attempt that the cluster's log says succeeded."""

    __slots__ = ("row", "token")

    def __init__(self, token: FencingToken, row: OutcomeRow) -> None:
        self.token = token
        self.row = row


class Recorded:
    """The whole of the evidence. ``ledger`` is what the properties are made with."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.resources = {name: RecordedResource(record) for name, record in evidence.resources.items()}
        world = SimpleNamespace(resources=self.resources, agenda=SimpleNamespace(now_ns=0))
        self.ledger = Ledger(cast("World", world))
        for entry in evidence.entries:
            self.ledger.extend([entry], entry.term)
        self.ledger.nodes = {
            name: cast("ObservedNode", _node(number)) for name, number in evidence.incarnations.items()
        }
        self.holders: dict[tuple[str, FencingToken], str] = {}
        """By resource and token: who was activated there, by the log."""
        self.successes: dict[int, list[LoggedSuccess]] = defaultdict(list)
        """By the index of the command."""
        self._read_log()
        for term, nodes in evidence.leaders.items():
            # More than one leader of a term is found by :func:`.judge.judge`.
            start = self.ledger.no_ops.get(term, 0)
            self.ledger.leaderships[term] = Leadership(term, nodes[0], 0, start, (), 0)

    def _read_log(self) -> None:
        for entry in self.evidence.entries:
            if entry.kind != EntryKind.OUTBOX:
                continue
            made = decode(entry.data)
            if isinstance(made, Activation):
                self.holders[made.resource, made.token] = made.holder
            elif isinstance(made, Outcome):
                for row in made.rows:
                    if row.verdict == Verdict.SUCCEEDED:
                        self.successes[row.index].append(LoggedSuccess(made.token, row))

    # -- calls --------------------------------------------------------------------------------------

    def calls(self, name: str) -> Iterator[ResourceCall]:
        """Every call that a resource decided, in its order."""
        record = self.evidence.resources[name]
        made = self._fenced(record) if record.guarantee is Guarantee.FENCED else self._keyed(record)
        for number, call in enumerate(made, 1):
            yield call._replace(number=number)

    def _fenced(self, record: ResourceRecord) -> Iterator[ResourceCall]:
        ledger = record.ledger
        noted: defaultdict[str, deque[AcceptedOperation]] = defaultdict(deque)
        for operation in ledger.operations:
            noted[operation.operation_id].append(operation)
        repeats, late = self._repeats(record, noted)
        claims, refusals = deque(ledger.claims), deque(ledger.refusals)
        highest: FencingToken | None = None

        def claim() -> Iterator[ResourceCall]:
            nonlocal highest
            made = claims.popleft()
            # What was refused before this claim, and what was recognised under the token before it.
            while refusals and refusals[0].refused_ns < made.claimed_ns:
                yield _refusal(record.name, refusals.popleft())
            if highest is not None:
                yield from repeats.pop(highest, [])
            highest = made.token
            yield _claim(record.name, made)

        for effect in record.effects:
            known = noted[effect.operation_id]
            # The second effect of an operation is one more call of the same kind, if nothing else is known of it.
            first = (known.popleft() if len(known) > 1 else known[0]) if known else None
            while claims and first and claims[0].accepted_before < first.accepted:
                yield from claim()
            yield self._effect(record.name, effect, first)
            yield from late.pop(effect.operation_id, [])
        while claims:
            yield from claim()
        for each in refusals:
            yield _refusal(record.name, each)
        for left in (*repeats.values(), *late.values()):
            yield from left

    def _effect(self, name: str, effect: EffectRow, operation: AcceptedOperation | None) -> ResourceCall:
        if operation is None:
            # Beside the fence: nobody knows with which token. F5 says so.
            return _call(name, FencingToken(0, 0), "", (_attempt(effect, 0, b"", b"", replayed=False),), 0)
        attempt = _attempt(effect, operation.attempt, operation.digest, operation.result, replayed=False)
        return _call(name, operation.token, operation.holder, (attempt,), operation.applied_ns)

    def _repeats(
        self, record: ResourceRecord, noted: dict[str, deque[AcceptedOperation]]
    ) -> tuple[dict[FencingToken, list[ResourceCall]], dict[str, list[ResourceCall]]]:
        """Attempts that succeeded by the log, and had been accepted before under another token: by their own token.

        Apart, by operation id: those whose own token is lower than the one before. They were let in when a higher one
        had been, and that was behind what they repeat.
        """
        found: defaultdict[FencingToken, list[ResourceCall]] = defaultdict(list)
        late: defaultdict[str, list[ResourceCall]] = defaultdict(list)
        for operation_id, index in self.ledger.first_index.items():
            command = self.ledger.commands[index]
            if command.resource != record.name or not noted[operation_id]:
                continue
            first = noted[operation_id][0]
            for success in self.successes[index]:
                if (success.token, success.row.attempt) != (first.token, first.attempt):
                    row = EffectRow(operation_id, command.lane, index, command.payload)
                    attempt = _attempt(row, success.row.attempt, first.digest, success.row.result, replayed=True)
                    holder = self.holders.get((record.name, success.token), "")
                    call = _call(record.name, success.token, holder, (attempt,), 0)
                    (late[operation_id] if success.token < first.token else found[success.token]).append(call)
        return found, late

    def _keyed(self, record: ResourceRecord) -> Iterator[ResourceCall]:
        for call in record.calls:
            yield _call(record.name, call.token, call.holder, (_keyed_attempt(record.name, call),), call.time_ns)


def _node(incarnation: int) -> SimpleNamespace:
    return SimpleNamespace(node=SimpleNamespace(directory=SimpleNamespace(incarnation=incarnation)))


def _call(
    resource: str, token: FencingToken, holder: str, attempts: tuple[AttemptRecord, ...], time_ns: int
) -> ResourceCall:
    # A holder is ``node/instance/boot/process``.
    node, _, boot, *_ = [*holder.split("/"), "", "0"]
    return ResourceCall(
        0, time_ns, 0, resource, "execute", node, int(boot or 0), token, holder, ACCEPTED, attempts, zombie=False
    )


def _claim(resource: str, made: ClaimRecord) -> ResourceCall:
    return _call(resource, made.token, made.holder, (), made.claimed_ns)._replace(kind="claim")


def _refusal(resource: str, made: Refusal) -> ResourceCall:
    kind = "execute" if made.operations else "claim"
    return _call(resource, made.token, made.holder, (), made.refused_ns)._replace(kind=kind, decision=made.reason)


def _attempt(effect: EffectRow, number: int, known: bytes, result: bytes, *, replayed: bool) -> AttemptRecord:
    outcome = AttemptOutcome(AttemptStatus.SUCCEEDED, result, "", replayed)
    return AttemptRecord(
        effect.operation_id, effect.place, effect.lane, number, known, payload_digest(effect.payload), outcome
    )


def _keyed_attempt(name: str, call: KeyedCall) -> AttemptRecord:
    arrived = Command(call.operation_id, name, call.effect, call.lane, call.payload)
    effect = EffectRow(call.operation_id, call.lane, call.place, call.payload)
    return _attempt(effect, 0, digest(arrived), call.result, replayed=call.replayed)
