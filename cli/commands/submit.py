"""``fencepost submit``: one command, or a file of them."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from ...raft.core.errors import CommandFailed, FencepostError, OutcomeUnknown
from ...raft.outbox.codec import Command, check_command, json_or_text
from ...raft.ports import Answer, Wait
from ..app import FencepostCommand, Session, UsageProblem, current_session, read_text, run_async
from ..bulk.journal import Journal
from ..bulk.progress import progress_display
from ..bulk.rows import Fields, lines_of, parse_row
from ..bulk.run import BulkRun, Fate, Summary
from ..output import Column, Unended
from ..payload import canonical, new_operation_id, parse_json, parse_time, quoted

if TYPE_CHECKING:
    from ...transport.client import Client

PROBLEMS_SHOWN = 20
STANDING_TIMEOUT_S = 1.0
"""How long, beyond --timeout, an unanswered command may be asked after."""

_BULK_ONLY = ("id_field", "lane_field", "payload_field", "lane_missing", "window", "resume_file", "stop_on_error")

HELP = """Submit a command for EFFECT of RESOURCE. The payload is JSON, "-" for stdin or "@FILE"; default {}.

The operation id is printed to stderr before anything is sent. Submitting again with the same id and payload is
always safe: it joins the running command or answers with the stored result (replayed).

With --bulk the payload argument is a file of JSON lines ("@FILE" or "-"), one command a line. Lines of one lane are
executed in the order of the file, also over retries and failovers. Malformed lines are reported and counted as
refused; the others go on. When the cluster stays away for --timeout, the run stops. It can be repeated as it is.

