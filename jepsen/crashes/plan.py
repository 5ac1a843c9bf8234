"""The life of one node's files, decided by a seed: what is done, and what must be there behind each part of it.

It is the life of a member that leads in some terms and follows in others: entries come and are
committed, some are deleted before they are; votes are cast; the log is given up behind snapshots that
are taken, or goes on behind one that was received; commands are executed at a resource and their
outcomes marked in the log. Nothing here touches a disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import google_crc32c

from ...raft.core.configuration import Configuration
from ...raft.core.entry import Entry, EntryKind, HardState, Snapshot
from ...raft.core.token import FencingToken
from ...raft.outbox.codec import Command, Outcome, OutcomeRow, encode
from ...raft.ports import Attempt

CLUSTER_ID, NODE_ID, VOTERS = "crash-states", "n1", ("n1", "n2", "n3")
RESOURCE, EFFECT = "ledger", "credit"
FIRST_TIME_NS = 1_700_000_000_000_000_000
CHUNK_BYTES = 700
"""A part of a snapshot, as it is written or received."""


class State(NamedTuple):
    """What is there once so much has been acknowledged. Nothing of the log in it is trimmed, only reset."""

    opened: int = 0
    hard_state: HardState = HardState(0, "")
    base_index: int = 0
    base_term: int = 0
    entries: tuple[Entry, ...] = ()
    """All behind ``base_index``, which only a reset moves."""
    commit_index: int = 0
    compact_to: int = 0
    snapshot: Snapshot | None = None
    instances: tuple[tuple[str, str], ...] = ()
    token: FencingToken = FencingToken(0, 0)
    """The highest one that has claimed the resource."""
    executed: tuple[str, ...] = ()
    """The operations that took effect at the resource, in order."""

    @property
    def last_index(self) -> int:
        return self.base_index + len(self.entries)

    def term_at(self, index: int) -> int:
        return self.entries[index - self.base_index - 1].term if index > self.base_index else self.base_term


class Write(NamedTuple):
    """One write to the log: a ``Persist`` without its number."""

    entries: tuple[Entry, ...] = ()
    hard_state: HardState | None = None
    truncate_from: int = 0
    commit_index: int = 0
    reset: Snapshot | None = None
    compact_to: int = 0


class Open(NamedTuple):
    """Open directory, log and snapshots."""


class Close(NamedTuple):
    """Close them in order. Acknowledges nothing."""


class Seal(NamedTuple):
    """A quiet second. Acknowledges nothing."""


class Writes(NamedTuple):
    """Writes that are queued together; each is acknowledged."""

    writes: tuple[Write, ...]


class Take(NamedTuple):
    """Write a snapshot of the own state."""

    label: Snapshot


class Receive(NamedTuple):
    """Receive a snapshot, part by part."""

    label: Snapshot


class BreakOff(NamedTuple):
    """Receive the first part of a snapshot, and no more. Acknowledges nothing."""

    label: Snapshot


class Remember(NamedTuple):
    """Meet a peer for the first time."""

    node_id: str
    instance_id: str


class Claim(NamedTuple):
    token: FencingToken


class Execute(NamedTuple):
    token: FencingToken
    attempts: tuple[Attempt, ...]


Step = Open | Close | Seal | Writes | Take | Receive | BreakOff | Remember | Claim | Execute


class Plan(NamedTuple):
    seed: int
    steps: tuple[Step, ...]
    states: tuple[State, ...]
    """By the number of acknowledgements."""
    reach: tuple[int, ...]
    """By the number of acknowledgements: how many there may be once the step under way is done."""


def contents(label: Snapshot) -> bytes:
    """The contents of a snapshot: those of its index and term, and longer than two sectors."""
    name = b"%d:%d:" % (label.last_index, label.last_term)
    return name + hashlib.sha256(name).digest() * 40


def labelled(last_index: int, last_term: int) -> Snapshot:
    label = Snapshot(last_index, last_term, FIRST_TIME_NS + last_index, Configuration(VOTERS), 0)
    held = contents(label)
    return label._replace(size_bytes=len(held), checksum=google_crc32c.value(held))


def make_plan(seed: int, steps: int) -> Plan:
    """A plan of so many steps, and a few more to end what was begun."""
    return _Planner(seed).plan(steps)


class _Planner:
    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.seed = seed
        self.steps: list[Step] = []
        self.states = [State()]
        self.reach: list[int] = []

    @property
    def now(self) -> State:
        return self.states[-1]

    def plan(self, steps: int) -> Plan:
        self.step(Open(), self.now._replace(opened=1))
        # So that a short life has something of everything, these come first, in any order.
        acts: list[Callable[[], None]] = [
            self.follow, self.lead, self.vote, self.stray, self.take, self.lead, self.receive, self.remember,
            self.reopen, self.batch, self.break_off, self.seal,
        ]  # fmt: skip
        self.follow()
        self.chance.shuffle(acts)
        while len(self.steps) < steps:
            act = acts.pop() if acts else self.chance.choices(*_LATER)[0].__get__(self)
            act()
        self.step(Close())
        self.reach.append(len(self.states) - 1)
        return Plan(self.seed, tuple(self.steps), tuple(self.states), tuple(self.reach))

    def step(self, step: Step, *after: State) -> None:
        self.steps.append(step)
        last = len(self.states) - 1 + len(after)
        self.reach += [last] * len(after)
        self.states += after

    def write(self, *writes: Write) -> None:
        states: list[State] = []
        for write in writes:
            states.append(written(states[-1] if states else self.now, write))
        self.step(Writes(writes), *states)

    # -- acts ---------------------------------------------------------------------------------------

    def made(self, count: int, term: int, *, behind: State | None = None) -> tuple[Entry, ...]:
        last = (behind or self.now).last_index
        return tuple(self.entry(index, term) for index in range(last + 1, last + 1 + count))

    def entry(self, index: int, term: int) -> Entry:
        """Of no other index, term and moment: one that took its place is seen."""
        payload = b"%d" % len(self.steps) + b"x" * self.chance.choice((10, 200, 700))
        command = Command(f"op-{index}-{term}", RESOURCE, EFFECT, "", payload)
        return Entry(index, term, EntryKind.OUTBOX, FIRST_TIME_NS + index, encode(command))

    def follow(self) -> None:
        """Entries come, and some are committed."""
        term = max(self.now.hard_state.term, 1)
        hard_state = HardState(term, "") if self.now.hard_state.term == 0 else None
        rows = self.made(self.chance.randint(1, 3), term)
        last = rows[-1].index
        self.write(Write(rows, hard_state, commit_index=self.chance.randint(self.now.commit_index, last)))

    def vote(self) -> None:
        self.write(Write(hard_state=HardState(self.now.hard_state.term + 1, self.chance.choice(VOTERS))))

    def stray(self) -> None:
        """Another leader deletes entries that were not committed, and puts its own in their place."""
        now, term = self.now, self.now.hard_state.term + 1
        first = self.chance.randint(now.commit_index + 1, now.last_index + 1)
        cut = written(now, Write(truncate_from=first))
        self.write(Write(self.made(self.chance.randint(0, 2), term, behind=cut), HardState(term, ""), first))

    def batch(self) -> None:
        """Several writes before the first is durable: they become one record, or more."""
        writes: list[Write] = []
        state = self.now
        for _ in range(3):
            write = Write(self.made(1, max(state.hard_state.term, 1), behind=state), commit_index=state.commit_index)
            writes.append(write)
            state = written(state, write)
        self.write(*writes)

    def lead(self) -> None:
        """Commit a command, execute it, mark its outcome."""
        now = self.now
        term = now.hard_state.term + 1
        token = FencingToken(1, term)
        self.write(Write(self.made(2, term), HardState(term, NODE_ID)))
        last = self.now.last_index
        self.write(Write(commit_index=last))
        if token > self.now.token:
            self.step(Claim(token), self.now._replace(token=token))
        attempts = tuple(self.attempt(self.now.entries[-count]) for count in (2, 1))
        names = tuple(attempt.operation_id for attempt in attempts)
        self.step(Execute(token, attempts), self.now._replace(executed=(*self.now.executed, *names)))
        outcome = Outcome(RESOURCE, token, [OutcomeRow(each.index, 1, 0, b"", "", 0) for each in attempts])
        row = Entry(last + 1, term, EntryKind.OUTBOX, FIRST_TIME_NS + last + 1, encode(outcome))
        self.write(Write((row,), commit_index=last))

    def attempt(self, entry: Entry) -> Attempt:
        name = f"op-{entry.index}-{entry.term}"
        digest = hashlib.blake2b(entry.data, digest_size=16).digest()
        return Attempt(name, entry.index, entry.term, EFFECT, "", b"{}", digest, 1)

    def take(self) -> None:
        """A snapshot of what is committed, and the log given up behind it or a little before."""
        now = self.now
        if now.commit_index > (now.snapshot.last_index if now.snapshot else 0):
            label = labelled(now.commit_index, now.term_at(now.commit_index))
            self.step(Take(label), now._replace(snapshot=label))
            given_up = max(now.compact_to, label.last_index - self.chance.randint(0, 2))
            self.write(Write(compact_to=given_up))
        else:
            self.follow()

    def receive(self) -> None:
        """A snapshot that is ahead of all that is known to be committed, and the log behind it."""
        label = self.ahead()
        self.step(Receive(label), self.now._replace(snapshot=label))
        self.write(Write(reset=label, commit_index=label.last_index))

    def break_off(self) -> None:
        self.step(BreakOff(self.ahead()))

    def ahead(self) -> Snapshot:
        now = self.now
        taken = now.snapshot.last_index if now.snapshot else 0
        return labelled(max(now.last_index, taken) + self.chance.randint(1, 4), max(now.hard_state.term, 1))

    def remember(self) -> None:
        name = f"n{len(self.now.instances) + 2}"
        met = (*self.now.instances, (name, hashlib.sha256(name.encode()).hexdigest()[:32]))
        self.step(Remember(*met[-1]), self.now._replace(instances=met))

    def seal(self) -> None:
        self.step(Seal())

    def reopen(self) -> None:
        self.step(Close())
        self.step(Open(), self.now._replace(opened=self.now.opened + 1))


_LATER = (
    (_Planner.follow, _Planner.stray, _Planner.vote, _Planner.batch, _Planner.lead, _Planner.take, _Planner.receive,
     _Planner.break_off, _Planner.seal, _Planner.reopen),
    (8, 2, 1, 2, 1, 3, 1, 1, 1, 1),
)  # fmt: skip


def written(state: State, write: Write) -> State:
    """The state behind a write: truncation, reset, hard state, entries."""
    base_index, base_term, entries = state.base_index, state.base_term, state.entries
    commit_index, compact_to = state.commit_index, max(state.compact_to, write.compact_to)
    if write.truncate_from:
        entries = entries[: write.truncate_from - 1 - base_index]
    if write.reset is not None:
        base_index, base_term, entries = write.reset.last_index, write.reset.last_term, ()
        commit_index, compact_to = max(commit_index, base_index), max(compact_to, base_index)
    return state._replace(
        base_index=base_index,
        base_term=base_term,
        entries=(*entries, *write.entries),
        hard_state=write.hard_state or state.hard_state,
        commit_index=max(commit_index, write.commit_index),
        compact_to=compact_to,
    )
