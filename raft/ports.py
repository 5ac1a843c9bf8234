"""The ports: what the inside needs from the outside, as Protocols.

Everything nondeterministic or slow enters through one of these. Each port has one conformance
suite in ``tests/``, run on the fake and on the real thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from .core.entry import Entry, Snapshot
from .core.errors import FencepostError, StorageError
from .core.events import Persist
from .core.messages import Message
from .core.token import FencingToken

# -- time and chance --------------------------------------------------------------------------------


class Clock(Protocol):
    def monotonic_ns(self) -> int:
        """Nanoseconds that never go backwards. For every interval and deadline."""

    def time_ns(self) -> int:
        """Wall clock, nanoseconds since the Unix epoch. Only for stamps, never for intervals."""


class Randomness(Protocol):
    def between(self, low: int, high: int) -> int:
        """An integer in ``[low, high]``, both included."""


# -- disk -------------------------------------------------------------------------------------------


class LogStore(Protocol):
    """The durable log: entries, hard state and truncations in one ordered stream.

    ``append`` queues a write and returns at once. Writes become durable strictly in order. After
    the sync that covers write ``n`` the store calls ``on_durable(n)`` **on its own thread**; one
    call may cover many writes. The first failed write or sync is latched: ``on_failure`` is called
    once, nothing queued then or later ever completes (scenario S12).
    """

    def start(self, on_durable: Callable[[int], None], on_failure: Callable[[StorageError], None]) -> None: ...

    def append(self, write: Persist) -> None: ...

    def read(self, start: int, end: int, bytes_max: int) -> list[Entry]:
        """Entries from ``start`` on whose payloads together fit ``bytes_max``, none behind ``end``; at least one.

        Only for entries that are durable and known to be committed: those are deleted by compaction alone.
        Blocks; may be called on any thread, while writes are appended. Raises :class:`NotFound` if ``start``
        is compacted, :class:`StorageCorrupt` if it is damaged, :class:`StorageError` if it cannot be read.
        """

    def close(self) -> None:
        """Finish what was queued, sync, release. Blocks until the writer has ended."""


class SnapshotStore(Protocol):
    """Snapshots on disk. What is called blocks: in a server it runs on a thread of its own, one call at a
    time. All of it raises :class:`StorageError`; a failed write or sync is as final as the log's.
    """

    def newest(self) -> Snapshot | None:
        """The newest that is whole and durable. Does not block."""

    def write(self, label: Snapshot, chunks: Iterable[bytes]) -> Snapshot:
        """Write, checksum and publish a snapshot; the label with size and checksum. Durable when it
        returns: data sync, rename, directory sync (S14). Older ones may be deleted then, but at least the
        newest two are kept and can be read: a leader goes on sending the one before (``core.snapshot``)."""

    def read(self, snapshot: Snapshot, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes of the contents. Raises :class:`NotFound` if it is not kept any more."""

    def contents(self, snapshot: Snapshot) -> Iterator[bytes]:
        """All of the contents, in chunks. Raises :class:`StorageCorrupt` before the last of them if the
        checksum does not match."""

    def store_chunk(self, snapshot: Snapshot, offset: int, data: bytes) -> int:
        """Store a part of a snapshot that another node sends; how much of it is stored now, bytes.
        Offset 0 forgets what was under way; another place than the next one changes nothing."""

    def finish(self, snapshot: Snapshot) -> bool:
        """All parts are stored: verify size and checksum and publish it, durable on return. False, and
        nothing kept, if it is damaged."""


# -- network ----------------------------------------------------------------------------------------


class Transport(Protocol):
    def send(self, to: str, message: Message) -> None:
        """Queue a message for a peer. Never blocks; drops when there is no link or no room."""


class PeerHandler(Protocol):
    """What the node gives the transport, called on the node's loop."""

    def receive(self, source: str, message: Message) -> None: ...

    def unreachable(self, peer: str) -> None: ...


class Wait(IntEnum):
    """How long a submission waits for its answer."""

    ACCEPTED = 0
    """The leader has taken it into its log. Promises nothing: it may still be lost."""
    COMMITTED = 1
    """It is in the log for good and will be executed."""
    DONE = 2
    """It was executed and the outcome is committed."""


