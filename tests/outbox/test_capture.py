"""A snapshot holds exactly one applied index, whatever is applied while it is drawn (scenario S19)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.outbox import capture, snapshot
from fencepost.raft.outbox.codec import Command, Dispatch, DispatchRow, encode
from fencepost.raft.outbox.machine import OutboxMachine
from fencepost.raft.outbox.operation import Operation
from fencepost.raft.outbox.snapshot import CHUNK_BYTES

from ..core.planting import planted
from .script import Script
from .test_walk import STEPS, Walk


@pytest.fixture
def one_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operation is drawn by itself, so that entries can be applied between any two of them."""
    monkeypatch.setattr(snapshot, "OPERATIONS_PER_CHUNK", 1)


def drawing(machine: OutboxMachine) -> int:
    return len(machine._captures.drawing)


@pytest.mark.usefixtures("one_a_chunk")
@pytest.mark.parametrize("seed", range(20))
def test_s19_applies_between_any_two_chunks_change_nothing_of_it(seed: int) -> None:
    walk = Walk(seed)
    open_captures: list[tuple[list[bytes], list[bytes], Iterator[bytes]]] = []
    ended = 0
    for _ in range(STEPS):
        walk.step()
        if walk.random.random() < 0.1:
            open_captures.append((list(walk.machine.snapshot()), [], walk.machine.snapshot()))
        for captured in list(open_captures):
            expected, drawn, chunks = captured
            if walk.random.random() < 0.6:
                chunk = next(chunks, None)
                if chunk is not None:
                    drawn.append(chunk)
                    continue
                assert drawn == expected
                ended += 1
                open_captures.remove(captured)
    assert ended > 5
    for expected, drawn, chunks in open_captures:
        assert [*drawn, *chunks] == expected
    walk.machine._captures.keep(next(iter(walk.machine.operations.values())))
    assert drawing(walk.machine) == 0


