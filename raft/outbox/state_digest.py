"""What stands for the whole state in a few bytes, kept up with every change.

The state is taken for a set of *terms*: one for each operation as it was submitted, one for each later row of
its history, and a few more. The sum of all terms is an attribute of the state; a change adds what it makes and
takes away what it undoes. So it costs a fraction of a microsecond where the change is made, it can be told at
any index without a look at a million operations, and whoever reads a snapshot adds it up anew and compares.

A term is the square of a CRC-32C, modulo 2**64. The square is there because the checksum alone is linear: what
two operations have exchanged would cancel out in its sum. Nothing here defends against an adversary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

import google_crc32c
import msgspec

from ..core.token import FencingToken
from .operation import HistoryRow, Operation, OperationState

if TYPE_CHECKING:
    from .codec import Activation, Retention
    from .state import ActivationRecord, ElectionRecord, OutboxState

DIGEST_VERSION = 2
"""Raised with every change of what is added up or how. Digests of different versions are not compared."""

DIGEST_BYTES = 8

_MASK = (1 << 64) - 1
_OPERATION = Struct(">QQQ").pack
_ARROW = Struct(">QQQQ").pack
_ROW = Struct(">QQQ").pack
_COUNTERS = Struct(">cQQQQ").pack
_COURSE = Struct(">cQQQQQ?").pack
_SUMMARY = Struct(">QQQQQQ").pack
_encode = msgspec.msgpack.Encoder().encode
_crc_of: Callable[[bytes], int] = google_crc32c.value
_crc_extend: Callable[[int, bytes], int] = google_crc32c.extend
_SUCCEEDED = OperationState.SUCCEEDED
_NO_TOKEN = FencingToken(0, 0)


def submission_term(operation: Operation) -> int:
    """For what never changes again. The operation's own digest stands for resource, effect, lane and payload."""
    head = _OPERATION(operation.index, operation.term, operation.submitted_ns)
    crc = _crc_of(head + operation.digest + operation.operation_id.encode())
    return crc * crc


def arrow_check(index: int, time_ns: int, state: str, token: FencingToken) -> int:
    """What the rows that one entry draws into one state have in common, for :func:`row_term`."""
    return _crc_of(_ARROW(index, time_ns, token[0], token[1]) + state.encode())


def row_term(arrow: int, operation_index: int, attempt: int, note: str, result: bytes = b"") -> int:
    """For one row of an operation's history, but the first. ``result`` is that of the success."""
    crc = _crc_extend(arrow, _ROW(operation_index, attempt, len(note)) + note.encode() + result)
    return crc * crc


def counters_term(operation: Operation) -> int:
    """For what the rows do not say. Nothing for the many operations that just succeed."""
    if not (operation.failures or operation.lost or operation.next_try_ns):
        return 0
    head = _COUNTERS(b"C", operation.index, operation.failures, operation.lost, operation.next_try_ns)
    crc = _crc_of(head)
    return crc * crc


def course_term(operation: Operation) -> int:
    """For what is out of the ordinary: a time, another place, a wish to cancel, an attempt without an answer."""
    index, place = operation.index, operation.place
    not_before_ns, deadline_ns, cancel_ns = operation.not_before_ns, operation.deadline_ns, operation.cancel_ns
    if place == index and not (not_before_ns or deadline_ns or cancel_ns or operation.unsure):
        return 0
    crc = _crc_of(_COURSE(b"L", index, place, not_before_ns, deadline_ns, cancel_ns, operation.unsure))
    return crc * crc


def record_term(record: Activation | ActivationRecord | ElectionRecord | Retention) -> int:
    """For an activation in force, what is remembered of one or of an election, and the settings."""
    crc = _crc_of(type(record).__name__.encode() + _encode(record))
    return crc * crc


def kept_row_term(operation: Operation, row: HistoryRow) -> int:
    """:func:`row_term` of a row that stands in the history."""
    result = operation.result if row.state == _SUCCEEDED else b""
    arrow = arrow_check(row.index, row.time_ns, row.state, row.token or _NO_TOKEN)
    return row_term(arrow, operation.index, row.attempt, row.note, result)


def operation_terms(operation: Operation) -> int:
    """All of one operation's terms."""
    total = submission_term(operation) + counters_term(operation) + course_term(operation)
    for row in operation.history[1:]:
        total += kept_row_term(operation, row)
    return total


def other_terms(state: OutboxState) -> int:
    """Everything but the operations."""
    total = sum([record_term(activation) for activation in state.tokens.values()])
    total += sum([record_term(election) for election in state.elections])
    total += sum([record_term(activation) for activation in state.activations])
    # The default one is none, so that the sums of versions that knew no other are still right.
    return total + (record_term(state.retention) if any(state.retention) else 0)


def sum_of(total: int) -> int:
    """As it is kept."""
    return total & _MASK


def digest_of(state: OutboxState) -> bytes:
    """A byte with :data:`DIGEST_VERSION`, and eight that are equal on two replicas if their states are, and else
    differ but for one case in four billion."""
    summary = _SUMMARY(
        state.terms & _MASK,
        len(state.operations),
        state.last_applied,
        state.cluster_time_ns,
        state.forgotten,
        state.forgotten_ids_ns,
    )
    return bytes((DIGEST_VERSION,)) + hashlib.blake2b(summary, digest_size=DIGEST_BYTES).digest()
