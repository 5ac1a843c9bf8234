"""``fencepost jepsen run`` and ``replay``: lives of a simulated cluster, each decided by its seed.

As ``jepsen check``, they know the proof only while they run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...raft.core.options import SECOND
from ..app import FencepostCommand, current_session
from ..output import Column

if TYPE_CHECKING:
    from ...jepsen.proof.life import Result
    from ...jepsen.proof.plan import Plan

EXIT_VIOLATED = 8
SEEDS_MAX = 1_000_000

_COLUMNS = (
    Column.of("seed"),
    Column.of("verdict"),
    Column.of("nodes"),
    Column.of("virtual s"),
    Column.of("events"),
    Column.of("digest"),
    Column.of("about"),
)

Option = Callable[[Any], Any]
_NODES: Option = click.option(
    "--nodes", type=click.IntRange(1, 7), metavar="N", help="So many nodes, instead of what the seed says."
)


class SeedRange(click.ParamType[range]):
    """``7`` or ``1..100``, both ends included."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> range:
        if isinstance(value, range):
            return value
        first, dots, last = str(value).partition("..")
        if not first.isdigit() or (dots and not last.isdigit()):
            self.fail(f"{value!r} is no seed and no range such as 1..100", param, ctx)
        found = range(int(first), int(last if dots else first) + 1)
        if not 0 < len(found) <= SEEDS_MAX:
            self.fail(f"{value!r} names no seeds, or more than {SEEDS_MAX:,}", param, ctx)
        return found


