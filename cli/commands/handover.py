"""``fencepost cluster transfer-leader|step-down``: leadership given away on purpose."""

from __future__ import annotations

import time
from typing import Any

import click

from ..app import FencepostCommand, Session, current_session, run_async
from ..output import Column
from .member import change

HANDOVER_TIMEOUT_S = 30.0

_COLUMNS = (
    Column.of("leader"),
    Column.of("term"),
    Column("before", lambda row: row["previous_leader"]),
    Column.of("drained"),
    Column("seconds", lambda row: f"{row['seconds']:.3f}"),
)


@click.command(
    "transfer-leader",
    cls=FencepostCommand,
    examples=("fencepost cluster transfer-leader", "fencepost cluster transfer-leader n2"),
    short_help="Hand leadership over.",
    help="Hand leadership over to NODE, or to the voter that has the most of the log. Effects under way are let "
    "finish first, for 3 s at the most; then the target catches up and takes over at once. If it does not, the "
    "leader goes on as before.",
)
@click.argument("node", required=False, default="")
def transfer_leader(node: str) -> None:
    run_async(lambda: _transfer(current_session(), node))


async def _transfer(session: Session, node: str) -> None:
    deadline = time.monotonic() + session.settings.timeout_s(HANDOVER_TIMEOUT_S)
    async with session.client(timeout_s=HANDOVER_TIMEOUT_S) as client:
        before = await client.call("status", {}, leader=True)
        started = time.monotonic()
        if node == before["node_id"]:
            done: dict[str, Any] = {"leader": node, "term": before["term"], "drained": None}
        else:
            done = await change(client, "cluster.transfer_leader", {"target": node}, deadline)
    _show(session, before["node_id"], done, started)


@click.command(
    "step-down",
    cls=FencepostCommand,
    examples=("fencepost cluster step-down", "fencepost cluster step-down --timeout 10s -o json"),
    short_help="Have the leader stop leading.",
    help="Have the leader stop leading at once, with nobody to follow it: the others elect one after an election "
    "timeout. Use `transfer-leader` unless that does not work.",
)
def step_down() -> None:
    run_async(lambda: _step_down(current_session()))


async def _step_down(session: Session) -> None:
    deadline = time.monotonic() + session.settings.timeout_s(HANDOVER_TIMEOUT_S)
    async with session.client(timeout_s=HANDOVER_TIMEOUT_S) as client:
        before = await client.call("status", {}, leader=True)
        started = time.monotonic()
        done = await change(client, "cluster.step_down", {}, deadline)
    _show(session, before["node_id"], done, started)


def _show(session: Session, previous: str, done: dict[str, Any], started: float) -> None:
    body = {
        "leader": done["leader"],
        "term": done["term"],
        "previous_leader": previous,
        "drained": done.get("drained"),
        "seconds": time.monotonic() - started,
    }
    session.render.show("LeadershipChange", body, _COLUMNS)
    if body["drained"] is False:
        session.render.warning("effects were still under way; whether they took effect is for the fence to say")
