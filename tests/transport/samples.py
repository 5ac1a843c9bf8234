"""One sample of everything that a frame may carry."""

from __future__ import annotations

from typing import Any

from fencepost.raft.core.configuration import Configuration
from fencepost.raft.core.entry import Entry, EntryKind, Snapshot
from fencepost.raft.core.errors import NotFound
from fencepost.raft.core.messages import (
    AppendEntries,
    AppendEntriesResponse,
    InstallSnapshot,
    InstallSnapshotResponse,
    MachineDigest,
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
from fencepost.raft.ports import Answer, AnswerStatus, ProposeRequest, SubmitRequest, Wait
from fencepost.transport import codec
from fencepost.transport.codec import FrameType, Hello, Welcome
from fencepost.transport.handshake import LocalNode

ENTRIES = [
    Entry(7, 3, EntryKind.NO_OP, 1_700_000_000_000_000_000, b""),
    Entry(8, 3, EntryKind.OUTBOX, 1_700_000_000_000_000_001, bytes(range(256))),
]

CONFIGURATION = Configuration(
    voters=("n1", "n2", "n4"),
    outgoing=("n1", "n2", "n3"),
    learners=("n5",),
    learners_next=("n3",),
    auto_leave=True,
    retired=("n0",),
    addresses=(("n4", "four.example:7004"), ("n5", "[::1]:7005")),
)
SNAPSHOT = Snapshot(40, 3, 1_700_000_000_000_000_002, CONFIGURATION, 38, 1_000, 0xFFFF_FFFF)

MESSAGES: list[Message] = [
    PreVote(4, 8, 3, 17),
    PreVoteResponse(3, False, 17, "leader-alive"),
    RequestVote(4, 8, 3, True),
    RequestVoteResponse(4, True, ""),
    AppendEntries(3, 6, 2, 5, 123_456_789, ENTRIES),
    AppendEntries(3, 8, 3, 8, 123_456_790, []),
    AppendEntriesResponse(3, True, 8, 0, 0, 123_456_789, 1_000_000_000),
    InstallSnapshot(3, SNAPSHOT, 256, bytes(range(256)), 123_456_791),
    InstallSnapshot(3, Snapshot(1, 1, 1, Configuration(("n1",)), 0), 0, b"", 1),
    InstallSnapshotResponse(3, 40, 512, False, 123_456_791, 1_000_000_000),
    TimeoutNow(3),
    ReadIndex(3, 9),
    ReadIndexResponse(3, 9, 41),
    StateDigest(2000, [MachineDigest(2, bytes(range(9))), MachineDigest(3, b"")]),
]

ANSWERS = [
    Answer(1, AnswerStatus.DONE, 9, 3, True, "succeeded", b'{"rows":1}', "", ""),
    Answer(2, AnswerStatus.RETRY, 0, 3, False, "", b"", "NOT_LEADER", "127.0.0.1:7102"),
]

# Shapes that compare equal after a round trip, with the frame that carries each.
BODIES: list[tuple[FrameType, Any, bytes]] = [
    (
        FrameType.HELLO,
        Hello(1, "peer", "c", 1, "n1", "i1", "n2", "127.0.0.1:7101"),
        codec.encode_hello(Hello(1, "peer", "c", 1, "n1", "i1", "n2", "127.0.0.1:7101")),
    ),
    (
        FrameType.WELCOME,
        Welcome(1, "c", 1, "n2", "i2", "127.0.0.1:7102"),
        codec.encode_welcome(Welcome(1, "c", 1, "n2", "i2", "127.0.0.1:7102")),
    ),
    (
        FrameType.REFUSE,
        codec.ErrorBody("NOT_FOUND", "no such thing", NotFound.outcome, ["a", "b"], "look"),
        codec.encode_refuse(NotFound("no such thing", tried=["a", "b"], next_step="look")),
    ),
    (FrameType.PING, codec.Ping(5), codec.encode_ping(5)),
    (FrameType.PONG, codec.Pong(5), codec.encode_pong(5)),
    *((FrameType(codec._MESSAGE_FRAME[type(m)]), m, codec.encode_message(m)) for m in MESSAGES),
    (
        FrameType.SUBMIT,
        [SubmitRequest(1, Wait.DONE, b"abc"), SubmitRequest(2, Wait.COMMITTED, b"")],
        codec.encode_submit([SubmitRequest(1, Wait.DONE, b"abc"), SubmitRequest(2, Wait.COMMITTED, b"")]),
    ),
    (FrameType.PROPOSE, [ProposeRequest(3, b"xyz")], codec.encode_propose([ProposeRequest(3, b"xyz")])),
    (FrameType.ANSWER, ANSWERS, codec.encode_answers(ANSWERS)),
    (
        FrameType.CALL,
        codec.Call(4, "command.get", {"id": "a", "deep": {"list": [1, None, True]}}),
        codec.encode_call(4, "command.get", {"id": "a", "deep": {"list": [1, None, True]}}),
    ),
    (FrameType.REPLY, codec.Reply(4, {"term": 3, "peers": {}}), codec.encode_reply(4, {"term": 3, "peers": {}})),
    (
        FrameType.REPLY_ERROR,
        codec.ReplyError(4, codec.ErrorBody("NOT_FOUND", "no", NotFound.outcome, [], "")),
        codec.encode_reply_error(4, NotFound("no")),
    ),
]


def local_node(node_id: str = "n1", **changes: Any) -> LocalNode:
    node = LocalNode("cluster-a", 1, node_id, f"instance-of-{node_id}", f"127.0.0.1:71{node_id[1:]:0>2}")
    return node._replace(**changes)
