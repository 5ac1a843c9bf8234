"""What every ``LogStore`` on files promises, as checks that run in any world.

They are run on a real folder and on the faulty disk, with the store's thread and without it, and on
disks and stores with a planted fault, each of which at least one check has to catch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fencepost.raft.core.entry import HardState
from fencepost.raft.core.errors import DirectoryLocked, StorageCorrupt
from fencepost.storage.reader import read_log
from fencepost.storage.recovery import Recovered

from . import world as worlds
from .world import FIRST, Log, World, entries, label, open_directory, open_log

Check = Callable[[World], None]


def opened(world: World, *, segment_bytes: int = 1 << 20) -> AbstractContextManager[Log]:
    return worlds.opened(world.disk, world.root, segment_bytes=segment_bytes, stepped=world.stepped)


def recover(world: World) -> Recovered:
    with opened(world) as log:
        return log.recovered


def an_empty_directory_starts_empty(world: World) -> None:
    with opened(world) as log:
        assert log.recovered == (HardState(0, ""), [], 0, 0, 0, 0, None)
        assert log.directory.created
        assert log.directory.boot == 1


def what_was_closed_is_recovered(world: World) -> None:
    with opened(world) as log:
        log.write(entries(1, 3), hard_state=HardState(1, "n2"))
        log.write(entries(4, 4), commit_index=3)
    assert recover(world) == (HardState(1, "n2"), entries(1, 4), 3, 0, 0, 0, None)


def completions_come_in_order_and_each_write_is_covered(world: World) -> None:
    with opened(world) as log:
        for index in range(1, 101):
            log.write(entries(index, index))
        log.wait(100)
        assert log.acknowledged == sorted(set(log.acknowledged))
        assert log.acknowledged[-1] == 100


def what_was_acknowledged_survives_a_crash(world: World) -> None:
    """S13, and S04 at the level of one acknowledged pair."""
    with opened(world) as log:
        for index in range(1, 6):
            log.wait(log.write(entries(index, index), hard_state=HardState(index, f"n{index}")))
            left = world.crash()
            recovered = recover(left)
            assert recovered.entries == entries(1, index)
            assert recovered.hard_state == HardState(index, f"n{index}")


def what_is_acknowledged_is_on_the_disk_at_that_moment(world: World) -> None:
    """S13: not a moment later."""
    found: list[tuple[int, World]] = []
    with opened(world) as log:
        log.at_durable = lambda sequence: found.append((sequence, world.crash()))
        for index in range(1, 6):
            log.write(entries(index, index))
    for sequence, left in found:
        assert len(recover(left).entries) >= sequence
    assert found[-1][0] == 5


def a_crash_before_the_first_write_is_an_empty_log(world: World) -> None:
    with opened(world) as log:
        left = world.crash()
        with opened(left) as again:
            assert again.recovered.entries == []
            assert again.directory.instance_id == log.directory.instance_id


def writing_goes_on_after_a_crash(world: World) -> None:
    with opened(world) as log:
        log.wait(log.write(entries(1, 2)))
        left = world.crash()
    with opened(left) as log:
        log.wait(log.write(entries(3, 4)))
        left = left.crash()
    assert recover(left).entries == entries(1, 4)


def a_truncation_and_its_replacement_survive_a_crash(world: World) -> None:
    """S17: the whole tail goes, from the conflict on."""
    with opened(world) as log:
        log.write(entries(1, 5, term=1), commit_index=1)
        log.wait(log.write(entries(3, 3, term=2), truncate_from=3, hard_state=HardState(2, "")))
        left = world.crash()
    assert recover(left).entries == [*entries(1, 2, term=1), *entries(3, 3, term=2)]


def a_bare_truncation_survives_a_crash(world: World) -> None:
    with opened(world) as log:
        log.write(entries(1, 5))
        log.wait(log.write(truncate_from=2))
        left = world.crash()
    assert recover(left).entries == entries(1, 1)


def segments_roll_and_all_of_them_survive_a_crash(world: World) -> None:
    """S14: a new segment's name is durable before it is used."""
    with opened(world, segment_bytes=1000) as log:
        for index in range(1, 21):
            log.wait(log.write(entries(index, index, size=300)))
            left = world.crash()
            assert recover(left).entries == entries(1, index, size=300)
        assert log.store.status().segment >= 5
    assert recover(world).entries == entries(1, 20, size=300)


