"""The outbox's whole state as a stream of chunks, and back.

A head, then operations by the hundred, then a tail with a digest over everything before it. Each
chunk starts with its kind; the head carries the format version, checked before anything else is
believed. What can be derived (``by_index``, ``pending``, ``counts``) is not written but rebuilt, so
that a snapshot cannot contradict itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ..core.errors import StateMiscounted, StorageCorrupt, StorageFormatUnknown
from ..core.token import FencingToken
from .codec import Activation, Retention
from .operation import FINAL, HistoryRow, Operation, OperationState
from .state import ActivationRecord, ElectionRecord, OutboxState
from .state_digest import operation_terms, other_terms, sum_of

FORMAT_VERSION = 3
"""Version 1 had no sum of terms in its head, and 2 knew neither retention nor what follows the history in a record."""
OPERATIONS_PER_CHUNK = 256
CHUNK_BYTES = 1 << 20
"""A chunk ends with the operation that makes its payloads and results this long: encoding one holds the
interpreter, and with it the node's loop."""

_HEAD = b"H"
_OPERATIONS = b"O"
_TAIL = b"T"
_DIGEST_BYTES = 16


class Head(NamedTuple):
    last_applied: int
    cluster_time_ns: int
    operations: int
    tokens: list[Activation]
    elections: list[ElectionRecord]
    activations: list[ActivationRecord]
    terms: int = -1
    """The sum that the machine held (``state_digest``); -1 where version 1 did not say it."""
    retention: Retention = Retention()
    forgotten: int = 0
    forgotten_ids_ns: int = 0


class _Record(NamedTuple):
    """The fields of :class:`Operation`, in its order."""

    operation_id: str
    resource: str
    effect: str
    lane: str
    payload: bytes
    digest: bytes
    index: int  # type: ignore[assignment]  # the thesis's word; tuple.index is not used
    term: int
    submitted_ns: int
    state: OperationState
    attempt: int
    failures: int
    lost: int
    token: FencingToken | None
    result: bytes
    error: str
    next_try_ns: int
    finished_ns: int
    history: list[HistoryRow]
    place: int = 0
    not_before_ns: int = 0
    deadline_ns: int = 0
    cancel_ns: int = 0
    unsure: bool = False


if _Record._fields != tuple(Operation.__slots__):
    raise AssertionError("a field of Operation is missing from its snapshot")

Record = tuple[Any, ...]
"""What is encoded: the fields of :class:`_Record` without the time that making one takes."""
_PAYLOAD = _Record._fields.index("payload")
_RESULT = _Record._fields.index("result")

_ENCODER = msgspec.msgpack.Encoder()
_HEAD_DECODER = msgspec.msgpack.Decoder(Head)
_OPERATIONS_DECODER = msgspec.msgpack.Decoder(list[_Record])


def head_of(state: OutboxState) -> Head:
    """Everything but the operations, as it is now."""
    return Head(
        state.last_applied,
        state.cluster_time_ns,
        len(state.operations),
        [state.tokens[resource] for resource in sorted(state.tokens)],
        list(state.elections),
        list(state.activations),
        state.terms,
        state.retention,
        state.forgotten,
        state.forgotten_ids_ns,
    )


def record_of(operation: Operation) -> Record:
    """The fields of an operation as they are now. What they hold is immutable, but for the history."""
    return (
        operation.operation_id,
        operation.resource,
        operation.effect,
        operation.lane,
        operation.payload,
        operation.digest,
        operation.index,
        operation.term,
        operation.submitted_ns,
        operation.state,
        operation.attempt,
        operation.failures,
        operation.lost,
        operation.token,
        operation.result,
        operation.error,
        operation.next_try_ns,
        operation.finished_ns,
        tuple(operation.history),
        operation.place,
        operation.not_before_ns,
        operation.deadline_ns,
        operation.cancel_ns,
        operation.unsure,
    )


def encode_state(head: Head, records: Iterable[Record]) -> Iterator[bytes]:
    """The chunks of a snapshot. Nothing is encoded, or drawn from ``records``, before it is asked for."""
    hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for chunk in _body(head, records):
        hasher.update(chunk)
        yield chunk
    yield _TAIL + hasher.digest()


def _body(head: Head, records: Iterable[Record]) -> Iterator[bytes]:
    yield _HEAD + bytes((FORMAT_VERSION,)) + _ENCODER.encode(head)
    part: list[Record] = []
    size = 0
    for record in records:
        part.append(record)
        size += len(record[_PAYLOAD]) + len(record[_RESULT])
        if len(part) == OPERATIONS_PER_CHUNK or size >= CHUNK_BYTES:
            yield _OPERATIONS + _ENCODER.encode(part)
            part, size = [], 0
    if part:
        yield _OPERATIONS + _ENCODER.encode(part)


