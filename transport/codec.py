"""What frames carry: one typed, data-only body for each frame type.

Bodies are msgpack arrays decoded straight into named tuples, so an ill-typed body is refused by the
decoder itself and nothing in it can name a class or run code (scenario S37). Many requests or
answers share a frame: the cost of a frame is paid per batch.

The three bodies of the handshake are msgpack maps instead: a newer version may add fields to them
and still be refused in words by an older one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import msgspec

from ..raft.core.errors import FencepostError, FrameInvalid, Outcome, TransportError, all_errors
from ..raft.core.messages import (
    AppendEntries,
    AppendEntriesResponse,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    PreVote,
    PreVoteResponse,
    ReadIndex,
    ReadIndexResponse,
    RequestVote,
    RequestVoteResponse,
    StateDigest,
    TimeoutNow,
)
from ..raft.ports import Answer, ProposeRequest, SubmitRequest
from .framing import BODY_BYTES_MAX, HEADER_BYTES, encode_frame

CHUNK_BYTES_MAX = 4 * 1024 * 1024
"""The most of a snapshot that one InstallSnapshot may carry: a heartbeat may have to wait behind it (S36)."""


class FrameType(IntEnum):
    HELLO = 1
    WELCOME = 2
    REFUSE = 3
    PING = 4
    PONG = 5
    PRE_VOTE = 16
    PRE_VOTE_RESPONSE = 17
    REQUEST_VOTE = 18
    REQUEST_VOTE_RESPONSE = 19
    APPEND_ENTRIES = 20
    APPEND_ENTRIES_RESPONSE = 21
    INSTALL_SNAPSHOT = 22
    INSTALL_SNAPSHOT_RESPONSE = 23
    TIMEOUT_NOW = 24
    READ_INDEX = 25
    READ_INDEX_RESPONSE = 26
    STATE_DIGEST = 27
    """Sent only to a peer that said in the handshake that it takes them."""
    SUBMIT = 32
    PROPOSE = 33
    ANSWER = 34
    CALL = 35
    REPLY = 36
    REPLY_ERROR = 37


class Hello(msgspec.Struct, frozen=True):
    """The first frame of the end that dialled."""

    version: int
    """The version of the protocol between peers, or between client and node (handshake.py)."""
    role: str
    """``peer`` or ``client``."""
    cluster_id: str = ""
    """Empty from a client that takes any cluster."""
    incarnation: int = 0
    node_id: str = ""
    instance_id: str = ""
    to_node_id: str = ""
    """Whom the sender means to reach; empty from a client that takes any node."""
    client_address: str = ""
    bootstrap_digest: str = ""
    """Of the voters that a peer was first started with; empty from one that joined (handshake.py)."""
    boot: int = 0
    process: str = ""
    """Of a peer: which opening of its data directory this is, and a random name of the process; 0 and empty
    where it does not say."""
    state_digests: bool = False
    """Whether the sender takes frames of that type; one of an earlier version does not say."""


class Welcome(msgspec.Struct, frozen=True):
    """The answer of the end that was dialled: who it is. What follows may be anything but a handshake."""

    version: int
    cluster_id: str
    incarnation: int
    node_id: str
    instance_id: str
    client_address: str
    bootstrap_digest: str = ""
    boot: int = 0
    process: str = ""
    """These three as in :class:`Hello`; 0 and empty to a client."""
    state_digests: bool = False
    """As in :class:`Hello`."""


class ErrorBody(msgspec.Struct, frozen=True):
    """:meth:`FencepostError.as_dict`, on the wire."""

    code: str
    message: str
    outcome: Outcome
    tried: list[str] = []
    next: str = ""


class Ping(NamedTuple):
    number: int


class Pong(NamedTuple):
    """Answers a ping; number 0 says unasked that bytes are still arriving."""

    number: int


class Call(NamedTuple):
    request_id: int
    method: str
    parameters: dict[str, Any]


class Reply(NamedTuple):
    request_id: int
    body: Any


class ReplyError(NamedTuple):
    request_id: int
    error: ErrorBody


_ENCODER = msgspec.msgpack.Encoder()
_encode = _ENCODER.encode

_MESSAGE_TYPES: dict[type[Any], FrameType] = {
    PreVote: FrameType.PRE_VOTE,
    PreVoteResponse: FrameType.PRE_VOTE_RESPONSE,
    RequestVote: FrameType.REQUEST_VOTE,
    RequestVoteResponse: FrameType.REQUEST_VOTE_RESPONSE,
    AppendEntries: FrameType.APPEND_ENTRIES,
    AppendEntriesResponse: FrameType.APPEND_ENTRIES_RESPONSE,
    InstallSnapshot: FrameType.INSTALL_SNAPSHOT,
    InstallSnapshotResponse: FrameType.INSTALL_SNAPSHOT_RESPONSE,
    TimeoutNow: FrameType.TIMEOUT_NOW,
    ReadIndex: FrameType.READ_INDEX,
    ReadIndexResponse: FrameType.READ_INDEX_RESPONSE,
    StateDigest: FrameType.STATE_DIGEST,
}

_BODIES: dict[int, Any] = {
    FrameType.HELLO: Hello,
    FrameType.WELCOME: Welcome,
    FrameType.REFUSE: ErrorBody,
    FrameType.PING: Ping,
    FrameType.PONG: Pong,
    **{frame_type: body for body, frame_type in _MESSAGE_TYPES.items()},
    FrameType.SUBMIT: list[SubmitRequest],
    FrameType.PROPOSE: list[ProposeRequest],
    FrameType.ANSWER: list[Answer],
    FrameType.CALL: Call,
    FrameType.REPLY: Reply,
    FrameType.REPLY_ERROR: ReplyError,
}
# Plain integers as keys: hashing an IntEnum member goes through Python code, on every frame.
_DECODE: dict[int, Any] = {int(t): msgspec.msgpack.Decoder(body).decode for t, body in _BODIES.items()}
_MESSAGE_FRAME: dict[type[Any], int] = {body: int(t) for body, t in _MESSAGE_TYPES.items()}
MESSAGE_TYPES = frozenset(_MESSAGE_FRAME.values())
"""The frame types that carry a Raft message."""

_SUBMIT = int(FrameType.SUBMIT)
_PROPOSE = int(FrameType.PROPOSE)
_ANSWER = int(FrameType.ANSWER)


def decode_body(frame_type: int, body: bytes) -> Any:
    """The typed body of a frame. Raises :class:`FrameInvalid` for an unknown type or another shape."""
    decode = _DECODE.get(frame_type)
    if decode is None:
        raise FrameInvalid(
            f"frame of type {frame_type}, which this version does not know",
            next_step="upgrade the older of the two ends",
        )
    try:
        return decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise FrameInvalid(f"{FrameType(frame_type).name} frame with a body that cannot be read: {error}") from error


def encode_message(message: Message) -> bytes:
    """The whole frame of one Raft message. Raises :class:`TransportError` if it is too large for any peer."""
    if type(message) is InstallSnapshot and len(message.data) > CHUNK_BYTES_MAX:
        raise TransportError(
            f"a part of a snapshot of {len(message.data)} bytes; the limit is {CHUNK_BYTES_MAX} bytes",
            next_step="send snapshots in smaller parts",
        )
    frame = encode_frame(_MESSAGE_FRAME[type(message)], _encode(message))
    if len(frame) > BODY_BYTES_MAX + HEADER_BYTES:
        raise TransportError(f"message of {len(frame)} bytes; the limit is {BODY_BYTES_MAX} bytes")
    return frame


def encode_submit(requests: list[SubmitRequest]) -> bytes:
    return encode_frame(_SUBMIT, _encode(requests))


def encode_propose(requests: list[ProposeRequest]) -> bytes:
    return encode_frame(_PROPOSE, _encode(requests))


def encode_answers(answers: list[Answer]) -> bytes:
    return encode_frame(_ANSWER, _encode(answers))


def encode_call(request_id: int, method: str, parameters: dict[str, Any]) -> bytes:
    return encode_frame(FrameType.CALL, _encode(Call(request_id, method, parameters)))


def encode_reply(request_id: int, body: Any) -> bytes:
    return encode_frame(FrameType.REPLY, _encode(Reply(request_id, body)))


def encode_reply_error(request_id: int, error: FencepostError) -> bytes:
    return encode_frame(FrameType.REPLY_ERROR, _encode((request_id, error.as_dict())))


def encode_hello(hello: Hello) -> bytes:
    return encode_frame(FrameType.HELLO, _encode(hello))


def encode_welcome(welcome: Welcome) -> bytes:
    return encode_frame(FrameType.WELCOME, _encode(welcome))


def encode_refuse(error: FencepostError) -> bytes:
    return encode_frame(FrameType.REFUSE, _encode(error.as_dict()))


def encode_ping(number: int) -> bytes:
    return encode_frame(FrameType.PING, _encode(Ping(number)))


def encode_pong(number: int) -> bytes:
    return encode_frame(FrameType.PONG, _encode(Pong(number)))


def error_of(body: ErrorBody) -> FencepostError:
    """The error object that the other end sent, as the class of its code."""
    kind = all_errors().get(body.code)
    if kind is None:
        # A newer node may know more codes; what it says about the outcome still holds.
        return FencepostError(
            f"{body.code}: {body.message}", tried=body.tried, next_step=body.next, outcome=body.outcome
        )
    return kind(body.message, tried=body.tried, next_step=body.next, outcome=body.outcome)
