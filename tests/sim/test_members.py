"""Members that come and go, leadership handed over, snapshots, and reads: with whole nodes, on real formats."""

from __future__ import annotations

import pytest

from fencepost.jepsen.sim.clients import Client
from fencepost.jepsen.sim.jobs import Fate, Reply
from fencepost.jepsen.sim.members import End
from fencepost.jepsen.sim.registers import append, cas, write
from fencepost.jepsen.sim.world import World
from fencepost.raft.core.configuration import Change, ChangeKind
from fencepost.raft.core.messages import InstallSnapshot
from fencepost.raft.core.options import Options

from .watching import MILLISECOND, SECOND, Watcher, begun

SNAPSHOTS = Options(snapshot_entries=20, retained_entries=5, chunk_bytes=256)


def wait_for(world: World, *conditions: object) -> None:
    world.run_until(
        lambda: all(
            getattr(each, "done", None) is True or getattr(each, "end", None) is End.DONE for each in conditions
        )
    )


def put(world: World, client: Client, count: int, key: str = "l") -> None:
    """Append so many numbers to a list."""
    for number in range(count):
        job = client.propose(f"{key}{number}", append(key, number))
        world.run_until(lambda: job.fate is not Fate.OPEN)  # noqa: B023
        assert job.done


def agree(world: World, count: int) -> None:
    """So many members are up, have applied the same log, and have equal states."""
    world.run_until(lambda: len(world.members()) == count and world.settled(), what=f"{count} members agree")
    assert len(set(world.state_hashes().values())) == 1


def add(world: World, name: str) -> None:
    """A brand-new node, first a learner, then a voter."""
    world.add_node(name)
    world.start(name)
    world.run_until(lambda: name in {node.name for node in world.up()})
    wait_for(world, world.change_members(Change(ChangeKind.ADD_LEARNER, name, f"{name}:1")))
    while True:
        question = world.change_members(Change(ChangeKind.ADD_VOTER, name))
        world.run_until(lambda: not question.open)  # noqa: B023
        if question.end is End.DONE:
            return
        assert question.refusal is not None
        assert question.refusal.code == "NOT_CAUGHT_UP"
        world.run_for(100 * MILLISECOND)


# -- members --------------------------------------------------------------------------------------------


def test_a_brand_new_node_joins_as_a_learner_and_becomes_a_voter_that_counts() -> None:
    with begun() as world:
        client = world.client()
        put(world, client, 5)
        add(world, "n4")
        agree(world, 4)
        assert world.configuration().voters == ("n1", "n2", "n3", "n4")
        world.kill(next(name for name in world.names[:3] if name != world.elect().name))
        put(world, client, 2, key="m")  # Three of four: the new one's copy is needed or another old one's.
        agree(world, 3)


def test_a_removed_node_is_let_in_no_more_and_disturbs_nobody() -> None:
    with begun() as world:
        leader = world.elect()
        gone = next(name for name in world.names if name != leader.name)
        term = leader.raft.current_term
        wait_for(world, world.change_members(Change(ChangeKind.REMOVE, gone)))
        world.run_for(20 * SECOND)
        assert world.configuration().voters == tuple(sorted(set(world.names) - {gone}))
        assert world.elect() is leader
        assert leader.raft.current_term == term
        agree(world, 2)
        world.kill(gone)
        world.start(gone)
        world.run_for(5 * SECOND)
        assert "removed" in world.network.link(gone, leader.name).cause


def test_a_leader_that_is_removed_leads_to_the_commit_and_no_further() -> None:
    with begun() as world:
        old = world.elect().name
        question = world.change_members(Change(ChangeKind.REMOVE, old))
        world.run_for(10 * SECOND)
        assert question.end in (End.DONE, End.UNKNOWN)
        assert world.elect().name != old
        put(world, world.client(), 3)
        agree(world, 2)


def test_several_changes_at_once_go_through_a_joint_configuration() -> None:
    with begun(nodes=3) as world:
        for name in ("n4", "n5"):
            world.add_node(name)
            world.start(name)
        leader = world.elect().name
        gone = next(name for name in world.names[:3] if name != leader)
        learners = [Change(ChangeKind.ADD_LEARNER, name, f"{name}:1") for name in ("n4", "n5")]
        wait_for(world, world.change_members(*learners))
        world.run_for(2 * SECOND)
        voters = [Change(ChangeKind.ADD_VOTER, name) for name in ("n4", "n5")]
        wait_for(world, world.change_members(*voters, Change(ChangeKind.REMOVE, gone)))
        world.run_until(lambda: not world.configuration().is_joint)
        assert world.configuration().voters == tuple(sorted({"n1", "n2", "n3", "n4", "n5"} - {gone}))
        put(world, world.client(), 3)
        agree(world, 4)


def test_a_change_that_is_asked_of_a_follower_or_of_a_process_that_dies_has_an_end() -> None:
    with begun() as world:
        leader = world.elect().name
        other = next(name for name in world.names if name != leader)
        refused = world.change_members(Change(ChangeKind.ADD_LEARNER, "n9", "n9:1"), at=other)
        world.run_for(SECOND)
        assert refused.end is End.REFUSED
        assert refused.refusal is not None
        assert (refused.refusal.code, refused.refusal.leader) == ("NOT_LEADER", leader)
        dead = world.change_members(Change(ChangeKind.ADD_LEARNER, "n9", "n9:1"))
        world.kill(leader)
        assert dead.end is End.UNKNOWN


