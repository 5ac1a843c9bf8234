"""Who waits for which log entries, kept by batch, ended in one place (scenario S44).

A batch is what one client frame, or one internal caller, proposed together: consecutive indexes of
one term. Its waiters hear exactly one of:

* ``applied``: these very entries were committed and applied, with the results;
* ``lost``: other entries were committed in their place, so they certainly were not;
* ``unknown``: this node can no longer tell.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from ..core.entry import Entry


class ProposalSink(Protocol):
    """What hears of a batch of proposals. Called on the node's loop; must not raise."""

    def accepted(self, keys: Sequence[Any], first_index: int, term: int) -> None:
        """Appended at ``first_index`` on. Promises nothing yet."""

    def refused(self, keys: Sequence[Any], code: str, leader: str) -> None:
        """Certainly not appended: ``NOT_LEADER`` or ``BUSY``."""

    def applied(self, keys: Sequence[Any], entries: Sequence[Entry], results: Sequence[Any]) -> None: ...

    def lost(self, keys: Sequence[Any]) -> None: ...

    def unknown(self, keys: Sequence[Any]) -> None: ...


class _Batch:
    __slots__ = ("expires_at", "first_index", "keys", "sink", "term")

    def __init__(self, sink: ProposalSink, keys: Sequence[Any], first_index: int, term: int) -> None:
        self.sink = sink
        self.keys = keys
        self.first_index = first_index
        self.term = term
        self.expires_at = 0


class Waiters:
    """Batches in the order of their indexes, which never overlap, and beside them the overtaken ones."""

    def __init__(self) -> None:
        self._batches: deque[_Batch] = deque()
        self._overtaken: list[_Batch] = []
        """Of earlier leaderships of this node, whose indexes it has since used again."""

    def __len__(self) -> int:
        return sum(len(batch.keys) for batch in self._batches) + sum(len(batch.keys) for batch in self._overtaken)

    def add(self, sink: ProposalSink, keys: Sequence[Any], first_index: int, term: int) -> None:
        """Wait for ``len(keys)`` entries from ``first_index`` on, appended in ``term``."""
        if not keys:
            return
        # A batch of an earlier leadership of this node may claim these indexes too. Its entries were
        # overwritten *here*. Another node may still hold them, lead, and commit them: until something
        # is committed at their indexes nobody can say that they were lost (S31).
        batches = self._batches
        while batches and batches[-1].first_index + len(batches[-1].keys) > first_index:
            overtaken = batches[-1]
            kept = max(first_index - overtaken.first_index, 0)
            if not kept:
                self._overtaken.append(batches.pop())
                continue
            rest = _Batch(overtaken.sink, overtaken.keys[kept:], first_index, overtaken.term)
            rest.expires_at = overtaken.expires_at
            self._overtaken.append(rest)
            overtaken.keys = overtaken.keys[:kept]
        batches.append(_Batch(sink, keys, first_index, term))

    def applied(self, entries: list[Entry], results: list[Any]) -> None:
        """These consecutive entries were applied: end every waiter that they decide."""
        if self._overtaken:
            self._decide_overtaken(entries, results)
        if not self._batches:
            return
        start = entries[0].index
        last = entries[-1].index
        kept: list[_Batch] = []
        while self._batches and self._batches[0].first_index <= last:
            batch = self._batches.popleft()
            begin = max(batch.first_index - start, 0)
            end = min(batch.first_index + len(batch.keys) - 1, last) - start + 1
            count = end - begin
            keys = batch.keys if count == len(batch.keys) else batch.keys[:count]
            self._decide(batch, keys, entries[begin:end], results[begin:end])
            if count < len(batch.keys):
                batch.keys = batch.keys[count:]
                batch.first_index += count
                kept.append(batch)
        self._batches.extendleft(reversed(kept))

    def _decide_overtaken(self, entries: list[Entry], results: list[Any]) -> None:
        start, last = entries[0].index, entries[-1].index
        batches, self._overtaken = self._overtaken, []
        for batch in batches:
            count = min(batch.first_index + len(batch.keys) - 1, last) - batch.first_index + 1
            if count > 0:
                begin = batch.first_index - start
                self._decide(batch, batch.keys[:count], entries[begin : begin + count], results[begin : begin + count])
                batch.keys = batch.keys[count:]
                batch.first_index += count
            if batch.keys:
                self._overtaken.append(batch)

    @staticmethod
    def _decide(batch: _Batch, keys: Sequence[Any], entries: list[Entry], results: list[Any]) -> None:
        if entries[-1].term == batch.term:
            # Terms never fall along a log, and the leader of the term wrote all of these before
            # the last one: they are this batch's own.
            batch.sink.applied(keys, entries, results)
            return
        ours = sum(1 for entry in entries if entry.term == batch.term)
        if ours:
            batch.sink.applied(keys[:ours], entries[:ours], results[:ours])
        batch.sink.lost(keys[ours:])

    def superseded(self, last_index: int) -> None:
        """The state up to ``last_index`` has come as a snapshot: what was committed there nobody here can
        tell, so everybody who waits for an index up to it hears unknown."""
        kept: dict[bool, list[_Batch]] = {True: [], False: []}
        ended: list[tuple[_Batch, Sequence[Any]]] = []
        for overtaken, batches in ((True, self._overtaken), (False, self._batches)):
            for batch in batches:
                count = min(max(last_index - batch.first_index + 1, 0), len(batch.keys))
                if count:
                    ended.append((batch, batch.keys[:count]))
                    batch.keys = batch.keys[count:]
                    batch.first_index += count
                if batch.keys:
                    kept[overtaken].append(batch)
        self._overtaken, self._batches = kept[True], deque(kept[False])
        for batch, keys in ended:
            batch.sink.unknown(keys)

    def leadership_lost(self, expires_at: int) -> None:
        """Nothing proposed so far is certain any more: it ends by ``expires_at`` at the latest."""
        for batch in (*self._batches, *self._overtaken):
            if not batch.expires_at:
                batch.expires_at = expires_at

    def expire(self, now: int) -> None:
        """End what has waited past its time as unknown."""
        expired = [batch for batch in (*self._overtaken, *self._batches) if 0 < batch.expires_at <= now]
        if not expired:
            return
        self._batches = deque(batch for batch in self._batches if not 0 < batch.expires_at <= now)
        self._overtaken = [batch for batch in self._overtaken if not 0 < batch.expires_at <= now]
        for batch in expired:
            batch.sink.unknown(batch.keys)

    def abandon(self) -> None:
        """The node stops: everything still waiting is unknown."""
        batches = [*self._overtaken, *self._batches]
        self._batches, self._overtaken = deque(), []
        for batch in batches:
            batch.sink.unknown(batch.keys)
