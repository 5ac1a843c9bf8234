"""``fencepost jepsen check``: whether recorded histories are linearizable.

The proof stands above the command line (docs/architecture.md), so this module knows it only while it
runs: the package ``jepsen`` is loaded inside the function, by nobody else.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...raft.core.errors import HistoryInvalid
from ..app import FencepostCommand, current_session
from ..output import Column, Renderer

if TYPE_CHECKING:
    from ...jepsen.checkers import Explanation, History, Judgement

EXIT_ILLEGAL, EXIT_UNKNOWN = 8, 1

_COLUMNS = (
    Column.of("file"),
    Column.of("verdict"),
    Column.of("model"),
    Column.of("operations"),
    Column.of("keys"),
    Column.of("steps"),
)


@click.command(
    "check",
    cls=FencepostCommand,
    examples=("fencepost jepsen check history.jsonl", "fencepost jepsen check history.jsonl ledger.jsonl -v"),
    short_help="Judge recorded histories.",
    help="Judge recorded histories, files of one operation a line: one line each, `FILE ok`, `FILE illegal` or "
    "`FILE unknown`. Ok is a history that is linearizable. Illegal: no order of its operations, true to time, explains "
    "their answers; with -v the first answer that fits nowhere is told on stderr. Unknown: the search was given up at "
    "its bound. The operations say what kind of object it is: read, write, cas: a register; append or sappend: a list "
    "or a string; apply: a fenced resource.\n\n"
    "Exit code 8 if a history is illegal, else 1 if one is unknown; 2 if a file is no history: the others are judged "
    "all the same.",
)
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@click.option(
    "--steps", type=click.IntRange(1), metavar="N", help="Bound on the search at each key. Default: five million."
)
@click.pass_context
def check(ctx: click.Context, files: tuple[str, ...], steps: int | None) -> None:
    from ...jepsen.checkers import STEPS_MAX, check, read_history

    session = current_session()
    render = session.render
    rows: list[dict[str, Any]] = []
    bad = False
    for file in files:
        try:
            history = read_history(Path(file))
        except HistoryInvalid as error:
            render.error(error)
            bad = True
            continue
        judgement = check(history.operations, history.model, steps_max=steps or STEPS_MAX)
        row = _row(click.format_filename(file), history, judgement)
        rows.append(row)
        if render.format == "jsonl":
            render.stream("HistoryVerdict", row)
        elif render.format == "table":
            render.line(f"{row['file']} {row['verdict']}")
            _tell(render, row, verbose=session.settings.verbose)
    if render.format in ("json", "tsv"):
        render.show("HistoryVerdictList", {"items": rows}, _COLUMNS, rows="items")
    verdicts = {row["verdict"] for row in rows}
    code = EXIT_ILLEGAL if "illegal" in verdicts else EXIT_UNKNOWN if "unknown" in verdicts else 0
    ctx.exit(HistoryInvalid.exit_code if bad else code)


def _row(file: str, history: History, judgement: Judgement) -> dict[str, Any]:
    return {
        "file": file,
        "verdict": judgement.verdict.value,
        "model": history.model.name,
        "operations": len(history.operations),
        "keys": len(judgement.orders) + len(judgement.explanations),
        "steps": judgement.steps,
        "explanations": [_explanation(each, history) for each in judgement.explanations],
    }


def _explanation(explanation: Explanation, history: History) -> dict[str, Any]:
    from ...jepsen.checkers import describe, lines

    def line(place: int) -> dict[str, Any]:
        return {"line": history.numbers[place], "operation": describe(history.operations[place])}

    return {
        "key": explanation.key,
        "verdict": explanation.verdict.value,
        "order": [line(place) for place in explanation.order],
        "state": explanation.state,
        "blocked": None if explanation.blocked is None else line(explanation.blocked),
        "remarks": list(explanation.remarks),
        "steps": explanation.steps,
        "text": list(lines(explanation, history.operations, history.numbers)),
    }


def _tell(render: Renderer, row: dict[str, Any], *, verbose: bool) -> None:
    """Why, on stderr, so that stdout keeps its one line for each file."""
    for explanation in row["explanations"]:
        if verbose:
            render.notice("\n".join(f"  {line}" for line in explanation["text"]))
        elif explanation["verdict"] == "unknown":
            render.notice(f"  {explanation['text'][0]}; --steps N lets it search for longer")
