"""Outbox entries as bytes. Each starts with a format version and a type; both are checked.

A submission is encoded once, by the client: these very bytes are what the leader appends, what
goes over the wire to followers and into the log on disk.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

import msgspec

from ..core.errors import CommandInvalid, UnknownEntry
from ..core.token import FencingToken

FORMAT_VERSION = 1

SUBMIT = 1
DISPATCH = 2
OUTCOME = 3
ACTIVATION = 4
ELECTION = 5
CANCEL = 6
REDRIVE = 7
RESOLVE = 8
DISCARD = 9
EXPIRY = 10
TICK = 11
RETENTION = 12

OPERATION_ID_BYTES_MAX = 256
NAME_BYTES_MAX = 128
LANE_BYTES_MAX = 512
NOTE_BYTES_MAX = 1000
TIME_NS_MAX = 1 << 62
PAYLOAD_BYTES_MAX = 1 << 20


class Command(NamedTuple):
    """What a client submits (concepts: Operation ids). ``lane`` empty: no order promised."""

    operation_id: str
    resource: str
    effect: str
    lane: str
    payload: bytes
    """Canonical: JSON with sorted keys and no spaces, or other bytes as they are."""
    not_before_ns: int = 0
    """Cluster time, nanoseconds since the Unix epoch, before which no attempt begins; 0 for none."""
    deadline_ns: int = 0
    """Cluster time from which on no attempt begins any more; 0 for none."""


class DispatchRow(NamedTuple):
    index: int  # type: ignore[assignment]  # the thesis's word; tuple.index is not used
    attempt: int


class Dispatch(NamedTuple):
    """These operations start these attempts under ``token``."""

    resource: str
    token: FencingToken
    rows: list[DispatchRow]


class OutcomeRow(NamedTuple):
    index: int  # type: ignore[assignment]  # the thesis's word; tuple.index is not used
    attempt: int
    verdict: int
    """A :class:`Verdict`."""
    result: bytes
    error: str
    next_try_ns: int
    """For RETRY: cluster time of the next try."""


class Outcome(NamedTuple):
    resource: str
    token: FencingToken
    rows: list[OutcomeRow]


class Activation(NamedTuple):
    """A leader holds the fence of a resource and takes over what its predecessor left there.

    Commands DISPATCHED under a lower token become dispatchable again (``fenced``, ``keyed``) or go
    IN_DOUBT (``naked``), by the guarantee written here: the judgement must not depend on the
    configuration of the node that applies it.
    """

    resource: str
    token: FencingToken
    holder: str
    guarantee: str


class StageSeconds(NamedTuple):
    stage: str
    seconds: float


class Election(NamedTuple):
    """What one change of leader cost, by stage (requirements 84, 85)."""

    node: str
    token: FencingToken
    stages: list[StageSeconds]


class Cancel(NamedTuple):
    """Somebody does not want a command to be executed any more.

    ``absent``: the leader of ``token`` has asked the resource, which it holds the fence of, and no attempt of
    an earlier leader has taken effect there, nor can one any more.
    """

    operation_id: str
    token: FencingToken
    absent: bool
    note: str


class Redrive(NamedTuple):
    """A dead letter is to be tried again, under the same id and at a new place in its lane."""

    operation_id: str
    note: str


class Resolve(NamedTuple):
    """What became of a command in doubt: an operator's word, or the answer of its resource."""

    operation_id: str
    finding: int
    """A :class:`~.transitions.Finding`."""
    attempt: int
    """The attempt that it is about; 0 for an operator's word, which is about all there were."""
    token: FencingToken | None
    """Of the leader that has asked the resource; None for an operator's word."""
    result: bytes
    note: str


class Discard(NamedTuple):
    """A dead letter is to be given up for good."""

    operation_id: str
    note: str


class Expiry(NamedTuple):
    """The deadlines of these operations have passed, by the time of the entry."""

    resource: str
    token: FencingToken
    indexes: list[int]


class Tick(NamedTuple):
    """Nothing but its time: something waits for that, and nothing else happens."""


class Retention(NamedTuple):
    """How long operations that have ended are remembered. Of the cluster, and not of a node."""

    window_ns: int = 0
    """For so long after their end, by cluster time; 0 for ever."""
    ended_max: int = 0
    """So many of them at the most; 0 for any number."""


OutboxEntry = (
    Command
    | Dispatch
    | Outcome
    | Activation
    | Election
    | Cancel
    | Redrive
    | Resolve
    | Discard
    | Expiry
    | Tick
    | Retention
)

