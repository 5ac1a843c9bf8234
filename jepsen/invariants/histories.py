"""What clients asked and heard, and what resources decided, as histories for the checkers (``jepsen.checkers``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...raft.core.entry import Entry, EntryKind
from ...raft.core.errors import StaleLeader
from ...raft.effects.resources.memory import MemoryStore
from ...raft.outbox.codec import SUBMIT
from ...raft.ports import AttemptStatus
from ..checkers import Answer, ApplyValue, CasValue, Operation, Status
from ..sim.jobs import Fate, Job, Kind
from ..sim.resource import QUESTIONS, OutsideResource, ResourceCall

LOG = "log"
"""The key of the history of everything that goes into the log."""

_STATUS = {Fate.DONE: Status.OK, Fate.REFUSED: Status.FAIL}
_STRICT = ("linearizable", "lease")


class History(NamedTuple):
    """Operations, and where in the log they stand, by ``identity_of``: what ``settle`` and ``check`` want."""

    operations: list[Operation]
    committed: dict[tuple[int | str, int | str, int], int | None]


def _status(job: Job) -> Status:
    return _STATUS.get(job.fate, Status.INFO)


def _return(job: Job) -> int | None:
    return job.ended_ns if job.ended_ns else None


# -- registers and lists --------------------------------------------------------------------------------


class Past(NamedTuple):
    """What there was before the first of these clients asked for anything."""

    adopted_to: int = 0
    """Entries up to this were committed."""
    values: Mapping[str, Any] = {}
    """Registers and lists after them."""


NO_PAST = Past()


def of_registers(
    jobs: Iterable[Job], committed: Iterable[Entry], values: Mapping[str, Any], now_ns: int, past: Past = NO_PAST
) -> History:
    """What was written to and read from registers and lists; with a read of each in the end, ``values``."""
    jobs, committed = list(jobs), [entry for entry in committed if entry.index > past.adopted_to]
    stands = _positions(committed, EntryKind.EMBEDDED)
    history = History([], {})
    asked: dict[bytes, int] = {}
    for job in jobs:
        asked[job.data] = asked.get(job.data, 0) + 1
    keys: dict[str, None] = {}
    for job in jobs:
        operation = _operation(job)
        if operation is None:
            continue
        keys[str(operation.key)] = None
        history.operations.append(operation)
        if job.kind is Kind.PROPOSE and asked[job.data] == 1:
            places = stands.get(job.data, ())
            history.committed[operation.process, operation.key, operation.invoke] = places[0] if places else None
    for key in keys:
        if past.values.get(key) is not None:
            history.operations.append(Operation("before", "write", key, past.values[key], None, -2, -1))
        history.operations.append(Operation("the end", "read", key, None, values.get(key), now_ns, now_ns))
    for entry in of_nobody(jobs, committed):
        operation = _asked_for(f"entry {entry.index}", entry.data, None, 0, None, Status.INFO)
        if operation is not None and operation.key in keys:
            history.operations.append(operation)
            history.committed[operation.process, operation.key, operation.invoke] = entry.index
    return history


def of_nobody(jobs: Iterable[Job], committed: Iterable[Entry]) -> list[Entry]:
    """Commands and proposals in the log that none of these clients has asked for."""
    asked = {job.data: None for job in jobs}
    return [entry for entry in committed if _is_clients(entry) and entry.data not in asked]


def _is_clients(entry: Entry) -> bool:
    return entry.kind == EntryKind.EMBEDDED or (entry.kind == EntryKind.OUTBOX and entry.data[1:2] == bytes((SUBMIT,)))


def repeated(jobs: Iterable[Job], committed: Iterable[Entry]) -> dict[str, tuple[int, ...]]:
    """Proposals that stand in the log more than once, by name, though asked for once: who sent them again had heard
    that they certainly were not in it."""
    stands = _positions(committed, EntryKind.EMBEDDED)
    asked: dict[bytes, list[str]] = {}
    for job in jobs:
        if job.kind is Kind.PROPOSE:
            asked.setdefault(job.data, []).append(job.name)
    return {names[0]: tuple(stands[data]) for data, names in asked.items() if len(stands.get(data, ())) > len(names)}


def _positions(committed: Iterable[Entry], kind: int) -> dict[bytes, list[int]]:
    stands: dict[bytes, list[int]] = {}
    for entry in committed:
        if entry.kind == kind:
            stands.setdefault(entry.data, []).append(entry.index)
    return stands


def _operation(job: Job) -> Operation | None:
    status = _status(job)
    if job.kind is Kind.READ:
        if status is not Status.OK or job.parameters.get("consistency") not in _STRICT:
            return None
        key = str(job.parameters["key"])
        return Operation(job.client, "read", key, None, job.value, job.begun_ns, _return(job))
    if job.kind is not Kind.PROPOSE:
        return None
    return _asked_for(job.client, job.data, job.value, job.begun_ns, _return(job), status)


def _asked_for(
    process: str, data: bytes, value: Any, invoke: int, return_: int | None, status: Status
) -> Operation | None:
    """The operation of a proposal; None if it is none on a register or a list."""
    try:
        asked = json.loads(data)
    except ValueError:
        return None
    match asked:
        case [("write" | "append") as what, str(key), written]:
            return Operation(process, what, key, written, None, invoke, return_, status)
        case ["cas", str(key), expected, written]:
            out = value if status is Status.OK else None
            return Operation(process, "cas", key, CasValue(expected, written), out, invoke, return_, status)
    return None


def is_list(operations: Iterable[Operation]) -> bool:
    """Whether these, of one key, are those of a list."""
    return any(operation.op == "append" for operation in operations)


# -- the log --------------------------------------------------------------------------------------------


def of_log(
    jobs: Iterable[Job], first_index: Mapping[str, int], committed: Iterable[Entry], adopted_to: int = 0
) -> History:
    """Everything that was to go into the log, as appends to one list, and where it stands. What was in it before,
    up to ``adopted_to``, is left out."""
    committed = list(committed)
    proposals, commands = _positions(committed, EntryKind.EMBEDDED), _positions(committed, EntryKind.OUTBOX)
    history = History([], {})
    names: dict[bytes, None] = {}
    for job in jobs:
        if job.kind not in (Kind.SUBMIT, Kind.PROPOSE) or job.data in names:
            continue
        names[job.data] = None
        index: int | None = None
        if job.kind is Kind.PROPOSE:
            index = next(iter(proposals.get(job.data, ())), None)
        elif job.name in first_index:
            index = first_index[job.name]
            if index > adopted_to and index not in commands.get(job.data, ()):
                index = None  # The id belongs to another command.
        if index is not None and index <= adopted_to:
            continue
        operation = Operation(job.client, "append", LOG, job.name, None, job.begun_ns, _return(job), _status(job))
        history.operations.append(operation)
        history.committed[operation.process, operation.key, operation.invoke] = index
    return history


# -- a fenced resource ----------------------------------------------------------------------------------


def of_fence(resource: OutsideResource, known_before: MemoryStore | None = None) -> list[Operation]:
    """What a fenced resource was asked to let in and to do, from when it was sent to when it was decided.

    ``known_before`` is what it held when the world began: that happened before everything else, in its order.
    """
    found: list[Operation] = []
    if known_before is not None:
        found += _before(resource.name, known_before)
    for call in resource.calls:
        if call.kind not in QUESTIONS and call.decision in ("accepted", StaleLeader.code):
            found += _applies(call)
    return found


def _before(key: str, store: MemoryStore) -> Iterable[Operation]:
    asked = [(claim.token, f"claim {claim.sequence} before") for claim in store.claims]
    asked += [(done.token, done.operation_id) for done in store.operations]
    asked.sort(key=lambda each: each[0])
    for place, (token, idem) in enumerate(asked):
        time = 2 * (place - len(asked))
        value = ApplyValue(token, idem)
        yield Operation(f"before {place}", "apply", key, value, Answer.ACCEPTED, time, time + 1)


def _applies(call: ResourceCall) -> Iterable[Operation]:
    stale = call.decision == StaleLeader.code
    asked: list[tuple[str, Answer]] = []
    for attempt in call.attempts:
        outcome = attempt.outcome
        if stale or outcome is None:
            asked.append((attempt.operation_id, Answer.STALE))
        elif outcome.status != AttemptStatus.SUCCEEDED:
            # Its token was let in and nothing else happened.
            asked.append((f"{attempt.operation_id} in call {call.number}", Answer.ACCEPTED))
        else:
            asked.append((attempt.operation_id, Answer.DUPLICATE if outcome.replayed else Answer.ACCEPTED))
    if not call.attempts:
        asked.append((f"{call.kind} in call {call.number}", Answer.STALE if stale else Answer.ACCEPTED))
    for place, (idem, answer) in enumerate(asked):
        process = f"{call.node}/{call.boot} call {call.number}.{place}"
        yield Operation(
            process, "apply", call.resource, ApplyValue(call.token, idem), answer, call.sent_ns, call.time_ns
        )
