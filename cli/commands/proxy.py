"""``fencepost proxy``: a fence in front of an API that has none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from ..app import FencepostCommand, current_session, run_async


@click.command(
    cls=FencepostCommand,
    examples=("fencepost proxy --config proxy.toml", "fencepost proxy --config proxy.toml --check"),
    short_help="A fence in front of an HTTP API that has none.",
    help="Run a proxy in front of an HTTP API that cannot compare tokens. It compares the token, recognises the "
    "operation id and marks the request as let through in one durable step, then sends it; a repeat gets the first "
    "answer. Runs until SIGINT or SIGTERM. One process for each API; nothing may reach the API beside it.",
)
@click.option(
    "--config",
    "path",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A TOML file with a table [proxy].",
)
@click.option("--check", is_flag=True, help="Read the file and end.")
@click.pass_context
def proxy(ctx: click.Context, path: Path, check: bool) -> None:
    from ..logs import configure_logging
    from ..proxy.settings import load_proxy

    render = current_session().render
    settings = load_proxy(path, os.environ)
    if check:
        render.line(f"{path}: ok")
        return
    configure_logging(
        "debug" if current_session().settings.verbose else settings.log_level, colored=render.colored(sys.stderr)
    )

    async def run() -> int:
        from ..proxy.serving import run_proxy

        return await run_proxy(settings, os.environ)

    ctx.exit(run_async(run))
