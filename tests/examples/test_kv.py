"""examples/kv: what was set is read on every node, and nothing is lost with one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.house.tree import ROOT

from .programs import copied, module, running


def test_it_has_under_a_hundred_lines() -> None:
    assert len((ROOT / "examples" / "kv" / "kv.py").read_text(encoding="utf-8").splitlines()) < 100


@pytest.mark.endure
async def test_a_swap_counts_up_while_nodes_leave_and_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All three in this process; whoever leads among them goes at one time or the other."""
    place = copied("kv", tmp_path)
    monkeypatch.chdir(place)
    kv = module(place / "kv.py")
    serving = {name: asyncio.create_task(kv.serve(name)) for name in kv.PEERS}
    try:
        assert await kv.ask(["get", "count"]) is None
        assert await kv.ask(["set", "count", "0"]) is True
        for number, name in enumerate(kv.PEERS):
            serving[name].cancel()
            assert await kv.ask(["swap", "count", str(number), str(number + 1)]) is True
            assert await kv.ask(["swap", "count", str(number), "lost"]) is False
            await asyncio.gather(serving[name], return_exceptions=True)
            serving[name] = asyncio.create_task(kv.serve(name))
        assert await kv.ask(["get", "count"]) == "3"
    finally:
        for task in serving.values():
            task.cancel()
        await asyncio.gather(*serving.values(), return_exceptions=True)


@pytest.mark.endure
def test_nothing_is_lost_with_nodes_that_are_killed(tmp_path: Path) -> None:
    place = copied("kv", tmp_path)
    with running(place) as processes:
        for name in ("n1", "n2", "n3"):
            processes.start(name, "kv.py", "serve", name)
        assert processes.run("kv.py", "ask", "set", "count", "0") == "true\n"
        for number in range(6):
            name = f"n{number % 3 + 1}"
            processes.kill(name)
            assert processes.run("kv.py", "ask", "swap", "count", str(number), str(number + 1)) == "true\n"
            processes.start(name, "kv.py", "serve", name)
        assert json.loads(processes.run("kv.py", "ask", "get", "count")) == "6"
