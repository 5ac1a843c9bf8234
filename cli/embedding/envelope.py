"""What stands around an embedder's bytes, in the log and in the answer to a proposal.

::

    entry     magic, version, msgpack of Envelope
    answer    version, msgpack of Verdict

An entry of another version stops the node that does not know it (S55). One that has no magic was proposed by
a program that knows nothing of this: it is refused where it is applied, on every node alike, and changes nothing.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec

from ...raft.core.errors import TransportError, UnknownEntry

FORMAT_VERSION = 1
_MAGIC = b"fpe"
_HEAD = _MAGIC + bytes((FORMAT_VERSION,))
_VERDICT_HEAD = bytes((FORMAT_VERSION,))


class Retention(NamedTuple):
    """How long ids of proposals are remembered: until one of the three is passed. It goes with every proposal that has
    an id, so that no node judges by a setting of its own."""

    ids: int = 100_000
    """At most so many ids."""
    result_bytes: int = 64 << 20
    """At most so many bytes of their results."""
    seconds: int = 86_400
    """At most for so long, in cluster time."""


class Envelope(NamedTuple):
    operation_id: str
    """Empty: not to be recognised again."""
    retention: Retention | None
    command: bytes


class Status(IntEnum):
    APPLIED = 0
    REUSED = 1
    """The id belongs to another command."""
    EXPIRED = 2
    """The id is older than what is remembered: nobody can tell whether it was applied."""
    INVALID = 3
    """No proposal of an embedded node."""
    RESULT_LOST = 4
    """Applied, but its result cannot be given."""


class Verdict(NamedTuple):
    """What became of a proposal where it was applied."""

    status: int
    index: int  # type: ignore[assignment]  # the thesis's word; tuple.index is not used
    """Where the command stands that was applied: the first one of its id."""
    term: int
    replayed: bool
    result: bytes
    detail: str


_encoder = msgspec.msgpack.Encoder()
_envelopes = msgspec.msgpack.Decoder(Envelope)
_verdicts = msgspec.msgpack.Decoder(Verdict)


def encode_envelope(envelope: Envelope) -> bytes:
    return _HEAD + _encoder.encode(envelope)


def decode_envelope(data: bytes, index: int) -> Envelope | None:
    """None for bytes that are no envelope at all. Raises :class:`UnknownEntry`, and the node must stop."""
    if data[:3] != _MAGIC:
        return None
    if data[:4] != _HEAD:
        raise UnknownEntry(
            f"entry {index} is a proposal of format {data[3] if len(data) > 3 else '-'}; this version reads "
            f"{FORMAT_VERSION}",
            next_step="install the version that wrote it; the node applies nothing past it",
        )
    try:
        return _envelopes.decode(memoryview(data)[4:])
    except msgspec.DecodeError:
        return None


def encode_verdict(verdict: Verdict) -> bytes:
    return _VERDICT_HEAD + _encoder.encode(verdict)


def decode_verdict(data: bytes) -> Verdict:
    """Raises :class:`TransportError`: the node that answered is of another version, or has no such machine."""
    if data[:1] != _VERDICT_HEAD:
        raise TransportError("the node that answered does not know proposals of embedded nodes")
    try:
        return _verdicts.decode(memoryview(data)[1:])
    except msgspec.DecodeError as error:
        raise TransportError(f"an answer that cannot be read: {error}") from error
