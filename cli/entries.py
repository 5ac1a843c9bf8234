"""Log entries as people and programs read them: by content, not by bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..raft.core.configuration import decode_configuration
from ..raft.core.entry import Entry, EntryKind
from ..raft.core.errors import UnknownEntry
from ..raft.core.token import FencingToken, token_json
from ..raft.node.members import configuration_json
from ..raft.outbox.codec import Activation, Command, Dispatch, Election, Outcome, decode, json_or_text
from ..raft.outbox.transitions import Verdict
from .output import token_text

KINDS = {int(kind): kind.name.lower().replace("_", "-") for kind in EntryKind}


def entry_json(entry: Entry) -> dict[str, Any]:
    """``{"index", "term", "entry_kind", "time_ns", "bytes", "content"}``. What the content is depends on the kind; of
    an entry of a newer version it says why it cannot be shown."""
    return {
        "index": entry.index,
        "term": entry.term,
        "entry_kind": KINDS.get(entry.kind, str(entry.kind)),
        "time_ns": entry.time_ns,
        "bytes": len(entry.data),
        "content": _content(entry),
    }


def _content(entry: Entry) -> dict[str, Any]:
    try:
        if entry.kind == EntryKind.CONFIGURATION:
            return {"type": "configuration", **configuration_json(decode_configuration(entry.data))}
        if entry.kind == EntryKind.OUTBOX:
            return _outbox(entry.data)
    except UnknownEntry as error:
        return {"type": "unknown", "unknown": error.message}
    if entry.kind == EntryKind.EMBEDDED:
        return {"type": "embedded", "data": json_or_text(entry.data)}
    if entry.kind == EntryKind.NO_OP:
        return {"type": "no-op"}
    return {"type": "unknown", "unknown": f"entries of kind {entry.kind} are of a newer version"}


def _outbox(data: bytes) -> dict[str, Any]:
    found = decode(data)
    if isinstance(found, Command):
        return {
            "type": "command",
            "id": found.operation_id,
            "resource": found.resource,
            "effect": found.effect,
            "lane": found.lane or None,
            "payload": json_or_text(found.payload),
        }
    if isinstance(found, Dispatch):
        rows = [{"index": row.index, "attempt": row.attempt} for row in found.rows]
        return {"type": "dispatch", "resource": found.resource, "token": _token(found.token), "attempts": rows}
    if isinstance(found, Outcome):
        return {
            "type": "outcome",
            "resource": found.resource,
            "token": _token(found.token),
            "attempts": [
                {
                    "index": row.index,
                    "attempt": row.attempt,
                    "verdict": _verdict(row.verdict),
                    "result": json_or_text(row.result),
                    "error": row.error or None,
                    "next_try_ns": row.next_try_ns or None,
                }
                for row in found.rows
            ],
        }
    if isinstance(found, Activation):
        return {
            "type": "activation",
            "resource": found.resource,
            "token": _token(found.token),
            "holder": found.holder,
            "guarantee": found.guarantee,
        }
    assert isinstance(found, Election)
    stages = [{"stage": stage.stage, "seconds": stage.seconds} for stage in found.stages]
    return {"type": "election", "node": found.node, "token": _token(found.token), "stages": stages}


def _token(token: FencingToken) -> dict[str, str] | None:
    return token_json(token)


def _verdict(number: int) -> str:
    try:
        return Verdict(number).name.lower().replace("_", "-")
    except ValueError:
        return str(number)


def summary(row: Mapping[str, Any]) -> str:
    """The content of :func:`entry_json` in one line."""
    content = row["content"]
    match content["type"]:
        case "command":
            lane = f" lane {content['lane']}" if content["lane"] else ""
            return f"command {content['id']}: {content['resource']} {content['effect']}{lane}"
        case "dispatch":
            return f"dispatch {content['resource']} {token_text(content['token'])}: {_attempts(content)}"
        case "outcome":
            return f"outcome {content['resource']} {token_text(content['token'])}: {_attempts(content)}"
        case "activation":
            return f"activation {content['resource']} {token_text(content['token'])} by {content['holder']}"
        case "election":
            seconds = sum(stage["seconds"] for stage in content["stages"])
            return f"election of {content['node']} {token_text(content['token'])}, {seconds:.3f} s"
        case "configuration":
            return f"configuration: voters {' '.join(content['voters'])}" + _rest(content)
        case "embedded":
            return f"embedded, {row['bytes']} bytes"
        case "no-op":
            return "no-op: a leader begins its term"
    return f"unknown: {content['unknown']}"


def _attempts(content: Mapping[str, Any]) -> str:
    rows = content["attempts"]
    shown = [
        f"{row['index']}/{row['attempt']}" + (f" {row['verdict']}" if "verdict" in row else "") for row in rows[:4]
    ]
    return ", ".join(shown) + (f" and {len(rows) - 4} more" if len(rows) > 4 else "")


def _rest(content: Mapping[str, Any]) -> str:
    parts = [f", {part} {' '.join(content[part])}" for part in ("outgoing", "learners", "retired") if content[part]]
    return "".join(parts)
