"""One node whose disk is damaged or full, in a cluster whose other nodes serve on (S10, S11)."""

from __future__ import annotations

import pytest

from fencepost.jepsen.sim.disk import NO_LIMIT
from fencepost.jepsen.sim.world import World
from fencepost.raft.core.errors import StorageCorrupt

from .watching import SECOND, begun


def submit(world: World, *ids: str, payload: bytes = b"{}") -> None:
    for each in ids:
        job = world.client().submit(each, payload=payload)
        world.run_until(lambda job=job: job.done)  # type: ignore[misc]


def serve(world: World, ids: list[str]) -> None:
    """Every one of them was carried out once, and is known to each node that runs."""
    world.run_for(2 * SECOND)
    (resource,) = world.resources.values()
    assert sorted(each.operation_id for each in resource.store.operations) == sorted(ids)
    for node in world.up():
        assert {each: node.machine.operations[each].state.value for each in ids} == dict.fromkeys(ids, "succeeded")


def test_s10_a_node_with_damage_in_the_middle_of_its_log_takes_no_part_and_the_others_serve_everything() -> None:
    ids = [f"op{number}" for number in range(20)]
    with begun() as world:
        leader = world.elect().name
        name = next(other for other in world.names if other != leader)
        submit(world, *ids)
        world.run_for(SECOND)
        world.kill(name)
        host = world.hosts[name]
        (log,) = [path for path in host.disk.files() if path.suffix == ".log"]
        # The fifth record: a header of 512 bytes, and at least as many for each record before it.
        places = [at for at in range(512, host.disk.size(log), 512) if host.disk.read_at(log, at, 4) == b"fpR1"]
        host.disk.rot(log, places[4] + 40)
        world.start(name)
        world.run_for(2 * SECOND)
        refused = host.refused
        assert host.node is None
        assert isinstance(refused, StorageCorrupt)
        assert f"{log.name}" in str(refused)
        assert f"{places[4]}" in str(refused), "the offset"
        assert "index" in str(refused)
        serve(world, ids)
        # Nor is it needed, whoever leads; and what is refused once is refused again, with nothing changed.
        before = host.disk.read(log)
        world.kill(leader)
        world.start(leader)
        assert world.elect().name != name
        submit(world, "after")
        world.start(name)
        world.run_for(2 * SECOND)
        assert host.node is None
        assert host.disk.read(log) == before
        serve(world, [*ids, "after"])


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_s11_a_node_whose_disk_is_full_yields_and_comes_back_when_there_is_space_and_nothing_else(role: str) -> None:
    with begun() as world:
        leader = world.elect().name
        name = leader if role == "leader" else next(other for other in world.names if other != leader)
        submit(world, "before")
        host = world.hosts[name]
        host.disk.capacity_bytes = host.disk.used_bytes
        ids = ["before"]
        while host.node is not None:
            ids.append(f"op{len(ids)}")
            assert len(ids) < 400, "space written in advance has to be used up first"
            submit(world, ids[-1], payload=b'{"x":"%s"}' % (b"y" * 60_000))
        assert "STORAGE_FULL" in host.ends[-1][1]
        assert world.elect().name != name
        serve(world, ids)
        submit(world, "full")
        host.disk.capacity_bytes = NO_LIMIT
        world.start(name)
        world.run_for(3 * SECOND)
        assert world.node(name).raft.commit_index == world.elect().raft.commit_index
        serve(world, [*ids, "full"])
