"""Bodies: a round trip for each frame type, and nothing of another shape."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fencepost.raft.core.errors import FencepostError, FrameInvalid, NoLeader, Outcome, all_errors
from fencepost.raft.core.messages import AppendEntries
from fencepost.transport import codec
from fencepost.transport.codec import ErrorBody, FrameType, decode_body, encode_reply_error, error_of
from fencepost.transport.framing import FrameDecoder

from .samples import BODIES, ENTRIES

encode = msgspec.msgpack.encode


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
        (FrameType.CALL, [1, "status", {}], 2, []),
        (FrameType.CALL, [1, "status", {}], 2, {1: 2}),
        (FrameType.PING, [1], 0, None),
    ],
)
def test_one_wrong_field_is_refused(frame_type: FrameType, good: list[Any], at: int, bad: Any) -> None:
    decode_body(frame_type, encode(good))
    with pytest.raises(FrameInvalid):
        decode_body(frame_type, encode([*good[:at], bad, *good[at + 1 :]]))


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
