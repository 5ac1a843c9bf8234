"""How long what has ended is remembered (concepts: Operation ids; S33).

By cluster time and by count, both of which all replicas know alike. Never forgotten: what has not ended, and
dead letters. Whatever has the same end as another is forgotten with it, so that the order among them says nothing.
"""

from __future__ import annotations

from ..core.entry import Entry
from .bookkeeping import Bookkeeping
from .codec import Retention, Tick
from .operation_id import believed_time_ns, time_in_id_ns
from .state_digest import record_term, sum_of

COUNT_AGE_NS = 600 * 1_000_000_000
"""What has ended within this time is remembered however many there are: a client that has not heard of the end
may still ask."""

FORGOTTEN_AT_ONCE = 64
"""With one entry, and those that have the same end as the last of them: no entry is to take much longer than others."""


class Retaining(Bookkeeping):
    """The part of the machine that forgets."""

    def _apply_tick(self, entry: Entry, tick: Tick) -> None:
        pass  # Its time counts, as that of every entry.

    def _apply_retention(self, entry: Entry, retention: Retention) -> None:
        was = self.retention
        self.terms -= record_term(was) if any(was) else 0
        self.retention = retention
        self.terms = sum_of(self.terms + (record_term(retention) if any(retention) else 0))

    def _is_expired(self, operation_id: str) -> bool:
        """Of an id that is not known: whether it may have been, once."""
        horizon_ns = self.forgotten_ids_ns
        return horizon_ns > 0 and 0 < time_in_id_ns(operation_id) <= horizon_ns

    def remembers_from(self) -> int:
        """The done-watermark: every command below this index has ended for good and is forgotten, on every replica that
        has applied as much. 0 where the cluster forgets nothing, or has forgotten nothing yet.

        Dead letters and what has not ended hold it up: they may be attempted again.
        """
        if not self.forgotten or not any(self.retention):
            return 0
        return self.by_index.first() or self.last_applied + 1

    def next_forgetting_ns(self) -> int:
        """Cluster time at which the next operation is to be forgotten; 0 if none is."""
        if not self.ended:
            return 0
        window_ns, ended_max = self.retention
        ended_ns = self.ended[0].finished_ns
        due = [ended_ns + window_ns] if window_ns else []
        if ended_max and len(self.ended) > ended_max:
            due.append(ended_ns + COUNT_AGE_NS)
        return min(due, default=0)

    def _forget_old(self) -> None:
        """Called after every entry."""
        ended, now_ns = self.ended, self.cluster_time_ns
        window_ns, ended_max = self.retention
        left, last_ns = FORGOTTEN_AT_ONCE, -1
        while ended:
            operation = ended[0]
            ended_ns = operation.finished_ns
            old = window_ns and ended_ns + window_ns <= now_ns
            many = ended_max and len(ended) > ended_max and ended_ns + COUNT_AGE_NS <= now_ns
            if ended_ns != last_ns and (left <= 0 or not (old or many)):
                break
            ended.popleft()
            left, last_ns = left - 1, ended_ns
            self._forget(operation)
            time_ns = believed_time_ns(operation.operation_id, operation.submitted_ns)
            if time_ns > self.forgotten_ids_ns:
                self.forgotten_ids_ns = time_ns
        if last_ns >= 0:
            self._sweep()
