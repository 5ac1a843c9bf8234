"""Lives of a log, from a seed, and what a disk may hold of one after each of its writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from fencepost.raft.core.entry import Entry, HardState, Snapshot
from fencepost.storage.recovery import Recovered

from .world import Log, entries, label

NO_TERM = HardState(0, "")


@dataclass(frozen=True, slots=True)
class Told:
    """What a log has been told so far. Nothing in it is ever trimmed, only reset."""

    hard_state: HardState = NO_TERM
    base_index: int = 0
    base_term: int = 0
    entries: tuple[Entry, ...] = ()
    """All since ``base_index``, which only a reset moves."""
    commit_index: int = 0
    compact_to: int = 0

    @property
    def last_index(self) -> int:
        return self.base_index + len(self.entries)

    def term_at(self, index: int) -> int:
        return self.entries[index - self.base_index - 1].term if index > self.base_index else self.base_term

    def differs(self, found: Recovered) -> str:
        """In what a recovered log is not this one; empty where it is, with more or fewer compacted entries."""
        previous = found.previous_index
        if found.hard_state != self.hard_state:
            return f"hard state {found.hard_state}, not {self.hard_state}"
        if found.commit_index != self.commit_index:
            return f"commit index {found.commit_index}, not {self.commit_index}"
        if not self.base_index <= previous <= max(self.base_index, self.compact_to):
            return f"it begins behind {previous}; reset to {self.base_index}, compacted up to {self.compact_to}"
        if found.previous_term != self.term_at(previous):
            return f"term {found.previous_term} at {previous}, not {self.term_at(previous)}"
        if tuple(found.entries) != self.entries[previous - self.base_index :]:
            return f"entries up to {previous + len(found.entries)}, not {self.last_index}, or other ones"
        return ""


@dataclass
class Life:
    """Writes by chance, each one that a node could make, and what the log is behind each."""

    chance: Random
    told: list[Told] = field(default_factory=lambda: [Told()])
    """By the number of writes, over all openings."""

    def write(self, log: Log) -> int:
        """Append one write; its sequence number in this log."""
        chance, now = self.chance, self.told[-1]
        kind = chance.choices(("entries", "conflict", "hard state", "compaction", "reset"), weights=(10, 2, 2, 4, 1))[0]
        hard_state = None
        truncate_from = compact_to = 0
        reset: Snapshot | None = None
        term = max(now.hard_state.term, 1)
        if kind in ("conflict", "hard state") or now.hard_state.term == 0:
            term = now.hard_state.term + 1
            hard_state = HardState(term, chance.choice(("", "n1", "n2")))
        if kind == "conflict":
            truncate_from = chance.randint(now.commit_index + 1, now.last_index + 1)
            now = self._truncated(now, truncate_from)
        if kind == "reset":
            reset = self._reset(now, term)
            now = Told(now.hard_state, reset.last_index, reset.last_term, (), reset.last_index, reset.last_index)
        count = chance.randint(1, 3) if kind == "entries" else chance.choice((0, 0, 1))
        made = entries(now.last_index + 1, now.last_index + count, term, size=chance.choice((20, 200, 700)))
        last = now.last_index + count
        commit_index = chance.randint(now.commit_index, last) if chance.random() < 0.6 else 0
        committed = max(now.commit_index, commit_index)
        if kind == "compaction":
            compact_to = chance.randint(max(0, committed - 3), committed)
        self.told.append(
            Told(
                hard_state or now.hard_state,
                now.base_index,
                now.base_term,
                (*now.entries, *made),
                committed,
                max(now.compact_to, compact_to),
            )
        )
        return log.write(
            made,
            hard_state=hard_state,
            truncate_from=truncate_from,
            commit_index=commit_index,
            reset=reset,
            compact_to=compact_to,
        )

    @staticmethod
    def _truncated(now: Told, truncate_from: int) -> Told:
        kept = now.entries[: truncate_from - 1 - now.base_index]
        return Told(now.hard_state, now.base_index, now.base_term, kept, now.commit_index, now.compact_to)

    def _reset(self, now: Told, term: int) -> Snapshot:
        """To what is committed elsewhere: ahead of what is known here, behind or before the last entry."""
        return label(now.commit_index + self.chance.randint(1, 6), term)
