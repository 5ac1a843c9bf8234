"""One node goes on alone by force while the others still have a leader: the resource tells the two apart."""

from __future__ import annotations

from fencepost.jepsen.sim.node import DATA_DIRECTORY
from fencepost.jepsen.sim.settings import NetworkSettings
from fencepost.raft.core.token import FencingToken
from fencepost.storage.forcing import force_recovery, recovered_configuration

from .watching import SECOND, begun

CALM = NetworkSettings(tail=0.0, encoded=0.0)


def test_the_leader_of_the_old_incarnation_is_refused_and_that_of_the_new_one_is_not() -> None:
    with begun(network=CALM) as world:
        old = world.elect()
        name = next(other for other in world.names if other != old.name)
        world.client().submit("before", payload=b'{"x":1}')
        world.run_for(2 * SECOND)
        world.kill(name)
        host = world.hosts[name]
        force_recovery(
            DATA_DIRECTORY,
            lambda prospect: recovered_configuration(prospect.identity.node_id, {}, ()),
            now_ns=0,
            disk=host.disk,
            entropy=host.chance.randbytes,
        )
        world.start(name)
        world.run_until(lambda: world.hosts[name].node is not None and world.node(name).active)
        new = world.node(name)
        assert (new.directory.incarnation, old.directory.incarnation) == (2, 1)
        assert old.leads, "two of three of its voters are there, and nobody has told them"
        # Whoever is asked, the old leader carries out nothing any more.
        at = old.raft.current_term
        for number in range(3):
            world.client().submit(f"after-{number}", payload=b'{"x":1}')
        world.run_for(3 * SECOND)
        [store] = [outside.store for outside in world.resources.values()]
        refused = [row for row in store.refusals if row.token == FencingToken(1, at)]
        assert refused
        assert {row.holder.split("/")[0] for row in refused} == {old.name}
        assert store.fences["ledger"].token == FencingToken(2, new.raft.current_term)
        late = [row for row in store.operations if row.operation_id.startswith("after")]
        assert {row.token.incarnation for row in late} == {2}
        # Neither follows the other.
        assert new.raft.configuration.voters == (name,)
        assert name not in {old.raft.leader, old.name}
