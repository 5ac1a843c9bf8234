"""``fencepost check``: questions with a yes or a no, for scripts, probes and whoever is about to stop a node.

Each asks once. ``fencepost wait`` asks until it holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ...raft.core.errors import CheckFailed, FencepostError, NoEndpoint, NotFound
from ..app import FencepostCommand, Session, current_session, run_async
from ..output import Column, token_text
from .member import members_of
from .status import raise_for, summarise
from .wait import QUESTION_TIMEOUT_S

HEARD_S = 5.0
"""A voter that has answered its leader nothing for longer does not count as there."""
LAG_ENTRIES_MAX = 10_000
"""What a follower may lack and still count as ready (``/readyz``)."""

_COLUMNS = (
    Column.of("what", "name"),
    Column.of("ok"),
    Column.of("found"),
)

Row = dict[str, Any]


def _row(name: str, ok: bool, found: str, **more: Any) -> Row:
    return {"name": name, "ok": ok, "found": found, **more}


def _show(session: Session, check: str, rows: Sequence[Row], failed: str, next_step: str) -> None:
    """The rows, then whether all are well. Raises CheckFailed that says ``failed`` and which are not."""
    bad = [row["name"] for row in rows if not row["ok"]]
    session.render.show("Check", {"check": check, "ok": not bad, "items": list(rows)}, _COLUMNS, rows="items")
    if bad:
        raise CheckFailed(f"{failed}: {', '.join(bad)}", next_step=next_step)


# -- live and ready ---------------------------------------------------------------------------------


@click.command(
    cls=FencepostCommand,
    examples=("fencepost check live", "fencepost check live -o json"),
    short_help="Whether every endpoint answers.",
    help="Whether every endpoint answers. That says that the processes live and nothing of the cluster: a node "
    "without a quorum is alive, and to restart it makes nothing better. Exit code 8 when one does not answer, 3 when "
    "none does.",
)
def live() -> None:
    run_async(lambda: _live(current_session()))


async def _live(session: Session) -> None:
    rows = []
    answers = await _ask_all(session)
    for endpoint, answer in answers.items():
        if isinstance(answer, FencepostError):
            rows.append(_row(endpoint, False, answer.message.removeprefix(f"{endpoint} ")))
        else:
            rows.append(_row(endpoint, True, f"{answer['node_id']}, {answer['role']} in term {answer['term']}"))
    if not any(row["ok"] for row in rows):
        raise NoEndpoint(
            "no node could be reached; nothing was sent",
            tried=[f"{row['name']}  {row['found']}" for row in rows],
            next_step="check --endpoints, and that the nodes run",
        )
    _show(session, "live", rows, "no answer from", "fencepost status")


@click.command(
    cls=FencepostCommand,
    examples=("fencepost check ready", "fencepost check ready --timeout 1s -o json"),
    short_help="Whether commands are being executed.",
    help="Whether commands are being executed: a confirmed leader, and every required resource active there. A "
    "resource that is not required is shown, and is no failure. Exit code 8 when not, 4 when there is no leader.",
)
def ready() -> None:
    run_async(lambda: _ready(current_session()))


async def _ready(session: Session) -> None:
    answers = await _ask_all(session)
    body = summarise(answers)
    raise_for(body, answers)
    leader = body["leader"]
    word = "confirmed" if leader["confirmed"] else "unconfirmed"
    rows = [_row("leader", leader["confirmed"], f"{leader['node']} in term {leader['term']}, {word}")]
    answer = next((row for row in body["nodes"] if row["node"] == leader["node"]), None)
    for name, resource in sorted((answer["resources"] if answer else {}).items()):
        required = resource.get("required", True)
        said = f"{resource['activation']}: {resource['last_error']}".removesuffix(": ")
        active = str(resource["activation"]).upper() == "ACTIVE"
        rows.append(_row(f"resource {name}", active or not required, said if required else f"{said} (not required)"))
    _show(session, "ready", rows, "not ready", "fencepost wait --for ready")


async def _ask_all(session: Session) -> dict[str, Any]:
    async with session.client(timeout_s=QUESTION_TIMEOUT_S) as client:
        return dict(await client.call_all("status", {}))


# -- how far, and how many --------------------------------------------------------------------------


@click.command(
    cls=FencepostCommand,
    examples=("fencepost check lag", "fencepost check lag --entries 100 -o json"),
    short_help="Whether every member keeps up.",
    help="Whether every member has the log of the leader and has heard of it lately, as the leader knows it. Exit code "
    f"8 when one lacks more than --entries, or has answered nothing for {HEARD_S:g} s.",
)
@click.option(
    "--entries",
    type=click.IntRange(0),
    default=LAG_ENTRIES_MAX,
    show_default=True,
    help="So many entries may be missing.",
)
def lag(entries: int) -> None:
    run_async(lambda: _lag(current_session(), entries))


async def _lag(session: Session, entries: int) -> None:
    async with session.client(timeout_s=10.0) as client:
        members = (await members_of(client))["members"]
    rows = []
    for member in members:
        behind = 0 if member["leader"] else member["behind"]
        there, said = _is_there(member)
        found = f"{said}; lacks {behind} entries"
        rows.append(_row(member["node"], there and behind <= entries, found, behind=behind, part=member["part"]))
    _show(session, "lag", rows, "behind, or not heard of", "fencepost member list")


def _is_there(member: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether a member answers its leader, and how one says so."""
    if member["leader"]:
        return True, "leads"
    heard = member["last_contact_s"]
    if heard is None:
        return False, "never heard of"
    return bool(member["connected"]) and heard <= HEARD_S, f"heard {heard:.1f} s ago"