def test_s19_restore_and_replay_equal_a_machine_that_never_was_restored() -> None:
    walk = Walk(1)
    for _ in range(STEPS // 2):
        walk.step()
    chunks, applied = walk.machine.snapshot(), len(walk.entries)
    for _ in range(STEPS // 2):
        walk.step()
    restored = OutboxMachine()
    restored.restore(chunks)
    for entry in walk.entries[applied:]:
        restored.apply(entry)
    assert restored.state_hash() == walk.machine.state_hash()


def test_s19_a_capture_outlives_the_state_that_it_is_of() -> None:
    walk = Walk(2)
    for _ in range(STEPS):
        walk.step()
    expected, chunks = list(walk.machine.snapshot()), walk.machine.snapshot()
    prepared = OutboxMachine.prepare(OutboxMachine().snapshot())
    walk.machine.adopt(prepared)
    prepared.discard()
    assert list(chunks) == expected


def test_s19_a_reading_that_a_change_cuts_through_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may change an operation when half of its fields have been read."""
    script = Script()
    script.activate(1)
    operation = script.submit("a")
    script.dispatch((operation, 1))
    expected = list(script.machine.snapshot())
    chunks = script.machine.snapshot()
    whole = snapshot.record_of
    cut = False

    def reading(of: Operation) -> Any:
        nonlocal cut
        before = whole(of)
        if cut:  # The machine itself, keeping the operation as it is before the change.
            return before
        cut = True
        script.succeed(operation, 1, b"later")
        half = len(before) // 2
        return (*before[:half], *whole(of)[half:])

    monkeypatch.setattr(capture, "record_of", reading)
    assert list(chunks) == expected
    assert cut


def test_s19_drawn_on_a_thread_while_the_machine_goes_on() -> None:
    script = Script()
    script.activate(1)
    operations = [script.machine.apply(_submitted(script, f"op{number}")).operation for number in range(3000)]
    expected = list(script.machine.snapshot())
    interval = sys.getswitchinterval()
    drawn: list[bytes] = []
    chunks = script.machine.snapshot()
    thread = threading.Thread(target=lambda: drawn.extend(chunks))
    try:
        sys.setswitchinterval(1e-6)
        thread.start()
        for number, operation in enumerate(operations):
            script.machine.apply(_dispatched(script, operation))
            script.machine.apply(_submitted(script, f"later{number}"))
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert drawn == expected


def _submitted(script: Script, operation_id: str, payload: bytes = b"{}") -> Entry:
    return _entry(script, encode(Command(operation_id, "ledger", "credit", "", payload)))


def _dispatched(script: Script, operation: Operation) -> Entry:
    return _entry(script, encode(Dispatch("ledger", script.token, [DispatchRow(operation.index, 1)])))


def _entry(script: Script, data: bytes) -> Entry:
    """The next one of the script's log; applied without the invariants, which take their time."""
    script.index += 1
    return Entry(script.index, script.term, EntryKind.OUTBOX, script.time_ns, data)


def test_taking_one_reads_no_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """It happens on the node's loop, which 100,000 operations would stop for a tenth of a second."""
    script = Script()
    script.submit("a")

    def reads(operation: Operation) -> Any:
        raise AssertionError("read while it was captured")

    monkeypatch.setattr(capture, "record_of", reads)
    chunks = script.machine.snapshot()
    next(chunks)
    with pytest.raises(AssertionError, match="read while"):
        next(chunks)


def test_nothing_is_copied_for_those_who_have_drawn_or_given_up() -> None:
    script = Script()
    a = script.submit("a")
    drawn, given_up, begun = (script.machine.snapshot() for _ in range(3))
    assert drawing(script.machine) == 3
    list(drawn)
    del given_up
    next(begun)
    script.activate(1)
    script.dispatch((a, 1))
    assert drawing(script.machine) == 1
    del begun
    script.succeed(a, 1)
    assert drawing(script.machine) == 0


def test_operations_younger_than_a_capture_are_not_copied_for_it() -> None:
    script = Script()
    script.submit("a")
    chunks = script.machine.snapshot()
    script.activate(1)
    later = script.submit("b")
    script.dispatch((later, 1))
    (captured,) = script.machine._captures.drawing
    assert not captured.kept
    restored = OutboxMachine()
    restored.restore(chunks)
    assert list(restored.operations) == ["a"]


@pytest.mark.usefixtures("one_a_chunk")
def test_a_copy_is_kept_only_until_it_is_drawn_and_only_of_what_is_not_drawn_yet() -> None:
    """However long a snapshot takes and however much changes meanwhile, what is kept is less than what is left."""
    script = Script()
    script.activate(1)
    operations = [script.submit(f"op{number}") for number in range(20)]
    expected = list(script.machine.snapshot())
    chunks = script.machine.snapshot()
    (captured,) = script.machine._captures.drawing
    drawn = [next(chunks) for _ in range(1 + 10)]  # The head, and half of them.
    script.dispatch(*[(operation, 1) for operation in operations])
    assert list(captured.kept) == [operation.index for operation in operations[10:]]
    for left in range(9, -1, -1):
        drawn.append(next(chunks))
        script.succeed(operations[19 - left], 1)
        assert len(captured.kept) == left
    assert [*drawn, *chunks] == expected


def test_a_chunk_is_bounded_in_bytes() -> None:
    """A chunk is encoded in one go; large payloads must not make that long."""
    script = Script()
    for number in range(8):
        script.machine.apply(_submitted(script, f"op{number}", b"x" * (CHUNK_BYTES // 2)))
    chunks = list(script.machine.snapshot())
    assert len(chunks) == 1 + 4 + 1
    assert max(map(len, chunks)) < 2 * CHUNK_BYTES
    restored = OutboxMachine()
    restored.restore(chunks)
    assert restored.state_hash() == script.machine.state_hash()


def any_walk() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(snapshot, "OPERATIONS_PER_CHUNK", 1)
        for seed in range(20):
            test_s19_applies_between_any_two_chunks_change_nothing_of_it(seed)


def copies() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(snapshot, "OPERATIONS_PER_CHUNK", 1)
        test_a_copy_is_kept_only_until_it_is_drawn_and_only_of_what_is_not_drawn_yet()


def cut_through() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        test_s19_a_reading_that_a_change_cuts_through_is_not_used(monkeypatch)


@pytest.mark.parametrize(
    ("function", "line", "fault", "sees"),
    [
        (OutboxMachine._apply_dispatch, "if captures.drawing:", "if False:", any_walk),
        (OutboxMachine._apply_outcome, "if captures.drawing:", "if False:", any_walk),
        (OutboxMachine._touch, "if self._captures.drawing:", "if False:", any_walk),
        (OutboxMachine._forget, "if self._captures.drawing:", "if False:", any_walk),
        (capture._Capture.records, "record = kept.pop(index, record)", "pass", any_walk),
        (
            capture._Capture.records,
            "record = record_of(operation) if known(index) is operation else None",
            "record = kept.get(operation.index) or record_of(operation)\n        yield record\n        continue",
            cut_through,
        ),
        (capture._Capture.records, "self.drawn = index", "pass", copies),
        (
            OutboxMachine.adopt,
            "any(not capture.ended for capture in self._captures.drawing)",
            "False",
            test_s19_a_capture_outlives_the_state_that_it_is_of,
        ),
        (capture._Capture.records, "kept.pop(index, record)", "kept.get(index, record)", copies),
        (
            capture.Captures.keep,
            "elif capture.drawn < index <= capture.last_index and index not in capture.kept:",
            "elif capture.drawn < index <= capture.last_index:",
            any_walk,
        ),
    ],
    ids=[
        "dispatch",
        "outcome",
        "all others",
        "forgotten",
        "copies not looked at",
        "looks before it reads",
        "not said to be drawn",
        "freed while it is read",
        "kept",
        "copied twice",
    ],
)
def test_a_planted_fault_is_seen(function: Any, line: str, fault: str, sees: Any) -> None:
    with planted(function, line, fault), pytest.raises(AssertionError):
        sees()
