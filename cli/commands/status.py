"""``fencepost status``: what every node says, and how far it is confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ...raft.core.errors import FencepostError, NoEndpoint, NoLeader
from ..app import FencepostCommand, Session, current_session, run_async
from ..output import Column, Renderer
from ..settings import DURATION, format_duration
from .membership import member_lines, members_by, part_of, sent_snapshots, unlisted
from .parameters import SettingType

_COLUMNS = (
    Column.of("endpoint"),
    Column.of("node"),
    Column("role", lambda row: (row["part"] or row["role"]) if row["reachable"] else "unreachable"),
    Column.of("term"),
    Column.of("leader"),
    Column.of("commit"),
    Column.of("applied"),
    Column("snapshot", lambda row: row["snapshot_index"] or None),
    Column("resources", lambda row: " ".join(f"{name}:{state}" for name, state in row["activation"].items())),
    Column("pending", lambda row: row["pending"]),
    Column("note", lambda row: row["error"]),
)


@click.command(
    cls=FencepostCommand,
    examples=("fencepost status", "fencepost status -o json"),
    help="Ask every endpoint and show the cluster. A leader is confirmed when it answers itself and a majority of the "
    "voters name it, or it heard a quorum within its lease; anything less is labelled. Exit code 3 when nothing "
    "answers, 4 when there is no leader.",
)
@click.option("--watch", is_flag=True, help="Refresh until interrupted.")
@click.option(
    "--interval",
    type=SettingType(DURATION),
    default="1s",
    show_default=True,
    metavar="DURATION",
    help="Pause between refreshes of --watch.",
)
def status(watch: bool, interval: int) -> None:
    run_async(lambda: _status(current_session(), watch, interval / 1e9))


async def _status(session: Session, watch: bool, interval_s: float) -> None:
    async with session.client(timeout_s=2.0) as client:
        while True:
            answers = await client.call_all("status", {})
            body = summarise(answers)
            if watch:
                session.render.clear()
            show(session.render, body)
            if not watch:
                raise_for(body, answers)
                return
            if session.render.closed:
                return
            await asyncio.sleep(interval_s)


def show(render: Renderer, body: Mapping[str, Any]) -> None:
    footer = [_leader_line(body), *member_lines(body["members"]), *_election_line(body), *_outbox_line(body)]
    render.show("Status", body, _COLUMNS, rows="nodes", footer=footer)
    for warning in body["warnings"]:
        render.warning(warning)


def summarise(answers: Mapping[str, Any]) -> dict[str, Any]:
    """The document of ``status``: a row per endpoint, and the leader as far as it is confirmed."""
    bodies = [answer for answer in answers.values() if not isinstance(answer, FencepostError)]
    members = members_by(bodies)
    return {
        "leader": _leader(bodies, answers),
        "nodes": [_row(endpoint, answer, members) for endpoint, answer in answers.items()],
        "members": members,
        "last_election": _last_election(bodies),
        "outbox": _outbox(bodies),
        "warnings": [*_warnings(bodies), *unlisted(bodies, members, list(answers))],
    }


def _row(endpoint: str, answer: Any, members: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(answer, FencepostError):
        return {
            "endpoint": endpoint, "reachable": False, "node": None, "role": None, "part": None, "term": None,
            "leader": None, "commit": None, "applied": None, "snapshot_index": None, "activation": {},
            "pending": None, "error": _said(endpoint, answer), "resources": {}, "peers": {}, "disk": {},
            "state_digest": None, "outbox": {},
        }  # fmt: skip
    resources = answer.get("resources") or {}
    errors = [f"{name}: {each['last_error']}" for name, each in resources.items() if each.get("last_error")]
    undefined = answer.get("undefined") or {}
    errors += [f"{name}: not defined here, and {count} waiting for it" for name, count in undefined.items()]
    errors += _differences(answer.get("state_digest"))
    errors += [*sent_snapshots(answer), *([f"hands over to {to}"] if (to := answer.get("transfer_to")) else [])]
    return {
        "endpoint": endpoint,
        "reachable": True,
        "node": answer["node_id"],
        "role": answer["role"],
        "part": part_of(answer, members) or None,
        "term": answer["term"],
        "leader": answer.get("leader") or None,
        "commit": answer["commit_index"],
        "applied": answer["applied_index"],
        "snapshot_index": answer.get("snapshot_index") or 0,
        "first_index": answer.get("first_index"),
        "last_index": answer.get("last_index"),
        "activation": {name: str(each.get("activation", "")) for name, each in resources.items()},
        "pending": sum(int(each.get("pending") or 0) for each in resources.values()) + sum(undefined.values()),
        "error": "; ".join(errors) or None,
        "resources": resources,
        "peers": answer.get("peers") or {},
        "disk": answer.get("disk") or {},
        "state_digest": answer.get("state_digest"),
        "outbox": answer.get("outbox") or {},
        "uptime_s": answer.get("uptime_s"),
        "pid": answer.get("pid"),
        "version": answer.get("version"),
    }


def _differences(digest: Mapping[str, Any] | None) -> list[str]:
    """Whether this node has found another state on some other node since it was started."""
    if not digest or not digest["differences"]:
        return []
    return [f"its state differs from another node's ({digest['differences']} times): fencepost explain STATE_DIVERGED"]


def _said(endpoint: str, error: FencepostError) -> str:
    """What came of asking, without the address that stands beside it."""
    said = error.message.removeprefix(f"{endpoint} ").removeprefix("could not be reached: ")
    return said.replace("no endpoint answered status", "no answer")


def _leader(bodies: Sequence[Mapping[str, Any]], answers: Mapping[str, Any]) -> dict[str, Any] | None:
    """Who leads in the highest term that anyone knows a leader of."""
    claims = [body for body in bodies if body.get("leader")]
    if not claims:
        return None
    newest = max(claims, key=lambda body: (body["term"], body["role"] == "leader"))
    term, node = newest["term"], newest["leader"]
    voters, outgoing = list(newest.get("voters") or ()), list(newest.get("outgoing") or ())
    agree = {body["node_id"] for body in bodies if (body["term"], body.get("leader")) == (term, node)}
    # A node that answered with a higher term has moved on: the claim is about the past.
    highest = max(body["term"] for body in bodies)
    own = [body for body in bodies if (body["node_id"], body["role"], body["term"]) == (node, "leader", term)]
    # A majority that names it now, or its own word that a quorum followed it within the lease.
    named = all(len(agree & set(part)) > len(part) // 2 for part in (voters, outgoing) if part)
    held = named or any(body.get("confirmed") for body in own)
    address = newest.get("leader_client_address") or None
    return {
        "node": node,
        "term": term,
        "confirmed": bool(own) and highest == term and held,
        "agree": len(agree & set(voters)),
        "voters": len(voters),
        "address": address,
        "gone": not own and (highest > term or isinstance(answers.get(str(address)), FencepostError)),
    }


def _leader_line(body: Mapping[str, Any]) -> str:
    leader = body["leader"]
    if leader is None:
        return "no leader"
    named = f"{leader['agree']} of {leader['voters']} voters"
    if leader["confirmed"]:
        return f"leader {leader['node']} in term {leader['term']}, confirmed; named by {named}"
    why = "and it does not answer itself" if leader["gone"] else "which is no majority"
    return f"leader {leader['node']} in term {leader['term']}, UNCONFIRMED: named by {named}, {why}"


def _last_election(bodies: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    known = [body["last_election"] for body in bodies if body.get("last_election")]
    return max(known, key=lambda each: int(each["token"]["term"])) if known else None


def _election_line(body: Mapping[str, Any]) -> list[str]:
    last = body["last_election"]
    if last is None:
        return []
    stages = ", ".join(f"{stage['stage']} {stage['seconds']:.3f} s" for stage in last["stages"])
    return [f"last election: {last['node']} in term {last['token']['term']}: {stages}"]


def _outbox(bodies: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What is remembered, as whoever has applied most has it."""
    known = [body for body in bodies if body.get("outbox")]
    return dict(max(known, key=lambda body: int(body["applied_index"]))["outbox"]) if known else None


