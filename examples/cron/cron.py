"""A scheduler that fires each tick once, whichever node leads.

python cron.py n1        one node of three (n1, n2, n3); what was fired goes into ./runs.db
python cron.py check     each tick once, and none missing?
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

import msgspec

from fencepost import Effect, FencepostError, Leadership, Node, NodeSettings, Outbox

PEERS = {"n1": "127.0.0.1:7011", "n2": "127.0.0.1:7012", "n3": "127.0.0.1:7013"}
CLIENTS = {"n1": "127.0.0.1:7111", "n2": "127.0.0.1:7112", "n3": "127.0.0.1:7113"}
SCHEDULES = {"report": 0.2, "backup": 0.5}
"""Seconds from tick to tick. A tick is a number: the time divided by this."""


@dataclass
class Tick:
    schedule: str
    tick: int


class LastTicks:
    """What a new leader has to know: the last tick of each schedule that is in the log for good."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}

    def apply(self, index: int, term: int, command: Tick) -> None:
        self.last[command.schedule] = max(command.tick, self.last.get(command.schedule, 0))

    def snapshot(self) -> Iterable[bytes]:
        return [msgspec.msgpack.encode(self.last)]

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.last = msgspec.msgpack.decode(b"".join(chunks), type=dict[str, int])


def make_outbox() -> tuple[Outbox, Effect[Tick, dict[str, int]]]:
    outbox = Outbox()
    # No unique key in the table: that each tick is there once is fencepost's doing.
    outbox.sqlite(
        "runs",
        "runs.db",
        schema="CREATE TABLE IF NOT EXISTS runs(schedule TEXT, tick INTEGER)",
        effects={"run": "INSERT INTO runs(schedule, tick) VALUES (:schedule, :tick)"},
    )
    return outbox, outbox.declare("run", resource="runs", payload=Tick, result=dict[str, int])


async def fire(node: Node[Tick, None], ticks: LastTicks, outbox: Outbox, run: Effect[Tick, dict[str, int]]) -> None:
    """Fire what is due, for ever; cancelled when another node leads. Both may run for a moment: the id decides."""
    while True:
        try:
            last = await node.read(lambda: dict(ticks.last))
            for schedule, every_s in SCHEDULES.items():
                due = int(time.time() / every_s)
                for tick in range(last.get(schedule, due - 1) + 1, due + 1):  # Those of a time without a leader too.
                    each = Tick(schedule, tick)
                    handle = await outbox.submit(run, each, id=f"{schedule}@{tick}", lane=schedule)
                    await handle.committed()
                    await node.propose(each, id=f"{schedule}@{tick}")
        except FencepostError as error:
            print(error.code, error)  # Again: under the same ids nothing is fired twice.
        await asyncio.sleep(0.05)


async def serve(name: str) -> None:
    ticks = LastTicks()
    outbox, run = make_outbox()
    settings = NodeSettings(
        cluster_id="cron",
        node_id=name,
        data_dir=name,
        peer=PEERS[name],
        client=CLIENTS[name],
        peers={peer: address for peer, address in PEERS.items() if peer != name},
        heartbeat_s=0.05,
        election_timeout_s=0.4,
    )
    firing: asyncio.Task[None] | None = None

    def follow(leadership: Leadership) -> None:
        nonlocal firing
        print("leads" if leadership.leads else f"follows {leadership.leader or 'nobody'}", "in term", leadership.term)
        if firing is not None:
            firing.cancel()
        firing = asyncio.create_task(fire(node, ticks, outbox, run)) if leadership.leads else None

    async with Node(settings, ticks, outbox=outbox) as node:
        async for leadership in node.leadership():
            follow(leadership)


def check() -> str:
    with closing(sqlite3.connect("runs.db")) as database:
        rows = database.execute("SELECT schedule, tick FROM runs ORDER BY rowid").fetchall()
    for schedule in SCHEDULES:
        ticks = [tick for name, tick in rows if name == schedule]
        assert ticks, f"{schedule} was never fired"
        assert ticks == list(range(ticks[0], ticks[0] + len(ticks))), f"{schedule}: {ticks}"
    return f"{len(rows)} ticks of {len(SCHEDULES)} schedules: each once, in order, none missing"


if __name__ == "__main__":
    if sys.argv[1] == "check":
        print(check())
    else:
        asyncio.run(serve(sys.argv[1]))
