"""``fencepost wait``: until the cluster is as it should be; for scripts and tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from ...raft.core.errors import CheckFailed, FencepostError, NotFound
from ...raft.outbox.operation import TERMINAL, OperationState
from ..app import FencepostCommand, Session, UsageProblem, current_session, run_async
from ..output import Column
from ..settings import did_you_mean
from .command import get_command
from .status import raise_for, summarise

if TYPE_CHECKING:
    from ...transport.client import Client

POLL_S = 0.1
QUESTION_TIMEOUT_S = 2.0
"""How long one round of questions may take: a frozen node must not eat the whole time."""

Probe = Callable[["Client"], Awaitable[tuple[bool, str]]]
"""Whether it holds now, and what was found."""


class Never(Exception):
    """What was waited for cannot hold any more; the text says what was found."""


@click.command(
    cls=FencepostCommand,
    examples=("fencepost wait --for ready --timeout 30s", "fencepost wait --for command=order-1001:done"),
    short_help="Wait until the cluster or a command is ready.",
    help="Wait until something holds: leader (a confirmed one), ready (every required resource active "
    "at a confirmed leader), applied=N (every reachable node has applied index N), "
    "command=ID:done (it has ended, whichever way; "
    "or a state: command=ID:succeeded). Exit code 8 when it does not within --timeout (default 30s); "
    "3 or 4 when no node or no leader was there at the end.",
)
@click.option("--for", "condition", required=True, metavar="WHAT", help="leader|ready|applied=N|command=ID:done")
def wait(condition: str) -> None:
    probe = parse_condition(condition)
    run_async(lambda: _wait(current_session(), condition, probe))


def parse_condition(text: str) -> Probe:
    """The probe of ``leader``, ``ready``, ``applied=N`` or ``command=ID:STATE``. Raises UsageProblem."""
    what, _, value = text.partition("=")
    if text == "leader":
        return _leader
    if text == "ready":
        return _ready
    if what == "applied" and value.isascii() and value.isdigit():
        return lambda client: _applied(client, int(value))
    identity, colon, state = value.rpartition(":")
    if what == "command" and colon and identity and state:
        states = ("done", *(known.value for known in OperationState))
        if state not in states:
            raise UsageProblem(
                f"--for {text}: no state {state!r}{did_you_mean(state, states)}; nothing was sent",
                next_step=f"one of: {', '.join(states)}",
            )
        return lambda client: _command(client, identity, state)
    raise UsageProblem(f"--for {text}: write leader, ready, applied=N or command=ID:done; nothing was sent")


async def _wait(session: Session, condition: str, probe: Probe) -> None:
    found = "nothing was asked yet"
    error: FencepostError | None = None
    limit_s = session.settings.timeout_s(30.0)
    try:
        async with asyncio.timeout(limit_s), session.client() as client:
            while True:
                try:
                    holds, found = await probe(client)
                    error = None
                    if holds:
                        break
                except NotFound as missing:
                    found, error = missing.message, None
                except FencepostError as failed:
                    error = failed
                await asyncio.sleep(POLL_S)
    except Never as end:
        raise CheckFailed(f"{condition} can no longer hold; {end}", next_step="fencepost status") from None
    except TimeoutError:
        if error is not None:
            raise error from None
        raise CheckFailed(f"{condition} did not hold in time; {found}", next_step="fencepost status") from None
    session.render.show("Wait", {"for": condition, "found": found}, [Column.of("for"), Column.of("found")])


async def _status(client: Client) -> tuple[dict[str, Any], dict[str, Any]]:
    answers = dict(await client.call_all("status", {}, timeout_s=QUESTION_TIMEOUT_S))
    body = summarise(answers)
    raise_for(body, answers)
    return body, answers


async def _leader(client: Client) -> tuple[bool, str]:
    body, _ = await _status(client)
    leader = body["leader"]
    word = "confirmed" if leader["confirmed"] else "unconfirmed"
    return leader["confirmed"], f"leader {leader['node']} in term {leader['term']}, {word}"


async def _ready(client: Client) -> tuple[bool, str]:
    body, _ = await _status(client)
    leader = body["leader"]
    row = next((row for row in body["nodes"] if row["node"] == leader["node"]), None)
    if row is None or not leader["confirmed"]:
        return False, f"leader {leader['node']} in term {leader['term']} is unconfirmed"
    optional = {name for name, resource in row["resources"].items() if not resource.get("required", True)}
    waiting = {
        name: state for name, state in row["activation"].items() if state.upper() != "ACTIVE" and name not in optional
    }
    why = {name: f" ({said})" for name in waiting if (said := row["resources"][name].get("last_error"))}
    states = ", ".join(f"{name}:{state}{why.get(name, '')}" for name, state in (waiting or row["activation"]).items())
    return not waiting, f"leader {leader['node']} in term {leader['term']}; {states or 'no resources'}"


async def _applied(client: Client, index: int) -> tuple[bool, str]:
    body, _ = await _status(client)
    members = [row for row in body["nodes"] if row["reachable"] and row["part"] in (None, "learner")]
    applied = {row["node"]: row["applied"] for row in members}
    return min(applied.values()) >= index, "applied " + ", ".join(f"{node}:{at}" for node, at in applied.items())


async def _command(client: Client, identity: str, state: str) -> tuple[bool, str]:
    now = str((await get_command(client, identity))["state"])
    found = f"command {identity} is {now}"
    if now in TERMINAL and state not in ("done", now):
        # It has ended, and otherwise than was asked for: waiting longer changes nothing.
        raise Never(found)
    return (now in TERMINAL if state == "done" else now == state), found
