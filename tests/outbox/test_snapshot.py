"""Snapshots: complete, unchanged by what comes later, and never believed when damaged."""

from __future__ import annotations

import pytest

from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.core.errors import StorageCorrupt, StorageFormatUnknown
from fencepost.raft.outbox.codec import Command, encode
from fencepost.raft.outbox.invariants import view
from fencepost.raft.outbox.machine import OutboxMachine
from fencepost.raft.outbox.snapshot import OPERATIONS_PER_CHUNK
from fencepost.raft.outbox.transitions import Verdict

from .script import Script


@pytest.fixture
def script() -> Script:
    script = Script()
    script.activate(3)
    a, b, c = (script.submit(name, lane="k") for name in "abc")
    script.dispatch((a, 1), (b, 1))
    script.succeed(a, 1, b'{"rows":1}')
    script.outcome(b, 1, Verdict.RETRY, error="503", next_try_ns=99)
    script.dispatch((c, 1))
    return script


def test_restore_of_nothing() -> None:
    machine = OutboxMachine()
    machine.restore(OutboxMachine().snapshot())
    assert machine.state_hash() == OutboxMachine().state_hash()


def test_dedupe_survives(script: Script) -> None:
    restored = OutboxMachine()
    restored.restore(script.machine.snapshot())
    again = encode(Command("a", "ledger", "credit", "k", b"{}"))
    result = restored.apply(Entry(script.index + 1, 9, EntryKind.OUTBOX, script.time_ns, again))
    assert (result.replayed, result.operation.result) == (True, b'{"rows":1}')


def test_adopting_exchanges_the_states_and_the_old_one_can_be_freed(script: Script) -> None:
    """Freeing takes as long as the state is large, and need not hold the loop (S40)."""
    old, new = view(script.machine), OutboxMachine()
    prepared = new.prepare(new.snapshot())
    script.machine.adopt(prepared)
    assert view(script.machine) == view(new)
    assert view(prepared) == old
    kept = script.machine.state_hash()
    prepared.discard()
    assert not prepared.operations
    assert not prepared.by_index
    assert script.machine.state_hash() == kept


def test_what_was_captured_does_not_change_while_it_is_drawn(script: Script) -> None:
    """Chunks are drawn off the loop, while the loop goes on applying."""
    before, chunks = view(script.machine), script.machine.snapshot()
    operation = script.machine.operations["c"]
    script.succeed(operation, 1)
    script.submit("d")
    restored = OutboxMachine()
    restored.restore(chunks)
    assert view(restored) == before


def test_every_field_makes_a_difference_to_the_hash(script: Script) -> None:
    seen = {script.machine.state_hash()}
    operation = script.machine.operations["b"]
    changes = {
        "operation_id": "x", "resource": "x", "effect": "x", "lane": "x", "payload": b"x", "digest": b"x",
        "index": 77, "term": 77, "submitted_ns": 77, "state": "dead", "attempt": 77, "failures": 77, "lost": 77,
        "token": None, "result": b"x", "error": "x", "next_try_ns": 77, "finished_ns": 77, "history": [],
        "place": 77, "not_before_ns": 77, "deadline_ns": 77, "cancel_ns": 77, "unsure": True,
    }  # fmt: skip
    assert set(changes) == set(operation.__slots__)
    for name, value in changes.items():
        kept = getattr(operation, name)
        setattr(operation, name, value)
        seen.add(script.machine.state_hash())
        setattr(operation, name, kept)
    assert len(seen) == 1 + len(changes)


def test_many_operations_take_many_chunks(script: Script) -> None:
    for number in range(2 * OPERATIONS_PER_CHUNK):
        entry = encode(Command(f"op{number}", "ledger", "credit", "", b"{}"))
        script.index += 1
        script.machine.apply(Entry(script.index, 3, EntryKind.OUTBOX, script.time_ns, entry))
    chunks = list(script.machine.snapshot())
    assert len(chunks) == 1 + 3 + 1
    restored = OutboxMachine()
    restored.restore(chunks)
    assert restored.state_hash() == script.machine.state_hash()


def test_any_flipped_bit_is_found_and_the_old_state_stays(script: Script) -> None:
    chunks = list(script.machine.snapshot())
    machine = OutboxMachine()
    machine.restore(chunks)
    before = machine.state_hash()
    for number, chunk in enumerate(chunks):
        for position in range(0, len(chunk), 7):
            damaged = bytearray(chunk)
            damaged[position] ^= 0x10
            with pytest.raises((StorageCorrupt, StorageFormatUnknown)):
                machine.restore([*chunks[:number], bytes(damaged), *chunks[number + 1 :]])
    assert machine.state_hash() == before


@pytest.mark.parametrize(
    "mangle",
    [
        lambda chunks: [],
        lambda chunks: chunks[:-1],
        lambda chunks: chunks[1:],
        lambda chunks: [chunks[0], chunks[-1]],
        lambda chunks: [*chunks[:2], *chunks[1:]],
        lambda chunks: [*chunks, chunks[1]],
        lambda chunks: [chunks[0], b"?", *chunks[1:]],
    ],
    ids=["nothing", "no tail", "no head", "no operations", "operations twice", "more after the tail", "other kind"],
)
def test_missing_or_additional_chunks_are_found(script: Script, mangle: object) -> None:
    assert callable(mangle)
    with pytest.raises(StorageCorrupt):
        OutboxMachine().restore(mangle(list(script.machine.snapshot())))


def test_a_newer_format_is_refused_by_its_name(script: Script) -> None:
    head, *rest = script.machine.snapshot()
    with pytest.raises(StorageFormatUnknown):
        OutboxMachine().restore([head[:1] + b"\x04" + head[2:], *rest])
