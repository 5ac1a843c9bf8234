"""After healing everything must work again, within a bound; and from then on, with nothing wrong, nothing may change.

Alive is a cluster with a leader that is active, in which every command that waits ends, a fresh command
is done, every member has the whole log, and no configuration is joint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...raft.core.options import MILLISECOND, SECOND
from ...raft.effects.policy import OnDead
from ...raft.outbox.operation import TERMINAL, OperationState
from ..sim.clients import Client
from ..sim.jobs import Job

if TYPE_CHECKING:
    from ..sim.load import Load
    from ..sim.node import SimNode
    from ..sim.world import World
    from .stage import Stage

LEADER_WITHIN_NS = 40 * SECOND
"""A claim that failed is tried again after two seconds, a slow call answered after five, an orderly end takes three."""
ALIVE_WITHIN_NS = 120 * SECOND
LOOK_EVERY_NS = 100 * MILLISECOND


class Liveness:
    def __init__(self, world: World, stage: Stage, load: Load) -> None:
        self._nodes = len(world.names)
        self.alive_ns = 0
        """From healing until everything was alive."""
        self._world = world
        self._stage = stage
        self._load = load

    # -- coming alive -------------------------------------------------------------------------------

    def come_alive(self) -> None:
        """Raises :class:`Violation` if it does not within the bounds."""
        world = self._world
        began_ns = world.now_ns
        self._until(lambda: not self._no_leader(), LEADER_WITHIN_NS, self._no_leader)
        self._load.stop()
        self._until(lambda: not self._not_yet(), ALIVE_WITHIN_NS, self._not_yet)
        fresh = Client(world, "fresh")
        jobs = [
            fresh_job(fresh if place == 0 else Client(world, f"fresh{place}"), resource)
            for place, resource in enumerate(world.resources)
        ]
        self._until(
            lambda: all(job.ended_ns for job in jobs), ALIVE_WITHIN_NS, lambda: f"a fresh command stays open: {jobs}"
        )
        if not all(job.done for job in jobs):
            raise world.violation(f"liveness: a fresh command was not done: {jobs}")
        self._until(lambda: not self._not_yet(), ALIVE_WITHIN_NS, self._not_yet)
        self.alive_ns = world.now_ns - began_ns
        self._stage.operator.reduce_to(self._nodes)
        self._until(lambda: not self._not_yet(), ALIVE_WITHIN_NS, self._not_yet)
        self._stage.retire()
        world.note("alive")

    def _until(self, holds: object, within_ns: int, why_not: object) -> None:
        assert callable(holds)
        assert callable(why_not)
        world = self._world
        end_ns = world.now_ns + within_ns
        while not holds():
            if world.now_ns >= end_ns:
                raise world.violation(f"liveness: {why_not()} {within_ns / SECOND:g} s after healing")
            world.run_for(LOOK_EVERY_NS)

    def _no_leader(self) -> str:
        leader = self._world.leader()
        if leader is None:
            return "nobody leads"
        if not leader.active:
            return f"the leader {leader.name} is not active"
        return ""

    def _not_yet(self) -> str:
        """What is not as it is in a cluster that is alive; empty if nothing is."""
        self._stage.operator.repair()
        why = self._no_leader()
        if why:
            return why
        leader = self._world.leader()
        assert leader is not None
        if not self._load.at_rest:
            return f"a client still wants something: {[client.job for client in self._load.clients if client.job]}"
        wanted = [client.job for client in self._stage.others if client.job is not None]
        if wanted:
            return f"a client still wants something: {wanted}"
        if self._stage.operator.busy:
            return "a change of members is under way"
        configuration = leader.raft.committed_configuration()
        if configuration.is_joint or configuration != leader.raft.configuration:
            return f"the configuration {configuration} is not left"
        return self._not_caught_up(leader) or self._open_commands(leader)

    def _not_caught_up(self, leader: SimNode) -> str:
        last = leader.raft.log.last_index
        for name in leader.raft.configuration.members:
            node = self._world.hosts[name].node
            if node is None:
                return f"{name} is a member and does not run"
            if node.applier.last_applied < last or node.raft.log.last_index != last:
                return f"{name} has applied {node.applier.last_applied} of {last}"
        return ""

    def _open_commands(self, leader: SimNode) -> str:
        """Commands that should have ended: all but those in doubt, and what stands behind them in a lane."""
        for resource, pending in leader.machine.pending.items():
            policy = self._world.resources[resource].spec.dispatch if resource in self._world.resources else None
            blocks = policy is not None and policy.on_dead is OnDead.BLOCK
            dead = leader.machine.dead.get(resource, {}).values()
            doubtful = {letter.lane for letter in dead if blocks and letter.lane}
            for operation in pending.values():
                if operation.state is OperationState.IN_DOUBT:
                    doubtful.add(operation.lane)
                elif operation.state not in TERMINAL and (not operation.lane or operation.lane not in doubtful):
                    return f"{operation.operation_id} of {resource} is {operation.state.value}"
        return ""

    # -- staying alive ------------------------------------------------------------------------------

    def stay_alive(self, duration_ns: int) -> None:
        """Nothing is wrong, so nobody may lose an office. Ends with everything at rest."""
        world = self._world
        leader = world.leader()
        assert leader is not None
        term = leader.raft.current_term
        self._load.start()
        world.run_for(duration_ns)
        self._load.stop()
        self._until(lambda: not self._not_yet(), ALIVE_WITHIN_NS, self._not_yet)
        now = world.leader()
        if now is not leader or leader.raft.current_term != term:
            raise world.violation(f"liveness: {leader.name} lost term {term} although nothing was wrong")


def fresh_job(client: Client, resource: str) -> Job:
    return client.submit(f"fresh-{resource}", resource=resource)