def load(chunks: Iterable[bytes]) -> OutboxState:
    """The state from a snapshot, added up anew and compared with what the machine held that it was captured of.

    Raises :class:`StorageCorrupt`, :class:`StorageFormatUnknown`.
    """
    state = OutboxState()
    hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    stream = iter(chunks)
    first = next(stream, b"")
    head = _load_head(state, first)
    hasher.update(first)
    for chunk in stream:
        kind = chunk[:1]
        if kind == _TAIL:
            _check_tail(state, chunk, hasher.digest(), head.operations, stream)
            _check_terms(state, head)
            _arrange(state)
            return state
        if kind != _OPERATIONS:
            raise _corrupt(f"a chunk of kind {kind!r}")
        hasher.update(chunk)
        _load_operations(state, chunk)
    raise _corrupt("it ends before its last chunk")


def _load_head(state: OutboxState, chunk: bytes) -> Head:
    if chunk[:1] != _HEAD or len(chunk) < 2:
        raise _corrupt("it does not start with a head")
    if not 1 <= chunk[1] <= FORMAT_VERSION:
        raise StorageFormatUnknown(
            f"outbox snapshot of format {chunk[1]}; this version reads up to {FORMAT_VERSION}",
            next_step="install the version that wrote it",
        )
    try:
        head: Head = _HEAD_DECODER.decode(memoryview(chunk)[2:])
    except msgspec.DecodeError as error:
        raise _corrupt(f"its head cannot be decoded: {error}") from error
    state.last_applied = head.last_applied
    state.cluster_time_ns = head.cluster_time_ns
    state.tokens = {activation.resource: activation for activation in head.tokens}
    state.elections.extend(head.elections)
    state.activations.extend(head.activations)
    state.retention = head.retention
    state.forgotten = head.forgotten
    state.forgotten_ids_ns = head.forgotten_ids_ns
    if (head.terms < 0) is (chunk[1] > 1):
        raise _corrupt(f"a sum of terms in a head of format {chunk[1]}: {head.terms}")
    return head


def _load_operations(state: OutboxState, chunk: bytes) -> None:
    try:
        records = _OPERATIONS_DECODER.decode(memoryview(chunk)[1:])
    except msgspec.DecodeError as error:
        raise _corrupt(f"operations that cannot be decoded: {error}") from error
    terms = 0
    for record in records:
        operation = Operation(*record)
        if not operation.place:
            operation.place = operation.index  # Of a version that knew no other places.
        terms += operation_terms(operation)
        if operation.operation_id in state.operations or operation.index in state.by_index:
            raise _corrupt(f"operation {operation.operation_id!r} at index {operation.index} stands in it twice")
        state.operations[operation.operation_id] = operation
        state.by_index[operation.index] = operation
        state.in_order.append(operation)
        state.place_operation(operation)
    state.terms = sum_of(state.terms + terms)


def _arrange(state: OutboxState) -> None:
    """What is kept in another order than that of the log."""
    for resource, pending in state.pending.items():
        if any(operation.place != index for index, operation in pending.items()):
            in_places = sorted(pending.values(), key=lambda operation: operation.place)
            state.pending[resource] = {operation.index: operation for operation in in_places}
    state.ended.extend(
        sorted(
            [operation for operation in state.in_order if operation.state in FINAL],
            key=lambda operation: operation.finished_ns,
        )
    )


def _check_tail(state: OutboxState, chunk: bytes, digest: bytes, operations: int, stream: Iterator[bytes]) -> None:
    if chunk[1:] != digest:
        raise _corrupt("its digest does not match")
    if len(state.operations) != operations:
        raise _corrupt(f"{len(state.operations)} operations, and its head says {operations}")
    if next(stream, None) is not None:
        raise _corrupt("chunks after its last one")


def _check_terms(state: OutboxState, head: Head) -> None:
    """What was captured, written, sent and read is what the machine held, whatever happened on the way."""
    state.terms = sum_of(state.terms + other_terms(state))
    if head.terms >= 0 and state.terms != head.terms:
        raise StateMiscounted(
            "outbox snapshot holds another state than the machine did that it was taken of: it does not add up",
            next_step="take the snapshot of another node; docs/operations.md, STATE_DIVERGED",
        )


def _corrupt(what: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"outbox snapshot is damaged: {what}",
        next_step="take the snapshot of another node",
    )
