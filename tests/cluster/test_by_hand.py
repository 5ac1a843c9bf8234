"""What a person does: make the files with `cluster init`, start three nodes, submit a file of real webhook
deliveries, kill whoever leads while it runs, submit the file again."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from fencepost.cli.local_cluster import free_peer_addresses, node_command

from ..cli.running import environment
from ..waiting import eventually_async
from .support import NODES, fencepost, start_fencepost

pytestmark = pytest.mark.servers

DELIVERIES = """
[resources.deliveries]
kind = "sqlite"
path = "deliveries.db"
schema = "CREATE TABLE IF NOT EXISTS deliveries(delivery TEXT, repository TEXT, event TEXT, body TEXT)"
[resources.deliveries.effects.store]
sql = "INSERT INTO deliveries VALUES (:operation_id, :lane, :event, :payload)"
# As slow as a receiver across the network, so that there is a run in which to kill something.
think = "20ms"
"""
WINDOW = 16
SUBMIT = ("submit", "deliveries", "store", "--bulk", "--id-field", "delivery", "-o", "json", "--window", str(WINDOW))
LANE = ("--lane-field", "payload.repository.full_name")


@asynccontextmanager
async def _shells(folder: Path) -> AsyncIterator[dict[str, asyncio.subprocess.Process]]:
    """A place for one process a node, as in one shell each; all are gone afterwards."""
    processes: dict[str, asyncio.subprocess.Process] = {}
    try:
        yield processes
    finally:
        for process in processes.values():
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _start(processes: dict[str, asyncio.subprocess.Process], folder: Path, node: str) -> None:
    with (folder / f"{node}.log").open("ab") as log:
        processes[node] = await asyncio.create_subprocess_exec(
            *node_command(), "node", "start", "--config", f"{node}.toml", cwd=folder, env=environment(), stderr=log
        )


async def _leader(folder: Path) -> str:
    status = await fencepost("status", "-o", "json", cwd=folder)
    assert status.code == 0, status.stderr
    return str(status.document()["leader"]["node"])


async def _all_are_up(folder: Path) -> bool:
    status = await fencepost("status", "-o", "json", cwd=folder)
    assert status.code == 0, status.stderr
    return all(row["reachable"] for row in status.document()["nodes"])


def _stored(folder: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{folder}/deliveries.db?mode=ro", uri=True)) as database:
            return int(database.execute("SELECT count(*) FROM deliveries").fetchone()[0])
    except sqlite3.OperationalError:  # Not made yet.
        return 0


async def test_three_shells_and_a_file_of_webhooks_s50_s52(tmp_path: Path, data_folder: Path) -> None:
    source = data_folder / "webhooks.jsonl"
    lines = source.read_bytes().splitlines(keepends=True)
    rows = [json.loads(line) for line in lines]
    folder = tmp_path / "cluster"
    (tmp_path / "resources.toml").write_text(DELIVERIES)
    nodes = ",".join(f"{node}={address}" for node, address in free_peer_addresses(NODES).items())
    made = await fencepost(
        "cluster", "init", "--nodes", nodes, "--out", "cluster", "--resources", "resources.toml", cwd=tmp_path
    )
    assert made.code == 0, made.stderr
    for node in NODES:
        checked = await fencepost("node", "check-config", f"{node}.toml", cwd=folder)
        assert checked.code == 0, checked.stderr

    async with _shells(folder) as processes:
        for node in NODES:
            await _start(processes, folder, node)
        ready = await fencepost("wait", "--for", "ready", cwd=folder)
        assert ready.code == 0, ready.stderr

        bulk = await start_fencepost(*SUBMIT, *LANE, "-", cwd=folder, stdin=asyncio.subprocess.PIPE)
        assert bulk.stdin is not None
        assert bulk.stdout is not None
        assert bulk.stderr is not None
        output = asyncio.gather(bulk.stdout.read(), bulk.stderr.read())
        # A quarter at a time, so that each death finds a run that is under way and one that goes on after it.
        size = len(lines) // 4 + 1
        quarters = [lines[at : at + size] for at in range(0, len(lines), size)]
        assert len(quarters) == 4
        dead = ""
        for number, quarter in enumerate(quarters):
            bulk.stdin.write(b"".join(quarter))
            await bulk.stdin.drain()
            if dead:
                # Only with a leader there may the dead one come back: else it could be elected again.
                ready = await fencepost("wait", "--for", "ready", cwd=folder)
                assert ready.code == 0, ready.stderr
                await _start(processes, folder, dead)
            if number == 3:
                break
            dead = await _leader(folder)
            enough = len({row["delivery"] for row in rows[: (number + 1) * size]}) - WINDOW

            async def most_are_stored(enough: int = enough) -> bool:
                return _stored(folder) >= enough

            await eventually_async(most_are_stored, within_s=60, what=f"{enough} deliveries stored")
            processes[dead].send_signal(signal.SIGKILL)
            await processes[dead].wait()
        bulk.stdin.close()
        stdout, stderr = await output
        assert await bulk.wait() == 0, stderr
        summary = json.loads(stdout)
        # Each time whoever led was killed, and the run went on.
        assert summary["reroutes"] >= 3
        assert 0 < summary["longest_reroute_s"] < 30
        assert summary["lines"] == summary["done"] + summary["replayed"] == len(rows)

        again = await fencepost(*SUBMIT, *LANE, f"@{source}", cwd=folder)
        assert again.code == 0, again.stderr
        assert (again.document()["done"], again.document()["replayed"]) == (0, len(rows))
        # The one that was killed last may be starting still, and a stop that it was not ready for is no clean one.
        await eventually_async(lambda: _all_are_up(folder), within_s=60, what="three nodes that answer")
        for node in NODES:
            processes[node].send_signal(signal.SIGTERM)
            assert await processes[node].wait() == 0

    expected: dict[str, list[str]] = {}
    for row in rows:
        repository = row["payload"].get("repository", {}).get("full_name", "")
        expected.setdefault(repository, []).append(row["delivery"])
    with closing(sqlite3.connect(folder / "deliveries.db")) as database:
        stored = database.execute("SELECT delivery, repository FROM deliveries ORDER BY rowid").fetchall()
        bodies = dict(database.execute("SELECT delivery, body FROM deliveries"))
    distinct = {row["delivery"] for row in rows}
    assert len(stored) == len(distinct)
    assert {delivery for delivery, _ in stored} == distinct
    for repository, deliveries in expected.items():
        found = [delivery for delivery, lane in stored if lane == repository]
        wanted = list(dict.fromkeys(deliveries))
        # Without a repository there is no lane, and no order is promised.
        assert (found if repository else sorted(found)) == (wanted if repository else sorted(wanted)), repository
    for row in rows:
        assert json.loads(bodies[row["delivery"]])["payload"] == row["payload"]
