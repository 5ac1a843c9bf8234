"""A whole cluster with load: all is done, all agree, and it is quick."""

from __future__ import annotations

import time

import pytest

from fencepost.jepsen.sim.jobs import Fate, Kind
from fencepost.jepsen.sim.load import Load, LoadSettings
from fencepost.jepsen.sim.resource import ResourceSpec
from fencepost.jepsen.sim.world import World
from fencepost.raft.ports import Answer, Guarantee, Wait

from .watching import MILLISECOND, SECOND, Sound, begun

RESOURCES = (
    ResourceSpec("ledger", batch_limit=4, concurrency=2),
    ResourceSpec("keyed", guarantee=Guarantee.KEYED),
    ResourceSpec("naked", guarantee=Guarantee.NAKED),
)


@pytest.mark.parametrize("nodes", [1, 3, 5])
def test_under_load_every_command_is_done_once_and_all_states_are_equal(nodes: int) -> None:
    with World(2, nodes, resources=RESOURCES, observers=[Sound()]) as world:
        world.start_all()
        load = Load(world, LoadSettings(clients=5, think_ns=200 * MILLISECOND))
        load.start()
        world.run_for(8 * SECOND)
        load.stop()
        world.run_until(lambda: load.at_rest and world.settled())
        assert len(load.jobs) > 40
        assert [job for job in load.jobs if not job.done] == []
        hashes = world.state_hashes()
        assert len(hashes) == nodes
        assert len(set(hashes.values())) == 1
        executed = [each for resource in world.resources.values() for each in resource.store.operations]
        commands = [job for job in load.jobs if job.kind is Kind.SUBMIT]
        assert sorted(each.operation_id for each in executed) == sorted(job.name for job in commands)
        assert {job.kind for job in load.jobs} == {Kind.SUBMIT, Kind.PROPOSE, Kind.READ}


def test_the_history_of_a_job_says_whom_it_asked_and_when_and_what_it_heard() -> None:
    with begun() as world:
        leader = world.elect().name
        other = next(name for name in world.names if name != leader)
        begun_ns = world.now_ns
        job = world.client("alice").submit("a", at=other, lane="l", payload=b"[1]", wait=Wait.COMMITTED)
        assert job.fate is Fate.OPEN
        world.run_until(lambda: job.done)
        first, last = job.tries[0], job.tries[-1]
        assert (first.node, first.boot) == (other, 1)
        assert isinstance(first.answer, Answer)
        assert first.answer.code == "NOT_LEADER"
        assert len(job.tries) == 2, "the leader's address came with the refusal"
        assert (last.node, last.answer) == (leader, job.final)
        assert begun_ns == job.begun_ns == first.sent_ns < first.answered_ns < last.sent_ns < last.answered_ns
        assert (job.client, job.ended_ns, job.resource, job.lane) == ("alice", last.answered_ns, "ledger", "l")


def test_a_client_asks_again_with_the_same_id_and_a_proposal_without_an_answer_is_unknown() -> None:
    with begun() as world:
        leader = world.elect().name
        world.cut_clients(leader)
        command = world.client().submit("a", at=leader)
        proposal = world.client().propose("p", b"p", at=leader)
        world.run_for(5 * SECOND)
        world.mend_clients(leader)
        world.run_until(lambda: command.done)
        assert len(command.tries) > 1
        assert command.tries[0].answer is None
        assert proposal.fate is Fate.UNKNOWN
        assert len(proposal.tries) == 1


def test_a_client_that_gives_up_hears_nothing_more() -> None:
    with begun() as world:
        client = world.client()
        job = client.submit("a")
        client.give_up()
        world.run_for(5 * SECOND)
        assert (job.fate, job.final) == (Fate.GIVEN_UP, None)
        assert client.job is None


def test_a_resource_that_is_away_delays_its_commands_and_nobody_elses() -> None:
    with begun(resources=RESOURCES[:2]) as world:
        ledger = world.resources["ledger"]
        ledger.go_down()
        away, there = world.client().submit("a", resource="ledger"), world.client().submit("b", resource="keyed")
        world.run_for(5 * SECOND)
        assert there.done
        assert not away.done
        ledger.come_up()
        world.run_until(lambda: away.done)
        assert [what for _, what in ledger.events] == ["down", "up"]


def test_a_lost_answer_is_asked_for_again_and_the_resource_recognises_it() -> None:
    for told in (True, False):
        with begun() as world:
            ledger = world.resources["ledger"]
            ledger.lose_answers(1, told=told)
            job = world.client().submit("a")
            world.run_until(lambda: job.done)  # noqa: B023
            executes = [call for call in ledger.calls if call.kind == "execute"]
            outcomes = [attempt.outcome for call in executes for attempt in call.attempts]
            assert [outcome is not None and outcome.replayed for outcome in outcomes] == [False, True]
            assert len(ledger.store.operations) == 1
            assert (job.ended_ns - job.begun_ns > 5 * SECOND) is not told, "untold, patience has to end"


def test_a_resource_that_restarts_breaks_its_connections_and_keeps_what_it_decided() -> None:
    with begun() as world:
        ledger = world.resources["ledger"]
        ledger.hang()
        job = world.client().submit("a")
        world.run_for(SECOND)
        assert ledger.store.operations == []
        ledger.restart()
        world.run_until(lambda: job.done)
        assert len(ledger.store.operations) == 1


def test_a_resource_restored_from_its_backup_has_forgotten_fence_and_operations_since() -> None:
    with begun() as world:
        ledger = world.resources["ledger"]
        client = world.client()
        first = client.submit("a")
        world.run_until(lambda: first.done)
        backup = ledger.backup()
        second = client.submit("b")
        world.run_until(lambda: second.done)
        assert [each.operation_id for each in ledger.store.operations] == ["a", "b"]
        ledger.restore(backup)
        assert [each.operation_id for each in ledger.store.operations] == ["a"]
        third = client.submit("c")
        world.run_until(lambda: third.done)
        assert [each.operation_id for each in ledger.store.operations] == ["a", "c"]
        assert len(ledger.calls) > 3, "the record of calls is the world's and stays"


def test_a_node_cut_off_from_a_resource_hands_on_what_it_cannot_do() -> None:
    with begun() as world:
        leader = world.elect()
        ledger = world.resources["ledger"]
        ledger.unreached[leader.name] = None
        job = world.client().submit("a")
        world.run_until(lambda: job.done, within_ns=120 * SECOND)
        assert world.elect().name != leader.name


def test_speed(capsys: pytest.CaptureFixture[str]) -> None:
    """Printed, not judged: what it is depends on the machine."""
    figures = []
    for nodes in (3, 5):
        with World(1, nodes) as world:
            world.start_all()
            world.elect()
            load = Load(world, LoadSettings(clients=1, think_ns=10 * SECOND))
            load.start()
            begun_at = time.process_time()
            world.run_for(60 * SECOND)
            figures.append(f"{nodes} nodes: {60 / (time.process_time() - begun_at):.0f} times real time")
            assert world.settled()
    with capsys.disabled():
        print(f"\nsimulation, light load, {', '.join(figures)}")
