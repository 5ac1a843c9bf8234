"""A steady load: clients that think for a while, want something, pursue it to the end, and think again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...raft.core.options import SECOND
from ...raft.effects.policy import OnDead
from ...raft.ports import Guarantee, Wait
from .clients import Client
from .decisions import Decisions
from .jobs import Job
from .registers import append, cas, write
from .streams import stream

if TYPE_CHECKING:
    from .world import World


class LoadSettings(NamedTuple):
    clients: int = 2
    think_ns: int = 4 * SECOND
    """Between the end of one thing and the next, on average: evenly from nothing to twice this."""
    proposals: float = 0.2
    """The share of writes, cas and appends of registers and lists."""
    reads: float = 0.1
    """The share of reads of these; what is left are commands."""
    keys: int = 2
    """So many registers and as many lists."""
    consistencies: Sequence[str] = ("linearizable",)
    """Of reads, one of these at a time."""
    lanes: int = 3
    """Commands go into one of so many lanes of their resource, or as often as into any of them into none."""
    committed: float = 0.2
    """The share of commands whose client waits for the commit alone."""
    resources: Sequence[str] = ()
    """Names; empty: all of the world's."""
    timed: float = 0.0
    """The share of commands that have a time before which, or a deadline by which, they are to be begun."""
    decides: bool = False
    """Somebody cancels, redrives and resolves commands."""


class Load:
    """Runs from :meth:`start` until :meth:`stop`; ``jobs`` is everything that was wanted."""

    def __init__(self, world: World, settings: LoadSettings | None = None) -> None:
        self.world = world
        self.settings = settings or LoadSettings()
        self.clients = [Client(world, f"client{number}") for number in range(1, self.settings.clients + 1)]
        self.jobs: list[Job] = []
        self._wishes = {client.name: stream(world.seed, f"wishes of {client.name}").random for client in self.clients}
        """What a client wants does not depend on what becomes of it, nor on other clients."""
        self._times = {client.name: stream(world.seed, f"times of {client.name}").random for client in self.clients}
        self.decisions = Decisions(world) if self.settings.decides else None
        self._counts = dict.fromkeys(self._wishes, 0)
        self._shift = 0
        """Counts starts and stops; who began to think before the last one does not go on."""

    def start(self) -> None:
        self._shift += 1
        for client in self.clients:
            self._think(client, self._shift)
        if self.decisions is not None:
            self.decisions.start()

    def stop(self) -> None:
        """Nothing new is wanted; what is under way is pursued to its end."""
        self._shift += 1
        if self.decisions is not None:
            self.decisions.stop()

    @property
    def at_rest(self) -> bool:
        decided = self.decisions is None or self.decisions.at_rest
        return decided and all(client.job is None for client in self.clients)

    def _think(self, client: Client, shift: int) -> None:
        pause_ns = int(2 * self.settings.think_ns * self._wishes[client.name]())
        self.world.outside.call_after_ns(pause_ns, self._want, client, shift)

    def _want(self, client: Client, shift: int) -> None:
        if shift != self._shift:
            return
        if client.job is not None:
            self._think(client, shift)
            return
        world, settings = self.world, self.settings
        random = self._wishes[client.name]
        self._counts[client.name] += 1
        name = f"{client.name}-{self._counts[client.name]}"
        drawn = random()
        if drawn < settings.proposals:
            job = client.propose(name, self._proposal(client))
        elif drawn < settings.proposals + settings.reads:
            consistency = settings.consistencies[int(random() * len(settings.consistencies))]
            at = world.names[int(random() * len(world.names))] if random() < 0.5 else ""
            job = client.read(self._key("rl"[int(random() * 2)], random), consistency=consistency, at=at, name=name)
        else:
            job = self._command(client, name)
        self.jobs.append(job)
        job.then = partial(self._think, client, shift)

    def _key(self, letter: str, random: Callable[[], float]) -> str:
        return f"{letter}{int(random() * self.settings.keys)}"

    def _proposal(self, client: Client) -> bytes:
        """Every value is written once."""
        random = self._wishes[client.name]
        value = self._number(client, self._counts[client.name])
        drawn = random()
        if drawn < 0.4:
            return append(self._key("l", random), value)
        if drawn < 0.8:
            return write(self._key("r", random), value)
        other = self.clients[int(random() * len(self.clients))]
        expected = self._number(other, int(random() * (self._counts[other.name] + 1)))
        return cas(self._key("r", random), expected, value)

    def _times_of(self, client: Client) -> tuple[int, int]:
        """By the leader's cluster time; none where nobody leads."""
        leader, random = self.world.leader(), self._times[client.name]
        if not self.settings.timed or random() >= self.settings.timed or leader is None:
            return 0, 0
        now_ns, drawn = leader.loop.cluster_time_ns(), random()
        later_ns = now_ns + int(4 * SECOND * random())
        return (later_ns, 0) if drawn < 0.6 else (0, later_ns + 1)

    def _number(self, client: Client, count: int) -> int:
        return count * len(self.clients) + self.clients.index(client)

    def _command(self, client: Client, name: str) -> Job:
        world, settings = self.world, self.settings
        random = self._wishes[client.name]
        resources = settings.resources or list(world.resources)
        resource = resources[int(random() * len(resources))]
        lane = int(random() * (settings.lanes + 1))
        # Behind a command in doubt a lane stands still, and whoever waits for its end waits for ever. Behind a dead
        # letter it may. At a fenced resource only a deadline leaves a command in doubt: those are for one of the lanes.
        spec = world.resources[resource].spec
        stands = spec.guarantee is not Guarantee.FENCED or spec.dispatch.on_dead is OnDead.BLOCK
        stands = stands or lane == settings.lanes
        may_stand = bool(lane) and stands
        not_before_ns, deadline_ns = self._times_of(client)
        deadline_ns = deadline_ns if stands or not lane else 0
        return client.submit(
            name,
            not_before_ns=not_before_ns,
            deadline_ns=deadline_ns,
            resource=resource,
            lane=f"lane{lane}" if lane else "",
            payload=b'{"amount":%d}' % self._counts[client.name],
            wait=Wait.COMMITTED if may_stand or random() < settings.committed else Wait.DONE,
        )
