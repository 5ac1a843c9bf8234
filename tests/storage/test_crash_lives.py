"""Whole lives of a log, with compactions and resets, cut at any operation, and cut again while they recover (S14)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from fencepost.raft.core.errors import StorageCorrupt
from fencepost.raft.core.events import Persist
from fencepost.storage import chain, log_store, recovery, tail
from fencepost.storage.disk import File
from fencepost.storage.room import Room
from fencepost.storage.segments import ActiveSegment, SegmentHeader
from fencepost.storage.spare import Spare
from fencepost.storage.standing import Standing

from .crashes import Aftermath, crash_at_every_step
from .faulty_disk import FaultyDisk
from .lives import Life, Told
from .world import open_log, recover

SEGMENT_BYTES = 2500
"""Three or four records."""


def aftermaths_of_a_life(seed: int, writes: int) -> tuple[list[Aftermath], list[Told]]:
    """A life of some writes: appended alone or together, sealed, closed and opened again, by chance."""
    disk = FaultyDisk()
    chance = Random(seed)
    life = Life(chance)

    def act(acknowledge: Callable[[], None]) -> None:
        acknowledged = 0

        def up_to(sequence: int) -> None:
            nonlocal acknowledged
            while acknowledged < begun + sequence:
                acknowledged += 1
                acknowledge()

        while len(life.told) <= writes:
            begun = len(life.told) - 1
            log = open_log(disk, segment_bytes=SEGMENT_BYTES, stepped=True)
            log.at_durable = up_to
            for _ in range(chance.randint(5, 30)):
                for _ in range(chance.choice((1, 1, 1, 3))):
                    life.write(log)
                log.store.step()
                if chance.random() < 0.1:
                    log.store.seal()
            log.close()
            assert log.failures == []

    return crash_at_every_step(disk, act, torn_per_step=3), life.told


def assert_old_or_new(left: FaultyDisk, acknowledged: int, told: list[Told], what: str) -> None:
    found = recover(left, stepped=True)
    differences = [one.differs(found) for one in told[acknowledged:]]
    assert "" in differences, (what, differences[:3])


def assert_all_old_or_new(aftermaths: list[Aftermath], told: list[Told]) -> None:
    for left, acknowledged, what in aftermaths:
        assert_old_or_new(left, acknowledged, told, what)


SEEDS = (1, 2, 3)
WRITES = 100


@pytest.mark.parametrize("seed", SEEDS)
def test_s14_a_life_with_compactions_and_resets_may_be_cut_anywhere(seed: int) -> None:
    aftermaths, told = aftermaths_of_a_life(seed, WRITES)
    assert len(aftermaths) > 500
    assert any(one.base_index for one in told)
    assert sum(was.compact_to < now.compact_to for was, now in pairwise(told)) > 5
    assert_all_old_or_new(aftermaths, told)


def cut_again_while_it_recovers(seed: int, aftermaths: list[Aftermath], told: list[Told], sample: int) -> int:
    """How many aftermaths of a second crash were looked at."""
    count = 0
    for left, acknowledged, what in Random(seed).sample(aftermaths, sample):
        for there, _, second in crash_at_every_step(left, recovery_of(left), torn_per_step=2):
            assert_old_or_new(there, acknowledged, told, f"{what}, then {second}")
            count += 1
    return count


def recovery_of(disk: FaultyDisk) -> Callable[[Callable[[], None]], None]:
    def act(acknowledge: Callable[[], None]) -> None:
        recover(disk, stepped=True)

    return act


def test_s14_a_recovery_of_it_may_be_cut_anywhere_too() -> None:
    aftermaths, told = aftermaths_of_a_life(SEEDS[0], WRITES)
    assert cut_again_while_it_recovers(SEEDS[0], aftermaths, told, sample=12) > 60


@pytest.mark.endure
@pytest.mark.parametrize("seed", range(100, 140))
def test_s14_many_lives(seed: int) -> None:
    aftermaths, told = aftermaths_of_a_life(seed, writes=200)
    assert_all_old_or_new(aftermaths, told)
    cut_again_while_it_recovers(seed, aftermaths, told, sample=20)


# -- planted faults: each must be caught ------------------------------------------------------------


def deleted_before_the_manifest_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(
        disk: FaultyDisk, directory: Path, instance: bytes, manifest: chain.Manifest, spare: Spare, room: Room
    ) -> None:
        chain.remove_before(disk, directory, manifest.first, spare)
        chain.write_manifest(disk, directory, instance, manifest)

    monkeypatch.setattr(tail, "trim", hasty)


def the_manifest_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(
        disk: FaultyDisk, directory: Path, instance: bytes, manifest: chain.Manifest, spare: Spare, room: Room
    ) -> None:
        chain.remove_before(disk, directory, manifest.first, spare)

    monkeypatch.setattr(tail, "trim", silent)


def a_segment_too_many_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Standing, "first_needed", lambda self: self.number)


def truncations_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begins the log at a segment over whose beginning a later record deletes."""
    genuine = Standing.truncate

    def careless(self: Standing, truncate_from: int) -> None:
        starts = list(self._starts)
        genuine(self, truncate_from)
        self._starts = starts

    monkeypatch.setattr(Standing, "truncate", careless)


def compacted_before_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = log_store.FileLogStore._collect

    def early(self: log_store.FileLogStore, write: Persist) -> tuple[list[bytes], int, bool]:
        collected = genuine(self, write)
        if self._standing.freed:
            self._tail._trim()
        return collected

    monkeypatch.setattr(log_store.FileLogStore, "_collect", early)


def a_salt_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records of a segment's life before count as records of the new one."""
    monkeypatch.setattr(Spare, "draw_salt", lambda self, entropy: b"salt" * 4)


def a_recycled_segment_gets_its_name_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = Spare.become

    def hasty(self: Spare, header: SegmentHeader) -> ActiveSegment:
        file = self._file
        assert file is not None
        self._file = cast(File, SimpleNamespace(write_at=file.write_at, sync_data=lambda: None))
        segment = genuine(self, header)
        segment._file = file
        return segment

    monkeypatch.setattr(Spare, "become", hasty)


def resets_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery.Replay, "_reset", lambda self, reset: None)


FAULTS = (
    deleted_before_the_manifest_says_so,
    the_manifest_is_not_told,
    a_segment_too_many_is_deleted,
    truncations_do_not_count,
    compacted_before_it_is_durable,
    resets_are_forgotten,
    a_salt_is_used_again,
    a_recycled_segment_gets_its_name_too_early,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_lives_catch(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises((AssertionError, StorageCorrupt)):
        live_and_recover()


def live_and_recover() -> None:
    for seed in SEEDS:
        assert_all_old_or_new(*aftermaths_of_a_life(seed, WRITES))
