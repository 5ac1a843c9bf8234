"""A ledger that is small enough to be written anew with every batch: for stores that replace a whole document.

It keeps the fence, the latest operations with their first results, and how far each lane has come. What it no
longer holds it does not take for new: below the ``floor`` it answers that it cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from ...core.errors import FencepostError, WrongCluster
from ...core.token import FencingToken
from ...ports import Answered, Attempt, AttemptOutcome, AttemptStatus
from .asking import answer
from .ledger import AcceptedOperation, ClaimRecord, Ledger, Refusal, StoredFence, check_fence
from .outcomes import BEHIND, Known, replay, superseded

CLAIMS_KEPT = 100
REFUSALS_KEPT = 100

Place = tuple[int, int]
"""(incarnation, index): an index is comparable only within one incarnation."""


class Record(NamedTuple):
    """One operation that was applied. Numbers that may exceed 2^53 are texts, for readers that know only doubles."""

    accepted: int
    operation_id: str
    digest: bytes
    effect: str
    lane: str
    index: str  # type: ignore[assignment]  # the thesis's word; tuple.index is not used
    incarnation: str
    term: str
    holder: str
    attempt: int
    result: bytes
    applied_ns: str


class _Claim(NamedTuple):
    incarnation: str
    term: str
    holder: str
    accepted_before: int
    claimed_ns: str


class _Refusal(NamedTuple):
    incarnation: str
    term: str
    holder: str
    stored_incarnation: str
    stored_term: str
    stored_holder: str
    operations: list[str]
    reason: str
    refused_ns: str


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    cluster: str = ""
    incarnation: str = "0"
    term: str = "0"
    holder: str = ""
    accepted: int = 0
    floor: tuple[str, str] = ("0", "0")
    lanes: dict[str, tuple[str, str]] = {}
    operations: list[Record] = []
    claims: list[_Claim] = []
    refusals: list[_Refusal] = []
    claims_forgotten: int = 0


class BoundedLedger:
    """``kept`` is how many operations it holds, at least as many as one batch carries."""

    def __init__(self, resource: str, kept: int, stored: Any = None) -> None:
        """``stored`` is what :meth:`to_builtins` gave. Raises :class:`msgspec.ValidationError` if it is not."""
        self._resource = resource
        self._kept = kept
        self._stored = _Stored() if stored is None else msgspec.convert(stored, _Stored)
        self._lanes = {lane: _place(place) for lane, place in self._stored.lanes.items()}
        self._floor = _place(self._stored.floor)
        self._known = {each.operation_id: each for each in self._stored.operations}

    def to_builtins(self) -> Any:
        """The ledger as JSON has it; bytes become base64."""
        stored = self._stored
        stored.operations = list(self._known.values())
        stored.lanes = {lane: (str(place[0]), str(place[1])) for lane, place in self._lanes.items()}
        stored.floor = (str(self._floor[0]), str(self._floor[1]))
        return msgspec.to_builtins(stored)

    # -- the fence -----------------------------------------------------------------------------------

    @property
    def fence(self) -> StoredFence | None:
        stored = self._stored
        if not stored.cluster:
            return None
        token = FencingToken(int(stored.incarnation), int(stored.term))
        return StoredFence(self._resource, stored.cluster, token, stored.holder)

    def pass_fence(self, cluster: str, token: FencingToken, holder: str, now_ns: int) -> bool:
        """Whether the fence rose. Raises what :func:`.ledger.check_fence` raises."""
        if not check_fence(self._resource, self.fence, cluster, token, holder):
            return False
        stored = self._stored
        stored.cluster, stored.holder = cluster, holder
        stored.incarnation, stored.term = str(token.incarnation), str(token.term)
        stored.claims.append(_Claim(stored.incarnation, stored.term, holder, stored.accepted, str(now_ns)))
        surplus = max(0, len(stored.claims) - CLAIMS_KEPT)
        stored.claims_forgotten += surplus
        del stored.claims[:surplus]
        return True

    def refuse(
        self, token: FencingToken, holder: str, attempts: Sequence[Attempt], error: FencepostError, now_ns: int
    ) -> bool:
        """Put a refusal on record; False where there is nothing to compare it with."""
        fence = self.fence
        if fence is None or isinstance(error, WrongCluster):
            return False
        stored = self._stored
        stored.refusals.append(
            _Refusal(
                str(token.incarnation),
                str(token.term),
                holder,
                stored.incarnation,
                stored.term,
                stored.holder,
                [attempt.operation_id for attempt in attempts],
                error.code,
                str(now_ns),
            )
        )
        del stored.refusals[:-REFUSALS_KEPT]
        return True

    # -- operations ------------------------------------------------------------------------------------

    def execute(
        self,
        token: FencingToken,
        holder: str,
        attempts: Sequence[Attempt],
        apply: Callable[[Attempt], AttemptOutcome],
        now_ns: int,
    ) -> list[AttemptOutcome]:
        """Dedupe, apply and record, one attempt after the other. ``apply`` leaves no trace unless it SUCCEEDED."""
        outcomes: list[AttemptOutcome] = []
        blocked: set[str] = set()
        for attempt in attempts:
            if attempt.lane and attempt.lane in blocked:
                outcomes.append(BEHIND)
                continue
            outcome = self._known_already(token, attempt)
            if outcome is None:
                outcome = apply(attempt)
                if outcome.status is AttemptStatus.SUCCEEDED:
                    self._record(token, holder, attempt, outcome.result, now_ns)
            if attempt.lane and outcome.status is not AttemptStatus.SUCCEEDED:
                blocked.add(attempt.lane)
            outcomes.append(outcome)
        self._forget()
        return outcomes

    def _known_already(self, token: FencingToken, attempt: Attempt) -> AttemptOutcome | None:
        known = self._known.get(attempt.operation_id)
        if known is not None:
            return replay(attempt, Known(known.digest, known.result))
        here = (token.incarnation, attempt.index)
        if here <= self._floor:
            return _forgotten(attempt, self._floor[1])
        reached = self._lanes.get(attempt.lane) if attempt.lane else None
        # Above the floor every operation that was applied is known, so this one was not.
        return superseded(attempt, reached[1]) if reached is not None and here <= reached else None

    def find(self, attempt: Attempt, claimed: FencingToken) -> Answered:
        """Whether it was applied, asked by a leader that has claimed ``claimed``, where the fence still stands."""
        known = self._known.get(attempt.operation_id)
        return answer(attempt, None if known is None else Known(known.digest, known.result), claimed, self._floor)

    def _record(self, token: FencingToken, holder: str, attempt: Attempt, result: bytes, now_ns: int) -> None:
        self._stored.accepted += 1
        self._known[attempt.operation_id] = Record(
            self._stored.accepted,
            attempt.operation_id,
            attempt.digest,
            attempt.effect,
            attempt.lane,
            str(attempt.index),
            str(token.incarnation),
            str(token.term),
            holder,
            attempt.number,
            result,
            str(now_ns),
        )
        if attempt.lane:
            self._lanes[attempt.lane] = (token.incarnation, attempt.index)

    def _forget(self) -> None:
        """Give up the operations of the lowest places, and remember below what nothing can be told any more."""
        surplus = len(self._known) - self._kept
        if surplus <= 0:
            return
        for record in sorted(self._known.values(), key=_place_of)[:surplus]:
            del self._known[record.operation_id]
            self._floor = max(self._floor, _place_of(record))
        # What the floor says of every operation, a mark below it need not say of a lane.
        self._lanes = {lane: place for lane, place in self._lanes.items() if place > self._floor}

    # -- reading -------------------------------------------------------------------------------------

    def read(self) -> Ledger:
        """For :func:`.audit.check_ledger`."""
        stored = self._stored
        fence = self.fence
        return Ledger(
            fences=[] if fence is None else [fence],
            claims=[
                ClaimRecord(
                    place, self._resource, _token(each), each.holder, each.accepted_before, int(each.claimed_ns)
                )
                for place, each in enumerate(stored.claims, stored.claims_forgotten + 1)
            ],
            operations=sorted(self._accepted(each) for each in self._known.values()),
            refusals=[
                Refusal(
                    place,
                    self._resource,
                    int(each.refused_ns),
                    _token(each),
                    each.holder,
                    FencingToken(int(each.stored_incarnation), int(each.stored_term)),
                    each.stored_holder,
                    each.operations,
                    each.reason,
                )
                for place, each in enumerate(stored.refusals, 1)
            ],
        )

    def _accepted(self, record: Record) -> AcceptedOperation:
        return AcceptedOperation(
            record.accepted,
            self._resource,
            record.operation_id,
            record.effect,
            record.lane,
            int(record.index),
            _token(record),
            record.holder,
            record.attempt,
            record.digest,
            record.result,
            int(record.applied_ns),
        )


def _forgotten(attempt: Attempt, index: int) -> AttemptOutcome:
    why = (
        f"OPERATION_FORGOTTEN: what is kept of operations reaches back to index {index}, and this is {attempt.index}: "
        "it was applied, or it was passed over"
    )
    return AttemptOutcome(AttemptStatus.DOUBT, b"", why, False)


def _place(stored: tuple[str, str]) -> Place:
    return (int(stored[0]), int(stored[1]))


def _place_of(record: Record) -> Place:
    return (int(record.incarnation), int(record.index))


def _token(record: Record | _Claim | _Refusal) -> FencingToken:
    return FencingToken(int(record.incarnation), int(record.term))
