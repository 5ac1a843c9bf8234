"""``fencepost cluster events``: who led when, what each change of leader cost, and what nodes say happened to them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from ...raft.core.errors import FencepostError, NoEndpoint
from ..app import FencepostCommand, Session, current_session, run_async
from ..output import Column, Renderer, token_text
from ..settings import DURATION
from .parameters import SettingType

QUESTION_TIMEOUT_S = 2.0

Row = dict[str, Any]


@click.command(
    cls=FencepostCommand,
    examples=("fencepost cluster events", "fencepost cluster events --last 20 -o json"),
    short_help="What happened: elections, activations, refusals.",
    help="What happened, the oldest first: each change of leader with the seconds that its stages took and each "
    "activation, which are in the log; and what every endpoint remembers since it was started: campaigns, hand-overs, "
    "changes of members, and refusals of its token. Times of the former are cluster time, of the latter the node's own "
    "clock. With --follow it goes on until interrupted; an election is shown again when its first effect was made.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on, and show what happens.")
@click.option("--last", type=click.IntRange(0), default=100, show_default=True, help="Only the newest so many.")
@click.option(
    "--interval",
    type=SettingType(DURATION),
    default="500ms",
    show_default=True,
    metavar="DURATION",
    help="Pause between questions of --follow.",
)
def events(follow: bool, last: int, interval: int) -> None:
    run_async(lambda: _events(current_session(), follow, last, interval / 1e9))


async def _events(session: Session, follow: bool, last: int, interval_s: float) -> None:
    render = session.render
    columns = _columns(render)
    async with session.client(timeout_s=QUESTION_TIMEOUT_S) as client:
        answers = dict(await client.call_all("events", {}))
        found = merged(answers)
        if not any(not isinstance(answer, FencepostError) for answer in answers.values()):
            raise NoEndpoint(
                "no node could be reached; nothing was sent",
                tried=[f"{endpoint}  {answer.message}" for endpoint, answer in answers.items()],
                next_step="check --endpoints, and that the nodes run",
            )
        rows = list(found.values())[-last:] if last else []
        if not follow:
            for endpoint, answer in answers.items():
                if isinstance(answer, FencepostError):
                    render.warning(f"{endpoint} does not answer; what happened there is missing")
            render.show("ClusterEventList", {"items": rows}, columns, rows="items")
            return
        seen = set(found)
        _show_rows(render, columns, rows, first=True)
        while not render.closed:
            await asyncio.sleep(interval_s)
            found = merged(dict(await client.call_all("events", {})))
            _show_rows(render, columns, [row for key, row in found.items() if key not in seen], first=False)
            seen |= set(found)


def merged(answers: Mapping[str, Any]) -> dict[tuple[Any, ...], Row]:
    """The rows of all answers in the order of their times, by a key that tells a row that was shown from a new one.

    What is in the log all nodes say alike, and it counts once; of an election that was put on record again, with the
    stages that came later, only the newest."""
    bodies = [answer for answer in answers.values() if not isinstance(answer, FencepostError)]
    elections: dict[tuple[str, str], Mapping[str, Any]] = {}
    for election in _each(bodies, "elections"):
        token = (election["token"]["incarnation"], election["token"]["term"])
        if token not in elections or elections[token]["index"] < election["index"]:
            elections[token] = election
    rows: dict[tuple[Any, ...], Row] = {
        ("elected", *token, len(election["stages"])): _elected(election) for token, election in elections.items()
    }
    rows |= {("activated", each["index"]): _activated(each) for each in _each(bodies, "activations")}
    # A node that was started again counts from one again: the time tells its events from those before.
    rows |= {(each["node"], each["time_ns"], each["number"]): _told(dict(each)) for each in _each(bodies, "happened")}
    return dict(sorted(rows.items(), key=lambda item: (item[1]["time_ns"], item[1]["index"] or 0)))


def _each(bodies: Iterable[Mapping[str, Any]], name: str) -> Iterable[Mapping[str, Any]]:
    return (each for body in bodies for each in body.get(name) or ())


def _row(event: str, said: str, **more: Any) -> Row:
    empty = {"time_ns": 0, "event": event, "node": None, "term": None, "index": None, "resource": None}
    return {**empty, "detail": said, **more}


def _elected(election: Mapping[str, Any]) -> Row:
    stages = ", ".join(f"{stage['stage']} {stage['seconds']:.3f} s" for stage in election["stages"])
    return _row(
        "elected",
        stages,
        time_ns=election["time_ns"],
        node=election["node"],
        term=int(election["token"]["term"]),
        index=election["index"],
        stages=election["stages"],
    )


def _activated(activation: Mapping[str, Any]) -> Row:
    taken = [(activation["returned"], "taken over"), (activation["in_doubt"], "in doubt")]
    said = [f"token {token_text(activation['token'])}", *(f"{count} {what}" for count, what in taken if count)]
    return _row(
        "activated",
        ", ".join(said),
        time_ns=activation["time_ns"],
        node=activation["holder"].partition("/")[0],
        term=int(activation["token"]["term"]),
        index=activation["index"],
        resource=activation["resource"],
        returned=activation["returned"],
        in_doubt=activation["in_doubt"],
    )


def _told(happened: Row) -> Row:
    """What a node says of itself."""
    happened.pop("number")
    event = happened["event"]
    if event == "members":
        named = ((happened[name], name) for name in ("voters", "outgoing", "learners"))
        said = "; ".join(f"{what} {' '.join(nodes)}" for nodes, what in named if nodes)
    elif event == "stale-refused":
        said = f"its token was refused {happened['times']} times" if happened["times"] > 1 else "its token was refused"
    else:
        parts = (happened.get(name) for name in ("leader", "target", "reason"))
        said = ": ".join(part for part in parts if part)
    return {**_row(event, said), **happened}


def _columns(render: Renderer) -> list[Column]:
    return [
        Column("time", lambda row: render.time(row["time_ns"])),
        Column.of("event"),
        Column.of("node"),
        Column.of("term"),
        Column.of("index"),
        Column.of("resource"),
        Column.of("detail"),
    ]


def _show_rows(render: Renderer, columns: Sequence[Column], rows: Sequence[Row], *, first: bool) -> None:
    if render.format in ("json", "jsonl"):
        for row in rows:
            render.stream("ClusterEvent", row)
        return
    titles = [column.title for column in columns]
    for number, row in enumerate(rows):
        render.stream_row(titles if first and number == 0 else None, [column.read(row) for column in columns])
