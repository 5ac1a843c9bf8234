"""What every ``LogStore`` promises about reading entries back, as checks that run on any of them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

import pytest

from fencepost.raft.core.entry import Entry
from fencepost.raft.core.errors import NotFound

from .world import entries

EVERYTHING = 1 << 30


class Subject(Protocol):
    """A store with nothing in it. What ``write`` returns from is durable."""

    def write(
        self,
        entries: list[Entry],
        *,
        truncate_from: int = 0,
        commit_index: int = 0,
        reset_to: int = 0,
        compact: int = 0,
    ) -> None: ...

    def read(self, start: int, end: int, bytes_max: int) -> list[Entry]: ...

    def reopen(self) -> None: ...


Check = Callable[[Subject], None]


def every_range_is_read_as_it_was_written(subject: Subject) -> None:
    held = entries(1, 30, size=100)
    for entry in held:
        subject.write([entry])
    for start in range(1, 31):
        for end in range(start, 31):
            assert subject.read(start, end, EVERYTHING) == held[start - 1 : end]


def no_more_is_read_than_was_asked_for_and_at_least_one_entry(subject: Subject) -> None:
    held = [*entries(1, 5, size=100), *entries(6, 6, size=1000), *entries(7, 9, size=100)]
    subject.write(held[:4])
    subject.write(held[4:])
    assert [len(subject.read(1, 9, size)) for size in (0, 99, 100, 199, 200, 500, 1499, 1500)] == [
        *(1, 1, 1, 1, 2, 5, 5, 6)
    ]
    assert subject.read(6, 9, 0) == held[5:6]


def what_replaced_an_entry_is_read_in_its_place(subject: Subject) -> None:
    subject.write(entries(1, 9))
    subject.write(entries(4, 6, term=2), truncate_from=4, commit_index=3)
    subject.write(entries(6, 8, term=3), truncate_from=6, commit_index=5)
    held = [*entries(1, 3), *entries(4, 5, term=2), *entries(6, 8, term=3)]
    for start in range(1, 9):
        assert subject.read(start, 8, EVERYTHING) == held[start - 1 :]
        assert subject.read(start, start, EVERYTHING) == held[start - 1 : start]


def what_came_long_after_a_bare_truncation_is_read(subject: Subject) -> None:
    subject.write(entries(1, 5))
    subject.write([], truncate_from=3)
    subject.write([], commit_index=2)
    subject.write(entries(3, 3, term=7))
    assert subject.read(2, 3, EVERYTHING) == [*entries(2, 2), *entries(3, 3, term=7)]


def behind_a_reset_only_what_follows_it_is_read(subject: Subject) -> None:
    subject.write(entries(1, 50))
    subject.write(entries(21, 23, term=2), reset_to=20)
    assert subject.read(21, 23, EVERYTHING) == entries(21, 23, term=2)
    with pytest.raises(NotFound):
        subject.read(20, 20, EVERYTHING)


def what_is_compacted_is_not_found_or_is_what_it_was(subject: Subject) -> None:
    held = entries(1, 300, size=400)
    for first in range(0, 300, 10):
        subject.write(held[first : first + 10], commit_index=first)
    subject.write([], commit_index=300, compact=250)
    subject.write(entries(301, 301))
    with pytest.raises(NotFound):
        subject.read(1, 300, EVERYTHING)
    for start in range(1, 251):
        try:
            assert subject.read(start, 300, EVERYTHING) == held[start - 1 :]
        except NotFound:
            continue
    assert subject.read(251, 301, EVERYTHING) == [*held[250:], *entries(301, 301)]


def whatever_was_written_is_read(subject: Subject) -> None:
    """Against a model: appends, truncations, resets, compactions and restarts by chance."""
    random = Random(7)
    held: list[Entry] = []
    previous = committed = term = 0
    for _ in range(150):
        term += random.random() < 0.2
        truncate_from = reset_to = compact = 0
        last = previous + len(held)
        if random.random() < 0.15 and last > committed:
            truncate_from = random.randint(committed + 1, last)
            del held[truncate_from - previous - 1 :]
            term += 1
        elif random.random() < 0.02:
            reset_to = last + random.randint(1, 5)
            held.clear()
            previous = committed = reset_to
        elif random.random() < 0.1 and committed > previous:
            compact = random.randint(previous + 1, committed)
        last = previous + len(held)
        made = entries(last + 1, last + random.randint(0, 6), term=term, size=random.choice((30, 300, 9000)))
        held += made
        subject.write(made, truncate_from=truncate_from, commit_index=committed, reset_to=reset_to, compact=compact)
        committed = random.randint(committed, previous + len(held))
        if compact:
            del held[: compact - previous]
            previous = compact
        if random.random() < 0.05:
            subject.reopen()
        for _ in range(3):
            if held:
                start = random.randint(previous + 1, previous + len(held))
                end = random.randint(start, previous + len(held))
                assert subject.read(start, end, EVERYTHING) == held[start - previous - 1 : end - previous]


CHECKS: tuple[Check, ...] = (
    every_range_is_read_as_it_was_written,
    no_more_is_read_than_was_asked_for_and_at_least_one_entry,
    what_replaced_an_entry_is_read_in_its_place,
    what_came_long_after_a_bare_truncation_is_read,
    behind_a_reset_only_what_follows_it_is_read,
    what_is_compacted_is_not_found_or_is_what_it_was,
    whatever_was_written_is_read,
)