class SubmitRequest(NamedTuple):
    """``data`` is an encoded outbox submission (``raft.outbox.codec``); the same bytes go into the log."""

    request_id: int
    wait: int
    data: bytes


class ProposeRequest(NamedTuple):
    """``data`` is an entry of the embedder's own state machine, as it stands."""

    request_id: int
    data: bytes


class AnswerStatus(IntEnum):
    """What a submitter may hear (concepts: The four answers)."""

    DONE = 0
    REFUSED = 1
    RETRY = 2
    UNKNOWN = 3


class Answer(NamedTuple):
    """The answer to one submit or propose request. Empty strings and zeros where not applicable."""

    request_id: int
    status: int
    index: int  # type: ignore[assignment]  # the thesis's word; tuple.index is not used
    term: int
    replayed: bool
    state: str
    """The command's state (``raft.outbox.operation.OperationState``) when it was answered."""
    result: bytes
    code: str
    """An error code for every status but DONE, and for DONE of a command that FAILED or is DEAD."""
    detail: str
    """For NOT_LEADER: the leader's client address as far as known. Else a sentence."""


class Connection(Protocol):
    """One client's connection, as the node sees it. Answers to a closed connection are dropped."""

    def answer(self, answers: list[Answer]) -> None: ...

    def reply(self, request_id: int, body: Any) -> None: ...

    def reply_error(self, request_id: int, error: FencepostError) -> None: ...


class RequestHandler(Protocol):
    """What the node gives the client listener, called on the node's loop, a frame at a time."""

    def submit(self, connection: Connection, requests: list[SubmitRequest]) -> None: ...

    def propose(self, connection: Connection, requests: list[ProposeRequest]) -> None: ...

    def call(self, connection: Connection, request_id: int, method: str, parameters: dict[str, Any]) -> None: ...

    def closed(self, connection: Connection) -> None: ...


# -- state machines ---------------------------------------------------------------------------------


class Machine(Protocol):
    """A state machine behind one entry kind. Deterministic: no I/O, no clock, no chance.

    It may have two more abilities: to be restored in two halves (``raft.node.applier.PreparingMachine``), and to
    give a digest of its state, which nodes then compare (``raft.node.applier.DigestingMachine``).
    """

    def apply(self, entry: Entry) -> Any:
        """Apply a committed entry and return its result. Raising stops the node before the entry."""

    def snapshot(self) -> Iterable[bytes]:
        """The state as it is now. What is captured no longer changes; the chunks may be drawn later and
        on another thread, while the machine goes on (S19)."""

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replace the whole state. Raising leaves the old one as it was and stops the node."""


# -- resources --------------------------------------------------------------------------------------


class Guarantee(StrEnum):
    """What a resource can enforce (concepts: What can be promised depends on the resource)."""

    FENCED = "fenced"
    """Checks token and operation id atomically with the effect. So a refusal says that no earlier attempt was applied
    either; where it does not, ``Resource.refusal_tells`` is False."""
    KEYED = "keyed"
    """Dedupes by operation id within a window; does not check the token."""
    NAKED = "naked"
    """Neither."""


class Attempt(NamedTuple):
    """One attempt of one operation, as a resource gets it. The token comes with the batch."""

    operation_id: str
    index: int  # type: ignore[assignment]  # the thesis's word; tuple.index is not used
    """The operation's place in the log; the order within its lane."""
    entry_term: int
    """Provenance only; never the token."""
    effect: str
    lane: str
    payload: bytes
    digest: bytes
    number: int
    """1, 2, 3 ... of this operation."""
    age_ns: int = 0
    """How long ago, by cluster time, its first attempt began, or the first since it was redriven; 0 where none before
    this one may have been applied."""


class AttemptStatus(IntEnum):
    SUCCEEDED = 0
    FAILED = 1
    """Definitely not applied, and it never will be: do not retry."""
    RETRY = 2
    """Definitely not applied this time; may be retried."""
    NOT_ATTEMPTED = 3
    """Definitely not applied, through no fault of its own. Spends no attempt."""
    UNKNOWN = 4
    """May have been applied."""
    DOUBT = 5
    """May have been applied, and another attempt would tell no more, or could apply it twice: not to be repeated."""


