"""S53: failovers under many pending commands make no storm at any endpoint, and the picture of it is the truth."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from fencepost.jepsen.report.bars import Mark, Row, bars
from fencepost.jepsen.report.storm import APART_S, DEAD, FAILING, FAILOVERS, LIVE, SHARES, SLOW, Storm, bounds, storm
from fencepost.raft.effects import dispatcher, queue, tenure
from fencepost.raft.outbox.operation import Operation, OperationState

from ..house.tree import ROOT

PICTURE = ROOT / "docs" / "pictures" / "retry-storm.svg"
SMALL, SMALLER = 600, 300


def of(seen: Storm, endpoint: str) -> list[Operation]:
    return [operation for operation in seen.operations.values() if operation.resource == endpoint]


def too_many(seen: Storm) -> dict[str, list[int]]:
    """By endpoint: what a second got beyond its bound."""
    limits = bounds(seen.pending)
    found = {name: [calls for calls in seen.calls_each_second(name) if calls > limits[name]] for name in SHARES}
    return {name: calls for name, calls in found.items() if calls}


def hurried(seen: Storm) -> list[int]:
    """The busiest seconds after later failovers at the endpoint that fails, where they come near the first one's: then
    the pauses between attempts were forgotten."""
    calls = seen.calls_each_second(FAILING)
    peaks = [max(calls[number * APART_S : number * APART_S + 4]) for number in range(FAILOVERS)]
    return [peak for peak in peaks[1:] if peak > peaks[0] / 4]


def check(seen: Storm) -> None:
    assert len(seen.failovers) == FAILOVERS
    assert too_many(seen) == {}
    # Nobody is kept waiting by the others: the live half is done before the second failover.
    assert {operation.state for operation in of(seen, LIVE)} == {OperationState.SUCCEEDED}
    assert max(arrival.time_ns for arrival in seen.arrivals[LIVE] if arrival.kind == "execute") < APART_S * 10**9
    # Lost leaders and refused connections are charged to nobody.
    assert {(operation.state, operation.failures) for operation in of(seen, DEAD)} == {(OperationState.COMMITTED, 0)}
    assert {operation.failures for operation in of(seen, SLOW)} == {0}
    assert all(operation.failures <= 10 for operation in of(seen, FAILING))
    assert sum(seen.calls_each_second(SLOW)[5:7]) == 4, "it is used as far as it may be"


def test_s53_failovers_under_pending_commands_make_no_storm() -> None:
    seen = storm(seed=2, pending=SMALL)
    check(seen)
    assert hurried(seen) == []


@pytest.mark.endure
def test_s53_failovers_under_ten_thousand_pending_commands_make_no_storm() -> None:
    check(storm())


# -- the check can fail ------------------------------------------------------------------------------


def without_pauses_between_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenure, "CLAIM_RETRY_MAX_S", 0.1)


def without_a_bound_on_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher.Dispatcher, "_concurrency", lambda self: 64)


def without_slow_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is learned from what succeeds: one command a call."""
    monkeypatch.setattr(queue.DispatchQueue, "take", lambda self, limit, take=queue.DispatchQueue.take: take(self, 1))


def without_a_suspension(monkeypatch: pytest.MonkeyPatch) -> None:
    """What refuses connections is asked on and on, a command after the other."""
    monkeypatch.setattr(dispatcher.Dispatcher, "suspend", lambda self: None)


@pytest.mark.endure
@pytest.mark.parametrize(
    ("plant", "endpoint"),
    [
        (without_pauses_between_claims, DEAD),
        (without_a_suspension, DEAD),
        (without_a_bound_on_calls, SLOW),
        (without_slow_start, LIVE),
    ],
)
def test_s53_a_storm_would_be_seen(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], endpoint: str
) -> None:
    plant(monkeypatch)
    assert endpoint in too_many(storm(seed=2, pending=SMALLER))


@pytest.mark.endure
def test_s53_a_new_leader_that_forgets_the_pauses_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it finds waiting when it takes over is due at once."""
    offer = queue.DispatchQueue.offer
    known: set[tuple[int, int]] = set()
    queues: list[queue.DispatchQueue] = []

    def forgetful(self: queue.DispatchQueue, operation: Operation) -> None:
        if all(each is not self for each in queues):
            queues.append(self)  # Kept, so that no other one gets its id.
        if (id(self), operation.index) in known:
            offer(self, operation)
        elif self.startable(operation):
            known.add((id(self), operation.index))
            self._ready.append(operation)

    monkeypatch.setattr(queue.DispatchQueue, "offer", forgetful)
    assert hurried(storm(seed=2, pending=SMALL))


# -- the picture -------------------------------------------------------------------------------------


def values(text: str) -> list[int]:
    """Of every bar, as it is told in the picture."""
    return [int(value) for value in re.findall(r"<rect[^>]*><title>(\d+)</title>", text)]


def test_bars_say_what_they_are_given() -> None:
    text = bars("A & B", [Row("a <row>", [0, 3, 7], 8)], [Mark(1.5, "killed")], unit="seconds")
    root = ElementTree.fromstring(text)
    assert values(text) == [3, 7]
    words = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"A & B", "a <row>", "8", "seconds"} <= set(words)
    heights = [float(each.get("height", "0")) for each in root.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert heights[0] / heights[1] == pytest.approx(3 / 7, rel=0.01)


def test_the_picture_on_the_page_is_of_these_bounds_and_keeps_to_them() -> None:
    """`python -m fencepost.jepsen.report storm --out docs/pictures/retry-storm.svg` makes it anew."""
    text = PICTURE.read_text(encoding="utf-8")
    limits = bounds(10_000)
    rows = [text.index(f">{name}: ") for name in SHARES]
    for name, begin, end in zip(SHARES, rows, [*rows[1:], len(text)], strict=True):
        part = text[begin:end]
        assert f">{limits[name]}</text>" in part
        assert 0 < max(values(part)) <= limits[name]
    assert len(re.findall(r"is (?:killed|frozen)</title>", text)) == FAILOVERS
