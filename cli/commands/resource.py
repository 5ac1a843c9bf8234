"""``fencepost resource fences``: the highest token each resource has accepted."""

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
