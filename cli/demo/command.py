"""``fencepost demo``."""

from __future__ import annotations

import secrets
import shlex
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from ...raft.core.errors import CheckFailed, ConfigurationError
from ..app import FencepostCommand, UsageProblem, current_session, run_async
from ..output import Column, Renderer
from .evidence import Evidence
from .narrator import Narrator, PlainNarrator, TerminalNarrator
from .payments import LEDGER_FILE
from .proof import PROBLEMS_SHOWN, Finding, prove
from .scenarios import SCENARIOS
from .stage import Stage

TITLES = {
    "stale-leader": "a frozen leader's late write",
    "crash-loop": "leaders that are killed around a payment",
    "rolling": "a restart of every node under load",
}


@click.command(
    cls=FencepostCommand,
    examples=("fencepost demo", "fencepost demo --scenario crash-loop --keep demo --seed 7"),
    short_help="Watch a frozen leader's late write refused.",
    help="Start real processes and a SQLite ledger on this machine, submit payments, do something bad to the leader, "
    "and prove from what is left on disk that each payment took effect exactly once. Takes about 15 s. "
    "Exit code 0 with a verdict; 8 when anything that was to be shown does not hold.",
)
@click.option("--nodes", type=click.Choice(["3", "5"]), default="3", show_default=True, help="How many nodes.")
@click.option(
    "--scenario",
    type=click.Choice(["stale-leader", "crash-loop", "partition", "rolling"]),
    default="stale-leader",
    show_default=True,
    help="stale-leader: it freezes and wakes; crash-loop: kill -9; rolling: SIGTERM, one after the other; "
    "partition: not in this version.",
)
@click.option("--keep", type=click.Path(path_type=Path), metavar="DIR", help="Leave ledger, logs and settings in DIR.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Same payments as in the run that printed it.")
@click.option("--plain", is_flag=True, help="Plain lines on a terminal too.")
@click.pass_context
def demo(ctx: click.Context, nodes: str, scenario: str, keep: Path | None, seed: int | None, plain: bool) -> None:
    render = current_session().render
    if scenario == "partition":
        raise UsageProblem(
            "the scenario partition is not there yet: cutting links between processes of one machine needs rights or a "
            "proxy that this version does not have; nothing was started",
            tried=["stale-leader shows the same danger: a leader that is cut off and does not know it"],
        )
    chosen = seed if seed is not None else secrets.randbelow(10_000)
    narrator = _narrator(render, plain)
    ctx.exit(run_async(lambda: run(render, narrator, scenario, int(nodes), chosen, keep)))


def _narrator(render: Renderer, plain: bool) -> Narrator:
    if render.machine:  # The document is for stdout; the story is told beside it.
        return PlainNarrator(render.notice)
    if plain or not sys.stdout.isatty():
        return PlainNarrator(render.line)
    from rich.console import Console

    return TerminalNarrator(Console(no_color=not render.colored(sys.stdout), highlight=False))


async def run(
    render: Renderer,
    narrator: Narrator,
    scenario: str,
    nodes: int,
    seed: int,
    keep: Path | None,
    command: Sequence[str] | None = None,
) -> int:
    """Play a scenario and judge it. The exit code. ``command`` is what runs a node, if not this fencepost."""
    with ExitStack() as stack:
        folder = _folder(keep, stack)
        narrator.commands(
            f"fencepost demo: {TITLES[scenario]}",
            [(f"{nodes} nodes, seed {seed}", f"in {folder}{'' if keep else ', removed at the end'}")],
        )
        async with Stage(folder, nodes, seed, narrator, command) as stage:
            with narrator.picture(stage.picture):
                await SCENARIOS[scenario](stage)
        findings = _judge(narrator, folder, stage.cluster.nodes)
        good = all(finding.holds for finding in findings)
        if not good:
            stack.pop_all()  # What went wrong can be looked at.
        _close(render, narrator, scenario, folder, keep is not None or not good, findings, seed)
        return 0 if good else CheckFailed.exit_code


def _folder(keep: Path | None, stack: ExitStack) -> Path:
    if keep is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-demo-")))
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise ConfigurationError(
                f"--keep: {keep} is not empty; nothing was started", next_step="name a folder that is not there yet"
            )
    except OSError as error:
        raise ConfigurationError(f"--keep: cannot use {keep}: {error.strerror or error}") from error
    return keep


def _judge(narrator: Narrator, folder: Path, nodes: tuple[str, ...]) -> list[Finding]:
    narrator.act("The proof")
    narrator.say(
        f"Every process has ended. What follows is computed from the files they left: the ledger, the {len(nodes)} "
        "nodes' logs, and the client's list of what it submitted and was answered."
    )
    findings = prove(Evidence.read(folder, nodes))
    for finding in findings:
        problems = finding.problems[:PROBLEMS_SHOWN]
        if len(finding.problems) > PROBLEMS_SHOWN:
            problems = [*problems, f"and {len(finding.problems) - PROBLEMS_SHOWN} more"]
        narrator.finding(finding.claim, problems)
    return findings


_VERDICTS = {
    "stale-leader": "a former leader's late write was refused by the ledger, and each payment took effect exactly once "
    "(guarantee: fenced)",
    "crash-loop": "leaders died before, after and around payments, and each payment took effect exactly once "
    "(guarantee: fenced)",
    "rolling": "every node was restarted under load, and each payment took effect exactly once (guarantee: fenced)",
}


def _close(
    render: Renderer,
    narrator: Narrator,
    scenario: str,
    folder: Path,
    kept: bool,
    findings: list[Finding],
    seed: int,
) -> None:
    wrong = [finding for finding in findings if not finding.holds]
    if wrong:
        narrator.verdict(f"FAILED, {len(wrong)} of {len(findings)} do not hold", good=False)
    else:
        narrator.verdict(_VERDICTS[scenario], good=True)
    narrator.commands("Try next", _next_commands(scenario, folder, kept))
    if render.machine:
        body = {
            "scenario": scenario,
            "seed": seed,
            "holds": not wrong,
            "findings": [{"claim": each.claim, "holds": each.holds, "problems": each.problems} for each in findings],
            "folder": str(folder) if kept else None,
        }
        render.show("Demo", body, [Column.of("holds")])


def _next_commands(scenario: str, folder: Path, kept: bool) -> list[tuple[str, str]]:
    rows = []
    if kept:
        place = shlex.quote(str(folder))
        rows.append((f"sqlite3 {place}/{LEDGER_FILE} 'SELECT * FROM fencepost_refusals'", "what the ledger refused"))
        rows.append((f"fencepost node start --config {place}/n1.toml", "run a node of this cluster again"))
    else:
        rows.append(("fencepost demo --keep demo", "the same, with the ledger and the logs left to look at"))
    if scenario == "stale-leader":
        rows.append(("fencepost demo --scenario crash-loop", "kill -9 before, after and around a payment"))
    else:
        rows.append(("fencepost demo", "a leader that freezes, and wakes when it leads no more"))
    rows.append(("fencepost explain STALE_LEADER", "what the ledger said to the old leader, and why"))
    rows.append(("fencepost cluster init --help", "a cluster of your own"))
    return rows
