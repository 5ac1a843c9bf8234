"""A short life of a cluster with load in which every kind of fault has its turn, and which ends well."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.jepsen.sim.load import Load, LoadSettings
from fencepost.jepsen.sim.resource import ResourceSpec
from fencepost.jepsen.sim.settings import NetworkSettings
from fencepost.jepsen.sim.world import World
from fencepost.raft.ports import Guarantee

from .watching import MILLISECOND, SECOND, Sound

NAMES = ("n1", "n2", "n3")
RESOURCES = (ResourceSpec("ledger", batch_limit=8), ResourceSpec("keyed", guarantee=Guarantee.KEYED))


class Life(NamedTuple):
    digest: str
    done: int
    """Jobs whose clients heard that they are done."""
    hashes: dict[str, str]
    """Of the nodes' states at the end."""
    counts: dict[str, int]
    """What the network did."""


def live(seed: int) -> Life:
    with World(seed, NAMES, resources=RESOURCES, observers=[Sound()]) as world:
        world.start_all()
        load = Load(world, LoadSettings(clients=3, think_ns=300 * MILLISECOND))
        load.start()
        world.elect()
        for fault in (_links, _messages, _ends, _disks, _delays, _clocks, _resources):
            fault(world)
            _mend(world)
        load.stop()
        world.run_until(lambda: load.at_rest and len(world.up()) == 3 and world.settled(), within_ns=90 * SECOND)
        done = sum(job.done for job in load.jobs)
        return Life(world.trace.digest(), done, world.state_hashes(), dict(world.network.counts))


def _links(world: World) -> None:
    network = world.network
    leader = world.elect().name
    network.isolate(leader)
    world.run_for(3 * SECOND)
    network.partition(NAMES[:2], NAMES[1:])
    world.run_for(2 * SECOND)
    network.heal()
    network.half_open("n1", "n2")
    network.break_link("n3", "n1")
    world.run_for(2 * SECOND)


def _messages(world: World) -> None:
    world.network.set(
        NetworkSettings(
            tail=0.05, ordered=False, loss=0.05, duplication=0.05, stale=0.05, stale_max_ns=9 * SECOND, corruption=0.01
        )
    )
    world.run_for(4 * SECOND)


def _ends(world: World) -> None:
    world.kill(world.elect().name)
    world.run_for(2 * SECOND)
    world.start_all()
    world.run_for(SECOND)
    world.cut_power(world.elect().name)
    world.cut_at_operation(world.up()[0].name, 5, power=True)
    world.run_for(SECOND)
    for name in world.names:
        if world.hosts[name].node is None:
            world.start(name, cut_at=7)
    world.run_for(SECOND)
    world.start_all()
    world.run_for(3 * SECOND)
    world.stop(world.elect().name)
    world.run_for(4 * SECOND)


def _disks(world: World) -> None:
    world.hosts["n1"].disk.fail("sync_data")
    world.hang_syncs("n2")
    world.hosts["n3"].sync_extra_ns = 30 * MILLISECOND
    world.run_for(3 * SECOND)


def _delays(world: World) -> None:
    world.pause("n1", 3 * SECOND)
    world.block("n2", 700 * MILLISECOND)
    world.slow_down("n3", MILLISECOND)
    world.run_for(4 * SECOND)


def _clocks(world: World) -> None:
    for name, rate_ppm in zip(NAMES, (500, -500, 100), strict=True):
        world.hosts[name].set_rate(rate_ppm)
        world.hosts[name].jump(rate_ppm * SECOND)
    world.run_for(3 * SECOND)


def _resources(world: World) -> None:
    ledger, keyed = world.resources.values()
    ledger.lose_answers(2)
    keyed.lose_answers(1, told=False)
    world.run_for(2 * SECOND)
    ledger.go_down()
    keyed.hang()
    world.run_for(SECOND)
    ledger.come_up()
    keyed.go_on()
    ledger.restart()
    world.cut_clients("n1")
    world.run_for(SECOND)


def _mend(world: World) -> None:
    world.network.heal()
    world.network.set(NetworkSettings())
    for name in NAMES:
        world.hosts[name].sync_extra_ns = 0
        world.hosts[name].disk.never_mind_the_end()
        world.syncs_go_on(name)
        world.mend_clients(name)
    for node in world.up():
        world.resume(node.name)
        world.slow_down(node.name, 0)
    world.start_all()
    world.run_for(SECOND)
    world.elect()