_ENCODER = msgspec.msgpack.Encoder()
_KIND_OF: dict[type, int] = {
    Command: SUBMIT,
    Dispatch: DISPATCH,
    Outcome: OUTCOME,
    Activation: ACTIVATION,
    Election: ELECTION,
    Cancel: CANCEL,
    Redrive: REDRIVE,
    Resolve: RESOLVE,
    Discard: DISCARD,
    Expiry: EXPIRY,
    Tick: TICK,
    Retention: RETENTION,
}
_HEADS = {kind: bytes((FORMAT_VERSION, kind)) for kind in _KIND_OF.values()}
_DECODERS: dict[bytes, msgspec.msgpack.Decoder[Any]] = {
    _HEADS[kind]: msgspec.msgpack.Decoder(made) for made, kind in _KIND_OF.items()
}
_SUBMIT_HEAD = _HEADS[SUBMIT]
_SUBMIT_DECODER = _DECODERS[_SUBMIT_HEAD]


def encode(entry: OutboxEntry) -> bytes:
    if type(entry) is Command and not entry[5] and not entry[6]:
        # As the version before wrote it, and reads it.
        return _SUBMIT_HEAD + _ENCODER.encode(entry[:5])
    return _HEADS[_KIND_OF[type(entry)]] + _ENCODER.encode(entry)


def decode(data: bytes) -> OutboxEntry:
    """Decode a committed entry. Raises :class:`UnknownEntry`: the node must stop, not skip (S55)."""
    decoder = _DECODERS.get(data[:2])
    if decoder is None:
        raise UnknownEntry(
            f"outbox entry of format {data[0] if data else '-'} and type {data[1] if len(data) > 1 else '-'}, "
            f"which this version does not know",
            next_step="install the version that wrote it",
        )
    try:
        entry: OutboxEntry = decoder.decode(memoryview(data)[2:])
    except msgspec.DecodeError as error:
        raise UnknownEntry(f"outbox entry that cannot be decoded: {error}") from error
    return entry


def decode_submission(data: bytes) -> Command:
    """Decode and check what a client sent, before it may enter the log.

    Raises :class:`CommandInvalid`, which means: certainly not appended.
    """
    if data[:2] != _SUBMIT_HEAD:
        raise CommandInvalid("not a submission of format 1")
    try:
        command: Command = _SUBMIT_DECODER.decode(memoryview(data)[2:])
    except msgspec.DecodeError as error:
        raise CommandInvalid(f"submission cannot be decoded: {error}") from error
    check_command(command)
    return command


def check_command(command: Command) -> None:
    """Raise :class:`CommandInvalid` unless every name and size is within its limit (bytes of UTF-8)."""
    _check_name("operation id", command.operation_id, OPERATION_ID_BYTES_MAX, required=True)
    _check_name("resource", command.resource, NAME_BYTES_MAX, required=True)
    _check_name("effect", command.effect, NAME_BYTES_MAX, required=True)
    _check_name("lane", command.lane, LANE_BYTES_MAX, required=False)
    if len(command.payload) > PAYLOAD_BYTES_MAX:
        raise CommandInvalid(
            f"payload of {len(command.payload)} bytes; the limit is {PAYLOAD_BYTES_MAX} bytes",
            next_step="store the bulk elsewhere and submit a reference to it",
        )
    not_before_ns, deadline_ns = command[5:]
    if not_before_ns or deadline_ns:
        if not (0 <= not_before_ns < TIME_NS_MAX and 0 <= deadline_ns < TIME_NS_MAX):
            raise CommandInvalid("not_before and deadline are nanoseconds since the Unix epoch")
        if deadline_ns and deadline_ns <= not_before_ns:
            raise CommandInvalid("the deadline is not after not_before: it could never be executed")


def check_note(note: str) -> None:
    """Raise :class:`CommandInvalid` unless an operator's note can be printed and is not too long."""
    _check_name("note", note, NOTE_BYTES_MAX, required=False)


def _check_name(what: str, value: str, limit: int, *, required: bool) -> None:
    if required and not value:
        raise CommandInvalid(f"{what} is empty")
    # First: what can be printed can be encoded, and a lone surrogate (bytes of a command line that
    # are no text) can be neither.
    if not value.isprintable():
        raise CommandInvalid(f"{what} {value[:limit]!r} has characters that cannot be printed")
    # Most names are short: four bytes a character bound them from above.
    if len(value) * 4 > limit and len(value.encode()) > limit:
        raise CommandInvalid(f"{what} of {len(value.encode())} bytes; the limit is {limit} bytes")


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys and no spaces, so that equal requests are equal bytes (S34)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(command: Command) -> bytes:
    """16 bytes that stand for what a command is to do: not for its id, nor for when.

    The lengths of the names stand before them, so that no two different commands give the same input. Times are
    left out, so that a line of a script with ``--not-before +10m`` in it may be run again: the first one counts.
    """
    _, resource, effect, lane, payload, _, _ = command
    head = f"{len(resource)}:{len(effect)}:{len(lane)}:{resource}{effect}{lane}"
    return hashlib.blake2b(head.encode() + payload, digest_size=16).digest()


def json_or_text(result: bytes) -> Any:
    """What an effect gave back, as JSON where it is JSON, else as text; None where there is nothing."""
    if not result:
        return None
    try:
        return json.loads(result)
    except ValueError:
        return result.decode("utf-8", "backslashreplace")