def _outbox_line(body: Mapping[str, Any]) -> list[str]:
    outbox = body["outbox"]
    if outbox is None:
        return []
    kept = f"{outbox['operations']:,} remembered, {outbox['forgotten']:,} forgotten"
    return [f"commands: {kept}; retention {_retention_text(outbox['retention_ns'], outbox['retention_count'])}"]


def _retention_text(window_ns: int, ended_max: int) -> str:
    window = [format_duration(window_ns)] if window_ns else []
    return " or ".join([*window, *([f"{ended_max:,} that have ended"] if ended_max else [])]) or "for ever"


def _warnings(bodies: Sequence[Mapping[str, Any]]) -> list[str]:
    found: list[str] = []
    for key, what in (
        ("cluster_id", "the endpoints belong to different clusters"),
        ("incarnation", "the nodes are of different incarnations of the cluster, and refuse each other"),
        ("definitions_digest", "the nodes' resource and effect definitions differ"),
    ):
        groups: dict[str, list[str]] = {}
        for body in bodies:
            groups.setdefault(str(body.get(key, "")), []).append(str(body["node_id"]))
        if len(groups) > 1:
            found.append(f"{what}: " + "; ".join(f"{', '.join(nodes)} {value}" for value, nodes in groups.items()))
    found += _different_settings(bodies)
    for body in bodies:
        disk = body.get("disk") or {}
        if disk.get("low"):
            reserve = "" if disk.get("reserve_held") else ", and the reserve is used up"
            found.append(f"{body['node_id']} has {disk['free_bytes'] >> 20} MiB left on its disk{reserve}")
    return found


