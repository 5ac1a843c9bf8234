"""Where a scenario plays: the cluster, its ledger, the client, and what a watcher sees of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from ...raft.core.errors import FencepostError
from ...raft.effects.resources.audit import read_ledger
from ...raft.effects.resources.ledger import AcceptedOperation, Refusal
from ..local_cluster import LocalCluster, Status, until
from .narrator import Narrator, NodePicture, Picture
from .payments import DEFINITIONS, LEDGER_FILE, RESOURCE, Payment, Payments

WATCH_S = 0.2


class Stage:
    """An async context manager: entering starts the nodes, leaving ends every process."""

    def __init__(self, folder: Path, nodes: int, seed: int, narrator: Narrator, command: Sequence[str] | None) -> None:
        self.folder = folder
        self.narrator = narrator
        self.seed = seed
        self.cluster = LocalCluster(
            folder, nodes=[f"n{number + 1}" for number in range(nodes)], definitions=DEFINITIONS, command=command
        )
        self.payments: Payments
        self._conditions = dict.fromkeys(self.cluster.nodes, "starting")
        self._seen: dict[str, Status] = {}
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Stage:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.cluster)
            self.start()
            client = await stack.enter_async_context(self.cluster.client())
            self.payments = await stack.enter_async_context(Payments(client, self.folder, self.seed))
            watcher = asyncio.create_task(self._watch())
            stack.push_async_callback(_cancelled, watcher)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    # -- what is done to nodes ------------------------------------------------------------------------

    def start(self, *nodes: str) -> None:
        self.cluster.start(*nodes)
        self._note("running", nodes or self.cluster.nodes)

    def kill(self, node: str) -> None:
        self.cluster.kill(node)
        self._note("killed", [node])

    def freeze(self, *nodes: str) -> None:
        self.cluster.freeze(*nodes)
        self._note("frozen", nodes)

    def thaw(self, *nodes: str) -> None:
        self.cluster.thaw(*nodes)
        self._note("running", nodes)

    async def stop(self, *nodes: str) -> dict[str, int]:
        """SIGTERM; exit codes by node. The proof is told of them."""
        codes = await self.cluster.stop(*nodes)
        self._note("stopped", codes)
        for node, code in codes.items():
            self.payments.note("stopped", node=node, code=code)
        return codes

    def _note(self, condition: str, nodes: Sequence[str] | dict[str, int]) -> None:
        for node in nodes:
            self._conditions[node] = condition

    # -- what is seen -----------------------------------------------------------------------------------

    def others(self, node: str) -> list[str]:
        return [other for other in self.cluster.nodes if other != node]

    async def command(self, node: str, payment: Payment) -> dict[str, Any]:
        """What a node knows of a payment; empty if nothing."""
        try:
            found: dict[str, Any] = await self.cluster.call(
                node, "command.get", {"id": payment.operation_id, "consistency": "stale"}
            )
        except FencepostError:
            return {}
        return found

    async def dispatched(self, node: str, payment: Payment) -> None:
        """Wait until a payment is being carried out by ``node``."""

        async def look() -> bool:
            return (await self.command(node, payment)).get("state") == "dispatched"

        await until(look, within_s=15, what=f"{payment.operation_id} dispatched by {node}")

    async def succeeded(self, node: str, payment: Payment) -> dict[str, Any]:
        """Wait until ``node`` knows a payment as done."""

        async def look() -> dict[str, Any] | None:
            found = await self.command(node, payment)
            return found if found.get("state") == "succeeded" else None

        return await until(look, within_s=30, what=f"{payment.operation_id} done")

    def accepted(self, payment: Payment) -> AcceptedOperation | None:
        """The ledger's own record of a payment."""
        operations = read_ledger(self.folder / LEDGER_FILE).operations
        return next((row for row in operations if row.operation_id == payment.operation_id), None)

    async def refusal(self, payment: Payment, *, within_s: float) -> Refusal | None:
        """Wait for the ledger to record that it refused a payment; None if it does not in time."""

        async def look() -> Refusal | None:
            refusals = read_ledger(self.folder / LEDGER_FILE).refusals
            return next((row for row in refusals if payment.operation_id in row.operations), None)

        with suppress(FencepostError):
            return await until(look, within_s=within_s, what="a refusal")
        return None

    async def elected(self, besides: Sequence[str] = (), *, first_effect: bool = True) -> Status:
        """Wait for a leader with every resource active, and its record of what the change took."""
        status = await self.cluster.ready(besides=besides)
        node, term = status["node_id"], str(status["term"])

        async def look() -> Status | None:
            found = await self.cluster.status(node)
            record = found["last_election"] if found is not None else None
            if record is None or record["token"]["term"] != term:
                return None
            done = not first_effect or any(stage["stage"] == "first-effect" for stage in record["stages"])
            return found if done else None

        return await until(look, within_s=30, what=f"{node}'s first effect in term {term}")

    async def finish(self) -> None:
        """The client gets its last answers, every node catches up, and all end."""
        await self.payments.finish()
        status = await self.cluster.ready()
        await self.cluster.caught_up(int(status["commit_index"]))
        await self.stop()

    def picture(self) -> Picture:
        rows = []
        for node in self.cluster.nodes:
            condition, status = self._conditions[node], self._seen.get(node)
            role, fence = "", ""
            if status is not None and condition in ("running", "frozen"):
                role = f"{status['role']} in term {status['term']}"
                resource = status["resources"][RESOURCE]
                token = resource["token"]
                if token is not None:
                    fence = f"ledger {resource['activation']}, token {token['incarnation']}.{token['term']}"
            if condition == "frozen":
                role = f"believes: {role}" if role else ""
            rows.append(NodePicture(node, condition, role, fence))
        return Picture(rows, self.payments.submitted, self.payments.answered)

    async def _watch(self) -> None:
        """What a frozen node said last stays in the picture."""
        while True:
            running = [node for node in self.cluster.nodes if self._conditions[node] == "running"]
            found = await asyncio.gather(*(self.cluster.status(node) for node in running))
            for node, status in zip(running, found, strict=True):
                if status is not None:
                    self._seen[node] = status
                elif self._conditions[node] == "running":
                    self._seen.pop(node, None)
            await asyncio.sleep(WATCH_S)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