def a_reset_deletes_every_entry_and_the_log_goes_on_behind_it(world: World) -> None:
    """S15: also where the log reaches further, with other entries."""
    with opened(world) as log:
        log.write(entries(1, 12, term=1), hard_state=HardState(1, "n2"), commit_index=3)
        log.wait(log.write(reset=label(10, 3), hard_state=HardState(3, "")))
        left = world.crash()
        assert recover(left) == (HardState(3, ""), [], 10, 0, 10, 3, None)
        log.wait(log.write(entries(11, 12, term=3), commit_index=11))
        left = world.crash()
    assert recover(left) == (HardState(3, ""), entries(11, 12, term=3), 11, 0, 10, 3, None)


def a_reset_may_come_with_a_truncation_and_entries(world: World) -> None:
    """In the order: truncation, reset, hard state, entries."""
    with opened(world) as log:
        log.write(entries(1, 12), commit_index=3)
        log.wait(
            log.write(
                entries(21, 22, term=4),
                truncate_from=5,
                reset=label(20, 3),
                hard_state=HardState(4, ""),
                commit_index=21,
            )
        )
        left = world.crash()
    assert recover(left) == (HardState(4, ""), entries(21, 22, term=4), 21, 0, 20, 3, None)


def a_log_may_begin_with_a_reset(world: World) -> None:
    with opened(world) as log:
        log.wait(log.write(reset=label(100, 7), hard_state=HardState(7, "")))
        log.write(entries(101, 102, term=7))
    left = world.crash()
    assert recover(left) == (HardState(7, ""), entries(101, 102, term=7), 100, 0, 100, 7, None)


def compaction_deletes_what_is_not_needed_and_nothing_else(world: World) -> None:
    """S14: vote and term were written once, in the first segment, which goes."""
    with opened(world, segment_bytes=1100) as log:
        log.wait(log.write(hard_state=HardState(2, "n3")))
        for index in range(1, 21):
            log.wait(log.write(entries(index, index, term=2, size=300), commit_index=index))
        before = log.store.status()
        log.wait(log.write(compact_to=12))
        left = world.crash()
        log.wait(log.write(entries(21, 21, term=2)))
        after = log.store.status()
    assert before.first_segment == 1
    assert after.first_segment > 4
    names = sorted(name for name in world.disk.list_directory(world.root / "log") if name.endswith(".log"))
    assert names == [f"{number:016d}.log" for number in range(after.first_segment, after.segment + 1)]
    for there, last in ((left, 20), (world.crash(), 21)):
        found = recover(there)
        # What is acknowledged may still be on its way: the compacted entries are there or they are not.
        assert found.previous_index <= 12
        assert found.previous_term == (2 if found.previous_index else 0)
        assert [entry.index for entry in found.entries] == list(range(found.previous_index + 1, last + 1))
        assert found.hard_state == HardState(2, "n3")
        assert found.commit_index == 20
    assert found.previous_index > 4


def a_compacted_log_goes_on_after_a_crash(world: World) -> None:
    """Write, compact, crash, open, again and again: it neither grows nor loses its place."""
    for begin in range(0, 60, 12):
        with opened(world, segment_bytes=1100) as log:
            assert log.recovered.previous_index + len(log.recovered.entries) == begin
            assert begin == 0 or log.recovered.previous_index > begin - 12
            for index in range(begin + 1, begin + 13):
                log.wait(log.write(entries(index, index, size=300), commit_index=index))
            log.wait(log.write(compact_to=begin + 10))
            # Deleted is what was compacted behind its acknowledgement, and before the next write.
            log.wait(log.write(commit_index=begin + 12))
            world = world.crash()
    assert len(world.disk.list_directory(world.root / "log")) < 8


def close_finishes_what_was_queued(world: World) -> None:
    """S42: nobody waits for these writes, and they happen all the same."""
    log = open_log(world.disk, world.root, stepped=world.stepped)
    for index in range(1, 201):
        log.write(entries(index, index))
    log.close()
    assert log.acknowledged[-1] == 200
    left = world.crash()
    assert recover(left).entries == entries(1, 200)


