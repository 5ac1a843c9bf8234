"""Log entries as people and programs read them: by content, not by bytes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from ..raft.core.configuration import decode_configuration
from ..raft.core.entry import Entry, EntryKind
from ..raft.core.errors import UnknownEntry
from ..raft.core.token import FencingToken, token_json
from ..raft.node.members import configuration_json
from ..raft.outbox.codec import (
    Activation,
    Cancel,
    Command,
    Discard,
    Dispatch,
    Election,
    Expiry,
    Outcome,
    OutcomeRow,
    Redrive,
    Resolve,
    Retention,
    Tick,
    decode,
    json_or_text,
)
from ..raft.outbox.transitions import Finding, Verdict
from .output import token_text
from .settings import format_duration

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
    match decode(data):
        case Command() as found:
            times = {"not_before_ns": found.not_before_ns, "deadline_ns": found.deadline_ns}
            return {
                "type": "command",
                "id": found.operation_id,
                "resource": found.resource,
                "effect": found.effect,
                "lane": found.lane or None,
                "payload": json_or_text(found.payload),
                **{name: time_ns for name, time_ns in times.items() if time_ns},
            }
        case Dispatch(resource, token, rows):
            attempts = [{"index": row.index, "attempt": row.attempt} for row in rows]
            return {"type": "dispatch", "resource": resource, "token": _token(token), "attempts": attempts}
        case Outcome(resource, token, outcomes):
            judged = [_outcome(row) for row in outcomes]
            return {"type": "outcome", "resource": resource, "token": _token(token), "attempts": judged}
        case Activation(resource, token, holder, guarantee):
            body = {"resource": resource, "token": _token(token), "holder": holder, "guarantee": guarantee}
            return {"type": "activation", **body}
        case Election(node, token, stages):
            seconds = [{"stage": stage.stage, "seconds": stage.seconds} for stage in stages]
            return {"type": "election", "node": node, "token": _token(token), "stages": seconds}
        case Cancel(operation_id, token, absent, note):
            return {"type": "cancel", "id": operation_id, "token": _token(token), "absent": absent, "note": note}
        case Redrive(operation_id, note):
            return {"type": "redrive", "id": operation_id, "note": note}
        case Discard(operation_id, note):
            return {"type": "discard", "id": operation_id, "note": note}
        case Resolve(operation_id, finding, attempt, asked_under, result, note):
            return {
                "type": "resolve",
                "id": operation_id,
                "finding": _name(Finding, finding),
                "attempt": attempt or None,
                "token": None if asked_under is None else _token(asked_under),
                "result": json_or_text(result),
                "note": note,
            }
        case Expiry(resource, token, indexes):
            return {"type": "expiry", "resource": resource, "token": _token(token), "indexes": indexes}
        case Tick():
            return {"type": "tick"}
        case Retention(window_ns, ended_max):
            return {"type": "retention", "window_ns": window_ns, "ended_max": ended_max}


def _outcome(row: OutcomeRow) -> dict[str, Any]:
    return {
        "index": row.index,
        "attempt": row.attempt,
        "verdict": _name(Verdict, row.verdict),
        "result": json_or_text(row.result),
        "error": row.error or None,
        "next_try_ns": row.next_try_ns or None,
    }


def _token(token: FencingToken) -> dict[str, str] | None:
    return token_json(token)


def _name(kind: type[IntEnum], number: int) -> str:
    try:
        return kind(number).name.lower().replace("_", "-")
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
        case "cancel" | "redrive" | "discard":
            return f"{content['type']} {content['id']}" + _note(content)
        case "resolve":
            return f"resolve {content['id']} as {content['finding']}" + _note(content)
        case "expiry":
            return f"deadline of {content['resource']}: {', '.join(map(str, content['indexes']))}"
        case "tick":
            return "tick: something waited for this time"
        case "retention":
            window, ended = content["window_ns"], content["ended_max"]
            said = ([format_duration(window)] if window else []) + ([f"{ended:,} that have ended"] if ended else [])
            return f"retention: {' or '.join(said) or 'for ever'}"
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


def _note(content: Mapping[str, Any]) -> str:
    return f": {content['note']}" if content["note"] else ""


def _rest(content: Mapping[str, Any]) -> str:
    parts = [f", {part} {' '.join(content[part])}" for part in ("outgoing", "learners", "retired") if content[part]]
    return "".join(parts)