def test_leadership_is_handed_to_the_one_that_was_named() -> None:
    with begun() as world:
        for target in ("n1", "n2", "n3"):
            if world.elect().name == target:
                continue
            question = world.transfer(target)
            wait_for(world, question)
            assert question.leader == target
            assert world.elect().name == target


# -- snapshots ------------------------------------------------------------------------------------------


def test_logs_are_compacted_behind_snapshots_and_nodes_start_from_them() -> None:
    with begun(options=SNAPSHOTS) as world:
        client = world.client()
        put(world, client, 60)
        agree(world, 3)
        for node in world.up():
            assert node.raft.snapshot is not None
            assert node.raft.snapshot.last_index > 20
            assert node.raft.log.previous_index > 0
            assert any("snapshot" in path.parent.name for path in node.host.disk.files())
        for name in world.names:
            world.cut_power(name)
        world.start_all()
        world.elect()
        agree(world, 3)
        assert world.up()[0].registers.values["l"] == list(range(60))


def test_a_node_that_was_away_for_too_long_gets_a_snapshot_in_parts() -> None:
    watcher = Watcher()
    with begun(options=SNAPSHOTS, observers=[watcher]) as world:
        name = next(name for name in world.names if name != world.elect().name)
        world.kill(name)
        put(world, world.client(), 60)
        world.start(name)
        agree(world, 3)
        parts = [message for _, to, message in watcher.delivered if isinstance(message, InstallSnapshot) and to == name]
        assert len({part.offset for part in parts}) > 1
        assert world.node(name).registers.values["l"] == list(range(60))


@pytest.mark.parametrize("power", [False, True])
def test_a_process_that_ends_while_it_writes_or_receives_a_snapshot_starts_again_from_what_it_had(power: bool) -> None:
    """At every operation of the disk in turn, over a stretch in which snapshots are made and received."""
    hit = 0
    for nth in range(2, 60, 6):
        with begun(seed=nth, options=SNAPSHOTS) as world:
            name = next(name for name in world.names if name != world.elect().name)
            client = world.client()
            if nth % 2:
                world.kill(name)
                put(world, client, 40)
                world.start(name)
                world.run_until(lambda: world.hosts[name].node is not None)  # noqa: B023
            world.cut_at_operation(name, nth, power=power)
            put(world, client, 30, key="m")
            world.run_for(SECOND)
            hit += world.hosts[name].node is None
            world.hosts[name].disk.never_mind_the_end()
            world.start(name)
            agree(world, 3)
    assert hit >= 5


def test_a_brand_new_node_is_brought_up_by_a_snapshot() -> None:
    with begun(options=SNAPSHOTS) as world:
        put(world, world.client(), 60)
        add(world, "n4")
        agree(world, 4)
        assert world.node("n4").raft.snapshot is not None
        assert world.node("n4").registers.values["l"] == list(range(60))


# -- reads ----------------------------------------------------------------------------------------------


def test_registers_and_lists_do_what_their_entries_say() -> None:
    with begun() as world:
        client = world.client()
        heard = []
        entries = [write("r", 1), cas("r", 1, 2), cas("r", 1, 3), append("l", "a"), append("l", "b"), b"not json"]
        for number, data in enumerate(entries):
            job = client.propose(str(number), data)
            world.run_until(lambda: job.done)  # noqa: B023
            heard.append(job.value)
        assert heard == [None, True, False, None, None, None]
        for key, value in (("r", 2), ("l", ["a", "b"]), ("nothing", None)):
            read = client.read(key)
            world.run_until(lambda: read.done)  # noqa: B023
            assert read.value == value
        assert all(node.registers.entries == 6 for node in world.up() if node.applier.last_applied >= 9)


def test_every_node_answers_linearizable_reads_with_what_was_written_before() -> None:
    with begun() as world:
        client = world.client()
        for number, name in enumerate(world.names * 2):
            written = client.propose(f"w{number}", write("r", number))
            world.run_until(lambda: written.done)  # noqa: B023
            read = client.read("r", at=name)
            world.run_until(lambda: read.done)  # noqa: B023
            assert read.value == number
            assert [each.node for each in read.tries] == [name]


def test_a_leader_that_is_cut_off_answers_stale_reads_only_and_these_are_stale() -> None:
    with begun() as world:
        old = world.elect().name
        client, prober = world.client(), world.client()
        job = client.propose("w1", write("r", 1))
        world.run_until(lambda: job.done)
        world.network.isolate(old)
        asked_at_old = prober.read("r", at=old)
        world.run_until(lambda: (leader := world.leader()) is not None and leader.name != old)
        assert asked_at_old.fate is Fate.OPEN, "an isolated leader confirms nothing"
        job = client.propose("w2", write("r", 2), at=world.elect().name)
        world.run_until(lambda: job.done)
        stale = world.client().read("r", consistency="stale", at=old)
        world.run_until(lambda: stale.done)
        assert stale.value == 1
        assert isinstance(stale.final, Reply)
        assert stale.final.body["read"]["age_s"] is None or stale.final.body["read"]["age_s"] > 1
        world.run_until(lambda: asked_at_old.done)
        assert asked_at_old.tries[0].node == old
        assert asked_at_old.tries[-1].node != old


def test_questions_of_operators_are_answered_through_the_same_door() -> None:
    with begun() as world:
        status = world.client().call("status", at="n2")
        unheard = world.client().call("no such thing", at="n1")
        world.run_for(SECOND)
        assert status.done
        assert status.value["node_id"] == "n2"
        assert unheard.fate is Fate.REFUSED
