"""Framing by itself: what is a record, and what can never be taken for one."""

from __future__ import annotations

from random import Random

import pytest

from fencepost.storage import records
from fencepost.storage.records import (
    HEADER_BYTES,
    SECTOR_BYTES,
    RecordType,
    encode_record,
    header_after,
    header_at,
    is_zero_from,
    record_at,
    salt_seed,
)

SEED = salt_seed(b"salt")


def encoded(offset: int, body: bytes, seed: int = SEED) -> bytes:
    return b"".join(encode_record(seed, offset, RecordType.WRITES, body))


@pytest.mark.parametrize("size", [0, 1, SECTOR_BYTES - HEADER_BYTES - 1, SECTOR_BYTES - HEADER_BYTES, 488 + 1, 5000])
def test_a_record_comes_back_and_fills_whole_sectors(size: int) -> None:
    data = encoded(0, b"x" * size)
    assert len(data) % SECTOR_BYTES == 0
    assert len(data) - HEADER_BYTES - size < SECTOR_BYTES
    record = record_at(data, SEED, 0)
    assert record == (0, RecordType.WRITES, b"x" * size, len(data))


def test_s09_zeros_are_never_a_record() -> None:
    """Under any salt: there is no magic in zeros."""
    assert record_at(bytes(4096), SEED, 0) is None
    assert header_after(bytes(4096), SEED, 0) is None
    assert is_zero_from(bytes(4096), 0)
    assert is_zero_from(b"x" + bytes(100), 1)
    assert not is_zero_from(bytes(100) + b"x", 1)
    assert is_zero_from(b"", 0)


def test_s10_a_record_counts_only_in_its_own_place_and_file() -> None:
    data = encoded(512, b"payload")
    assert record_at(bytes(512) + data, SEED, 512) is not None
    assert record_at(data, SEED, 0) is None
    assert record_at(bytes(1024) + data, SEED, 1024) is None
    assert record_at(bytes(512) + data, salt_seed(b"other"), 512) is None


def test_s10_every_bit_of_a_record_is_covered() -> None:
    data = encoded(0, b"payload")
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert record_at(bytes(flipped), SEED, 0) is None, bit


def test_s10_the_search_finds_a_header_and_nothing_that_imitates_one() -> None:
    """Payloads full of magic, of headers for other offsets, and of noise."""
    noise = Random(1).randbytes(4096)
    imitations = (
        records.MAGIC * 1024 + b"".join(encoded(offset, b"a")[:HEADER_BYTES] for offset in range(1, 40)) + noise
    )
    filler = imitations.ljust(-(-len(imitations) // SECTOR_BYTES) * SECTOR_BYTES, b"\0")
    assert header_after(filler, SEED, 0) is None
    data = filler + encoded(len(filler), b"real")
    assert header_after(data, SEED, 1) == len(filler)
    assert header_at(data, SEED, len(filler)) is not None
    assert header_after(data, SEED, len(filler) + 1) is None


def test_a_body_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_BODY_BYTES", 10)
    encode_record(SEED, 0, RecordType.WRITES, b"x" * 10)
    with pytest.raises(ValueError, match="over the limit"):
        encode_record(SEED, 0, RecordType.WRITES, b"x" * 11)


def test_a_body_in_pieces_is_the_body_and_no_piece_is_copied() -> None:
    pieces = [b"", b"a" * 700, b"b", b"c" * 5000, b""]
    record = encode_record(SEED, 512, RecordType.WRITES, *pieces)
    assert b"".join(record) == encoded(512, b"".join(pieces))
    assert all(any(given is piece for given in record) for piece in pieces)
