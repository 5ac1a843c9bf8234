"""Progress of a bulk submission: a live display on a terminal, a line every few seconds otherwise."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import IO

from ..output import Renderer
from .run import Fate, Summary

_REFRESH_S = 0.1
LINE_EVERY_S = 2.0


@asynccontextmanager
async def progress_display(
    render: Renderer, summary: Summary, stream: IO[bytes], *, line_every_s: float = LINE_EVERY_S
) -> AsyncIterator[None]:
    """Show ``summary`` as it grows, on stderr, until the block ends. Silent with ``-q``."""
    if render.quiet:
        yield
        return
    total = _lines_in(stream)
    if sys.stderr.isatty() and not render.machine:
        task = asyncio.create_task(_on_terminal(render, summary, total))
    else:
        task = asyncio.create_task(_as_lines(render, summary, total, line_every_s))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def ended(summary: Summary) -> int:
    """How many lines have their fate."""
    return sum(summary.fates.values())


def text(summary: Summary) -> str:
    named = [f"{summary.fates[fate]} {fate.value.replace('_', ' ')}" for fate in Fate if summary.fates[fate]]
    return ", ".join(named) or "nothing has ended yet"


async def _as_lines(render: Renderer, summary: Summary, total: int | None, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        of = f" of {total}" if total is not None else ""
        render.notice(
            f"{ended(summary)}{of} lines: {text(summary)}", kind="BulkProgress",
            ended=ended(summary), total=total, **{fate.value: summary.fates[fate] for fate in Fate},
        )  # fmt: skip


async def _on_terminal(render: Renderer, summary: Summary, total: int | None) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, no_color=not render.colored(sys.stderr))
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        bar = progress.add_task("", total=total)
        try:
            while True:
                progress.update(bar, completed=ended(summary), description=text(summary), refresh=True)
                await asyncio.sleep(_REFRESH_S)
        finally:
            progress.update(bar, completed=ended(summary), description=text(summary), refresh=True)


def _lines_in(stream: IO[bytes]) -> int | None:
    """How many lines a regular file has that are not empty; None for a pipe."""
    try:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return None
        start = stream.tell()
        found = sum(1 for line in stream if line.strip())
        stream.seek(start)
    except (OSError, ValueError):
        return None
    return found