Exit codes: 0 done; 2 malformed; 3 no endpoint; 4 no leader; 5 outcome unknown; 6 id reused; 8 the command failed. Of a
bulk run the first that applies: 5, 3 or 4, 6, 8, 2."""


@click.command(
    cls=FencepostCommand,
    examples=(
        'fencepost submit ledger credit \'{"account": "alice", "cents": 250}\' --id order-1001 --lane alice',
        "fencepost submit deliveries store --bulk @webhooks.jsonl --id-field delivery "
        "--lane-field payload.repository.full_name",
    ),
    help=HELP,
)
@click.argument("resource")
@click.argument("effect")
@click.argument("payload", default="{}", metavar="[JSON|-|@FILE]")
@click.option("--id", "operation_id", metavar="ID", help="Operation id. Default: a new UUIDv7.")
@click.option("--lane", default="", help="Commands of one lane run one after another, in log order.")
@click.option("--not-before", metavar="TIME", help="Not to be executed before: +10m, or 2027-01-31T08:00Z.")
@click.option("--deadline", metavar="TIME", help="Not to be begun from then on; it is a dead letter then.")
@click.option(
    "--wait", type=click.Choice(["accepted", "committed", "done"]), default="done", show_default=True,
    envvar="FENCEPOST_WAIT", help="How long to wait.",
)  # fmt: skip
@click.option("--bulk", is_flag=True, help="Many commands from JSON lines.")
@click.option("--id-field", metavar="PATH", default="id", show_default=True, help="Bulk: dotted path of the id.")
@click.option("--lane-field", metavar="PATH", default="", help="Bulk: dotted path of the lane. Default: no lane.")
@click.option("--payload-field", metavar="PATH", default="", help="Bulk: the payload. Default: the whole line.")
@click.option(
    "--lane-missing", type=click.Choice(["none", "error"]), default="none", show_default=True,
    help="Bulk: a line without its lane has none, or is refused.",
)  # fmt: skip
@click.option(
    "--window", type=click.IntRange(1, 10_000), default=256, show_default=True, help="Bulk: under way at once."
)
@click.option(
    "--resume-file", type=click.Path(path_type=Path), metavar="FILE", help="Bulk: skip what it says has ended."
)
@click.option("--stop-on-error", is_flag=True, help="Bulk: stop at the first line that is refused or fails.")
@click.pass_context
def submit(ctx: click.Context, /, resource: str, effect: str, payload: str, bulk: bool, **options: Any) -> None:
    session = current_session()
    wait = Wait[options["wait"].upper()]
    given = {
        name for name in options
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }  # fmt: skip
    misplaced = given & ({"operation_id", "lane", "not_before", "deadline"} if bulk else set(_BULK_ONLY))
    if misplaced:
        names = ", ".join(
            "--id" if name == "operation_id" else f"--{name.replace('_', '-')}" for name in sorted(misplaced)
        )
        raise UsageProblem(f"{names}: only {'without' if bulk else 'with'} --bulk; nothing was sent")
    if options["operation_id"] == "":
        # Most likely a variable that is not set. With a made-up id, trying again would act twice.
        raise UsageProblem("--id is empty; nothing was sent", next_step="leave --id out to have an id made")
    if bulk:
        if payload != "-" and not payload.startswith("@"):
            raise UsageProblem("--bulk reads JSON lines: give @FILE, or - for stdin; nothing was sent")
        code = run_async(lambda: _submit_bulk(session, resource, effect, payload, wait, options))
        ctx.exit(code)
    operation_id = new_operation_id() if options["operation_id"] is None else options["operation_id"]
    times = [_time_of(name, options[name]) for name in ("not_before", "deadline")]
    data = canonical(parse_json(read_text(payload)))
    command = Command(operation_id, resource, effect, options["lane"], data, *times)
    check_command(command)
    run_async(lambda: _submit_one(session, command, wait))


def _time_of(option: str, text: str | None) -> int:
    try:
        return 0 if text is None else parse_time(text, time.time_ns())
    except ValueError as error:
        raise UsageProblem(f"--{option.replace('_', '-')}: {error}; nothing was sent") from error


# -- one --------------------------------------------------------------------------------------------


async def _submit_one(session: Session, command: Command, wait: Wait) -> None:
    render = session.render
    identity = command.operation_id
    render.notice(f"operation id {identity}", kind="OperationId", id=identity)
    try:
        async with session.client() as client:
            try:
                answer = await client.submit(command, wait=wait, timeout_s=session.settings.timeout_s(30.0))
            except OutcomeUnknown as error:
                raise await _as_far_as_known(client, command, error) from error
    except asyncio.CancelledError:
        ask = f"fencepost command show {quoted(identity)}"
        render.warning(f"interrupted: whether {identity} was committed is unknown; {ask}")
        raise
    render.show("Submission", describe(command, answer, wait), _COLUMNS)
    if answer.code:
        raise CommandFailed(
            f"{identity} was committed and is {answer.state}: {answer.detail or 'no reason given'}",
            next_step=f"fencepost command show {quoted(identity)} --history",
        )


async def _as_far_as_known(client: Client, command: Command, error: OutcomeUnknown) -> OutcomeUnknown:
    """``error``, or what a leader says at once about where the command stands.

    One of an effect that the leader does not know is committed and waits: a misspelt name looks like this.
    """
    identity = command.operation_id
    try:
        found = await client.call("command.get", {"id": identity}, leader=True, timeout_s=STANDING_TIMEOUT_S)
    except FencepostError:
        return error
    why = f"it waits: {found['waiting_reason']}" if found.get("waiting_reason") else f"it is {found['state']}"
    return Unended(
        f"operation {identity} was committed at index {found['index']} and was not answered in time; {why}",
        tried=error.tried, next_step=error.next_step,
    )  # fmt: skip


_COLUMNS = [
    Column.of("id"),
    Column.of("resource"),
    Column.of("effect"),
    Column.of("lane"),
    Column.of("waited for", "wait"),
    Column.of("state"),
    Column.of("replayed"),
    Column.of("index"),
    Column.of("term"),
    Column.of("result"),
    Column.of("error"),
]


def describe(command: Command, answer: Answer, wait: Wait) -> dict[str, Any]:
    """The document of one submission."""
    return {
        "id": command.operation_id,
        "resource": command.resource,
        "effect": command.effect,
        "lane": command.lane or None,
        "wait": wait.name.lower(),
        "state": answer.state or wait.name.lower(),
        "replayed": answer.replayed,
        "index": answer.index,
        "term": answer.term,
        "result": json_or_text(answer.result),
        "error": {"code": answer.code, "message": answer.detail} if answer.code else None,
    }


# -- many -------------------------------------------------------------------------------------------


async def _submit_bulk(
    session: Session, resource: str, effect: str, source: str, wait: Wait, options: dict[str, Any]
) -> int:
    render = session.render
    fields = Fields(
        operation_id=options["id_field"],
        lane=options["lane_field"],
        payload=options["payload_field"],
        lane_required=options["lane_missing"] == "error",
    )
    # Names are wrong for every line or for none: say it once.
    check_command(Command("-", resource, effect, "", b""))
    shown = 0
    away: set[str] = set()

    def on_problem(line: int, identity: str, error: FencepostError, fate: Fate) -> None:
        nonlocal shown
        if fate is Fate.NOT_SUBMITTED:
            # It is the cluster, not the line: all that were under way hear the same. The summary counts them.
            if error.code in away:
                return
            away.add(error.code)
        shown += 1
        if shown <= PROBLEMS_SHOWN and not render.machine:
            name = f" {identity}" if identity else ""
            render.warning(f"line {line}{name}: {fate.value.replace('_', ' ')}: {error.code}: {error.message}")

    with ExitStack() as stack:
        stream = _open(source, stack)
        file = options["resume_file"]
        journal = stack.enter_context(Journal(file)) if file is not None else None
        async with session.client() as client:
            run = BulkRun(
                client, wait=wait, window=options["window"], timeout_s=session.settings.timeout_s(30.0),
                stop_on_error=options["stop_on_error"], journal=journal, on_problem=on_problem,
            )  # fmt: skip
            try:
                async with progress_display(render, run.summary, stream), aclosing(lines_of(stream)) as lines:
                    await run.run(parse_row(at, raw, resource, effect, fields) async for at, raw in lines)
            finally:
                # Interrupted or not, what is known is said.
                if shown > PROBLEMS_SHOWN and not render.machine:
                    render.warning(f"{shown - PROBLEMS_SHOWN} more; -o json lists them")
                run.summary.reroutes = client.reroutes.count
                run.summary.longest_reroute_s = client.reroutes.longest_s
                _show_summary(session, run.summary)
    return run.summary.exit_code


def _open(source: str, stack: ExitStack) -> IO[bytes]:
    if source == "-":
        try:
            # A reader of its own: the thread that reads may hold its lock when the interpreter ends, which for
            # sys.stdin is fatal. Never closed, for the same reason.
            return open(sys.stdin.fileno(), "rb", closefd=False)
        except (OSError, ValueError):  # not a real stream
            return sys.stdin.buffer
    try:
        return stack.enter_context(open(source[1:], "rb"))
    except OSError as error:
        raise UsageProblem(f"cannot read {source[1:]}: {error.strerror or error}; nothing was sent") from error


def _show_summary(session: Session, summary: Summary) -> None:
    body = summary.as_dict()
    counts = [key for key, value in body.items() if isinstance(value, int) and key != "reroutes"]
    columns = [Column.of(key.replace("_", " "), key) for key in counts]
    footer = []
    if summary.reroutes:
        longest = f"{summary.longest_reroute_s:.1f} s"
        footer.append(f"another node answered {summary.reroutes} times; the longest wait for it was {longest}")
    if summary.stopped:
        footer.append(f"stopped {summary.stopped}; later lines were not read")
    if summary.fates[Fate.UNKNOWN] or summary.fates[Fate.NOT_SUBMITTED]:
        footer.append("run the same command again: operation ids make it safe")
    error = summary.first_error
    footer += [f"  {line}" for line in error.tried] if error is not None else []
    footer += [f"  {error.next_step}"] if error is not None and error.next_step else []
    session.render.show("BulkSummary", body, columns, footer=footer)
