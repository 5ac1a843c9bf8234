"""What is done to the cluster while it works: the leader is killed and frozen in turn, and the servers crash."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

from ...cli.local_cluster import LocalCluster
from ...raft.core.token import FencingToken
from .evidence import FenceSample, database_fence, file_fence
from .servers import Server
from .workload import DATABASE, FILE

ELECTION_TIMEOUT_S = 0.5
RECOVERS_WITHIN_S = 60.0
FROZEN_MAX_S = 6.0
"""A leader that was frozen in the middle of a SQLite transaction holds the lock of the file, and nobody can take that
away: its successor is kept waiting there until it wakes or ends."""


@dataclass(slots=True)
class Faults:
    kills: int = 0
    freezes: int = 0
    cut_short: int = 0
    """Freezes that were ended because the successor had not got every resource for so long."""
    server_crashes: int = 0
    recoveries_s: list[float] = field(default_factory=list)
    """From a kill or freeze of the leader until one was active at every resource."""

    def as_json(self) -> dict[str, Any]:
        ordered = sorted(self.recoveries_s)
        return {
            "kills": self.kills,
            "freezes": self.freezes,
            "freezes_cut_short": self.cut_short,
            "server_crashes": self.server_crashes,
            "recovery_median_s": round(ordered[len(ordered) // 2], 3) if ordered else None,
            "recovery_longest_s": round(ordered[-1], 3) if ordered else None,
        }


class Nemesis:
    """``every_s``: pauses between two faults are drawn from there. ``servers`` are crashed and started again, one
    in turn after every ``server_every`` of the other faults."""

    def __init__(
        self,
        cluster: LocalCluster,
        seed: int,
        *,
        database_url: str,
        servers: list[Server],
        every_s: tuple[float, float] = (2.0, 5.0),
        server_every: int = 10,
    ) -> None:
        self.faults = Faults()
        self.samples: list[FenceSample] = []
        self._cluster = cluster
        self._chance = random.Random(f"faults {seed}")
        self._database_url = database_url
        self._servers = servers
        self._every_s = every_s
        self._server_every = server_every

    async def run(self, ends: asyncio.Event) -> None:
        """Until ``ends`` is set; every process runs then."""
        faults = self.faults
        while not await self._pause(ends):
            leader = await self._ready()
            done = faults.kills + faults.freezes
            if self._servers and done >= (faults.server_crashes + 1) * self._server_every:
                await self._crash_server(self._servers[faults.server_crashes % len(self._servers)])
            elif faults.kills > faults.freezes:
                await self._freeze(leader)
            else:
                await self._kill(leader)
            await self._ready()

    async def _pause(self, ends: asyncio.Event) -> bool:
        try:
            await asyncio.wait_for(ends.wait(), self._chance.uniform(*self._every_s))
        except TimeoutError:
            return False
        return True

    async def _ready(self, besides: str = "") -> str:
        """A leader that is active everywhere, and what the fences say then."""
        status = await self._cluster.ready(within_s=RECOVERS_WITHIN_S, besides=[besides])
        at_least = FencingToken(1, int(status["term"]))
        file = self._cluster.folder / f"{FILE}.db"
        for name, token in ((FILE, file_fence(file)), (DATABASE, await database_fence(self._database_url))):
            self.samples.append(FenceSample(name, token, at_least))
        return str(status["node_id"])

    async def _kill(self, leader: str) -> None:
        began = time.monotonic()
        self._cluster.kill(leader)
        self.faults.kills += 1
        if self._chance.random() < 0.5:
            await self._recovered(began, besides=leader)
            self._cluster.start(leader)
        else:  # It comes back into the election that its end has made necessary.
            await asyncio.sleep(self._chance.uniform(0.0, 1.5))
            self._cluster.start(leader)
            await self._recovered(began)

    async def _freeze(self, leader: str) -> None:
        began = time.monotonic()
        self._cluster.freeze(leader)
        self.faults.freezes += 1
        try:
            await asyncio.sleep(self._chance.uniform(1.5, 4.0) * ELECTION_TIMEOUT_S)
            if self._chance.random() < 0.75:  # Else it wakes while its successor is still at it.
                async with asyncio.timeout(FROZEN_MAX_S):
                    await self._recovered(began, besides=leader)
        except TimeoutError:
            self.faults.cut_short += 1
        finally:
            self._cluster.thaw(leader)

    async def _recovered(self, began: float, besides: str = "") -> None:
        await self._ready(besides)
        self.faults.recoveries_s.append(time.monotonic() - began)

    async def _crash_server(self, server: Server) -> None:
        server.end()
        self.faults.server_crashes += 1
        await asyncio.sleep(self._chance.uniform(0.0, 1.0))
        await server.start()
