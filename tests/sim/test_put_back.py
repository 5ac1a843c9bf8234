"""A node whose directory was put back to an older copy of itself: found out by its leader, told, and stopped (S21)."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from fencepost.jepsen.sim.settings import NetworkSettings
from fencepost.jepsen.sim.violation import Violation
from fencepost.jepsen.sim.world import World
from fencepost.raft.core.errors import AcknowledgedLost

from .watching import MILLISECOND, SECOND, begun

CALM = NetworkSettings(tail=0.0, encoded=0.0)


def submit(world: World, *ids: str) -> None:
    client = world.client()
    for each in ids:
        job = client.submit(each, payload=b'{"x":1}')
        world.run_until(lambda job=job: job.done)  # type: ignore[misc]
    world.run_for(2 * SECOND)


def ends(world: World, name: str) -> list[str]:
    return [why for _, why in world.hosts[name].ends]


def test_a_follower_without_what_it_had_acknowledged_is_told_and_stops_and_the_others_go_on() -> None:
    with begun(network=CALM) as world:
        leader = world.elect()
        name = next(other for other in world.names if other != leader.name)
        submit(world, "a")
        copy = world.hosts[name].disk.copy()
        last = world.node(name).raft.log.last_index
        submit(world, "b", "c", "d")
        acknowledged = leader.raft.progress[name].match_index
        assert acknowledged > last
        world.kill(name)
        world.hosts[name].disk.restore(copy)
        world.start(name)
        with capture_logs() as lines:
            world.run_until(lambda: any("ACKNOWLEDGED_LOST" in why for why in ends(world, name)))
        (found,) = [line for line in lines if line["event"] == "follower lost acknowledged entries"]
        assert (found["log_level"], found["peer"], found["acknowledged"]) == ("error", name, acknowledged)
        (failed,) = [line for line in lines if line["event"] == "node failed"]
        assert failed["code"] == AcknowledgedLost.code
        assert f"acknowledged the entries up to {acknowledged} to {leader.name}" in failed["error"]
        assert leader.raft.progress[name].match_index == 0
        # The others go on, and the node is told the same whenever it is started like that.
        submit(world, "e")
        assert world.elect() is leader
        before = len(ends(world, name))
        world.start(name)
        world.run_until(lambda: len(ends(world, name)) > before)
        assert "ACKNOWLEDGED_LOST" in ends(world, name)[-1]


def test_with_its_directory_as_it_was_it_is_let_in_again() -> None:
    with begun(network=CALM) as world:
        leader = world.elect()
        name = next(other for other in world.names if other != leader.name)
        old = world.hosts[name].disk.copy()
        submit(world, "a", "b")
        world.kill(name)
        world.run_for(SECOND)
        right = world.hosts[name].disk.copy()
        world.hosts[name].disk.restore(old)
        world.start(name)
        world.run_until(lambda: any("ACKNOWLEDGED_LOST" in why for why in ends(world, name)))
        world.hosts[name].disk.restore(right)
        world.start(name)
        submit(world, "c")
        world.run_for(2 * SECOND)
        assert world.elect() is leader
        assert leader.raft.progress[name].match_index == leader.raft.log.last_index
        assert world.node(name).raft.commit_index == leader.raft.commit_index


@pytest.mark.parametrize("power", [False, True])
def test_a_follower_that_only_restarts_is_never_suspected(power: bool) -> None:
    """It may lose what it had not synced, and that it never acknowledged."""
    with begun(network=CALM) as world, capture_logs() as lines:
        leader = world.elect()
        name = next(other for other in world.names if other != leader.name)
        for number in range(40):
            world.client().submit(f"op{number}", payload=b'{"x":1}')
            world.run_for((number % 7) * MILLISECOND)
            if number % 4 == 3:
                (world.cut_power if power else world.kill)(name)
                world.start(name)
                world.run_until(lambda: world.hosts[name].node is not None)
                world.run_for(20 * MILLISECOND)
        world.run_for(3 * SECOND)
        assert world.node(name).raft.commit_index == leader.raft.commit_index
        assert [line for line in lines if line["event"] == "follower lost acknowledged entries"] == []


def test_where_nobody_knows_what_it_had_acknowledged_the_one_that_has_it_ends_instead_of_following() -> None:
    """S21 as it was: n1 and n2 have an entry, n3 has not, n1 stops, and n2 comes back without it. Nobody who runs
    can tell, and what was committed is lost: but n1 does not go on with another history as if nothing were."""
    world = World(5, 3, network=CALM)
    with world:
        world.start_all()
        first = world.elect()
        one = first.name
        two, three = (name for name in world.names if name != one)
        submit(world, "a")
        world.kill(three)
        copy = world.hosts[two].disk.copy()
        submit(world, "b", "c")
        assert first.raft.commit_index > 0
        world.kill(one)
        world.kill(two)
        world.hosts[two].disk.restore(copy)
        world.start(two)
        world.start(three)
        world.elect()
        submit(world, "d", "e", "f")
        world.start(one)
        with pytest.raises(Violation, match=f"{one} ended with CommittedConflict: entry .* is committed here"):
            world.run_for(10 * SECOND)
