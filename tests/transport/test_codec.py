"""Bodies: a round trip for each frame type, and nothing of another shape."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.errors import FencepostError, FrameInvalid, NoLeader, Outcome, TransportError, all_errors
from fencepost.raft.core.messages import AppendEntries, InstallSnapshot
from fencepost.transport import codec
from fencepost.transport.codec import (
    CHUNK_BYTES_MAX,
    ErrorBody,
    FrameType,
    decode_body,
    encode_reply_error,
    error_of,
)
from fencepost.transport.framing import BODY_BYTES_MAX, FrameDecoder

from .samples import BODIES, ENTRIES, SNAPSHOT

encode = msgspec.msgpack.encode
LABEL: list[Any] = [9, 2, 1, [["n1"]], 3, 100, 7]
"""A snapshot's, as it is on the wire."""


def body_of(frame: bytes) -> tuple[int, bytes]:
    [decoded] = FrameDecoder(1 << 20).feed(frame)
    return decoded.type, decoded.body


def test_every_frame_type_has_a_sample() -> None:
    assert {frame_type for frame_type, _, _ in BODIES} == set(FrameType)


@pytest.mark.parametrize(("frame_type", "value", "frame"), BODIES)
def test_round_trip(frame_type: FrameType, value: Any, frame: bytes) -> None:
    found_type, body = body_of(frame)
    assert found_type == frame_type
    decoded = decode_body(found_type, body)
    assert decoded == value
    assert type(decoded) is type(value)


def test_entries_keep_their_types_and_bytes() -> None:
    frame_type, body = body_of(codec.encode_message(AppendEntries(3, 6, 2, 5, 1, ENTRIES)))
    decoded = decode_body(frame_type, body)
    assert [type(entry) for entry in decoded.entries] == [type(entry) for entry in ENTRIES]
    assert all(type(entry.data) is bytes for entry in decoded.entries)


@pytest.mark.parametrize("frame_type", FrameType)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        encode(None),
        encode(3),
        encode("text"),
        encode([]) + b"\x00",
        encode([1.5]),
        encode([[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]]),
        encode([["x", "y"]]),
        encode(["a", "b", "c", "d", "e", "f"]),
        encode({"version": "one", "role": 3}),
        encode({"code": 1}),
        b"\xdd\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\x91" * 5_000,
        b"\x93\x01\xa1m" + b"\x81\xa1k" * 100_000,
    ],
)
def test_bodies_of_another_shape_are_refused(frame_type: FrameType, body: bytes) -> None:
    with pytest.raises(FrameInvalid):
        decode_body(frame_type, body)


@pytest.mark.parametrize(
    ("frame_type", "good", "at", "bad"),
    [
        (FrameType.APPEND_ENTRIES, [3, 6, 2, 5, 1, []], 0, "3"),
        (FrameType.APPEND_ENTRIES, [3, 6, 2, 5, 1, []], 5, [[7, 3, 0, 1]]),
        (FrameType.APPEND_ENTRIES, [3, 6, 2, 5, 1, []], 5, [[7, 3, 0, 1, "text"]]),
        (FrameType.PRE_VOTE_RESPONSE, [3, True, 1, ""], 1, 1),
        (FrameType.PRE_VOTE_RESPONSE, [3, True, 1, ""], 0, 3.5),
        (FrameType.INSTALL_SNAPSHOT, [3, LABEL, 0, b"x", 1], 1, LABEL[:4]),
        (FrameType.INSTALL_SNAPSHOT, [3, LABEL, 0, b"x", 1], 1, [*LABEL[:3], [["n1", 2]], *LABEL[4:]]),
        (FrameType.INSTALL_SNAPSHOT, [3, LABEL, 0, b"x", 1], 1, [*LABEL[:3], [["n1"]] + [[]] * 6 + [1], *LABEL[4:]]),
        (FrameType.INSTALL_SNAPSHOT, [3, LABEL, 0, b"x", 1], 1, [*LABEL, 1]),
        (FrameType.INSTALL_SNAPSHOT, [3, LABEL, 0, b"x", 1], 3, "text"),
        (FrameType.INSTALL_SNAPSHOT_RESPONSE, [3, 9, 0, True, 1], 3, 1),
        (FrameType.TIMEOUT_NOW, [3], 0, None),
        (FrameType.READ_INDEX, [3, 1], 1, 1.5),
        (FrameType.READ_INDEX_RESPONSE, [3, 1, 9], 2, "9"),
        (FrameType.CALL, [1, "status", {}], 2, []),
        (FrameType.CALL, [1, "status", {}], 2, {1: 2}),
        (FrameType.PING, [1], 0, None),
    ],
)
def test_one_wrong_field_is_refused(frame_type: FrameType, good: list[Any], at: int, bad: Any) -> None:
    decode_body(frame_type, encode(good))
    with pytest.raises(FrameInvalid):
        decode_body(frame_type, encode([*good[:at], bad, *good[at + 1 :]]))


