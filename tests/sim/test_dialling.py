"""Whose connection carries what: giving up one's own, answering on one that came, and ends that are gone."""

from __future__ import annotations

from fencepost.jepsen.sim.settings import NetworkSettings
from fencepost.jepsen.sim.world import World
from fencepost.raft.core.messages import AppendEntries, AppendEntriesResponse
from fencepost.raft.core.options import Options

from .watching import MILLISECOND, SECOND, Watcher, begun

CALM = NetworkSettings(tail=0.0, encoded=0.0)


def give_up(world: World, name: str, peer: str) -> None:
    """The node's list of peers no longer names the peer, which was not removed: it is let in as before."""
    node = world.node(name)
    addresses = {other: "" for other in world.names if other not in (name, peer)}
    node.transport.set_peers(addresses, retired=())


def take_up(world: World, name: str) -> None:
    world.node(name).transport.set_peers({other: "" for other in world.names if other != name}, retired=())


def pair(world: World) -> tuple[str, str]:
    """The leader and a follower."""
    leader = world.elect().name
    return leader, next(name for name in world.names if name != leader)


def test_who_gives_up_its_own_connection_answers_on_the_one_that_came() -> None:
    watcher = Watcher()
    with begun(observers=[watcher], network=CALM) as world:
        leader, follower = pair(world)
        term = world.node(leader).raft.current_term
        own, came = world.network.link(leader, follower), world.network.link(follower, leader)
        assert (own.lender, came.lender) == (None, None)
        give_up(world, leader, follower)
        assert (own.up, own.lender, own.dialled_by) == (True, came, None)
        world.run_for(1)
        assert watcher.unreachable == [(leader, follower)], "what was on its way may be lost, and that is said"
        watcher.clear()
        world.run_for(10 * SECOND)
        assert len([m for m in watcher.between(leader, follower) if isinstance(m, AppendEntries)]) > 50
        assert [m for m in watcher.between(follower, leader) if isinstance(m, AppendEntriesResponse)]
        assert watcher.unreachable == []
        assert {node.raft.current_term for node in world.up()} == {term}


def test_the_way_back_ends_with_the_connection_that_it_goes_on_and_comes_back_with_it() -> None:
    watcher = Watcher()
    with begun(observers=[watcher], network=CALM, options=Options(check_quorum=False)) as world:
        leader, follower = pair(world)
        give_up(world, leader, follower)
        own, came = world.network.link(leader, follower), world.network.link(follower, leader)
        world.run_for(1)
        watcher.clear()
        world.network.break_link(follower, leader)
        world.run_for(1)
        assert not own.up
        assert own.lender is None
        assert sorted(watcher.unreachable) == sorted([(leader, follower), (follower, leader)])
        world.run_until(lambda: came.up)
        assert own.up
        assert own.lender is came


def test_who_gives_up_its_own_connection_where_none_came_has_none() -> None:
    watcher = Watcher()
    with begun(observers=[watcher], network=CALM, options=Options(check_quorum=False)) as world:
        leader, follower = pair(world)
        give_up(world, follower, leader)  # The follower does not dial any more, and answers on the leader's.
        own, back = world.network.link(leader, follower), world.network.link(follower, leader)
        assert back.lender is own
        give_up(world, leader, follower)
        assert (own.up, own.lender) == (False, None)
        assert (back.up, back.lender) == (False, None)
        world.run_for(10 * MILLISECOND)
        watcher.clear()
        world.run_for(5 * SECOND)
        assert watcher.between(leader, follower) == watcher.between(follower, leader) == []


def test_who_dials_again_sends_on_its_own_connection() -> None:
    watcher = Watcher()
    with begun(observers=[watcher], network=CALM) as world:
        leader, follower = pair(world)
        give_up(world, leader, follower)
        own, came = world.network.link(leader, follower), world.network.link(follower, leader)
        take_up(world, leader)
        world.run_until(lambda: own.up)
        assert own.lender is None
        assert own.dialled_by is world.node(leader).transport
        watcher.clear()
        world.network.break_link(follower, leader)
        world.run_for(20 * MILLISECOND)
        assert own.up, "it does not go with the other end's connection any more"
        world.run_until(lambda: came.up)
        assert came.lender is None


def test_a_connection_to_a_process_that_is_gone_is_no_way_back_for_its_successor() -> None:
    """The other end believes in it and hears nothing; the new process has never had it."""
    watcher = Watcher()
    with begun(observers=[watcher], network=CALM._replace(ping_timeout_ns=0)) as world:
        leader, follower = pair(world)
        world.network.half_open(leader, follower)
        world.kill(follower)
        world.start(follower)
        own, came = world.network.link(follower, leader), world.network.link(leader, follower)
        world.run_until(lambda: world.hosts[follower].node is not None and own.up)
        assert came.up
        assert came.reached is not world.node(follower).transport
        give_up(world, follower, leader)
        world.run_for(10 * MILLISECOND)
        watcher.clear()
        world.run_for(5 * SECOND)
        assert not own.up
        assert watcher.between(follower, leader) == []


def test_a_half_open_connection_to_a_process_that_is_gone_is_reset_once_it_is_heard_again() -> None:
    watcher = Watcher()
    with begun(observers=[watcher], network=CALM._replace(ping_timeout_ns=0)) as world:
        leader, follower = pair(world)
        world.network.half_open(leader, follower)
        world.kill(follower)
        world.start(follower)
        link = world.network.link(leader, follower)
        world.run_until(lambda: world.hosts[follower].node is not None)
        world.run_for(5 * SECOND)
        assert link.up, "nobody tells as long as nothing arrives"
        assert link.reached is not world.node(follower).transport
        watcher.clear()
        world.network.mend(leader, follower)
        world.run_for(2 * MILLISECOND)
        assert not link.up
        assert watcher.unreachable == [(leader, follower)]
        world.run_for(2 * SECOND)
        assert link.up
        assert link.reached is world.node(follower).transport


def test_a_half_open_connection_whose_other_end_is_there_goes_on_when_it_is_heard_again() -> None:
    watcher = Watcher()
    with begun(observers=[watcher], network=CALM._replace(ping_timeout_ns=0)) as world:
        leader, follower = pair(world)
        world.network.half_open(leader, follower)
        world.run_for(100 * MILLISECOND)
        watcher.clear()
        world.network.mend(leader, follower)
        world.run_for(5 * SECOND)
        assert watcher.unreachable == []
        assert watcher.between(leader, follower)


def test_a_connection_that_has_just_broken_is_no_way_back_until_it_is_there_again() -> None:
    with begun(network=CALM, options=Options(check_quorum=False)) as world:
        leader, follower = pair(world)
        own, came = world.network.link(leader, follower), world.network.link(follower, leader)
        world.network.break_link(follower, leader)
        give_up(world, leader, follower)
        assert (own.up, own.lender) == (False, None)
        world.run_until(lambda: came.up)
        assert (own.up, own.lender) == (True, came)
