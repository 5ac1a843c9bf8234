"""An object in an S3 bucket as a resource: fence, dedupe and values stand in its body, which is replaced as a whole.

``fenced``, because there is one object. A fence in each of many objects would stop an old leader only at those that
the new one has written to already.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec
import structlog

from ...core.errors import ConfigurationError, FenceError, ResourceUnavailable
from ...core.token import FencingToken
from ...ports import Answered, Attempt, AttemptOutcome, Fence, Guarantee
from .asking import UNTOLD, still_holds
from .bounded_ledger import BoundedLedger
from .compare_and_set import CompareAndSet
from .http_client import HttpClient
from .ledger import check_kept
from .outcomes import failed, succeeded, unknown_effect, waits
from .payload_template import NotBindable
from .s3_effect import S3Effect, Step, run_all
from .s3_object import S3Object, S3Place
from .s3_signature import Credentials

__all__ = ["Credentials", "S3Effect", "S3Place", "S3Resource"]

T = TypeVar("T")

FORMAT = 1
RECORD_BYTES = 300
"""About what one more operation adds to the ledger, until the oldest is forgotten for it."""

_log = structlog.get_logger(__name__)


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    revision: int
    writer: str
    """Of whom: with ``revision`` it makes every body another one, so that no ETag ever comes back."""
    ledger: Any
    values: dict[str, Any]


class S3Resource:
    """A resource of kind ``s3`` (``raft.ports.Resource``).

    ``kept`` is how many operations it recognises exactly; of older ones it says that it cannot tell.
    ``object_bytes_max`` is how large the object may grow: it is read and written whole.
    """

    kind: ClassVar[str] = "s3"
    guarantee: ClassVar[Guarantee] = Guarantee.FENCED
    absence_is_final: ClassVar[bool] = True
    dedupes_by_place: ClassVar[bool] = True
    refusal_tells: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        place: S3Place,
        credentials: Credentials,
        effects: Mapping[str, S3Effect],
        *,
        cluster_id: str,
        batch_limit: int = 256,
        kept: int = 1024,
        object_bytes_max: int = 8 << 20,
        connect_ns: int = 3_000_000_000,
        answer_ns: int = 10_000_000_000,
        time_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        if not cluster_id:
            raise ConfigurationError(f"resource {name!r} has no cluster id to fence by")
        if kept < batch_limit:
            raise ConfigurationError(
                f"resource {name!r} keeps {kept} operations, fewer than one batch of {batch_limit}"
            )
        self.name = name
        self.effects = frozenset(effects)
        self.batch_limit = batch_limit
        self.concurrency = 1  # One replacement after the other.
        self._cluster_id = cluster_id
        self._kept = kept
        self._object_bytes_max = object_bytes_max
        self._steps = {
            effect: [Step(name, effect, words) for words in definition.steps] for effect, definition in effects.items()
        }
        # Larger than any object that is written: one that somebody else let grow is still read.
        self._client = HttpClient(
            name,
            self.kind,
            place.url,
            connect_ns=connect_ns,
            answer_ns=answer_ns,
            connections=2,
            body_bytes_max=64 << 20,
        )
        self._object = S3Object(name, place, credentials, self._client, time_ns)
        self._document = CompareAndSet(self._object)
        self._time_ns = time_ns
        self._writer = secrets.token_hex(8)
        self._claimed: FencingToken | None = None
        self._holder = ""
        """Who has claimed it."""
        self._lock = asyncio.Lock()

    # -- the port ------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Find out whether the store keeps to conditions.

        Raises :class:`ConfigurationError` where it does not, :class:`ResourceUnavailable`.
        """
        async with self._lock:
            self._client.open()
            await self._object.test()

    async def claim(self, token: FencingToken, holder: str) -> Fence | None:
        def decide(data: bytes | None) -> tuple[bytes | None, Fence | None]:
            stored, ledger = self._read(data)
            before = ledger.fence
            rises = ledger.pass_fence(self._cluster_id, token, holder, self._time_ns())
            return self._write(stored, ledger, rises), None if before is None else Fence(before.token, before.holder)

        async with self._lock:
            before = await self._change(token, holder, (), decide)
            self._claimed, self._holder = token, holder
        return before

    async def execute(self, token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
        if len(attempts) > self.batch_limit:
            raise AssertionError(f"{len(attempts)} attempts for a batch limit of {self.batch_limit}")

        def decide(data: bytes | None) -> tuple[bytes | None, list[AttemptOutcome]]:
            stored, ledger = self._read(data)
            check_kept(self.name, ledger.fence, self._claimed)
            now_ns = self._time_ns()
            rises = ledger.pass_fence(self._cluster_id, token, holder, now_ns)
            room = self._object_bytes_max - len(data or b"")
            batch = _Batch(stored.values, self._steps, room)
            outcomes = ledger.execute(token, holder, attempts, batch.apply, now_ns)
            stored.values = batch.values
            return self._write(stored, ledger, rises or batch.applied), outcomes

        async with self._lock:
            return await self._change(token, holder, attempts, decide)

    async def query(self, attempt: Attempt) -> Answered:
        async with self._lock:
            ledger = self._read(await self._document.read())[1]
            claimed, holder = self._claimed, self._holder
        if claimed is None or not still_holds(self.name, ledger.fence, self._cluster_id, claimed, holder):
            return UNTOLD
        return ledger.find(attempt, claimed)

    async def fence(self) -> Fence | None:
        async with self._lock:
            fence = self._read(await self._document.read())[1].fence
        return None if fence is None else Fence(fence.token, fence.holder)

    async def close(self) -> None:
        """Let what is under way end. Safe to call twice."""
        async with self._lock:
            await self._client.close()

    # -- the object ----------------------------------------------------------------------------------

    async def _change(
        self,
        token: FencingToken,
        holder: str,
        attempts: Sequence[Attempt],
        decide: Callable[[bytes | None], tuple[bytes | None, T]],
    ) -> T:
        try:
            return await self._document.change(decide, f"resource {self.name!r}: the object")
        except FenceError as error:
            await self._note(token, holder, attempts, error)
            raise

    async def _note(self, token: FencingToken, holder: str, attempts: Sequence[Attempt], error: FenceError) -> None:
        """Put the refusal on record, if that can be done: it changes nothing else, and the fence least of all."""
        _log.warning("refused at the fence", resource=self.name, code=error.code, token=str(token))

        def decide(data: bytes | None) -> tuple[bytes | None, None]:
            stored, ledger = self._read(data)
            noted = ledger.refuse(token, holder, attempts, error, self._time_ns())
            return self._write(stored, ledger, noted), None

        try:
            await self._document.change(decide, f"resource {self.name!r}: the object")
        except (ResourceUnavailable, ConfigurationError) as reason:
            _log.warning("refusal not recorded", resource=self.name, reason=str(reason))

    def _read(self, data: bytes | None) -> tuple[_Stored, BoundedLedger]:
        return read_object(self.name, self._kept, data)

    def _write(self, stored: _Stored, ledger: BoundedLedger, changed: bool) -> bytes | None:
        if not changed:
            return None
        stored.revision += 1
        stored.writer = self._writer
        stored.ledger = ledger.to_builtins()
        return msgspec.json.encode(stored)


class _Batch:
    """The values while one batch is applied to them."""

    def __init__(self, values: dict[str, Any], steps: Mapping[str, Sequence[Step]], room: int) -> None:
        self.values = values
        self.applied = False
        self._steps = steps
        self._room = room

    def apply(self, attempt: Attempt) -> AttemptOutcome:
        steps = self._steps.get(attempt.effect)
        if steps is None:
            return unknown_effect(attempt)
        growing = sum(step.grows for step in steps)
        # Rather more than it adds: a payload may be used in part only.
        self._room -= growing and len(attempt.payload) * growing + RECORD_BYTES
        if growing and self._room < 0:
            return waits("the object is full (object_max): let other commands delete values, or raise the bound")
        try:
            self.values, result = run_all(steps, self.values, attempt)
        except NotBindable as reason:
            return failed(reason)
        self.applied = True
        return succeeded(result)


def read_object(name: str, kept: int, data: bytes | None) -> tuple[_Stored, BoundedLedger]:
    """Raises :class:`ConfigurationError` for an object that is not one of ours, or of another version."""
    try:
        stored = _Stored(FORMAT, 0, "", None, {}) if data is None else msgspec.json.decode(data, type=_Stored)
        if stored.format != FORMAT:
            raise ValueError(f"its format is {stored.format}, and this version writes {FORMAT}")
        return stored, BoundedLedger(name, kept, stored.ledger)
    except ValueError as error:  # msgspec's errors are ValueErrors too.
        raise ConfigurationError(
            f"resource {name!r}: its object cannot be read: {error}",
            next_step="give the resource a key of its own; an object of ours is restored from the bucket's versions",
        ) from error
