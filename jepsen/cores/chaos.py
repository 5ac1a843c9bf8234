"""A random run: faults for a while, then healing, then everything must work within a bound.

``run(seed)`` decides everything by the seed, also which kinds of fault the run has.
"""

from __future__ import annotations

from collections.abc import Callable

from ...raft.core.events import Accepted, Role
from ...raft.core.options import MILLISECOND
from .changes import Changes
from .parts import DiskTimes, Network, SnapshotTimes
from .profiles import PROFILES
from .world import World

STEPS_MAX = 30_000
"""Several times what the busiest run takes."""
LIVENESS_TIMEOUTS = 30
"""Within so many election timeouts after healing a proposal is applied everywhere."""


class Chaos(Changes):
    """One run. ``duration`` is the length of the phase with faults, simulated nanoseconds."""

    def __init__(self, seed: int, duration: int = 3000 * MILLISECOND, *, check_nodes: bool = True) -> None:
        profile = PROFILES[seed % len(PROFILES)]
        world = World(
            tuple(f"n{number}" for number in range(1, profile.nodes + 1)),
            seed=seed,
            options=profile.options,
            network=profile.network,
            disk_times=profile.disk_times,
            clock_drift_ppm=profile.clock_drift_ppm,
            check_nodes=check_nodes,
        )
        super().__init__(world, profile)
        world.snapshot_times = profile.snapshot_times
        world.steps_max = STEPS_MAX
        self.duration = duration
        self.proposed = 0
        self.accepted = 0
        self._faulty = True
        self._writing = True

    def run(self) -> None:
        """Raises :class:`~.parts.Violation`."""
        world = self.world
        self._again(self._propose_somewhere, 20 * MILLISECOND, lambda: self._writing)
        if self.profile.reads:
            self._again(self._read_somewhere, 15 * MILLISECOND)
        if self.profile.faults:
            self._again(lambda: self._one_of(self.profile.faults), self.profile.pace)
        if self.profile.asks:
            self._again(lambda: self._one_of(self.profile.asks), self.profile.ask_pace)
        world.run_for(self.duration)
        self._faulty = False
        # Whoever needs a snapshot has to get it while others are taken.
        self._writing = bool(self.profile.options.snapshot_entries)
        self.repair()
        if "transfer" in self.profile.asks:
            world.run_for(self.profile.network.late_max)  # Word to campaign may still be under way.
        self.check_live()
        self.check_reads()

    def repair(self) -> None:
        world = self.world
        world.note("", "repaired")
        world.heal()
        world.network = Network()
        world.disk_times = DiskTimes()
        world.snapshot_times = SnapshotTimes()
        for name, node in world.nodes.items():
            if node.raft is not None and node.raft.failed:
                world.crash(name, keep_some=True)
            if node.raft is None:
                world.start(name)
            node.paused_until = 0
            if node.disk.stuck:
                world.unstick(name)

    # -- what works again ---------------------------------------------------------------------------

    def check_live(self) -> None:
        """A leader comes, ends an unfinished change of members, takes a proposal, and every member applies
        it and everything before it, if need be from a snapshot."""
        world = self.world
        timeout = self.profile.options.election_timeout
        marker = b"after the storm"
        took: list[Accepted] = []

        def everywhere() -> bool:
            leader = world.leader()
            if leader is None:
                return False
            raft = world.raft(leader)
            if raft.configuration.is_joint:
                if not raft.configuration.auto_leave:
                    world.change(leader)  # Nobody else will.
                return False
            if took and raft.log.term_at(took[0].first_index) != took[0].term:
                took.clear()  # Lost with the leader that took it: propose again, as a client would.
            if not took:
                outcome = world.propose(leader, marker)
                if isinstance(outcome, Accepted):
                    took.append(outcome)
            members = raft.configuration.members
            return bool(took) and all(world.nodes[name].applied_to >= took[0].first_index for name in members)

        what = "no change is unfinished, and every member has applied a proposal"
        world.run_until(everywhere, within=LIVENESS_TIMEOUTS * timeout, what=what)
        # Once there is a leader and nothing is wrong any more, it stays.
        leader = world.leader()
        assert leader is not None
        term = world.raft(leader).current_term
        self._writing = False
        world.run_for(5 * timeout)
        if world.leader() != leader or world.raft(leader).current_term != term:
            raise world.violation(f"{leader} lost term {term} although nothing was wrong")
        self.check_equal()

    def check_equal(self) -> None:
        """All members have the same log, as far as it is there, and the same state."""
        world = self.world
        leader = world.leader()
        assert leader is not None
        members = [world.raft(name) for name in world.raft(leader).configuration.members]
        start = max(raft.log.window_start for raft in members)
        if len({(raft.log.last_index, *raft.log.slice(start, raft.log.last_index)) for raft in members}) != 1:
            raise world.violation("the logs differ in the end")
        if len({world.nodes[raft.node_id].machine.digest for raft in members}) != 1:
            raise world.violation("the states differ in the end")

    def check_reads(self) -> None:
        """Every member gets its read answered, through the leader if it is not the leader."""
        world = self.world
        leader = world.leader()
        assert leader is not None
        ready = world.reads.ready
        members = world.raft(leader).configuration.members
        for name in members:
            world.read(name)
        timeout = self.profile.options.election_timeout
        world.run_until(lambda: world.reads.ready >= ready + len(members), within=timeout, what="every member has read")

    # -- what goes on -----------------------------------------------------------------------------

    def _again(self, action: Callable[[], None], mean: int, goes_on: Callable[[], bool] | None = None) -> None:
        def act() -> None:
            if goes_on() if goes_on is not None else self._faulty:
                action()
                self.world.after(self.random.randint(1, 2 * mean), act)

        self.world.after(self.random.randint(1, 2 * mean), act)

    def _at_some_node(self) -> str | None:
        """A node that believes that it leads, or any: a client does not know."""
        up = self.running()
        leaders = [name for name in up if self.world.raft(name).role is Role.LEADER]
        return self.any(leaders or up)

    def _propose_somewhere(self) -> None:
        name = self._at_some_node()
        if name is None:
            return
        data = []
        for _ in range(self.random.randint(1, 4)):
            self.proposed += 1
            data.append(b"%d" % self.proposed + b"." * self.random.randint(0, 40))
        if isinstance(self.world.propose(name, *data), Accepted):
            self.accepted += len(data)

    def _read_somewhere(self) -> None:
        name = self._at_some_node() if self.random.random() < 0.7 else self.any(self.running())
        if name is not None:
            self.world.read(name, lease=self.random.random() < 0.7)

    def _one_of(self, names: tuple[str, ...]) -> None:
        getattr(self, self.random.choice(names))()


def run(seed: int, *, check_nodes: bool = True) -> Chaos:
    """Run one seed to its end. Raises :class:`~.parts.Violation`."""
    chaos = Chaos(seed, check_nodes=check_nodes)
    chaos.run()
    return chaos
