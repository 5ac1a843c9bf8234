"""A random run: faults for a while, then healing, then everything must work within a bound.

``run(seed)`` decides everything by the seed, also which kinds of fault the run has: a run with all of
them at once hides what each alone would show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...raft.core.events import Accepted, Role
from ...raft.core.options import MILLISECOND, Options
from .parts import DiskTimes, Network
from .world import World

OPTIONS = Options(
    election_timeout=150 * MILLISECOND,
    heartbeat_interval=40 * MILLISECOND,
    stall_bound=200 * MILLISECOND,
    commit_notice_delay=10 * MILLISECOND,
    append_bytes_max=64,
    in_flight_max=4,
)
"""Small limits, so that every one of them is reached."""

STEPS_MAX = 20_000
"""Several times what the busiest run takes."""
LIVENESS_TIMEOUTS = 30
"""Within so many election timeouts after healing a proposal is applied everywhere."""


class Profile(NamedTuple):
    """What goes wrong in a run. Names of ``faults`` are methods of :class:`Chaos`."""

    name: str
    faults: tuple[str, ...] = ()
    nodes: int = 3
    network: Network = Network()
    disk_times: DiskTimes = DiskTimes()
    pace: int = 150 * MILLISECOND
    """The mean time between two faults."""


LOSSY = Network(1 * MILLISECOND, 30 * MILLISECOND, loss=0.1, duplication=0.1)
LATE = LOSSY._replace(loss=0.02, late=0.05)
SLOW_DISK = DiskTimes(1 * MILLISECOND, 40 * MILLISECOND, grouped=0.5)

PROFILES = (
    Profile("lossy", network=LOSSY),
    Profile("partitions", ("partition", "one_way", "isolate_leader", "heal"), network=Network(duplication=0.05)),
    Profile("crashes", ("crash", "restart", "restart"), disk_times=SLOW_DISK),
    Profile("disks", ("stick", "unstick", "fail_storage", "restart"), disk_times=SLOW_DISK),
    Profile("power", ("power_cut", "crash_leader", "restart", "restart"), network=LOSSY, disk_times=SLOW_DISK),
    Profile("roles", ("campaign", "step_down", "unreachable", "isolate_leader", "heal"), network=LOSSY),
    Profile("freezes", ("pause", "pause_leader"), network=LATE),
    Profile(
        "five",
        ("partition", "one_way", "crash", "restart", "heal", "isolate_leader", "crash_leader", "pause_leader"),
        nodes=5,
        network=LATE,
        disk_times=SLOW_DISK,
    ),
    Profile(
        "everything",
        (
            *("partition", "one_way", "isolate_leader", "heal", "heal", "crash", "crash_leader", "restart", "restart"),
            *("stick", "unstick", "fail_storage", "campaign", "step_down", "unreachable", "power_cut"),
            *("pause", "pause_leader"),
        ),
        network=LATE,
        disk_times=SLOW_DISK,
        pace=80 * MILLISECOND,
    ),
)


class Chaos:
    """One run. ``duration`` is the length of the phase with faults, simulated nanoseconds."""

    def __init__(self, seed: int, duration: int = 3000 * MILLISECOND, *, check_nodes: bool = True) -> None:
        self.profile = PROFILES[seed % len(PROFILES)]
        self.world = World(
            tuple(f"n{number}" for number in range(1, self.profile.nodes + 1)),
            seed=seed,
            options=OPTIONS,
            network=self.profile.network,
            disk_times=self.profile.disk_times,
            check_nodes=check_nodes,
        )
        self.world.steps_max = STEPS_MAX
        self.duration = duration
        self.proposed = 0
        self.accepted = 0
        self._random = self.world.random
        self._faulty = True

    def run(self) -> None:
        """Raises :class:`~.parts.Violation`."""
        world = self.world
        self._again(self._propose_somewhere, 20 * MILLISECOND)
        if self.profile.faults:
            self._again(self._fault, self.profile.pace)
        world.run_for(self.duration)
        self._faulty = False
        self.repair()
        self.check_live()

    def repair(self) -> None:
        world = self.world
        world.note("", "repaired")
        world.heal()
        world.network = Network()
        world.disk_times = DiskTimes()
        for name, node in world.nodes.items():
            if node.raft is not None and node.raft.failed:
                world.crash(name, keep_some=True)
            if node.raft is None:
                world.start(name)
            node.paused_until = 0
            if node.disk.stuck:
                world.unstick(name)

    def check_live(self) -> None:
        """A leader comes, takes a proposal, and every node applies it and everything before it."""
        world = self.world
        timeout = OPTIONS.election_timeout
        marker = b"after the storm"
        took: list[Accepted] = []

        def everywhere() -> bool:
            leader = world.leader()
            if leader is None:
                return False
            if took and world.raft(leader).log.term_at(took[0].first_index) != took[0].term:
                took.clear()  # Lost with the leader that took it: propose again, as a client would.
            if not took:
                outcome = world.propose(leader, marker)
                if isinstance(outcome, Accepted):
                    took.append(outcome)
            return bool(took) and all(node.applied_to >= took[0].first_index for node in world.nodes.values())

        world.run_until(everywhere, within=LIVENESS_TIMEOUTS * timeout, what="a proposal is applied on every node")
        # Once there is a leader and nothing is wrong any more, it stays.
        leader = world.leader()
        assert leader is not None
        term = world.raft(leader).current_term
        world.run_for(5 * timeout)
        if world.leader() != leader or world.raft(leader).current_term != term:
            raise world.violation(f"{leader} lost term {term} although nothing was wrong")
        logs = {tuple(world.raft(name).log.slice(1, world.raft(name).log.last_index)) for name in world.nodes}
        if len(logs) != 1:
            raise world.violation("the logs differ in the end")

    # -- what goes on -----------------------------------------------------------------------------

    def _again(self, action: Callable[[], None], mean: int) -> None:
        def act() -> None:
            if self._faulty:
                action()
                self.world.after(self._random.randint(1, 2 * mean), act)

        self.world.after(self._random.randint(1, 2 * mean), act)

    def _propose_somewhere(self) -> None:
        """At some node that believes that it leads, or at any: a client does not know."""
        world = self.world
        up = self._running()
        leaders = [name for name in up if world.raft(name).role is Role.LEADER]
        if not up:
            return
        name = self._random.choice(leaders or up)
        data = []
        for _ in range(self._random.randint(1, 4)):
            self.proposed += 1
            data.append(b"%d" % self.proposed + b"." * self._random.randint(0, 40))
        if isinstance(world.propose(name, *data), Accepted):
            self.accepted += len(data)

    def _fault(self) -> None:
        getattr(self, self._random.choice(self.profile.faults))()

    def _any(self, names: list[str]) -> str | None:
        return self._random.choice(names) if names else None

    def _running(self) -> list[str]:
        world = self.world
        return [n for n in world.up() if not world.raft(n).failed and world.nodes[n].paused_until <= world.now]

    def partition(self) -> None:
        names = list(self.world.nodes)
        self._random.shuffle(names)
        split = self._random.randint(1, len(names) - 1)
        self.world.partition(tuple(names[:split]), tuple(names[split:]))

    def one_way(self) -> None:
        source, to = self._random.sample(list(self.world.nodes), 2)
        self.world.cut(source, to)

    def isolate_leader(self) -> None:
        leader = self.world.leader()
        if leader is not None:
            self.world.isolate(leader)

    def heal(self) -> None:
        self.world.heal()

    def pause(self) -> None:
        if name := self._any(self._running()):
            self.world.pause(name, self._random.randint(1, 4 * OPTIONS.election_timeout))

    def pause_leader(self) -> None:
        leader = self.world.leader()
        if leader in self._running():
            self.world.pause(leader, self._random.randint(1, 4 * OPTIONS.election_timeout))

    def crash(self) -> None:
        if name := self._any(self.world.up()):
            self.world.crash(name, keep_some=True)

    def crash_leader(self) -> None:
        leader = self.world.leader()
        if leader is not None:
            self.world.crash(leader, keep_some=True)

    def power_cut(self) -> None:
        """All at once; some come back soon, the rest by ``restart``."""
        for name in self.world.up():
            self.world.crash(name, keep_some=True)
        for name in self._random.sample(list(self.world.nodes), len(self.world.nodes) // 2 + 1):
            self.world.after(self._random.randint(1, 100 * MILLISECOND), self._starter(name))

    def _starter(self, name: str) -> Callable[[], None]:
        def start() -> None:
            if self.world.nodes[name].raft is None:
                self.world.start(name)

        return start

    def restart(self) -> None:
        down = [name for name, node in self.world.nodes.items() if node.raft is None or node.raft.failed]
        if name := self._any(down):
            self.world.crash(name, keep_some=True)
            self.world.start(name)

    def stick(self) -> None:
        if name := self._any(self._running()):
            self.world.stick(name)

    def unstick(self) -> None:
        if name := self._any([name for name in self._running() if self.world.nodes[name].disk.stuck]):
            self.world.unstick(name)

    def fail_storage(self) -> None:
        if name := self._any(self._running()):
            self.world.fail_storage(name)

    def campaign(self) -> None:
        if name := self._any(self._running()):
            self.world.campaign(name)

    def step_down(self) -> None:
        if name := self._any(self._running()):
            self.world.step_down(name)

    def unreachable(self) -> None:
        source, to = self._random.sample(list(self.world.nodes), 2)
        if source in self._running():
            self.world.unreachable(source, to)


def run(seed: int, *, check_nodes: bool = True) -> Chaos:
    """Run one seed to its end. Raises :class:`~.parts.Violation`."""
    chaos = Chaos(seed, check_nodes=check_nodes)
    chaos.run()
    return chaos
