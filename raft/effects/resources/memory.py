"""A fenced resource in memory: the same rules as the real ones, and a full record of what it did.

Used by tests and simulation. Deterministic: no clock, no chance, no thread. One store may stand
behind several resources, as one database stands behind the nodes of a cluster.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from ...core.errors import FenceError, Outcome, ResourceUnavailable
from ...core.token import FencingToken
from ...ports import Answered, Attempt, AttemptOutcome, AttemptStatus, Fence, Guarantee
from ..handlers import Permanent, Retryable
from .asking import UNTOLD, answer, still_holds
from .ledger import AcceptedOperation, ClaimRecord, Ledger, Refusal, StoredFence, check_fence
from .outcomes import Known

Effect = Callable[[Attempt], bytes]
"""Applies one attempt and returns its result (JSON). May raise ``Permanent`` or ``Retryable``."""


def _one_row(_: Attempt) -> bytes:
    return b'{"rows":1}'


class MemoryStore:
    """What outlives every leader. ``down`` makes each call raise :class:`ResourceUnavailable`."""

    def __init__(self) -> None:
        self.fences: dict[str, StoredFence] = {}
        self.claims: list[ClaimRecord] = []
        self.operations: list[AcceptedOperation] = []
        self.refusals: list[Refusal] = []
        self.effects: list[tuple[str, str]] = []
        """(resource, operation id) of every effect that took place: what the outside world saw."""
        self.first: dict[tuple[str, str], AcceptedOperation] = {}
        self.lanes: dict[tuple[str, str], tuple[int, int]] = {}
        self.down = False

    def ledger(self) -> Ledger:
        """The same as ``audit.read_ledger`` gives for a file."""
        return Ledger(sorted(self.fences.values()), list(self.claims), list(self.operations), list(self.refusals))


class FakeResource:
    """``raft.ports.Resource`` over a :class:`MemoryStore`.

    ``effects`` are by name; ``gate``, awaited before the atomic step, lets a test hold a batch as a
    frozen leader would. With guarantee ``keyed`` the token is not compared, with ``naked`` nothing
    is recognised either.
    """

    kind = "memory"
    dedupes_by_place = False
    refusal_tells = True

    def __init__(
        self,
        name: str = "ledger",
        effects: Mapping[str, Effect] | Sequence[str] = ("credit",),
        *,
        store: MemoryStore | None = None,
        cluster_id: str = "cluster",
        guarantee: Guarantee = Guarantee.FENCED,
        batch_limit: int = 512,
        concurrency: int = 1,
        gate: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.name = name
        self.guarantee = guarantee
        self.batch_limit = batch_limit
        self.concurrency = concurrency
        self.store = store or MemoryStore()
        self.gate = gate
        self._effects = dict(effects) if isinstance(effects, Mapping) else dict.fromkeys(effects, _one_row)
        self.effects = frozenset(self._effects)
        self._cluster_id = cluster_id
        self._claimed: Fence | None = None

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    @property
    def absence_is_final(self) -> bool:
        return self.guarantee is Guarantee.FENCED

    async def query(self, attempt: Attempt) -> Answered:
        """Whether an operation was applied, at any guarantee: the store remembers all."""
        self._reach()
        if self.guarantee is Guarantee.FENCED and (claimed := self._claimed) is not None:
            still_holds(self.name, self.store.fences.get(self.name), self._cluster_id, *claimed)
        elif self.guarantee is Guarantee.FENCED:
            return UNTOLD
        first = self.store.first.get((self.name, attempt.operation_id))
        return answer(attempt, None if first is None else Known(first.digest, first.result), FencingToken(0, 0))

    async def fence(self) -> Fence | None:
        self._reach()
        stored = self.store.fences.get(self.name)
        return None if stored is None else Fence(stored.token, stored.holder)

    async def claim(self, token: FencingToken, holder: str) -> Fence | None:
        self._reach()
        stored = self.store.fences.get(self.name)
        self._pass_fence(token, holder, [])
        self._claimed = Fence(token, holder)
        return None if stored is None else Fence(stored.token, stored.holder)

    async def forget(self, token: FencingToken, holder: str, below: int, limit: int) -> bool:
        """Takes for new what it has forgotten. The record of what it did stays, for tests to look at."""
        self._reach()
        self._pass_fence(token, holder, [])
        first, incarnation = self.store.first, token.incarnation
        old = [
            key
            for key, each in first.items()
            if key[0] == self.name and each.token.incarnation == incarnation and each.log_index < below
        ]
        for key in old[:limit]:
            del first[key]
        return len(old) > limit

    async def execute(self, token: FencingToken, holder: str, attempts: Sequence[Attempt]) -> list[AttemptOutcome]:
        if len(attempts) > self.batch_limit:
            raise AssertionError(f"{len(attempts)} attempts for a batch limit of {self.batch_limit}")
        if self.gate is not None:
            await self.gate()
        # From here on no await: what follows is the atomic step.
        self._reach()
        self._pass_fence(token, holder, [attempt.operation_id for attempt in attempts])
        outcomes: list[AttemptOutcome] = []
        blocked: set[str] = set()
        for attempt in attempts:
            if attempt.lane and attempt.lane in blocked:
                outcomes.append(AttemptOutcome(AttemptStatus.NOT_ATTEMPTED, b"", "", False))
                continue
            outcome = self._apply(token, holder, attempt)
            outcomes.append(outcome)
            if outcome.status is not AttemptStatus.SUCCEEDED:
                blocked.add(attempt.lane)
        return outcomes

    # -- the atomic step ---------------------------------------------------------------------------

    def _reach(self) -> None:
        if self.store.down:
            raise ResourceUnavailable(f"resource {self.name!r} is down", outcome=Outcome.RETRY)

    def _pass_fence(self, token: FencingToken, holder: str, operations: list[str]) -> None:
        if self.guarantee is not Guarantee.FENCED:
            return
        store = self.store
        stored = store.fences.get(self.name)
        try:
            rises = check_fence(self.name, stored, self._cluster_id, token, holder)
        except FenceError as error:
            if stored is not None and stored.cluster == self._cluster_id:
                store.refusals.append(
                    Refusal(
                        len(store.refusals) + 1,
                        self.name,
                        0,
                        token,
                        holder,
                        stored.token,
                        stored.holder,
                        operations,
                        error.code,
                    )
                )
            raise
        if rises:
            store.fences[self.name] = StoredFence(self.name, self._cluster_id, token, holder)
            store.claims.append(ClaimRecord(len(store.claims) + 1, self.name, token, holder, len(store.operations), 0))

    def _apply(self, token: FencingToken, holder: str, attempt: Attempt) -> AttemptOutcome:
        store = self.store
        known = store.first.get((self.name, attempt.operation_id))
        if known is not None and self.guarantee is not Guarantee.NAKED:
            if known.digest != attempt.digest:
                return _failed(f"OPERATION_ID_REUSED: {attempt.operation_id!r} was applied with another payload")
            return AttemptOutcome(AttemptStatus.SUCCEEDED, known.result, "", True)
        place = (token.incarnation, attempt.index)
        mark = store.lanes.get((self.name, attempt.lane)) if attempt.lane else None
        if mark is not None and place <= mark and self.guarantee is Guarantee.FENCED:
            return _failed(f"LANE_SUPERSEDED: lane {attempt.lane!r} has moved on to index {mark[1]}")
        effect = self._effects.get(attempt.effect)
        if effect is None:
            why = f"this node knows no effect {attempt.effect!r} of this resource"
            return AttemptOutcome(AttemptStatus.NOT_ATTEMPTED, b"", why, False)
        try:
            result = effect(attempt)
        except Permanent as error:
            return _failed(error.message)
        except Retryable as error:
            return AttemptOutcome(AttemptStatus.RETRY, b"", error.message, False)
        accepted = AcceptedOperation(
            len(store.operations) + 1,
            self.name,
            attempt.operation_id,
            attempt.effect,
            attempt.lane,
            attempt.index,
            token,
            holder,
            attempt.number,
            attempt.digest,
            result,
            0,
        )
        store.operations.append(accepted)
        store.effects.append((self.name, attempt.operation_id))
        store.first.setdefault((self.name, attempt.operation_id), accepted)
        if attempt.lane:
            store.lanes[self.name, attempt.lane] = place
        return AttemptOutcome(AttemptStatus.SUCCEEDED, result, "", False)


def _failed(why: str) -> AttemptOutcome:
    return AttemptOutcome(AttemptStatus.FAILED, b"", why, False)
