"""What the log says of unknown outcomes, and where it contradicts the clients."""

from __future__ import annotations

import pytest

from fencepost.jepsen.checkers import (
    Contradiction,
    Operation,
    Register,
    Status,
    Verdict,
    check,
    contradictions,
    describe,
    identity_of,
    settle,
)

from .building import cas, fail, info, read, write
from .objects import KINDS
from .recorder import Log, record


def test_done_not_done_and_not_spoken_of() -> None:
    history = [info(write(1, 1, 1, None)), info(write(2, 2, 2, 9)), info(write(3, 3, 3, None)), read(4, 1, 4, 5)]
    log: Log = {(1, "x", 1): 7, (2, "x", 2): None}
    settled = settle(history, log)
    assert [operation.status for operation in settled] == [Status.DONE, Status.FAIL, Status.INFO, Status.OK]
    assert [operation.position for operation in settled] == [7, None, None, None]
    assert [operation.return_ for operation in settled] == [None, None, None, 5]
    assert settled[2:] == history[2:]


def test_what_is_known_stays_as_it_was_but_for_its_position() -> None:
    history = [write(1, 1, 1, 2), fail(write(2, 2, 1, 2)), read(3, 1, 3, 4)]
    assert settle(history, {(1, "x", 1): 3}) == [history[0]._replace(position=3), *history[1:]]


def test_the_log_bounds_the_time_of_what_it_holds() -> None:
    """Over all keys: 6 was answered at 20, so 5 had happened; 3 was invoked at 11, so 5 had not."""
    history = [
        *(write(1, 1, 11, 12, "a"), info(write(2, 2, 1, None, "b")), write(3, 3, 13, 20, "c")),
        *(write(4, 4, 14, 40, "d"), info(write(5, 5, 15, None, "e"))),
    ]
    log: Log = dict(zip(map(identity_of, history), (3, 5, 6, 7, 8), strict=True))
    settled = settle(history, log)
    assert (settled[1].invoke, settled[1].return_) == (11, 20)
    assert (settled[4].invoke, settled[4].return_) == (15, None)


def test_a_dirty_read_is_found() -> None:
    """The value was read before anything of a lower position had been asked for."""
    history = [info(write(1, 1, 1, None)), read(2, 1, 3, 4), write(3, 3, 5, 6, "y")]
    assert check(history, Register()).verdict is Verdict.OK
    assert check(settle(history, {(1, "x", 1): 9, (3, "y", 5): 8}), Register()).verdict is Verdict.ILLEGAL
    assert check(settle(history, {(1, "x", 1): 8, (3, "y", 5): 9}), Register()).verdict is Verdict.OK


def test_a_lost_write_is_found() -> None:
    history = [info(write(1, 1, 1, None)), write(2, 2, 3, 4, "y"), read(3, None, 5, 6)]
    assert check(history, Register()).verdict is Verdict.OK
    assert check(settle(history, {(1, "x", 1): 1, (2, "y", 3): 2}), Register()).verdict is Verdict.ILLEGAL


def test_a_read_of_what_was_never_committed_is_found() -> None:
    history = [info(write(1, 1, 1, None)), read(3, 1, 5, 6)]
    assert check(history, Register()).verdict is Verdict.OK
    assert check(settle(history, {(1, "x", 1): None}), Register()).verdict is Verdict.ILLEGAL


def test_a_settled_cas_may_not_have_held() -> None:
    for first, last in ((1, 2), (3, 3)):
        history = [
            write(1, first, 1, 2),
            info(cas(2, 1, 2, True, 3, None)),
            write(1, 9, 5, 6, "y"),
            read(1, last, 7, 8),
        ]
        log: Log = {(1, "x", 1): 1, (2, "x", 3): 2, (1, "y", 5): 3}
        assert check(settle(history, log), Register()).verdict is Verdict.OK
        assert check(settle([*history[:3], read(1, 5 - last, 7, 8)], log), Register()).verdict is Verdict.ILLEGAL


def test_positions_order_concurrent_operations() -> None:
    history = [info(write(1, 1, 1, None)), write(2, 2, 2, 3), read(3, 1, 4, 5)]
    assert check(history, Register()).verdict is Verdict.OK
    assert check(settle(history, {(1, "x", 1): 1, (2, "x", 2): 2}), Register()).verdict is Verdict.ILLEGAL
    assert check(settle(history, {(1, "x", 1): 2, (2, "x", 2): 1}), Register()).verdict is Verdict.OK