class AttemptOutcome(NamedTuple):
    status: AttemptStatus
    result: bytes
    """The first result of the operation as the resource holds it (JSON); empty unless SUCCEEDED."""
    error: str
    """Why not, for a person; empty when SUCCEEDED."""
    replayed: bool
    """The resource had already applied this operation and gave its first result. Of FAILED: the first attempt ended so,
    and no other was applied."""
    pause_ns: int = 0
    """What the other side asked for before the next attempt (Retry-After), nanoseconds; 0 for nothing."""


class Found(StrEnum):
    """What a resource says when it is asked whether an operation was applied."""

    APPLIED = "applied"
    NOT_APPLIED = "not-applied"
    UNKNOWN = "unknown"


class Answered(NamedTuple):
    found: Found
    result: bytes = b""
    """The first result, where it was applied and is known."""


class Fence(NamedTuple):
    """What a resource remembers of the highest token it has accepted."""

    token: FencingToken
    holder: str


class Resource(Protocol):
    """One protected outside thing with its own fence (concepts: The fencing token).

    Methods run on the effects loop, never on the node's. ``claim`` and ``execute`` raise
    :class:`StaleLeader`, :class:`DuplicateGeneration`, :class:`WrongCluster` (nothing was applied)
    or :class:`ResourceUnavailable` (nothing is known).
    """

    name: str
    effects: frozenset[str]
    batch_limit: int
    """How many attempts one ``execute`` may carry."""
    concurrency: int
    """How many ``execute`` calls may run side by side."""

    @property
    def dedupes_by_place(self) -> bool:
        """Whether it does not keep for ever by its id what it has applied, so that an old operation is told from a new
        one by its place alone (concepts: The fencing token). A command that is redriven has a new
        place: whether it was applied at the old one must be known before."""

    @property
    def refusal_tells(self) -> bool:
        """Whether it looks first whether an operation was applied, so that a refusal says of every earlier attempt that
        it was not. A handler may refuse without a look, and an API at its door."""

    @property
    def guarantee(self) -> Guarantee:
        """What it can enforce as far as it knows now. A resource that is a server may learn of it at ``open`` and
        ``claim``; it then has a ``guarantee_reason`` as well, which says why it is not more."""

    @property
    def kind(self) -> str:
        """The word in ``kind = "…"`` of a configuration file."""

    async def open(self) -> None: ...

    async def claim(self, token: FencingToken, holder: str) -> Fence | None:
        """Establish ``token`` as the highest. Durable before it returns. The previous mark, if any."""

    async def execute(self, token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
        """Execute in order; one outcome an attempt. After an attempt of a lane that did not succeed,
        later attempts of the same lane in the batch are NOT_ATTEMPTED."""

    async def fence(self) -> Fence | None: ...

    async def close(self) -> None: ...


@runtime_checkable
class QueryableResource(Resource, Protocol):
    """A resource that can be asked what has become of an operation, whatever its guarantee. Methods run on the effects
    loop, like those of :class:`Resource`."""

    @property
    def absence_is_final(self) -> bool:
        """Whether NOT_APPLIED, said behind a claim, stays true of every attempt made under a lower token. Without that
        it only says that nothing has arrived so far: what was sent may still be on its way, and nobody may conclude
        from it that the operation can be repeated or given up."""

    async def query(self, attempt: Attempt) -> Answered:
        """Whether the operation of ``attempt``, which is its last one, was applied by any attempt. Does nothing but
        look. What cannot be asked about is UNKNOWN.

        Raises :class:`FenceError` where the fence is not this process's any more, and :class:`ResourceUnavailable`."""


@runtime_checkable
class PrunableResource(Resource, Protocol):
    """A resource that keeps something of every operation, and need not keep it longer than the cluster does. Methods
    run on the effects loop, like those of :class:`Resource`."""

    async def forget(self, token: FencingToken, holder: str, below: int, limit: int) -> bool:
        """Give up what it keeps of operations of this incarnation whose place is below index ``below``: the cluster has
        forgotten them, and none is ever attempted again. Looks at ``limit`` of them at most, and returns whether there
        may be more. In one atomic step behind the fence; to be repeated after any failure.

        Raises what ``execute`` raises."""
