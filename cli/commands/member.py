"""``fencepost member list|add|promote|remove``: who is in the cluster, and changing that."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ...raft.core.errors import FencepostError, NotCaughtUp, OutcomeUnknown
from ..app import FencepostCommand, Session, UsageProblem, current_session, run_async
from ..output import Column, HalfDone
from ..settings import parse_address, parse_name
from .cluster import ANYWHERE

if TYPE_CHECKING:
    from ...transport.client import Client

CHANGE_TIMEOUT_S = 60.0
"""How long a change may take unless --timeout says otherwise: a new node has to catch up meanwhile."""
SILENT_S = 5.0
"""A voter that has answered nothing for longer does not count as there when a removal is judged."""

_CHANGE_COLUMNS = (
    Column.of("node"),
    Column.of("part"),
    Column("dry run", lambda row: row["dry_run"] or None),
    Column.of("index"),
    Column.of("term"),
    Column("voters", lambda row: " ".join(row["configuration"]["voters"])),
    Column("learners", lambda row: " ".join(row["configuration"]["learners"])),
    Column("joint", lambda row: row["configuration"]["joint"] or None),
)

_dry_run = click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")


# -- list -------------------------------------------------------------------------------------------


@click.command(
    "list",
    cls=FencepostCommand,
    examples=("fencepost member list", "fencepost member list --stale -o json"),
    short_help="Who is in the cluster, and how far each is.",
    help="Who is in the cluster, and how far each is, as the leader knows it. BEHIND counts the entries that a "
    "member lacks, and LAST HEARD is the age of its last answer.",
)
@click.option("--stale", is_flag=True, help="What any node knows, however old. For a cluster without a leader.")
def list_members(stale: bool) -> None:
    run_async(lambda: _list(current_session(), stale))


async def _list(session: Session, stale: bool) -> None:
    async with session.client(timeout_s=10.0) as client:
        if stale:
            body = await client.call("member.list", {"consistency": "stale"})
        else:
            body = await members_of(client)
    footer = _state_of(body)
    if stale:
        age = body["read"]["age_s"]
        footer.append("not confirmed; " + ("of unknown age" if age is None else f"at most {age:.1f} s old"))
    columns = [
        Column.of("node"),
        Column.of("part"),
        Column("leader", lambda row: row["leader"] or None),
        Column.of("address"),
        Column.of("connected"),
        Column("match", lambda row: row["match_index"]),
        Column.of("behind"),
        Column("last heard", _last_heard),
    ]
    session.render.show("MemberList", {"items": body.pop("members"), **body}, columns, rows="items", footer=footer)


async def members_of(client: Client) -> dict[str, Any]:
    """The body of ``member.list`` as the leader has it, confirmed by a quorum."""
    try:
        return dict(await client.call("member.list", {}, leader=True))
    except FencepostError as error:
        if not error.next_step or error.next_step == "fencepost status":
            error.next_step = "fencepost member list --stale  shows what a node that is up knows"
        raise


def _last_heard(row: Mapping[str, Any]) -> str | None:
    if row["behind"] is None:
        return None  # The leader itself, or nobody who leads was asked.
    return "never" if row["last_contact_s"] is None else f"{row['last_contact_s']:.1f} s ago"


def _state_of(body: Mapping[str, Any]) -> list[str]:
    configuration = body["configuration"]
    lines = [_strength(configuration)]
    if configuration["joint"]:
        lines.append(
            f"a change is under way: from {' '.join(configuration['outgoing'])} to {' '.join(configuration['voters'])}"
        )
    elif not body["committed"]:
        lines.append(f"a change is under way, at index {body['configuration_index']}")
    if configuration["retired"]:
        lines.append(f"removed for good: {' '.join(configuration['retired'])}")
    return lines


def _strength(configuration: Mapping[str, Any]) -> str:
    voters, quorum = len(configuration["voters"]), configuration["quorum"]
    if voters == 1:
        return "1 voter: nothing goes on without it"
    return f"{voters} voters, a majority is {quorum}: {voters - quorum or 'none'} may be lost"


# -- add and promote --------------------------------------------------------------------------------


@click.command(
    cls=FencepostCommand,
    examples=("fencepost member add n4 127.0.0.1:7004", "fencepost member add n5 127.0.0.1:7005 --learner"),
    short_help="Add a node to the cluster.",
    help="Add a node: first as a learner, which receives the log and decides nothing; then, once it has caught up, "
    "as a voter. HOST:PORT is where the other nodes reach it. `fencepost member config` writes the file that it "
    "is started with. A node that does not start stays a learner, and costs nobody anything.",
)
@click.argument("node")
@click.argument("address", metavar="HOST:PORT")
@click.option("--learner", is_flag=True, help="Leave it a learner.")
@_dry_run
def add(node: str, address: str, learner: bool, dry_run: bool) -> None:
    check_new_node(node, address)
    run_async(lambda: _add(current_session(), node, address, learner, dry_run))


def check_new_node(node: str, address: str) -> None:
    """Raises UsageProblem for an id or an address that cannot be one."""
    try:
        parse_name(node)
        parse_address(address)
    except ValueError as error:
        raise UsageProblem(f"{error}; nothing was sent") from error
    if address.rpartition(":")[0] in ANYWHERE:
        raise UsageProblem(
            f"{address}: the other nodes cannot dial that; nothing was sent",
            next_step=f"give the address at which they reach {node}",
        )


async def _add(session: Session, node: str, address: str, learner: bool, dry_run: bool) -> None:
    parameters = {"node": node, "address": address, "learner": learner or not dry_run, "dry_run": dry_run}
    deadline = time.monotonic() + session.settings.timeout_s(CHANGE_TIMEOUT_S)
    async with session.client(timeout_s=CHANGE_TIMEOUT_S) as client:
        done = await change(client, "member.add", parameters, deadline)
        if not learner and not dry_run:
            session.render.notice(f"{node} is a learner, at index {done['index']}; a voter once it has caught up")
            done = await _promote_added(client, node, deadline)
    show_change(session, "add", node, "learner" if learner else "voter", done)


async def _promote_added(client: Client, node: str, deadline: float) -> dict[str, Any]:
    try:
        return await change(client, "member.promote", {"node": node}, deadline)
    except NotCaughtUp as error:
        raise HalfDone(
            f"{node} is a learner and no voter yet: {error.message}",
            tried=error.tried,
            next_step=f"is it started? Then:  fencepost member promote {node}",
        ) from error


@click.command(
    cls=FencepostCommand,
    examples=("fencepost member promote n4", "fencepost member promote n4 --timeout 5m"),
    short_help="Make a learner a voter.",
    help="Make a learner a voter, as soon as it has nearly all of the log and was heard of. Waits for that, "
    "for --timeout at the most (default 60s).",
)
@click.argument("node")
@_dry_run
def promote(node: str, dry_run: bool) -> None:
    run_async(lambda: _promote(current_session(), node, dry_run))


async def _promote(session: Session, node: str, dry_run: bool) -> None:
    deadline = time.monotonic() + session.settings.timeout_s(CHANGE_TIMEOUT_S)
    async with session.client(timeout_s=CHANGE_TIMEOUT_S) as client:
        done = await change(client, "member.promote", {"node": node, "dry_run": dry_run}, deadline)
    show_change(session, "promote", node, "voter", done)


# -- remove -----------------------------------------------------------------------------------------


@click.command(
    cls=FencepostCommand,
    examples=("fencepost member remove n2 --dry-run", "fencepost member remove n2 --yes"),
    short_help="Take a node out of the cluster, for good.",
    help="Take a node out of the cluster, for good: its id is never used again. Asks first, and says what is lost "
    "by it. A node that leads hands leadership over before it goes. Stop its process afterwards.",
)
@click.argument("node")
@_dry_run
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(node: str, dry_run: bool, yes: bool) -> None:
    run_async(lambda: _remove(current_session(), node, dry_run, yes))


async def _remove(session: Session, node: str, dry_run: bool, yes: bool) -> None:
    render = session.render
    limit_s = session.settings.timeout_s(CHANGE_TIMEOUT_S)
    async with session.client(timeout_s=CHANGE_TIMEOUT_S) as client:
        deadline = time.monotonic() + limit_s
        listed = await members_of(client)
        plan = await change(client, "member.remove", {"node": node, "dry_run": True}, deadline)
        warnings = consequences(listed["members"], plan["configuration"], node)
        if dry_run:
            show_change(session, "remove", node, "none", plan, warnings)
            return
        for warning in warnings:
            render.warning(warning)
        if not yes:
            _ask(node)
            deadline = time.monotonic() + limit_s  # Thinking it over takes its time.
        if any(row["leader"] and row["node"] == node for row in listed["members"]):
            moved = await change(client, "cluster.transfer_leader", {}, deadline)
            render.notice(f"{moved['leader']} leads now, in term {moved['term']}")
        done = await change(client, "member.remove", {"node": node}, deadline)
    show_change(session, "remove", node, "none", done, footer=[f"stop the process of {node}: it takes part no more"])


def consequences(members: Sequence[Mapping[str, Any]], after: Mapping[str, Any], node: str) -> list[str]:
    """What an operator should know before ``node`` goes, a sentence each. ``after`` is the configuration then."""
    row = next(row for row in members if row["node"] == node)
    found = [f"{node} is removed for good: no node is ever called {node} again"]
    if row["leader"]:
        found.append(f"{node} leads, and hands leadership over first")
    if row["part"] == "learner":
        return found
    silent = [each["node"] for each in members if each["node"] in after["voters"] and not _answers(each)]
    voters, quorum = len(after["voters"]), after["quorum"]
    if voters - len(silent) < quorum:
        found.append(
            f"NOTHING COULD BE COMMITTED: of the voters left, {', '.join(after['voters'])}, a majority of {quorum} is "
            f"needed, and {', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer"
        )
    elif voters - len(silent) == quorum:
        found.append(f"no failure can be survived then: {quorum} of {voters} voters are needed and no more are there")
    return found


def _answers(row: Mapping[str, Any]) -> bool:
    heard = row["last_contact_s"]
    return bool(row["leader"]) or (bool(row["connected"]) and heard is not None and heard < SILENT_S)


def _ask(node: str) -> None:
    if not sys.stdin.isatty():
        raise UsageProblem(
            f"removing {node} has to be confirmed; nothing was changed",
            next_step=f"fencepost member remove {node} --yes",
        )
    if not click.confirm(f"Remove {node}?", err=True):
        raise click.Abort


# -- what they share --------------------------------------------------------------------------------


async def change(client: Client, method: str, parameters: Mapping[str, Any], deadline: float) -> dict[str, Any]:
    """Ask the leader for a change. It is given a little less time than is left, so that its own word on why
    it did not come to it arrives. Raises what it answers, NoLeader, NoEndpoint or OutcomeUnknown."""
    left_s = max(deadline - time.monotonic(), 0.1)
    asked = {**parameters, "timeout_s": left_s * 0.9}
    try:
        return dict(await client.call(method, asked, leader=True, timeout_s=left_s, idempotent=False))
    except OutcomeUnknown as error:
        if method.startswith("member."):
            error.next_step = "fencepost member list"
        raise


def show_change(
    session: Session,
    action: str,
    node: str,
    part: str,
    done: Mapping[str, Any],
    warnings: Sequence[str] = (),
    footer: Sequence[str] = (),
) -> None:
    configuration = done["configuration"]
    body = {
        "action": action,
        "node": node,
        "part": part,
        "dry_run": bool(done.get("dry_run")),
        "index": done.get("index"),
        "term": done.get("term"),
        "configuration": configuration,
        "warnings": list(warnings),
    }
    session.render.show("MemberChange", body, _CHANGE_COLUMNS, footer=[_strength(configuration), *warnings, *footer])
