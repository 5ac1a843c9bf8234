"""S33: what is forgotten, when, and what an id that was forgotten gets for an answer."""

from __future__ import annotations

from uuid import UUID

import pytest

from fencepost.raft.outbox import bookkeeping
from fencepost.raft.outbox.codec import Command, Redrive, Retention, Tick
from fencepost.raft.outbox.invariants import check
from fencepost.raft.outbox.machine import Expired, OutboxMachine, SubmitResult
from fencepost.raft.outbox.operation_id import FUTURE_NS_MAX, time_in_id_ns
from fencepost.raft.outbox.retention import COUNT_AGE_NS, FORGOTTEN_AT_ONCE
from fencepost.raft.outbox.transitions import Verdict

from .script import RESOURCE, SECOND_NS, Script

HOUR_NS = 3600 * SECOND_NS
MILLISECOND_NS = 1_000_000


def id_made_at(time_ns: int, number: int = 0) -> str:
    """A UUIDv7."""
    return str(UUID(int=(time_ns // MILLISECOND_NS) << 80 | 7 << 76 | 2 << 62 | number))


@pytest.fixture
def script() -> Script:
    script = Script()
    script.time_ns = 1_000_000 * SECOND_NS
    script.activate(1)
    script.write(Retention(HOUR_NS, 0))
    return script


def done(script: Script, name: str) -> None:
    script.succeed(script.submit(name), 1)


def test_the_time_in_an_id() -> None:
    assert time_in_id_ns(id_made_at(1_234_567 * MILLISECOND_NS)) == 1_234_567 * MILLISECOND_NS
    assert time_in_id_ns("order-1001") == 0
    assert time_in_id_ns("0193a2b4-c5d6-4e1f-8a2b-3c4d5e6f7a8b") == 0
    assert time_in_id_ns("0193a2b4-c5dx-7e1f-8a2b-3c4d5e6f7a8b") == 0


def test_what_has_ended_is_forgotten_when_its_window_has_passed_and_not_before(script: Script) -> None:
    done(script, "a")
    ended_ns = script.time_ns
    script.time_ns = ended_ns + HOUR_NS - 2
    script.write(Tick())
    assert "a" in script.machine.operations
    assert script.machine.next_forgetting_ns() == ended_ns + HOUR_NS
    script.write(Tick())
    assert "a" not in script.machine.operations
    assert script.machine.forgotten == 1
    assert script.machine.next_forgetting_ns() == 0


def test_what_has_not_ended_and_dead_letters_are_never_forgotten(script: Script) -> None:
    script.submit("open")
    waits, doubtful, dead = (script.submit(name) for name in ("waits", "doubtful", "dead"))
    script.dispatch((waits, 1), (doubtful, 1), (dead, 1))
    script.outcome(waits, 1, Verdict.RETRY, error="503", next_try_ns=99)
    script.outcome(doubtful, 1, Verdict.IN_DOUBT, error="no answer")
    script.outcome(dead, 1, Verdict.DEAD, error="503")
    script.write(Retention(1, 1))
    for _ in range(3):
        script.time_ns += 1000 * HOUR_NS
        script.write(Tick())
    assert list(script.machine.operations) == ["open", "waits", "doubtful", "dead"]
    script.write(Redrive("dead", ""))
    script.succeed(dead, 2)
    script.time_ns += HOUR_NS
    script.write(Tick())
    assert "dead" not in script.machine.operations


def test_no_more_than_so_many_are_remembered_once_they_are_old_enough(script: Script) -> None:
    script.write(Retention(0, 3))
    for number in range(5):
        done(script, f"op{number}")
    assert len(script.machine.operations) == 5
    script.time_ns += COUNT_AGE_NS
    script.write(Tick())
    assert list(script.machine.operations) == ["op2", "op3", "op4"]


def test_the_watermark_stands_before_everything_that_is_remembered(script: Script) -> None:
    machine = script.machine
    done(script, "a")
    kept = script.submit("kept")
    done(script, "b")
    assert machine.remembers_from() == 0, "nothing is forgotten yet"
    script.time_ns += HOUR_NS
    script.write(Tick())
    assert (machine.forgotten, machine.remembers_from()) == (2, kept.index)
    script.succeed(kept, 1)
    script.time_ns += HOUR_NS
    script.write(Tick())
    assert machine.remembers_from() == machine.last_applied + 1
    last = script.submit("last")
    assert machine.remembers_from() == last.index
    again = OutboxMachine()
    again.restore(machine.snapshot())
    assert again.remembers_from() == last.index
    script.write(Retention(0, 0))
    assert machine.remembers_from() == 0, "whoever wants everything remembered wants the rows kept too"


def test_without_settings_nothing_is_forgotten(script: Script) -> None:
    script.write(Retention())
    done(script, "a")
    script.time_ns += 100_000 * HOUR_NS
    script.write(Tick())
    assert "a" in script.machine.operations
    assert script.machine.next_forgetting_ns() == 0


def test_an_id_that_bears_its_time_and_was_forgotten_is_refused_and_a_younger_one_is_not(script: Script) -> None:
    old, other = id_made_at(script.time_ns), id_made_at(script.time_ns - HOUR_NS, 7)
    done(script, old)
    younger = id_made_at(script.time_ns + SECOND_NS, 3)
    script.time_ns += 2 * HOUR_NS
    script.write(Tick())
    for expired in (old, other):
        assert script.write(Command(expired, RESOURCE, "credit", "", b"{}")) == Expired(expired)
        assert expired not in script.machine.operations
    result = script.write(Command(younger, RESOURCE, "credit", "", b"{}"))
    assert isinstance(result, SubmitResult)


def test_a_clock_that_is_far_ahead_makes_the_ids_of_nobody_else_old(script: Script) -> None:
    done(script, id_made_at(script.time_ns + 2 * FUTURE_NS_MAX))
    script.time_ns += 2 * HOUR_NS
    script.write(Tick())
    assert script.machine.forgotten == 1
    result = script.write(Command(id_made_at(script.time_ns), RESOURCE, "credit", "", b"{}"))
    assert isinstance(result, SubmitResult)


def test_one_entry_forgets_a_bounded_number_and_all_that_ended_together(script: Script) -> None:
    for number in range(FORGOTTEN_AT_ONCE + 40):
        done(script, f"op{number}")
    together = [script.submit(f"t{number}") for number in range(5)]
    script.dispatch(*[(each, 1) for each in together])
    script.time_ns += 2 * HOUR_NS
    script.write(Tick())
    assert script.machine.forgotten == FORGOTTEN_AT_ONCE
    script.write(Tick())
    assert script.machine.forgotten == FORGOTTEN_AT_ONCE + 40


def test_a_machine_from_a_snapshot_forgets_with_the_same_entry(script: Script) -> None:
    for number in range(10):
        done(script, id_made_at(script.time_ns, number))
        script.time_ns += 10 * SECOND_NS
    script.time_ns += HOUR_NS - 50 * SECOND_NS
    script.write(Tick())
    assert 0 < script.machine.forgotten < 10
    restored = OutboxMachine()
    restored.restore(script.machine.snapshot())
    check(restored)
    script.time_ns += 20 * SECOND_NS
    script.write(Tick())
    restored.apply(script.entries[-1])
    assert restored.state_hash() == script.machine.state_hash()
    assert restored.state_digest() == script.machine.state_digest()
    assert restored.forgotten == script.machine.forgotten


def test_s19_what_is_forgotten_while_a_snapshot_is_drawn_is_in_it_and_what_was_before_is_not(script: Script) -> None:
    done(script, "gone")
    script.time_ns += HOUR_NS
    script.write(Tick())
    done(script, "a")
    done(script, "b")
    expected, chunks = list(script.machine.snapshot()), script.machine.snapshot()
    script.time_ns += 2 * HOUR_NS
    script.write(Tick())
    assert not script.machine.operations
    assert list(chunks) == expected
    restored = OutboxMachine()
    restored.restore(expected)
    assert list(restored.operations) == ["a", "b"]


def test_the_list_of_all_is_swept_now_and_then(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookkeeping, "SWEEP_MIN", 8)
    for number in range(20):
        done(script, f"op{number}")
    expected, chunks = list(script.machine.snapshot()), script.machine.snapshot()
    script.time_ns += 2 * HOUR_NS
    script.write(Tick())
    assert script.machine.in_order == []
    assert list(chunks) == expected


def test_the_watermark_stands_before_the_first_that_has_not_ended(script: Script) -> None:
    assert script.machine.done_watermark == script.index
    first = script.submit("a")
    done(script, "b")
    assert script.machine.done_watermark == first.index - 1
    script.succeed(first, 1)
    assert script.machine.done_watermark == script.index


@pytest.mark.parametrize(("window_ns", "refused"), [(2 * FUTURE_NS_MAX, False), (FUTURE_NS_MAX // 2, True)])
def test_forgotten_soon_an_id_of_a_clock_that_is_ahead_makes_the_new_ids_of_others_old(
    script: Script, window_ns: int, refused: bool
) -> None:
    """So a shorter time than twice of what a clock may be ahead cannot be set (``outbox.retention``)."""
    script.write(Retention(window_ns))
    ahead = script.submit(id_made_at(script.time_ns + FUTURE_NS_MAX - SECOND_NS))
    script.succeed(ahead, 1)
    script.time_ns += window_ns + SECOND_NS
    script.write(Tick())
    assert script.machine.forgotten == 1
    result = script.write(Command(id_made_at(script.time_ns), RESOURCE, "credit", "", b"{}"))
    assert (type(result) is Expired) is refused
