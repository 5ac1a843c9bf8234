"""What one composed node says over HTTP, and the line that it writes for every command that ended."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from fencepost.cli.compose import ComposedNode
from fencepost.cli.config import NodeConfiguration
from fencepost.cli.config_file import load
from fencepost.cli.local_cluster import free_peer_addresses
from fencepost.cli.payload import new_operation_id
from fencepost.raft.core.errors import OperationIdExpired
from fencepost.raft.outbox.codec import Command
from fencepost.raft.ports import Wait
from fencepost.transport.client import Client

from ..waiting import eventually_async
from .running import run_json

LEDGER = """
[resources.ledger]
kind = "sqlite"
path = "ledger.db"
schema = "CREATE TABLE IF NOT EXISTS entries(account, cents CHECK (cents > 0))"
effects.credit.sql = "INSERT INTO entries VALUES (:account, :cents)"
"""


def configured(folder: Path, *, peers: str = "", node: str = "", more: str = "") -> NodeConfiguration:
    host, _, port = free_peer_addresses(["n1"])["n1"].rpartition(":")
    client, http = f"{host}:{int(port) + 100}", f"{host}:{int(port) + 200}"
    (folder / "n1.toml").write_text(
        f'[cluster]\nid = "alone"\n[node]\nid = "n1"\ndata_dir = "n1"\npeer = "{host}:{port}"\nclient = "{client}"\n'
        f'http = "{http}"\n{node}\n[raft]\nheartbeat = "20ms"\nelection_timeout = "100ms"\n[peers]\n{peers}\n'
        f"{LEDGER}{more}"
    )
    return load(folder / "n1.toml")


def credit(operation_id: str, cents: int = 1) -> Command:
    return Command(operation_id, "ledger", "credit", "a", b'{"account":"a","cents":%d}' % cents)


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """By name and label values, as a scraper reads them."""
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_leader_is_ready_says_so_and_counts_what_it_did(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    node = ComposedNode(configuration)
    with capture_logs() as logs:
        try:
            await node.start()
            async with (
                Client([configuration.node.client]) as client,
                httpx.AsyncClient(base_url=f"http://{configuration.node.http}", trust_env=False) as http,
            ):

                async def ready() -> object:
                    return (await http.get("/readyz")).status_code == 200

                await eventually_async(ready, within_s=10, what="/readyz")
                leader = await http.get("/leader")
                assert leader.json() == {"leader": "n1", "term": 1, "address": configuration.node.client}
                assert (await http.get("/readyz/resource.ledger")).json()["ready"] is True
                await client.submit(credit("good"), wait=Wait.DONE)
                assert (await client.submit(credit("good"), wait=Wait.DONE)).replayed
                bad = await client.submit(credit("bad", 0), wait=Wait.DONE)
                assert bad.state == "failed"
                for name in ("misspelt", "made-up"):
                    await client.submit(credit(name)._replace(resource=name), wait=Wait.COMMITTED)
                scraped = samples((await http.get("/metrics")).text)
                # About to stop: not ready any more, although it leads and everything is active.
                node.service.stop_admitting()
                leaving = await http.get("/readyz")
                assert leaving.status_code == 503
                assert [name for name, each in leaving.json()["checks"].items() if not each["ok"]] == ["admitting"]
        finally:
            await node.close()
    assert scraped["fencepost_role", ("leader",)] == 1
    assert scraped["fencepost_role", ("follower",)] == 0
    assert scraped["fencepost_term", ()] == 1
    assert scraped["fencepost_commands", ("ledger", "succeeded")] == 1
    assert scraped["fencepost_commands", ("ledger", "failed")] == 1
    # Whoever invents names makes no series.
    assert scraped["fencepost_commands", ("(elsewhere)", "committed")] == 2
    assert scraped["fencepost_oldest_pending_seconds", ("(elsewhere)",)] >= 0
    assert not [labels for _, labels in scraped if "misspelt" in labels]
    assert scraped["fencepost_attempts_total", ("ledger",)] == 2
    assert scraped["fencepost_attempt_outcomes_total", ("succeeded", "ledger")] == 1
    assert scraped["fencepost_retries_total", ("ledger",)] == 0
    assert scraped["fencepost_submissions_total", ()] == 4
    assert scraped["fencepost_submissions_replayed_total", ()] == 1
    assert scraped["fencepost_effect_seconds_count", ("ledger",)] == 2
    assert scraped["fencepost_effect_seconds_sum", ("ledger",)] > 0
    assert scraped["fencepost_oldest_pending_seconds", ("ledger",)] == 0
    assert scraped["fencepost_resource_activation", ("ledger", "active")] == 1
    assert scraped["fencepost_resource_activation_seconds", ("ledger", "fencing")] > 0
    assert scraped["fencepost_elections_won_total", ()] == 1
    assert scraped["fencepost_leader_changes_total", ()] == 1
    assert scraped["fencepost_leading_seconds", ()] > 0
    assert scraped["fencepost_leadership_seconds_count", ()] == 0
    assert 0 < scraped["fencepost_lease_left_seconds", ("least",)] <= scraped["fencepost_lease_left_seconds", ("now",)]
    assert scraped["fencepost_election_unapplied_entries", ()] == 0
    assert scraped["fencepost_commands_ended_total", ("ledger", "succeeded")] == 1
    assert scraped["fencepost_commands_ended_total", ("ledger", "failed")] == 1
    assert scraped["fencepost_commands_remembered", ()] == 4
    assert scraped["fencepost_commands_forgotten_total", ()] == 0
    assert scraped["fencepost_done_watermark", ()] >= bad.index
    assert scraped["fencepost_retention_seconds", ()] == 30 * 86_400
    assert scraped["fencepost_retention_commands", ()] == 1_000_000
    assert scraped["fencepost_stale_refusals_total", ("ledger",)] == 0
    assert scraped["fencepost_duplicates_total", ("ledger",)] == 0
    for stage in ("detect", "elect", "catch-up", "fence", "reconcile", "first-effect"):
        assert scraped["fencepost_last_election_stage_seconds", (stage,)] >= 0
    assert scraped["fencepost_disk_free_bytes", ()] > 0
    assert scraped["fencepost_log_syncs_total", ()] > 0
    lines = {line["id"]: line for line in logs if line["event"] == "command finished"}
    assert set(lines) == {"good", "bad"}
    assert check_line(lines["good"]) == ("info", "succeeded", "")
    assert check_line(lines["bad"]) == ("warning", "failed", "CHECK constraint failed: cents > 0")


def check_line(line: Mapping[str, Any]) -> tuple[str, str, str]:
    assert (line["resource"], line["effect"], line["lane"]) == ("ledger", "credit", "a")
    assert (line["attempts"], line["token"]) == (1, "1.1")
    assert line["total_s"] == pytest.approx(line["committed_s"] + line["dispatched_s"], abs=1e-5)
    return line["log_level"], line["state"], line["error"]


async def test_a_node_without_a_quorum_lives_and_is_not_ready(tmp_path: Path) -> None:
    others = free_peer_addresses(["n2", "n3"])
    configuration = configured(tmp_path, peers="\n".join(f'{name} = "{each}"' for name, each in others.items()))
    node = ComposedNode(configuration)
    try:
        await node.start()
        async with httpx.AsyncClient(base_url=f"http://{configuration.node.http}", trust_env=False) as http:
            assert (await http.get("/livez")).status_code == 200
            ready = await http.get("/readyz")
            assert (ready.status_code, ready.headers["content-type"]) == (503, "application/problem+json")
            assert ready.json()["checks"]["leader"]["ok"] is False
            assert (await http.get("/leader")).json()["code"] == "NO_LEADER"
            scraped = samples((await http.get("/metrics")).text)
            assert scraped["fencepost_has_leader", ()] == 0
            assert scraped["fencepost_peer_connected", ("n2",)] == 0
    finally:
        await node.close()


@pytest.mark.parametrize(("setting", "written"), [("unsuccessful", {"bad"}), ("none", set())])
async def test_lines_of_commands_can_be_had_for_what_went_wrong_only_or_not_at_all(
    tmp_path: Path, setting: str, written: set[str]
) -> None:
    configuration = configured(tmp_path, node=f'log_commands = "{setting}"')
    node = ComposedNode(configuration)
    with capture_logs() as logs:
        try:
            await node.start()
            async with Client([configuration.node.client]) as client:
                await client.submit(credit("good"), wait=Wait.DONE)
                await client.submit(credit("bad", 0), wait=Wait.DONE)
        finally:
            await node.close()
    assert {line["id"] for line in logs if line["event"] == "command finished"} == written
    assert json.dumps(logs, default=str)  # Every field can be written as JSON.


async def test_a_mode_is_shown_and_taken_further_by_command_and_seen_in_the_metrics(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    node = ComposedNode(configuration)
    with capture_logs():  # The command runs in this process, and its stdout is read.
        await modes_of(node, configuration, tmp_path)


async def modes_of(node: ComposedNode, configuration: NodeConfiguration, tmp_path: Path) -> None:
    try:
        await node.start()
        async with Client([configuration.node.client]) as client:
            await client.submit(credit("first"), wait=Wait.DONE)

            async def mode(*words: str) -> tuple[int, Any]:
                return await asyncio.to_thread(
                    run_json, "resource", "mode", "ledger", *words, "--endpoints", configuration.node.client
                )

            code, body = await mode()
            assert (code, body["mode"], body["observed_ns"]) == (0, "off", None)
            assert (await mode("enforce"))[0] == 6
            code, body = await mode("observe")
            assert (code, body["mode"], body["guarded"]) == (0, "observe", ["entries"])
            with closing(sqlite3.connect(tmp_path / "ledger.db")) as beside, beside:
                beside.execute("INSERT INTO entries VALUES ('x', 1)")
            assert (await mode())[1]["unfenced"] == 1
            async with httpx.AsyncClient(base_url=f"http://{configuration.node.http}", trust_env=False) as http:
                scraped = samples((await http.get("/metrics")).text)
            assert scraped["fencepost_fence_mode", ("observe", "ledger")] == 1
            assert scraped["fencepost_unfenced_total", ("ledger",)] == 1
            assert scraped["fencepost_would_reject_total", ("ledger",)] == 1
            assert (await mode("enforce"))[0] == 6  # A day without one is asked for.
            code, body = await mode("enforce", "--after", "0s")
            assert (code, body["mode"]) == (0, "enforce")
            with closing(sqlite3.connect(tmp_path / "ledger.db")) as beside, pytest.raises(sqlite3.IntegrityError):
                beside.execute("INSERT INTO entries VALUES ('x', 1)")
            assert (await client.submit(credit("second"), wait=Wait.DONE)).state == "succeeded"
            assert (await mode("observe"))[0] == 6
    finally:
        await node.close()


async def test_what_has_ended_is_forgotten_as_the_file_says_and_status_and_metrics_show_it(tmp_path: Path) -> None:
    configuration = configured(tmp_path, more='[outbox]\nretention = "10m"\nretention_count = 5\n')
    assert configuration.outbox.retention_ns == 600_000_000_000
    # Nobody waits for ten minutes, which is the least that a file may say.
    configuration = replace(configuration, outbox=replace(configuration.outbox, retention_ns=200_000_000))
    node = ComposedNode(configuration)
    with capture_logs():
        try:
            await node.start()
            async with (
                Client([configuration.node.client]) as client,
                httpx.AsyncClient(base_url=f"http://{configuration.node.http}", trust_env=False) as http,
            ):
                name = new_operation_id()
                await client.submit(credit(name), wait=Wait.DONE)

                async def forgotten() -> object:
                    return (await client.call("status", {}))["outbox"]["forgotten"]

                await eventually_async(forgotten, within_s=10, what="it is forgotten")
                status = await asyncio.to_thread(run_json, "status", "--endpoints", configuration.node.client)
                scraped = samples((await http.get("/metrics")).text)
                with pytest.raises(OperationIdExpired):
                    await client.submit(credit(name), wait=Wait.DONE)
        finally:
            await node.close()
    code, body = status
    assert code == 0
    outbox = body["outbox"]
    assert (outbox["operations"], outbox["forgotten"]) == (0, 1)
    assert (outbox["retention_ns"], outbox["retention_count"]) == (200_000_000, 5)
    assert scraped["fencepost_commands_forgotten_total", ()] == 1
    assert scraped["fencepost_commands_remembered", ()] == 0
    assert scraped["fencepost_retention_seconds", ()] == 0.2
    assert scraped["fencepost_commands_ended_total", ("ledger", "succeeded")] == 1, "that it ended is not forgotten"
