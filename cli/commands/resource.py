"""``fencepost resource list|fences|claim``: the protected resources, and their fences."""

from __future__ import annotations

from typing import Any

import click

from ..app import FencepostCommand, Session, current_session, run_async
from ..output import Column, token_text

_COLUMNS = (
    Column.of("resource", "name"),
    Column.of("kind"),
    Column.of("guarantee"),
    Column("token", lambda row: token_text(row.get("token"))),
    Column.of("holder"),
    Column.of("activation"),
    Column.of("error"),
)


@click.command(
    cls=FencepostCommand,
    examples=("fencepost resource fences", "fencepost resource fences -o json"),
    short_help="The fence of every resource.",
    help="The fence of every resource, as the leader reads it there: token (incarnation.term), holder, activation.",
)
def fences() -> None:
    run_async(lambda: _fences(current_session()))


async def _fences(session: Session) -> None:
    async with session.client(timeout_s=10.0) as client:
        answer = await client.call("resource.fences", {}, leader=True)
    rows: list[dict[str, Any]] = [{"name": name, **each} for name, each in answer["resources"].items()]
    session.render.show("ResourceFenceList", {"items": rows}, _COLUMNS, rows="items")


_LIST_COLUMNS = (
    Column.of("resource", "name"),
    Column.of("kind"),
    Column.of("guarantee"),
    Column.of("activation"),
    Column("token", lambda row: token_text(row.get("token"))),
    Column.of("pending"),
    Column.of("under way", "in_flight"),
    Column.of("dead"),
    Column.of("in doubt", "in_doubt"),
    Column.of("error", "last_error"),
)


@click.command(
    "list",
    cls=FencepostCommand,
    examples=("fencepost resource list", "fencepost resource list -o json"),
    short_help="Every resource, and how it is.",
    help="Every resource as the leader has it: what it guarantees, whether it is active, and how many of its commands "
    "wait, are under way, dead or in doubt.",
)
def list_resources() -> None:
    run_async(lambda: _list(current_session()))


async def _list(session: Session) -> None:
    async with session.client(timeout_s=10.0) as client:
        status = await client.call("status", {}, leader=True)
    rows: list[dict[str, Any]] = [{"name": name, **each} for name, each in sorted(status["resources"].items())]
    session.render.show("ResourceList", {"items": rows}, _LIST_COLUMNS, rows="items")


@click.command(
    cls=FencepostCommand,
    examples=("fencepost resource claim ledger", "fencepost resource claim ledger -o json"),
    short_help="Have the leader claim a fence again.",
    help="Have the leader claim the fence of a resource again. Needed after the resource was restored from a backup of "
    "its own, in which its fence stands lower. Nothing is executed there until the claim has succeeded.",
)
@click.argument("name")
def claim(name: str) -> None:
    run_async(lambda: _claim(current_session(), name))


async def _claim(session: Session, name: str) -> None:
    async with session.client(timeout_s=10.0) as client:
        body = await client.call("resource.claim", {"name": name}, leader=True)
    columns = (Column.of("resource"), Column("token", lambda row: token_text(row.get("token"))))
    session.render.show("ResourceClaim", body, columns)
