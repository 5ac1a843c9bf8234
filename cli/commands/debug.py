"""``fencepost debug storage-workload`` and ``storage-recover``: what a crash leaves of a node's files.

Two halves of one proof, for whoever can make the states that a crash may leave: a tool that records
system calls, a device that loses writes, a plug that is pulled. As ``jepsen check``, they know the
proof only while they run.
"""

from __future__ import annotations

from pathlib import Path

import click

from ..app import FencepostCommand, UsageProblem, current_session
from ..output import Column

EXIT_BAD = 8
STEPS = 30

_COLUMNS = (Column.of("verdict"), Column.of("acknowledged"), Column.of("second crashes"))


@click.command(
    "storage-workload",
    cls=FencepostCommand,
    examples=(
        "fencepost debug storage-workload life --seed 7",
        "fencepost debug storage-workload long-life --seed 7 --steps 60 --thread",
    ),
    short_help="Do everything that storage does, and acknowledge each thing.",
    help="Do everything that storage does in DIR, which must be empty or missing, in an order that the seed decides: "
    "write, vote, delete, roll, take and receive snapshots, give up entries, execute commands at a SQLite resource and "
    "mark their outcomes. One line on stdout for each thing that has become durable, at once; the first line names "
    "the plan. Cut it off anywhere, and let `storage-recover` judge what is left.",
)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--seed", type=click.IntRange(0), required=True, metavar="N", help="Decides what is done.")
@click.option(
    "--steps", type=click.IntRange(1), default=STEPS, show_default=True, metavar="M", help="How much is done."
)
@click.option(
    "--thread",
    is_flag=True,
    help="The log is written by its own thread, as in a node; otherwise everything is done in one and the same order.",
)
def storage_workload(directory: Path, seed: int, steps: int, thread: bool) -> None:
    from ...jepsen.crashes.real import live_on

    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageProblem(f"{directory} is not an empty directory; nothing was done", next_step="name a missing one")
    # echo flushes: whoever reads a line may pull the plug.
    live_on(directory, seed, steps, click.echo, threaded=thread)


@click.command(
    "storage-recover",
    cls=FencepostCommand,
    examples=(
        "fencepost debug storage-recover cut-off --acks cut-off.acks",
        "fencepost debug storage-recover cut-off --acks cut-off.acks -o json",
    ),
    short_help="Judge what a crash left of a workload.",
    help="Recover what is left in DIR of a `storage-workload` that was cut off, as a node would, and judge it: "
    "everything acknowledged is there, unchanged, and nothing that was never done; of what was under way, all or "
    "nothing. The same for every state that a second crash leaves, at any step of that recovery and of the first write "
    "after it, which is tried in memory; and for two more openings of a copy of DIR, which stays as it is.\n\n"
    "Exit code 8 if anything is wrong, and what it is on stderr; 2 if the file holds no acknowledgements.",
)
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--acks",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="The lines that the workload had printed when it was cut off. An unfinished last one does not count.",
)
@click.pass_context
def storage_recover(ctx: click.Context, directory: Path, acks: Path) -> None:
    from ...jepsen.crashes.real import AcksInvalid, judge_folder, read_acks

    render = current_session().render
    try:
        found = judge_folder(directory, read_acks(acks.read_text(encoding="utf-8", errors="replace")))
    except AcksInvalid as error:
        raise UsageProblem(f"{acks}: {error}", next_step="name the file with the output of the workload") from error
    row = {
        "verdict": "bad" if found.problems else "ok",
        "acknowledged": found.acknowledged,
        "second_crashes": found.second_crashes,
        "problems": found.problems,
    }
    if render.format == "table":
        render.line(f"{row['verdict']}: {found.acknowledged} acknowledged, {found.second_crashes} second crashes")
    else:
        render.show("StorageVerdict", row, _COLUMNS)
    for problem in found.problems:
        render.notice(f"  {problem}")
    ctx.exit(EXIT_BAD if found.problems else 0)
