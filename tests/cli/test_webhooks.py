"""Real payloads, real processes: thousands of webhook deliveries from a file, while nodes are killed."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.local_cluster import LocalCluster
from tests.waiting import eventually_async

from .running import PROGRAM, environment

DELIVERIES = """\
[resources.deliveries]
kind = "sqlite"
path = "deliveries.db"
schema = "CREATE TABLE IF NOT EXISTS deliveries(delivery TEXT NOT NULL, event TEXT, body TEXT)"
[resources.deliveries.effects.store]
sql = "INSERT INTO deliveries(delivery, event, body) VALUES (:delivery, :event, :payload)"
"""
COPIES = 10


async def submit(cluster: LocalCluster, source: Path) -> dict[str, Any]:
    """One `fencepost submit` of the whole file, as a person types it in the cluster's folder."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "submit", "deliveries", "store", "--bulk", f"@{source}", "--id-field", "delivery",
        "--lane-field", "payload.repository.full_name", "-o", "json", "-q",
        cwd=cluster.folder, env=environment(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    stdout, stderr = await process.communicate()
    assert process.returncode == 0, stdout + stderr
    body: dict[str, Any] = json.loads(stdout)
    return body


def stored(folder: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{folder}/deliveries.db?mode=ro", uri=True)) as database:
            return int(database.execute("SELECT count(*) FROM deliveries").fetchone()[0])
    except sqlite3.OperationalError:  # not made yet, or just being written to
        return 0


async def kill_and_restart(cluster: LocalCluster, after: int, *, leader: bool) -> None:
    async def far_enough() -> bool:
        return stored(cluster.folder) >= after

    await eventually_async(far_enough, within_s=60, what=f"{after} deliveries are stored")
    leading = (await cluster.leader())["node_id"]
    victim = leading if leader else next(node for node in cluster.nodes if node != leading)
    cluster.kill(victim)
    cluster.start(victim)


@pytest.mark.servers
@pytest.mark.endure
async def test_deliveries_once_and_lanes_in_order_while_nodes_are_killed(tmp_path: Path, data_folder: Path) -> None:
    rows = [json.loads(line) for line in (data_folder / "webhooks.jsonl").read_text().splitlines()]
    many = [{**row, "delivery": f"{row['delivery']}-{copy}"} for copy in range(COPIES) for row in rows]
    source = tmp_path / "many.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in many))
    distinct = list(dict.fromkeys(row["delivery"] for row in many))
    lanes: dict[str, list[str]] = {}
    for row in many:
        lane = row["payload"].get("repository", {}).get("full_name", "")
        lanes.setdefault(lane, []).append(row["delivery"])
    lanes.pop("")

    async with LocalCluster(tmp_path / "cluster", definitions=DELIVERIES) as cluster:
        cluster.start()
        await cluster.ready()
        submission = asyncio.create_task(submit(cluster, source))
        for after, leader in ((len(many) // 10, True), (len(many) // 3, False), (len(many) // 2, True)):
            await kill_and_restart(cluster, after, leader=leader)
        first = await submission
        assert (first["lines"], first["done"] + first["replayed"]) == (len(many), len(many))
        # A killed leader's client asks again under the same id, which may find its command committed.
        assert first["replayed"] >= len(many) - len(distinct)

        again = await submit(cluster, source)
        assert (again["done"], again["replayed"]) == (0, len(many))

    with closing(sqlite3.connect(tmp_path / "cluster" / "deliveries.db")) as database:
        found = [row[0] for row in database.execute("SELECT delivery FROM deliveries")]
        assert sorted(found) == sorted(distinct)
        for lane, expected in lanes.items():
            order = "SELECT operation_id FROM fencepost_operations WHERE lane = ? ORDER BY accepted"
            assert [row[0] for row in database.execute(order, (lane,))] == list(dict.fromkeys(expected)), lane
