"""The last look: silent where all is well, and not where anything is left or has gone wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.jepsen.invariants import PropertyViolated, all_properties, final_scan, properties_of
from fencepost.jepsen.invariants.histories import is_list, of_fence, of_log, of_registers, repeated
from fencepost.jepsen.sim.jobs import Fate, Kind
from fencepost.jepsen.sim.load import Load, LoadSettings
from fencepost.jepsen.sim.registers import append, cas
from fencepost.jepsen.sim.violation import Violation
from fencepost.jepsen.sim.world import World
from fencepost.raft.core.entry import HardState
from fencepost.raft.core.options import Options
from fencepost.raft.core.token import FencingToken

from .scene import MILLISECOND, RESOURCES, Scene, come_to_rest, scene


def test_a_run_with_faults_ends_well() -> None:
    options = Options(snapshot_entries=30, retained_entries=5)
    with scene(4, options=options) as it:
        world = it.world
        load = Load(world, LoadSettings(clients=4, think_ns=100 * MILLISECOND, reads=0.3, lanes=0))
        load.start()
        for turn in range(5):
            world.run_for(700 * MILLISECOND)
            name = world.names[turn % 3]
            [world.kill, world.cut_power, world.network.isolate][turn % 3](name)
            world.run_for(900 * MILLISECOND)
            world.network.heal()
            world.start_all()
        come_to_rest(world, load)
        final_scan(world)
        assert len(it.ledger.leaderships) > 1
        assert any(node.raft.snapshot for node in it.ledger.nodes.values())
        assert it.properties.reads.heard > 2
        assert {job.kind for job in it.properties.jobs} == {Kind.SUBMIT, Kind.PROPOSE, Kind.READ}


def lose_a_follower(it: Scene) -> None:
    it.world.kill(it.follower.name)


def lag(it: Scene) -> None:
    it.follower.node.applier.last_applied -= 1


def differ(it: Scene) -> None:
    entries = it.follower.raft.log._entries
    entries[3] = entries[3]._replace(data=b"other")


def leave_a_job(it: Scene) -> None:
    it.world.network.isolate(it.leader.name)
    it.world.client().submit("never", at=it.leader.name)


def leave_a_waiter(it: Scene) -> None:
    it.follower.node.service._done_waiters[7] = []


def forget_a_sync(it: Scene) -> None:
    it.follower.disk.hard_state = HardState(0, "")


def forget_an_entry(it: Scene) -> None:
    it.follower.disk.entries.pop()


def read_the_past(it: Scene) -> None:
    job = it.world.client("reader").read("r")
    it.world.run_until(lambda: job.done)
    job.final.body["value"] = None  # type: ignore[union-attr]


def deny_what_is_in_the_log(it: Scene) -> None:
    next(job for job in it.properties.jobs if job.kind is Kind.PROPOSE).fate = Fate.REFUSED


def do_it_twice(it: Scene) -> None:
    entry = next(entry for entry in it.ledger.committed if b"write" in entry.data)
    place = next(place for place, other in enumerate(it.ledger.committed) if b"first at naked" in other.data)
    for log in (it.ledger.committed, *(node.raft.log._entries for node in it.ledger.nodes.values())):
        log[place] = entry._replace(index=log[place].index)
    # Nothing but the history is asked here: everything else would notice, too.
    it.properties._hooks["finished"].clear()


def forget_who_asked(it: Scene) -> None:
    it.properties.jobs.pop(next(job for job in it.properties.jobs if job.kind is Kind.PROPOSE))


def let_a_lower_token_in(it: Scene) -> None:
    resource = it.world.resources["ledger"]
    call = it.call("claim")
    resource.calls.append(
        call._replace(number=99, token=FencingToken(1, 0), sent_ns=call.time_ns + 1, time_ns=call.time_ns + 2)
    )


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lose_a_follower, "at rest: of the members n1, n2, n3 these do not run: n"),
        (lag, "at rest: n., term 1, has its log to .* and has applied to"),
        (differ, "equal logs: n. has .*other.* at index 4; committed is"),
        (leave_a_job, "at rest: 1 jobs have not ended, the first is <submit never"),
        (leave_a_waiter, "no waiter left: at n. wait .*'outcomes': 1"),
        (forget_a_sync, "disks: the disk of n./1 is said to hold HardState.*term=0"),
        (forget_an_entry, "disks: the disk of n./1 is said to hold .* a power cut would leave"),
        (read_the_past, "history: the verdict on 3 operations is illegal"),
        (deny_what_is_in_the_log, "history: refused for certain, and in the log"),
        (do_it_twice, "history: proposals that stand in the log more than once.*first write"),
        (forget_who_asked, "history: nobody has asked for Entry.*write"),
        (let_a_lower_token_in, "history: resource ledger: .*"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_left_or_wrong_in_the_end_is_found(spoil: Callable[[Scene], None], says: str) -> None:
    with scene() as it:
        final_scan(it.world)
        spoil(it)
        with pytest.raises(Violation, match=f"in the end: {says}") as caught:
            final_scan(it.world)
        assert isinstance(caught.value.__cause__, PropertyViolated)
        assert str(caught.value).startswith("seed 1, at ")


def test_a_property_that_speaks_in_the_end_is_heard() -> None:
    with scene() as it:
        it.properties.reference.at_end().registers.values["r"] = "?"
        with pytest.raises(Violation, match="in the end: equal state: "):
            final_scan(it.world)


def test_properties_have_to_be_there_from_the_beginning() -> None:
    with World(1, 1) as world:
        with pytest.raises(AssertionError, match="no properties look at this world"):
            properties_of(world)
        world.start_all()
        world.elect()
        with pytest.raises(AssertionError, match="from its beginning on"):
            all_properties(world)


@pytest.mark.parametrize("snapshot_entries", [0, 6])
def test_a_world_may_begin_with_a_history(snapshot_entries: int) -> None:
    """What the disks call committed is, and what resources hold was done; from there on everything is looked at."""
    options = Options(snapshot_entries=snapshot_entries, retained_entries=0)
    with scene(options=options) as it:
        disks = {name: host.disk.copy() for name, host in it.world.hosts.items()}
        stores = {name: resource.backup() for name, resource in it.world.resources.items()}
        last_index = it.ledger.last_index
    with World(2, 3, options=options, resources=RESOURCES) as world:
        for name, host in world.hosts.items():
            host.disk.restore(disks[name])
        for name, resource in world.resources.items():
            resource.restore(stores[name])
            resource.events.clear()
        all_properties(world)
        world.start_all()
        later = Scene(world, properties_of(world))
        assert list(later.ledger.leaderships) == [2]
        for name in world.resources:
            later.submit(f"second at {name}", resource=name, lane="lane")
        assert later.submit("first at ledger", lane="lane", payload=b"[1]").final.replayed
        read = world.client().read("r")
        world.run_until(lambda: read.done and world.settled())
        assert read.value == 1
        assert later.ledger.last_index > last_index
        assert later.ledger.adopted_to >= last_index - 1
        assert (later.properties.reference.start_index > 0) is bool(snapshot_entries)
        final_scan(world)


# -- histories ------------------------------------------------------------------------------------------


def proposed(it: Scene, name: str, data: bytes) -> Any:
    job = it.world.client(name).propose(name, data)
    it.world.run_until(lambda: job.done)
    return job


def test_histories_say_what_was_asked_and_heard_and_where_it_stands() -> None:
    with scene() as it:
        held, failed = proposed(it, "held", cas("r", 1, 2)), proposed(it, "failed", cas("r", 1, 3))
        added = proposed(it, "added", append("l", "x"))
        lost = it.world.client("lost").propose("lost", append("l", "y"))
        it.world.client("plain").propose("plain", b"\xff")
        read = it.world.client("reader").read("l")
        stale = it.world.client("stale").read("r", consistency="stale")
        it.world.run_until(lambda: read.done and stale.done and lost.done)
        lost.fate = Fate.UNKNOWN
        history = of_registers(it.properties.jobs, it.ledger.committed, {"r": 2, "l": ["x", "y"]}, it.world.now_ns)
        by_process = {operation.process: operation for operation in history.operations}
        assert by_process["held"].out is True
        assert by_process["failed"].out is False
        assert by_process["added"].op == "append"
        assert by_process["reader"].out == read.value
        assert by_process["lost"].status == "info"
        assert set(by_process) >= {"held", "failed", "added", "lost", "reader", "the end"}
        assert not {"plain", "stale"} & set(by_process)
        assert [each.out for each in history.operations if each.process == "the end"] == [2, ["x", "y"]]
        places = [history.committed[each.client, "r", each.begun_ns] for each in (held, failed)]
        assert places == [held.final.index, failed.final.index]
        assert history.committed["added", "l", added.begun_ns] == added.final.index
        assert is_list(each for each in history.operations if each.key == "l")
        assert not is_list(each for each in history.operations if each.key == "r")


def test_the_history_of_the_log_has_every_command_and_proposal_once() -> None:
    with scene() as it:
        jobs = [job for job in it.properties.jobs if job.kind is not Kind.READ]
        history = of_log([*jobs, *jobs], it.ledger.first_index, it.ledger.committed)
        assert [operation.value for operation in history.operations] == [job.name for job in jobs]
        assert list(history.committed.values()) == [job.final.index for job in jobs]  # type: ignore[union-attr]
        assert repeated(jobs, it.ledger.committed) == {}
        twice = [*it.ledger.committed, it.ledger.committed[-1]]
        assert list(repeated(jobs, twice)) == ["first write"]


def test_in_the_history_of_the_log_an_id_belongs_to_one_command() -> None:
    with scene() as it:
        first = next(job for job in it.properties.jobs if job.name == "first at ledger")
        other = it.world.client().submit(first.name, payload=b"other")
        it.world.run_until(lambda: other.fate is Fate.REFUSED)
        history = of_log([first, other], it.ledger.first_index, it.ledger.committed)
        assert list(history.committed.values()) == [first.final.index, None]  # type: ignore[union-attr]
        final_scan(it.world)


def test_the_history_of_a_fence() -> None:
    with scene() as it:
        resource = it.world.resources["ledger"]
        resource.calls.append(it.call()._replace(number=98, decision="STALE_LEADER", token=FencingToken(1, 0)))
        resource.calls.append(it.call()._replace(number=99, kind="fence"))
        told = [(each.value.idem, str(each.out)) for each in of_fence(resource)]  # type: ignore[attr-defined]
        assert told == [("claim in call 1", "accepted"), ("first at ledger", "accepted"), ("first at ledger", "stale")]
