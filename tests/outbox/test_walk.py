"""Random walks: leaders come and go, entries arrive stale, twice and in any order.

Every apply is followed by all invariants. The seed is in the test's name; a failing one is replayed
by running that test again.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.token import FencingToken
from fencepost.raft.outbox.codec import (
    Activation,
    Cancel,
    Command,
    Discard,
    Dispatch,
    DispatchRow,
    Election,
    Expiry,
    OutboxEntry,
    Outcome,
    OutcomeRow,
    Redrive,
    Resolve,
    Retention,
    StageSeconds,
    Tick,
    encode,
)
from fencepost.raft.outbox.invariants import check, check_step, view
from fencepost.raft.outbox.machine import OutboxMachine
from fencepost.raft.outbox.operation import OperationState
from fencepost.raft.outbox.transitions import ARROWS, Verdict

SEEDS = range(30)
STEPS = 250
RESOURCES = ["ledger", "mail", "bank"]
GUARANTEES = {"ledger": "fenced", "mail": "naked", "bank": "keyed"}


SELDOM = (OperationState.DISPATCHED, OperationState.RETRY_WAIT, OperationState.IN_DOUBT, OperationState.DEAD)


class Walk:
    """A log that no honest cluster would write in this density, but every part of which it might."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.machine = OutboxMachine()
        self.entries: list[Entry] = []
        self.index = 0
        self.term = 1
        self.time_ns = 1
        self.late: list[OutboxEntry] = []
        """Entries that leaders made and that may still reach the log, in any term, any number of times."""

    def step(self, *, checked: bool = True) -> None:
        chance = self.random
        if chance.random() < 0.05:
            self.term += chance.randint(1, 3)
        if self.late and chance.random() < 0.3:
            entry = chance.choice(self.late)
        else:
            entry = self.made()
            self.late.append(entry)
        self.index += chance.choice([1, 1, 1, 2])
        self.time_ns += chance.choice([0, 1, 1000])
        logged = Entry(self.index, self.term, EntryKind.OUTBOX, self.time_ns, encode(entry))
        before = view(self.machine) if checked else None
        self.machine.apply(logged)
        self.entries.append(logged)
        if before is not None:
            check(self.machine)
            check_step(before, view(self.machine))

    def made(self) -> OutboxEntry:
        chance = self.random
        resource = chance.choice(RESOURCES)
        token = FencingToken(1, max(1, self.term - chance.choice([0, 0, 0, 0, 1, 2])))
        kind = chance.random()
        if kind < 0.25:
            number = chance.randint(1, 60)
            lane = f"lane{number % 4}" if number % 2 else ""
            times = (self.time_ns + chance.randint(0, 3000), 0) if number % 7 == 0 else (0, 0)
            times = (0, self.time_ns + chance.randint(1, 9000)) if number % 4 == 0 else times
            payload = b"%d" % chance.choice([1, 1, 1, 2])
            return Command(f"op{number}", RESOURCES[number % 3], "credit", lane, payload, *times)
        if kind < 0.4:
            return self.wish(resource, token)
        if kind < 0.55:
            return Dispatch(resource, token, [DispatchRow(*self.target(resource)) for _ in range(chance.randint(0, 6))])
        if kind < 0.9:
            rows = [self.outcome_row(*self.target(resource, ahead=0)) for _ in range(chance.randint(0, 6))]
            return Outcome(resource, token, rows)
        if kind < 0.97:
            return Activation(resource, token, f"n{token.term}", GUARANTEES[resource])
        return Election(f"n{self.term}", token, [StageSeconds("elect", 0.25)])

    def wish(self, resource: str, token: FencingToken) -> OutboxEntry:
        chance = self.random
        names = list(self.machine.operations) or ["nobody"]
        seldom = [name for name, each in self.machine.operations.items() if each.state in SELDOM]
        name = chance.choice(seldom if seldom and chance.random() < 0.7 else names)
        kind = chance.random()
        if kind < 0.35:
            return Cancel(name, token, chance.random() < 0.2, "no longer wanted")
        if kind < 0.55:
            return Redrive(name, "")
        if kind < 0.6:
            return Discard(name, "of no use")
        if kind < 0.85:
            known = self.machine.operations.get(name)
            asked = chance.random() < 0.5
            attempt = known.attempt if known is not None and asked else 0
            result = b"done"
            return Resolve(name, chance.randint(0, 2), attempt, token if asked else None, result, "looked")
        if kind < 0.95:
            return Expiry(resource, token, list(self.machine.pending.get(resource, {})))
        if kind < 0.97:
            return Tick()
        return Retention(*chance.choice([(0, 0), (40_000, 0), (90_000, 20)]))

    def target(self, resource: str, ahead: int = 1) -> tuple[int, int]:
        chance = self.random
        if not self.machine.by_index or chance.random() < 0.05:
            return chance.randint(1, 50), 1
        operations = list(self.machine.by_index.values())
        mine = [operation for operation in operations if operation.resource == resource]
        operation = chance.choice(mine if mine and chance.random() < 0.8 else operations)
        return operation.index, max(0, operation.attempt + ahead + chance.choice([0, 0, 0, 0, -1, 1]))

    def outcome_row(self, index: int, attempt: int) -> OutcomeRow:
        verdict = self.random.choice([*Verdict, Verdict.SUCCEEDED, *[Verdict.RETRY] * 4])
        if verdict is Verdict.SUCCEEDED:
            return OutcomeRow(index, attempt, verdict, b"done", "", 0)
        waits = verdict in (Verdict.RETRY, Verdict.NOT_ATTEMPTED) and self.random.random() < 0.5
        return OutcomeRow(index, attempt, verdict, b"", "why", self.time_ns + 50 if waits else 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_invariants_hold_after_every_entry(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()


def test_the_walks_reach_every_state_and_every_arrow() -> None:
    """Otherwise the walks prove less than they seem to."""
    states: set[str] = set()
    arrows: set[tuple[str, str]] = set()
    for seed in range(120):
        walk = Walk(seed)
        for number in range(STEPS):
            walk.step(checked=False)
            if number % 10:
                continue  # Often enough to see them before they are forgotten.
            for operation in walk.machine.operations.values():
                states.add(operation.state)
                rows = [row.state for row in operation.history]
                arrows.update(pairwise(rows))
    assert states == set(OperationState)
    assert arrows == ARROWS


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_replicas_that_apply_the_same_log_have_the_same_state(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    replica = OutboxMachine()
    for entry in walk.entries:
        replica.apply(entry)
    assert replica.state_hash() == walk.machine.state_hash()


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_a_snapshot_at_any_index_continues_to_the_same_state(seed: int) -> None:
    """S33: dedupe, counts, tokens and time are part of it; nothing else is needed to go on."""
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    cut = random.Random(seed).randrange(STEPS)
    first = OutboxMachine()
    for entry in walk.entries[:cut]:
        first.apply(entry)
    restored = OutboxMachine()
    restored.restore(first.snapshot())
    check(restored)
    assert view(restored) == view(first)
    for entry in walk.entries[cut:]:
        restored.apply(entry)
    check(restored)
    assert view(restored) == view(walk.machine)
    assert restored.counts == walk.machine.counts
    assert restored.elections == walk.machine.elections
    assert restored.activations == walk.machine.activations
    assert restored.state_hash() == walk.machine.state_hash()
