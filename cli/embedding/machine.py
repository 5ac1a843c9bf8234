"""An embedder's state machine behind the entries of its kind, with the ids that it has seen (``raft.ports.Machine``).

A snapshot is a head, parts of ids, and then the embedder's own chunks, each as he gave it.
"""

from __future__ import annotations

import hashlib
import inspect
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec
import structlog

from ...raft.core.entry import Entry
from ...raft.core.errors import StorageCorrupt, StorageFormatUnknown
from ...raft.node.applier import PreparingMachine
from ...raft.node.plainlog import PlainLog
from .codec import Codec
from .dedupe import Ids, Remembered
from .envelope import Envelope, Status, Verdict, decode_envelope, encode_verdict

_LOG = structlog.get_logger("fencepost.embedding")

C = TypeVar("C")
R = TypeVar("R")
C_contra = TypeVar("C_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

FORMAT_VERSION = 1
RESULT_BYTES_MAX = 1 << 20
"""A result that is larger is not given out: it would have to be kept for every id."""
_MAGIC = b"fpm" + bytes((FORMAT_VERSION,))
_IDS_IN_A_CHUNK = 1000
_DIGEST = struct.Struct(">BQQQQ")


class StateMachine(Protocol[C_contra, R_co]):
    """A state that is replicated by applying the same commands in the same order on every node.

    All three are called on the node's loop. What ``apply`` raises stops the node before the entry, and
    every node alike: an error that belongs to the matter is a result and not an exception.
    """

    def apply(self, index: int, term: int, command: C_contra) -> R_co:
        """Apply the command at ``index``, appended in ``term``. Deterministic: no I/O, no clock, no chance."""

    def snapshot(self) -> Iterable[bytes]:
        """The state as it is now. What is captured must not change any more; the chunks are drawn later and on
        another thread, except those of a generator function, which are drawn at once."""

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replace the whole state by the chunks of a snapshot, cut as they were given. Raising stops the node. A
        machine with a large state has ``prepare(chunks)`` as well, which reads them on another thread and touches
        nothing, and ``adopt(prepared)``, which is short: then these two are called."""


@runtime_checkable
class Digesting(Protocol):
    """A state machine that can be compared: nodes whose digests differ after the same entries are found out (S59)."""

    def state_digest(self) -> bytes:
        """A few bytes, equal exactly if the states are, and short to make: called every thousand entries."""


class _Head(NamedTuple):
    applied: int
    forgotten_ns: int
    id_chunks: int


class EmbeddedMachine(Generic[C, R]):
    """Decodes, recognises, applies, remembers."""

    def __init__(self, machine: StateMachine[C, R], commands: Codec[C], results: Codec[R]) -> None:
        self._machine = machine
        self._commands = commands
        self._results = results
        self.ids = Ids()
        self.applied = 0
        """Commands that the embedder's machine was given."""
        self._user_digest: Callable[[], bytes] | None = None
        if isinstance(machine, Digesting):
            self._user_digest = machine.state_digest

    def apply(self, entry: Entry) -> bytes:
        """The encoded :class:`Verdict`. Raises what the embedder's machine or codec raises, with the ids untouched."""
        envelope = decode_envelope(entry.data, entry.index)
        if envelope is None:
            return encode_verdict(
                Verdict(Status.INVALID, entry.index, entry.term, False, b"", "no proposal of an embedded node")
            )
        operation_id = envelope.operation_id
        if not operation_id or envelope.retention is None:
            status, result, detail = self._apply(entry, envelope)
            return encode_verdict(Verdict(status, entry.index, entry.term, False, result, detail))
        digest = hashlib.blake2b(envelope.command, digest_size=16).digest()
        known = self.ids.find(operation_id)
        if known is not None:
            return encode_verdict(_again(known, digest))
        if self.ids.is_expired(operation_id):
            detail = f"operation id {operation_id!r} is older than what is remembered: it may have been applied before"
            return encode_verdict(Verdict(Status.EXPIRED, entry.index, entry.term, False, b"", detail))
        status, result, detail = self._apply(entry, envelope)
        record = Remembered(operation_id, digest, entry.index, entry.term, entry.time_ns, status, result, detail)
        self.ids.remember(record, envelope.retention)
        return encode_verdict(Verdict(status, entry.index, entry.term, False, result, detail))

    def _apply(self, entry: Entry, envelope: Envelope) -> tuple[int, bytes, str]:
        try:
            result = self._machine.apply(entry.index, entry.term, self._commands.decode(envelope.command))
        except Exception as error:
            error.add_note(f"while entry {entry.index} of term {entry.term} was applied; the node stops before it")
            raise
        self.applied += 1
        try:
            data = self._results.encode(result)
        except Exception as error:  # The state has changed on every node: that cannot be taken back.
            _LOG.warning("result cannot be encoded", index=entry.index, error=str(error))
            return Status.RESULT_LOST, b"", f"its result cannot be encoded: {error}"
        if len(data) > RESULT_BYTES_MAX:
            detail = f"its result has {len(data)} bytes; the limit is {RESULT_BYTES_MAX} bytes"
            return Status.RESULT_LOST, b"", detail
        return Status.APPLIED, data, ""

    def state_digest(self) -> bytes:
        """Of the ids, the count, and the embedder's state where that can be compared."""
        head = _DIGEST.pack(FORMAT_VERSION, self.applied, len(self.ids), self.ids.last_index, self.ids.forgotten_ns)
        return head if self._user_digest is None else head + self._user_digest()

    # -- snapshots --------------------------------------------------------------------------------

    def snapshot(self) -> Iterable[bytes]:
        """Captured when this returns."""
        records = self.ids.records()
        count = -(-len(records) // _IDS_IN_A_CHUNK)
        head = _MAGIC + msgspec.msgpack.encode(_Head(self.applied, self.ids.forgotten_ns, count))
        chunks = self._machine.snapshot()
        if inspect.isgeneratorfunction(self._machine.snapshot):
            # None of its lines has run yet: later they would see another state, and on another thread.
            chunks = list(chunks)
        return chain((head,), _parts(records), chunks)

    def prepare(self, chunks: Iterable[bytes]) -> Prepared:
        """A snapshot's state, read. Touches neither this nor, unless it can prepare, the embedder's machine: may run
        on any thread. Raises :class:`StorageCorrupt`, :class:`StorageFormatUnknown`."""
        reading = iter(chunks)
        first = next(reading, b"")
        if first[:3] != _MAGIC[:3]:
            return _after_plain_log([first, *reading])
        if first[:4] != _MAGIC:
            raise StorageFormatUnknown(
                f"state of an embedded machine of format {first[3] if len(first) > 3 else '-'}; this version reads "
                f"{FORMAT_VERSION}",
                next_step="install the version that wrote it",
            )
        try:
            head = msgspec.msgpack.decode(first[4:], type=_Head)
            records = [record for _ in range(head.id_chunks) for record in _read_part(next(reading, b""))]
        except msgspec.DecodeError as error:
            raise StorageCorrupt(f"the ids in a snapshot cannot be read: {error}") from error
        machine = self._machine
        state = machine.prepare(reading) if isinstance(machine, PreparingMachine) else list(reading)
        return Prepared(Ids(records, head.forgotten_ns), head.applied, state, is_begin=False)

    def adopt(self, prepared: Prepared) -> None:
        """Replace the whole state, and leave the old ids in ``prepared``. Raises what the embedder's machine raises:
        the node stops then, and nobody sees what it has."""
        machine = self._machine
        if not prepared.is_begin:
            if isinstance(machine, PreparingMachine):
                machine.adopt(prepared.state)
            else:
                machine.restore(prepared.state)
        self.ids, prepared.ids = prepared.ids, self.ids
        self.applied = prepared.applied

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Both, one after the other."""
        self.adopt(self.prepare(chunks))


class Prepared:
    """What a snapshot holds, and after it was adopted what it has replaced."""

    def __init__(self, ids: Ids, applied: int, state: Any, *, is_begin: bool) -> None:
        """``state`` is the embedder's: his chunks, or what he made of them. ``is_begin``: there is none yet."""
        self.ids = ids
        self.applied = applied
        self.state = state
        self.is_begin = is_begin

    def discard(self) -> None:
        """Free it. For another thread than the loop's: there may be a hundred thousand ids."""
        self.ids, self.state = Ids(), None


def _after_plain_log(chunks: list[bytes]) -> Prepared:
    """A node that had no state machine until now. Nothing may have been proposed: it would be missing here."""
    if PlainLog.prepare(chunks):
        raise StorageFormatUnknown(
            "entries were proposed here while the node had no state machine, and a snapshot has taken their place",
            next_step="start it without one, or with a new data directory",
        )
    return Prepared(Ids(), 0, None, is_begin=True)


def _again(known: Remembered, digest: bytes) -> Verdict:
    if known.digest == digest:
        return Verdict(known.status, known.index, known.term, True, known.result, known.detail)
    detail = f"operation id {known.operation_id!r} belongs to another command, at index {known.index}"
    return Verdict(Status.REUSED, known.index, known.term, False, b"", detail)


def _parts(records: list[Remembered]) -> Iterator[bytes]:
    for start in range(0, len(records), _IDS_IN_A_CHUNK):
        yield msgspec.msgpack.encode(records[start : start + _IDS_IN_A_CHUNK])


def _read_part(chunk: bytes) -> list[Any]:
    return msgspec.msgpack.decode(chunk, type=list[Remembered])
