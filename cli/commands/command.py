"""``fencepost command list|show|watch``: commands and what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ...raft.core.errors import CheckFailed, CommandFailed
from ...raft.outbox.operation import TERMINAL, OperationState
from ..app import FencepostCommand, Session, current_session, run_async
from ..output import Column, Renderer, token_text
from ..payload import quoted

if TYPE_CHECKING:
    from ...transport.client import Client

PAGE = 500
POLL_S = 0.1


def _list_columns(render: Renderer) -> list[Column]:
    return [
        Column.of("id"),
        Column.of("resource"),
        Column.of("effect"),
        Column.of("lane"),
        Column.of("state"),
        Column.of("index"),
        Column.of("attempt"),
        Column("token", lambda row: token_text(row.get("token"))),
        Column("submitted", lambda row: render.time(row.get("submitted_ns"))),
        Column.of("error"),
    ]


@click.command(
    "list",
    cls=FencepostCommand,
    examples=("fencepost command list", "fencepost command list --state failed --resource ledger --limit 20"),
    help="Commands in log order, as the leader knows them.",
)
@click.option("--state", type=click.Choice([state.value for state in OperationState]), help="Only this state.")
@click.option("--resource", help="Only this resource.")
@click.option("--lane", help="Only this lane.")
@click.option("-n", "--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@click.option("--after-index", type=click.IntRange(0), default=0, help="Only those after this log index.")
def list_commands(state: str | None, resource: str | None, lane: str | None, limit: int, after_index: int) -> None:
    wanted = {"state": state, "resource": resource, "lane": lane}
    filters = {key: value for key, value in wanted.items() if value is not None}
    run_async(lambda: _list(current_session(), filters, limit, after_index))


async def _list(session: Session, filters: Mapping[str, Any], limit: int, after: int) -> None:
    found: list[dict[str, Any]] = []
    following: int | None = after
    async with session.client(timeout_s=10.0) as client:
        while following is not None and len(found) < limit:
            parameters = {**filters, "limit": min(PAGE, limit - len(found)), "after_index": following}
            page = await client.call("command.list", parameters, leader=True)
            found += page["commands"]
            following = page["next_after"] or None  # a page may be short, even empty, and others follow
    render = session.render
    more = following is not None
    footer = [f"more: --after-index {following}"] if more else []
    body = {"items": found, "next_after_index": following if more else None}
    render.show("CommandList", body, _list_columns(render), rows="items", footer=footer)
    if more and render.format in ("tsv", "jsonl"):
        # Rows alone have no place to say that they are not all of them.
        render.notice(footer[0])


@click.command(
    cls=FencepostCommand,
    examples=("fencepost command show order-1001", "fencepost command show order-1001 --history"),
    short_help="One command, with --history step by step.",
    help="One command: its state, result, and with --history every step with attempt and token.",
)
@click.argument("operation_id", metavar="ID")
@click.option("--history", is_flag=True, help="Show every step of its life.")
def show(operation_id: str, history: bool) -> None:
    run_async(lambda: _show(current_session(), operation_id, history))


async def _show(session: Session, operation_id: str, history: bool) -> None:
    async with session.client(timeout_s=10.0) as client:
        found = dict(await get_command(client, operation_id))
    rows = found.get("history") or []
    if not history:
        found.pop("history", None)
    render = session.render
    if history and render.format == "tsv":
        render.show("CommandHistory", {"items": rows}, _history_columns(render), rows="items")
        return
    render.show("Command", found, _show_columns(render))
    if history and render.format == "table":
        render.line("")
        render.show("CommandHistory", {"items": rows}, _history_columns(render), rows="items")


async def get_command(client: Client, operation_id: str) -> Mapping[str, Any]:
    """The body of ``command.get``. Raises NotFound."""
    found = await client.call("command.get", {"id": operation_id}, leader=True)
    assert isinstance(found, dict)
    return found


def _show_columns(render: Renderer) -> list[Column]:
    return [
        Column.of("id"),
        Column.of("resource"),
        Column.of("effect"),
        Column.of("lane"),
        Column.of("state"),
        Column.of("index"),
        Column.of("term"),
        Column.of("attempt"),
        Column("token", lambda row: token_text(row.get("token"))),
        Column("submitted", lambda row: render.time(row.get("submitted_ns"))),
        Column("due", lambda row: render.time(row.get("not_before_ns"))),
        Column("deadline", lambda row: render.time(row.get("deadline_ns"))),
        Column("unwanted", lambda row: render.time(row.get("cancel_asked_ns"))),
        Column("finished", lambda row: render.time(row.get("finished_ns"))),
        Column.of("result"),
        Column.of("error"),
        Column("waits for", lambda row: row.get("waiting_reason")),
        Column.of("payload"),
    ]


def _history_columns(render: Renderer) -> list[Column]:
    return [
        Column.of("index"),
        Column("time", lambda row: render.time(row.get("time_ns"))),
        Column.of("state"),
        Column("attempt", lambda row: row.get("attempt") or None),
        Column("token", lambda row: token_text(row.get("token"))),
        Column.of("note"),
    ]


@click.command(
    cls=FencepostCommand,
    examples=("fencepost command watch order-1001", "fencepost command watch order-1001 --timeout 10s -o jsonl"),
    short_help="Follow one command to its end.",
    help="Print every step of one command until it has ended. Exit code 0 when it succeeded, 8 when it failed or "
    "did not end within --timeout (default: no limit).",
)
@click.argument("operation_id", metavar="ID")
def watch(operation_id: str) -> None:
    run_async(lambda: _watch(current_session(), operation_id))


async def _watch(session: Session, operation_id: str) -> None:
    render = session.render
    columns = _history_columns(render)
    seen = 0
    last = "unknown"
    limit_ns = session.settings.timeout_ns
    try:
        async with asyncio.timeout(None if limit_ns is None else limit_ns / 1e9), session.client() as client:
            while not render.closed:
                found = await get_command(client, operation_id)
                rows = found.get("history") or []
                for row in rows[seen:]:
                    _show_step(render, row, columns, first=seen == 0)
                    seen += 1
                last = str(found["state"])
                if last in TERMINAL:
                    break
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise CheckFailed(
            f"command {operation_id} is {last} and did not end in time",
            next_step=f"fencepost command show {quoted(operation_id)} --history",
        ) from None
    if last in TERMINAL and last != OperationState.SUCCEEDED:
        raise CommandFailed(
            f"command {operation_id} was committed and is {last}: {found.get('error') or 'no reason given'}",
            next_step=f"fencepost command show {quoted(operation_id)} --history",
        )


def _show_step(render: Renderer, row: Mapping[str, Any], columns: list[Column], *, first: bool) -> None:
    if render.format in ("json", "jsonl"):
        # A stream of documents: one a line, whichever of the two was asked for.
        render.stream("CommandStep", row)
        return
    render.stream_row([column.title for column in columns] if first else None, [c.read(row) for c in columns])
