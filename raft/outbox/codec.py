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

OPERATION_ID_BYTES_MAX = 256
NAME_BYTES_MAX = 128
LANE_BYTES_MAX = 512
PAYLOAD_BYTES_MAX = 1 << 20


class Command(NamedTuple):
    """What a client submits (concepts: Operation ids). ``lane`` empty: no order promised."""

    operation_id: str
    resource: str
    effect: str
    lane: str
    payload: bytes
    """Canonical: JSON with sorted keys and no spaces, or other bytes as they are."""


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


OutboxEntry = Command | Dispatch | Outcome | Activation | Election

_ENCODER = msgspec.msgpack.Encoder()
_HEADS = {kind: bytes((FORMAT_VERSION, kind)) for kind in (SUBMIT, DISPATCH, OUTCOME, ACTIVATION, ELECTION)}
_DECODERS: dict[bytes, msgspec.msgpack.Decoder[Any]] = {
    _HEADS[SUBMIT]: msgspec.msgpack.Decoder(Command),
    _HEADS[DISPATCH]: msgspec.msgpack.Decoder(Dispatch),
    _HEADS[OUTCOME]: msgspec.msgpack.Decoder(Outcome),
    _HEADS[ACTIVATION]: msgspec.msgpack.Decoder(Activation),
    _HEADS[ELECTION]: msgspec.msgpack.Decoder(Election),
}
_KIND_OF = {Command: SUBMIT, Dispatch: DISPATCH, Outcome: OUTCOME, Activation: ACTIVATION, Election: ELECTION}
_SUBMIT_HEAD = _HEADS[SUBMIT]
_SUBMIT_DECODER = _DECODERS[_SUBMIT_HEAD]


def encode(entry: OutboxEntry) -> bytes:
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
    """16 bytes that stand for everything about a command but its id.

    The lengths of the names stand before them, so that no two different commands give the same input.
    """
    _, resource, effect, lane, payload = command
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
