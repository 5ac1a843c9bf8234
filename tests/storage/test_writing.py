"""One write and one sync a batch: in pieces, short ones gone on with, and nothing joined on the way."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from fencepost.storage import log_store
from fencepost.storage.disk import Buffer, File, write_fully

from .faulty_disk import FaultyDisk, FaultyFile
from .world import ROOT, entries, opened, recover


@pytest.mark.parametrize("most", [1, 2, 3, 7, 99, 1000])
def test_s13_a_short_write_is_gone_on_with_wherever_it_ended(most: int) -> None:
    disk = FaultyDisk()
    disk.make_directory(ROOT.parent)
    file = disk.open(ROOT, create=True)
    disk.most_per_write = most
    buffers: list[Buffer] = [b"", b"abc", b"", b"d", memoryview(b"xefghx")[1:5], b"i" * 90, b""]
    assert write_fully(file, 5, buffers) == 98
    assert disk.read(ROOT) == bytes(5) + b"abcdefgh" + b"i" * 90


def test_s13_what_is_left_of_a_short_write_is_not_copied() -> None:
    large = b"x" * 100_000
    seen: list[list[Buffer]] = []

    def write_at(offset: int, buffers: Sequence[Buffer]) -> int:
        seen.append(list(buffers))
        return min(10 if len(seen) == 1 else 1 << 30, sum(map(len, buffers)))

    assert write_fully(cast(File, SimpleNamespace(write_at=write_at)), 0, [b"a" * 8, large, b"z"]) == 100_009
    rest, last = seen[1]
    assert isinstance(rest, memoryview)
    assert rest.obj is large
    assert len(rest) == 99_998
    assert last == b"z"


@pytest.mark.parametrize("count", [1, 2, 100, log_store.PIECES_MAX + 10])
def test_a_batch_is_one_write_and_one_sync_however_many_writes_it_holds(count: int) -> None:
    disk = FaultyDisk()
    steps: list[str] = []
    with opened(disk, segment_bytes=1 << 30, stepped=True) as log:
        for index in range(1, count + 1):
            log.write(entries(index, index))
        disk.after_step = steps.append
        log.at_durable = lambda sequence: steps.append("acknowledged")
        assert log.store.step()
        assert steps[:3] == ["write", "sync_data", "acknowledged"]
        disk.after_step = lambda step: None
        assert log.acknowledged == [count]
    assert recover(disk.after_power_loss()).entries == entries(1, count)


def test_a_large_payload_reaches_the_disk_in_the_piece_that_it_was_packed_into(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk()
    sizes: list[list[int]] = []
    genuine = FaultyFile.write_at

    def write_at(self: FaultyFile, offset: int, buffers: Sequence[Buffer]) -> int:
        sizes.append([len(buffer) for buffer in buffers])
        return genuine(self, offset, buffers)

    with opened(disk, segment_bytes=1 << 30, stepped=True) as log:
        log.write(entries(1, 1, size=50_000))
        log.write(entries(2, 2, size=70_000))
        monkeypatch.setattr(FaultyFile, "write_at", write_at)
        log.store.step()
    assert [size > 49_000 for size in sizes[0] if size > 1000] == [True, True]
    assert max(sizes[0]) < 71_000
