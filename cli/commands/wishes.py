"""``fencepost command cancel|redrive|resolve|discard``: what becomes of a command by somebody's decision."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from ...raft.core.errors import OutcomeUnknown
from ..app import FencepostCommand, Session, current_session, run_async
from ..output import Column
from ..payload import canonical, parse_json, quoted

if TYPE_CHECKING:
    from ...transport.client import Client

WISH_TIMEOUT_S = 10.0

_COLUMNS = (
    Column.of("id"),
    Column.of("answer", "did"),
    Column.of("definite"),
    Column.of("state"),
    Column.of("attempt"),
    Column.of("error"),
)

_note = click.option("--note", default="", metavar="TEXT", help="Why; it stands in the history of the command.")

Wish = Callable[["Client", float], Awaitable[dict[str, Any]]]


@click.command(
    cls=FencepostCommand,
    examples=("fencepost command cancel order-1001", "fencepost command cancel order-1001 --note 'ordered twice'"),
    short_help="Have a command not executed.",
    help="Have a command not executed. Where none of it can have been done it is cancelled for certain (definite). "
    "Where an attempt is under way, or may have been, this is a request: it is cancelled as soon as that attempt "
    "turns out not to have been applied, and the answer says so. Exit code 6 when it has ended, or is in doubt.",
)
@click.argument("operation_id", metavar="ID")
@_note
def cancel(operation_id: str, note: str) -> None:
    _run(operation_id, lambda client, limit_s: client.cancel(operation_id, note=note, timeout_s=limit_s))


@click.command(
    cls=FencepostCommand,
    examples=("fencepost command redrive order-1001", "fencepost command redrive order-1001 --note 'bank is back'"),
    short_help="Try a dead letter again.",
    help="Try a dead letter again, under its id. Its attempts and history are kept; in its lane it takes a new place, "
    "behind what is there. Where its resource says that it was applied, it has succeeded, and the answer says "
    "resolved. Exit code 6 when it is not dead.",
)
@click.argument("operation_id", metavar="ID")
@_note
@click.option("--not-applied", is_flag=True, help="Your word that no earlier attempt took effect: you have looked.")
def redrive(operation_id: str, note: str, not_applied: bool) -> None:
    _run(
        operation_id,
        lambda client, limit_s: client.redrive(operation_id, note=note, not_applied=not_applied, timeout_s=limit_s),
    )


@click.command(
    cls=FencepostCommand,
    examples=(
        "fencepost command resolve order-1001 --as done --note 'seen in the bank statement'",
        "fencepost command resolve order-1002 --as failed --note 'not in the bank statement'",
    ),
    short_help="Say what became of a command in doubt.",
    help="Say what became of a command in doubt, after you have looked at the resource. done: it succeeded. failed: "
    "it certainly was not applied; it becomes a dead letter, which can be redriven or discarded. Nothing is executed. "
    "done can also be said of a dead letter that turns out to have been applied. "
    "Exit code 6 when it is neither in doubt nor dead.",
)
@click.argument("operation_id", metavar="ID")
@click.option("--as", "outcome", type=click.Choice(["done", "failed"]), required=True, help="What became of it.")
@click.option("--note", required=True, metavar="TEXT", help="Who looked, and where; it stands in its history.")
@click.option("--result", default="", metavar="JSON", help="The result of what is done.")
def resolve(operation_id: str, outcome: str, note: str, result: str) -> None:
    text = canonical(parse_json(result)).decode() if result else ""
    _run(
        operation_id,
        lambda client, limit_s: client.resolve(operation_id, outcome, note=note, result=text, timeout_s=limit_s),
    )


@click.command(
    cls=FencepostCommand,
    examples=("fencepost command discard order-1001", "fencepost command discard order-1001 --note 'refunded by hand'"),
    short_help="Give a dead letter up for good.",
    help="Give a dead letter up for good: it has failed, and its lane goes on. Exit code 6 when it is not dead.",
)
@click.argument("operation_id", metavar="ID")
@_note
def discard(operation_id: str, note: str) -> None:
    _run(operation_id, lambda client, limit_s: client.discard(operation_id, note=note, timeout_s=limit_s))


def _run(operation_id: str, wish: Wish) -> None:
    run_async(lambda: _wish(current_session(), operation_id, wish))


async def _wish(session: Session, operation_id: str, wish: Wish) -> None:
    limit_s = session.settings.timeout_s(WISH_TIMEOUT_S)
    show = f"fencepost command show {quoted(operation_id)} --history"
    async with session.client(timeout_s=limit_s) as client:
        try:
            body = await wish(client, limit_s)
        except OutcomeUnknown as error:
            raise type(error)(error.message, tried=error.tried, next_step=show) from error
    session.render.show("CommandDecision", body, _COLUMNS)
    if not body["definite"]:
        session.render.warning(f"an attempt is under way or may have been applied; {show}")