class FaultNumbers(click.ParamType[tuple[int, ...]]):
    """``3,7,12``, or ``none``."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = [] if value == "none" else str(value).split(",")
        if not all(part.strip().isdigit() for part in parts):
            self.fail(f"{value!r} is neither `none` nor numbers such as 3,7,12", param, ctx)
        return tuple(sorted({int(part) for part in parts}))


@click.command(
    "run",
    cls=FencepostCommand,
    examples=("fencepost jepsen run --seeds 1..2", "fencepost jepsen run --seeds 7 --nodes 5 -o json"),
    short_help="Live a simulated cluster through faults, seed by seed.",
    help="Live a simulated cluster through faults, a life for each seed: whole nodes on simulated time, disks, network "
    "and resources, and everything that must hold looked at after every event. One line each, `SEED ok` or `SEED "
    "violated`, and for what was violated the command that shows it again on stderr.\n\n"
    "Exit code 8 if anything was violated.",
)
@click.option(
    "--seeds", type=SeedRange(), required=True, metavar="A..B", help="Which seeds; one, or both ends of many."
)
@_NODES
@click.pass_context
def run(ctx: click.Context, seeds: range, nodes: int | None) -> None:
    from ...jepsen.proof.replay import run_plan
    from ...jepsen.proof.schedule import plan_of

    render = current_session().render
    rows = []
    for seed in seeds:
        plan = plan_of(seed, nodes=nodes)
        result, _ = run_plan(plan)
        rows.append(_tell(plan, result))
    if render.format in ("json", "tsv"):
        render.show("SeedResultList", {"items": rows}, _COLUMNS, rows="items")
    ctx.exit(EXIT_VIOLATED if any(row["verdict"] != "ok" for row in rows) else 0)


@click.command(
    "replay",
    cls=FencepostCommand,
    examples=("fencepost jepsen replay 7", "fencepost jepsen replay 7 --faults 0,2 --safety 4.5 --quiet-for 0 -v"),
    short_help="Live the life of one seed again.",
    help="Live the life of one seed again, exactly as it was, or a part of it: only some of its faults, for a shorter "
    "time. With -v the plan and the last events are told on stderr; docs/proof.md says how to read a line.\n\n"
    "Exit code 8 if anything was violated.",
)
@click.argument("seed", metavar="SEED", type=click.IntRange(0))
@_NODES
@click.option("--clients", type=click.IntRange(1, 9), metavar="N", help="So many clients.")
@click.option("--faults", type=FaultNumbers(), metavar="I,J", help="Only these faults of the plan, by number; or none.")
@click.option("--safety", type=click.FloatRange(0), metavar="S", help="The phase with faults lasts for S seconds.")
@click.option("--quiet-for", type=click.FloatRange(0), metavar="S", help="The quiet after it lasts for S seconds.")
@click.option("--from-boot", is_flag=True, help="Begin with empty disks, whatever the seed says.")
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), metavar="FILE", help="Read the plan from a file.")
@click.option(
    "--save-plan", type=click.Path(path_type=Path), metavar="FILE", help="Write the plan to a file, to change it."
)
@click.option("--mutant", default="", metavar="NAME", help="With this fault planted into the product.")
@click.option("--shrink", is_flag=True, help="Look for the smallest part of it that is violated in the same way.")
@click.pass_context
def replay(ctx: click.Context, /, seed: int, shrink: bool, mutant: str, save_plan: Path | None, **asked: Any) -> None:
    from ...jepsen.proof.mutants import MUTANTS
    from ...jepsen.proof.plan import to_json
    from ...jepsen.proof.replay import replay_command, run_plan
    from ...jepsen.proof.replay import shrink as shrunk_of

    session = current_session()
    if mutant and mutant not in MUTANTS:
        raise click.BadParameter(f"no mutant {mutant!r}", ctx, param_hint="--mutant")
    plan = _plan(ctx, seed, **asked)
    if save_plan is not None:
        save_plan.write_text(to_json(plan) + "\n", encoding="utf-8")
    result, life = run_plan(plan, mutant=mutant)
    if shrink and result.failure is not None:
        plan = shrunk_of(plan, result.failure, mutant=mutant).plan
        result, life = run_plan(plan, mutant=mutant)
        session.render.notice(replay_command(plan, mutant=mutant))
    if session.settings.verbose:
        for number, fault in enumerate(plan.faults):
            kept = number if plan.kept is None else plan.kept[number]
            what = " ".join(f"{name}={value}" for name, value in fault.parameters.items())
            session.render.notice(f"{kept:4} {fault.at_ns / SECOND:10.3f} s  {fault.kind:24} {what}")
        session.render.notice(result.failure.text if result.failure else life.world.trace.story())
    row = _tell(plan, result, mutant)
    if session.render.format in ("json", "tsv"):
        session.render.show("SeedResult", row, _COLUMNS)
    ctx.exit(EXIT_VIOLATED if result.failure is not None else 0)


def _plan(
    ctx: click.Context,
    seed: int,
    *,
    nodes: int | None,
    clients: int | None,
    faults: tuple[int, ...] | None,
    safety: float | None,
    quiet_for: float | None,
    from_boot: bool,
    plan_file: Path | None,
) -> Plan:
    from ...jepsen.proof.plan import from_json
    from ...jepsen.proof.schedule import plan_of

    plan = plan_of(seed, nodes=nodes)
    if plan_file is not None:
        try:
            plan = from_json(plan_file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise click.BadParameter(f"{plan_file}: {error}", ctx, param_hint="--plan") from error
    if clients is not None:
        plan = plan._replace(clients=clients)
    if faults is not None:
        plan = plan.keeping(number for number in faults if number < len(plan.faults))
    if safety is not None:
        plan = plan._replace(safety_ns=round(safety * SECOND))
    if quiet_for is not None:
        plan = plan._replace(quiet_ns=round(quiet_for * SECOND))
    if from_boot:
        plan = plan._replace(hard_state="")
    return plan


def _tell(plan: Plan, result: Result, mutant: str = "") -> dict[str, Any]:
    """One seed: at once where that is how the result is shown; its row."""
    from ...jepsen.proof.replay import replay_command

    render = current_session().render
    failure = result.failure
    row = {
        "seed": result.seed,
        "verdict": "ok" if failure is None else "violated",
        "about": "" if failure is None else failure.about,
        "nodes": result.nodes,
        "hard_state": result.hard_state or None,
        "virtual_s": round(result.virtual_ns / SECOND, 3),
        "events": result.events,
        "digest": result.digest,
        "faults": dict(result.faults),
        "replay": replay_command(plan, mutant=mutant),
    }
    if render.format == "jsonl":
        render.stream("SeedResult", row)
    elif render.format == "table":
        render.line(f"{row['seed']} {row['verdict']}" + (f": {row['about']}" if failure is not None else ""))
        if failure is not None:
            render.notice(f"  {row['replay']}")
    return row
