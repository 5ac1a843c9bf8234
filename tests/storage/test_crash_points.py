"""A crash at every step of everything that storage does: what was acknowledged is there, nothing else is made up."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from fencepost.raft.core.entry import Entry, HardState

from .crashes import crash_at_every_step
from .faulty_disk import FaultyDisk
from .world import Log, entries, open_directory, open_log, opened, recover


def test_s04_term_and_vote_are_the_old_pair_or_the_new_pair() -> None:
    disk = FaultyDisk()
    with opened(disk) as log:
        log.wait(log.write(entries(1, 1, term=3), hard_state=HardState(3, "")))
        log.wait(log.write(hard_state=HardState(4, "n1")))

        def save(acknowledge: Callable[[], None]) -> None:
            log.at_durable = lambda sequence: acknowledge()
            log.wait(log.write(hard_state=HardState(5, "n2")))

        aftermaths = crash_at_every_step(disk, save)
    seen = set()
    for left, acknowledged, what in aftermaths:
        pair = recover(left).hard_state
        assert pair in (HardState(4, "n1"), HardState(5, "n2")), what
        assert pair == HardState(5, "n2") or not acknowledged, what
        seen.add(pair)
    assert len(seen) == 2


def test_s14_s56_formatting_may_be_killed_anywhere_and_is_completed() -> None:
    disk = FaultyDisk()
    instances: list[str] = []

    def act(acknowledge: Callable[[], None]) -> None:
        directory = open_directory(disk)
        acknowledge()
        instances.append(directory.instance_id)
        directory.close()

    aftermaths = crash_at_every_step(disk, act)
    assert len(aftermaths) > 20
    for left, _, what in aftermaths:
        with opened(left) as log:
            assert log.recovered.entries == [], what
            assert log.directory.boot >= 1
            log.wait(log.write(entries(1, 1)))
            again = left.after_power_loss()
        assert recover(again).entries == entries(1, 1), what


def write_ten_with_rolls(log: Log) -> None:
    for index in range(1, 11):
        log.wait(log.write(entries(index, index, size=600), hard_state=HardState(index, "n1"), commit_index=index - 1))


def test_s13_s14_a_life_with_rolls_may_be_cut_anywhere() -> None:
    """Create, write, roll, seal, open again: every boundary."""
    disk = FaultyDisk()

    def act(acknowledge: Callable[[], None]) -> None:
        log = open_log(disk, segment_bytes=1100)
        log.at_durable = lambda sequence: acknowledge()
        write_ten_with_rolls(log)
        assert log.store.status().segment >= 4
        log.close()
        recover(disk)

    aftermaths = crash_at_every_step(disk, act)
    assert len(aftermaths) > 60
    whole = entries(1, 10, size=600)
    for left, acknowledged, what in aftermaths:
        recovered = recover(left)
        held = len(recovered.entries)
        assert held >= acknowledged, what
        assert recovered.entries == whole[:held], what
        assert recovered.hard_state.term == held, what


def test_s14_what_is_written_after_a_crash_is_there_after_the_next() -> None:
    """The first recovery must not build on bytes or names that only the cache had."""
    disk = FaultyDisk()

    def act(acknowledge: Callable[[], None]) -> None:
        log = open_log(disk, segment_bytes=1100)
        log.at_durable = lambda sequence: acknowledge()
        write_ten_with_rolls(log)
        log.close()

    for left, _, what in crash_at_every_step(disk, act):
        with opened(left, segment_bytes=1100) as log:
            held = len(log.recovered.entries)
            log.wait(log.write(entries(held + 1, held + 1, term=20, size=200)))
            again = left.after_power_loss()
        expected = [*entries(1, held, size=600), *entries(held + 1, held + 1, term=20, size=200)]
        assert recover(again).entries == expected, what


def test_s09_the_repair_of_a_torn_tail_may_itself_be_cut_anywhere() -> None:
    disk = FaultyDisk()
    torn: list[FaultyDisk] = []
    with opened(disk) as log:
        log.wait(log.write(entries(1, 3), hard_state=HardState(1, "n1"), commit_index=3))

        def after_step(operation: str) -> None:
            if operation == "write":
                torn.extend(disk.after_torn_power_loss(Random(seed)) for seed in range(3))

        disk.after_step = after_step
        log.wait(log.write(entries(4, 4, size=3000)))
        disk.after_step = lambda operation: None
    for image in torn:
        for left, _, what in crash_at_every_step(image, recovery_of(image)):
            recovered = recover(left)
            assert recovered.entries[:3] == entries(1, 3), what
            assert len(recovered.entries) <= 4
            assert recovered.hard_state == HardState(1, "n1")


def recovery_of(disk: FaultyDisk) -> Callable[[Callable[[], None]], None]:
    def act(acknowledge: Callable[[], None]) -> None:
        recover(disk)

    return act


def test_s17_a_crash_between_truncation_and_append_leaves_the_old_log_or_the_new() -> None:
    disk = FaultyDisk()
    old: list[Entry] = entries(1, 5, term=1)
    new: list[Entry] = [*entries(1, 2, term=1), *entries(3, 4, term=2)]
    with opened(disk) as log:
        log.wait(log.write(old, hard_state=HardState(1, ""), commit_index=2))

        def replace(acknowledge: Callable[[], None]) -> None:
            log.at_durable = lambda sequence: acknowledge()
            log.wait(log.write(entries(3, 4, term=2), truncate_from=3, hard_state=HardState(2, "")))

        aftermaths = crash_at_every_step(disk, replace)
    for left, acknowledged, what in aftermaths:
        recovered = recover(left)
        assert (recovered.entries, recovered.hard_state.term) in ((old, 1), (new, 2)), what
        assert recovered.entries == new or not acknowledged, what


def test_s21_a_remembered_instance_is_the_old_table_or_the_new() -> None:
    disk = FaultyDisk()
    directory = open_directory(disk)
    directory.remember_instance("n2", "aa")

    def act(acknowledge: Callable[[], None]) -> None:
        directory.remember_instance("n3", "bb")
        acknowledge()

    aftermaths = crash_at_every_step(disk, act)
    for left, acknowledged, what in aftermaths:
        again = open_directory(left)
        expected = ({"n2": "aa", "n3": "bb"},) if acknowledged else ({"n2": "aa"}, {"n2": "aa", "n3": "bb"})
        assert again.known_instances() in expected, what
        again.close()
    directory.close()
