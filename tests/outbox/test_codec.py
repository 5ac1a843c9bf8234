"""Outbox entries as bytes: what comes back, what is refused before it enters the log, and why."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.raft.core.errors import CommandInvalid, UnknownEntry
from fencepost.raft.core.token import FencingToken
from fencepost.raft.outbox.codec import (
    LANE_BYTES_MAX,
    NAME_BYTES_MAX,
    OPERATION_ID_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    Activation,
    Command,
    Dispatch,
    DispatchRow,
    Election,
    OutboxEntry,
    Outcome,
    OutcomeRow,
    StageSeconds,
    canonical_json,
    check_command,
    decode,
    decode_submission,
    digest,
    encode,
    json_or_text,
)

COMMAND = Command("op-1", "ledger", "credit", "alice", b'{"cents":1}')

ENTRIES: list[OutboxEntry] = [
    COMMAND,
    Dispatch("ledger", FencingToken(1, 1 << 62), [DispatchRow(1 << 62, 1), DispatchRow(2, 9)]),
    Outcome("ledger", FencingToken(1, 2), [OutcomeRow(7, 1, 0, b"\x00\xff", "", 0), OutcomeRow(8, 1, 3, b"", "ü", 5)]),
    Activation("ledger", FencingToken(3, 4), "n1", "fenced"),
    Election("n1", FencingToken(3, 4), [StageSeconds("detect", 1.25)]),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_round_trip(entry: OutboxEntry) -> None:
    decoded = decode(encode(entry))
    assert decoded == entry
    assert type(decoded) is type(entry)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_every_cut_is_noticed(entry: OutboxEntry) -> None:
    data = encode(entry)
    for length in range(len(data)):
        with pytest.raises(UnknownEntry):
            decode(data[:length])


def test_a_submission_is_the_very_bytes_that_enter_the_log() -> None:
    data = encode(COMMAND)
    assert decode_submission(data) == decode(data) == COMMAND


@pytest.mark.parametrize("entry", ENTRIES[1:], ids=lambda entry: type(entry).__name__)
def test_a_client_cannot_submit_what_only_a_leader_may_write(entry: OutboxEntry) -> None:
    with pytest.raises(CommandInvalid):
        decode_submission(encode(entry))


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("operation_id", "", "operation id is empty"),
        ("resource", "", "resource is empty"),
        ("effect", "", "effect is empty"),
        ("operation_id", "x" * (OPERATION_ID_BYTES_MAX + 1), "257 bytes"),
        ("resource", "x" * (NAME_BYTES_MAX + 1), "129 bytes"),
        ("effect", "ü" * (NAME_BYTES_MAX // 2 + 1), "130 bytes"),
        ("lane", "x" * (LANE_BYTES_MAX + 1), "513 bytes"),
        ("operation_id", "a\x00b", "cannot be printed"),
        ("lane", "a\nb", "cannot be printed"),
        ("payload", b"x" * (PAYLOAD_BYTES_MAX + 1), "payload of 1048577 bytes"),
    ],
)
def test_limits(field: str, value: Any, why: str) -> None:
    with pytest.raises(CommandInvalid, match=why):
        decode_submission(encode(COMMAND._replace(**{field: value})))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("operation_id", "x" * OPERATION_ID_BYTES_MAX),
        ("resource", "ü" * (NAME_BYTES_MAX // 2)),
        ("lane", ""),
        ("lane", "x" * LANE_BYTES_MAX),
        ("payload", b""),
        ("payload", b"x" * PAYLOAD_BYTES_MAX),
    ],
)
def test_up_to_the_limit(field: str, value: Any) -> None:
    command = COMMAND._replace(**{field: value})
    assert decode_submission(encode(command)) == command


@pytest.mark.parametrize("length", [1, 70, OPERATION_ID_BYTES_MAX])
def test_a_name_that_is_no_text_is_the_submitters_error(length: int) -> None:
    """Bytes of a command line that are no UTF-8 arrive as lone surrogates, at any length."""
    with pytest.raises(CommandInvalid, match="cannot be printed"):
        check_command(COMMAND._replace(operation_id="x" * (length - 1) + "\udcff"))


def test_the_digest_stands_for_everything_but_the_id() -> None:
    others = [
        COMMAND._replace(resource="x"),
        COMMAND._replace(effect="x"),
        COMMAND._replace(lane="x"),
        COMMAND._replace(payload=b"x"),
        # The same characters, divided differently.
        COMMAND._replace(resource="ledgerc", effect="redit"),
        COMMAND._replace(effect="creditalice", lane=""),
        COMMAND._replace(lane='alice{"cents":1}', payload=b""),
    ]
    digests = {digest(command) for command in [COMMAND, *others]}
    assert len(digests) == 1 + len(others)
    assert digest(COMMAND._replace(operation_id="other")) == digest(COMMAND)


def test_equal_json_has_one_form() -> None:
    assert canonical_json({"b": [1, None], "a": "ü"}) == '{"a":"ü","b":[1,null]}'.encode()
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))


@pytest.mark.parametrize(
    ("result", "read"),
    [(b"", None), (b'{"rows": 1}', {"rows": 1}), (b"null", None), (b"plain", "plain"), (b"\xff{", r"\xff{")],
)
def test_a_result_is_read_as_json_else_as_text(result: bytes, read: Any) -> None:
    assert json_or_text(result) == read