def _different_settings(bodies: Sequence[Mapping[str, Any]]) -> list[str]:
    """What has to be alike in the files of all nodes, and is not."""
    found = []
    for key, what, text in (
        # Each leader sets its own, so what is remembered would change with the leader.
        ("retention_wanted", "[outbox] retention differs, and the leader's counts", _retention_wanted),
        # A leader trusts its lease for its own election timeout, and others wait for theirs (S49).
        ("timing", "[raft] times differ, and a leader may trust itself for longer than others wait", _timing_text),
    ):
        groups: dict[str, list[str]] = {}
        for body in bodies:
            if body.get(key) is not None:
                groups.setdefault(text(body[key]), []).append(str(body["node_id"]))
        if len(groups) > 1:
            different = "; ".join(f"{', '.join(nodes)} {value}" for value, nodes in groups.items())
            found.append(f"the nodes' {what}: {different}")
    return found


def _retention_wanted(wanted: Mapping[str, int]) -> str:
    return _retention_text(wanted["window_ns"], wanted["ended_max"])


def _timing_text(timing: Mapping[str, int]) -> str:
    election, heartbeat = timing["election_timeout_ns"], timing["heartbeat_ns"]
    return f"{format_duration(election)} with heartbeats of {format_duration(heartbeat)}"


def raise_for(body: Mapping[str, Any], answers: Mapping[str, Any]) -> None:
    """Raise NoEndpoint or NoLeader when that is what ``body`` says."""
    tried = []
    for endpoint, answer in answers.items():
        if isinstance(answer, FencepostError):
            tried.append(f"{endpoint}  {_said(endpoint, answer)}")
        else:
            leader = f", last leader {answer['leader']}" if answer.get("leader") else ""
            tried.append(f"{endpoint}  up, {answer['role']} in term {answer['term']}{leader}")
    if not any(row["reachable"] for row in body["nodes"]):
        raise NoEndpoint(
            "no node could be reached; nothing was sent",
            tried=tried,
            next_step="check --endpoints, and that the nodes run",
        )
    leader = body["leader"]
    if leader is None or leader["gone"]:
        raise NoLeader(
            "no leader, and nothing can be committed until there is one",
            tried=tried,
            next_step="a majority of the voters must be up; start those that are down",
        )
