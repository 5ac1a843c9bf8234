"""A steady load: clients that think for a while, want something, pursue it to the end, and think again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...raft.core.options import SECOND
from ...raft.ports import Guarantee, Wait
from .clients import Client, Job

if TYPE_CHECKING:
    from .world import World


class LoadSettings(NamedTuple):
    clients: int = 2
    think_ns: int = 4 * SECOND
    """Between the end of one thing and the next, on average: evenly from nothing to twice this."""
    proposals: float = 0.2
    """The share of plain proposals; the others are commands."""
    lanes: int = 3
    """Commands go into one of so many lanes of their resource, or as often as into any of them into none."""
    committed: float = 0.2
    """The share of commands whose client waits for the commit alone."""
    resources: Sequence[str] = ()
    """Names; empty: all of the world's."""


class Load:
    """Runs from :meth:`start` until :meth:`stop`; ``jobs`` is everything that was wanted."""

    def __init__(self, world: World, settings: LoadSettings | None = None) -> None:
        self.world = world
        self.settings = settings or LoadSettings()
        self.clients = [Client(world, f"client{number}") for number in range(1, self.settings.clients + 1)]
        self.jobs: list[Job] = []
        self._running = False
        self._count = 0

    def start(self) -> None:
        self._running = True
        for client in self.clients:
            self._think(client)

    def stop(self) -> None:
        """Nothing new is wanted; what is under way is pursued to its end."""
        self._running = False

    @property
    def at_rest(self) -> bool:
        return all(client.job is None for client in self.clients)

    def _think(self, client: Client) -> None:
        world = self.world
        pause_ns = int(2 * self.settings.think_ns * world.random.random())
        world.outside.call_after_ns(pause_ns, self._want, client)

    def _want(self, client: Client) -> None:
        if client.job is not None:
            self._think(client)
        if client.job is not None or not self._running:
            return
        world, settings = self.world, self.settings
        random = world.random.random
        self._count += 1
        name = f"{client.name}-{self._count}"
        if random() < settings.proposals:
            job = client.propose(name, name.encode())
        else:
            resources = settings.resources or list(world.resources)
            resource = resources[int(random() * len(resources))]
            lane = int(random() * (settings.lanes + 1))
            # Behind a command in doubt a lane stands still, and whoever waits for its end waits for ever.
            may_stand = bool(lane) and world.resources[resource].spec.guarantee is not Guarantee.FENCED
            job = client.submit(
                name,
                resource=resource,
                lane=f"lane{lane}" if lane else "",
                payload=b'{"amount":%d}' % self._count,
                wait=Wait.COMMITTED if may_stand or random() < settings.committed else Wait.DONE,
            )
        self.jobs.append(job)
        job.then = partial(self._think, client)