def a_large_write_survives(world: World) -> None:
    """S13: short writes are completed."""
    with opened(world) as log:
        log.wait(log.write(entries(1, 64, size=5000)))
        left = world.crash()
    assert recover(left).entries == entries(1, 64, size=5000)


def damage_in_the_middle_is_refused(world: World) -> None:
    """S10: one bit of a payload in the middle."""
    with opened(world) as log:
        for index in range(1, 21):
            log.wait(log.write(entries(index, index)))
    world.damage(FIRST, lambda data: data.replace(b"5:1:x", b"5:1:y", 1))
    with pytest.raises(StorageCorrupt, match=r"0000000000000001\.log is damaged at offset \d+, log index 5:"):
        recover(world)


def nothing_is_changed_in_a_refused_directory(world: World) -> None:
    with opened(world) as log:
        for index in range(1, 4):
            log.wait(log.write(entries(index, index)))
    world.damage(FIRST, lambda data: data.replace(b"2:1:x", b"2:1:y", 1))
    before = world.disk.read(world.root / FIRST)
    with pytest.raises(StorageCorrupt):
        recover(world)
    assert world.disk.read(world.root / FIRST) == before


def an_open_directory_is_locked(world: World) -> None:
    with opened(world), pytest.raises(DirectoryLocked):
        open_directory(world.disk, world.root)
    open_directory(world.disk, world.root).close()


def every_open_raises_the_boot_count(world: World) -> None:
    for boot in range(1, 4):
        directory = open_directory(world.disk, world.root)
        assert directory.boot == boot
        assert directory.created == (boot == 1)
        left = world.crash()
        again = open_directory(left.disk, left.root)
        assert again.boot == boot + 1
        again.close()
        directory.close()


def a_peers_instance_is_remembered_after_a_crash(world: World) -> None:
    """S21"""
    directory = open_directory(world.disk, world.root)
    directory.remember_instance("n2", "aa")
    left = world.crash()
    directory.close()
    again = open_directory(left.disk, left.root)
    assert again.known_instances() == {"n2": "aa"}
    again.close()


def reading_changes_nothing_and_needs_no_lock(world: World) -> None:
    def everything(path: Path) -> dict[str, bytes]:
        return {
            name: world.disk.read(path / name)
            for name in sorted(world.disk.list_directory(path))
            if name not in ("log", "snapshots")
        }

    with opened(world) as log:
        log.wait(log.write(entries(1, 3), hard_state=HardState(1, "n1")))
        world = world.crash()
    directory = open_directory(world.disk, world.root)
    before = everything(world.root), everything(world.root / "log"), everything(world.root / "snapshots")
    found = read_log(world.root, world.disk)
    assert (everything(world.root), everything(world.root / "log"), everything(world.root / "snapshots")) == before
    assert found == (HardState(1, "n1"), entries(1, 3), 0, 0, 0, 0, None)
    directory.close()


CHECKS: tuple[Check, ...] = (
    an_empty_directory_starts_empty,
    what_was_closed_is_recovered,
    completions_come_in_order_and_each_write_is_covered,
    what_was_acknowledged_survives_a_crash,
    what_is_acknowledged_is_on_the_disk_at_that_moment,
    a_crash_before_the_first_write_is_an_empty_log,
    writing_goes_on_after_a_crash,
    a_truncation_and_its_replacement_survive_a_crash,
    a_bare_truncation_survives_a_crash,
    segments_roll_and_all_of_them_survive_a_crash,
    a_reset_deletes_every_entry_and_the_log_goes_on_behind_it,
    a_reset_may_come_with_a_truncation_and_entries,
    a_log_may_begin_with_a_reset,
    compaction_deletes_what_is_not_needed_and_nothing_else,
    a_compacted_log_goes_on_after_a_crash,
    close_finishes_what_was_queued,
    a_large_write_survives,
    damage_in_the_middle_is_refused,
    nothing_is_changed_in_a_refused_directory,
    an_open_directory_is_locked,
    every_open_raises_the_boot_count,
    a_peers_instance_is_remembered_after_a_crash,
    reading_changes_nothing_and_needs_no_lock,
)
