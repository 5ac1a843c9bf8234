"""``fencepost explain``: a paragraph about each error code."""

from __future__ import annotations

import textwrap

import click

from ...raft.core.errors import NotFound
from ..app import FencepostCommand, current_session
from ..explanations import EXPLANATIONS, describe
from ..output import Column
from ..settings import did_you_mean


@click.command(
    cls=FencepostCommand,
    examples=("fencepost explain OUTCOME_UNKNOWN", "fencepost explain"),
    short_help="What an error code means, and what to do.",
    help="What an error code means, whether anything was committed, and what to do. Without CODE: all of them.",
)
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    render = current_session().render
    if code is None:
        rows = [describe(known) for known in EXPLANATIONS]
        columns = [Column.of("code"), Column.of("outcome"), Column.of("exit code", "exit_code"), Column.of("title")]
        render.show("ExplanationList", {"items": rows}, columns, rows="items")
        return
    known = code.upper().replace("-", "_")
    if known not in EXPLANATIONS:
        raise NotFound(f"no error code {code!r}{did_you_mean(known, EXPLANATIONS)}", next_step="fencepost explain")
    found = describe(known)
    if render.format == "table":
        render.line(f"{render.style(found['code'], '1')}: {found['title']}")
        render.line(f"outcome {found['outcome']}, exit code {found['exit_code']}")
        render.line("")
        render.line("\n".join(textwrap.wrap(found["text"], 96)))
        return
    render.show("Explanation", found, [Column.of(key) for key in found])
