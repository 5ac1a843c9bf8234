"""``fencepost resource mode``: how strictly a resource treats writes without a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ..app import FencepostCommand, Session, current_session, run_async
from ..output import Column
from ..settings import PAUSE, format_duration
from .parameters import SettingType

_COLUMNS = (
    Column.of("resource"),
    Column.of("mode"),
    Column("unfenced", lambda row: row["unfenced"]),
    Column("would reject", lambda row: row["would_reject"]),
    Column("guarded", lambda row: " ".join(row["guarded"])),
    Column("said", lambda row: said(row)),
)


@click.command(
    cls=FencepostCommand,
    examples=("fencepost resource mode ledger", "fencepost resource mode ledger observe"),
    short_help="How a resource treats writes without a token.",
    help="Show how a resource treats writes that show no token, or take it one step further: from off to observe, "
    "which counts them, and from observe to enforce, which refuses them. There is no way back. To enforce, nobody may "
    "have written without a token for as long as --after says.",
)
@click.argument("name", metavar="NAME")
@click.argument("wanted", metavar="[observe|enforce]", type=click.Choice(["observe", "enforce"]), required=False)
@click.option(
    "--after",
    type=SettingType(PAUSE),
    default="24h",
    show_default=True,
    metavar="DURATION",
    help="For enforce: refuse unless so long nobody has written without a token.",
)
def mode(name: str, wanted: str | None, after: int) -> None:
    run_async(lambda: _mode(current_session(), name, wanted or "", after))


async def _mode(session: Session, name: str, wanted: str, after_ns: int) -> None:
    async with session.client(timeout_s=10.0) as client:
        parameters = {"resource": name, "mode": wanted, "quiet_ns": after_ns}
        # Repeating it is harmless: a step that was made is made.
        answer = await client.call("resource.mode", parameters, leader=True)
    body = {key: value for key, value in answer.items() if key != "read"}
    session.render.show("ResourceMode", body, _COLUMNS)
    if body["unguarded"]:
        session.render.warning(f"effects write to {', '.join(body['unguarded'])}, where nobody can look")


def said(row: Mapping[str, Any]) -> str:
    """In words, what an operator asks before the next step."""
    if row["mode"] == "off":
        return "nobody looks for writes without a token"
    quiet_ns = row["now_ns"] - (row["last_unfenced_ns"] or row["observed_ns"])
    quiet = format_duration(max(quiet_ns // 1_000_000_000, 0) * 1_000_000_000)
    if row["last_unfenced_ns"]:
        found = f"no unfenced write for {quiet}"
    else:
        found = f"no unfenced write since it was first looked for, {quiet} ago"
    return found if row["mode"] == "observe" else f"writes without a token are refused; {found} before and since"
