"""The ids of proposals that were applied, each with its first result. Replicated state: a function of the entries."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from .envelope import Retention

_S = 1_000_000_000
_MS = 1_000_000
_TEXT_OF_A_UUID = 36

AHEAD_NS = 60 * _S
"""So far ahead of cluster time may the clock be that made an id, and the id is still refused once it was forgotten.
Not any further: one clock that is years ahead must not have everybody's new ids refused."""


class Remembered(NamedTuple):
    operation_id: str
    digest: bytes
    """Of the command's bytes."""
    index: int  # type: ignore[assignment]  # the thesis's word; tuple.index is not used
    term: int
    time_ns: int
    """Cluster time at which it was applied."""
    status: int
    result: bytes
    detail: str


class Ids:
    """In the order in which they were applied; the oldest are forgotten first."""

    def __init__(self, records: Iterable[Remembered] = (), forgotten_ns: int = 0) -> None:
        """``forgotten_ns``: cluster time of the newest that was forgotten, or, where that is later, the time that its
        id tells; 0 if none was."""
        self._order = deque(records)
        self._by_id = {record.operation_id: record for record in self._order}
        self._result_bytes = sum(len(record.result) for record in self._order)
        self.forgotten_ns = forgotten_ns

    def __len__(self) -> int:
        return len(self._order)

    @property
    def last_index(self) -> int:
        return self._order[-1].index if self._order else 0

    def find(self, operation_id: str) -> Remembered | None:
        return self._by_id.get(operation_id)

    def is_expired(self, operation_id: str) -> bool:
        """Whether this unknown id may be one that was forgotten. Only ids that carry their time tell (UUIDv7)."""
        if not self.forgotten_ns:
            return False
        made_ns = _made_ns(operation_id)
        return made_ns is not None and made_ns <= self.forgotten_ns

    def remember(self, record: Remembered, retention: Retention) -> None:
        """Keep it, and forget what is beyond ``retention`` now. What was just applied is always kept."""
        self._by_id[record.operation_id] = record
        self._order.append(record)
        self._result_bytes += len(record.result)
        oldest_ns = record.time_ns - retention.seconds * _S
        while len(self._order) > 1 and (
            len(self._order) > retention.ids
            or self._result_bytes > retention.result_bytes
            or self._order[0].time_ns < oldest_ns
        ):
            forgotten = self._order.popleft()
            del self._by_id[forgotten.operation_id]
            self._result_bytes -= len(forgotten.result)
            made_ns = min(_made_ns(forgotten.operation_id) or 0, forgotten.time_ns + AHEAD_NS)
            self.forgotten_ns = max(self.forgotten_ns, forgotten.time_ns, made_ns)

    def records(self) -> list[Remembered]:
        """As they are now: what comes later does not change the list."""
        return list(self._order)


def _made_ns(operation_id: str) -> int | None:
    """When the id was made, as it tells itself; None for one that does not."""
    if len(operation_id) != _TEXT_OF_A_UUID:
        return None
    try:
        value = uuid.UUID(operation_id)
    except ValueError:
        return None
    return (value.int >> 80) * _MS if value.version == 7 else None
