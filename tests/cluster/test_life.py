"""The whole life of a command as a user has it: by the command line, over real processes and two dead leaders."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.local_cluster import LocalCluster, node_command, until

from ..cli.running import run
from .support import FAST, fencepost

pytestmark = pytest.mark.servers

BANK = '''
"""A bank that is down while there is a file `down`, and never answers about what is named in a file `hang`."""
import asyncio
from pathlib import Path
from fencepost import EffectContext, Retryable

HERE = Path(__file__).parent

async def pay(context: EffectContext, payload: object) -> dict[str, int]:
    if (HERE / "down").exists():
        raise Retryable("503")
    with (HERE / "calls").open("a") as calls:
        calls.write(f"{context.operation_id}\\n")
    if (HERE / "hang").exists() and context.operation_id in (HERE / "hang").read_text().split():
        await asyncio.sleep(600)
    return {"attempt": context.attempt}
'''
RESOURCES = """
[resources.bank]
kind = "python"
handler = "bank:pay"
guarantee = "naked"
allow_duplicates = true
max_attempts = 2
backoff = "20ms"
on_dead = "block"
effects.pay = {}
[resources.ledger]
kind = "sqlite"
path = "ledger.db"
schema = "CREATE TABLE IF NOT EXISTS entries(operation TEXT, lane TEXT, cents INTEGER)"
effects.credit.sql = "INSERT INTO entries VALUES (:operation_id, :lane, :cents)"
"""


class Shell:
    """Types commands in the folder of a cluster. In this process: they are many, and each is what a user would type."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self._context = str(cluster.folder / "fencepost.toml")

    async def types(self, *words: str, code: int = 0) -> dict[str, Any]:
        """The document that the command answers with, or its error where it ends with another code than 0."""
        result = await asyncio.to_thread(run, *words, "-o", "json", FENCEPOST_CONTEXT=self._context)
        assert result.exit_code == code, f"{words}\n{result.stdout}{result.stderr}"
        if code == 0:
            body: dict[str, Any] = json.loads(result.stdout)
            return body
        documents = [json.loads(line) for line in result.stderr.splitlines()]
        return next(dict(each["error"]) for each in documents if each["kind"] == "Error")

    async def pays(self, name: str, *more: str) -> None:
        await self.types("submit", "bank", "pay", "{}", "--id", name, "--wait", "committed", *more)

    async def shows(self, name: str) -> dict[str, Any]:
        """All that is known of it, apart from how old that is."""
        body = await self.types("command", "show", name, "--history")
        return {key: value for key, value in body.items() if key != "read"}

    async def until_it_is(self, name: str, state: str) -> None:
        await self.types("wait", "--for", f"command={name}:{state}")

    async def lists(self, state: str) -> list[str]:
        body = await self.types("command", "list", "--state", state)
        return [each["id"] for each in body["items"]]

    async def loses_its_leader(self) -> str:
        """Kill -9 whoever leads, and wait until another acts. Whom it was."""
        leader: str = (await self.cluster.leader())["node_id"]
        self.cluster.kill(leader)
        await self.cluster.ready(besides=[leader])
        self.cluster.start(leader)
        return leader


def states(shown: dict[str, Any]) -> list[str]:
    return [step["state"] for step in shown["history"]]


