"""Framing: the same frames however the stream is cut, and nothing but frames (scenario S37)."""

from __future__ import annotations

from random import Random
from struct import pack

import pytest

from fencepost.raft.core.errors import FrameInvalid
from fencepost.transport.framing import (
    HANDSHAKE_BODY_BYTES_MAX,
    HEADER_BYTES,
    Frame,
    FrameDecoder,
    encode_frame,
)

from .samples import BODIES

FRAMES = [Frame(1, b""), Frame(20, b"x"), Frame(33, b"hello world" * 3), Frame(5, b"\x00" * 7)]
STREAM = b"".join(encode_frame(frame.type, frame.body) for frame in FRAMES)


def decode(chunks: list[bytes], limit: int = HANDSHAKE_BODY_BYTES_MAX) -> tuple[list[Frame], FrameInvalid | None]:
    decoder = FrameDecoder(limit)
    frames: list[Frame] = []
    for chunk in chunks:
        if decoder.failure is None:
            frames += decoder.feed(chunk)
    return frames, decoder.failure


def test_every_cut_in_three_gives_the_same_frames() -> None:
    for first in range(len(STREAM) + 1):
        for second in range(first, len(STREAM) + 1):
            assert decode([STREAM[:first], STREAM[first:second], STREAM[second:]]) == (FRAMES, None)


def test_a_byte_at_a_time() -> None:
    decoder = FrameDecoder()
    frames = [frame for at in range(len(STREAM)) for frame in decoder.feed(STREAM[at : at + 1])]
    assert frames == FRAMES
    assert decoder.held_bytes == 0
    assert decoder.frames == len(FRAMES)


def test_random_cuts_of_real_frames() -> None:
    random = Random(20)
    stream = b"".join(frame for _, _, frame in BODIES) * 3
    whole, failure = decode([stream])
    assert failure is None
    assert len(whole) == 3 * len(BODIES)
    for _ in range(200):
        cuts = sorted(random.randrange(len(stream) + 1) for _ in range(random.randrange(40)))
        chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
        assert decode(chunks) == (whole, None)


def test_a_flipped_bit_never_gives_another_frame() -> None:
    starts = [sum(HEADER_BYTES + len(f.body) for f in FRAMES[:n]) for n in range(len(FRAMES))]
    of_lengths = {start + at for start in starts for at in range(8, 12)}
    for bit in range(len(STREAM) * 8):
        damaged = bytearray(STREAM)
        damaged[bit // 8] ^= 1 << bit % 8
        frames, failure = decode([bytes(damaged)])
        # Frames before the damage are good; none of the damaged frame or after it.
        untouched = sum(start + HEADER_BYTES + len(f.body) <= bit // 8 for start, f in zip(starts, FRAMES, strict=True))
        assert frames == FRAMES[:untouched], bit
        # Only a length that grew, and not above the limit, is waited for.
        assert failure is not None or bit // 8 in of_lengths, bit


def test_damage_is_found_wherever_the_stream_is_cut() -> None:
    for at in range(len(STREAM)):
        damaged = bytearray(STREAM)
        damaged[at] ^= 0xFF
        whole = decode([bytes(damaged)])
        single = decode([bytes(damaged[i : i + 1]) for i in range(len(damaged))])
        assert single[0] == whole[0]
        assert (single[1] is None) == (whole[1] is None)


def test_seeded_garbage_is_refused_and_never_a_frame() -> None:
    random = Random(37)
    for _ in range(2_000):
        garbage = random.randbytes(random.randrange(1, 80))
        frames, _ = decode([garbage])
        assert frames == []


def test_garbage_behind_a_good_start_is_refused_and_never_a_frame() -> None:
    random = Random(38)
    refused = 0
    for _ in range(2_000):
        frames, failure = decode([STREAM[:3] + random.randbytes(60)])
        assert frames == []
        refused += failure is not None
    assert refused > 1_900


def test_a_length_bomb_is_refused_before_its_body_arrives() -> None:
    head = b"FP\x01\x01" + pack(">III", 0, 0xFFFFFFFF, 0)
    decoder = FrameDecoder()
    assert decoder.feed(head) == []
    assert decoder.failure is not None
    assert "4294967295 bytes; the limit here is 16384" in decoder.failure.message
    assert decoder.held_bytes == 0


def test_the_limit_is_exact_and_can_be_raised() -> None:
    body = b"b" * HANDSHAKE_BODY_BYTES_MAX
    assert decode([encode_frame(1, body)]) == ([Frame(1, body)], None)
    larger = encode_frame(1, body + b"b")
    assert decode([larger])[1] is not None
    assert decode([larger], limit=len(body) + 1) == ([Frame(1, body + b"b")], None)


def test_what_is_held_is_bounded_by_the_limit() -> None:
    decoder = FrameDecoder(limit=1000)
    decoder.feed(encode_frame(1, b"x" * 1000)[:-1])
    assert decoder.held_bytes == HEADER_BYTES + 999
    assert len(decoder.feed(b"x")) == 1
    assert decoder.held_bytes == 0


@pytest.mark.parametrize(
    ("stranger", "says"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "looks like HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "looks like HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "looks like a TLS hello"),
        (b"\xff\xff\xff\xff", "not a frame of fencepost"),
        (b"\x00" * 16, "not a frame of fencepost"),
    ],
)
def test_strangers_are_refused_with_a_guess(stranger: bytes, says: str) -> None:
    _, failure = decode([stranger])
    assert failure is not None
    assert says in failure.message
    # And no later than at their first byte, when it comes alone.
    assert decode([stranger[:1]])[1] is not None


def test_another_version_is_named() -> None:
    frame = bytearray(encode_frame(1, b""))
    frame[2] = 9
    _, failure = decode([bytes(frame)])
    assert failure is not None
    assert "format version 9" in failure.message
    assert failure.next_step


def test_another_group_is_refused() -> None:
    _, failure = decode([b"FP\x01\x01" + pack(">III", 1, 0, 0)])
    assert failure is not None
    assert "group 1" in failure.message


def test_good_frames_before_a_bad_one_are_kept_and_the_failure_stays() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(STREAM + b"GET /") == FRAMES
    assert decoder.failure is not None
    with pytest.raises(FrameInvalid):
        decoder.feed(STREAM)