def test_identities_of_ones_own() -> None:
    history = [info(write(1, "id-1", 1, None)), info(write(2, "id-2", 1, None))]
    settled = settle(history, {"id-1": 1, "id-2": None}, lambda operation: str(operation.value))
    assert [operation.status for operation in settled] == [Status.DONE, Status.FAIL]


def test_one_position_for_two_is_no_log() -> None:
    history = [write(1, 1, 1, 2), write(2, 2, 3, 4)]
    log: Log = {(1, "x", 1): 5, (2, "x", 3): 5}
    for ask in (settle, contradictions):
        with pytest.raises(ValueError, match=r"position 5 has process 1 write\(1\) \[1, 2\] and process 2"):
            ask(history, log)


def test_a_process_may_go_on_while_its_unknown_write_is_settled_later() -> None:
    """Its bounds are the log's, and lie within an operation that the same process made later."""
    history = [info(write(1, 1, 1, None)), write(1, 2, 3, 9), write(2, 3, 4, 5, "y"), read(3, 1, 10, 11)]
    settled = settle(history, {(1, "x", 1): 3, (1, "x", 3): 2, (2, "y", 4): 1})
    assert (settled[0].invoke, settled[0].return_) == (4, None)
    assert check(settled, Register()).verdict is Verdict.OK


# -- contradictions -----------------------------------------------------------------------------------


def found_in(history: list[Operation], log: Log) -> list[tuple[Contradiction, Operation, Operation | None]]:
    return [(each.about, each.operation, each.other) for each in contradictions(history, log)]


def test_no_contradiction() -> None:
    history = [write(1, 1, 1, 2), fail(write(2, 2, 1, 2)), info(write(3, 3, 1, None)), read(4, 1, 3, 4)]
    log: Log = {(1, "x", 1): 2, (2, "x", 1): None, (3, "x", 1): 1}
    assert contradictions(history, log) == []
    assert contradictions(history, {}) == []


def test_acknowledged_and_lost() -> None:
    history = [write(1, 1, 1, 2)]
    assert found_in(history, {(1, "x", 1): None}) == [(Contradiction.LOST, history[0], None)]


def test_refused_and_committed() -> None:
    history = [fail(write(1, 1, 1, 2))]
    assert found_in(history, {(1, "x", 1): 4}) == [(Contradiction.DENIED, history[0], None)]


def test_a_log_against_time() -> None:
    history = [write(1, 1, 1, 2), write(2, 2, 3, 4, "y"), write(3, 3, 3, 9)]
    log: Log = {(1, "x", 1): 8, (2, "y", 3): 7, (3, "x", 3): 6}
    (found,) = contradictions(history, log)
    assert (found.about, found.operation, found.other) == (Contradiction.DISORDER, history[0], history[2])
    assert str(found) == (
        f"before the other in time, and after it in the log: {describe(history[0])}; {describe(history[2])}"
    )
    # Concurrent ones stand in any order.
    assert contradictions(history[1:], log) == []


def test_what_the_log_contradicts_keeps_its_own_times() -> None:
    """Between 1 (from 50 on) and 3 (until 20) there is no room."""
    history = [write(1, 1, 50, 60), info(write(2, 2, 5, None, "y")), write(3, 3, 10, 20)]
    log: Log = {(1, "x", 50): 1, (2, "y", 5): 2, (3, "x", 10): 3}
    settled = settle(history, log)
    assert (settled[1].status, settled[1].invoke, settled[1].return_) == (Status.DONE, 5, None)
    assert [found.about for found in contradictions(history, log)] == [Contradiction.DISORDER]
    assert check(settled, Register()).verdict is Verdict.ILLEGAL


@pytest.mark.parametrize("kind", KINDS)
def test_a_recording_and_its_log_agree(kind: str) -> None:
    for seed in range(10):
        recording = record(seed, kind, keys=3, unknown=0.2, failed=0.1)
        assert contradictions(recording.history, recording.committed) == []
        settled = settle(recording.history, recording.committed)
        assert not [operation for operation in settled if operation.status is Status.INFO]
        assert Status.DONE in {operation.status for operation in settled}