async def test_the_life_of_commands_over_two_dead_leaders_s50_s51_s52(
    make_cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    (tmp_path / "bank.py").write_text(BANK)
    down, hang, calls = (tmp_path / name for name in ("down", "hang", "calls"))
    cluster = make_cluster(
        definitions=FAST + RESOURCES,
        command=node_command(f"import sys; sys.path.insert(0, {str(tmp_path)!r})"),
    )
    cluster.start()
    await cluster.ready()
    shell = Shell(cluster)

    # A bank that is down: the head of the lane dies of it, and its lane stands.
    down.touch()
    await shell.pays("p1", "--lane", "k")
    await shell.pays("p2", "--lane", "k")
    await shell.pays("p3", "--lane", "other")
    for name in ("soon", "never"):
        await shell.pays(name, "--not-before", "+1h", "--deadline", "+2h")
    # Its lane stands, and so its deadline passes before it was begun.
    await shell.pays("late", "--lane", "k", "--deadline", "+300ms")
    await shell.until_it_is("p1", "dead")
    await shell.until_it_is("p3", "dead")
    await shell.until_it_is("late", "dead")
    before = {name: await shell.shows(name) for name in ("p1", "p2", "soon")}
    assert states(before["p1"]) == ["committed", "dispatched", "retry-wait", "dispatched", "dead"]
    assert (before["p1"]["attempt"], before["p1"]["failures"], before["p2"]["state"]) == (2, 2, "committed")
    assert before["soon"]["waiting_reason"] == "its time has not come"
    assert (await shell.shows("late"))["attempt"] == 0
    cancelled = await shell.types("command", "cancel", "never", "--note", "ordered twice")
    assert (cancelled["did"], cancelled["definite"], cancelled["state"]) == ("cancelled", True, "cancelled")

    # Its leader dies, and nothing of that is forgotten.
    await shell.loses_its_leader()
    assert {name: await shell.shows(name) for name in before} == before
    assert await shell.lists("dead") == ["p1", "p3", "late"]
    assert await shell.lists("cancelled") == ["never"]
    assert await shell.lists("committed") == ["p2", "soon"]

    # The bank is back. What is redriven keeps its id and its count, and takes a place behind its lane.
    down.unlink()
    discarded = await shell.types("command", "discard", "p3", "--note", "paid in cash")
    assert (discarded["did"], discarded["state"]) == ("discarded", "failed")
    assert (await shell.types("command", "redrive", "p3", code=6))["code"] == "WRONG_STATE"
    await shell.types("command", "discard", "late")
    await shell.types("command", "redrive", "p1", "--note", "the bank is back")
    await shell.until_it_is("p1", "succeeded")
    await shell.until_it_is("p2", "succeeded")
    redriven = await shell.shows("p1")
    assert (redriven["attempt"], redriven["result"]) == (3, {"attempt": 3})
    assert states(redriven)[-3:] == ["committed", "dispatched", "succeeded"]
    assert "the bank is back" in [step["note"] for step in redriven["history"]][-3]
    assert calls.read_text().split() == ["p2", "p1"], "it took a new place in its lane"
    replayed = await shell.types("submit", "bank", "pay", "{}", "--id", "p1", "--lane", "k")
    assert (replayed["replayed"], replayed["state"]) == (True, "succeeded")

    # The bank is called, and nobody hears the answer: no one may say what became of it but a person.
    hang.write_text("p4 p5")
    await shell.pays("p4")
    await shell.pays("p5")

    async def called() -> bool:
        return {"p4", "p5"} <= set(calls.read_text().split())

    await until(called, within_s=10, what="the calls")
    asked = await shell.types("command", "cancel", "p5")
    assert (asked["did"], asked["definite"]) == ("requested", False)
    await shell.loses_its_leader()
    await shell.until_it_is("p4", "in-doubt")
    await shell.until_it_is("p5", "in-doubt")
    doubtful = await shell.types("submit", "bank", "pay", "{}", "--id", "p4", code=5)
    assert doubtful["code"] == "OUTCOME_UNKNOWN"
    assert (await shell.types("command", "cancel", "p4", code=6))["code"] == "WRONG_STATE"
    resolved = await shell.types("command", "resolve", "p4", "--as", "done", "--note", "seen in the statement")
    assert (resolved["state"], await shell.lists("in-doubt")) == ("succeeded", ["p5"])
    resolved = await shell.types("command", "resolve", "p5", "--as", "failed", "--note", "not in the statement")
    assert (resolved["state"], await shell.lists("dead")) == ("dead", ["p5"])
    assert sorted(calls.read_text().split()) == ["p1", "p2", "p4", "p5"], "each was called once"

    # What the cluster says of itself, once more from a process of its own.
    await cluster.caught_up(int((await cluster.leader())["commit_index"]))
    context = str(cluster.folder / "fencepost.toml")
    for check in (("ready",), ("live",), ("lag",), ("fences",), ("quorum-critical", "n1")):
        await shell.types("check", *check)
    told = await fencepost("cluster", "events", "-o", "json", "--context", context)
    assert told.code == 0, told.stderr
    elected = [row for row in told.document()["items"] if row["event"] == "elected"]
    assert len(elected) >= 3
    assert {"detect", "elect", "catch-up", "fence"} <= {stage["stage"] for stage in elected[-1]["stages"]}
    status = await shell.types("status")
    assert (status["outbox"]["operations"], status["outbox"]["forgotten"]) == (8, 0)
    assert set((await cluster.stop()).values()) == {0}
