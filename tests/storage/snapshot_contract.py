"""What every ``SnapshotStore`` promises, as checks that run on any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Protocol

import pytest

from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import Snapshot
from fencepost.raft.core.errors import NotFound, StorageCorrupt
from fencepost.raft.ports import SnapshotStore

from .world import label, label_of

MANY = Random(1).randbytes(3_500_000)
"""Contents that no store reads in one piece."""


class SnapshotWorld(Protocol):
    """Where a store lives, for the conformance suite."""

    store: SnapshotStore

    def crash(self) -> SnapshotWorld:
        """What is left if everything stops now, opened again."""

    def damage(self, snapshot: Snapshot) -> None:
        """Flip one bit in the last byte of the contents of a snapshot."""


Check = Callable[[SnapshotWorld], None]


def contents(world: SnapshotWorld, snapshot: Snapshot) -> bytes:
    return b"".join(world.store.contents(snapshot))


def cut(data: bytes, length: int) -> Iterator[bytes]:
    for start in range(0, len(data), length):
        yield data[start : start + length]


def drain(parts: Iterator[bytes], into: bytearray) -> None:
    for part in parts:
        into += part


def receive(world: SnapshotWorld, snapshot: Snapshot, data: bytes, length: int = 1000) -> None:
    """Store all of the parts, in order."""
    stored = 0
    for part in cut(data, length):
        assert world.store.store_chunk(snapshot, stored, part) == stored + len(part)
        stored += len(part)


def an_empty_store_has_none(world: SnapshotWorld) -> None:
    assert world.store.newest() is None
    assert world.crash().store.newest() is None
    with pytest.raises(NotFound):
        world.store.read(label_of(b"x", 1), 0, 1)
    with pytest.raises(NotFound):
        contents(world, label_of(b"x", 1))


def what_was_written_is_the_newest_and_survives_a_crash(world: SnapshotWorld) -> None:
    made = world.store.write(label(10, 3), iter([b"one", b"", b"two"]))
    assert made == label_of(b"onetwo", 10, 3)
    for there in (world, world.crash()):
        assert there.store.newest() == made
        assert contents(there, made) == b"onetwo"


def a_label_comes_back_as_it_was_given(world: SnapshotWorld) -> None:
    """S27: with every part of a configuration, however long."""
    many = tuple(f"node-{number:04d}" for number in range(200))
    configuration = Configuration(
        many[:90], many[50:100], many[100:150], many[90:100], True, many[150:], (("node-0001", "[::1]:4000"),)
    )
    given = label(2**40, 2**33, configuration)._replace(configuration_index=2**39)
    made = world.store.write(given, [b"x"])
    assert world.crash().store.newest() == made == given._replace(size_bytes=1, checksum=made.checksum)


def a_snapshot_may_be_empty(world: SnapshotWorld) -> None:
    made = world.store.write(label(10), [])
    assert contents(world.crash(), made) == b""
    assert world.store.read(made, 0, 100) == b""
    received = label_of(b"", 20)
    assert world.store.store_chunk(received, 0, b"") == 0
    assert world.store.finish(received)
    assert world.crash().store.newest() == received


def a_large_snapshot_comes_back_in_parts(world: SnapshotWorld) -> None:
    made = world.store.write(label(10), cut(MANY, 300_000))
    left = world.crash()
    parts = list(left.store.contents(made))
    assert len(parts) > 1
    assert b"".join(parts) == MANY
    step = 1_000_001
    assert b"".join(left.store.read(made, offset, step) for offset in range(0, len(MANY), step)) == MANY


def a_part_ends_where_the_contents_end(world: SnapshotWorld) -> None:
    made = world.store.write(label(10), [b"0123456789"])
    assert world.store.read(made, 0, 4) == b"0123"
    assert world.store.read(made, 7, 4) == b"789"
    assert world.store.read(made, 10, 4) == b""
    assert world.store.read(made, 99, 4) == b""
    assert world.store.read(made, 3, 0) == b""


def contents_that_cannot_be_drawn_leave_nothing(world: SnapshotWorld) -> None:
    """Whoever makes them may raise anything, at any time."""
    before = world.store.write(label(10), [b"before"])

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise LookupError("no more")

    with pytest.raises(LookupError):
        world.store.write(label(20), broken())
    for there in (world, world.crash()):
        assert there.store.newest() == before
        assert contents(there, before) == b"before"
        assert there.store.write(label(20), [b"whole"]) == label_of(b"whole", 20)


def the_two_newest_are_kept(world: SnapshotWorld) -> None:
    made = [world.store.write(label(index), [b"%d" % index]) for index in (10, 20, 30, 40)]
    assert [contents(world, one) for one in made[2:]] == [b"30", b"40"]
    for one in made[:2]:
        with pytest.raises(NotFound):
            world.store.read(one, 0, 1)
        with pytest.raises(NotFound):
            contents(world, one)
    assert world.crash().store.newest() == made[-1]


def the_two_newest_can_be_read_until_a_newer_one_is_whole(world: SnapshotWorld) -> None:
    """A leader goes on sending the one before the newest, and takes no third until the follower has it."""
    made = [world.store.write(label(index), [b"%d" % index]) for index in (10, 20)]
    seen: list[bytes] = []

    def chunks() -> Iterator[bytes]:
        for part in (b"thi", b"rd"):
            seen.extend(world.store.read(one, 0, 2) for one in made)
            yield part

    world.store.write(label(30), chunks())
    received = label_of(b"fourth", 40)
    world.store.store_chunk(received, 0, b"fourth")
    assert seen == [b"10", b"20"] * 2
    assert world.store.read(made[1], 0, 2) == b"20"
    assert world.store.finish(received)
    assert contents(world, received) == b"fourth"


def an_older_one_that_comes_later_is_not_the_newest(world: SnapshotWorld) -> None:
    """One is received while another is being written."""
    newer = label_of(b"newer", 50, 2)
    receive(world, newer, b"newer")
    assert world.store.finish(newer)
    older = world.store.write(label(10), [b"older"])
    assert contents(world, older) == b"older"
    for there in (world, world.crash()):
        assert there.store.newest() == newer
        assert contents(there, newer) == b"newer"


def one_of_the_same_index_takes_the_place_of_the_other(world: SnapshotWorld) -> None:
    first = world.store.write(label(10), [b"first"])
    second = world.store.write(label(10), [b"second"])
    assert world.store.newest() == second
    assert contents(world.crash(), second) == b"second"
    with pytest.raises(NotFound):
        world.store.read(first, 0, 1)


def what_is_received_is_there_once_it_is_finished(world: SnapshotWorld) -> None:
    data = MANY[:50_001]
    snapshot = label_of(data, 30, 4)
    receive(world, snapshot, data)
    assert world.store.newest() is None
    assert world.crash().store.newest() is None
    assert world.store.finish(snapshot)
    for there in (world, world.crash()):
        assert there.store.newest() == snapshot
        assert contents(there, snapshot) == data
    assert not world.store.finish(snapshot)


def a_part_in_the_wrong_place_changes_nothing(world: SnapshotWorld) -> None:
    """Late, early and twice: the answer says where to go on."""
    snapshot = label_of(b"0123456789", 30)
    assert world.store.store_chunk(snapshot, 4, b"4567") == 0
    assert world.store.store_chunk(snapshot, 0, b"0123") == 4
    assert world.store.store_chunk(snapshot, 8, b"89") == 4
    assert world.store.store_chunk(snapshot, 2, b"xx") == 4
    assert world.store.store_chunk(snapshot, 4, b"4567") == 8
    assert world.store.store_chunk(snapshot, 4, b"4567") == 8
    assert world.store.store_chunk(snapshot, 8, b"89") == 10
    assert world.store.finish(snapshot)
    assert contents(world, snapshot) == b"0123456789"


def the_first_part_begins_anew(world: SnapshotWorld) -> None:
    """Of the same snapshot or of another."""
    snapshot, other = label_of(b"0123456789", 30), label_of(b"abcdef", 40)
    world.store.store_chunk(snapshot, 0, b"01234")
    assert world.store.store_chunk(snapshot, 0, b"0") == 1
    assert world.store.store_chunk(other, 1, b"b") == 0
    assert world.store.store_chunk(other, 0, b"abc") == 3
    assert world.store.store_chunk(snapshot, 1, b"1") == 0
    assert not world.store.finish(snapshot)
    assert world.store.store_chunk(other, 3, b"def") == 6
    assert world.store.finish(other)
    assert world.store.newest() == other
    assert contents(world, other) == b"abcdef"


def what_is_damaged_on_its_way_is_not_kept(world: SnapshotWorld) -> None:
    before = world.store.write(label(10), [b"before"])
    snapshot = label_of(b"0123456789", 30)
    for damaged in (b"0123456788", b"012345678", b""):
        world.store.store_chunk(snapshot, 0, b"")
        receive(world, snapshot, damaged)
        assert not world.store.finish(snapshot)
        assert world.store.store_chunk(snapshot, len(damaged) or 1, b"9") == 0
        assert world.store.newest() == world.crash().store.newest() == before
    receive(world, snapshot, b"0123456789")
    assert world.store.finish(snapshot)


def more_than_was_announced_is_not_stored(world: SnapshotWorld) -> None:
    snapshot = label_of(b"0123", 30)
    assert world.store.store_chunk(snapshot, 0, b"01234") == 0
    assert world.store.store_chunk(snapshot, 0, b"012") == 3
    assert world.store.store_chunk(snapshot, 3, b"34") == 3
    assert world.store.store_chunk(snapshot, 3, b"3") == 4
    assert world.store.finish(snapshot)


def nothing_under_way_cannot_be_finished(world: SnapshotWorld) -> None:
    assert not world.store.finish(label_of(b"", 30))


def what_is_under_way_ends_with_the_process(world: SnapshotWorld) -> None:
    snapshot = label_of(b"0123456789", 30)
    world.store.store_chunk(snapshot, 0, b"01234")
    left = world.crash()
    assert left.store.store_chunk(snapshot, 5, b"56789") == 0
    assert not left.store.finish(snapshot)
    assert left.store.newest() is None


def writing_and_receiving_do_not_meet(world: SnapshotWorld) -> None:
    received = label_of(b"0123456789", 30)
    world.store.store_chunk(received, 0, b"01234")
    made = world.store.write(label(20), [b"made"])
    assert world.store.store_chunk(received, 5, b"56789") == 10
    assert world.store.finish(received)
    assert [contents(world, one) for one in (made, received)] == [b"made", b"0123456789"]


def damage_is_found_before_the_last_part(world: SnapshotWorld) -> None:
    """S10: also by whoever would send it to another."""
    for data in (b"small", MANY):
        made = world.store.write(label(len(data)), cut(data, 1 << 20))
        world.damage(made)
        drawn = bytearray()
        with pytest.raises(StorageCorrupt):
            drain(world.store.contents(made), drawn)
        assert len(drawn) < len(data)
        with pytest.raises(StorageCorrupt):
            world.store.read(made, 0, 4)


CHECKS: tuple[Check, ...] = (
    an_empty_store_has_none,
    what_was_written_is_the_newest_and_survives_a_crash,
    a_label_comes_back_as_it_was_given,
    a_snapshot_may_be_empty,
    a_large_snapshot_comes_back_in_parts,
    a_part_ends_where_the_contents_end,
    contents_that_cannot_be_drawn_leave_nothing,
    the_two_newest_are_kept,
    the_two_newest_can_be_read_until_a_newer_one_is_whole,
    an_older_one_that_comes_later_is_not_the_newest,
    one_of_the_same_index_takes_the_place_of_the_other,
    what_is_received_is_there_once_it_is_finished,
    a_part_in_the_wrong_place_changes_nothing,
    the_first_part_begins_anew,
    what_is_damaged_on_its_way_is_not_kept,
    more_than_was_announced_is_not_stored,
    nothing_under_way_cannot_be_finished,
    what_is_under_way_ends_with_the_process,
    writing_and_receiving_do_not_meet,
    damage_is_found_before_the_last_part,
)
