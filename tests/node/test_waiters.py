"""Waiters: each key hears exactly one thing, and the right one (scenarios S31, S44)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from fencepost.raft.core.entry import Entry, EntryKind
from fencepost.raft.node.waiters import Waiters


class Sink:
    """Collects by key what became of it; a second word about one key is an error."""

    def __init__(self) -> None:
        self.heard: dict[Any, str] = {}

    def _hear(self, keys: Sequence[Any], what: str) -> None:
        for key in keys:
            assert key not in self.heard, f"{key} heard {self.heard[key]}, then {what}"
            self.heard[key] = what

    def accepted(self, keys: Sequence[Any], first_index: int, term: int) -> None:
        pass

    def refused(self, keys: Sequence[Any], code: str, leader: str) -> None:
        self._hear(keys, code)

    def applied(self, keys: Sequence[Any], entries: Sequence[Entry], results: Sequence[Any]) -> None:
        for key, entry, result in zip(keys, entries, results, strict=True):
            assert result == entry.index, "the result of another entry"
            self._hear([key], f"applied {entry.index}:{entry.term}")

    def lost(self, keys: Sequence[Any]) -> None:
        self._hear(keys, "lost")

    def unknown(self, keys: Sequence[Any]) -> None:
        self._hear(keys, "unknown")


def apply(waiters: Waiters, first: int, *terms: int) -> None:
    """Apply entries from ``first`` on, of these terms."""
    entries = [Entry(index, term, EntryKind.OUTBOX, 0, b"") for index, term in enumerate(terms, first)]
    waiters.applied(entries, [entry.index for entry in entries])


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def waiters() -> Waiters:
    return Waiters()


def test_each_key_hears_of_its_own_entry(waiters: Waiters, sink: Sink) -> None:
    waiters.add(sink, ["a", "b"], 5, 2)
    waiters.add(sink, ["c"], 7, 2)
    apply(waiters, 4, 1, 2, 2, 2)
    assert sink.heard == {"a": "applied 5:2", "b": "applied 6:2", "c": "applied 7:2"}
    assert len(waiters) == 0


def test_a_batch_may_be_applied_in_parts(waiters: Waiters, sink: Sink) -> None:
    waiters.add(sink, ["a", "b", "c"], 5, 2)
    apply(waiters, 5, 2)
    assert sink.heard == {"a": "applied 5:2"}
    assert len(waiters) == 2
    apply(waiters, 6, 2, 2)
    assert sink.heard == {"a": "applied 5:2", "b": "applied 6:2", "c": "applied 7:2"}


def test_s44_another_term_at_the_index_means_lost(waiters: Waiters, sink: Sink) -> None:
    waiters.add(sink, ["a", "b", "c"], 5, 2)
    waiters.leadership_lost(100)
    apply(waiters, 5, 2, 3)
    assert sink.heard == {"a": "applied 5:2", "b": "lost"}
    apply(waiters, 7, 3)
    assert sink.heard == {"a": "applied 5:2", "b": "lost", "c": "lost"}
    waiters.expire(1000)
    assert len(waiters) == 0


def test_s44_what_nothing_decides_is_unknown_at_its_time_and_not_before(waiters: Waiters, sink: Sink) -> None:
    waiters.add(sink, ["a"], 5, 2)
    waiters.expire(10**18)
    assert not sink.heard, "a leader's own proposals have no time limit here"
    waiters.leadership_lost(100)
    waiters.leadership_lost(10_000)  # A later role change must not put it off.
    waiters.expire(99)
    assert not sink.heard
    waiters.expire(100)
    assert sink.heard == {"a": "unknown"}
    apply(waiters, 5, 2)
    assert sink.heard == {"a": "unknown"}


def test_s31_overtaken_on_this_node_is_not_lost(waiters: Waiters, sink: Sink) -> None:
    """n1 proposed 5..7 in term 2, lost them to another leader's log, and leads again in term 4 with
    its own entry at 6. Another node that still holds 5..7 of term 2 may yet commit them."""
    waiters.add(sink, ["a", "b", "c"], 5, 2)
    waiters.leadership_lost(100)
    waiters.add(sink, ["x"], 6, 4)
    assert not sink.heard
    assert len(waiters) == 4
    apply(waiters, 5, 2, 2, 2)
    assert sink.heard == {"a": "applied 5:2", "b": "applied 6:2", "c": "applied 7:2", "x": "lost"}


def test_overtaken_and_then_overwritten_in_the_cluster_is_lost(waiters: Waiters, sink: Sink) -> None:
    waiters.add(sink, ["a", "b", "c"], 5, 2)
    waiters.leadership_lost(100)
    waiters.add(sink, ["x", "y"], 5, 4)
    apply(waiters, 5, 4)
    assert sink.heard == {"a": "lost", "x": "applied 5:4"}
    apply(waiters, 6, 4)
    assert sink.heard["b"] == "lost"
    assert sink.heard["y"] == "applied 6:4"
    waiters.expire(100)
    assert sink.heard["c"] == "unknown"
    assert len(waiters) == 0


def test_overtaken_several_times(waiters: Waiters, sink: Sink) -> None:
    waiters.add(sink, ["a1", "a2", "a3"], 5, 1)
    waiters.add(sink, ["b1", "b2"], 6, 3)
    waiters.add(sink, ["c1"], 7, 5)
    apply(waiters, 5, 1, 3, 5)
    assert sink.heard == {
        "a1": "applied 5:1", "a2": "lost", "a3": "lost", "b1": "applied 6:3", "b2": "lost", "c1": "applied 7:5"
    }  # fmt: skip
    assert len(waiters) == 0


def test_an_empty_batch_waits_for_nothing(waiters: Waiters, sink: Sink) -> None:
    waiters.add(sink, [], 5, 1)
    waiters.add(sink, ["a"], 5, 1)
    apply(waiters, 5, 1)
    assert sink.heard == {"a": "applied 5:1"}


def test_what_came_as_a_snapshot_is_unknown_and_the_rest_waits_on(waiters: Waiters, sink: Sink) -> None:
    waiters.add(sink, ["a", "b", "c"], 5, 2)
    waiters.leadership_lost(1000)
    waiters.add(sink, ["x", "y"], 6, 4)
    waiters.superseded(4)
    assert not sink.heard
    waiters.superseded(6)
    assert sink.heard == {"a": "unknown", "b": "unknown", "x": "unknown"}
    assert len(waiters) == 2
    apply(waiters, 7, 4)
    assert sink.heard == {"a": "unknown", "b": "unknown", "x": "unknown", "c": "lost", "y": "applied 7:4"}
    assert len(waiters) == 0


def test_abandoned_waiters_are_unknown(waiters: Waiters, sink: Sink) -> None:
    waiters.add(sink, ["a", "b"], 5, 2)
    waiters.add(sink, ["x"], 6, 4)
    waiters.abandon()
    assert sink.heard == {"a": "unknown", "b": "unknown", "x": "unknown"}
    assert len(waiters) == 0


def test_s44_ten_thousand_step_downs_leave_nothing_behind(waiters: Waiters, sink: Sink) -> None:
    first = 1
    for number in range(10_000):
        term = 2 * number + 1
        waiters.add(sink, [(number, 0), (number, 1)], first, term)
        waiters.leadership_lost(number)
        if number % 3 == 0:
            apply(waiters, first, term, term + 1)
            first += 2
        waiters.expire(number)
    assert len(waiters) == 0
    assert len(sink.heard) == 20_000


@pytest.mark.parametrize("seed", range(60))
def test_a_random_life_against_a_model(seed: int) -> None:
    """Leaderships at random places, commits of any of their entries; the model is one dictionary."""
    chance = random.Random(seed)
    waiters, sink = Waiters(), Sink()
    waiting: dict[Any, tuple[int, int]] = {}
    applied = 0
    end = 0
    term = 0
    terms: dict[int, int] = {}
    """The log of this node above what is applied: index to term."""
    number = 0
    for _ in range(60):
        move = chance.random()
        if move < 0.5:
            if chance.random() < 0.4:
                # Another leader cuts this log; then this node leads again.
                end = chance.randint(applied, end)
                term += chance.randint(1, 3)
                waiters.leadership_lost(10**6)
            keys = [number + each for each in range(chance.randint(0, 4))]
            number += len(keys)
            waiters.add(sink, keys, end + 1, max(term, 1))
            for key in keys:
                end += 1
                terms[end] = max(term, 1)
                waiting[key] = (end, max(term, 1))
        elif end > applied:
            # Committed: as this node has them, or as another leader wrote them in a later term.
            last = chance.randint(applied + 1, end)
            foreign = chance.random() < 0.3
            if foreign:
                term += 1
            chosen = [term if foreign else terms[index] for index in range(applied + 1, last + 1)]
            if sorted(chosen) != chosen:
                continue
            apply(waiters, applied + 1, *chosen)
            for key, (index, own) in list(waiting.items()):
                if applied < index <= last:
                    committed = chosen[index - applied - 1]
                    assert sink.heard[key] == (f"applied {index}:{own}" if committed == own else "lost"), (key, index)
                    del waiting[key]
            applied = last
            if foreign:
                end = max(applied, end if chance.random() < 0.5 else applied)
        assert len(waiters) == len(waiting)
        assert not set(waiting) & set(sink.heard)
    waiters.leadership_lost(10**6)
    waiters.expire(10**6)
    assert all(sink.heard[key] == "unknown" for key in waiting)