@pytest.mark.parametrize(("frame_type", "value", "frame"), BODIES)
def test_a_damaged_body_is_refused_or_has_its_shape(frame_type: FrameType, value: Any, frame: bytes) -> None:
    """Whatever a body holds, there is nothing between a value of its type and FrameInvalid."""
    random = Random(f"{frame_type.name} {len(frame)}")
    _, body = body_of(frame)
    refused = 0
    for _ in range(300):
        damaged = bytearray(body)
        for _ in range(random.randrange(1, 4)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        if random.random() < 0.3:
            del damaged[random.randrange(len(damaged)) :]
        try:
            decoded = decode_body(frame_type, bytes(damaged))
        except FrameInvalid:
            refused += 1
            continue
        assert type(decoded) is type(value)
        assert decode_body(frame_type, encode(decoded)) == decoded
    assert refused


def test_the_largest_part_of_a_snapshot_of_a_large_cluster_fits_into_a_frame() -> None:
    members = [f"{number:02d}-{'m' * 60}" for number in range(64)]
    configuration = Configuration(
        voters=tuple(members[:32]),
        outgoing=tuple(members[:32]),
        learners=tuple(members[32:]),
        retired=tuple(f"{number:04d}-{'r' * 59}" for number in range(2_000)),
        addresses=tuple((member, f"{'h' * 253}:65535") for member in members),
    )
    label = SNAPSHOT._replace(configuration=configuration)
    message = InstallSnapshot(1, label, 0, b"x" * CHUNK_BYTES_MAX, 1)
    frame = codec.encode_message(message)
    assert len(frame) < BODY_BYTES_MAX // 4
    [decoded] = FrameDecoder(BODY_BYTES_MAX).feed(frame)
    assert decode_body(decoded.type, decoded.body) == message


def test_a_larger_part_is_not_sent() -> None:
    with pytest.raises(TransportError, match="limit is 4194304 bytes") as caught:
        codec.encode_message(InstallSnapshot(1, SNAPSHOT, 0, b"x" * (CHUNK_BYTES_MAX + 1), 1))
    assert caught.value.next_step


def test_a_message_that_is_larger_than_a_frame_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "BODY_BYTES_MAX", 1000)
    fits = AppendEntries(3, 6, 2, 5, 1, [ENTRIES[0]._replace(data=b"x" * 900)])
    assert codec.encode_message(fits)
    with pytest.raises(TransportError, match="limit is 1000 bytes"):
        codec.encode_message(AppendEntries(3, 6, 2, 5, 1, [ENTRIES[0]._replace(data=b"x" * 1000)]))


def test_an_unknown_type_is_refused_with_a_next_step() -> None:
    with pytest.raises(FrameInvalid, match="type 99") as caught:
        decode_body(99, b"")
    assert caught.value.next_step


def test_a_newer_handshake_may_carry_more() -> None:
    body = encode({"version": 2, "role": "peer", "something_new": [1, 2]})
    assert decode_body(FrameType.HELLO, body).version == 2


@pytest.mark.parametrize("kind", [kind for kind in all_errors().values() if kind.__module__.endswith("core.errors")])
def test_errors_arrive_as_what_they_were(kind: type[FencepostError]) -> None:
    sent = kind("why", tried=["a  refused"], next_step="do this")
    _, body = body_of(encode_reply_error(4, sent))
    reply = decode_body(FrameType.REPLY_ERROR, body)
    assert reply.request_id == 4
    arrived = error_of(reply.error)
    assert type(arrived) is kind
    assert arrived.as_dict() == sent.as_dict()


def test_an_error_of_a_newer_node_keeps_its_outcome() -> None:
    error = error_of(ErrorBody("BRAND_NEW", "so it is", Outcome.RETRY, [], "wait"))
    assert error.outcome is Outcome.RETRY
    assert "BRAND_NEW" in error.message


def test_an_outcome_given_to_one_error_survives() -> None:
    error = NoLeader("x", outcome=Outcome.UNKNOWN)
    _, body = body_of(encode_reply_error(1, error))
    assert error_of(decode_body(FrameType.REPLY_ERROR, body).error).outcome is Outcome.UNKNOWN
