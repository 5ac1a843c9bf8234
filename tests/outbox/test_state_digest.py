"""The digest of the state: equal where states are, other where anything differs, and kept up with every entry."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from fencepost.raft.core.entry import Entry
from fencepost.raft.core.errors import StorageCorrupt
from fencepost.raft.outbox.codec import Redrive, Retention, Tick, decode, encode
from fencepost.raft.outbox.invariants import check
from fencepost.raft.outbox.machine import HISTORY_ROWS_MAX, OutboxMachine
from fencepost.raft.outbox.transitions import Verdict

from ..core.planting import planted
from .script import Script
from .test_walk import STEPS, Walk


def walked(seed: int) -> Walk:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()  # With all invariants; that the sum is what adding up gives is one of them.
    return walk


def replayed(entries: list[Entry]) -> OutboxMachine:
    machine = OutboxMachine()
    for entry in entries:
        machine.apply(entry)
    return machine


@pytest.mark.parametrize("seed", range(5))
def test_the_same_log_gives_the_same_digest_also_through_a_snapshot(seed: int) -> None:
    walk = walked(seed)
    digest = walk.machine.state_digest()
    assert replayed(walk.entries).state_digest() == digest
    middle = replayed(walk.entries[:100])
    restored = OutboxMachine()
    restored.restore(middle.snapshot())
    assert restored.state_digest() == middle.state_digest() != digest
    for entry in walk.entries[100:]:
        restored.apply(entry)
    assert restored.state_digest() == digest


def test_an_entry_that_is_applied_differently_once_is_seen_at_every_later_index() -> None:
    """Every entry that changes anything is left out once, but for its index and its time."""
    walk = walked(3)
    hashes = []
    machine = OutboxMachine()
    for entry in walk.entries:
        machine.apply(entry)
        hashes.append(machine.state_hash())
    end, seen = walk.machine.state_digest(), 0
    for number in range(0, len(walk.entries), 2):
        other = replayed(walk.entries[:number])
        try:
            for entry in walk.entries[number + 1 :]:
                other.apply(entry)
        except KeyError:
            continue
        same = other.state_hash() == hashes[-1]
        assert (other.state_digest() == end) is same
        seen += not same
    assert seen > 15


def test_what_two_operations_have_exchanged_does_not_cancel_out() -> None:
    """The sum of checksums alone would not see it: they are linear."""

    def sums(first: bytes, second: bytes) -> int:
        script = Script()
        script.activate(1)
        a, b = script.submit("a"), script.submit("b")
        script.dispatch((a, 1), (b, 1))
        script.succeed(a, 1, first)
        script.succeed(b, 1, second)
        return script.machine.terms

    assert sums(b'{"rows":1}', b'{"rows":2}') != sums(b'{"rows":2}', b'{"rows":1}')


def test_rows_that_a_long_history_loses_are_taken_away() -> None:
    script = Script()
    script.activate(1)
    operation = script.submit("a")
    for attempt in range(1, HISTORY_ROWS_MAX):
        script.dispatch((operation, attempt))
        script.outcome(operation, attempt, Verdict.RETRY, error="503", next_try_ns=99)
    assert len(operation.history) == HISTORY_ROWS_MAX
    check(script.machine)
    restored = OutboxMachine()
    restored.restore(script.machine.snapshot())
    assert restored.state_digest() == script.machine.state_digest()


@pytest.mark.parametrize("version", [1, 2])
def test_a_snapshot_of_an_earlier_version_is_read_and_its_sum_is_right(version: int) -> None:
    """Of a life in which nothing happened that those versions did not know."""
    script = Script()
    script.activate(1)
    first, second = script.submit("a", lane="k"), script.submit("b")
    script.dispatch((first, 1), (second, 1))
    script.outcome(first, 1, Verdict.RETRY, error="503", next_try_ns=99)
    script.outcome(second, 1, Verdict.DEAD, error="gone")
    restored = OutboxMachine()
    restored.restore(as_written_by(version, list(script.machine.snapshot())))
    check(restored)
    assert restored.state_hash() == script.machine.state_hash()
    assert restored.state_digest() == script.machine.state_digest()


def as_written_by(version: int, chunks: list[bytes]) -> list[bytes]:
    head = msgspec.msgpack.decode(chunks[0][2:])[: 5 + version]
    records = [record[:19] for record in msgspec.msgpack.decode(chunks[1][1:])]
    return sealed([b"H" + bytes((version,)) + msgspec.msgpack.encode(head), b"O" + msgspec.msgpack.encode(records)])


def sealed(chunks: list[bytes]) -> list[bytes]:
    """With a tail that fits them."""
    hasher = hashlib.blake2b(digest_size=16)
    for chunk in chunks:
        hasher.update(chunk)
    return [*chunks, b"T" + hasher.digest()]


@pytest.mark.parametrize("terms", [[], [-1], [12345]], ids=["missing", "unknown", "other"])
def test_a_head_of_this_version_with_another_sum_is_refused(terms: list[int]) -> None:
    walk = walked(1)
    head, *rest = list(walk.machine.snapshot())[:-1]
    fields = [*msgspec.msgpack.decode(head[2:])[:6], *terms]
    before = OutboxMachine()
    digest = before.state_digest()
    with pytest.raises(StorageCorrupt):
        before.restore(sealed([head[:2] + msgspec.msgpack.encode(fields), *rest]))
    assert before.state_digest() == digest


def test_s19_a_capture_that_missed_a_change_is_refused_by_whoever_reads_it() -> None:
    """Every checksum of it is right: only the machine that it was captured of knows better."""
    script = Script()
    script.activate(1)
    operation = script.submit("a")
    with planted(OutboxMachine._apply_dispatch, "if captures.drawing:", "if False:"):
        chunks = script.machine.snapshot()
        script.dispatch((operation, 1))
        written = list(chunks)
    with pytest.raises(StorageCorrupt, match="does not add up"):
        OutboxMachine().restore(written)


def test_entries_are_not_changed_by_being_decoded() -> None:
    """The digest is compared between nodes that have the entries from memory, from the wire and from the disk."""
    for entry in walked(2).entries:
        assert encode(decode(entry.data)) == entry.data


def any_life() -> None:
    for seed in range(6):
        walked(seed)
    script = Script()
    for term in range(1, 130):  # More activations than are remembered.
        script.activate(term)
    operation = script.submit("a")
    for attempt in (1, 2):
        script.dispatch((operation, attempt))
        script.outcome(operation, attempt, Verdict.RETRY, error="503")
    script.dispatch((operation, 3))
    script.outcome(operation, 3, Verdict.DEAD, error="503")
    script.write(Redrive("a", ""))
    script.write(Retention(100, 0))
    script.write(Retention(10, 0))
    script.succeed(operation, 2)
    script.time_ns += 1000
    script.write(Tick())
    assert not script.machine.operations
    check(script.machine)


@pytest.mark.parametrize(
    ("function", "line", "fault"),
    [
        (
            OutboxMachine._apply_command,
            "self.terms = sum_of(self.terms + submission_term(operation) + course_term(operation))",
            "pass",
        ),
        (OutboxMachine._apply_dispatch, "self.terms = sum_of(terms)", "pass"),
        (OutboxMachine._apply_outcome, "self.terms = sum_of(self.terms + terms)", "self.terms = sum_of(terms)"),
        (OutboxMachine._fail, "self._touch(operation)", "pass"),
        (OutboxMachine._apply_cancel, "self._settle(operation)", "pass"),
        (OutboxMachine._apply_redrive, "self._touch(operation)", "pass"),
        (OutboxMachine._forget, "self.terms = sum_of(self.terms - operation_terms(operation))", "pass"),
        (OutboxMachine._apply_retention, "self.terms -= record_term(was) if any(was) else 0", "pass"),
        (OutboxMachine._apply_activation, "self.terms -= record_term(active)", "pass"),
        (OutboxMachine._apply_activation, "self._touch(operation)", "pass"),
        (OutboxMachine._apply_election, "self.terms -= record_term(self.elections.pop())", "self.elections.pop()"),
        (OutboxMachine._remember, "terms -= record_term(records[0])", "pass"),
        (
            OutboxMachine._move,
            "self.terms = sum_of(self.terms + kept_row_term(operation, operation.history[-1]))",
            "pass",
        ),
    ],
)
def test_a_sum_that_is_not_kept_up_is_seen(function: Any, line: str, fault: str) -> None:
    with planted(function, line, fault), pytest.raises(AssertionError):
        any_life()