@click.command(
    "quorum-critical",
    cls=FencepostCommand,
    examples=("fencepost check quorum-critical n3", "fencepost check quorum-critical n3 -o json"),
    short_help="Whether the cluster can spare a node.",
    help="Whether the others are a majority without NODE, as the leader knows them: whether it may be stopped now. "
    f"A voter that has answered nothing for {HEARD_S:g} s does not count. Exit code 8 when NODE is needed.",
)
@click.argument("node")
def quorum_critical(node: str) -> None:
    run_async(lambda: _quorum_critical(current_session(), node))


async def _quorum_critical(session: Session, node: str) -> None:
    async with session.client(timeout_s=10.0) as client:
        body = await members_of(client)
    members = {member["node"]: member for member in body["members"]}
    if node not in members:
        raise NotFound(f"{node} is no member of this cluster", next_step="fencepost member list")
    there = {name for name, member in members.items() if name != node and _is_there(member)[0]}
    rows = []
    configuration = body["configuration"]
    for name in ("voters", "outgoing"):
        voters = configuration.get(name) or []
        if not voters:
            continue
        left = [voter for voter in voters if voter in there]
        needed = len(voters) // 2 + 1
        enough = node not in voters or len(left) >= needed
        role = "" if node in voters else f"; {node} has no vote there"
        rows.append(_row(name, enough, f"{len(left)} of {len(voters)} without it, {needed} needed{role}", left=left))
    if members[node]["leader"]:
        rows.append(_row("leader", True, f"{node} leads: fencepost cluster transfer-leader first costs less"))
    _show(session, "quorum-critical", rows, f"without {node} there is no majority of", "fencepost member list")


# -- the fences -------------------------------------------------------------------------------------


@click.command(
    cls=FencepostCommand,
    examples=("fencepost check fences", "fencepost check fences -o json"),
    short_help="Whether every fence stands at the leader's token.",
    help="Whether the fence of every resource, read there, stands at the token that the leader acts under. A lower one "
    "lets a former leader through, a higher one refuses this leader. Exit code 8 when one differs or cannot be read.",
)
def fences() -> None:
    run_async(lambda: _fences(current_session()))


async def _fences(session: Session) -> None:
    async with session.client(timeout_s=10.0) as client:
        answer = await client.call("resource.fences", {}, leader=True)
    rows = []
    for name, fence in answer["resources"].items():
        wanted, token = fence["leader_token"], fence["token"]
        if fence["error"]:
            found = fence["error"]
        elif token is None:
            found = "never claimed"
        elif wanted is None or token == wanted:
            found = f"{token_text(token)}, held by {fence['holder']}"
        else:
            found = f"stands at {token_text(token)}, and the leader acts under {token_text(wanted)}"
        ok = not fence["error"] and token is not None and token == wanted
        rows.append(_row(name, ok, found, guarantee=fence["guarantee"], token=token, leader_token=wanted))
    _show(session, "fences", rows, "not the leader's fence", "fencepost resource fences")
