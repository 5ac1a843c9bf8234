"""What an embedded node leaves behind in its program, and what the front door brings in: nothing that is not needed."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import structlog

from tests.waiting import eventually

from .support import Add, Embedded, Mail, Post, mailing


def of_the_process() -> dict[str, Any]:
    """Settings that belong to the whole process, and so to the embedder."""
    return {
        "signals": {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)},
        "switch interval": sys.getswitchinterval(),
        "collector": (gc.get_threshold(), gc.isenabled(), gc.get_freeze_count()),
        "log": (structlog.get_config(), logging.getLogger().handlers[:], logging.getLogger().level),
        "loop policy": type(asyncio.get_event_loop_policy()),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "warnings": warnings.filters[:],
    }


def test_nothing_is_left_of_three_nodes_and_nothing_of_the_process_is_changed(tmp_path: Path) -> None:
    before = of_the_process()
    threads = set(threading.enumerate())
    descriptors = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()

    async def live() -> None:
        entered = of_the_process()
        outboxes = [mailing(Post()) for _ in range(3)]
        making = iter([outbox for outbox, _ in outboxes])
        async with Embedded(tmp_path, "n1", "n2", "n3", make=lambda: next(making)) as cluster:
            leader, follower = await cluster.leader(), await cluster.follower()
            for name in (leader, follower):
                await cluster.nodes[name].propose(Add("a", 1), id="x")
                await cluster.nodes[name].read(lambda: 1)
            outbox, send = outboxes[0]
            await (await outbox.submit(send, Mail("a", 1))).result()
            assert of_the_process() == entered
            entries, changes = cluster.nodes[leader].entries(), cluster.nodes[leader].leadership()
            await anext(entries)  # Both are left in the middle, as a loop that is broken off leaves them.
            await anext(changes)
            await cluster.stop("n1", "n2", "n3")
            await entries.aclose()
            await changes.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner() as runner:
        runner.run(live())
    assert of_the_process() == before
    eventually(lambda: set(threading.enumerate()) <= threads, within_s=10, what="the end of every thread")
    if descriptors:
        assert set(os.listdir("/proc/self/fd")) <= descriptors


def loaded(program: str) -> set[str]:
    ending = "import sys; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", f"{program}\n{ending}"], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_front_door_loads_no_command_line_and_no_library_of_a_resource() -> None:
    """structlog loads rich by itself where that is installed; nothing of ours does."""
    modules = loaded("from fencepost import *")
    assert "fencepost.cli.embedding.node" in modules
    unwanted = {"click", "uvloop", "asyncpg", "redis", "starlette", "uvicorn", "fastapi", "prometheus_client"}
    assert not {name for name in modules if name.partition(".")[0] in unwanted}
    ours = {name for name in modules if name.startswith(("fencepost.cli.", "fencepost.jepsen"))}
    assert not {name for name in ours if name.startswith(("fencepost.cli.commands", "fencepost.jepsen"))}
    assert not ours & {"fencepost.cli.main", "fencepost.cli.app", "fencepost.cli.output", "fencepost.cli.demo"}
    assert ("rich" in modules) <= ("rich" in loaded("import structlog"))


def test_the_names_alone_load_nothing() -> None:
    bare = loaded("pass")
    assert {name for name in loaded("import fencepost; dir(fencepost)") - bare if name.startswith("fencepost")} == {
        "fencepost"
    }
