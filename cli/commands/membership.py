"""What the nodes' own answers to ``status`` say of the members of their cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_PARTS = ("voters", "outgoing", "learners")


def members_by(bodies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """``{"voters", "outgoing", "learners", "joint"}`` as whoever knows most has them: a leader, else the
    longest log. Nobody, where nobody answered."""
    newest: Mapping[str, Any] = max(
        bodies, key=lambda body: (body["term"], body["role"] == "leader", body.get("last_index") or 0), default={}
    )
    return {**{part: list(newest.get(part) or ()) for part in _PARTS}, "joint": bool(newest.get("joint"))}


def part_of(body: Mapping[str, Any], members: Mapping[str, Any]) -> str:
    """What a node is instead of its role, where that says more; else the empty string."""
    node = body["node_id"]
    if not any(body.get(part) for part in _PARTS):
        return "waiting"
    if not any(members[part] for part in _PARTS) or body["role"] == "leader":
        return ""
    if node in members["learners"]:
        return "learner"
    return "" if node in members["voters"] or node in members["outgoing"] else "no member"


def sent_snapshots(body: Mapping[str, Any]) -> list[str]:
    """Who is being sent a snapshot by this node, and how much of it has arrived."""
    found = []
    for peer, link in (body.get("peers") or {}).items():
        snapshot = link.get("snapshot")
        if snapshot:
            share = snapshot["received_bytes"] * 100 // max(snapshot["size_bytes"], 1)
            found.append(f"{peer} is being sent a snapshot of {snapshot['size_bytes']:,} bytes: {share}%")
    return found


def member_lines(members: Mapping[str, Any]) -> list[str]:
    """What is unusual about the members, a line each."""
    lines = []
    if members["joint"]:
        came, gone = " ".join(members["voters"]), " ".join(members["outgoing"])
        lines.append(f"a change of members is under way: from {gone} to {came}")
    if members["learners"]:
        lines.append(f"learners, which decide nothing: {' '.join(members['learners'])}")
    return lines


def unlisted(bodies: Sequence[Mapping[str, Any]], members: Mapping[str, Any], endpoints: Sequence[str]) -> list[str]:
    """Members that were not asked because no endpoint is theirs."""
    addresses: dict[str, str] = {}
    for body in bodies:
        for peer, link in (body.get("peers") or {}).items():
            addresses[peer] = link.get("client_address") or addresses.get(peer, "")
    answered = {body["node_id"] for body in bodies}
    asked = dict.fromkeys(node for part in _PARTS for node in members[part] if node not in answered)
    return [
        f"{node} is a member, and its address {address} is none of the endpoints: add it to them"
        for node in asked
        if (address := addresses.get(node, "")) and address not in endpoints
    ]
