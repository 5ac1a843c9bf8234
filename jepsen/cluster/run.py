"""One run: a cluster, its resources, load and faults at once, and then the verdict over what they have left."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...cli.local_cluster import LocalCluster
from ...raft.core.entry import EntryKind
from .evidence import Evidence, gather
from .judge import ONCE, Verdict, judge
from .load import Load
from .nemesis import Faults, Nemesis
from .servers import ApiServer, PostgresServer, Server
from .workload import commands as make_commands
from .workload import definitions

CLIENT_TIMEOUT_S = 60.0
STOPS_WITHIN_S = 60.0
REPEATS = 500
TELLS_EVERY_S = 15.0


@dataclass(frozen=True, slots=True)
class Settings:
    commands: int
    seed: int
    rate: float = 200.0
    """Commands a second, at most; 0 for as fast as they are taken."""
    every_s: tuple[float, float] = (2.0, 5.0)
    """Between two faults."""
    server_every: int = 10
    """After so many faults a server crashes; 0 for never."""
    node_command: Sequence[str] = ()
    """The command that runs a node; tests plant faults with it."""


class Outcome(NamedTuple):
    evidence: Evidence
    verdict: Verdict
    report: dict[str, Any]


async def run(folder: Path, settings: Settings, out: Callable[[str], None] = print) -> Outcome:
    """Everything in ``folder``, an empty one, which the user of the database server has to be able to enter."""
    began = time.monotonic()
    commands = list(make_commands(settings.seed, settings.commands))
    async with AsyncExitStack() as stack:
        database = PostgresServer(folder)
        api = ApiServer(folder)
        for server in (database, api):
            await stack.enter_async_context(server)
        cluster = LocalCluster(
            folder / "cluster",
            definitions=definitions(api=f"http://127.0.0.1:{api.port}", database=database.url),
            command=settings.node_command or None,
        )
        await stack.enter_async_context(cluster)
        cluster.start()
        await cluster.ready(within_s=60)
        nemesis = Nemesis(
            cluster,
            settings.seed,
            database_url=database.url,
            servers=_servers(settings, database, api),
            every_s=settings.every_s,
            server_every=settings.server_every or 1,
        )
        client = await stack.enter_async_context(cluster.client(timeout_s=CLIENT_TIMEOUT_S))
        load = Load(client, rate=settings.rate)
        await _both(load, nemesis, commands, out)
        loaded_s = time.monotonic() - began
        chance = random.Random(settings.seed)
        repeated = await load.repeat(chance.sample(commands, min(REPEATS, len(commands))))
        status = await cluster.ready()
        await cluster.caught_up(int(status["commit_index"]), within_s=120)
        exit_codes = await cluster.stop(within_s=STOPS_WITHIN_S)
        evidence = await gather(
            cluster,
            commands={command.operation_id: command for command in commands},
            answers=load.answers,
            samples=nemesis.samples,
            database_url=database.url,
            calls=api.log_path,
        )
    verdict = judge(evidence)
    for sentence in repeated:
        verdict.found(ONCE, sentence)
    for node, code in exit_codes.items():
        if code:
            verdict.found("nodes stop", f"{node} was asked to stop and ended with {code}")
    report = report_of(settings, evidence, verdict, load, nemesis.faults, loaded_s, time.monotonic() - began)
    return Outcome(evidence, verdict, report)


def _servers(settings: Settings, *servers: Server) -> list[Server]:
    return list(servers) if settings.server_every else []


async def _both(load: Load, nemesis: Nemesis, commands: list[Any], out: Callable[[str], None]) -> None:
    """The load to its end, and faults as long as it lasts."""
    ends = asyncio.Event()
    began = told = time.monotonic()

    def tell(done: int) -> None:
        nonlocal told
        if time.monotonic() - told >= TELLS_EVERY_S:
            told = time.monotonic()
            faults = nemesis.faults
            out(
                f"{told - began:5.0f} s: {done} of {len(commands)} commands, "
                f"{faults.kills} kills, {faults.freezes} freezes"
            )

    async def work() -> None:
        try:
            await load.run(commands, tell)
        finally:
            ends.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        group.create_task(nemesis.run(ends))


def report_of(
    settings: Settings,
    evidence: Evidence,
    verdict: Verdict,
    load: Load,
    faults: Faults,
    loaded_s: float,
    whole_s: float,
) -> dict[str, Any]:
    """The report, for JSON. Seconds are rounded to thousandths."""
    terms = [entry.term for entry in evidence.entries if entry.kind == EntryKind.NO_OP]
    figures = verdict.figures
    return {
        "commands": len(evidence.commands),
        "seed": settings.seed,
        "rate": settings.rate,
        "holds": verdict.holds,
        "violations": verdict.counts.total(),
        "violated": {name: {"count": verdict.counts[name], "first": rows} for name, rows in verdict.violations.items()},
        **faults.as_json(),
        "leaderships": len(terms),
        "log_entries": len(evidence.entries),
        "lanes": len({(each.resource, each.lane) for each in evidence.commands.values() if each.lane}),
        "unlaned": sum(1 for each in evidence.commands.values() if not each.lane),
        "stale_refusals": sum(each["stale_refusals"] for each in figures.values()),
        "stale_calls": sum(each["stale_calls"] for each in figures.values()),
        "duplicates_recognised": sum(each["duplicates_recognised"] for each in figures.values()),
        "resources": figures,
        "longest_gap_s": round(load.longest_gap_s, 3),
        "longest_gaps_s": {name: round(gap, 3) for name, gap in sorted(load.gaps_s.items())},
        "submitted_again": load.retried,
        "repeats_replayed": load.replayed,
        "load_s": round(loaded_s, 3),
        "whole_s": round(whole_s, 3),
        "processors": os.cpu_count(),
    }


def write_report(path: Path, report: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
