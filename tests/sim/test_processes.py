"""Processes: each way to end, stop and delay one, and what is left of it."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from fencepost.jepsen.sim.observer import Observer
from fencepost.jepsen.sim.resource import ResourceCall, ResourceSpec
from fencepost.jepsen.sim.violation import Violation
from fencepost.jepsen.sim.world import World
from fencepost.raft.core.events import Effects, Event, Propose
from fencepost.raft.core.invariants import Summary
from fencepost.raft.ports import Guarantee

from .watching import MILLISECOND, SECOND, begun


def follower_of(world: World) -> str:
    leader = world.elect().name
    return next(name for name in world.names if name != leader)


def whole(world: World) -> None:
    """All nodes are up and agree."""
    world.run_until(lambda: len(world.up()) == len(world.names) and world.settled(), what="all nodes agree")
    hashes = world.state_hashes()
    assert len(set(hashes.values())) == 1, hashes


def test_a_killed_leader_is_followed_by_another_and_comes_back_with_what_it_had() -> None:
    with begun() as world:
        client = world.client()
        job = client.submit("a")
        world.run_until(lambda: job.done)
        old = world.elect()
        world.kill(old.name)
        assert old.process.dead
        assert world.hosts[old.name].node is None
        again = client.submit("b")
        world.run_until(lambda: again.done)
        assert world.elect().name != old.name
        world.start(old.name)
        whole(world)
        assert world.node(old.name).boot == 2
        assert set(world.node(old.name).machine.operations) == {"a", "b"}
        assert world.hosts[old.name].ends[0][1] == "killed"


@pytest.mark.parametrize(
    ("power", "cut_at", "left"),
    [
        (False, 1, 0),  # Before the record is written.
        (False, 2, 1),  # Before it is synced: the cache outlives the process,
        (True, 2, 0),  # and not the power.
        (True, 3, 1),
    ],
)
def test_an_unsynced_write_is_there_after_a_kill_and_gone_after_a_power_cut(
    power: bool, cut_at: int, left: int
) -> None:
    with begun() as world:
        name = follower_of(world)
        node = world.node(name)
        before = node.raft.log.last_index
        job = world.client().submit("a")
        world.run_until(lambda: node.writer.syncing, what="a write under way")
        if power:
            world.cut_power(name, cut_at=cut_at, torn=False)
        else:
            world.kill(name, cut_at=cut_at)
        world.start(name, after_ns=0)
        world.run_for(0)
        assert world.node(name).raft.log.last_index - before == left
        world.run_until(lambda: job.done)
        whole(world)


@pytest.mark.parametrize("power", [False, True])
def test_a_process_is_cut_off_at_each_operation_of_a_write_and_recovers(power: bool) -> None:
    for nth in range(1, 8):
        with begun(seed=nth) as world:
            name = world.elect().name
            ended = len(world.hosts[name].ends)
            world.cut_at_operation(name, nth, power=power)
            client, jobs = world.client(), []
            for number in range(8):
                jobs.append(client.submit(f"a{number}"))
                world.run_until(lambda: jobs[-1].done)  # noqa: B023
                if len(world.hosts[name].ends) > ended:
                    break
            assert len(world.hosts[name].ends) == ended + 1
            assert "in a write" in world.hosts[name].ends[-1][1]
            world.start(name)
            whole(world)


@pytest.mark.parametrize("power", [False, True])
def test_a_start_is_cut_off_at_each_of_its_operations_and_the_next_one_succeeds(power: bool) -> None:
    with begun() as world:
        name = follower_of(world)
        world.kill(name)
        cut = 0
        for nth in range(1, 200):
            world.start(name, cut_at=nth, power=power)
            world.run_for(SECOND)
            if world.hosts[name].node is not None:
                break
            assert world.hosts[name].ends[-1][1] == "cut off while it started"
            cut += 1
        assert cut >= 8
        whole(world)


def test_the_very_first_start_is_cut_off_at_each_operation() -> None:
    for power in (False, True):
        with World(3, 1) as world:
            cut = 0
            for nth in range(1, 200):
                world.start("n1", cut_at=nth, power=power)
                world.run_for(SECOND)
                if world.hosts["n1"].node is not None:
                    break
                cut += 1
            assert cut > 20, "formatting takes many operations"
            world.elect()


def test_a_failed_sync_ends_the_node_and_the_next_start_takes_no_bytes_on_trust() -> None:
    with begun() as world:
        name = world.elect().name
        client = world.client()
        world.hosts[name].disk.fail("sync_data", 1, errno.EIO)
        job = client.submit("a", at=name)
        world.run_until(lambda: world.hosts[name].node is None, what="the node exits")
        assert "STORAGE_FAILED" in world.hosts[name].ends[-1][1]
        world.run_until(lambda: job.done)
        world.start(name)
        whole(world)


def test_a_full_disk_ends_the_node_and_it_starts_again_once_there_is_space() -> None:
    with begun() as world:
        name = follower_of(world)
        disk = world.hosts[name].disk
        disk.capacity_bytes = disk.used_bytes
        client = world.client()
        for number in range(400):  # Space written in advance has to be used up first.
            job = client.submit(f"a{number}", payload=b'{"x":"%s"}' % (b"y" * 8000))
            world.run_until(lambda: job.done)  # noqa: B023
            if world.hosts[name].node is None:
                break
        assert "STORAGE_FULL" in world.hosts[name].ends[-1][1]
        world.start(name)
        world.run_for(2 * SECOND)
        disk.capacity_bytes = 1 << 40
        world.start_all()
        whole(world)


def test_bit_rot_in_the_middle_of_a_log_is_found_at_the_next_start_which_is_refused() -> None:
    with begun() as world:
        client = world.client()
        for number in range(5):
            job = client.submit(f"a{number}")
            world.run_until(lambda: job.done)  # noqa: B023
        name = follower_of(world)
        world.kill(name)
        disk = world.hosts[name].disk
        (log,) = [path for path in disk.files() if path.suffix == ".log"]
        disk.rot(log, 600)
        world.start(name)
        world.run_for(2 * SECOND)
        assert world.hosts[name].node is None
        assert world.hosts[name].refused is not None
        assert "STORAGE_CORRUPT" in world.hosts[name].ends[-1][1]


def test_a_hanging_disk_costs_the_leader_its_office_and_nothing_is_lost_when_it_goes_on() -> None:
    with begun() as world:
        old = world.elect()
        world.hang_syncs(old.name)
        job = world.client().submit("a", at=old.name)
        world.run_until(lambda: job.done)
        assert old.writer.hanging
        assert world.elect().name != old.name
        world.syncs_go_on(old.name)
        world.run_for(2 * SECOND)
        assert not old.writer.hanging
        whole(world)


def test_slow_syncs_make_every_commit_slow() -> None:
    with begun() as world:
        for name in world.names:
            world.hosts[name].sync_extra_ns = 100 * MILLISECOND
        world.run_for(500 * MILLISECOND)
        client = world.client()
        job = client.propose("a", b"a", at=world.elect().name)
        world.run_until(lambda: job.done)
        assert job.ended_ns - job.begun_ns > 100 * MILLISECOND


def test_a_paused_leader_wakes_up_to_another_one_and_gives_way() -> None:
    with begun() as world:
        old = world.elect()
        world.pause(old.name, 12 * SECOND)
        applied = old.applier.last_applied
        job = world.client().submit("a")
        world.run_until(lambda: job.done, within_ns=11 * SECOND)
        assert old.applier.last_applied == applied, "nothing of it ran"
        assert old.leads, "it believes so still"
        world.run_for(13 * SECOND)
        assert not old.leads
        whole(world)


def test_a_short_pause_changes_nothing() -> None:
    with begun() as world:
        leader = world.elect()
        world.pause(follower_of(world), 500 * MILLISECOND)
        world.run_for(5 * SECOND)
        assert world.elect() is leader
        assert leader.raft.current_term == 1


def test_a_blocked_loop_costs_the_office_beyond_its_bound_and_not_below() -> None:
    with begun() as world:
        leader = world.elect()
        world.block(leader.name, 400 * MILLISECOND)
        world.run_for(3 * SECOND)
        assert world.elect() is leader
        assert leader.loop.longest_lag_ns > 200 * MILLISECOND
        world.block(leader.name, 1500 * MILLISECOND)
        world.run_for(5 * SECOND)
        assert max(world.leaders) > 1
        whole(world)


def test_a_handler_that_holds_up_the_effects_holds_up_nothing_else() -> None:
    with begun() as world:
        leader = world.elect()
        world.block_effects(leader.name, 3 * SECOND)
        effect, plain = world.client().submit("a", at=leader.name), world.client().propose("p", b"p", at=leader.name)
        world.run_for(2 * SECOND)
        assert plain.done
        assert not effect.done
        world.run_for(2 * SECOND)
        assert effect.done
        assert world.elect() is leader


def test_a_slow_loop_still_does_its_work_only_later() -> None:
    with begun() as world:
        name = world.elect().name
        world.slow_down(name, 2 * MILLISECOND)
        job = world.client().submit("a", at=name)
        world.run_until(lambda: job.done)
        slow_ns = job.ended_ns - job.begun_ns
        world.slow_down(name, 0)
        world.run_for(SECOND)
        job = world.client().submit("b", at=name)
        world.run_until(lambda: job.done)
        assert slow_ns > job.ended_ns - job.begun_ns + 4 * MILLISECOND


def test_an_effect_of_a_paused_leader_arrives_as_a_zombie_and_the_fence_refuses_it() -> None:
    with begun() as world:
        old = world.elect()
        ledger = world.resources["ledger"]
        ledger.hang()
        world.client().submit("a", at=old.name)
        paused: list[int] = []

        def pause() -> None:
            paused.append(world.now_ns)
            world.pause(old.name, 20 * SECOND)

        world.when_effect_under_way(old.name, pause, within_ns=2 * SECOND)
        world.run_for(5 * SECOND)
        assert paused
        newest = world.newest_token
        assert newest.term > 1
        # What was sent waits in front of the resource, and the next leader's claim behind it.
        ledger.go_on()
        world.run_for(10 * SECOND)
        zombies = [call for call in ledger.calls if call.zombie]
        assert [call.kind for call in zombies] == ["execute"]
        assert zombies[0].node == old.name
        assert zombies[0].token < newest
        assert ledger.zombies == 1
        executed = [call for call in ledger.calls if call.kind == "execute" and call.decision == "accepted"]
        assert (
            sum(1 for call in executed for each in call.attempts if not (each.outcome and each.outcome.replayed)) == 1
        )


@pytest.mark.parametrize("power", [False, True])
def test_clients_hear_of_a_process_that_is_gone_and_not_of_a_machine(power: bool) -> None:
    with begun() as world:
        leader = world.elect().name
        world.hang_syncs(leader)
        job = world.client().submit("a", at=leader)
        world.run_for(50 * MILLISECOND)
        if power:
            world.cut_power(leader)
        else:
            world.kill(leader)
        world.run_for(50 * MILLISECOND)
        assert (job.tries[0].answered_ns > 0) is not power
        world.run_until(lambda: job.done)
        assert job.tries[0].answer is None


def test_a_node_whose_disk_was_put_back_to_an_old_copy_catches_up_under_its_old_name() -> None:
    with begun() as world:
        name = follower_of(world)
        world.kill(name)
        copy = world.hosts[name].disk.copy()
        world.start(name)
        job = world.client().submit("a")
        world.run_until(lambda: job.done)
        world.kill(name)
        world.hosts[name].disk.restore(copy)
        world.start(name)
        whole(world)
        assert world.node(name).boot == 2, "it has forgotten that it was started since"


def test_a_planned_stop_drains_hands_over_seals_the_log_and_ends() -> None:
    with begun() as world:
        node = world.elect()
        job = world.client().submit("a")
        world.run_until(lambda: job.done)
        stopped_ns = world.now_ns
        world.stop(node.name)
        world.run_until(lambda: (leader := world.leader()) is not None and leader is not node)
        assert world.now_ns - stopped_ns < 200 * MILLISECOND, "nobody waited for an election timeout"
        world.run_for(4 * SECOND)
        assert node.process.dead
        assert world.hosts[node.name].ends[-1][1] == "stopped"
        assert node.writer.store.status().failure is None
        world.start(node.name)
        whole(world)


def test_a_node_that_ends_by_a_bug_ends_the_run_with_its_seed_and_story() -> None:
    class Planted(Observer):
        def on_step(self, node: Any, before: Summary, event: Event, effects: Effects) -> None:
            if isinstance(event, Propose) and node.boot == 1 and world.now_ns > 3 * SECOND:
                raise ZeroDivisionError("planted")

    with World(11, 3, observers=[Planted()]) as world:
        world.start_all()
        world.elect()
        world.run_for(3 * SECOND)
        world.client().submit("a")
        with pytest.raises(Violation, match=r"seed 11.*ZeroDivisionError: planted") as raised:
            world.run_for(5 * SECOND)
        assert "log" in str(raised.value)
        assert "Propose(now=" in str(raised.value)


@pytest.mark.parametrize(
    "hook", ["on_sync", "on_applied", "on_sent", "on_delivered", "on_resource", "on_role", "node_started"]
)
def test_whatever_any_hook_raises_ends_the_run(hook: str) -> None:
    def planted(self: Observer, *arguments: Any) -> None:
        raise ZeroDivisionError(hook)

    observer = type("Planted", (Observer,), {hook: planted})()
    with World(1, 3, observers=[observer]) as world:
        world.start_all()
        world.client().submit("a")
        with pytest.raises(Violation, match=f"ZeroDivisionError: {hook}"):
            world.run_for(10 * SECOND)


def test_calls_of_resources_are_recorded_with_all_that_a_history_needs() -> None:
    seen: list[ResourceCall] = []

    class Calls(Observer):
        def on_resource(self, call: ResourceCall) -> None:
            seen.append(call)

    with begun(observers=[Calls()], resources=(ResourceSpec("r", guarantee=Guarantee.KEYED),)) as world:
        job = world.client().submit("a", payload=b'{"x":1}', lane="l")
        world.run_until(lambda: job.done)
        leader = world.elect()
        claim, execute = seen
        assert seen == world.resources["r"].calls
        assert (claim.kind, claim.decision, claim.attempts) == ("claim", "accepted", ())
        assert (execute.kind, execute.node, execute.boot) == ("execute", leader.name, 1)
        assert execute.token == leader.effects.token
        assert execute.holder.startswith(f"{leader.name}/")
        assert claim.time_ns < execute.sent_ns < execute.time_ns <= world.now_ns
        (attempt,) = execute.attempts
        assert (attempt.operation_id, attempt.lane, attempt.number) == ("a", "l", 1)
        assert len(attempt.payload_digest) == 8
        assert attempt.outcome is not None
        assert attempt.outcome.status == 0
