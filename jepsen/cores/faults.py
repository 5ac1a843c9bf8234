"""The kinds of fault of a random run, a method each."""

from __future__ import annotations

import random
from collections.abc import Callable

from ...raft.core.options import MILLISECOND
from .profiles import OPTIONS, Profile
from .world import World


class Faults:
    """Every fault does nothing where it makes no sense just now."""

    def __init__(self, world: World, profile: Profile) -> None:
        self.world = world
        self.profile = profile
        self.random: random.Random = world.random

    def any(self, names: list[str]) -> str | None:
        return self.random.choice(names) if names else None

    def running(self) -> list[str]:
        world = self.world
        return [n for n in world.up() if not world.raft(n).failed and world.nodes[n].paused_until <= world.now]

    def partition(self) -> None:
        names = list(self.world.nodes)
        self.random.shuffle(names)
        split = self.random.randint(1, len(names) - 1)
        self.world.partition(tuple(names[:split]), tuple(names[split:]))

    def one_way(self) -> None:
        source, to = self.random.sample(list(self.world.nodes), 2)
        self.world.cut(source, to)

    def isolate_leader(self) -> None:
        leader = self.world.leader()
        if leader is not None:
            self.world.isolate(leader)

    def isolate(self) -> None:
        self.world.isolate(self.random.choice(list(self.world.nodes)))

    def heal(self) -> None:
        self.world.heal()

    def pause(self) -> None:
        if name := self.any(self.running()):
            self.world.pause(name, self.random.randint(1, 4 * OPTIONS.election_timeout))

    def pause_leader(self) -> None:
        leader = self.world.leader()
        if leader in self.running():
            self.world.pause(leader, self.random.randint(1, 4 * OPTIONS.election_timeout))

    def crash(self) -> None:
        if name := self.any(self.world.up()):
            self.world.crash(name, keep_some=True)

    def crash_leader(self) -> None:
        leader = self.world.leader()
        if leader is not None:
            self.world.crash(leader, keep_some=True)

    def power_cut(self) -> None:
        """All at once; some come back soon, the rest by ``restart``."""
        for name in self.world.up():
            self.world.crash(name, keep_some=True)
        for name in self.random.sample(list(self.world.nodes), len(self.world.nodes) // 2 + 1):
            self.world.after(self.random.randint(1, 100 * MILLISECOND), self._starter(name))

    def _starter(self, name: str) -> Callable[[], None]:
        def start() -> None:
            if self.world.nodes[name].raft is None:
                self.world.start(name)

        return start

    def restart(self) -> None:
        down = [name for name, node in self.world.nodes.items() if node.raft is None or node.raft.failed]
        if name := self.any(down):
            self.world.crash(name, keep_some=True)
            self.world.start(name)

    def stick(self) -> None:
        if name := self.any(self.running()):
            self.world.stick(name)

    def unstick(self) -> None:
        if name := self.any([name for name in self.running() if self.world.nodes[name].disk.stuck]):
            self.world.unstick(name)

    def fail_storage(self) -> None:
        if name := self.any(self.running()):
            self.world.fail_storage(name)

    def campaign(self) -> None:
        if name := self.any(self.running()):
            self.world.campaign(name)

    def step_down(self) -> None:
        if name := self.any(self.running()):
            self.world.step_down(name)

    def unreachable(self) -> None:
        source, to = self.random.sample(list(self.world.nodes), 2)
        if source in self.running():
            self.world.unreachable(source, to)
